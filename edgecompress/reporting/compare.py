"""Comparison of reports: ratios with intervals, or the reason why two are not comparable."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core import limit_decision, stats
from edgecompress.core.errors import UNDECIDED, CheckFailed, InputError
from edgecompress.core.json import Json
from edgecompress.core.limit_decision import Interval
from edgecompress.core.plain_text import fitted, printed
from edgecompress.core.quantities import COUNTED, CYCLES, GATES, QUANTITIES, Quantity, direction
from edgecompress.data import metric_limits
from edgecompress.reporting import accuracy_change, before_after, read
from edgecompress.reporting.formatting import guessed, known, plural, significant, text, times
from edgecompress.reporting.gates import Ended, Gate
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Number, Table, values
from edgecompress.reporting.model_variant import Variant
from edgecompress.reporting.sessions import ratios

# The rows of the table, in their order, by what --fail-if calls them.
BY_NAME = {
    name: GATES[name]
    for name in (
        *("latency_ms", "p95_ms", "load_ms", "first_ms", "instructions", "cycles", "sram_bytes", "flash_bytes"),
        *("size_bytes", "peak_rss_bytes", "energy_gross_mj", "energy_net_mj", "inferences_per_joule", "accuracy"),
    )
}
VERDICTS: Mapping[Ended, tuple[str, int]] = {  # of the gates, the worst first: the word, the exit code
    "broken": ("FAIL", CheckFailed.exit_code),
    "not judged": ("NOT JUDGED", InputError.exit_code),
    "undecided": ("UNDECIDED", UNDECIDED),
    "kept": ("PASS", 0),
}
DROP = "accuracy_drop"  # of --fail-if: how much worse the accuracy is than the baseline's
LOSS = metric_limits.RELATIVE  # of --fail-if: the same as a part of the baseline's; of dB, of the squared error
Cell = tuple[tuple[str, str], ...]  # its lines, each with how a change is called
RANKING = ("latency", COUNTED, CYCLES)  # what decides who is first: the first that somebody has


@dataclass(frozen=True)
class ComparedVariant:
    """One variant of one report."""

    label: str
    report: Report
    variant: Variant
    run: str  # sha256 of the report: what has the same was measured in turns

    def number(self, metric: Quantity) -> Number | None:
        """The number as report.json has it; None where the report knows nothing of the metric."""
        number: Number | None = self.variant.numbers.get(metric.name)
        return number

    @property
    def device(self) -> tuple[object, ...]:
        """What makes two devices the same: the name, and what the processor says of itself."""
        around = self.report.environment
        return (self.report.device.get("name"), around.get("cpu"), around.get("board"), around.get("cores"))

    @property
    def device_name(self) -> str:
        """The device in words."""
        name, cpu, board, _ = self.device
        return f"{name} ({board or cpu})" if board or cpu else str(name)

    @property
    def artifact(self) -> str:
        """The sha256 of the artifact; empty where the report has none."""
        return str((self.variant.artifact.sha256 if self.variant.artifact else None) or "")


@dataclass(frozen=True)
class Change:
    """What became of a metric. `ratio` is new / old with its interval; None with the reason `why`."""

    ratio: float | None
    low: float | None = None
    high: float | None = None
    n: int = 0
    called: str = "none"  # "better", "worse", "same"; "none": nothing is called
    paired: bool = False  # measured in turns: round by round
    says: str = ""
    why: str = ""


@dataclass(frozen=True)
class MetricRow:
    """A metric of every entry, and its change in each but the first."""

    metric: Quantity
    numbers: tuple[Number | None, ...]
    changes: tuple[Change, ...]


@dataclass(frozen=True)
class GateVerdict:
    """How a gate ended for one entry."""

    words: str
    entry: str
    ended: Ended
    says: str

    @property
    def sentence(self) -> str:
        """It in a line."""
        return f"{self.words}: {self.ended}: {self.entry} {self.says}"


@dataclass(frozen=True, repr=False)
class ReportComparison:
    """The first entry is the baseline of the others."""

    entries: tuple[ComparedVariant, ...]
    rows: tuple[MetricRow, ...]
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    gates: tuple[GateVerdict, ...] = ()

    def __repr__(self) -> str:
        return f"ReportComparison({'; '.join(self.sentences)})"

    def __str__(self) -> str:
        return printed(lambda columns: "\n".join(_lines(self, columns)))

    @property
    def verdict(self) -> str:
        """What the gates say together: the worst of theirs; empty without gates."""
        ended = {judged.ended for judged in self.gates}
        return next((VERDICTS[each][0] for each in VERDICTS if each in ended), "")

    @property
    def exit_code(self) -> int:
        """1 when a gate is broken; 2 when one asks for what was not measured; 4 when one is undecided."""
        return dict(VERDICTS.values()).get(self.verdict, 0)


# --------------------------------------------------------------------------- as text


def head(comparison: ReportComparison) -> tuple[str, ...]:
    """Of the table: the entries; for two of them the change has a column of its own."""
    return ("", *(e.label for e in comparison.entries), *(["change"] if len(comparison.entries) == 2 else []))


def cells(row: MetricRow) -> list[Cell]:
    """A row of the table without its name; for more than two entries the change stands below each number."""
    numbers = [(text(number, spread=True), "") for number in row.numbers]
    changes = [(change.says or "not compared", change.called) for change in row.changes]
    if len(numbers) == 2:
        return [(line,) for line in (*numbers, *changes)]
    return [(numbers[0],), *zip(numbers[1:], changes, strict=True)]


def table(comparison: ReportComparison) -> Iterator[Cell]:
    """The lines of the table, each a row of words, and of how a change is called."""
    for row in comparison.rows:
        for number, line in enumerate(itertools.zip_longest(*cells(row), fillvalue=("", ""))):
            yield ("" if number else row.metric.label, ""), *line


def _lines(comparison: ReportComparison, width: int) -> list[str]:
    rows = [head(comparison), *(tuple(words for words, _ in line) for line in table(comparison))]
    told = [*comparison.sentences, *(f"! {warning}" for warning in comparison.warnings)]
    gates = [*(each.sentence for each in comparison.gates), f"{comparison.verdict} (exit code {comparison.exit_code})"]
    return [*fitted(rows, width), "", *told, *(gates if comparison.gates else [])]


# --------------------------------------------------------------------------- a change


def change(metric: Quantity, old: ComparedVariant, new: ComparedVariant) -> Change:
    """What became of a metric from one entry to another, or why nobody can say."""
    if why := incomparable(metric, old, new):
        return Change(None, why=why)
    before, after = (e.number(metric) for e in (old, new))
    assert before and after  # or it were incomparable
    if metric.name == "accuracy":
        return _accuracy(before, after, accuracy_change.interval(old.variant, new.variant))
    unworded = _of_sessions(metric, old, new) or _of_numbers(metric, before, after)
    return _in_words(metric, before, after, unworded)


def incomparable(metric: Quantity, old: ComparedVariant, new: ComparedVariant) -> str:
    """Why a metric of two entries is not compared, or ""."""
    before, after = old.number(metric), new.number(metric)
    if not known(before) or not known(after):
        return "not compared: one is missing"
    assert before and after
    if why := before_after.incomparable(before, after):
        return why
    if before.unit != after.unit or (metric.name == "accuracy" and before.metric != after.metric):
        return f"not compared: {before.metric} beside {after.metric}"
    if metric.name == "accuracy" and not _same_data(old.report.data or {}, new.report.data or {}):
        return "not compared: judged on other test data"
    batches = [e.report.run.batch for e in (old, new)]
    if metric.per_run and batches[0] != batches[1]:
        return f"not compared: batch {batches[0]} beside batch {batches[1]}"
    if metric.of_device and old.device != new.device and not _same_artifact(old, new):
        return f"not compared: another artifact on another device ({old.device_name} beside {new.device_name})"
    if not before.value or before.value < 0:
        return "not compared: the first one is not above 0, so there is no ratio"
    return ""


def _same_data(old: Table, new: Table) -> bool:
    """By content, wherever it lies; by what is known of it, where a report of an older version names no digest."""
    if "sha256" in old and "sha256" in new:
        return bool(old["sha256"] == new["sha256"])
    return {**old, "sha256": ""} == {**new, "sha256": ""}


def _same_artifact(old: ComparedVariant, new: ComparedVariant) -> bool:
    return old.artifact != "" and old.artifact == new.artifact


def _of_sessions(metric: Quantity, old: ComparedVariant, new: ComparedVariant) -> Change | None:
    """By the sessions: round by round where they took turns, else of two runs. None where there are none."""
    if not metric.session:
        return None
    before, after = (values(e.variant.sessions, metric.session) for e in (old, new))
    each = ratios(new.variant.sessions, old.variant.sessions, metric.session) if old.run == new.run else []
    if not before or not after or not all(before.values()):
        return None
    ratio = stats.of_ratios(each) if each else stats.unpaired(list(after.values()), list(before.values()))
    called = "none" if ratio.low is None else _called(metric, ratio.median) if ratio.changed else "same"
    return Change(ratio.median, ratio.low, ratio.high, ratio.n, called, bool(each))


def _of_numbers(metric: Quantity, old: Number, new: Number) -> Change:
    """By two numbers: of exact ones the ratio is exact; of others the interval is the widest that theirs allow."""
    ratio, n = new.known / old.known, min(old.n, new.n)
    if metric.exact:
        return Change(ratio, ratio, ratio, n, _called(metric, ratio) if abs(ratio - 1) > stats.CHANGE else "same")
    if guessed(old):  # the model's error is common to both: no interval of the ratio
        return Change(ratio, n=n)
    low, high = quotient((new.low, new.high), (old.low, old.high))
    if low is None or high is None:
        return Change(ratio, n=n)
    apart = (low > 1 or high < 1) and abs(ratio - 1) > stats.CHANGE
    return Change(ratio, low, high, n, _called(metric, ratio) if apart else "same")


Ends = tuple["float | None", "float | None"]


def quotient(a: Ends, b: Ends) -> Ends:
    """The interval of a / b: every quotient of the two; none where b may be nothing or an end is unknown."""
    if a[0] is None or a[1] is None or b[0] is None or b[1] is None or b[0] <= 0:
        return None, None
    return min(a[0] / b[0], a[0] / b[1]), max(a[1] / b[0], a[1] / b[1])


def _called(metric: Quantity, ratio: float) -> str:
    return "better" if (ratio < 1) == (metric.better == "lower") else "worse"


def _in_words(metric: Quantity, old: Number, new: Number, change: Change) -> Change:
    """The change with its words: how many times better, or worse."""
    assert change.ratio is not None
    ends = (None, None) if metric.exact else (change.low, change.high)
    bounded = (change.ratio, *ends) if metric.better == "higher" else _inverse((change.ratio, *ends))
    near = abs(change.ratio - 1) <= stats.CHANGE
    if near and (change.called == "same" or (change.called == "none" and not guessed(old))):
        says = f"no change ({_times(bounded)})" if change.called == "same" else f"no change called ({_times(bounded)})"
        return dataclasses.replace(change, says=says)
    word = metric.words[bounded[0] < 1]
    bounded = bounded if bounded[0] >= 1 else _inverse(bounded)
    if guessed(old) and not metric.exact:
        says = "no change (≈ 1.0×)" if before_after.unity(bounded[0]) else f"≈ {significant(bounded[0], 2)}× {word}"
        return dataclasses.replace(change, says=says)
    if times(bounded[0]) == times(1.0):
        return dataclasses.replace(change, says=f"no change ({_times(bounded)})")
    uncalled = ", not called" if change.called in ("none", "same") else ""
    return dataclasses.replace(change, says=_times(bounded, f" {word}{uncalled}"))


Bounded = tuple[float, "float | None", "float | None"]  # a value between its ends


def _inverse(bounded: Bounded) -> Bounded:
    value, low, high = bounded
    return 1 / value, 1 / high if high else None, 1 / low if low else None


def _times(bounded: Bounded, word: str = "") -> str:
    value, low, high = bounded
    ends = "" if low is None or high is None else f" [{significant(low, 3)}, {significant(high, 3)}]"
    return times(value) + word + ends


def _accuracy(old: Number, new: Number, interval: Interval) -> Change:
    """In points or the metric's own unit, with its interval; a perplexity that falls is better."""
    more, (low, high) = new.known - old.known, interval
    points = old.unit == "fraction"
    says = _signed(more, points) if more else "no change"
    if low is None or high is None:
        called = "none" if more else "same"
        says += f"{' points' if points else ''}, not called" if more else ""
    else:
        better = (more < 0) == (direction(old.metric) == "lower")
        called = "same" if low <= 0 <= high else "better" if better else "worse"
        spread = f" [{_signed(low, points)}, {_signed(high, points)}]" if low < high else ""
        says = f"{says}{' points' if points and more else ''}{spread}"
    ratio, *ends = (None if each is None else 1 + each / old.known for each in (more, low, high))
    return Change(ratio, ends[0], ends[1], min(old.n, new.n), called, says=says)


