"""`edgecompress unpack`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument

HELP = "write the file that was packed, to the bit"
PURPOSE = "use what was shipped"
ORDER = 6
EXAMPLES = "unpack net.tflite.packed\nunpack net.packed --out net.onnx --json"
ARGUMENTS = (
    argument("file", type=Path, metavar="FILE", help="a file that pack wrote"),
    argument("--out", type=Path, help="output file (default: the name of FILE without .packed)"),
)


def run(args: argparse.Namespace) -> int:
    """Unpacks one."""
    from edgecompress.cli import console
    from edgecompress.extras.apps import pack_file

    done = pack_file.unpack(args.file, args.out)
    console.say(args, done.facts(), str(done.out if args.quiet else done))
    return 0
