"""Before and after: the shipped variant against the baseline, compared only where the two are comparable."""

from __future__ import annotations

import dataclasses
import math
from fnmatch import fnmatch

from edgecompress.core import quantities
from edgecompress.core.quantities import COUNTED, CYCLES, QUANTITIES, Quantity, direction
from edgecompress.core.session_stats import TOO_NOISY
from edgecompress.core.stats import CHANGE
from edgecompress.reporting.formatting import guessed, is_bound, known, plural, significant, times
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Called, Change, Delta, Number
from edgecompress.reporting.model_variant import Metric, Variant
from edgecompress.reporting.sessions import improvement

CPUS = ("linux-*", "*-x86_64", "*-amd64")  # platforms of targets that have no accelerator
VERSUS = 10  # letters of a variant's name that fit into the head of a column
# The rows of the table, in their order.
ROWS = quantities.of(
    (
        *("latency", COUNTED, CYCLES, "npu_time", "sram", "flash", "throughput", "accuracy", "size"),
        *("peak_rss", "file_backed", "arena", "energy_gross", "energy_net", "inferences_per_joule"),
        *("load", "first", "fallback"),
    )
)


def subject(report: Report) -> str:
    """The variant that the report is about: the shipped one, or the only one; empty when nothing ships."""
    if report.choice.variant:
        return str(report.choice.variant)
    return report.variants[0].name if len(report.variants) == 1 and not report.exit_code else ""


def ranked_by(report: Report) -> str:
    """What the variants are ranked by: "latency", "instructions" that a simulator counted, or estimated "cycles".

    Cycles only where nothing was measured, and all estimates were made in the same way.
    """
    every = [v.numbers for v in report.variants]
    if any(known(numbers[COUNTED]) for numbers in every):
        return COUNTED
    estimated = {numbers[CYCLES].source for numbers in every if known(numbers.get(CYCLES))}
    timed = any(known(numbers["latency"]) for numbers in every)
    return CYCLES if len(estimated) == 1 and not timed else "latency"


def baseline(report: Report) -> str:
    """The variant to beat: the best reference that was measured; empty when there is none, or it is the subject."""
    by = ranked_by(report)
    measured = [v for v in report.variants if v.reference and known(v.numbers.get(by))]
    best = min(measured, key=lambda v: v.numbers[by].known, default=None)
    return best.name if best and best.name != report.subject else ""


def ordered(report: Report) -> list[Variant]:
    """The variants, the best of what they are ranked by first; then those without a number, in the target's order."""
    by = ranked_by(report)
    return sorted(report.variants, key=lambda v: v.numbers[by].known if known(v.numbers.get(by)) else math.inf)


def versus(report: Report) -> str:
    """The head of the column of `factor`."""
    return f"vs {report.baseline}" if 0 < len(report.baseline) < VERSUS else "speed-up"


def factor(report: Report, name: str, variant: Variant) -> float | None:
    """How many times better than the variant of a name another is, by what ranks them; None where unknown."""
    other = report.variant(name)
    change = between(ranked_by(report), other, variant)[0] if other else None
    return change.factor if change else None


def table(report: Report) -> list[Delta]:
    """One row per quantity of the subject, beside the one to beat where there is one."""
    after, before = report.variant(report.subject), report.variant(report.baseline)
    if after is None:
        return []
    rows = [_row(quantity, before, after) for quantity in ROWS if quantity.name in after.numbers]
    return [r for r in rows if known(r.after) or known(r.before) or r.metric in ("energy_gross", "accuracy")]


def accelerated(report: Report) -> bool:
    """Whether the target may have an accelerator: of a CPU nothing is told to be off one."""
    platforms = report.target.get("platforms") or [""]
    return not all(any(fnmatch(each, cpu) for cpu in CPUS) for each in platforms)


def shown(report: Report) -> list[Delta]:
    """The rows of `table` that the renderings show."""
    return [row for row in report.deltas if row.metric != "fallback" or accelerated(report)]


def _row(quantity: Quantity, before: Variant | None, after: Variant) -> Delta:
    metric = quantity.name
    if metric == "accuracy":
        return _accuracy(after)
    old = before.numbers.get(metric) if before else None
    new = after.numbers[metric]
    change, why = None, "nothing to compare with" if before else ""
    if before and old:
        change, why = _change(quantity, before, after)
    phrases = (say(change, quantity.words), say(change, quantity.words, spread=False)) if change else (why, why)
    named = before.name if before else ""
    return Delta(metric, quantity.label, quantity.better, old, new, named, change, *phrases)


def between(metric: str, before: Variant, after: Variant) -> tuple[Change | None, str]:
    """The change of one quantity from a variant to another, or why the two are not compared."""
    if not known(before.numbers.get(metric)) or not known(after.numbers.get(metric)):
        return None, "one of the two was not measured"
    change, why = _change(QUANTITIES[metric], before, after)
    return change, "" if change else why or "no round measured both"


