"""`python -m edgecompress`."""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - an older Python gets this far, and is told
    here = ".".join(map(str, sys.version_info[:3]))
    sys.stderr.write(f"edgecompress: error: needs Python 3.11 or newer, not {here}; run: python3.11 -m edgecompress\n")
    sys.exit(2)

from edgecompress.cli.main import main

sys.exit(main())
