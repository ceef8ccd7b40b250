"""From a model to what ships: deploy, guard, plan."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import handlers
from edgecompress.cli.grammar.entry import Command, argument
from edgecompress.cli.grammar.shared import JOB, MODEL, REQUIRE_MEASURED, RUNNING

PLANNED = (
    MODEL,
    *JOB,
    argument("--target", default="x86", help="a target's name or TOML file, or several with commas (default: x86)"),
    argument("--only", action="append", default=[], metavar="VARIANT", help="only these variants"),
)
DEPLOYED = (
    *PLANNED,
    argument("--out", type=Path, help="where it ships (default: dist/TARGET; of several targets: OUT/TARGET each)"),
    argument("--until", default="", metavar="STAGE", help="stop after this stage; plan lists them"),
    argument("--untrusted", action="store_true", help="refuse a model or data that runs its author's code"),
    *RUNNING,
    REQUIRE_MEASURED,
)

COMMANDS = (
    Command(
        "deploy",
        "compress, export, verify, measure and ship a model for a target",
        handlers.deploy,
        "deploy --target x86\n"
        "deploy --target arm64,android,ios\n"
        "deploy my_pkg.nets:build --data my_pkg.nets:data --profile quick\n"
        "deploy net.onnx --data images/ --metric top1 --only int8,fp32\n"
        "deploy source.toml --set variant.int8.calibrator=entropy --set limits.items_lost=2",
        DEPLOYED,
    ),
    Command(
        "guard",
        "deploy, and mend each variant that loses more than the budget, rung by rung",
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
                help="as --set limits.LIMIT=VALUE; may repeat",
            ),
            *DEPLOYED,
        ),
    ),
    Command(
        "plan",
        "print what deploy would do, and how long it would take, without doing it",
        handlers.plan,
        "plan --target x86\nplan net.onnx --data images/ --json",
        PLANNED,
    ),
)