def _signed(number: float, points: bool) -> str:
    return (f"{100 * number:+.2f}" if points else f"{number:+.3g}").replace("-", "−")


# --------------------------------------------------------------------------- what is said of it all


def _changes(entries: Sequence[ComparedVariant], rows: Sequence[MetricRow]) -> Iterator[str]:
    """A sentence for each entry but the first, and what of it was not compared."""
    for i, entry in enumerate(entries[1:]):
        if entry.device != entries[0].device and _same_artifact(entries[0], entry):
            devices = f"{entries[0].device_name} and on {entry.device_name}"
            yield f"A comparison of devices: the same artifact on {devices}"
        changes = {row.metric: row.changes[i] for row in rows}
        clauses = [f"{m.label.lower()} {c.says}" for m, c in changes.items() if c.called in ("better", "worse")]
        yield f"{entry.label} against {entries[0].label}: {', '.join(clauses) or 'no change is called'}"
        if any(c.called == "none" and c.n == 1 and m.session for m, c in changes.items()):
            yield f"{entry.label}: one session has no interval, and no change is called; use --profile standard"
        for why in dict.fromkeys(c.why for c in changes.values() if c.why):
            names = ", ".join(m.gate for m, c in changes.items() if c.why == why)
            yield f"{entry.label}: {names} {why}"


