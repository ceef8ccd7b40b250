"""The command line: arguments in, exit code out. The commands are plug-ins, what they print is in `console`."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import textwrap
import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NoReturn

from edgecompress.cli import signals, streams
from edgecompress.cli.arguments import COMMON, Command, Help, argument, asked
from edgecompress.core import extras, registry
from edgecompress.core.errors import EdgeError, InputError, StageFailed, brief, did_you_mean, of_system
from edgecompress.core.plain_text import escaped, folded, one_line, room
from edgecompress.core.plugins import STABLE, CommandPlugin, with_stability
from edgecompress.core.version import __version__
from edgecompress.pipeline.job_request import KEYWORDS

LONGEST = 2000  # characters of an error
INTERRUPTED = 130
UNREAD = 128 + 13  # as a program ends that SIGPIPE kills
LISTED = "list what there is"
PURPOSES = (  # in the order of the help
    "take a model to a device",
    "look into a model",
    "train under a schedule",
    "use what was shipped",
    "compare results",
    LISTED,
    "set up",
)
LISTS = {
    "targets": "what a deploy can make",
    "devices": "where a deploy can measure",
    "profiles": "how long and how often a deploy measures",
    "techniques": "ways to compress",
    "runtimes": "inference engines",
    "sensors": "sources of energy readings",
    "profilers": "further measurements of the fastest variants",
    "transports": "ways to reach a device",
    "packagers": "formats of packages for apps",
    "sections": "parts of the report that are plug-ins",
}
SHOWN = {"targets": "x86", "devices": "host", "profiles": "quick"}
BUG = "this is a bug: please report the text above with the output of `edgecompress doctor` to the project"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 a check failed, 2 your input, 3 a stage or the disk broke,
    4 a gate or an accuracy is undecided, 130 interrupted, 129 and 143 ended by SIGHUP and SIGTERM, 141 nobody reads
    what it prints."""
    with streams.guarded(), signals.heard():
        try:
            code = _run(list(sys.argv[1:] if argv is None else argv))
            sys.stdout.flush()  # a closed pipe and a full disk are met here, not at exit
            return code
        except streams.ReaderGone:
            return UNREAD
        except signals.Ended as ended:
            name = signal.Signals(ended.number).name
            return _told(f"ended by {name}; run the same command again to resume", 128 + ended.number)
        except KeyboardInterrupt:
            return _told("interrupted; run the same command again to resume", INTERRUPTED)
        except EdgeError as error:
            return _told(f"error: {error}", error.exit_code, getattr(error, "__notes__", ()))
        except OSError as error:
            gone = StageFailed("the folder you are in was removed meanwhile; change to another one")
            if fault := of_system(error) if _there() else gone:
                return _told(f"error: {fault}", fault.exit_code)
            return _bug()
        except Exception:  # the boundary: what is not an EdgeError is a fault of ours
            return _bug()


def _run(words: Sequence[str]) -> int:
    """The exit code of a command, or of the help. Raises whatever went wrong."""
    if not words:
        print(parser(words).format_help(), end="")
        return InputError.exit_code
    try:
        args = parser(words).parse_args([_word(word) for word in words])
    except SystemExit as ended:  # argparse has said why
        return int(ended.code or 0)
    args.words, args.began = words, time.monotonic()
    if not _there():
        raise InputError("the folder you are in was removed; change to another one")
    if path := os.environ.get("PYTHONPATH"):  # an empty entry is the working folder: no child imports from there
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, path.split(os.pathsep)))
    if getattr(args, "offline", False):
        os.environ["EDGECOMPRESS_OFFLINE"] = "1"  # nor is anything fetched before the first stage
    try:
        code = args.command(args)
    except (EdgeError, OSError, streams.ReaderGone):
        raise
    except Exception as error:
        if args.owner.split(".")[0] in ("edgecompress", "__main__"):
            raise
        said = f"{type(error).__name__}: {error}"
        raise StageFailed(
            f"command '{words[0]}' of module {args.owner} raised {said}; report it to its author"
        ) from error
    if not isinstance(code, int):
        raise StageFailed(f"command '{words[0]}' of module {args.owner} returned {code!r}, and no exit code")
    return code


