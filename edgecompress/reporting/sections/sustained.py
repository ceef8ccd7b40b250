"""What the profiler `sustained` found: the rate over minutes, window by window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    axis,
    colour,
    paint,
    quantity,
)
from edgecompress.reporting.formatting import DASH, plain, plural, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.profilers import (
    MAYBE,
    NULLABLE,
    NUMBER,
    TEXT,
    answers,
)
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "Over minutes"
PROFILER = "sustained"
ORDER = 10
THROTTLED = {True: "throttled", False: "held", None: "not told"}
BUCKETS = 180  # of responses in a picture
BESIDE = (("cpu_mhz", "MHz", "clock"), ("temperature_c", "°C", "temperature"), ("power_w", "W", "power"))
_SUSTAINED = (
    "Items per second, window by window. Shaded left: the first windows (burst); shaded right: the last quarter "
    "(sustained); the lines are their rates. A curve that falls throttles: then no one rate stands for the whole."
)
RATE = {"windows": NUMBER, "items_per_s": NUMBER, "median_ms": NUMBER}
SHAPE: Mapping[str, Json] = {
    "series": [
        {
            "t_s": NUMBER,
            "seconds": NUMBER,
            "runs": NUMBER,
            "median_ms": NUMBER,
            "p95_ms": NULLABLE,
            "items_per_s": NUMBER,
        }
        | {"cpu_mhz": NULLABLE, "temperature_c": NULLABLE, "power_w": NULLABLE}
    ],
    "burst": {"?": RATE},
    "sustained": {"?": RATE},
    "ratio": NULLABLE,
    "throttling": {"flagged": MAYBE, "reason": TEXT, "evidence": [TEXT]},
    "power": {"status": TEXT},
}


def tables(report: Report) -> list[TextTable]:
    """The rates, and each window."""
    return [rates(report), windows(report)]


def figures(report: Report) -> list[Figure]:
    """Them, drawn."""
    return [figure(report)]


def rates(report: Report) -> TextTable:
    """The rate at first, and the rate at last: never one average of the two."""
    head = ("variant", "at first", "at last", "last / first", "throttling", "because")
    rows = []
    for name, answer in answers(report, "sustained").items():
        ends = (plain(answer[end]["items_per_s"], "/s") if answer[end] else DASH for end in ("burst", "sustained"))
        ratio = significant(answer["ratio"], 3) if answer["ratio"] else DASH
        throttling = answer["throttling"]
        why = "; ".join(filter(None, (throttling["reason"], *throttling["evidence"])))
        rows.append((name, *ends, ratio, THROTTLED[throttling["flagged"]], why))
    return TextTable("Sustained", head, tuple(rows))


def windows(report: Report) -> TextTable:
    """Each window of a long run."""
    head = ("variant", "from", "runs", "items per second", "median", "p95", "clock", "temperature", "power")
    rows = []
    for name, answer in answers(report, "sustained").items():
        status = f", {answer['power']['status']}" if answer["power"]["status"] != "measured" else ""
        for row in answer["series"]:
            began = (f"{row['t_s']:.0f} s", f"{row['runs']:,}", plain(row["items_per_s"], "/s"))
            times = (plain(row[key], "ms") for key in ("median_ms", "p95_ms"))
            now = (plain(row["cpu_mhz"], "MHz"), plain(row["temperature_c"], "°C"))
            watts = f"{plain(row['power_w'], 'W')}{status if row['power_w'] is not None else ''}"
            rows.append((name, *began, *times, *now, watts))
    return TextTable("Sustained, window by window", head, tuple(rows))


def figure(report: Report) -> Figure:
    """The rate of each variant over minutes, and below it what the device told of itself meanwhile."""
    answered = [(v, a) for v, a in answers(report, "sustained").items() if a["series"]]
    panels = [panel for v, a in answered for panel in _panels(v, a, colour(report, v))]
    return Figure("sustained", "Over minutes: does the rate hold", _SUSTAINED if panels else "", tuple(panels))


def _panels(name: str, answer: Table, stroke: str) -> Iterator[Panel]:
    flagged = answer["throttling"]["flagged"]
    ratio = f", {significant(answer['ratio'], 3)} of it at last" if answer["ratio"] else ""
    first = plain((answer["burst"] or answer["series"][0])["items_per_s"], "/s")
    yield Panel(f"{'throttled: ' if flagged else ''}{first}{ratio}", _rate(name, answer, stroke), name)
    for key, shown, word in BESIDE:
        rows = [row for row in answer["series"] if row[key] is not None]
        if key == "power_w" and answer["power"]["status"] != "measured":
            word = f"power, {answer['power']['status']}"
        if len(rows) > 1:
            yield Panel(f"{word}, {shown}", _beside(name, rows, (key, shown, word), stroke), name)


def _rate(name: str, answer: Table, stroke: str) -> Spec:
    series = answer["series"]
    end = series[-1]["t_s"] + series[-1]["seconds"]
    says = f"{name}: {plural(len(series), 'window')}, from {plain(series[0]['items_per_s'], '/s')}"
    says += f" to {plain(series[-1]['items_per_s'], '/s')}"
    values = [{"a": r["t_s"] + r["seconds"] / 2, "w": r["items_per_s"], "says": says} for r in series]
    top = 1.1 * max(v["w"] for v in values) or 1.0
    x, y = _time(end), quantity("w", axis("items/s", grid=True, tickCount=3), domain=[0, top])
    line = described(values, {"type": "line", "stroke": stroke, "strokeWidth": 2}, "sustained curve", x=x, y=y)
    parts = _parts(answer, end)
    shades = described(parts, {"type": "rect", "strokeWidth": 0}, "stretch", x=x, x2={"field": "b"}, **paint())
    rates = layer(parts, {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.2}, x=x, x2={"field": "b"}, y=y)
    return unit(120, [shades, line, rates] if parts else [line])


def _time(end: float) -> dict[str, Json]:
    return quantity("a", axis("s"), domain=[0, end])


def _parts(answer: Table, end: float) -> Values:
    """Burst and sustained as stretches of time, each with its rate."""
    series, throttled, parts = answer["series"], answer["throttling"]["flagged"], []
    for key, fill in (("burst", "var(--c0)"), ("sustained", "var(--worse)" if throttled else "var(--c0)")):
        if not answer[key]:
            continue
        n = max(1, min(int(answer[key]["windows"]), len(series)))
        rows = series[:n] if key == "burst" else series[-n:]
        ends = {"a": rows[0]["t_s"], "b": min(rows[-1]["t_s"] + rows[-1]["seconds"], end)}
        rate = answer[key]["items_per_s"]
        parts.append({**ends, "w": rate, "fill": fill, "opacity": 0.16, "says": f"{key}: {plain(rate, '/s')}"})
    return parts


def _beside(name: str, rows: Sequence[Table], what: tuple[str, str, str], stroke: str) -> Spec:
    key, shown, word = what
    end = rows[-1]["t_s"] + rows[-1]["seconds"]
    ends = [plain(rows[i][key], shown) for i in (0, -1)]
    says = f"{name}, {word}: from {ends[0]} to {ends[1]}"
    values = [{"a": r["t_s"] + r["seconds"] / 2, "w": r[key], "says": says} for r in rows]
    y = quantity("w", axis(shown, grid=True, tickCount=2), nice=True)
    return unit(
        84, [described(values, {"type": "line", "stroke": stroke, "strokeWidth": 1.5}, word, x=_time(end), y=y)]
    )