def _first(entries: Sequence[ComparedVariant], rows: Sequence[MetricRow]) -> Iterator[str]:
    """Of three or more: who is first, or why nobody is."""
    metric = next((row.metric for name in RANKING for row in rows if row.metric.name == name), None)
    if len(entries) < 3 or metric is None:
        return
    pairs = itertools.combinations(entries, 2)
    if why := next((f"{a.label}, {b.label}: {w}" for a, b in pairs if (w := incomparable(metric, a, b))), ""):
        yield f"No ranking by {metric.gate}: {why}"
        return
    best, second, *_ = sorted(entries, key=lambda e: e.variant.numbers[metric.name].known)
    lead = change(metric, second, best)
    if lead.called == "better":
        yield f"First by {metric.gate}: {best.label}, {lead.says} than {second.label}"
    else:
        yield f"No winner by {metric.gate}: {best.label} and {second.label}: {lead.says}"


def _warnings(entries: Sequence[ComparedVariant]) -> Iterator[str]:
    """Whose accuracy proves nothing, and what else than the artifact is different."""
    if doubt := _at_chance(entries):
        yield doubt
    first = _around(entries[0])
    for entry in (e for e in entries[1:] if e.report.environment):
        for name, value in _around(entry).items():
            if name in first and first[name] != value:
                yield f"{entry.label}: {name} {_word(value)}, the baseline's is {_word(first[name])}"
        if entry.run != entries[0].run and entry.device == entries[0].device:
            yield f"{entry.label}: measured in another run than the baseline; --remeasure measures them in turns"


