"""`edgecompress search`."""

from __future__ import annotations

import argparse

from edgecompress.cli.arguments import (
    RUNNING,
    STRICT,
    THREADS,
    argument,
    asked,
    one_target,
    options_of,
    request_of,
    sampled,
    settings_of,
)

HELP = "find the best recipes and runtimes under limits by measured trials, and ship the best"
PURPOSE = "take a model to a device"
ORDER = 2
STABILITY = "experimental"
EXAMPLES = (
    "search my_pkg.nets:build --data my_pkg.nets:data --target x86 --minutes 30\n"
    "search net.onnx --data images/ --objectives latency,accuracy,size --limit size=0.3\n"
    'search source.toml --set \'search.techniques=["int8", "prune_channels"]\' --train --minutes 600'
)
ARGUMENTS = (
    asked("model"),
    *sampled(THREADS),
    asked("target", help="target: a name or a TOML file (default: x86)"),
    argument("--minutes", type=float, metavar="N", help="then the trial that runs is stopped (default: 15)"),
    argument("--trials", type=int, metavar="N", help="trials at most (default: 200)"),
    argument("--patience", type=int, metavar="N", help="end after N trials without a gain (default: 40)"),
    argument(
        "--objectives",
        metavar="NAMES",
        help="latency, accuracy, size, memory, energy, instructions, comma-separated (default: latency,accuracy)",
    ),
    argument(
        "--limit",
        action="append",
        default=[],
        metavar="OBJECTIVE=VALUE",
        help="at most this share of the baseline's, of accuracy at most this loss; may repeat",
    ),
    argument("--train", action="store_true", help="try techniques that train, too"),
    argument("--sampler", metavar="NAME", help="tpe, nsga2 or random (default: tpe)"),
    STRICT,
    asked("on"),
    asked("out", help="output folder (default: dist/TARGET)"),
    *RUNNING,
)


def run(args: argparse.Namespace) -> int:
    """Searches recipes for a target, and ships the best."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import job_run
    from edgecompress.extras.search import screen, search
    from edgecompress.pipeline.job import job

    names = ("minutes", "trials", "patience", "sampler")
    told = {f"search.{name}": value for name in names if (value := getattr(args, name)) is not None}
    if args.objectives:
        told["search.objectives"] = args.objectives.split(",")
    if args.train:
        told["search.train"] = True
    told |= {f"search.limits.{n}": value for n, value in settings_of(args.limit, "size=0.3", "--limit").items()}
    request = request_of(args)
    request["settings"] = {**(request["settings"] or {}), **told}
    search.require()
    one_target(args, "search")
    shown = console.open(args)
    with Progress(shown, args) as progress:
        options = options_of(args, progress)
        whole = job(**request, ask=job_run.asks(options))
        found = search.run(whole, request, options, lambda row: screen.trial(shown, args, row))
    return screen.searched(shown, args, found)
