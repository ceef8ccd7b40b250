"""`edgecompress pack`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument

HELP = "pack a model's file: weights as codebooks or byte planes, through deflate"
PURPOSE = "use what was shipped"
ORDER = 5
EXAMPLES = "pack net.tflite\npack dist/x86 --out net.packed\npack weights.safetensors --json"
ARGUMENTS = (
    argument("file", type=Path, metavar="FILE", help="a model's file, of any format, or the folder that deploy wrote"),
    argument("--out", type=Path, help="output file (default: the name of FILE with .packed)"),
)


def run(args: argparse.Namespace) -> int:
    """Packs a model file."""
    from edgecompress.cli import console
    from edgecompress.extras.apps import pack_file

    done = pack_file.pack(args.file, args.out)
    console.say(args, done.facts(), str(done.out if args.quiet else done))
    return 0
