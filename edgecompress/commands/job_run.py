"""How a job runs and how it ended: the plan run, its report, its exit code."""

from __future__ import annotations

import html
import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import extras
from edgecompress.core.errors import CheckFailed, EdgeError, InputError, StageFailed
from edgecompress.core.model import AT_CHANCE, Artifact, Choice, Outcome
from edgecompress.core.plain_text import printed
from edgecompress.pipeline import plan, side_by_side, store_place
from edgecompress.pipeline.job import Asks, Job
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.searches.instruction_count import Count
from edgecompress.pipeline.searches.race import Race
from edgecompress.pipeline.stage_order import Here, Place
from edgecompress.pipeline.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike


@dataclass(frozen=True, repr=False)
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

    @property
    def warnings(self) -> list[str]:
        """What the report warns of: a source that is no better than chance, few items, an operator that fell back."""
        return [note["text"] for note in self.read_report().get("notes", ()) if note["level"] == "warning"]

    def run(self, inputs: ArrayLike | Mapping[str, ArrayLike], threads: int = 1) -> dict[str, np.ndarray]:
        """What the shipped model answers here, on the runtime that it shipped for: outputs by name.

        `inputs`: an array, or arrays by input name; items on axis 0, as many as you like, preprocessed as the net
        takes them. Raises EdgeError.
        """
        from edgecompress.commands import shipped_run

        if self.out is None:
            raise InputError(f"run: nothing shipped: {self.message}")
        return shipped_run.run(self.out, inputs, threads)

    def __repr__(self) -> str:
        place = f", out={str(self.out)!r}" if self.out else ""
        return f"Result(exit_code={self.exit_code}, {self.message!r}{place})"

    def __str__(self) -> str:
        return printed(lambda _: repr(self))

    def _repr_html_(self) -> str:
        """The report, as a notebook shows it."""
        if self.report is None:
            return f"<pre>{html.escape(repr(self))}</pre>"
        page = html.escape((self.report / "report.html").read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" sandbox="allow-scripts" style="width: 100%; height: 40em; border: 0"></iframe>'


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


def asks(options: Options) -> Asks | None:
    """Who asks a device for its facts: on a cluster, the node that has it. Raises EdgeError."""
    return None if options.on == "local" else extras.part("fleet", "cluster", "--on").connected(options.on).facts_of


def begin(job: Job, options: Options, scope: str) -> PlanRun:
    """A run of a job's stages; `scope` names their owner. Raises EdgeError."""
    place: Place = Here()
    jobs = side_by_side.usual()
    if options.on != "local":
        fleet = extras.part("fleet", "cluster", "--on")
        place, jobs = fleet.ClusterPlace(fleet.connected(options.on), job), fleet.JOBS
    return PlanRun(
        Store(store_place.root(options.store)),
        job.context,
        path=job.path,
        scope=scope,
        offline=options.offline,
        remeasure=options.remeasure,
        target=job.target.name,
        listener=options.hears,
        jobs=options.jobs or jobs,
        place=place,
    )


def all_broke(walk: PlanRun, choice: Choice) -> EdgeError | None:
    """The first error, which is that of the run, if every variant broke and none was only lost."""
    if choice.stage or any(row["verdict"] == "lost" for row in choice.table.values()):
        return None
    return next((o.error for o in walk.outcomes.values() if o.status == "failed" and o.error), None)


def no_proof(walk: PlanRun, verdict: str, trained: bool) -> str:
    """Why the accuracy of the source, or of what this stage verified, proves nothing; "" where it does.

    The source's counts for what computes the same alone: not for what was trained here.
    """
    stages = (verdict,) if trained else ("golden", verdict)
    judged = (walk.outcomes[name].facts for name in stages if name in walk.outcomes)
    return next((facts[AT_CHANCE] for facts in judged if AT_CHANCE in facts), "")


def out_folder(job: Job, options: Options) -> Path:
    """The output folder."""
    return Path(options.out or Path("dist") / job.target.name).resolve()


def artifact_of(walk: PlanRun, stage: str) -> Artifact:
    """The artifact of a stage; raises StageFailed if there is none."""
    artifact = walk.outcomes[stage].artifact
    if artifact is None:
        raise StageFailed(f"{stage}: made no result, see its reason above")
    return artifact


def remember(walk: PlanRun, report: Artifact) -> None:
    """Adds the report to the history, with the date when it was made; what goes wrong there is a warning, no more."""
    from edgecompress.reporting import history  # a plan reads no report

    facts, made = json.loads((report.path / "report.json").read_text(encoding="utf-8")), walk.outcomes["report"].made
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made)) if 0 < made <= time.time() else ""
    if warning := history.add(walk.store.root, facts, report.path, date):
        print(f"edgecompress: warning: {warning}", file=sys.stderr)
