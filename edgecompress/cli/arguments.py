"""What a command is, its arguments, and what its run makes of them: a request, options, settings."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.plugins import STABLE
from edgecompress.pipeline.job_request import KEYWORDS, JobRequest, Options

FLAGS = {"settings": "--set"}  # of a keyword, where it is not its name


class Settings(TypedDict, total=False):
    """The settings of an argument, as argparse takes them."""

    action: str
    nargs: int | str
    default: object
    type: Callable[[str], int | float | Path]
    choices: Sequence[str]
    metavar: str
    dest: str
    required: bool
    help: str


@dataclass(frozen=True)
class Argument:
    """One argument or option."""

    names: tuple[str, ...]
    settings: Settings


def argument(*names: str, **settings: Unpack[Settings]) -> Argument:
    """An argument, written as `add_argument` takes it."""
    return Argument(names, settings)


def asked(name: str, **changes: Unpack[Settings]) -> Argument:
    """The argument of a keyword of requests or options; `changes`: what this command has otherwise."""
    keyword = KEYWORDS[name]
    told: Settings = {"dest": name, "help": keyword.help.replace("%", "%%")}
    if keyword.default not in (None, "", ()) and keyword.kind is not bool:
        told["help"] += f" (default: {keyword.default})"
    if keyword.shown:
        told["metavar"] = keyword.shown
    if keyword.kind is bool:
        told["action"] = "store_true"
    elif keyword.kind in (list, dict):
        told |= {"action": "append", "default": []}
    elif keyword.kind is str:
        told["default"] = keyword.default
    else:
        told["type"] = keyword.kind
    told |= changes
    if name != "model":
        return Argument((FLAGS.get(name, f"--{name.replace('_', '-')}"),), told)
    del told["dest"]
    return Argument(("model",), {"nargs": "?", **told})


@dataclass(frozen=True)
class Command:
    """A command below another one: `schedule check`. `help` is its line in the list."""

    name: str
    help: str
    run: Callable[[argparse.Namespace], int]
    examples: str  # lines, without the name of the program
    arguments: tuple[Argument, ...] = ()
    stability: str = STABLE


COMMON = (
    argument("--json", action="store_true", help="print JSON on stdout; progress goes to stderr"),
    argument(
        "-v",
        "--verbose",
        action="count",
        default=0,
        help="print more: the plan, every setting and its origin, each stage, all tables",
    ),
    argument(
        "-q",
        "--quiet",
        action="store_true",
        help="print the outcome only, in one line (lists are still printed in full)",
    ),
)


class Help(argparse.RawDescriptionHelpFormatter):
    """Help with its examples as they are written, and room for the longest option."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=28)


# --------------------------------------------------------------------------- arguments of several commands

SHIPPED = argument("artifact", type=Path, metavar="FOLDER", help="the folder that deploy wrote")
DATA = asked("data", help="samples, as for deploy")
THREADS = asked("threads", type=int, default=None, help="threads per inference (default: 1)")
SHIPPED_THREADS = asked(
    "threads", type=int, default=None, help="threads per inference (default: as many as it shipped with)"
)
STRICT = asked("strict")
RUNNING = (asked("offline"), asked("remeasure"), asked("store"))
BEFOREHAND = (
    asked("metric"),
    asked("samples"),
    asked("batch"),
    asked("seed"),
    asked("settings"),
    asked("offline"),
    asked("store"),
)


def measuring(threads: Argument) -> tuple[Argument, ...]:
    """Where and how is measured."""
    return asked("device"), asked("profile"), threads, asked("batch"), asked("seed"), asked("settings")


def sampled(threads: Argument) -> tuple[Argument, ...]:
    """With which data, where and how."""
    return asked("data"), asked("metric"), asked("samples"), *measuring(threads)


# --------------------------------------------------------------------------- what was asked


def request_of(args: argparse.Namespace) -> JobRequest:
    """What `pipeline.job.job` takes, from the arguments; the model and the target only where the command has them."""
    given = {n: getattr(args, n) for n in JobRequest.__annotations__ if getattr(args, n, None) is not None}
    if "only" in given:
        given["only"] = ",".join(given["only"])
    given["settings"] = settings_of(args.settings, "limits.items_lost=2")
    return cast("JobRequest", given)


def options_of(args: argparse.Namespace, listener: Any) -> Options:
    """How a job is run, from the arguments; `listener` hears what happens."""
    given = {name: getattr(args, name) for name in Options.__dataclass_fields__ if hasattr(args, name)}
    return Options(**{**given, "command": shlex.join(["edgecompress", *args.words]), "listener": listener})


def settings_of(texts: Sequence[str], example: str, option: str = "--set") -> dict[str, Json]:
    """KEY=VALUE texts as a table; raises InputError."""
    from edgecompress.core import config

    return {key: config.from_text(value) for key, value in pairs(texts, example, option).items()}


def pairs(texts: Sequence[str], example: str, option: str = "--set") -> dict[str, str]:
    """KEY=VALUE texts, the values as they are written; raises InputError."""
    if bad := [text for text in texts if "=" not in text]:
        raise InputError(f"{option} {bad[0]}: write {option} KEY=VALUE, for example {option} {example}")
    return {key.strip(): value for key, _, value in (text.partition("=") for text in texts)}


def one_target(args: argparse.Namespace, who: str) -> None:
    """Raises InputError where several targets are named."""
    if "," in args.target:
        raise InputError(f"--target {args.target}: {who} takes one target; run it once for each")
