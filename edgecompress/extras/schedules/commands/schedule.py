"""`edgecompress schedule`: check, show, run, convert."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from edgecompress.cli.arguments import Command, argument, asked, options_of, request_of
from edgecompress.core.errors import CheckFailed, InputError
from edgecompress.core.plugins import EXPERIMENTAL

HELP = "read Distiller's YAML schedules: check, show, run, convert them"
PURPOSE = "train under a schedule"
DESCRIPTION = (
    "Reads Distiller's YAML schedules: checks them, shows their course, trains under them, makes a target of them."
)
FILE = argument("file", type=Path, metavar="FILE", help="schedule of Distiller, a YAML file")
NET = argument("model", nargs="?", metavar="MODEL", help="factory of the net, pkg.mod:fn, or a source TOML with one")
EPOCHS = argument(
    "--epochs", type=int, metavar="N", help="epochs of training (default: those in the file's header, else all)"
)
LR = argument("--lr", type=float, metavar="RATE", help="first learning rate (default: that in the header, else 0.1)")
SHAPE = argument(
    "--shape",
    default="",
    metavar="SIZES",
    help="of an item of MODEL's input, 3,32,32, to try thinning with (default: by --data, else the file's dataset)",
)
RENAME = argument(
    "--rename",
    action="append",
    metavar="OLD=NEW",
    help="a module that MODEL calls otherwise than FILE, layer3=stage2; may repeat",
)
TARGET = asked("target", help="target whose runtime and limits are taken (default: x86)")
TRAINING = (
    RENAME,
    EPOCHS,
    LR,
    argument("--batch-size", type=int, metavar="N", help="items of a step (default: the header's, else 256)"),
    argument("--momentum", type=float, metavar="M", help="of SGD (default: the header's, else 0.9)"),
    argument("--weight-decay", type=float, metavar="D", help="of SGD (default: the header's, else 0.0001)"),
    argument("--clip", type=float, metavar="NORM", help="the largest norm of all gradients together (default: any)"),
    argument("--plateau", type=float, metavar="N", help="divide the rate by N after an epoch no better on select"),
    argument("--distill", type=float, metavar="SHARE", help="learned from a teacher, 0 to 1, the rest from labels"),
    argument("--teacher", metavar="FACTORY", help="the teacher (default: the net as it is before)"),
    argument("--temperature", type=float, metavar="T", help="of the distillation (default: 4)"),
    argument("--amp", choices=("off", "auto", "on"), help="16-bit arithmetic; auto: where it is fast (default: off)"),
)
GIVEN = (
    "rename",
    "epochs",
    "lr",
    "batch_size",
    "momentum",
    "weight_decay",
    "clip",
    "plateau",
    "distill",
    "teacher",
    "temperature",
    "amp",
)


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The options of the technique that the command line names."""
    return {name: getattr(args, name) for name in GIVEN if getattr(args, name) is not None}


def _shape(text: str) -> list[int] | None:
    """3,32,32 as numbers; raises InputError."""
    try:
        sizes = [int(part) for part in text.split(",")] if text else []
    except ValueError:
        sizes = [0]
    if any(size < 1 for size in sizes):
        raise InputError(f"--shape {text}: write the sizes of an item with commas, for example 3,32,32")
    return sizes or None


def check(args: argparse.Namespace) -> int:
    """Tells what a schedule does; 2 where it does not fit the net, 1 for a warning if asked to be strict."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.extras.schedules import api as schedule

    screen = console.open(args)
    with Progress(screen, args) as progress:
        found = schedule.read(
            args.file,
            args.model,
            data=args.data,
            shape=_shape(args.shape),
            rename=args.rename or (),
            options=options_of(args, progress),
        )
    facts = {"file": str(args.file), **{k: v for k, v in found.facts.items() if k not in ("epochs", "flags")}}
    console.say(args, facts, schedule.checked(found, args.quiet, console.width()))
    if found.facts["problems"]:
        return InputError.exit_code
    return CheckFailed.exit_code if args.strict and found.facts["warnings"] else 0


def show(args: argparse.Namespace) -> int:
    """Shows the course of a schedule; 2 where it does not fit the net."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.extras.schedules import api as schedule

    screen = console.open(args)
    pictures = schedule.Pictures(args.html, args.png)
    with Progress(screen, args) as progress:
        found = schedule.read(
            args.file,
            args.model,
            rename=args.rename or (),
            epochs=args.epochs,
            lr=args.lr,
            pictures=pictures,
            options=options_of(args, progress),
        )
    drawn = [str(place) for place in found.drawn]
    console.say(args, {"file": str(args.file), **found.facts, "drawn": drawn}, schedule.shown(found, args.quiet))
    return InputError.exit_code if found.facts["problems"] else 0


