"""What a run shows while it goes on: its phases, a live line with the time left; verbose, each stage.

Off a terminal, in the place of the live line: a line for each epoch of training, and one a minute; what all variants
wait for, such as the data, tells how far it is after seconds.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from edgecompress.cli.console import SHOWN, duration, line
from edgecompress.core.errors import brief
from edgecompress.core.model import AFTER_EPOCH, WARNINGS, Outcome
from edgecompress.core.plain_text import one_line, plural
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.plan import Plan
from edgecompress.pipeline.runner import Event
from edgecompress.reporting import formatting

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

SIGNS = {"ok": ("ran ", "green"), "hit": ("hit ", "dim"), "lost": ("lost", "yellow"), "failed": ("FAIL", "red")}
ROUND = "race/round-"  # what the stages of a race are called
WARNING = "warning: "
SILENCE_S = 60.0  # off a terminal, at most, while a stage tells of its progress
FIRST_S = 5.0  # the same of the first word of a stage that all variants wait for


def live_bar(screen: Console, quiet: bool) -> Bar:
    """A live line with the fields `what` and `left`: on a terminal, unless it is to be quiet."""
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    words = [TextColumn("{task.fields[" + name + "]}", markup=False) for name in ("what", "left")]
    hidden = not screen.is_terminal or quiet
    # Drawn once a second: what is measured in the meantime shares this machine with us.
    return Bar(words[0], BarColumn(20), words[1], console=screen, transient=True, disable=hidden, refresh_per_second=1)


class Progress:
    """Listens to a run: a live line with the time left, or lines now and then; verbose, a line per stage that ended."""

    def __init__(self, screen: Console, args: argparse.Namespace) -> None:
        self.screen, self.verbose = screen, 0 if args.quiet else args.verbose
        self.quiet, self.told, self.silent_s = args.quiet, set[str](), SILENCE_S
        self.spoke_s = time.monotonic()
        self.bar = live_bar(screen, args.quiet)
        self.task = self.bar.add_task("", total=1.0, what="", left="")

    def __enter__(self) -> Progress:
        self.bar.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self.bar.stop()

    def __call__(self, event: Event) -> None:
        """Takes in one event of the run."""
        if event.kind == "started" and not event.stage.variants:
            self.spoke_s, self.silent_s = time.monotonic(), FIRST_S
        if event.kind == "ended" and event.outcome:
            self._ended(event.outcome, raised=not event.stage.variants)
            # what it found out about the source is told once, however many targets it is for
            for text in () if self.quiet else _source_lines(event.outcome):
                if text not in self.told:
                    self.told.add(text)
                    line(self.screen, text, "yellow" if text.startswith(WARNING) else "")
            return
        what = self.doing(event)
        left = Countdown(event)
        self.bar.update(self.task, completed=event.fraction, what=what, left=left)
        patience_s = SILENCE_S if event.stage.variants else self.silent_s
        often = AFTER_EPOCH in event.what or time.monotonic() - self.spoke_s >= patience_s
        stays = self.verbose > 1 or (often and not self.quiet)  # this progress gets a line that does
        if event.kind == "progress" and not self.screen.is_terminal and stays:
            self.spoke_s, self.silent_s = time.monotonic(), SILENCE_S
            rest = "" if AFTER_EPOCH in event.what else f" ({event.fraction:.0%}, {left})"  # training tells of its own
            line(self.screen, f"       {event.stage.name}: {event.what}{rest}")

    def doing(self, event: Event) -> str:
        """What is done now, for the live line."""
        return f"{one_line(event.stage.name)}: {brief(one_line(event.what or event.why), SHOWN)}"

    def _ended(self, outcome: Outcome, raised: bool) -> None:
        """A line for a stage; the error that ends the run is told at its end, and once."""
        if not self.verbose:
            return
        from rich.text import Text

        hit = outcome.status == "ok" and outcome.why_run == "hit"
        sign, colour = SIGNS["hit" if hit else outcome.status]
        took = "" if outcome.why_run == "hit" else duration(outcome.wall_s)
        reason = "" if raised and outcome.status == "failed" else outcome.reason.removeprefix(f"{outcome.stage}: ")
        says = reason or ("" if hit else outcome.why_run)
        text = f"  {one_line(outcome.stage):28} {took:>8}  {one_line(says)}".rstrip()
        self.screen.print(Text.assemble((sign, colour), text), soft_wrap=True)


def _source_lines(outcome: Outcome) -> Iterator[str]:
    """What a stage found out about the source: `source      99.4 % top-1 of 500 test items`, and what is doubtful."""
    metric = outcome.facts.get("metric") if outcome.stage == "golden" else None
    if metric and metric["value"] is not None:
        from edgecompress.reporting import formatting

        name, items = metric["name"].replace("top", "top-"), plural(metric["n"], "test item")
        yield f"source      {formatting.plain(metric['value'], metric['unit'])} {name} of {items}"
    yield from (f"{WARNING}{text}" for text in outcome.facts.get(WARNINGS, ()))


class Countdown:
    """Where a run is, as of when it is printed: a stage that measures says nothing for minutes."""

    def __init__(self, event: Event) -> None:
        self.event, self.since = event, time.monotonic()

    def __str__(self) -> str:
        left_s = self.event.left_s - (time.monotonic() - self.since)
        says = f"about {duration(left_s)} left" if left_s >= 1 else "longer than expected"
        return f"stage {self.event.number} of {self.event.of}, {says}"


class Phases(Progress):
    """The same of deploys: a line for each target, and for each phase that is over."""

    def __init__(self, screen: Console, args: argparse.Namespace, plans: Sequence[tuple[Job, Plan]]) -> None:
        super().__init__(screen, args)
        self.phase: Phase | None = None
        self.plans = {} if args.quiet else {job.target.name: (job, steps) for job, steps in plans}

    def __call__(self, event: Event) -> None:
        """Takes in one event of the run."""
        if event.target in self.plans and (self.phase is None or event.target != self.phase.target):
            self._over()
            self.phase = Phase(*self.plans[event.target])
            line(self.screen, self.phase.head())
        if self.phase and (told := self.phase.take(event)) and not self.verbose:
            line(self.screen, told)
        super().__call__(event)

    def __exit__(self, *ended: object) -> None:
        self._over()
        super().__exit__(*ended)

    def _over(self) -> None:
        if self.phase and (told := self.phase.over()) and not self.verbose:
            line(self.screen, told)

    def doing(self, event: Event) -> str:
        """The phase, before the stage."""
        says = self.phase.says() if self.phase and not self.verbose else ""
        return says or super().doing(event)


class Phase:
    """Which part of a deploy to one target goes on: building the variants, or racing them."""

    def __init__(self, job: Job, steps: Plan) -> None:
        self.job, self.steps, self.target = job, steps, job.target.name
        self.names = {candidate.name for candidate in steps.candidates}
        self.verdicts = {candidate.verdict for candidate in steps.candidates}
        self.built: set[str] = set()
        self.lost: set[str] = set()
        self.left: tuple[str, ...] = ()
        self.rounds, self.stored, self.name = 0, True, ""

    def head(self) -> str:
        """`demo → x86 on this machine, about 2 min`."""
        device = "this machine" if self.job.device.name == "host" else self.job.device.name
        where = "no device of it here" if self.steps.race.unmeasured else f"on {device}"
        source = self.job.source.value
        model = source.name or source.model.rpartition(os.sep)[2]
        needs = self.steps.large_needs()
        memory, disk = (formatting.plain(size, "bytes") for size in needs or (0, 0))
        large = f", up to {memory} of memory and {disk} of disk" if needs else ""
        return f"{model} → {self.target}, {where}, about {duration(self.steps.estimate_s())}{large}"

    def take(self, event: Event) -> str:
        """Takes in an event; returns the line of the phase that it ends."""
        name = "racing" if event.stage.name.startswith(ROUND) else "building" if event.stage.variants else ""
        if event.stage.max_age_s is not None and name == "building":
            name = "measuring"
        told = self.over() if name and name != self.name else ""
        self.name, self.stored = name or self.name, self.stored if not told else True
        if name == "racing":
            self.left, self.rounds = event.stage.variants, int(event.stage.name.removeprefix(ROUND))
        if outcome := event.outcome:
            self.stored &= outcome.why_run == "hit"
            touched = self.names & set(event.stage.variants)
            self.lost |= touched if outcome.status != "ok" and name == "building" else set()
            self.built |= touched if event.stage.name in self.verdicts else set()
        return told

    def over(self) -> str:
        """The line of the phase that is over."""
        return f"{self.says()}{', all stored' if self.stored else ''}" if self.says() else ""

    def says(self) -> str:
        """`building    3 of 10 variants`, `racing      2 left of 9, round 5`."""
        if self.name == "building":
            lost = f", {len(self.lost)} lost" if self.lost else ""
            return f"building    {len(self.built | self.lost)} of {plural(len(self.steps.candidates), 'variant')}{lost}"
        if self.name == "racing":
            return f"racing      {len(self.left)} left of {len(self.steps.race.entrants)}, round {self.rounds}"
        return ""
