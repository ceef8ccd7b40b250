"""`edgecompress deploy`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import argument, asked, one_target, options_of
from edgecompress.cli.commands._deploying import DEPLOYED, deployed, plans
from edgecompress.core import extras

HELP = "compress, export, verify, measure and ship a model for a target"
PURPOSE = "take a model to a device"
ORDER = 1
EXAMPLES = (
    "deploy --target x86\n"
    "deploy --target arm64,android,ios\n"
    "deploy my_pkg.nets:build --data my_pkg.nets:data --profile quick\n"
    "deploy net.onnx --data images/ --metric top1 --only int8,fp32\n"
    "deploy my_pkg.nets:build --data my_pkg.nets:data --train 30m\n"
    "deploy source.toml --set variant.int8.calibrator=entropy --set limits.items_lost=2"
)
ARGUMENTS = (
    *DEPLOYED,
    asked("on"),
    argument(
        "--from-search",
        default="",
        metavar="ID[/TRIAL]",
        help="ship what a search found, its best trials or one of them, of its model or of MODEL",
    ),
    argument(
        "--train",
        default="",
        metavar="TIME",
        help="then narrow what shipped and train it for so long (30m, 2h, 90s; a bare number: minutes): the better "
        "ships",
    ),
)


def run(args: argparse.Namespace) -> int:
    """Takes the model to each target, or to one without training and then with it."""
    if not args.train:
        return deployed(args)
    from edgecompress.cli import console
    from edgecompress.cli.progress import Phases

    screen, train = console.open(args), extras.part("search", "train", "--train")
    minutes = train.minutes_of(args.train)
    one_target(args, "--train")
    made, _ = plans(args)
    with Phases(screen, args, made) as phases:
        result = train.run(*made[0], options_of(args, phases), minutes, lambda words: console.said(screen, args, words))
    return console.ended(screen, args, result)
