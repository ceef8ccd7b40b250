"""How a job runs and how it ended: the plan run, its report, its exit code."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgecompress.core.errors import CheckFailed, EdgeError, StageFailed
from edgecompress.core.model import Artifact, Choice, Outcome
from edgecompress.pipeline import plan, store_place
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.runner import Listener, PlanRun
from edgecompress.pipeline.searches.instruction_count import Count
from edgecompress.pipeline.searches.race import Race
from edgecompress.pipeline.store import Store
from edgecompress.reporting import history


@dataclass(frozen=True)
class Options:
    """How a job is run; nothing here changes a result."""

    store: Path | None = None  # None: .edgecompress in the working folder, where that is one of yours
    out: Path | None = None  # where it ships; None: dist/TARGET
    until: str = ""  # stop after this stage
    offline: bool = False
    untrusted: bool = False  # refuse a source that runs its author's code
    remeasure: bool = False
    require_measured: bool = False  # energy that no sensor measured is a failed check
    command: str = "edgecompress.deploy(...)"  # for the report
    listener: Listener = lambda event: None


@dataclass(frozen=True)
class Result:
    """How a job ended."""

    exit_code: int
    message: str
    out: Path | None = None  # where it shipped; None: nothing did
    report: Path | None = None  # the folder with report.json, report.md, report.html
    outcomes: Mapping[str, Outcome] = field(default_factory=dict)

    def read_report(self) -> dict[str, Any]:
        """The content of report.json; empty when there is none."""
        return json.loads((self.report / "report.json").read_text(encoding="utf-8")) if self.report else {}


def check_sensors(job: Job, race: Race | Count, options: Options) -> None:
    """Raises CheckFailed before anything runs if no sensor can measure energy."""
    if not options.require_measured:
        return
    device, why = job.device, ""
    if isinstance(race, Count):
        why = f"{race.simulated} stands in for the device"
    elif race.unmeasured:
        why = f"nothing is measured: {race.unmeasured}"
    elif race.estimated_energy:
        why = plan.no_sensor(device.value) or "it has no sensor, only models"
    if why:
        raise CheckFailed(f"--require-measured: device {device.name} cannot measure energy: {why}")


def not_measured(walk: PlanRun, choice: Choice, options: Options) -> str:
    """Why the energy of the chosen variant is not a measured one, where that was asked for."""
    if not options.require_measured:
        return ""
    energy = walk.outcomes["energy"].facts
    gross = energy["variants"][choice.stage][0]
    if gross["status"] == "measured":
        return ""
    reasons = "; ".join(f"{name}: {why}" for name, why in energy["why_not"].items()) or gross["reason"]
    return f"--require-measured: energy of {choice.stage} is {gross['status']}, not measured ({reasons})"


def begin(job: Job, options: Options, scope: str) -> PlanRun:
    """A run of a job's stages; `scope` names their owner."""
    return PlanRun(
        Store(store_place.root(options.store)),
        job.context,
        path=job.path,
        scope=scope,
        offline=options.offline,
        remeasure=options.remeasure,
        target=job.target.name,
        listener=options.listener,
    )


def all_broke(walk: PlanRun, choice: Choice) -> EdgeError | None:
    """The first error, which is that of the run, if every variant broke and none was only lost."""
    if choice.stage or any(row["verdict"] == "lost" for row in choice.table.values()):
        return None
    return next((o.error for o in walk.outcomes.values() if o.status == "failed" and o.error), None)


def out_folder(job: Job, options: Options) -> Path:
    """The output folder."""
    return (options.out or Path("dist") / job.target.name).resolve()


def artifact_of(walk: PlanRun, stage: str) -> Artifact:
    """The artifact of a stage; raises StageFailed if there is none."""
    artifact = walk.outcomes[stage].artifact
    if artifact is None:
        raise StageFailed(f"{stage}: made no result, see its reason above")
    return artifact


def remember(walk: PlanRun, report: Artifact) -> None:
    """Adds the report to the history, with the date when it was made; what goes wrong there is a warning, no more."""
    facts, made = json.loads((report.path / "report.json").read_text(encoding="utf-8")), walk.outcomes["report"].made
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)) if 0 < made <= time.time() else ""
    if warning := history.add(walk.store.root, facts, report.path, date):
        print(f"edgecompress: warning: {warning}", file=sys.stderr)