def _around(entry: ComparedVariant) -> dict[str, Json]:
    """The environment that numbers depend on, by the words that a warning uses."""
    report, around = entry.report, entry.report.environment
    profile = report.profile
    runtime = (around.get("runtimes") or {}).get(entry.variant.name) or {}
    versions = runtime.get("versions") or {}
    return {
        "device": entry.device_name,
        **{key: around.get(key) for key in ("os", "kernel", "governor", "virtual")},
        "threads": report.threads(entry.variant.name),
        "batch": report.run.batch,
        "profile": profile.get("name"),
        "edgecompress": report.versions.get("edgecompress"),
        **{f"{name} version": version for name, version in versions.items()},
    }


def _word(value: object) -> str:
    return "unknown" if value is None else str(value)


# --------------------------------------------------------------------------- gates


def _verdicts(gates: Sequence[Gate], entries: Sequence[ComparedVariant], strict: bool) -> Iterator[GateVerdict]:
    for gate in gates:
        for entry in entries[1:]:
            judged = _judge(gate, entries[0], entry)
            if strict and judged.ended == "undecided":
                judged = dataclasses.replace(judged, ended="broken", says=f"{judged.says}; --strict refuses that")
            yield judged


def _judge(gate: Gate, old: ComparedVariant, new: ComparedVariant) -> GateVerdict:
    """An absolute limit is held against the number itself, a relative one against the ratio."""
    of_accuracy = {DROP: _drop, LOSS: _loss}.get(gate.metric)
    metric = BY_NAME["accuracy" if of_accuracy else gate.metric]
    number = new.number(metric)
    held = change(metric, old, new) if gate.relative or of_accuracy else _alone(metric, new)
    if of_accuracy and held.ratio is not None:
        held = of_accuracy(old, new)
    if held.ratio is None or number is None:
        return GateVerdict(gate.text, new.label, "not judged", held.why)
    if number.unit == "fraction" and not gate.relative and abs(gate.limit) > 1:
        why = f"not judged: {number.metric} is from 0 to 1; for {gate.limit:g} points write {gate.limit / 100:g}"
        return GateVerdict(gate.text, new.label, "not judged", why)
    if gate.relative:
        held = dataclasses.replace(held, says=f"{held.ratio:.4g}x{_spread(held)}")
    interval = _interval(metric, number, held)
    ended = gate.judge(held.ratio or 0.0, interval)
    status = f", {number.status}" if number.status != "measured" else ""
    why = f": {_why_undecided(gate, number, held, interval)}" if ended == "undecided" else ""
    if metric.name == "accuracy" and ended == "kept" and (doubt := _at_chance((old, new))):
        ended, why = "undecided", f": {doubt}"
    return GateVerdict(gate.text, new.label, ended, held.says + status + why)


