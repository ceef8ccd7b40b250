"""The headline in two lines: what the variant that ships gains and loses; then its costs, and what is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgecompress.core.model import Check
from edgecompress.core.quantities import COUNTED, CYCLES
from edgecompress.core.session_stats import TOO_NOISY
from edgecompress.reporting import precision
from edgecompress.reporting.before_after import accuracy_says, near, ranked_by
from edgecompress.reporting.formatting import known, significant, text, times
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Delta, Number, Table
from edgecompress.reporting.model_variant import Metric, Variant, Verification

BOUGHT = ("size", "peak_rss", "energy_gross", "sram", "flash")  # beside what ranks the variants
COSTS = (*BOUGHT, "load", "first")
CALLED = ("better", "worse")
ONE_SESSION = "one session, so ratios have no interval (--profile standard gives one)"
BARE = ("latency", "size", COUNTED, CYCLES)  # whose change says by itself what it is of
LOSSES = {"items_lost": "items lost", "metric_ratio": "ratio to the source", "metric_drop": "drop of the metric"}


def parts(report: Report) -> Table:
    """What is better and what is worse by a called change, the accuracy, the limits that are undecided; the remarks."""
    subject = report.variant(report.subject)
    return {
        "bought": list(_changes(report, "better", BOUGHT)),
        "costs": list(_changes(report, "worse", COSTS)),
        "accuracy": _accuracy(subject) if subject else "",
        "undecided": list(subject.undecided) if subject else [],
        "remarks": list(_remarks(report, subject)) if subject else [],
    }


def gains(report: Report) -> str:
    """`6.20× faster than fp32 (6.00–6.30), 3.60× smaller, accuracy −0.2 points`."""
    rows, subject = {row.metric: row for row in report.deltas}, report.variant(report.subject)
    speed, size, beside = rows.get(ranked_by(report)), rows.get("size"), precision.called(report, report.baseline)
    metric = subject.verify.metric if subject and subject.verify else None
    rival = report.variant(report.baseline)
    raced = rival.verdict if rival else ""
    noisy = subject and ranked_by(report) == "latency" and TOO_NOISY in subject.numbers["latency"].reason
    told = [
        f"{TOO_NOISY}, so no latency is reported" if noisy else "",
        _speed(speed, beside, raced) if speed and known(speed.after) else "",
        size.short if size and size.change and size.change.called == "better" else "",
        _lost(metric) if metric else "",
    ]
    return ", ".join(filter(None, told)) or "nothing was measured"


def _speed(row: Delta, beside: str, raced: str) -> str:
    """What ranks the variants, beside the one to beat; without one, what an inference takes.

    `raced`: the verdict on that one. Where the race left it undecided, only an interval calls one of the two faster.
    """
    change = row.change
    if TOO_NOISY in row.short:
        return f"{took(row.after)}, {TOO_NOISY} with {beside}"
    if not change or not beside:
        return took(row.after)
    noun = {COUNTED: " instructions (simulated)", CYCLES: " cycles (estimated)"}.get(row.metric, "")
    undecided = change.called not in CALLED if raced == "undecided" else change.called == "same" and not near(change)
    if near(change) and not undecided:
        return f"as many{noun} as {beside}" if noun else f"as fast as {beside}"
    ends = [1 / end if change.factor < 1 and not undecided else end for end in (change.low, change.high) if end]
    spread = f" ({'–'.join(significant(end, 3) for end in sorted(ends))})" if len(ends) > 1 else ""
    if undecided:
        return f"speed undecided: {times(change.factor)}{spread} that of {beside}"
    says = row.short if not noun or noun.split()[0] in row.short else f"{row.short}{noun}"
    return f"{says} than {beside}{spread}"


def _lost(metric: Metric) -> str:
    """`no net loss in 500 items`, `accuracy −0.2 points`, `perplexity 1.004× the source's`."""
    if metric.net_lost and metric.before is not None and metric.after is not None:
        points = 100 * (metric.after - metric.before)
        return f"accuracy {points:+.{1 if abs(points) >= 0.1 else 2}f} points".replace("-", "−")
    says = accuracy_says(metric)
    return says if metric.net_lost is not None or not says else f"{metric.name} {says}"


def where(report: Report, subject: Variant) -> str:
    """`right in litert 2.3.0, not in tflite`, where a device may carry a runtime that does not run it; else ""."""
    wrong = [runtime for runtime, says in subject.also.items() if says != "ok" and not says.startswith("not tried")]
    if not wrong:
        return ""
    right = [subject.runtime, *(runtime for runtime, says in subject.also.items() if says == "ok")]
    return f"right in {', '.join(right)}, not in {', '.join(wrong)}"


def took(n: Number) -> str:
    """What one inference takes."""
    units = {COUNTED: " instructions per inference (simulated)", CYCLES: " cycles (estimated)"}
    return f"{text(n)}{units.get(n.unit, '')}"


# --------------------------------------------------------------------------- the second line


def _remarks(report: Report, subject: Variant) -> Iterator[str]:
    """What else it gains, what it costs, what is not decided, what was not measured, and what holds it back."""
    if also := list(_changes(report, "better", BOUGHT[1:], ranked=False)):
        yield f"also {', '.join(also)}"
    if costs := list(_changes(report, "worse", COSTS, ranked=False)):
        yield f"costs: {', '.join(costs)}"
    checks = [check for check in (subject.verify or Verification()).checks if check.decision == "undecided"]
    yield from (f"undecided: {_open(check)}" for check in checks)
    yield from (f"undecided: {says}" for says in subject.undecided if says not in {check.says for check in checks})
    if report.choice.unmeasured:
        yield "not measured on the target"
    elif one_session(report):
        yield ONE_SESSION
    if subject.bottleneck and subject.bottleneck.cause != "unknown":
        yield subject.bottleneck.says


def _open(check: Check) -> str:
    """`−5.82 to 8.09 items lost (limit 4.36); about 1,600 items would decide`."""
    if check.low is None or check.high is None or check.limit is None:
        return check.says
    ends = f"{significant(check.low, 3)} to {significant(check.high, 3)}"
    enough = f"; about {int(float(f'{check.needed:.2g}')):,} items would decide" if check.needed else ""
    return f"{LOSSES.get(check.name, check.name)} {ends}, limit {significant(check.limit, 3)}{enough}"


def one_session(report: Report) -> bool:
    """Whether it was measured, in a single session."""
    measured = report.deltas and not report.choice.unmeasured
    return bool(measured) and ranked_by(report) != COUNTED and (report.profile.get("sessions") or 0) == 1


def _changes(report: Report, called: str, told: Sequence[str], ranked: bool = True) -> Iterator[str]:
    """The called changes of these quantities, and of what ranks the variants."""
    by = ranked_by(report)
    for row in report.deltas:
        change = row.change
        if (row.metric in told or (ranked and row.metric == by)) and change and change.called == called:
            yield row.says if row.metric in BARE else f"{row.label.lower()} {row.says}"


def _accuracy(subject: Variant) -> str:
    """What is lost of the source: as its limit was decided, or with its interval where there is no limit."""
    verify = subject.verify or Verification()
    decided = [check for check in verify.checks if check.decision]
    if decided:
        return str(min(decided, key=lambda check: check.decision != "undecided").says)
    metric = verify.metric
    return f"{accuracy_says(metric)}{_spread(metric)}" if metric and accuracy_says(metric) else ""


def _spread(metric: Metric) -> str:
    low, high = metric.low, metric.high
    if low is None or high is None:
        return ""
    if metric.net_lost is not None:
        low, high = -high * metric.n, -low * metric.n
    return f" ({significant(low, 3)} to {significant(high, 3)} with 95 % confidence)"
