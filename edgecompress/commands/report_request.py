"""The request for a report: the facts of a finished run, and the stage that writes the report."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress.commands.job_run import all_broke, artifact_of, no_proof, not_measured, out_folder
from edgecompress.core import environments, registry
from edgecompress.core.errors import UNDECIDED, CheckFailed, InputError
from edgecompress.core.json import Json
from edgecompress.core.model import Choice, Outcome, Stage
from edgecompress.core.version import __version__
from edgecompress.pipeline import conversion, plan, verification
from edgecompress.pipeline.candidate_variant import without_log
from edgecompress.pipeline.job import Job
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.searches import bit_budget
from edgecompress.pipeline.searches.instruction_count import Count
from edgecompress.pipeline.searches.race import Race
from edgecompress.reporting import external_results
from edgecompress.reporting.request import ChoiceFacts, ReportRequest, StageRow


def stage(
    job: Job,
    walk: PlanRun,
    race: Race | Count,
    choice: Choice,
    options: Options,
    search: Mapping[str, Json] | None = None,
) -> Stage:
    """The stage that writes the report from the outcomes so far; `search`: how the variants were found."""
    alone = ("source", "golden", "energy", "ops", "count")
    profilers = [name for name in walk.outcomes if name.startswith("pass/")]
    inputs = {role: role for role in (*alone, *profilers) if _exists(walk, role)}
    inputs["samples"] = "data" if _exists(walk, "data") else race.samples
    rounds = [name for name in walk.outcomes if name.startswith("race/") and _exists(walk, name)]
    inputs |= {name.removeprefix("race/"): name for name in rounds}
    for entrant in race.entrants:
        made = {"artifact": entrant.artifact, "verdict": entrant.verdict, "agree": entrant.agrees}
        inputs |= {f"{entrant.name}/{role}": stage for role, stage in made.items() if _exists(walk, stage)}
    request = dataclasses.asdict(_request(job, walk, race, choice, options)) | {"search": search}
    return Stage("report", "stages.report:run", inputs, request, context=verification.RUN_CONTEXT)


def _exists(walk: PlanRun, name: str) -> bool:
    outcome = walk.outcomes.get(name)
    return outcome is not None and outcome.artifact is not None


def _request(job: Job, walk: PlanRun, race: Race | Count, choice: Choice, options: Options) -> ReportRequest:
    return ReportRequest(
        title=f"{job.source.value.title} on {job.target.name}",
        command=options.command,
        date=_date(walk, choice),
        exit_code=_exit_code(walk, race, choice),
        not_measured=not_measured(walk, choice, options) if choice.stage else "",
        versions=_versions(job, race),
        **_configuration(job, race),
        **_results(walk, race),
        choice=ChoiceFacts(variant=choice.stage, reason=choice.reason, table=choice.table, unmeasured=race.unmeasured),
        elsewhere=_external_rows(walk, race, choice, out_folder(job, options)),
        outcomes=[_line(o) for o in walk.outcomes.values()],
    )


def _exit_code(walk: PlanRun, race: Race | Count, choice: Choice) -> int:
    if chosen := next((e for e in race.entrants if e.name == choice.stage), None):
        unsettled = race.judged and chosen.unsettled(walk.outcomes)
        return UNDECIDED if unsettled or no_proof(walk, chosen.verdict, verification.is_trained(chosen.variant)) else 0
    if choice.stage or not race.judged:
        return 0
    return (all_broke(walk, choice) or CheckFailed).exit_code


def _date(walk: PlanRun, choice: Choice) -> str:
    """When the newest of its results was made, in UTC; now, where nothing is chosen because something broke.

    What a clock that was set back since then says to be from the future tells no time.
    """
    now, outcomes = time.time(), walk.outcomes.values()
    broke = not choice.stage and any(o.status == "failed" for o in outcomes)
    made = now if broke else max((o.made for o in outcomes if 0 < o.made <= now), default=now)
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(made))


def _configuration(job: Job, race: Race | Count) -> dict[str, Any]:
    """What the TOML files and flags said, as plain data; of the target only the variants of this run."""
    target = dataclasses.asdict(job.target.value)
    names = {*(e.name for e in race.entrants), *race.left_out}
    variants = [v for v in target["variant"] if v["name"] in names]
    return {
        "source": dataclasses.asdict(job.source.value),
        "target": {"name": job.target.name, **target, "variant": variants},
        "device": {"name": job.device.name, **dataclasses.asdict(job.device.value)},
        "profile": {"name": job.profile.name, **dataclasses.asdict(job.profile.value)},
        "config": [dataclasses.asdict(s) for s in job.settings()],
    }


def _results(walk: PlanRun, race: Race | Count) -> dict[str, Any]:
    """What searches and techniques report, as they wrote it down."""
    made = {e.name: [_made(walk.outcomes[s]) for s in e.made if s in walk.outcomes] for e in race.entrants}
    return {"fits": _searches(walk, guards=False), "guards": _searches(walk, guards=True), "made": made}


def _searches(walk: PlanRun, guards: bool) -> dict[str, Json]:
    """How the accuracy guards (or the searches for a strength) in the place of a stage ended."""
    found = {name: choice for name, choice in walk.choices.items() if bit_budget.OPTION not in choice.table}
    choices = {name: choice for name, choice in found.items() if ("ladder" in choice.table) == guards}
    return {name: {"chosen": c.stage, "reason": c.reason, **c.table} for name, c in choices.items()}


def _made(outcome: Outcome) -> dict[str, Json]:
    """What a technique reports of a variant; a second use of it in a recipe is called technique-2."""
    name = outcome.stage.rpartition("/")[2]
    facts = dict(outcome.facts)
    return {"technique": name, "status": outcome.status, "reason": outcome.reason, "facts": facts}


def _line(outcome: Outcome) -> StageRow:
    return {
        "stage": outcome.stage,
        "status": outcome.status,
        "reason": without_log(outcome.reason),
        "wall_s": round(outcome.wall_s, 3),
        "log": Path(outcome.log).name,
    }


def _versions(job: Job, race: Race | Count) -> dict[str, str]:
    try:
        calls, _ = plan.reached(job)
    except InputError:  # what is profiled has shipped: its source may have gone since
        calls = {}
    made = (v for v in job.target.value.variant if v.name in calls)
    modules = [m for v in made for m in conversion.modules(job.target.value, v, calls[v.name]).values()]
    modules += [registry.load("runtimes", each.runtime) for each in race.entrants]
    once = {id(module): module for module in modules}
    versions = {name: version for m in once.values() for name, version in environments.versions(m).items()}
    return {"edgecompress": __version__, **versions}


def _external_rows(walk: PlanRun, race: Race | Count, choice: Choice, out: Path) -> list[dict[str, Json]]:
    """What packages' benchmarks measured of these very bytes since they shipped the last time."""
    chosen = next((e.artifact for e in race.entrants if e.name == choice.stage), "")
    if not chosen or not external_results.files(out):
        return []
    from msgspec import to_builtins

    from edgecompress.reporting import external_rows

    measured = external_results.of_model(out, external_results.digest(artifact_of(walk, chosen)))
    rows: list[dict[str, Json]] = to_builtins(external_rows.rows(measured))
    return rows
