"""The time left that five deploys showed, beside what they took: at the start and after each quarter.

A deploy shows what its events carry, counted down between them as the terminal does. `grew` is the largest factor from
one event to the next, `least` the least seconds shown before the last stage had ended.
"""

from __future__ import annotations

import argparse
import bisect
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from edgecompress.commands import deploy
from edgecompress.commands.result import Options
from edgecompress.device import machine
from edgecompress.pipeline import job, plan
from edgecompress.pipeline.runner import Event
from edgecompress.pipeline.time_left import TimeLeft

RESNET20 = str(Path(__file__).resolve().parents[1] / "examples" / "resnet20" / "source.toml")
QUARTERS = (0.0, 0.25, 0.5, 0.75)
LEAST_S = 5.0


@dataclass(frozen=True)
class Recorded:
    """What one run showed: (seconds since its start, seconds left) of each event that a terminal shows."""

    name: str
    took_s: float
    shown: tuple[tuple[float, float], ...]
    grew: float  # the largest factor by which an event raised what was shown, of more than LEAST_S seconds

    def at(self, part: float) -> float:
        """Seconds left that were shown when `part` of the run had passed."""
        moment = part * self.took_s
        number = max(0, bisect.bisect_right([t for t, _ in self.shown], moment) - 1)
        return max(0.0, self.shown[number][1] - max(0.0, moment - self.shown[number][0]))

    def least(self) -> float:
        """The least that was shown."""
        return min(left for _, left in self.shown)


def recorded(name: str, run: Callable[[Callable[[Event], None]], None]) -> Recorded:
    """One run, heard."""
    begin = time.monotonic()
    shown: list[tuple[float, float]] = []
    grew, last = 1.0, TimeLeft()

    def hear(event: Event) -> None:
        nonlocal grew, last
        before, now = last.seconds(), event.left.seconds()
        if before and now > LEAST_S:
            grew = max(grew, now / before)
        last = event.left
        if event.kind != "ended":
            shown.append((time.monotonic() - begin, now))

    run(hear)
    return Recorded(name, time.monotonic() - begin, tuple(shown), grew)


def deployed(
    model: str | None, targets: Sequence[str], folder: Path, remeasure: bool = False
) -> Callable[[Callable[[Event], None]], None]:
    """A deploy with the profile "quick" into `folder`."""

    def run(hear: Callable[[Event], None]) -> None:
        jobs = [job.job(model, target, profile="quick") for target in targets]
        options = Options(store=folder / "store", out=folder / "dist", listener=hear, remeasure=remeasure)
        for name, result in deploy.run_all([(each, plan.deploy(each)) for each in jobs], options).items():
            assert result.exit_code == 0, f"{name}: {result.message}"

    return run


def main() -> int:
    """Runs the five and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write what was recorded, too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        runs = [
            ("demo to x86", deployed(None, ["x86"], place / "demo")),
            ("again, measured anew", deployed(None, ["x86"], place / "demo", remeasure=True)),
            ("demo to ios", deployed(None, ["ios"], place / "ios")),
            ("demo to android and web", deployed(None, ["android", "web"], place / "two")),
            ("ResNet-20 to web", deployed(RESNET20, ["web"], place / "resnet20")),
        ]
        found = [recorded(*each) for each in runs]
    table = Table("deploy", "took", *(f"left at {part:.0%}: shown, true" for part in QUARTERS), "grew", "least")
    for each in found:
        quarters = [f"{each.at(part):.0f}, {(1 - part) * each.took_s:.0f} s" for part in QUARTERS]
        table.add_row(each.name, f"{each.took_s:.0f} s", *quarters, f"{each.grew:.2f}x", f"{each.least():.1f} s")
    Console(width=120).print(table)
    here = machine.facts(machine.here())
    about = {key: here.get(key) for key in ("cpu", "cores", "os")}
    print(about)
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "deploys": [asdict(each) for each in found]}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
