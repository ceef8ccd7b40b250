"""Arguments that several commands take."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli.grammar.entry import Argument, argument


def settings(help: str) -> Argument:
    """`--set KEY=VALUE`, which may repeat."""
    return argument("--set", action="append", default=[], metavar="KEY=VALUE", help=help)


OFFLINE = argument(
    "--offline",
    action="store_true",
    help="refuse whatever tries to reach the network, but for a device that is asked for",
)
MODEL = argument(
    "model",
    nargs="?",
    metavar="MODEL",
    help="a factory pkg.mod:fn, a .pt2, .onnx, .tflite or .keras file, a SavedModel, or a source TOML "
    "(default: the embedded demo)",
)
SHIPPED = argument("artifact", type=Path, metavar="FOLDER", help="what a deploy wrote")
STORE = argument("--store", type=Path, default=Path(".edgecompress"), help="where results are kept")
METRIC = argument("--metric", help="top1, top5, perplexity, mse, none, or pkg.mod:fn")
SAMPLES = argument("--samples", type=int, metavar="N", help="at most N items per split")
THREADS = argument("--threads", type=int, metavar="N", help="threads of an inference (default: 1)")
BATCH = argument("--batch", type=int, metavar="N", help="items of an inference (default: 1)")
SEED = argument("--seed", type=int, metavar="N", help="of everything random (default: 0)")
SET_OF_FILE = settings("lay a value over a TOML file's")
REQUIRE_MEASURED = argument(
    "--require-measured", action="store_true", help="fail (exit 1) when no sensor measured the energy"
)
MEASURING = (
    argument("--device", help="a device's name or TOML file (default: the target's)"),
    argument("--profile", default="standard", help="how to measure: quick, standard, strict, or a TOML file"),
    THREADS,
    BATCH,
    SEED,
    SET_OF_FILE,
)
JOB = (
    argument("--data", help="pkg.mod:fn, an .npz, a folder of .npy or of images, or `random`"),
    METRIC,
    SAMPLES,
    *MEASURING,
)
RUNNING = (
    OFFLINE,
    argument("--remeasure", action="store_true", help="measure again, whatever is stored"),
    STORE,
)
