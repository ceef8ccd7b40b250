"""`edgecompress analyze`."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.cli.arguments import argument, asked, options_of, request_of
from edgecompress.core.errors import InputError

HELP = "count the cost and the zeros of each layer, and measure its sensitivity to compression"
PURPOSE = "look into a model"
EXAMPLES = (
    "analyze\n"
    "analyze net.onnx --device rpi5,h200 --json\n"
    "analyze my_pkg.nets:build --data my_pkg.nets:data --sensitivity ratio --html analysis.html\n"
    "analyze --sensitivity bits --layers 'blocks.*,head' --levels 8,4,2 --items 100\n"
    "analyze my_pkg.nets:build --summary compute,percentile --percentile 0.9\n"
    "analyze --activations --html analysis.html\n"
    "analyze dist/x86/artifact/model.onnx --storage"
)
ARGUMENTS = (
    asked("model"),
    asked("data", help="samples, as for deploy; .onnx and .tflite files need them only for --sensitivity"),
    asked("metric"),
    asked("samples"),
    asked("device", default="host", help="mark the layers that are memory-bound on these devices: names or TOML files"),
    asked("batch"),
    asked("threads", type=int, default=None, help="threads of the sensitivity measurement (default: 1)"),
    asked("seed", help="random seed of the data split (default: 0)"),
    asked("settings", help="override a value of the source; may repeat"),
    argument(
        "--storage",
        action="store_true",
        help="bytes of each weight: dense, sparse, compressed, as a codebook, packed",
    ),
    argument(
        "--activations",
        action="store_true",
        help="what each layer gives on items: its zeros, range, percentiles and histogram",
    ),
    argument(
        "--summary",
        default="",
        metavar="NAMES",
        help="Distiller's tables in the place of costs and zeros: sparsity, compute, model, modules, percentile",
    ),
    argument(
        "--percentile", type=float, default=0.9, metavar="SHARE", help="of --summary percentile, 0 to 1 (default: 0.9)"
    ),
    argument(
        "--sensitivity",
        choices=("ratio", "bits"),
        help="prune (ratio) or quantize (bits) one layer at a time and measure the loss",
    ),
    argument(
        "--structure",
        choices=("element", "filter", "channel"),
        default="element",
        help="unit of pruning for --sensitivity ratio (default: element)",
    ),
    argument(
        "--layers",
        default="",
        metavar="NAMES",
        help="only the layers that match these comma-separated patterns (default: all)",
    ),
    argument(
        "--levels",
        default="",
        metavar="LEVELS",
        help="comma-separated ratios or bits (default: 0.25,0.5,0.75 or 8,4,3,2)",
    ),
    argument("--items", type=int, default=64, metavar="N", help="number of items of the split `select` (default: 64)"),
    argument("--csv", type=Path, metavar="FILE", help="also write --sensitivity ratio as Distiller's CSV file"),
    argument("--html", type=Path, metavar="FILE", help="also write an HTML page with the figure"),
    asked("offline"),
    asked("store"),
)


def run(args: argparse.Namespace) -> int:
    """Counts the cost of each layer, and measures its sensitivity if asked for."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.commands import analyze

    sensitivity, layers = None, tuple(filter(None, args.layers.split(",")))
    if args.sensitivity:
        try:
            levels = tuple(float(text) for text in args.levels.split(",") if text)
        except ValueError as error:
            raise InputError(f"--levels {args.levels}: write numbers with commas, for example 0.25,0.5,0.75") from error
        sensitivity = analyze.SensitivityRequest(args.sensitivity, args.structure, layers, levels, args.items, args.csv)
    elif args.csv:
        raise InputError("--csv is of a sensitivity; add --sensitivity ratio")
    elif args.levels or (args.layers and not args.activations):
        raise InputError("--layers and --levels need --sensitivity; add --sensitivity ratio or --sensitivity bits")
    watched = analyze.ActivationRequest(layers, args.items) if args.activations else None
    names = tuple(filter(None, args.summary.split(",")))
    summary = analyze.SummaryRequest(names, args.percentile) if names else None
    marked = analyze.AnalysisRequest(args.device, sensitivity, args.html, args.storage, watched, summary)
    how = request_of(args)
    del how["device"]  # of the marks alone
    with Progress(console.open(args), args) as progress:
        analysis = analyze.analyze(request=marked, options=options_of(args, progress), **how)  # type: ignore[misc]
    page = str(analysis.page) if analysis.page else None
    console.say(args, {**analysis.facts, "page": page}, analyze.text(analysis, args.quiet, console.room()))
    return 0
