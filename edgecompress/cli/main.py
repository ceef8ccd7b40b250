"""The command line: arguments in, exit code out. The commands are in `grammar`, what they print in `console`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from edgecompress.cli.grammar import deploying, explaining, machines, results, shipped
from edgecompress.cli.grammar.entry import Command, CommandGroup, Help, add, argument
from edgecompress.core.errors import EdgeError

TABLE: tuple[Command | CommandGroup, ...] = (  # in the order of the help
    *deploying.COMMANDS,
    *explaining.COMMANDS,
    *shipped.COMMANDS,
    *results.COMMANDS,
    *machines.COMMANDS,
)
INTERRUPTED = 130
BUG = (
    "edgecompress: this is a bug: please report the text above with the output of `edgecompress doctor` to the project"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command. Exit codes: 0 done, 1 a check failed, 2 your input, 3 a stage broke, 130 interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parser().parse_args(words)
    args.words, args.began = words, time.monotonic()
    if getattr(args, "offline", False):
        os.environ["EDGECOMPRESS_OFFLINE"] = "1"  # nor is anything fetched before the first stage
    try:
        code = int(args.command(args))
        sys.stdout.flush()  # a closed pipe is met here, not at exit
        return code
    except EdgeError as error:
        print(f"edgecompress: error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("edgecompress: interrupted; run the same command again to resume", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of a pipe went away: nobody is left to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit would raise again
        return EdgeError.exit_code
    except Exception:  # the boundary: what is not an EdgeError is a fault of ours
        import traceback

        traceback.print_exc()
        print(BUG, file=sys.stderr)
        return EdgeError.exit_code


# --------------------------------------------------------------------------- the grammar


class _Commands(argparse._SubParsersAction):  # type: ignore[type-arg]
    """Commands of which one may have two words, though the first alone is one as well: `package verify`."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[str] | None,
        option_string: str | None = None,
    ) -> None:
        assert values is not None and not isinstance(values, str)  # argparse gives a list to subparsers
        both = " ".join(values[:2])
        super().__call__(parser, namespace, [both, *values[2:]] if both in self.choices else values, option_string)


def parser() -> argparse.ArgumentParser:
    """The whole grammar; the docs and the shell completion are made from it."""
    root = argparse.ArgumentParser(
        prog="edgecompress",
        description="Takes a trained model to an edge device: compressed, verified, measured where it will run.",
        epilog="examples:\n"
        "  edgecompress deploy net.onnx --data images/ --target x86\n"
        "  edgecompress deploy                                   the embedded demo, a torch net, on this machine\n"
        "  edgecompress deploy my_pkg.nets:build --data my_pkg.nets:data\n"
        "  edgecompress COMMAND --help                           what a command takes, with examples",
        formatter_class=Help,
    )
    root.add_argument("--version", action="version", version=_version())
    commands = root.add_subparsers(title="commands", metavar="COMMAND", required=True, action=_Commands)
    for entry in (*TABLE, COMPLETION):
        add(commands, entry)
    return root


def _version() -> str:
    from edgecompress.core.version import __version__

    return f"edgecompress {__version__}"


def _completion(args: argparse.Namespace) -> int:
    import shtab

    root = parser()
    for action in _actions(root):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own mark
    print(shtab.complete(root, args.shell))
    return 0


def _actions(below: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in below._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)


COMPLETION = Command(
    "completion",
    "print a shell's completion script",
    _completion,
    "completion bash > ~/.local/share/bash-completion/completions/edgecompress",
    (argument("shell", choices=("bash", "zsh", "tcsh")),),
    description="Prints a completion script.",
    common=False,
)

if __name__ == "__main__":
    sys.exit(main())
