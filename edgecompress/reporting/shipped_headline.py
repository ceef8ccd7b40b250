"""The headline: what the variant that ships buys and costs, all against one baseline, and how sure its accuracy is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from edgecompress.core.quantities import COUNTED, CYCLES
from edgecompress.core.session_stats import TOO_NOISY
from edgecompress.reporting import precision
from edgecompress.reporting.before_after import accuracy_says, find, near, ranked_by
from edgecompress.reporting.formatting import known, significant, text
from edgecompress.reporting.model import Delta, Metric, Number, Report, Table, Variant, Verification

BOUGHT = ("size", "peak_rss", "energy_gross", "sram", "flash")  # beside what ranks the variants
COSTS = (*BOUGHT, "load", "first")
BARE = ("latency", "size", COUNTED, CYCLES)  # whose change says by itself what it is of


def parts(report: Report) -> Table:
    """What is better and what is worse by a called change, the accuracy, and the limits that are undecided."""
    subject = find(report, report.subject)
    return {
        "bought": list(_changes(report, "better", BOUGHT)),
        "costs": list(_changes(report, "worse", COSTS)),
        "accuracy": _accuracy(subject) if subject else "",
        "undecided": list(subject.undecided) if subject else [],
    }


def clauses(report: Report) -> str:
    """`0.3020 ms; beside fp32 1.92× faster [1.88, 1.95], 3.52× smaller; costs: ...; accuracy: ...`."""
    told, rows = parts(report), {row.metric: row for row in report.deltas}
    by = ranked_by(report)
    first = [took(rows[by].after)] if by in rows and known(rows[by].after) else []
    ranked = _ranked(rows[by]) if by in rows else ""
    bought = [*([ranked] if ranked else []), *told["bought"]]
    beside = precision.called(report, report.baseline)
    against = [f"beside {beside} {', '.join(bought)}"] if beside and bought else []
    costs = [f"costs: {', '.join(told['costs'])}"] if told["costs"] else []
    accuracy = [f"accuracy: {told['accuracy']}"] if told["accuracy"] else []
    others = [f"undecided: {says}" for says in told["undecided"] if says != told["accuracy"]]
    return "; ".join([*first, *_noisy(report), *against, *costs, *accuracy, *others]) or "nothing was measured"


def _noisy(report: Report) -> Iterator[str]:
    """That no latency or no factor is told, where the machine was too noisy for one."""
    subject = find(report, report.subject)
    if subject and ranked_by(report) == "latency" and TOO_NOISY in subject.numbers["latency"].reason:
        yield f"{TOO_NOISY}, so no latency is told"
    elif any(row.metric == "latency" and TOO_NOISY in row.short for row in report.deltas):
        yield f"{TOO_NOISY} with {report.baseline}"


def took(n: Number) -> str:
    """What one inference takes."""
    units = {COUNTED: " instructions per inference (simulated)", CYCLES: " cycles (estimated)"}
    return f"{text(n)}{units.get(n.unit, '')}"


def _ranked(row: Delta) -> str:
    """What ranks the variants, where no change of it is called: it is what one looks for first."""
    change = row.change
    if not change or change.called in ("better", "worse"):
        return ""
    if change.called == "same":
        return f"as fast: {row.says}"
    noun = {COUNTED: " instructions (simulated)", CYCLES: " cycles"}.get(row.metric, "")
    return str(row.says) if near(change) else f"{row.says}{noun}"


def _changes(report: Report, called: str, told: Sequence[str]) -> Iterator[str]:
    for row in report.deltas:
        change = row.change
        if row.metric in (ranked_by(report), *told) and change and change.called == called:
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
