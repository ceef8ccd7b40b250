"""Comparison of reports: ratios with intervals, or the reason why two are not comparable."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgecompress.core import stats
from edgecompress.core.errors import CheckFailed, InputError
from edgecompress.core.quantities import COUNTED, CYCLES, GATES, Quantity, direction
from edgecompress.reporting import before_after, read
from edgecompress.reporting.formatting import Number, guessed, known, significant, text, times
from edgecompress.reporting.gates import Ended, Gate
from edgecompress.reporting.sessions import ratios, values

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table as RichTable

Report = Mapping[str, Any]


# The rows of the table, in their order, by what --fail-if calls them.
BY_NAME = {
    name: GATES[name]
    for name in (
        *("latency_ms", "p95_ms", "load_ms", "first_ms", "instructions", "cycles", "sram_bytes", "flash_bytes"),
        *("size_bytes", "peak_rss_bytes", "energy_gross_mj", "energy_net_mj", "inferences_per_joule", "accuracy"),
    )
}
DROP = "accuracy_drop"  # of --fail-if: how much worse the accuracy is than the baseline's
RANKING = ("latency", COUNTED, CYCLES)  # what decides who is first: the first that somebody has


@dataclass(frozen=True)
class ComparedVariant:
    """One variant of one report."""

    label: str
    report: Report
    variant: Mapping[str, Any]
    run: str  # sha256 of the report: what has the same was measured in turns

    def number(self, metric: Quantity) -> Number | None:
        """The number as report.json has it; None where the report knows nothing of the metric."""
        number: Number | None = self.variant["numbers"].get(metric.name)
        return number

    @property
    def device(self) -> tuple[Any, ...]:
        """What makes two devices the same: the name, and what the processor says of itself."""
        around = self.report["environment"]
        return (self.report["device"].get("name"), around.get("cpu"), around.get("board"), around.get("cores"))

    @property
    def device_name(self) -> str:
        """The device in words."""
        name, cpu, board, _ = self.device
        return f"{name} ({board or cpu})" if board or cpu else str(name)

    @property
    def artifact(self) -> str:
        """The sha256 of the artifact; empty where the report has none."""
        return str((self.variant["artifact"] or {}).get("sha256") or "")


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


@dataclass(frozen=True)
class ReportComparison:
    """The first entry is the baseline of the others."""

    entries: tuple[ComparedVariant, ...]
    rows: tuple[MetricRow, ...]
    sentences: tuple[str, ...]
    warnings: tuple[str, ...]
    gates: tuple[GateVerdict, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 when a gate is broken; 2 when one could not be judged: it asks for what was not measured."""
        ended = {judged.ended for judged in self.gates}
        return CheckFailed.exit_code if "broken" in ended else InputError.exit_code if "not judged" in ended else 0


def _row(metric: Quantity, entries: Sequence[ComparedVariant]) -> MetricRow | None:
    """None where nobody has a value."""
    numbers = tuple(e.number(metric) for e in entries)
    if not any(map(known, numbers)):
        return None
    return MetricRow(metric, numbers, tuple(change(metric, entries[0], e) for e in entries[1:]))


# --------------------------------------------------------------------------- a change


def change(metric: Quantity, old: ComparedVariant, new: ComparedVariant) -> Change:
    """What became of a metric from one entry to another, or why nobody can say."""
    if why := incomparable(metric, old, new):
        return Change(None, why=why)
    before, after = (e.number(metric) for e in (old, new))
    assert before and after  # or it were incomparable
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
    if before["unit"] != after["unit"] or (metric.name == "accuracy" and before["metric"] != after["metric"]):
        return f"not compared: {before['metric']} beside {after['metric']}"
    if metric.name == "accuracy" and not _same_data(old.report["data"] or {}, new.report["data"] or {}):
        return "not compared: judged on other test data"
    batches = [e.report["run"]["batch"] for e in (old, new)]
    if metric.per_run and batches[0] != batches[1]:
        return f"not compared: batch {batches[0]} beside batch {batches[1]}"
    if metric.of_device and old.device != new.device and not _same_artifact(old, new):
        return f"not compared: another artifact on another device ({old.device_name} beside {new.device_name})"
    if not before["value"] or before["value"] < 0:
        return "not compared: the first one is not above 0, so there is no ratio"
    return ""


