"""What the profiler `cold` found: from nothing to the first answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from edgecompress.core.json import Json
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    axis,
    colour,
    labels,
    paint,
    quantity,
)
from edgecompress.reporting.formatting import DASH, plain, text
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Number, Table
from edgecompress.reporting.profilers import (
    NULLABLE,
    TEXT,
    answers,
)
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, unit

TITLE = "From a cold start"
PROFILER = "cold"
ORDER = 40
STARTS = ("import_ms", "load_ms", "first_ms", "second_ms")
_COLD = "Import, load, first inference, left to right and pale to dark: medians of the starts."
EACH = {key: {"median": NULLABLE, "min": NULLABLE, "max": NULLABLE} for key in STARTS}
SHAPE: Mapping[str, Json] = {
    "summary": {"warm": EACH, "dropped": {"?": EACH}},
    "starts": [{"cache": TEXT}],
    "dropped": TEXT,
    "dropped_reason": TEXT,
}


def tables(report: Report) -> list[TextTable]:
    """From nothing to the first answer, the median of the starts and their ends."""
    head = ("variant", "the files were", "import", "load", "first inference", "second inference")
    rows: list[tuple[str, ...]] = []
    for name, answer in answers(report, "cold").items():
        summary, why = answer["summary"], answer["dropped_reason"]
        rows.append((name, "in memory already", *_medians(summary["warm"])))
        if summary["dropped"]:
            rows.append((name, f"dropped from memory ({answer['dropped']})", *_medians(summary["dropped"])))
        elif why:
            rows.append((name, f"on disk only: {why}", *[DASH] * len(STARTS)))
    return [TextTable("From a cold start", head, tuple(rows))]


def _medians(summary: Table) -> Iterator[str]:
    for times in (summary[key] for key in STARTS):
        middle, low, high = (times[key] for key in ("median", "min", "max"))
        yield DASH if middle is None else text(Number("", middle, "ms", low=low, high=high), spread=True)


def figures(report: Report) -> list[Figure]:
    """Import, load and first inference end to end, of each variant and of each way its files were."""
    bars = [bar for v, a in answers(report, "cold").items() for bar in _bars(v, a, colour(report, v))]
    spec = [Panel("", _spec(bars))] if bars else []
    return [Figure("cold", "From a cold start: what the first answer waits for", _COLD if spec else "", tuple(spec))]


def _bars(name: str, answer: Table, fill: str) -> Values:
    bars: Values = []
    for cache, word in (("warm", ""), ("dropped", ", from disk")):
        begin = 0.0
        for key, opacity in (("import_ms", 0.15), ("load_ms", 0.45), ("first_ms", 0.85)):
            ms = (answer["summary"][cache] or {}).get(key, {}).get("median")
            if ms is None:
                continue
            says = f"{name}{word}, {key.removesuffix('_ms')}: {plain(ms, 'ms')}"
            ends = {"label": f"{name}{word}", "a": begin, "b": begin + ms}
            bars.append({**ends, "fill": fill, "opacity": opacity, "says": says})
            begin += ms
    return bars


def _spec(bars: Values) -> Spec:
    y, x = labels(), quantity("a", axis("ms", grid=True), zero=True)
    spans = described(
        bars, {"type": "bar", "height": 18, "strokeWidth": 0.8}, "start", x=x, x2={"field": "b"}, y=y, **paint()
    )
    return unit(46 + 28 * len({b["label"] for b in bars}), [spans])
