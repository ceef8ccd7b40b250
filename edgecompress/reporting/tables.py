"""The tables of all renderings: rows of plain text, made once from the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core.model import WARNINGS
from edgecompress.core.quantities import COUNTED, CYCLES, ENERGY
from edgecompress.reporting import before_after as deltas
from edgecompress.reporting import precision, slowdown
from edgecompress.reporting.formatting import (
    DASH,
    Scale,
    column,
    common,
    ended,
    known,
    plain,
    plain_column,
    provenance,
    significant,
    text,
    times,
)
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Number, Session, Table
from edgecompress.reporting.model_variant import LeftOperator, Output, Variant, Verification

RANKS = {"latency": "latency", COUNTED: "instructions (simulated)", CYCLES: "cycles (estimated)"}
UNITS = {"latency": "ms", COUNTED: "instructions", CYCLES: "cycles"}
KEPT = {True: "kept", False: "broken", None: "not judged"}  # of a check
METRICS = {"top1": "top-1", "top5": "top-5"}


@dataclass(frozen=True)
class TextTable:
    """A table of text. The first column names the row; `marked` is the row that stands out, or -1."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    marked: int = -1
    empty: str = ""  # what is said when there are no rows


def before_after(report: Report) -> TextTable:
    """The one to beat and the shipped artifact, quantity by quantity; with none to beat, the artifact alone."""
    rows, told = [], deltas.shown(report)
    scales = {row.metric: common([row.after, row.before]) for row in told}
    times = [n for row in told for n in (row.before, row.after) if n and n.unit == "ms"]
    for row in told:
        scale = common(times) if row.after.unit == "ms" else scales[row.metric]
        before, after = (text(number, spread=True, scale=scale) for number in (row.before, row.after))
        other = f" ({row.before_of})" if row.before_of not in ("", report.baseline) and before != DASH else ""
        rows.append((row.label, f"{before}{other}", after, row.says))
    if rows and all(before == DASH for _, before, _, _ in rows):
        return TextTable("Measured", ("", report.subject), tuple((label, after) for label, _, after, _ in rows))
    names = [precision.called(report, end) for end in (report.baseline, report.subject)]
    head = ("", names[0] or "before", names[1] or "after", "change")
    return TextTable("Before and after", head, tuple(rows), empty="Nothing ships, so there is nothing to compare.")


def variants(report: Report) -> TextTable:
    """Every variant, the fastest first, and why each lost."""
    by, ordered = deltas.ranked_by(report), deltas.ordered(report)
    head = ("variant", "runtime", RANKS[by], deltas.versus(report), "accuracy", "size", "verdict")
    rows = zip(*_variants(report, ordered, by), map(ended, ordered), strict=True)
    return TextTable("Variants", head, tuple(rows), _marked(report, ordered))


def standings(report: Report) -> TextTable:
    """The same in few words, for a terminal: how far behind the one that ships each is, or why it was lost."""
    by, ordered = deltas.ranked_by(report), deltas.ordered(report)
    accuracy = next((v.verify.metric.name for v in ordered if v.verify and v.verify.metric), "accuracy")
    head = ("variant", "runtime", UNITS[by], deltas.versus(report), METRICS.get(accuracy, accuracy), "size", "")
    _, *others = _variants(report, ordered, by)
    names, behind = [precision.called(report, v.name) for v in ordered], [_behind(report, v) for v in ordered]
    rows: list[tuple[str, ...]] = [*zip(names, *others, behind, strict=True)]
    if by == "latency":
        bare = [DASH if v.numbers[by].value is None else significant(v.numbers[by].known, 3) for v in ordered]
        rows = [(*row[:2], time, *row[3:]) for row, time in zip(rows, bare, strict=True)]
    kept = [i for i in range(len(head)) if i < 2 or any(row[i] not in ("", DASH) for row in rows)]
    told = tuple(tuple(row[i] for i in kept) for row in rows)
    return TextTable("Variants", tuple(head[i] for i in kept), told, _marked(report, ordered))


def _marked(report: Report, ordered: Sequence[Variant]) -> int:
    return next((i for i, v in enumerate(ordered) if v.name == report.subject), -1)


