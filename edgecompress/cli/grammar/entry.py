"""What an entry of the table of commands is, and how it becomes a parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

Run = Callable[[argparse.Namespace], int]
if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[Any]


class Settings(TypedDict, total=False):
    """The settings of an argument, as argparse takes them."""

    action: str
    nargs: int | str
    default: str | int | float | Path | list[str] | list[Path]
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


@dataclass(frozen=True)
class Command:
    """One command. `help` is its line in the list; the description is that line, unless it has one."""

    name: str
    help: str
    run: Run
    examples: str  # lines, without the name of the program
    arguments: tuple[Argument, ...] = ()
    description: str = ""
    kind: str = ""  # of the plug-ins or files that a list command lists
    common: bool = True  # whether it takes --json, --verbose and --quiet


@dataclass(frozen=True)
class CommandGroup:
    """A command that only has commands below it."""

    name: str
    help: str
    description: str
    commands: tuple[Command, ...]


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


def add(commands: Subparsers, entry: Command | CommandGroup) -> None:
    """Adds an entry of the table to the grammar."""
    if isinstance(entry, CommandGroup):
        group = commands.add_parser(entry.name, help=entry.help, description=entry.description)
        below = group.add_subparsers(title="commands", metavar="COMMAND", required=True)
        for command in entry.commands:
            _add(below, command)
    else:
        _add(commands, entry)


def _add(commands: Subparsers, command: Command) -> None:
    parser = commands.add_parser(
        command.name,
        help=command.help,
        description=command.description or f"{command.help[0].upper()}{command.help[1:]}.",
        epilog="examples:\n" + "\n".join(f"  edgecompress {line}" for line in command.examples.splitlines()),
        formatter_class=Help,
    )
    parser.set_defaults(command=command.run, **({"kind": command.kind} if command.kind else {}))
    for each in (*(COMMON if command.common else ()), *command.arguments):
        parser.add_argument(*each.names, **each.settings)