def _change(quantity: Quantity, before: Variant, after: Variant) -> tuple[Change | None, str]:
    """The change, or why the two are not compared."""
    old, new = (v.numbers[quantity.name] for v in (before, after))
    if why := incomparable(old, new):
        return None, why
    if quantity.session:
        noisy = any(s.noisy for v in (before, after) for s in v.sessions)
        why = TOO_NOISY if noisy else "no round measured both"
        return improvement(before.sessions, after.sessions, quantity.session), why
    if quantity.name == "throughput":
        return None, "as the latency"
    if quantity.name == "fallback" or not old.value or not new.value:
        return None, ""
    return _plain(old, new, quantity), ""


def incomparable(old: Number, new: Number) -> str:
    """Why two numbers are never compared, or "": one is missing, a bound, or what another model or instrument tells."""
    if not known(old) or not known(new):
        return "not compared: one is missing"
    if old.status != new.status:
        return f"not compared: {old.status} beside {new.status}"
    if old.scope != new.scope:
        return f"not compared: {old.scope or 'no scope'} beside {new.scope or 'no scope'}"
    if guessed(old) and old.source != new.source:
        return f"not compared: by {old.source or 'one model'} and by {new.source or 'another'}"
    if is_bound(old) or is_bound(new):
        return "not compared: a bound is no value"
    return ""


def _plain(old: Number, new: Number, quantity: Quantity) -> Change:
    """Of two single numbers; the interval is the widest that theirs allow, and one that is guessed calls nothing."""
    a, b = (old, new) if quantity.better == "lower" else (new, old)
    low = a.low / b.high if a.low and b.high else None
    high = a.high / b.low if a.high and b.low else None
    factor = a.known / b.known
    n = min(old.n, new.n)
    if guessed(old):  # the model's error is common to both: no interval of the ratio
        return Change(factor, None, None, n, "none", guessed=True, exact=old.metric == COUNTED)
    apart = low is None or high is None or low > 1 or high < 1
    exact = quantity.exact or low is not None
    called: Called = ("better" if factor > 1 else "worse") if apart and abs(factor - 1) > CHANGE else "same"
    return Change(factor, low, high, n, called if exact else "none")


def near(change: Change) -> bool:
    """Whether the two are as much as the same; of a guess, as far as it is shown."""
    if change.guessed and not change.exact:
        return unity(change.factor)
    return bool(abs(change.factor - 1) <= CHANGE)


def unity(guess: float) -> bool:
    """Whether a guessed factor, of two digits, is 1.0."""
    return "1.0" in (significant(guess, 2), significant(1 / guess, 2))


def say(change: Change, words: tuple[str, str], spread: bool = True) -> str:
    """`1.92× faster [1.88, 1.95]`, `no change called (1.01×)`: the change in words, with its interval where asked."""
    factor = change.factor
    word, shown = (words[0], factor) if factor >= 1 else (words[1], 1 / factor)
    bounds = _ends(change, inverse=factor < 1) if spread else ""
    if change.guessed:
        guess = times(shown) if change.exact else f"≈ {significant(shown, 2)}×"
        return f"no change ({guess})" if near(change) else f"{guess} {word}"
    if alike(change):
        return f"no change called ({times(factor)}{_ends(change) if spread else ''})"
    return f"{times(shown)} {word}{bounds}"


def _ends(change: Change, inverse: bool = False) -> str:
    """` [1.88, 1.95]`, or nothing where it has no interval."""
    low, high = change.low, change.high
    if low is None or high is None:
        return ""
    ends = (1 / high, 1 / low) if inverse else (low, high)
    return f" [{', '.join(significant(end, 3) for end in ends)}]"


def alike(change: Change) -> bool:
    """Whether a change is none in words: what is said of it then does not go with "than"."""
    return bool(change.called == "same" or (change.called == "none" and near(change)))


def _accuracy(after: Variant) -> Delta:
    """Of the artifact against the source, item by item; the other variants are not in it."""
    number = after.numbers["accuracy"]
    metric = after.verify.metric if after.verify else None
    label = QUANTITIES["accuracy"].label + (f" ({number.metric})" if metric else "")
    before = None
    if metric and metric.before is not None:
        before = dataclasses.replace(number, value=metric.before, status="measured", reason="")
    says = accuracy_says(metric) if metric else number.reason
    return Delta("accuracy", label, direction(number.metric), before, number, "source", None, says, says)


def accuracy_says(metric: Metric) -> str:
    """`net 1 of 500 items lost`, `1.004× the source's`, or the difference of the user's own metric."""
    if metric.before is None or metric.after is None:
        return metric.reason
    if metric.net_lost is not None:
        lost, items = metric.net_lost, plural(metric.n, "item")
        return f"net {abs(lost)} of {items} {'gained' if lost < 0 else 'lost'}" if lost else f"no net loss in {items}"
    if metric.ratio is not None:
        return f"{significant(metric.ratio, 4)}× the source's"
    return f"{metric.after - metric.before:+.3g} to the source's".replace("-", "−")