def _word(word: str) -> str:
    """A word of the command line. Raises InputError for one that no file and no report can hold."""
    try:
        word.encode()
    except UnicodeEncodeError as error:
        hint = "rename it" if sys.getfilesystemencoding() == "utf-8" else "set LC_ALL=C.UTF-8"
        raise InputError(f"{word}: is not UTF-8; {hint}") from error
    if "\0" in word:
        raise InputError(f"{word}: contains a NUL character; give another name")
    return word


def _there() -> bool:
    """Whether the working folder is there."""
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _told(words: str, code: int, notes: Sequence[str] = ()) -> int:
    """Says how the command ended, in one line, then its notes; returns the exit code, even if stderr takes nothing."""
    line = one_line(words)
    shown = line if len(line) <= LONGEST else brief(line, LONGEST)  # a stranger's words may be long
    text = folded("\n".join([f"edgecompress: {shown}", *map(escaped, notes)]), room(sys.stderr))
    for say in (sys.stdout.flush, lambda: print(text, file=sys.stderr, flush=True)):
        with contextlib.suppress(EdgeError, streams.ReaderGone):
            say()
    return code


def _bug() -> int:
    import traceback

    with contextlib.suppress(EdgeError, streams.ReaderGone):
        traceback.print_exc()
    return _told(BUG, EdgeError.exit_code)


# --------------------------------------------------------------------------- the grammar


