"""What a sweep shows while it runs and at its end: cells done, running and failed, the time left, a line per cell."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgecompress.cli.console import duration, line, lines, width
from edgecompress.cli.progress import live_bar
from edgecompress.core.plain_text import fitted, one_line, plural
from edgecompress.extras.fleet.matrix import Row
from edgecompress.extras.fleet.sweep import FILE, PAGE, Swept

if TYPE_CHECKING:
    from rich.console import Console

OVER = ("shipped", "undecided", "lost", "refused", "failed")
STYLES = {"shipped": "green", "undecided": "yellow", "lost": "yellow", "refused": "red", "failed": "red"}
SHOWN = 4  # cells that run, by name


class Screen:
    """A live line with the cells done, running and failed; each that ended has a line that stays."""

    def __init__(self, console: Console, args: argparse.Namespace) -> None:
        self.console, self.quiet, self.verbose = console, args.quiet, args.verbose
        self.told, self.began = set[str](), time.monotonic()
        self.bar = live_bar(console, args.quiet)
        self.task = self.bar.add_task("", total=1.0, what="", left="")

    def __enter__(self) -> Screen:
        self.bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self.bar.stop()

    def __call__(self, rows: Sequence[Row]) -> None:
        """Takes in the cells."""
        done = [row for row in rows if row["state"] in OVER]
        for row in done:
            if row["cell"] not in self.told and not self.quiet:
                self.told.add(row["cell"])
                line(self.console, " ".join(_cells(row)), STYLES[row["state"]] if row["state"] != "shipped" else "")
        running = [row["cell"] for row in rows if row["state"] == "running"]
        for cell in running if self.verbose and not self.quiet else ():
            if (begins := f"{cell} begins") not in self.told:
                self.told.add(begins)
                line(self.console, begins)
        failed = sum(row["state"] in ("failed", "refused") for row in done)
        here = [row for row in done if row["wall_s"]]
        took_s = time.monotonic() - self.began
        left = f"about {duration(took_s / len(here) * (len(rows) - len(done)))} left" if here else ""
        what = f"{len(done)} of {len(rows)} done, {len(running)} running, {failed} failed: {', '.join(running[:SHOWN])}"
        self.bar.update(self.task, completed=len(done) / len(rows), what=one_line(what)[: width() - 45], left=left)


def _cells(row: Row) -> list[str]:
    numbers = [str(row["numbers"][name]["text"]) for name in ("latency", "size") if name in row["numbers"]]
    says = [] if row["state"] in ("shipped", "undecided") else [one_line(row["says"])]
    return [row["cell"], row["state"], *([row["variant"]] if row["variant"] else []), *numbers, *says]


def ended(console: Console, swept: Swept, quiet: bool) -> None:
    """The outcome: how many cells ended how; unless it is to be quiet what was saved, and where the page is."""
    count = Counter(row["state"] for row in swept.rows)
    words = ", ".join(f"{count[state]} {state}" for state in OVER if count[state])
    work_s = sum(row["wall_s"] + row["saved_s"] for row in swept.rows)
    saved_s = sum(row["saved_s"] for row in swept.rows)
    said = [f"{plural(len(swept.rows), 'cell')} in {duration(swept.wall_s)}: {words}"]
    if quiet:
        line(console, said[0])
        return
    if saved_s >= 1:
        said.append(
            f"stages that cells share were done once: {duration(saved_s)} of {duration(work_s)} saved, "
            f"{work_s / max(swept.wall_s, 1e-9):.2f} times as fast as each cell for itself, by the stages' own times"
        )
    lines(console, [*swept.notes, *said, f"{swept.out}/  {PAGE}  {FILE}"])


def listed(rows: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> list[str]:
    """Cells of a dry run: name, minutes, why it is refused."""
    return [*fitted([(f"  {name}", minutes, why) for name, minutes, why in rows], width()), *notes]
