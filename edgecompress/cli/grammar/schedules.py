"""Commands for Distiller's schedules: check, show, run, convert."""

from __future__ import annotations

from pathlib import Path

from edgecompress.cli import schedule_handlers
from edgecompress.cli.grammar.entry import Command, CommandGroup, argument
from edgecompress.cli.grammar.shared import METRIC, OFFLINE, SAMPLES, SEED, SET_OF_FILE, STORE

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
    help="of an item of MODEL's input, 3,32,32, to try thinning with (default: by the file's dataset)",
)
TARGET = argument("--target", default="x86", help="target whose runtime and limits are taken (default: x86)")
TRAINING = (
    EPOCHS,
    LR,
    argument("--batch-size", type=int, metavar="N", help="items of a step (default: the header's, else 256)"),
    argument("--momentum", type=float, metavar="M", help="of SGD (default: the header's, else 0.9)"),
    argument("--weight-decay", type=float, metavar="D", help="of SGD (default: the header's, else 0.0001)"),
    argument("--distill", type=float, metavar="SHARE", help="learned from a teacher, 0 to 1, the rest from labels"),
    argument("--teacher", metavar="FACTORY", help="the teacher (default: the net as it is before)"),
    argument("--temperature", type=float, metavar="T", help="of the distillation (default: 4)"),
)

COMMANDS = (
    CommandGroup(
        "schedule",
        "read Distiller's YAML schedules: check, show, run, convert them",
        "Reads Distiller's YAML schedules: checks them, shows their course, trains under them, makes a target of them.",
        (
            Command(
                "check",
                "say what a schedule does and when, and whether it fits a net",
                schedule_handlers.check,
                "schedule check resnet20_filters.schedule_agp.yaml\n"
                "schedule check s.yaml my_pkg.nets:build --strict\n"
                "schedule check s.yaml my_pkg.nets:build --json",
                (
                    FILE,
                    NET,
                    SHAPE,
                    argument("--strict", action="store_true", help="fail (exit 1) where there is a warning, too"),
                    OFFLINE,
                    STORE,
                ),
            ),
            Command(
                "show",
                "show the share of zeros and the learning rate, epoch by epoch",
                schedule_handlers.show,
                "schedule show s.yaml --epochs 180\n"
                "schedule show s.yaml my_pkg.nets:build --html course.html --png course.png",
                (
                    FILE,
                    NET,
                    EPOCHS,
                    LR,
                    argument("--html", type=Path, metavar="PAGE", help="also draw it as an HTML page"),
                    argument("--png", type=Path, metavar="PICTURE", help="also draw it as a picture"),
                    OFFLINE,
                    STORE,
                ),
            ),
            Command(
                "run",
                "train a net under a schedule; a killed run goes on from its last epoch",
                schedule_handlers.run,
                "schedule run s.yaml my_pkg.nets:build --data my_pkg.nets:data --epochs 180 --lr 0.4\n"
                "schedule run s.yaml source.toml --distill 0.5 --teacher my_pkg.nets:large --out dist/pruned",
                (
                    FILE,
                    argument("model", metavar="MODEL", help="factory of the net, pkg.mod:fn, or a source TOML"),
                    argument("--data", help="samples with a split `train`, as for deploy"),
                    METRIC,
                    SAMPLES,
                    *TRAINING,
                    TARGET,
                    SEED,
                    SET_OF_FILE,
                    argument("--out", type=Path, help="output folder (default: dist/NAME of the file)"),
                    OFFLINE,
                    STORE,
                ),
            ),
            Command(
                "convert",
                "print a target that trains under a schedule, then quantizes to int8",
                schedule_handlers.convert,
                "schedule convert s.yaml > scheduled.toml\nschedule convert s.yaml --target arm64 --epochs 180",
                (FILE, *TRAINING, TARGET, OFFLINE, STORE),
            ),
        ),
    ),
)
