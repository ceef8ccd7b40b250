"""Each variant with all its numbers: what it became, what it computes, how fast it is, and why it lost."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence

import msgspec

from edgecompress.core.model import REWRITES, SETTINGS, Artifact, Request, sha256_of
from edgecompress.core.quantities import COUNTED, ENERGY, QUANTITIES
from edgecompress.core.session_stats import TOO_NOISY
from edgecompress.core.stats import ENOUGH
from edgecompress.formats.precision import facts
from edgecompress.reporting import compression, environment, estimates, instructions, power, training
from edgecompress.reporting.formatting import missing, number
from edgecompress.reporting.model_numbers import ExternalSession, Number, Session, values
from edgecompress.reporting.model_variant import BuiltArtifact, File, Operators, Variant, Verdict, Verification
from edgecompress.reporting.request import ReportRequest
from edgecompress.reporting.sessions import Bounds, bounds, of_variant

NOT_TIMED = "the device is simulated: instructions are counted, nothing is timed"
CLOCK = "monotonic clock around each run"
PER_SESSION = ("load", "first")
RSS = ("peak_rss", "file_backed")
KERNEL = "the kernel, over the baseline"


def table(request: Request, job: ReportRequest) -> list[Variant]:
    """Every variant, in the target's order, then those that only the race or the artifacts name."""
    declared = [v["name"] for v in job.target.get("variant", ())]
    built = [role.removesuffix("/artifact") for role in request.inputs if role.endswith("/artifact")]
    return [one(request, job, name) for name in dict.fromkeys([*declared, *job.choice.get("table", ()), *built])]


def one(request: Request, job: ReportRequest, name: str) -> Variant:
    """A variant of report.json."""
    inputs, declared, result = request.inputs, job.declared(name), job.result(name)
    artifact, verdict = inputs.get(f"{name}/artifact"), inputs.get(f"{name}/verdict")
    sessions, shape = of_variant(inputs, name)
    reason = result.get("reason") or _broken(job, name)
    ended = result.get("verdict") or ("failed" if reason else "measured")
    count = instructions.of_variant(inputs.get("count"), name)
    why = reason if ended in ("lost", "failed", "unreached") else ""
    counted = _instructions(request, job, name, why)
    checks = verdict.facts.get("checks", ()) if verdict else ()
    undecided = [check["says"] for check in checks if check.get("decision") == "undecided"]
    operators = inputs["ops"].facts["variants"].get(name) if "ops" in inputs else None
    return Variant(
        name=name,
        runtime=result.get("runtime") or declared.get("runtime") or job.target.get("runtime", ""),
        also=dict(result.get("also") or {}),
        reference=bool(declared.get("reference") or result.get("reference") or ended == "reference"),
        compress=[str(step.get("use", "")) for step in declared.get("compress", ())],
        verdict=msgspec.convert(ended, Verdict),
        reason=reason,
        undecided=[*undecided, *result.get("undecided", ())],
        artifact=_files(artifact) if artifact else None,
        verify=_verified(verdict, job) if verdict else None,
        numbers=_numbers(request, name, sessions, why, counted),
        sessions=sessions,
        distribution=shape,
        ops=msgspec.convert(operators or None, Operators | None),
        count=count,
        power_trace=power.trace(inputs.get("energy"), name),
        agree=environment.agreement(inputs.get(f"{name}/agree")),
        estimate=estimates.of_variant(artifact),
        compressed=compression.of_variant(job, name),
        training=training.of_variant(job, name),
    )


def _verified(verdict: Artifact, job: ReportRequest) -> Verification:
    """What verify found. It ran on this machine: of another device it tells no operator's time."""
    found = msgspec.convert(verdict.facts, Verification)
    if job.device.get("transport", "host") != "host":
        for op in found.fallback or ():
            op.ms = op.share = None
    return found


def _broken(job: ReportRequest, name: str) -> str:
    """Why its first stage that did not end well did not."""
    own = (o for o in job.outcomes if o.get("variant") == name or o["stage"].startswith(f"{name}/"))
    ended = (o for o in own if o["status"] != "ok")
    return next((f"{o['stage']}: {o['reason']}" for o in ended), "")


def _files(artifact: Artifact) -> BuiltArtifact:
    names = [(f.relative_to(artifact.path).as_posix(), f) for f in artifact.files()]
    files = [File(name, f.stat().st_size, sha256_of(f)) for name, f in names]
    settings = dict(artifact.facts.get(SETTINGS) or {})
    rewrites = dict(artifact.facts.get(REWRITES) or {})
    return BuiltArtifact(
        artifact.kind, artifact.sha256, artifact.size_bytes, settings, facts.of(artifact), files, rewrites
    )