def _behind(report: Report, variant: Variant) -> str:
    """`ships`, `+6 %`, `+1 %, undecided`; of a variant that was not raced why it was lost."""
    if variant.name == report.subject:
        return "ships" if variant.verdict == "shipped" else variant.verdict
    slower = deltas.factor(report, report.subject, variant)
    if variant.verdict not in ("slower", "equal", "undecided", "noisy") or slower is None:
        if variant.verdict == "noisy":
            return "too noisy"
        return ended(variant) if variant.verdict == "failed" else variant.reason or variant.verdict
    percent = f"{100 * (1 / slower - 1):+.0f} %".replace("-", "−")
    return percent if variant.verdict == "slower" else f"{percent}, {variant.verdict}"


def why_not(report: Report, variant: Variant) -> str:
    """`3.53× slower (2.92–4.26)`, `not decided, 1.02× the time of int8`; where no times tell it, the reason.

    The interval is the one that sessions measured: one session has none.
    """
    subject = report.variant(report.subject)
    change = deltas.between("latency", subject, variant)[0] if subject else None
    if change is None or variant.verdict not in ("slower", "undecided"):
        return variant.reason or variant.verdict
    ends = [significant(1 / end, 3) for end in (change.high, change.low) if end]
    longer = times(1 / change.factor) + (f" ({'–'.join(ends)})" if len(ends) > 1 else "")
    return f"{longer} slower" if variant.verdict == "slower" else f"not decided, {longer} the time of {report.subject}"


def precisions(report: Report) -> TextTable:
    """What the files of the source and of the variants hold, and compute in."""
    return TextTable("Precision", ("", "weights", "computes"), precision.rows(report))


def _variants(report: Report, ordered: Sequence[Variant], by: str) -> Iterator[list[str]]:
    """The columns: name, runtime, what ranks them, the factor, accuracy, size."""
    factors = [deltas.factor(report, report.baseline, v) for v in ordered]
    yield from ([v.name for v in ordered], [v.runtime for v in ordered])
    yield column([v.numbers.get(by) for v in ordered])
    yield [DASH if factor is None else times(factor) for factor in factors]
    yield from (column([v.numbers[quantity] for v in ordered]) for quantity in ("accuracy", "size"))


def sessions(report: Report) -> TextTable:
    """Each fresh process of each variant."""
    head = ("variant", "session", "median", "p90", "runs", "load", "first", "warm-up", "flags")
    every = [(v.name, s) for v in deltas.ordered(report) for s in v.sessions]
    keys = ("median_ms", "p90_ms", "load_ms", "first_ms")
    each = zip(*(plain_column([getattr(s, key) for _, s in every], "ms") for key in keys), strict=True)
    rows = tuple(_session(*told, ms) for told, ms in zip(every, each, strict=True))
    return TextTable("Sessions", head, rows, empty="No session was run.")


def _session(name: str, s: Session, ms: Sequence[str]) -> tuple[str, ...]:
    label = s.round.removeprefix("round-")
    if s.crashed:
        return name, label, *([DASH] * 6), f"crashed: {s.crashed}"
    warm = f"{significant(s.warmup_s, 3)} s" if s.warmup_s is not None else DASH
    return name, label, *ms[:2], f"{s.n:,}" if s.n else DASH, *ms[2:], warm, ", ".join(s.flags or ())


def latencies(report: Report) -> TextTable:
    """Median with interval and the tail, where the runs hold it."""
    head = ("variant", "median", "p90", "p95", "p99", "runs", "outliers", "call overhead")
    rows, timed = [], [v for v in deltas.ordered(report) if v.sessions]
    scale, calls = (common([v.numbers[quantity] for v in timed]) for quantity in ("latency", "call"))
    for v in timed:
        runs, outliers = (f"{sum(getattr(s, key) or 0 for s in v.sessions):,}" for key in ("n", "outliers"))
        tail = (text(v.numbers[p], scale=scale) for p in ("p90", "p95", "p99"))
        rows.append(
            (
                v.name,
                text(v.numbers["latency"], spread=True, scale=scale),
                *tail,
                runs,
                outliers,
                _call(v.numbers, calls),
            )
        )
    return TextTable("Latency", head, tuple(rows), empty="Nothing was timed.")


def _call(numbers: dict[str, Number], scale: Scale | None) -> str:
    """What an empty model takes, and its share of the latency; or why there is none."""
    call, latency = numbers["call"], numbers["latency"]
    if call is None or not known(call):
        return f"{DASH} {call.reason}" if call else DASH
    share = f" ({plain(call.known / latency.known, 'fraction')})" if known(latency) else ""
    return f"{text(call, scale=scale)}{share}"


