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
    help="fetch nothing, and run every stage without network access",
)
MODEL = argument(
    "model",
    nargs="?",
    metavar="MODEL",
    help="a factory pkg.mod:fn, a .pt2, .onnx, .tflite or .keras file, a SavedModel, a Hugging Face folder, or a "
    "source TOML (default: the embedded demo)",
)
SHIPPED = argument("artifact", type=Path, metavar="FOLDER", help="the folder that deploy wrote")
STORE = argument(
    "--store",
    type=Path,
    help="the folder of stored results (default: .edgecompress in the folder where you run it)",
)
METRIC = argument("--metric", help="accuracy metric: top1, perplexity, map, miou, ..., none, or pkg.mod:fn")
SAMPLES = argument("--samples", type=int, metavar="N", help="use at most N items per split")
THREADS = argument("--threads", type=int, metavar="N", help="threads per inference (default: 1)")
BATCH = argument("--batch", type=int, metavar="N", help="batch size (default: 1)")
SEED = argument("--seed", type=int, metavar="N", help="random seed (default: 0)")
SET_OF_FILE = settings("override a value of a TOML file; may repeat")
STRICT = argument(
    "--strict",
    action="store_true",
    help="refuse what intervals of 95 %% leave undecided, too (limits.strict = true)",
)
REQUIRE_MEASURED = argument(
    "--require-measured", action="store_true", help="fail (exit 1) when no sensor measured the energy"
)
RACED_THREADS = argument(
    "--threads", metavar="N", help="threads per inference; of several (1,2,all) the fastest is found (default: 1)"
)
SHIPPED_THREADS = argument(
    "--threads", type=int, metavar="N", help="threads per inference (default: as many as it shipped with)"
)


def measuring(threads: Argument) -> tuple[Argument, ...]:
    """Where and how is measured."""
    return (
        argument("--device", help="name or TOML file of a device (default: the target's)"),
        argument(
            "--profile",
            default="standard",
            help="how to measure: quick, standard, strict, or a TOML file (default: standard)",
        ),
        threads,
        BATCH,
        SEED,
        SET_OF_FILE,
    )


def job(threads: Argument) -> tuple[Argument, ...]:
    """With which data, where and how."""
    return (
        argument(
            "--data",
            help="samples: pkg.mod:fn, an .npz, a folder of .npy files or images, texts (.tsv, .jsonl, .txt), or "
            "`random`",
        ),
        METRIC,
        SAMPLES,
        *measuring(threads),
    )


JOBS = argument(
    "--jobs",
    type=int,
    metavar="N",
    help="stages that build at once, while memory lasts; what measures is alone (default: EDGECOMPRESS_JOBS, "
    "else as many as processors, 4 at most)",
)
RUNNING = (
    OFFLINE,
    argument("--remeasure", action="store_true", help="measure again, even if a stored measurement is recent"),
    STORE,
)