def _numbers(
    request: Request, name: str, sessions: Sequence[Session], reason: str, counted: Number
) -> dict[str, Number]:
    artifact, verdict = request.inputs.get(f"{name}/artifact"), request.inputs.get(f"{name}/verdict")
    crashed = [f"crashed: {s.crashed}" for s in sessions if s.crashed]
    noisy = [f"{TOO_NOISY}: {s.noisy}" for s in sessions if s.noisy]
    if "count" in request.inputs:
        why = reason or NOT_TIMED
    else:
        why = next(iter(crashed + noisy), reason) or "no round measured it"
    took = median(sessions, "latency", why)
    return {
        "latency": took,
        **percentiles(sessions, why),
        COUNTED: counted,
        **estimates.numbers(artifact),
        "throughput": throughput(took, request.context.batch),
        **{metric: median(sessions, metric, why) for metric in PER_SESSION},
        "call": median(sessions, "call", next((s.call_reason for s in sessions if s.call_reason), why)),
        "accuracy": _accuracy(verdict, reason),
        **_memory(artifact, sessions, why),
        **_energy(request.inputs.get("energy"), name, why),
        "fallback": _fallback(request.inputs.get("ops"), verdict, name),
    }


def median(sessions: Sequence[Session | ExternalSession], metric: str, why: str) -> Number:
    """The median of a quantity over the sessions, with its interval."""
    each = list(values(sessions, QUANTITIES[metric].session).values())
    if not each:
        return missing(metric, why)
    return number(metric, statistics.median(each), n=len(each), source=CLOCK, **bounds(each))


def _instructions(request: Request, job: ReportRequest, name: str, reason: str) -> Number:
    count = request.inputs.get("count")
    crashed = count.facts["variants"].get(name, {}).get("crashed") if count else ""
    stand_in = environment.simulated(job.device)
    return instructions.total(
        instructions.of_variant(count, name), stand_in, f"crashed: {crashed}" if crashed else reason
    )


def percentiles(sessions: Sequence[Session | ExternalSession], why: str) -> dict[str, Number]:
    """The median of the sessions' percentiles, where each session has the runs that hold them."""
    runs = min((int(n) for n in values(sessions, "n").values()), default=0)
    numbers = {}
    for percent, enough in ENOUGH.items():
        few = f"needs {enough} runs per session, there are {runs}" if 0 < runs < enough else why
        numbers[f"p{percent}"] = median([] if runs < enough else sessions, f"p{percent}", few)
    return numbers


def throughput(took: Number, batch: int) -> Number:
    """Items per second, one run after the other, at that latency."""
    if took.value is None:
        return missing("throughput", took.reason)
    rate: Bounds = {}
    if took.low and took.high:
        rate = {"low": 1e3 * batch / took.high, "high": 1e3 * batch / took.low}
    source = f"{batch} per run / the latency"
    return number("throughput", 1e3 * batch / took.value, n=took.n, source=source, **rate)


def _accuracy(verdict: Artifact | None, reason: str) -> Number:
    metric = verdict.facts.get("metric") if verdict else None
    if not verdict or not metric:
        why = verdict.facts.get("reasons", {}).get("metric", "there is no metric") if verdict else "it was not verified"
        return missing("accuracy", reason or why)
    why = metric.get("reason") or ""
    return number(metric["name"], metric["after"], unit=metric["unit"], n=metric["n"], source="test split", reason=why)


def _memory(artifact: Artifact | None, sessions: Sequence[Session], why: str) -> dict[str, Number]:
    """The four: artifact bytes, planned arena, peak RSS over baseline, and its file-backed part."""
    size = artifact.size_bytes if artifact else None
    arena = [s.memory for s in sessions if s.memory]
    planned = next((m.arena_bytes for m in arena if m.arena_bytes is not None), None)
    no_arena = next((m.arena_reason for m in arena if m.arena_reason), why)
    peak = next((m.arena_peak for m in arena if m.arena_peak), "")
    largest = f"; most is held with {peak}" if peak else ""
    numbers = {
        "size": number("size", size, n=1, source="the artifact's files", reason=why),
        "arena": number("arena", planned, n=1, source=f"the runtime's plan{largest}", reason=no_arena),
    }
    for metric in RSS:
        each = median(sessions, metric, why)
        numbers[metric] = each if each.value is None else dataclasses.replace(each, source=KERNEL)
    return numbers


def _energy(energy: Artifact | None, name: str, why: str) -> dict[str, Number]:
    if energy is None:
        return {q.name: missing(q.name, "energy was not measured") for q in ENERGY}
    measured = energy.facts["variants"].get(name)
    by_metric = {m["metric"]: msgspec.convert(m, Number) for m in measured or ()}
    absent = "the sensor gave none" if measured else why or "energy is measured for the finalists only"
    return {q.name: by_metric.get(q.name) or missing(q.name, absent) for q in ENERGY}


def _fallback(ops: Artifact | None, verdict: Artifact | None, name: str) -> Number:
    facts = ((ops.facts["variants"].get(name) if ops else None), verdict.facts if verdict else None)
    seen = [a["fallback"] for a in facts if a and "fallback" in a]
    if not seen:
        why = verdict.facts["reasons"].get("fallback") if verdict else ""
        return missing("fallback", why or "no stage checked where its operators ran")
    return number("fallback", max(map(len, seen)), n=1, source="the runtime")
