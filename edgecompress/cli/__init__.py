"""The command line: arguments, handlers, what the terminal shows."""

import os
import sys


def _working_folder() -> str:
    """The folder that an empty entry of PYTHONPATH has put on the path of this Python, or ""."""
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    try:
        here = os.getcwd() if len(entries) > 1 and "" in entries else ""
    except OSError:  # it was removed
        return ""
    return "" if here in map(os.path.abspath, filter(None, entries)) else here


if _unwanted := _working_folder():  # before anything else is imported
    sys.path[:] = [entry for entry in sys.path if entry not in ("", _unwanted)]