def train(args: argparse.Namespace) -> int:
    """Trains a net under a schedule."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.extras.schedules import api as schedule

    screen = console.open(args)
    with Progress(screen, args) as progress:
        options = options_of(args, progress)
        trained = schedule.run(args.file, given=_given(args), options=options, **request_of(args))  # type: ignore[arg-type]
    words = f"{trained.out}" if args.quiet else f"{trained}\n{_next(args, trained.target)}"
    console.say(args, {"out": str(trained.out), "target": str(trained.target), **trained.facts}, words)
    return 0


def _next(args: argparse.Namespace, target: Path) -> str:
    given = [word for name in ("data", "metric") if (value := getattr(args, name)) for word in (f"--{name}", value)]
    trained = ["--target", str(target), "--only", "scheduled,scheduled-int8"]  # and not the net as it was
    return f"next: {shlex.join(['edgecompress', 'deploy', args.model, *given, *trained])}"


def convert(args: argparse.Namespace) -> int:
    """Prints a target that trains under a schedule."""
    from edgecompress.cli import console
    from edgecompress.cli.progress import Progress
    from edgecompress.extras.schedules import api as schedule

    screen = console.open(args)
    with Progress(screen, args) as progress:
        found = schedule.read(args.file, rename=args.rename or (), options=options_of(args, progress))
    text = schedule.converted(found, args.target, Path.cwd(), _given(args))
    console.say(args, {"target": text}, text.rstrip("\n"))
    return 0


COMMANDS = (
    Command(
        "check",
        "say what a schedule does and when, and whether it fits a net",
        check,
        "schedule check resnet20_filters.schedule_agp.yaml\n"
        "schedule check s.yaml my_pkg.nets:build --strict\n"
        "schedule check s.yaml my_pkg.nets:build --data my_pkg.nets:data --rename layer3=stage2 --json",
        (
            FILE,
            NET,
            argument("--data", help="samples as for deploy: thinning is tried with an item of them"),
            SHAPE,
            RENAME,
            argument("--strict", action="store_true", help="fail (exit 1) where there is a warning, too"),
            asked("offline"),
            asked("store"),
        ),
    ),
    Command(
        "show",
        "show the share of zeros and the learning rate, epoch by epoch",
        show,
        "schedule show s.yaml --epochs 180\nschedule show s.yaml my_pkg.nets:build --html course.html --png course.png",
        (
            FILE,
            NET,
            RENAME,
            EPOCHS,
            LR,
            argument("--html", type=Path, metavar="PAGE", help="also draw it as an HTML page"),
            argument("--png", type=Path, metavar="PICTURE", help="also draw it as a picture"),
            asked("offline"),
            asked("store"),
        ),
    ),
    Command(
        "run",
        "train a net under a schedule; a killed run goes on from its last epoch",
        train,
        "schedule run s.yaml my_pkg.nets:build --data my_pkg.nets:data --epochs 180 --lr 0.4\n"
        "schedule run s.yaml source.toml --distill 0.5 --teacher my_pkg.nets:large --out dist/pruned",
        (
            FILE,
            argument("model", metavar="MODEL", help="factory of the net, pkg.mod:fn, or a source TOML"),
            argument("--data", help="samples with a split `train`, as for deploy"),
            asked("metric"),
            asked("samples"),
            *TRAINING,
            TARGET,
            asked("seed"),
            asked("settings"),
            asked("out", help="output folder (default: dist/NAME of the file)"),
            asked("offline"),
            asked("store"),
        ),
        stability=EXPERIMENTAL,
    ),
    Command(
        "convert",
        "print a target that trains under a schedule, then quantizes to int8",
        convert,
        "schedule convert s.yaml > scheduled.toml\nschedule convert s.yaml --target arm64 --epochs 180",
        (FILE, *TRAINING, TARGET, asked("offline"), asked("store")),
    ),
)
