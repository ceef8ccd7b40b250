"""What a model is like, and where an artifact leaves it: analyze, diagnose."""

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
    argument("--sensitivity", choices=("ratio", "bits"), help="prune, or quantize, one layer after the other and look"),
    argument(
        "--structure",
        choices=("element", "filter", "channel"),
        default="element",
        help="what a ratio prunes the smallest of (default: element)",
    ),
    argument("--layers", default="", metavar="NAMES", help="only these, as patterns with commas (default: all)"),
    argument("--levels", default="", metavar="LEVELS", help="with commas (default: 0.25,0.5,0.75, or 8,4,3,2 bits)"),
    argument("--items", type=int, default=64, metavar="N", help="of the split `select` (default: 64)"),
)

COMMANDS = (
    Command(
        "analyze",
        "count what each layer of a model costs, which weights are zero, and which layers mind compression",
        handlers.analyze,
        "analyze\n"
        "analyze net.onnx --device rpi5,h200 --json\n"
        "analyze my_pkg.nets:build --data my_pkg.nets:data --sensitivity ratio --html analysis.html\n"
        "analyze --sensitivity bits --layers 'blocks.*,head' --levels 8,4,2 --items 100\n"
        "analyze dist/x86/model.onnx --storage",
        (
            MODEL,
            argument("--data", help="as for deploy; an .onnx or a .tflite needs it for --sensitivity only"),
            METRIC,
            SAMPLES,
            argument(
                "--device",
                default="host",
                help="whose memory-bound layers: a name or TOML file, or several with commas",
            ),
            BATCH,
            argument("--threads", type=int, metavar="N", help="threads of the sensitivity (default: 1)"),
            argument("--seed", type=int, metavar="N", help="of how the data is split (default: 0)"),
            settings("lay a value over the source's"),
            argument(
                "--storage",
                action="store_true",
                help="what each weight takes: as it is, as a bitmask, in CSR, through zstd",
            ),
            *SENSITIVITY,
            argument("--html", type=Path, metavar="FILE", help="write it as a page, too, with the picture"),
            OFFLINE,
            STORE,
        ),
    ),
    Command(
        "diagnose",
        "find the layer at which an artifact leaves its source, and say what to do about it",
        handlers.diagnose,
        "diagnose --target x86 --variant int8\n"
        "diagnose my_pkg.nets:build --data my_pkg.nets:data --target ios --variant fp16 --out why\n"
        "diagnose --artifact dist/x86\n"
        "diagnose my_pkg.nets:build --data my_pkg.nets:data --artifact theirs.tflite --json",
        (
            MODEL,
            argument("--target", help="whose variant: a target's name or TOML file (default: x86)"),
            argument("--variant", default="", help="which of its variants (default: the first that compresses)"),
            argument(
                "--artifact",
                type=Path,
                metavar="PATH",
                help="what a deploy wrote, or a model file, instead of a variant",
            ),
            argument("--data", help="as for deploy"),
            SAMPLES,
            argument("--items", type=int, default=16, metavar="N", help="run the first N items (default: 16)"),
            argument("--split", choices=("calibrate", "select", "test"), default="calibrate", help="of this split"),
            THREADS,
            BATCH,
            SEED,
            SET_OF_FILE,
            argument("--out", type=Path, metavar="DIR", help="write diagnosis.json and its page there, too"),
            OFFLINE,
            STORE,
        ),
    ),
)