def _interval(metric: Quantity, number: Number, held: Change) -> Interval:
    """What decides: an interval of 95 %, or the value itself where it is the same when it is made again."""
    if metric.exact or (guessed(number) and not metric.of_device):  # a compiler's estimate
        return held.ratio, held.ratio
    return (None, None) if metric.session and held.n < limit_decision.SESSIONS else (held.low, held.high)


def _at_chance(entries: Sequence[ComparedVariant]) -> str:
    """Whose accuracy proves nothing, so that keeping it does not either."""
    at = [e.label for e in entries if e.report.summary.outcome == "undecided"]
    return f"the accuracy of {' and '.join(at)} is not above chance" if at else ""


def _why_undecided(gate: Gate, number: Number, held: Change, interval: Interval) -> str:
    """What would decide: more items of test data, or more sessions."""
    if number.metric not in QUANTITIES:
        if interval[0] is None:
            return "its items have no interval"
        enough = limit_decision.needed(held.n, held.ratio or 0.0, interval, gate.limit)
        return limit_decision.enough(enough, held.n)
    if interval[0] is None:
        had = plural(held.n, "compared session")
        few = f"{had}, {limit_decision.SESSIONS} have an interval of {limit_decision.CONFIDENCE}"
        return few if not guessed(number) else "an estimate has no interval"
    return "the limit is within its interval; more sessions may decide"


def _spread(change: Change) -> str:
    return "" if change.low is None or change.low == change.high else f" [{change.low:.4g}, {change.high:.4g}]"


def _alone(metric: Quantity, new: ComparedVariant) -> Change:
    """A number as what an absolute limit is held against."""
    number = new.number(metric)
    if number is None or number.value is None:
        return Change(None, why=f"not judged: {number.reason if number else 'it was not measured'}")
    ends = number.low, number.high
    if metric.name == "accuracy":
        ends = accuracy_change.of_number(number, new.variant)
    low, high = ends
    return Change(
        number.value, low, high, number.n, says=text(dataclasses.replace(number, low=low, high=high), spread=True)
    )


def _drop(old: ComparedVariant, new: ComparedVariant) -> Change:
    """How much worse the accuracy became, with its interval."""
    before, after = (e.variant.numbers["accuracy"] for e in (old, new))
    drop, interval = after.known - before.known, accuracy_change.interval(old.variant, new.variant)
    if direction(before.metric) == "higher":
        drop, interval = -drop or 0.0, limit_decision.negated(interval)
    return _of_both(Change(drop, *interval, min(before.n, after.n)), before, after)


def _loss(old: ComparedVariant, new: ComparedVariant) -> Change:
    """The same as a part of the baseline's own value."""
    before, after = (e.variant.numbers["accuracy"] for e in (old, new))
    lost = accuracy_change.loss(old.variant, new.variant)
    if lost is None:
        return Change(None, why="not judged: one of the reports does not say how its accuracy was judged")
    return _of_both(Change(lost.value, *lost.interval, lost.n), before, after)


def _of_both(change: Change, before: Number, after: Number) -> Change:
    return dataclasses.replace(change, says=f"{change.ratio:.4g}{_spread(change)} ({text(before)} → {text(after)})")


# --------------------------------------------------------------------------- all of it


def of(entries: Sequence[ComparedVariant], gates: Sequence[Gate] = (), strict: bool = False) -> ReportComparison:
    """The comparison of entries; raises InputError for a report that lacks what this version writes.

    `strict`: a gate that is undecided is broken.
    """
    with rendering(entries):
        numbers = {metric: tuple(e.number(metric) for e in entries) for metric in BY_NAME.values()}
        rows = tuple(
            MetricRow(metric, each, tuple(change(metric, entries[0], e) for e in entries[1:]))
            for metric, each in numbers.items()
            if any(map(known, each))
        )
        sentences = (*_changes(entries, rows), *_first(entries, rows))
        warnings = tuple(_warnings(entries))
        return ReportComparison(tuple(entries), rows, sentences, warnings, tuple(_verdicts(gates, entries, strict)))


def rendering(entries: Sequence[ComparedVariant]) -> contextlib.AbstractContextManager[None]:
    """Names the reports in the error that one of them causes."""
    return read.rendering(", ".join(entry.label for entry in entries))
