"""The process of `check_zoo`: `python -m edgecompress.testing.conformance RUNTIME FOLDER CELL...`."""

from __future__ import annotations

import sys

from edgecompress.testing.conformance.zoo_cells import main

if __name__ == "__main__":
    sys.exit(main())
