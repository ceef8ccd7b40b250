"""The checks of a command: what lists read without importing it, its arguments, what runs."""

from __future__ import annotations

import argparse
from pathlib import Path

from edgecompress.core import registry
from edgecompress.core.plugins import CommandPlugin
from edgecompress.testing.conformance.common import check_described

STABILITIES = ("stable", "experimental")
LONGEST = 120  # letters of HELP


def check_command(name: str, tmp_path: Path) -> None:
    """A command's lines in lists are read from its file; argparse takes its arguments; it runs, or has commands."""
    module = registry.load("commands", name)
    says = f"command {name}"
    check_described(module, CommandPlugin, says)
    command = registry.command(name)
    head = registry.head("commands", name)
    told = {"HELP": command.help, "PURPOSE": command.purpose, "ORDER": command.order, "STABILITY": command.stability}
    for key, value in told.items():
        default = key not in vars(module)
        assert default or head.get(key) == str(value), f"{says}: {key} is to be plain text or a number on one line"
    assert 0 < len(command.help) <= LONGEST, f"{says}: HELP has {len(command.help)} letters, at most {LONGEST} fit"
    assert command.stability in STABILITIES, f"{says}: STABILITY is one of {', '.join(STABILITIES)}"
    assert bool(command.run) != bool(command.commands), f"{says}: it defines run, or COMMANDS in its place"
    for each in command.commands or (command,):
        parser = argparse.ArgumentParser(add_help=False)
        for argument in each.arguments:
            action = parser.add_argument(*argument.names, **argument.settings)
            assert action.help, f"{says}: its argument {argument.names[0]} has no help"
        assert callable(each.run), f"{says}: {each.name} runs nothing"
