"""What benchmarks share: their flags, the machine's facts, tables, and the file of figures."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.pipeline import job

MACHINE = ("cpu", "microarchitecture", "cores", "features", "os", "kernel", "virtual")
FLAGS: Mapping[str, Any] = {
    "only": {"default": "", "help": "names, separated by commas"},
    "profile": {"default": "standard"},
    "store": {"type": Path, "default": Path(".edgecompress")},
    "remeasure": {"action": "store_true", "help": "measure again, whatever is stored"},
    "work": {"help": "where files and stores stay; the next time they are found again"},
    "json": {"type": Path, "help": "also write the figures there"},
}


def flags(text: str, *names: str) -> argparse.ArgumentParser:
    """A command line with the docstring of its script as the help, and some of FLAGS."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in names:
        parser.add_argument(f"--{name}", **FLAGS[name])
    return parser


def machine(facts: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Where it ran: of a report's environment, or this machine."""
    found = job.job().context.device["fingerprint"] if facts is None else facts
    return {key: found.get(key) for key in MACHINE}


def write(path: Path | None, found: Any) -> None:
    """The file of --json, if it is asked for."""
    if path:
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *below: object) -> None:
    """A table on the terminal, and a line for each of what stands below it."""
    from rich.console import Console
    from rich.table import Table

    console, table = Console(width=160), Table(*columns, title=title)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    for line in below:
        console.print(line, markup=False)


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Columns of text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows)
