"""What packages' benchmarks measured on devices that only their owners reach: as tables, and as dots with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgecompress.stages.report.marks import Figure, Panel, Values, also, axis, labels, paint, quantity, ticks
from edgecompress.stages.report.numbers import DASH, known, plain, plural, text
from edgecompress.stages.report.tables import Report, Table
from edgecompress.stages.report.vega import Spec, layer, told, unit

Row = Mapping[str, Any]
TITLE = "On other devices"
_CAPTION = (
    "The median of each device's sessions, with its interval; pale: each session alone. Left is faster. "
    "Hollow and dashed: its self-test failed, so it is not ranked."
)


def rows(report: Report) -> Sequence[Row]:
    """What was measured elsewhere; a report of before knows of nothing."""
    found: Sequence[Row] = report.get("elsewhere") or ()
    return found


def table(report: Report) -> Table:
    """A row per device, the fastest first, and what to know of it."""
    head = (TITLE.lower(), "runs on", "median", "p90", "p99", "per second", "energy", "runs", "note")
    return Table(TITLE, head, tuple(map(_row, rows(report))))


def _row(row: Row) -> tuple[str, ...]:
    n, energy = row["numbers"], row["numbers"]["energy_gross"]
    times = (text(n["latency"], spread=True), *(text(n[key]) for key in ("p90", "p99", "throughput")))
    spent = text(energy) if known(energy) else f"{DASH} {energy['reason']}"
    return row["device"]["name"], place(row), *times, spent, runs(row), "; ".join(_says(row))


def _says(row: Row) -> Iterator[str]:
    """What is not to be overlooked first: why it has no number."""
    if not known(row["numbers"]["latency"]):
        yield row["numbers"]["latency"]["reason"]
    yield from row["says"]


def runs(row: Row) -> str:
    """`600 in 2 sessions, 2026-11-22`."""
    days = sorted({s["started"][:10] for s in row["sessions"]})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f"{sum(s['n'] for s in row['sessions']):,} in {plural(len(row['sessions']), 'session')}, {when}"


def place(row: Row) -> str:
    """`android-arm64, Android 15, Tensor G3, 9 cores; litert 2.3.0, 4 threads`."""
    device, runtime = row["device"], row["runtime"]
    cores = plural(device["cores"], "core") if device["cores"] else ""
    system = (device["platform"], device["os"], device["browser"], device["cpu"], cores)
    by = f"{runtime['name']} {runtime['version']}, {plural(row['threads'], 'thread')}"
    return f"{', '.join(filter(None, system))}; {by}"


def sessions(report: Report) -> Table:
    """Each run of a benchmark: a file of the folder's `measured`."""
    head = ("device", "file", "began", "warm-up", "runs", "median", "p90", "clock and its step", "self-test")
    found = tuple((row, s) for row in rows(report) for s in row["sessions"])
    return Table("Every session on other devices", head, tuple(_session(row, s) for row, s in found))


def _session(row: Row, s: Row) -> tuple[str, ...]:
    times = (plain(s[key], "ms") for key in ("median_ms", "p90_ms"))
    clock = f"{row['clock']}, {plain(s['step_ns'] / 1e6, 'ms')}"
    asked = (s["started"], plural(s["warmup"], "run"), f"{s['n']:,}")
    return row["device"]["name"], f"measured/{s['round']}.json", *asked, *times, clock, row["self_test"]


# ------------------------------------------------------------------ the figure


def figure(report: Report) -> Figure:
    """Each device that has a latency, in the order of the table."""
    shown = [row for row in rows(report) if known(row["numbers"]["latency"])]
    if not shown:
        return Figure("elsewhere", "Latency on other devices", "")
    points = [_point(i, row) for i, row in enumerate(shown, 1)]
    return Figure("elsewhere", "Latency on other devices", _CAPTION, (Panel("", _spec(points)),))


def _point(number: int, row: Row) -> dict[str, Any]:
    n, passed = row["numbers"]["latency"], row["self_test"] == "pass"
    marks = {"fill": "var(--c1)", "opacity": 0.9} if passed else {"fill": "var(--c0)", "opacity": 0.0}
    says = f"{row['device']['name']}: {text(n, spread=True)}, {plural(len(row['sessions']), 'session')}"
    return {
        "label": f"{number}. {row['device']['name']}",
        "ms": n["value"],
        **{end: n[end] for end in ("low", "high")},
        "each": [s["median_ms"] for s in row["sessions"]],
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
    dots = [_dots([p for p in points if bool(p["opacity"]) == passed], passed, x=x, y=y) for passed in (True, False)]
    return unit(46 + 24 * len(points), [layer(alone, pale, x=x, y=y, **paint()), spans, *dots])


def _dots(points: Values, passed: bool, **at: Any) -> Spec:
    """Hollow and dashed where the self-test failed."""
    dashes = {} if passed else {"strokeDash": [3, 2]}
    return told(points, {"type": "point", "size": 80, "strokeWidth": 1.5, **dashes}, "device", **at, **paint())
