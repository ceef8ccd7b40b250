"""`python -m edgecompress`."""

import sys

from edgecompress.cli.main import main

sys.exit(main())
