"""Commands that explain a model or an artifact: analyze, diagnose."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, argument
from edgecompress.cli.grammar.shared import (
    BATCH,
    METRIC,
    MODEL,
    OFFLINE,
    SAMPLES,
    SEED,
    SET_OF_FILE,
    STORE,
    THREADS,
    settings,
)

SENSITIVITY = (
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
)

COMMANDS = (
    Command(
        "analyze",
        "count the cost and the zeros of each layer, and measure its sensitivity to compression",
        handlers.analyze,
        "analyze\n"
        "analyze net.onnx --device rpi5,h200 --json\n"
        "analyze my_pkg.nets:build --data my_pkg.nets:data --sensitivity ratio --html analysis.html\n"
        "analyze --sensitivity bits --layers 'blocks.*,head' --levels 8,4,2 --items 100\n"
        "analyze dist/x86/artifact/model.onnx --storage",
        (
            MODEL,
            argument("--data", help="samples, as for deploy; .onnx and .tflite files need them only for --sensitivity"),
            METRIC,
            SAMPLES,
            argument(
                "--device",
                default="host",
                help="mark the layers that are memory-bound on these devices: names or TOML files",
            ),
            BATCH,
            argument("--threads", type=int, metavar="N", help="threads of the sensitivity measurement (default: 1)"),
            argument("--seed", type=int, metavar="N", help="random seed of the data split (default: 0)"),
            settings("override a value of the source; may repeat"),
            argument(
                "--storage",
                action="store_true",
                help="bytes of each weight: dense, sparse, compressed, as a codebook, packed",
            ),
            *SENSITIVITY,
            argument("--html", type=Path, metavar="FILE", help="also write an HTML page with the figure"),
            OFFLINE,
            STORE,
        ),
    ),
    Command(
        "diagnose",
        "name the layer at which an artifact departs from its source, and the remedy",
        handlers.diagnose,
        "diagnose --target x86 --variant int8\n"
        "diagnose my_pkg.nets:build --data my_pkg.nets:data --target ios --variant fp16 --out why\n"
        "diagnose --artifact dist/x86\n"
        "diagnose my_pkg.nets:build --data my_pkg.nets:data --artifact theirs.tflite --json",
        (
            MODEL,
            argument("--target", help="name or TOML file of the target (default: x86)"),
            argument("--variant", default="", help="variant of the target (default: the first that compresses)"),
            argument(
                "--artifact",
                type=Path,
                metavar="PATH",
                help="folder that deploy wrote, or a model file, in place of a variant",
            ),
            argument("--data", help="samples, as for deploy"),
            METRIC,
            SAMPLES,
            argument("--items", type=int, default=16, metavar="N", help="number of items to run (default: 16)"),
            argument(
                "--split",
                choices=("calibrate", "select", "test"),
                default="calibrate",
                help="split the items come from (default: calibrate)",
            ),
            THREADS,
            BATCH,
            SEED,
            SET_OF_FILE,
            argument(
                "--out", type=Path, metavar="DIR", help="also write diagnosis.json and its HTML page into this folder"
            ),
            OFFLINE,
            STORE,
        ),
    ),
)
