"""What packages' benchmarks measured on devices that only their owners reach: as tables, and as dots with intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence

from edgecompress.reporting.figure_style import Figure, Panel, Values, also, axis, labels, paint, quantity, ticks
from edgecompress.reporting.formatting import DASH, known, plural, scaled, significant, text
from edgecompress.reporting.model import ExternalRow, Report
from edgecompress.reporting.model_numbers import ExternalSession, Number
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "On other devices"
LONG = 60  # characters of a device's name that are shown
_CAPTION = (
    "The median of each device's sessions, with its interval; pale: each session alone. Left is faster. "
    "Hollow and dashed: its self-test failed, so it is not ranked."
)


def rows(report: Report) -> Sequence[ExternalRow]:
    """What was measured elsewhere; a report of before knows of nothing."""
    external: Sequence[ExternalRow] = report.elsewhere or ()
    return external


def table(report: Report) -> TextTable:
    """How fast each device is, the fastest first, and what to know of that."""
    head = (TITLE.lower(), "median", "p90", "p99", "inferences/s", "sessions", "runs", "note")
    told = []
    for name, row in zip(names(rows(report)), rows(report), strict=True):
        n, step_ms = row.numbers, row.clock_step_ns / 1e6
        times = (timed(n["latency"], step_ms, spread=True), *(timed(n[key], step_ms) for key in ("p90", "p99")))
        rate = significant(n["throughput"].known, 3) if known(n["throughput"]) else DASH
        counts = str(len(row.sessions)), f"{sum(s.n for s in row.sessions):,}"
        told.append((name, *times, rate, *counts, "; ".join(row.says)))
    return TextTable(TITLE, head, tuple(told))


def short(report: Report) -> TextTable:
    """The same for a terminal: what ranks the devices, and what to know of that."""
    whole = table(report)
    shown = [whole.head.index(name) for name in (whole.head[0], "median", "inferences/s", "sessions", "note")]
    head, *body = (tuple(row[i] for i in shown) for row in (whole.head, *whole.rows))
    return TextTable(TITLE, head, tuple(body))


def names(rows: Sequence[ExternalRow]) -> list[str]:
    """Each row's device behind its rank, and told apart where two are called the same and neither has one."""
    called = [f"{row.rank or DASH}{'.' if row.rank else ''} {_short(row.device.name)}" for row in rows]
    times = [called[:i].count(name) + 1 for i, name in enumerate(called)]
    return [name if n == 1 else f"{name} ({n})" for name, n in zip(called, times, strict=True)]


def _short(name: str) -> str:
    return name if len(name) <= LONG else f"{name[:LONG]}…"


def timed(n: Number, step_ms: float, spread: bool = False) -> str:
    """Like `numbers.text`, with no digit that the steps of the clock do not hold."""
    if not known(n):
        return DASH
    factor, unit_ = scaled(n.known, n.unit)
    value, *ends = (significant(ms / factor, _held(ms / step_ms)) for ms in (n.value, n.low, n.high) if ms)
    shown = f" [{', '.join(ends)}]" if spread and len(ends) == 2 and {*ends} != {value} else ""
    return f"{value} {unit_}{shown}"


def _held(steps: float) -> int:
    """How many digits so many steps hold: four at most, as of any latency."""
    return min(4, max(1, math.floor(math.log10(steps)) + 1))


def places(report: Report) -> TextTable:
    """What each device is, what ran there, and when."""
    head = ("device", "system", "processor", "runtime", "measured", "energy")
    told = []
    for name, row in zip(names(rows(report)), rows(report), strict=True):
        device, runtime, energy = row.device, row.runtime, row.numbers["energy_gross"]
        cores = plural(device.cores, "core") if device.cores else ""
        system, cpu = (device.platform, device.os, device.browser), (device.cpu, cores)
        by = (f"{runtime.name} {runtime.version}".rstrip(), plural(row.threads, "thread"))
        joined = (", ".join(filter(None, parts)) or DASH for parts in (system, cpu, by))
        spent = text(energy) if known(energy) else f"{DASH} {energy.reason}"
        told.append((name, *joined, f"{when(row.sessions)}, by its {row.package} package", spent))
    return TextTable("Those devices", head, tuple(told))