def _same_data(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
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
    before, after = (values(e.variant["sessions"], metric.session) for e in (old, new))
    each = ratios(new.variant["sessions"], old.variant["sessions"], metric.session) if old.run == new.run else []
    if not before or not after or not all(before.values()):
        return None
    ratio = stats.of_ratios(each) if each else stats.unpaired(list(after.values()), list(before.values()))
    called = "none" if ratio.low is None else _called(metric, ratio.median) if ratio.changed else "same"
    return Change(ratio.median, ratio.low, ratio.high, ratio.n, called, bool(each))


def _of_numbers(metric: Quantity, old: Number, new: Number) -> Change:
    """By two numbers: of exact ones the ratio is exact; of others the interval is the widest that theirs allow."""
    ratio, n = new["value"] / old["value"], min(old["n"], new["n"])
    if metric.exact:
        apart = abs(ratio - 1) > (0 if metric.name == "accuracy" else stats.CHANGE)
        return Change(ratio, ratio, ratio, n, _called(metric, ratio) if apart else "same")
    if guessed(old):  # the model's error is common to both: no interval of the ratio
        return Change(ratio, n=n)
    low, high = quotient((new["low"], new["high"]), (old["low"], old["high"]))
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
    if metric.name == "accuracy":
        return _accuracy(old, new, change)
    assert change.ratio is not None
    ends = (None, None) if metric.exact else (change.low, change.high)
    bounded = (change.ratio, *ends) if metric.better == "higher" else _inverse((change.ratio, *ends))
    if change.called == "same":
        return dataclasses.replace(change, says=f"no change ({_times(bounded)})")
    word = metric.words[bounded[0] < 1]
    bounded = bounded if bounded[0] >= 1 else _inverse(bounded)
    if guessed(old) and not metric.exact:
        near = bounded[0] <= 1 + stats.CHANGE
        says = "no change (≈ 1.0×)" if near else f"≈ {significant(bounded[0], 2)}× {word}"
        return dataclasses.replace(change, says=says)
    if before_after.rounds_to_one(bounded[0]):
        return dataclasses.replace(change, says=f"no difference seen ({_times(bounded)})")
    uncalled = ", not called" if change.called == "none" else ""
    return dataclasses.replace(change, says=_times(bounded, f" {word}{uncalled}"))


Bounded = tuple[float, "float | None", "float | None"]  # a value between its ends


def _inverse(bounded: Bounded) -> Bounded:
    value, low, high = bounded
    return 1 / value, 1 / high if high else None, 1 / low if low else None


def _times(bounded: Bounded, word: str = "") -> str:
    value, low, high = bounded
    ends = "" if low is None or high is None else f" [{significant(low, 3)}, {significant(high, 3)}]"
    return times(value) + word + ends


def _accuracy(old: Number, new: Number, change: Change) -> Change:
    """In points or the metric's own unit, exact on this test data; a perplexity that falls is better."""
    more = new["value"] - old["value"]
    lower = direction(old["metric"]) == "lower"
    called = "same" if not more else "better" if (more < 0) == lower else "worse"
    points = old["unit"] == "fraction"
    signed = f"{100 * more:+.2f} points" if points else f"{more:+.3g}"
    says = signed.replace("-", "−") if more else "no change"
    return dataclasses.replace(change, called=called, says=says)


# --------------------------------------------------------------------------- what is said of it all


def _changes(entries: Sequence[ComparedVariant], rows: Sequence[MetricRow]) -> Iterator[str]:
    """A sentence for each entry but the first, and what of it was not compared."""
    for i, entry in enumerate(entries[1:]):
        if old_and_new_device := _devices(entries[0], entry):
            yield old_and_new_device
        changes = {row.metric: row.changes[i] for row in rows}
        clauses = [f"{m.label.lower()} {c.says}" for m, c in changes.items() if c.called in ("better", "worse")]
        same = any(c.called == "same" for c in changes.values())
        nothing = "no change" if same else "nothing is called"
        yield f"{entry.label} against {entries[0].label}: {', '.join(clauses) or nothing}"
        if any(c.called == "none" and c.n == 1 and m.session for m, c in changes.items()):
            yield f"{entry.label}: one session has no interval, and no change is called; use --profile standard"
        for why in dict.fromkeys(c.why for c in changes.values() if c.why):
            names = ", ".join(m.gate for m, c in changes.items() if c.why == why)
            yield f"{entry.label}: {names} {why}"


def _devices(old: ComparedVariant, new: ComparedVariant) -> str:
    if old.device == new.device or not _same_artifact(old, new):
        return ""
    return f"A comparison of devices: the same artifact on {old.device_name} and on {new.device_name}"


def _first(entries: Sequence[ComparedVariant], rows: Sequence[MetricRow]) -> Iterator[str]:
    """Of three or more: who is first, or why nobody is."""
    metric = next((row.metric for name in RANKING for row in rows if row.metric.name == name), None)
    if len(entries) < 3 or metric is None:
        return
    pairs = itertools.combinations(entries, 2)
    if why := next((f"{a.label}, {b.label}: {w}" for a, b in pairs if (w := incomparable(metric, a, b))), ""):
        yield f"No ranking by {metric.gate}: {why}"
        return
    best, second, *_ = sorted(entries, key=lambda e: (e.number(metric) or {})["value"])
    lead = change(metric, second, best)
    if lead.called == "better":
        yield f"First by {metric.gate}: {best.label}, {lead.says} than {second.label}"
    else:
        yield f"No winner by {metric.gate}: {best.label} and {second.label}: {lead.says}"


def _warnings(entries: Sequence[ComparedVariant]) -> Iterator[str]:
    """What else than the artifact is different."""
    first = _around(entries[0])
    for entry in (e for e in entries[1:] if e.report["environment"]):
        for name, value in _around(entry).items():
            if name in first and first[name] != value:
                yield f"{entry.label}: {name} {_word(value)}, the baseline's is {_word(first[name])}"
        if entry.run != entries[0].run and entry.device == entries[0].device:
            yield f"{entry.label}: measured in another run than the baseline; --remeasure measures them in turns"


def _around(entry: ComparedVariant) -> dict[str, Any]:
    """The environment that numbers depend on, by the words that a warning uses."""
    report, around = entry.report, entry.report["environment"]
    profile = report["profile"]
    runtime = (around.get("runtimes") or {}).get(entry.variant["name"]) or {}
    versions = runtime.get("versions") or {}
    return {
        "device": entry.device_name,
        **{key: around.get(key) for key in ("os", "kernel", "governor", "virtual")},
        **{key: report["run"][key] for key in ("threads", "batch")},
        "profile": profile.get("name"),
        "edgecompress": report["versions"].get("edgecompress"),
        **{f"{name} version": version for name, version in versions.items()},
    }


def _word(value: Any) -> str:
    return "unknown" if value is None else str(value)


# --------------------------------------------------------------------------- gates


def _verdicts(gates: Sequence[Gate], entries: Sequence[ComparedVariant]) -> Iterator[GateVerdict]:
    for gate in gates:
        for entry in entries[1:]:
            yield _judge(gate, entries[0], entry)


def _judge(gate: Gate, old: ComparedVariant, new: ComparedVariant) -> GateVerdict:
    """An absolute limit is held against the number itself, a relative one against the ratio."""
    metric = BY_NAME["accuracy" if gate.metric == DROP else gate.metric]
    number = new.number(metric)
    held = change(metric, old, new) if gate.relative or gate.metric == DROP else _alone(metric, number)
    if held.ratio is None or number is None:
        return GateVerdict(gate.text, new.label, "not judged", held.why)
    if gate.metric == DROP:
        drop = _drop(old, new)
        held = Change(drop, drop, drop, says=f"{drop:.4g} ({text(old.number(metric))} → {text(number)})")
    elif gate.relative:
        held = dataclasses.replace(held, says=f"{held.ratio:.4g}x{_spread(held)}")
    ended = gate.judge(held.ratio or 0.0, held.low, held.high)
    status = f", {number['status']}" if number["status"] != "measured" else ""
    past = ": past the limit, but its interval is not" if held.low is not None else ": past the limit, but no interval"
    return GateVerdict(gate.text, new.label, ended, held.says + status + (past if ended == "not shown" else ""))


def _spread(change: Change) -> str:
    return "" if change.low is None or change.low == change.high else f" [{change.low:.4g}, {change.high:.4g}]"


def _alone(metric: Quantity, number: Number | None) -> Change:
    """A number as what an absolute limit is held against."""
    if number is None or number["value"] is None:
        return Change(None, why=f"not judged: {number['reason'] if number else 'it was not measured'}")
    exact = metric.exact
    low, high = (number["value"],) * 2 if exact else (number["low"], number["high"])
    return Change(number["value"], low, high, says=text(number, spread=True))


def _drop(old: ComparedVariant, new: ComparedVariant) -> float:
    """How much worse the accuracy became."""
    before, after = (e.variant["numbers"]["accuracy"] for e in (old, new))
    drop = float(before["value"] - after["value"])
    return -drop if direction(before["metric"]) == "lower" else drop


# --------------------------------------------------------------------------- all of it


def of(entries: Sequence[ComparedVariant], gates: Sequence[Gate] = ()) -> ReportComparison:
    """The comparison of entries; raises InputError for a report that lacks what this version writes."""
    with _rendering(entries):
        rows = tuple(row for metric in BY_NAME.values() if (row := _row(metric, entries)))
        sentences = (*_changes(entries, rows), *_first(entries, rows))
        warnings = tuple(_warnings(entries))
        return ReportComparison(tuple(entries), rows, sentences, warnings, tuple(_verdicts(gates, entries)))


def _rendering(entries: Sequence[ComparedVariant]) -> contextlib.AbstractContextManager[None]:
    return read.rendering(", ".join(entry.label for entry in entries))


# --------------------------------------------------------------------------- as data, and on a console


def data(comparison: ReportComparison) -> dict[str, Any]:
    """The comparison as JSON. Raises InputError as `of`."""
    with _rendering(comparison.entries):
        return _data(comparison)


def _data(comparison: ReportComparison) -> dict[str, Any]:
    entries = [
        {
            "label": e.label,
            "variant": e.variant["name"],
            "runtime": e.variant["runtime"],
            "device": e.device_name,
            "date": e.report["date"],
            "artifact_sha256": e.artifact,
        }
        for e in comparison.entries
    ]
    rows = [
        {
            "metric": row.metric.gate,
            "better": row.metric.better,
            "numbers": row.numbers,
            "changes": [dataclasses.asdict(c) for c in row.changes],
        }
        for row in comparison.rows
    ]
    remarks = {"sentences": comparison.sentences, "warnings": comparison.warnings}
    gates = [dataclasses.asdict(g) for g in comparison.gates]
    return {"entries": entries, "rows": rows, **remarks, "gates": gates, "exit_code": comparison.exit_code}


STYLES = {"better": "green", "worse": "red"}
ENDED = ("broken", "not judged", "not shown", "kept")  # the worst first
SIGNS = {"kept": ("✔", "green"), "not shown": ("!", "yellow"), "broken": ("✘", "red"), "not judged": ("✘", "red")}


def outcome(comparison: ReportComparison) -> str:
    """In one line: how the gates ended, the broken ones first; without gates what changed."""
    verdicts = sorted(comparison.gates, key=lambda g: ENDED.index(g.ended))
    return "; ".join([f"{g.words}: {g.ended}: {g.entry} {g.says}" for g in verdicts] or comparison.sentences)


def render(comparison: ReportComparison) -> Group:
    """What a console prints of it. Raises InputError as `of`."""
    with _rendering(comparison.entries):
        return _rendered(comparison)


def _rendered(comparison: ReportComparison) -> Group:
    from rich.console import Group
    from rich.text import Text

    signs = [(*SIGNS[g.ended], f" {g.words}: {g.ended}: {g.entry} {g.says}") for g in comparison.gates]
    lines = [*((line, "") for line in comparison.sentences), *((f"! {w}", "yellow") for w in comparison.warnings)]
    texts = [Text(line, style) for line, style in lines] + [Text.assemble((s, style), line) for s, style, line in signs]
    for line in texts:  # whole, however narrow the console
        line.no_wrap, line.overflow = True, "ignore"
    return Group(_table(comparison), "", *texts)


def head(comparison: ReportComparison) -> tuple[str, ...]:
    """Of the table: the entries; for two of them the change has a column of its own."""
    return ("", *(e.label for e in comparison.entries), *(["change"] if len(comparison.entries) == 2 else []))


Cell = tuple[tuple[str, str], ...]  # its lines, each with how a change is called


def cells(row: MetricRow) -> list[Cell]:
    """A row of the table without its name; for more than two entries the change stands below each number."""
    numbers = [(text(number, spread=True), "") for number in row.numbers]
    changes = [(change.says or "not compared", change.called) for change in row.changes]
    if len(numbers) == 2:
        return [(line,) for line in (*numbers, *changes)]
    return [(numbers[0],), *zip(numbers[1:], changes, strict=True)]


def _table(comparison: ReportComparison) -> RichTable:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for words in head(comparison):
        shown.add_column(Text(words), overflow="fold")
    for row in comparison.rows:
        texts = [[Text(words, STYLES.get(called, "")) for words, called in cell] for cell in cells(row)]
        shown.add_row(row.metric.label, *(Text("\n").join(lines) for lines in texts))
    return shown
