"""`edgecompress completion`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from edgecompress.cli.arguments import argument

HELP = "print a shell's completion script"
PURPOSE = "set up"
ORDER = 7
EXAMPLES = "completion bash > ~/.local/share/bash-completion/completions/edgecompress"
DESCRIPTION = "Prints a completion script."
ARGUMENTS = (argument("shell", choices=("bash", "zsh", "tcsh"), help="shell that reads the script"),)
COMMON = False


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    import shtab

    from edgecompress.cli.main import parser

    root = parser()
    for action in _actions(root):
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]  # shtab's own mark
        if isinstance(action, argparse._SubParsersAction):  # zsh takes `package verify` apart
            action._choices_actions = [each for each in action._choices_actions if " " not in each.dest]
            for name in [name for name in action.choices if " " in name]:
                del action.choices[name]
    print(shtab.complete(root, args.shell))
    return 0


def _actions(below: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in below._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for child in action.choices.values():
                yield from _actions(child)
