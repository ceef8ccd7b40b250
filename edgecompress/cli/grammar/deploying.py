"""Commands that take a model to a target: deploy, search, guard, check, advise, plan; and trim, before them."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, argument
from edgecompress.cli.grammar.shared import (
    BATCH,
    JOBS,
    MODEL,
    OFFLINE,
    RACED_THREADS,
    REQUIRE_MEASURED,
    RUNNING,
    SAMPLES,
    SEED,
    SET_OF_FILE,
    STORE,
    STRICT,
    THREADS,
    job,
)

TARGET = argument("--target", default="x86", help="targets: names or TOML files, comma-separated (default: x86)")
ONLY = argument(
    "--only", action="append", default=[], metavar="VARIANT", help="variants to build, comma-separated (default: all)"
)
DEPLOYED = (
    MODEL,
    *job(RACED_THREADS),
    TARGET,
    ONLY,
    STRICT,
    argument("--out", type=Path, help="output folder (default: dist/TARGET; with several targets: OUT/TARGET)"),
    argument("--until", default="", metavar="STAGE", help="stop after this stage; `plan` lists the stages"),
    argument("--untrusted", action="store_true", help="refuse models and data that execute their author's code"),
    *RUNNING,
    JOBS,
    REQUIRE_MEASURED,
)
FROM_SEARCH = argument(
    "--from-search",
    default="",
    metavar="ID[/TRIAL]",
    help="ship what a search found, its best trials or one of them, of its model or of MODEL",
)
TRAIN = argument(
    "--train",
    default="",
    metavar="TIME",
    help="then narrow what shipped and train it for so long (30m, 2h, 90s; a bare number: minutes): the better ships",
)
SEARCHED = (
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
)
BEFOREHAND = (SAMPLES, BATCH, SEED, SET_OF_FILE, OFFLINE, STORE)  # of what is told before anything is built

COMMANDS = (
    Command(
        "deploy",
        "compress, export, verify, measure and ship a model for a target",
        handlers.deploy,
        "deploy --target x86\n"
        "deploy --target arm64,android,ios\n"
        "deploy my_pkg.nets:build --data my_pkg.nets:data --profile quick\n"
        "deploy net.onnx --data images/ --metric top1 --only int8,fp32\n"
        "deploy my_pkg.nets:build --data my_pkg.nets:data --train 30m\n"
        "deploy source.toml --set variant.int8.calibrator=entropy --set limits.items_lost=2",
        (*DEPLOYED, FROM_SEARCH, TRAIN),
    ),
    Command(
        "search",
        "find the best recipes and runtimes under limits by measured trials, and ship the best",
        handlers.search,
        "search my_pkg.nets:build --data my_pkg.nets:data --target x86 --minutes 30\n"
        "search net.onnx --data images/ --objectives latency,accuracy,size --limit size=0.3\n"
        'search source.toml --set \'search.techniques=["int8", "prune_channels"]\' --train --minutes 600',
        (
            MODEL,
            *job(THREADS),
            argument("--target", default="x86", help="target: a name or a TOML file (default: x86)"),
            *SEARCHED,
            STRICT,
            argument("--out", type=Path, help="output folder (default: dist/TARGET)"),
            *RUNNING,
        ),
    ),
    Command(
        "guard",
        "deploy, and repair each variant that loses more accuracy than the budget allows",
        handlers.guard,
        "guard my_pkg.nets:build --data my_pkg.nets:data --budget items_lost=1\n"
        "guard source.toml --target x86 --only int8,fp32 --budget metric_ratio=1.01\n"
        'guard source.toml --only int8,fp32 --set \'guard.rungs=["calibrate", "keep"]\'',
        (
            argument(
                "--budget",
                action="append",
                default=[],
                metavar="LIMIT=VALUE",
                help="accuracy budget, the same as --set limits.LIMIT=VALUE; may repeat",
            ),
            *DEPLOYED,
        ),
    ),
    Command(
        "check",
        "say which variants of targets a model reaches and where its operators run, before anything is built",
        handlers.check,
        "check net.onnx --target android,ios,arm64\n"
        "check my_pkg.nets:build --data my_pkg.nets:data --target ethos-u55 --json",
        (
            MODEL,
            argument("--data", help="samples, as for deploy; files need none"),
            TARGET,
            ONLY,
            *BEFOREHAND,
        ),
    ),
    Command(
        "advise",
        "rank what fits a model, its data and a target by what it should gain, before anything is built",
        handlers.advise,
        "advise net.onnx --data images/ --target x86\n"
        "advise my_pkg.nets:build --data my_pkg.nets:data --target arm64 --objective size --json",
        (
            MODEL,
            argument("--data", help="samples, as for deploy; files need none"),
            argument("--target", default="x86", help="name or TOML file of the target (default: x86)"),
            argument(
                "--objective",
                default="latency",
                choices=("latency", "size", "energy"),
                help="what the rows are ranked by (default: latency)",
            ),
            argument("--profile", default="standard", help="how a deploy would measure (default: standard)"),
            *BEFOREHAND,
        ),
    ),
    Command(
        "plan",
        "print the stages of a deploy and their expected time, and run none of them",
        handlers.plan,
        "plan --target x86\nplan net.onnx --data images/ --json",
        DEPLOYED,
    ),
    Command(
        "trim",
        "write a Hugging Face folder with the tokens that your texts use alone",
        handlers.trim,
        "trim ./my-bert --data reviews.tsv --out small-bert\ntrim source.toml --out small-bert --least 5 --json",
        (
            argument(
                "model", metavar="FOLDER", help="a Hugging Face folder of a net of texts, or a source TOML with one"
            ),
            argument("--data", help="texts (.tsv, .jsonl, .csv, .txt), or a folder with a file of them per split"),
            argument("--out", type=Path, required=True, metavar="DIR", help="the folder to write"),
            argument("--least", type=int, default=1, metavar="N", help="keep what is used so often (default: 1)"),
            SET_OF_FILE,
            OFFLINE,
            STORE,
        ),
    ),
)
