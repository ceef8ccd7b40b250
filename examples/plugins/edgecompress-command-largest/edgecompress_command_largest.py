"""Lists the largest files of a folder: a command in one file, in a distribution of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument

HELP = "list the largest files of what was shipped"
# The heading that it stands under in `edgecompress --help`; lists read these lines without importing the file
PURPOSE = "use what was shipped"
STABILITY = "experimental"
EXAMPLES = "largest dist/x86 --count 3 --json"
ARGUMENTS = (
    argument("folder", type=Path, metavar="FOLDER", help="the folder that deploy wrote"),
    argument("--count", type=int, default=5, metavar="N", help="files that are listed (default: 5)"),
)


def run(args: argparse.Namespace) -> int:
    """Prints them, with --json as JSON; returns the exit code. What is wrong is an InputError of one line."""
    from edgecompress.cli import console
    from edgecompress.core.errors import InputError

    if not args.folder.is_dir():
        raise InputError(f"{args.folder}: no such folder; give one that deploy wrote")
    files = sorted((-each.stat().st_size, str(each)) for each in args.folder.rglob("*") if each.is_file())
    found = {name: -size for size, name in files[: args.count]}
    console.say(args, found, "\n".join(f"{size:>12,}  {name}" for name, size in found.items()) or "no files")
    return 0
