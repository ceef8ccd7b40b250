"""`edgecompress trim`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument, asked, options_of, settings_of

HELP = "write a Hugging Face folder with the tokens that your texts use alone"
PURPOSE = "take a model to a device"
ORDER = 7
EXAMPLES = "trim ./my-bert --data reviews.tsv --out small-bert\ntrim source.toml --out small-bert --least 5 --json"
ARGUMENTS = (
    argument("model", metavar="FOLDER", help="a Hugging Face folder of a net of texts, or a source TOML with one"),
    asked("data", help="texts (.tsv, .jsonl, .csv, .txt), or a folder with a file of them per split"),
    argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write"),
    argument("--least", type=int, default=1, metavar="N", help="keep what is used so often (default: 1)"),
    asked("settings"),
    asked("offline"),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
    """Writes a Hugging Face folder with fewer tokens."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.extras.hugging_face import trim

    more = {"data": args.data, "least": args.least, "settings": settings_of(args.settings, "source.length=64")}
    with Progress(console.open(args), args) as progress:
        made = trim.trim(args.model, args.out, options=options_of(args, progress), **more)
    console.say(args, {"out": str(made.out), **made.facts}, str(made.out) if args.quiet else trim.text(made))
    return 0