class _Parser(argparse.ArgumentParser):
    """A parser that refuses by itself, in one line, what it does not know: the help named is that of the command."""

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        line = one_line(f"{self.prog}: error: {message} (see {self.prog} --help)")
        self.exit(InputError.exit_code, folded(line, room(sys.stderr)) + "\n")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Argparse lists all choices; the nearest one is told instead, where one is near."""
        if action.choices is not None and value not in action.choices:
            command = isinstance(action, argparse._SubParsersAction)
            if command and (lost := extras.lost(str(value), extras.COMMANDS)):
                raise argparse.ArgumentError(None, lost)
            hint = f"no {'command ' * command}{value!r}{did_you_mean(str(value), action.choices)}"
            raise argparse.ArgumentError(None if command else action, hint)

    def parse_known_args(self, args: Any = None, namespace: object = None) -> tuple[Any, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        if rest:
            options = [word for action in self._actions for word in action.option_strings]
            hint = did_you_mean(rest[0], options) if rest[0].startswith("-") else ""
            if rest[0].partition("=")[0] in {asked(name).names[0] for name in KEYWORDS if name != "model"}:
                hint = f"; deploy takes it, {self.prog.partition(' ')[2]} does not"
            self.error(f"unrecognized arguments: {' '.join(rest)}{'' if 'known:' in hint else hint}")
        return known, rest


def _joined(words: Sequence[str]) -> list[str]:
    """The words, the first two as one where a command is called so: `package verify`."""
    both = "_".join(words[:2]) in registry.names("commands")
    return [" ".join(words[:2]), *words[2:]] if both else [*words]


class _Root(_Parser):
    """The parser of the program: its help has the commands by what they are for."""

    def parse_known_args(self, args: Any = None, namespace: object = None) -> tuple[Any, list[str]]:
        return super().parse_known_args(None if args is None else _joined(args), namespace)

    def format_help(self) -> str:
        """The help."""
        formatter, listed = self._get_formatter(), {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                listed = {each.dest: each for each in action._choices_actions}
        formatter.add_usage(self.usage, self._actions, ())
        formatter.add_text(self.description)
        for purpose, entries in groupby(commands(), lambda each: each[1].get("PURPOSE", "others")):
            names = [name.replace("_", " ") for name, _ in entries]
            formatter.start_section(purpose)
            if purpose == LISTED:
                formatter.add_text(textwrap.fill(" ".join(names), 70))
            else:
                formatter.add_arguments([listed[name] for name in names])
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


def parser(words: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """The whole grammar, from which docs and completion are made; for `words`, only the command that they name."""
    root = _Root(
        prog="edgecompress",
        description="Takes a trained model to an edge device: compressed, verified and measured on it.",
        epilog="examples:\n"
        "  edgecompress deploy net.onnx --data images/ --target x86\n"
        "  edgecompress deploy                    # the embedded demo, on this machine\n"
        "  edgecompress deploy my_pkg.nets:build --data my_pkg.nets:data\n"
        "  edgecompress COMMAND --help            # arguments and examples of a command",
        formatter_class=Help,
    )
    root.add_argument("--version", action="version", version=f"edgecompress {__version__}")
    below = root.add_subparsers(title="commands", metavar="COMMAND", required=True, parser_class=_Parser)
    named = None if words is None else _joined(words)[:1]
    for name, told in commands():
        word = name.replace("_", " ")
        if named is not None and word not in named:  # its arguments are not asked for
            below.add_parser(word, help=with_stability(told["HELP"], told.get("STABILITY", STABLE)))
        elif name in LISTS:
            _add(below, word, _list(name))
        else:
            _add(below, word, registry.command(name))
    return root


def commands() -> list[tuple[str, dict[str, str]]]:
    """Each command with its HELP, PURPOSE and ORDER, in the order of the help; nothing is imported."""
    told = {name: registry.head("commands", name) for name in registry.names("commands")}
    told |= {kind: {"HELP": f"list {kind}: {what}", "PURPOSE": LISTED} for kind, what in LISTS.items()}
    purposes = [*PURPOSES, *sorted({head.get("PURPOSE", "others") for head in told.values()} - {*PURPOSES})]

    def place(entry: tuple[str, dict[str, str]]) -> tuple[int, int, int]:
        name, head = entry
        order = head.get("ORDER", "")
        listed = [*LISTS].index(name) if name in LISTS else 0
        return purposes.index(head.get("PURPOSE", "others")), int(order) if order.isdigit() else 100, listed

    for name, head in told.items():
        if "HELP" not in head:
            try:
                registry.load("commands", name)
                registry.left_out(f"command '{name}': its file has no HELP in plain text on one line")
            except InputError as error:  # it cannot be imported
                registry.left_out(str(error))
    return sorted(((name, head) for name, head in told.items() if "HELP" in head), key=place)


def _list(kind: str) -> CommandPlugin:
    """The command that lists a kind of files or plug-ins."""

    def run(args: argparse.Namespace) -> int:
        from edgecompress.cli import console
        from edgecompress.commands import listing

        rows = listing.one(kind, args.name) if args.name else listing.all_of(kind)
        console.say(args, rows, listing.text(rows, console.width()))
        return 0

    examples = f"{kind}\n{kind} --json" + (f"\n{kind} {SHOWN[kind]}" if kind in SHOWN else "")
    name = argument("name", nargs="?", metavar="NAME", help="show the details of this one")
    words = f"list {kind}: {LISTS[kind]}"
    return CommandPlugin(kind, sys.modules[__name__], help=words, examples=examples, arguments=(name,), run=run)


def _add(below: argparse._SubParsersAction[Any], name: str, command: CommandPlugin | Command) -> None:
    """Adds a command, and those below it, to the grammar."""
    told = command if isinstance(command, CommandPlugin) else None
    described = told.description if told else ""
    parser = below.add_parser(
        name,
        help=with_stability(command.help, command.stability),
        description=described or f"{command.help[0].upper()}{command.help[1:]}.",
        epilog="examples:\n" + "\n".join(f"  edgecompress {line}" for line in command.examples.splitlines())
        if command.examples
        else None,
        formatter_class=argparse.HelpFormatter if told and told.commands else Help,
    )
    if told and told.commands:
        group = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
        for each in told.commands:
            _add(group, each.name, each)
        return
    if not command.run:
        raise InputError(f"command '{name}' defines neither run nor COMMANDS; see CONTRIBUTING.md")
    parser.set_defaults(command=command.run, owner=getattr(command.run, "__module__", ""))
    for each in (*(COMMON if not told or told.common else ()), *command.arguments):
        parser.add_argument(*each.names, **each.settings)


if __name__ == "__main__":
    sys.exit(main())