def memory(report: Report) -> TextTable:
    """Memory is four numbers, never one."""
    head = ("variant", "artifact", "planned arena", "its largest tensor", "peak RSS over baseline", "of it file-backed")
    timed = [v for v in deltas.ordered(report) if v.sessions]
    keys = ("size", "arena", "peak_rss", "file_backed")
    size, arena, *peak = (column([v.numbers[key] for v in timed], why=True) for key in keys)
    largest = [next((s.memory.arena_peak for s in v.sessions if s.memory and s.memory.arena_peak), DASH) for v in timed]
    rows = zip([v.name for v in timed], size, arena, largest, *peak, strict=True)
    return TextTable("Memory", head, tuple(rows), empty="Not measured.")


def energy(report: Report) -> TextTable:
    """Gross is what the battery sees; net of idle beside it; each with source."""
    head = ("variant", "gross", "net of idle", "inferences/sec per watt", "power", "source")
    every = {v.name: [v.numbers[q.name] for q in ENERGY] for v in deltas.ordered(report)}
    behind = {name: [provenance(n) for n in numbers if known(n)] for name, numbers in every.items()}
    shown = [name for name in every if behind[name]]
    each = (column(numbers, why=True) for numbers in zip(*(every[name] for name in shown), strict=True))
    rows = tuple(zip(shown, *each, (behind[name][0] for name in shown), strict=True))
    reasons = "; ".join(sorted({v.numbers["energy_gross"].reason for v in report.variants} - {""}))
    return TextTable("Energy", head, rows, empty=f"No energy number: {reasons or 'no reason was given'}.")


def sensors(report: Report) -> TextTable:
    """Which sensors could not read, and why."""
    return TextTable(
        "Sensors not used", ("sensor", "why not"), tuple((k, str(v)) for k, v in report.energy.why_not.items())
    )


def outputs(report: Report) -> TextTable:
    """Each output of each verified variant against the source's."""
    head = ("variant", "output", "max abs error", "SQNR", "cosine", "agreement")
    rows = []
    for name, o in ((v.name, o) for v in deltas.ordered(report) if v.verify for o in v.verify.outputs):
        sqnr = f"{_short(o.sqnr_db, 4, o)}{' dB' if o.sqnr_db is not None else ''}"
        cells = _short(o.max_abs_error, 3, o), sqnr, _short(o.cosine, 6, o), plain(o.agreement, "fraction")
        rows.append((name, o.name, *cells))
    return TextTable("Outputs against the source", head, tuple(rows), empty="Nothing was verified.")


def _short(value: float | None, digits: int, output: Output) -> str:
    """A number, or why there is none ("identical")."""
    return str(output.reason or DASH) if value is None else f"{value:.{digits}g}"


def metrics(report: Report) -> TextTable:
    """The task metric of each verified variant, as a paired comparison with the source."""
    head = ("variant", "metric", "source", "artifact", "lost", "gained", "change", "its 95 % interval", "items")
    judged = ((v.name, v.verify.metric) for v in deltas.ordered(report) if v.verify)
    rows = []
    for name, m in ((name, metric) for name, metric in judged if metric):
        unit = "" if m.ratio is not None else m.unit
        ends = [plain(end, unit) for end in (m.low, m.high)]
        spread = f"[{', '.join(ends)}]" if DASH not in ends else DASH
        both = (plain(side, m.unit) for side in (m.before, m.after))
        counts = (DASH if count is None else str(count) for count in (m.items_lost, m.items_gained))
        rows.append((name, m.name, *both, *counts, deltas.accuracy_says(m), spread, f"{m.n:,}"))
    return TextTable("The task", head, tuple(rows), empty="The source has no metric.")


def checks(report: Report) -> TextTable:
    """Each promise of each variant."""
    head = ("variant", "check", "kept", "what it says")
    rows = []
    for name, c in ((v.name, c) for v in deltas.ordered(report) if v.verify for c in v.verify.checks):
        kept = "undecided" if c.ok and c.decision == "undecided" else KEPT[c.ok]
        rows.append((name, c.name, kept, c.says))
    return TextTable("Checks", head, tuple(rows), empty="No check was made.")


def stages(report: Report) -> TextTable:
    """How each stage ended."""
    head = ("stage", "ended", "time", "reason", "log")
    rows = tuple((s.stage, s.status, f"{s.wall_s:.1f} s", s.reason or "", s.log or "") for s in report.stages)
    return TextTable("Stages", head, rows, empty="No stage was listed.")