def short_places(report: Report) -> TextTable:
    """The same for a terminal, all of a device in one cell."""
    rows = tuple((name, "; ".join(cell for cell in told if cell != DASH)) for name, *told in places(report).rows)
    return TextTable("Those devices", ("device", "what it is"), rows)


def when(sessions: Sequence[ExternalSession]) -> str:
    """The day of its sessions, or the first and the last."""
    days = sorted({s.started[:10] for s in sessions})
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"


def sessions(report: Report) -> TextTable:
    """Each run of a benchmark: a file of the folder's `measured`."""
    head = ("device", "file", "began", "warm-up", "runs", "outliers", "median", "p90", "clock", "its step", "self-test")
    named = zip(names(rows(report)), rows(report), strict=True)
    every = []
    for name, row in named:
        for s in row.sessions:
            each = (s.median_ms, s.p90_ms)
            times = (DASH if ms is None else timed(Number("", ms, "ms"), s.step_ns / 1e6) for ms in each)
            run = (s.started, plural(s.warmup, "run"), f"{s.n:,}", str(s.outliers))
            every.append((name, f"measured/{s.round}.json", *run, *times, row.clock, step(s.step_ns), row.self_test))
    return TextTable("Every session on other devices", head, tuple(every))


def step(ns: int) -> str:
    """`52 ns`, `20 µs`, `1 ms`."""
    by, unit_ = next((by, name) for by, name in ((1e6, "ms"), (1e3, "µs"), (1, "ns")) if ns >= by)
    return f"{ns / by:.3g} {unit_}"


# ------------------------------------------------------------------ the figure


def figure(report: Report) -> Figure:
    """Each device that has a latency, in the order of the table."""
    shown = [row for row in rows(report) if known(row.numbers["latency"])]
    if not shown:
        return Figure("elsewhere", "Latency on other devices", "")
    points = [_point(name, row) for name, row in zip(names(rows(report)), rows(report), strict=True) if row in shown]
    return Figure("elsewhere", "Latency on other devices", _CAPTION, (Panel("", _spec(points)),))


def _point(name: str, row: ExternalRow) -> dict[str, object]:
    n, passed = row.numbers["latency"], row.self_test == "pass"
    marks = {"fill": "var(--c1)", "opacity": 0.9} if passed else {"fill": "var(--c0)", "opacity": 0.0}
    took = timed(n, row.clock_step_ns / 1e6, spread=True)
    says = f"{_short(row.device.name)}: {took}, {plural(len(row.sessions), 'session')}"
    return {
        "label": name,
        "ms": n.value,
        "low": n.low,
        "high": n.high,
        "each": [s.median_ms for s in row.sessions],
        **marks,
        "says": says if passed else f"{says}, self-test failed: not ranked",
    }


def _spec(points: Values) -> Spec:
    ends = [e for p in points for e in (p["ms"], p["low"], p["high"], *p["each"]) if e]
    scale = "log" if max(ends) > 4 * min(ends) else "linear"
    low, high = min(ends) / 1.15, max(ends) * 1.15
    title = "ms, log scale" if scale == "log" else "ms"
    across = axis(title, values=ticks(low, high, scale), grid=True, format="~g")
    x, y = quantity("ms", across, type=scale, domain=[low, high]), labels()
    alone = [{**p, "ms": ms, "opacity": 0.25} for p in points for ms in p["each"] if len(p["each"]) > 1]
    pale = {"type": "point", "size": 30, "strokeWidth": 0}
    rule = {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}
    spans = layer([p for p in points if p["low"] and p["high"]], rule, x=also(x, "low"), x2={"field": "high"}, y=y)
    dots = []
    for passed, dashes in ((True, {}), (False, {"strokeDash": [3, 2]})):  # hollow and dashed: the self-test failed
        own = [p for p in points if bool(p["opacity"]) == passed]
        mark = {"type": "point", "size": 80, "strokeWidth": 1.5, **dashes}
        dots.append(described(own, mark, "device", x=x, y=y, **paint()))
    return unit(46 + 24 * len(points), [layer(alone, pale, x=x, y=y, **paint()), spans, *dots])
