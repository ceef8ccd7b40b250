"""The summary in sentences: the verdict, and the warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgecompress.core import environments, registry, sequential_comparison
from edgecompress.core.errors import UNDECIDED, EdgeError
from edgecompress.core.model import WARNINGS
from edgecompress.core.quantities import COUNTED, CYCLES
from edgecompress.data.metric_limits import NAMES
from edgecompress.reporting import (
    compression_gains,
    engine_settings,
    environment,
    estimates,
    instructions,
    precision,
    profilers,
    session_noise,
    shipped_headline,
    training,
)
from edgecompress.reporting.before_after import accelerated, ranked_by
from edgecompress.reporting.formatting import guessed, known, plural, text
from edgecompress.reporting.model import Ended, Note, Report, Summary
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.model_variant import Variant, Verification

UNJUDGED = " undecided: the accuracy is not above chance, so it is not known whether it computes what it should;"
LOST = 3  # variants whose reasons the verdict gives where nothing ships


def summary(report: Report) -> Summary:
    """The outcome ("shipped", "undecided", "measured", "nothing", "failed"), the variant, the verdict and its parts."""
    outcome, subject = _outcome(report), report.variant(report.subject)
    if outcome == "failed":
        sentence = f"It failed: {_first_bad(report)}."
    elif outcome in ("measured", "nothing"):
        sentence = _measured(report) if outcome == "measured" else _nothing(report)
    else:
        where = shipped_headline.where(report, subject) if subject else ""
        how = UNJUDGED if outcome == "undecided" else f", {where}:" if where else ":"
        sentence = f"{precision.called(report, report.subject)} ships{how} {shipped_headline.gains(report)}."
    return Summary(outcome, report.subject, report.baseline, sentence, **shipped_headline.parts(report))


def _outcome(report: Report) -> Ended:
    if report.choice.variant and not report.exit_code:
        return "nothing" if report.not_measured else "shipped"
    if report.choice.variant and report.exit_code == UNDECIDED and not report.not_measured:
        subject = report.variant(report.subject)
        return "nothing" if subject and shipped_headline.where(report, subject) else "undecided"
    if report.exit_code in (0, 1):
        return "nothing" if report.exit_code else "measured"
    return "failed"


def _measured(report: Report) -> str:
    subject = report.variant(report.subject)
    if subject is None:
        return f"{plural(len(report.variants), 'artifact')} measured."
    latency, counted = subject.numbers["latency"], subject.numbers[COUNTED]
    if known(counted):
        return f"{subject.name} takes {shipped_headline.took(counted)}; nothing was timed."
    if not known(latency):
        return f"{subject.name}: no latency, {latency.reason}."
    sessions = plural(latency.n, "session")
    return f"{subject.name} takes {text(latency, spread=True)} per run, the median of {sessions}."


def _nothing(report: Report) -> str:
    if why := report.not_measured:
        return f"Nothing ships: {why}."
    if report.exit_code == UNDECIDED and (subject := report.variant(report.subject)):
        return f"Undecided, nothing ships: {subject.name} is {shipped_headline.where(report, subject)}."
    lost = [v for v in report.variants if v.verdict in ("lost", "failed") and v.reason]
    reasons = [f"{v.name} is {v.verdict}: {v.reason.rstrip('.')}" for v in lost[:LOST]]
    more = [f"{len(lost) - LOST} more"] if len(lost) > LOST else []
    return f"Nothing ships: {'; '.join([report.choice.reason or _first_bad(report), *reasons, *more])}."


def _first_bad(report: Report) -> str:
    bad = (s for s in report.stages if s.status != "ok")
    return next((f"{s.stage}: {s.reason}".rstrip(".") for s in bad), "no reason was given")


def notes(report: Report) -> list[Note]:
    """What must not be overlooked, the loudest first: {"level": "warning" or "note", "text"}."""
    return [*(Note("warning", line) for line in _warnings(report)), *(Note("note", line) for line in _notes(report))]


def _warnings(report: Report) -> Iterator[str]:
    data = report.data or {}
    if data.get("random"):
        yield "The data is random: accuracy and calibration say nothing about real inputs."
    else:
        yield from _repeated(data)
    yield from (f"{doubt[0].upper()}{doubt[1:]}." for doubt in data.get(WARNINGS, ()))
    if why := report.choice.unmeasured:
        ranks = "estimated cycles do" if ranked_by(report) == CYCLES else "their order does"
        yield f"Not measured on the target: {why}. Measurements of other machines do not rank the variants: {ranks}."
        if precision.halved(report, report.subject):
            yield (
                f"{report.subject} may compute in half precision where the target's CPU has the instructions; here it "
                "computed in fp32, so what that costs in accuracy is not known: verify it on the device (--device)."
            )
    if why := report.not_measured:
        yield f"Energy had to be measured: {why}."
    yield from instructions.apart(report)
    yield from _throttled(report)
    yield from compression_gains.warnings(report)
    for variant in report.variants:
        yield from _warnings_of(report, variant, data.get(WARNINGS, ()))


def _warnings_of(report: Report, variant: Variant, doubts: Sequence[str]) -> Iterator[str]:
    """`doubts`: what was told of the source and its data already."""
    crashed = [s for s in variant.sessions if s.crashed]
    if crashed:
        yield f"{variant.name} crashed in {plural(len(crashed), 'session')}: {crashed[0].crashed}"
    for runtime, says in variant.also.items():
        if says != "ok" and not says.startswith("not tried") and says not in variant.reason:
            yield (
                f"{variant.name}: {says}." if WRONG in says else f"{variant.name} fails in {_library(runtime)}: {says}."
            )
    if variant.name != report.subject:
        return
    cold = [s for s in variant.sessions if s.warm is False]
    if cold:
        yield f"{variant.name} was not steady after its warm-up in {plural(len(cold), 'session')}."
    listed = [op.name for op in (variant.verify.fallback if variant.verify else None) or ()]
    if fallback := listed or (variant.ops.fallback if variant.ops else None):
        those = ", ".join(map(str, fallback[:8]))
        run = "runs" if len(fallback) == 1 else "run"
        left = "left the accelerator" if accelerated(report) else f"{run} outside the runtime's fast kernels"
        yield f"{plural(len(fallback), 'operator')} of {variant.name} {left}: {those}"
    if variant.verify:
        yield from _not_judged(variant.verify, doubts)


WRONG = "wrong results in "  # how a runtime begins that tells its own name and version


def _library(runtime: str) -> str:
    """`tflite-runtime 2.14.0`: the library of a runtime, with its version; its name where that is not known."""
    try:
        name, version = next(iter(environments.versions(registry.load("runtimes", runtime)).items()), (runtime, ""))
    except EdgeError:
        return runtime
    return f"{name} {version}" if version else runtime


def _throttled(report: Report) -> Iterator[str]:
    """A rate that did not hold is told before any number of it."""
    for name, answer in profilers.answers(report, "sustained").items():
        if answer["throttling"]["flagged"]:
            yield f"{name} throttles: {answer['throttling']['reason']}."
    for look in report.passes:
        for name, outcome in look.variants.items():
            if outcome.why:
                yield f"Profiler {look.profiler} has no result for {name}: {outcome.why}."


def _not_judged(verify: Verification, doubts: Sequence[str]) -> Iterator[str]:
    """Promises that nobody could hold; a limit that is for another kind of metric is none of them."""
    if verify and not verify.metric:
        why = verify.reasons.get("metric") or "there is no metric"
        if not any(doubt.startswith(why) for doubt in doubts):
            yield f"Accuracy was not measured: {why}; only the outputs were compared with the source's."
    for check in verify.checks or ():
        if check.ok is None and check.name not in (*NAMES, "name"):
            yield f"{check.says}."


def _repeated(data: Table) -> Iterator[str]:
    """What items that occur more than once do to the verdicts."""
    repeated, n = data.get("repeated") or {}, (data.get("splits") or {}).get("test")
    if within := repeated.get("within"):
        yield f"{within:,} of the {n:,} test items are copies of others: the intervals are too narrow."
    if elsewhere := repeated.get("elsewhere"):
        yield f"{elsewhere:,} of the {n:,} test items also calibrated or chose: they judge too well."


def _notes(report: Report) -> Iterator[str]:
    for origin, *splits in (report.data or {}).get("cut", ()):
        of = "data" if origin == "data" else f"the set '{origin}'"
        yield f"Not every split was given: {of} was split by seed into {', '.join(splits[:-1])} and {splits[-1]}."
    yield from training.notes(report)
    if (virtual := report.environment.get("virtual")) and not report.simulated:
        kind = f" ({virtual})" if virtual not in (True, "yes") else ""
        yield f"The machine is virtual{kind}: the load of its neighbours is not controlled."
    yield from precision.notes(report)
    yield from _of_the_device(report)
    yield from estimates.notes(report)
    if shipped_headline.one_session(report):
        yield (
            "One session per variant: differences are not judged. Where the choice gives a "
            "range beside a ratio, it assumes that sessions of one variant differ by "
            f"{100 * sequential_comparison.PRIOR:.0f} %. "
            "Use --profile standard for measured intervals."
        )
    yield from compression_gains.note(report, report.subject)
    subject = report.variant(report.subject)
    if subject and (seen := session_noise.sentence(subject.name, subject.sessions)):
        yield seen
    for what, names in subject.artifact.rewrites.items() if subject and subject.artifact else ():
        yield f"{report.subject} was rewritten around its kernels, {what} ({plural(len(names), 'operator')})."
    if subject:
        yield from engine_settings.notes(subject)
    for runtime, says in subject.also.items() if subject else ():
        if says.startswith("not tried"):
            yield f"{runtime} was {says}."
    if subject and (runs := [runtime for runtime, says in subject.also.items() if says == "ok"]):
        yield f"{subject.name} was verified in {', '.join(runs)} too."
    energy = subject.numbers["energy_gross"] if subject else None
    if energy and known(energy) and guessed(energy):
        model = energy.source.split(":")[0] or "model"
        yield f"Energy is {energy.status} by a {model}; ≈ numbers are never compared with measured ones."
    kept = [s.every for v in report.variants for s in v.sessions if s.every > 1]
    if kept:
        yield (
            f"To stay small, report.json holds 1 of {max(kept)} latencies of its longest sessions; "
            "the stored results of the rounds hold all of them."
        )
    yield from training.offer(report)
    if hint := report.target.get("hint"):
        yield f"{hint}."


def _of_the_device(report: Report) -> Iterator[str]:
    """What stood in for it, how its clock is governed, and whether it answers as this machine does."""
    if report.simulated:
        device = report.device.get("name") or "the device"
        yield f"{device} is not real but {report.simulated}: fewer instructions need not be faster on the real one."
    governor = report.environment.get("governor")
    if governor and governor != "performance" and not report.simulated:
        yield f"The governor is {governor}: the clock follows the load."
    subject = report.variant(report.subject)
    if subject and (agreement := environment.agrees(subject)):
        yield f"{subject.name} {agreement}."
    yield from instructions.kernels(report, (report.subject, report.baseline))