def configuration(report: Report) -> TextTable:
    """The effective configuration, and where each value came from."""
    rows = tuple((str(c.key), _value(c.value), str(c.origin)) for c in report.configuration)
    return TextTable("Configuration", ("key", "value", "from"), rows, empty="No configuration was listed.")


def files(report: Report) -> TextTable:
    """What was built, byte for byte."""
    head = ("variant", "file", "bytes", "sha256")
    built = [(v.name, f) for v in deltas.ordered(report) if v.artifact for f in v.artifact.files]
    rows = tuple((n, f.name, f"{f.bytes:,}", f.sha256) for n, f in built)
    return TextTable("Files", head, rows, empty="None.")


def operators(report: Report) -> TextTable:
    """The whole operators' time beside the end-to-end latency: reported, never rescaled."""
    head: tuple[str, ...] = ("variant", "operators", "sum", "sum / latency", "off the accelerator", "remark")
    rows: list[tuple[str, ...]] = []
    every = [(v, v.ops) for v in deltas.ordered(report) if v.ops]
    sums = [ops.total_ms if ops.ops else None for _, ops in every]
    for (v, ops), total, told in zip(every, sums, plain_column(sums, "ms"), strict=True):
        latency = v.numbers["latency"]
        share = significant(total / latency.known, 2) if total and known(latency) else DASH
        off = ", ".join(ops.fallback or ()) or "none"
        why = slowdown.NOT_ADDED_UP if slowdown.adds_up(v) is False else ops.why
        rows.append((v.name, str(len(ops.ops)), told, share, off, why))
    if not deltas.accelerated(report):
        head, rows = (*head[:4], head[5]), [(*row[:4], row[5]) for row in rows]
    return TextTable("Operators", head, tuple(rows), empty="No per-operator pass was run.")


def slow(report: Report) -> TextTable:
    """Why variants are slower than the fastest reference."""
    slow = (v for v in deltas.ordered(report) if v.evidence)
    rows = tuple((v.name, v.evidence.removeprefix(f"{v.name} ")) for v in slow)
    return TextTable("Slower than the reference", ("variant", "why"), rows)


def fallback(report: Report) -> TextTable:
    """Operators that left the accelerator, by their type."""
    head = ("variant", "operators", "type", "time", "share", "which")
    rows = tuple((v.name, *row) for v in deltas.ordered(report) for row in _fallback(v.verify or Verification()))
    if not deltas.accelerated(report):
        return TextTable("Off the accelerator", head, ())
    return TextTable("Off the accelerator", head, rows, empty="No operator of a verified variant left an accelerator.")


def _fallback(verify: Verification) -> list[tuple[str, ...]]:
    """A row per type, the one that takes most first; or why nothing is known."""
    why = verify.reasons.get("fallback", "")
    if verify.fallback is None:
        return [(*[DASH] * 4, why)] if why else []
    kinds: dict[str, list[LeftOperator]] = {}
    for op in verify.fallback:
        kinds.setdefault(op.type or op.name, []).append(op)
    ranked = sorted(kinds.items(), key=lambda kind: -(_sum(kind[1], "ms") or 0.0))
    rows: list[tuple[str, ...]] = []
    sums = [_sum(ops, "ms") for _, ops in ranked]
    for (_, ops), time, told in zip(ranked, sums, plain_column(sums, "ms"), strict=True):
        names = ", ".join(op.name for op in ops[:3])
        which = f"{names}, …" if len(ops) > 3 else f"{names} ({why})" if time is None and why else names
        rows.append((str(len(ops)), ops[0].type or DASH, told, plain(_sum(ops, "share"), "fraction"), which))
    return rows


def _sum(ops: Sequence[LeftOperator], key: str) -> float | None:
    each = [getattr(op, key) for op in ops]
    return None if None in each else sum(each)


def data(report: Report) -> TextTable:
    """What is known of the samples; the warnings of them are among the notes."""
    return pairs("Data", {key: value for key, value in (report.data or {}).items() if key != WARNINGS})


def pairs(title: str, data: Table) -> TextTable:
    """Nested facts as dotted keys and values."""
    return TextTable(title, ("", ""), tuple(_flat(data, "")), empty="Nothing was recorded.")


def _flat(data: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            rows += _flat(value, f"{prefix}{key}.")
        elif value not in ("", None, [], {}):
            size = key.endswith("_bytes")
            rows.append(
                (f"{prefix}{key}", plain(float(value), "bytes") if isinstance(value, int) and size else _value(value))
            )
    return rows


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
