"""What every figure is made of: panels, the colour and dash of a variant, axes that layers share."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edgecompress.core.json import Json
from edgecompress.reporting.model import Report
from edgecompress.reporting.vega import Spec

Values = list[dict[str, Any]]
COLOURS = 6  # --c1 .. --c6 in the page's style
DASHES = (  # so many that few variants share one: nobody has to tell them by colours
    *([1, 0], [6, 2], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3]),
    *([10, 3], [6, 2, 1, 2], [3, 1], [8, 2, 4, 2], [1, 1], [5, 2, 1, 2, 1, 2]),
)


@dataclass(frozen=True)
class Panel:
    """One picture. `variant` is the one it shows, if it shows one."""

    heading: str
    spec: Spec
    variant: str = ""


@dataclass(frozen=True)
class Figure:
    """Panels with a caption that says what is seen; without panels, `caption` says why there are none."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...] = ()
    key: tuple[tuple[str, str], ...] = ()  # of the legend: variant, words


def colour(report: Report, name: str) -> str:
    """One for each runtime, in the target's order."""
    runtimes = list(dict.fromkeys(v.runtime for v in report.variants))
    runtime = next((v.runtime for v in report.variants if v.name == name), "")
    return f"var(--c{1 + (runtimes.index(runtime) if runtime in runtimes else 0) % COLOURS})"


def dash(report: Report, name: str) -> list[int]:
    """One for each variant, in the target's order, the references first."""
    names = [v.name for v in sorted(report.variants, key=lambda v: not v.reference)]
    return DASHES[(names.index(name) if name in names else 0) % len(DASHES)]


def axis(title: str, **rest: Any) -> dict[str, Json]:
    """An axis with few ticks and no grid."""
    return {"title": title, "grid": False, "tickCount": 5, **rest}


def quantity(field: str, drawn: Mapping[str, Json], **scale: Any) -> dict[str, Json]:
    """A field on a quantitative axis that begins where the data does."""
    return {"field": field, "type": "quantitative", "axis": drawn, "scale": {"zero": False, "nice": False, **scale}}


def also(channel: Mapping[str, Json], field: str) -> dict[str, Json]:
    """The same axis for another field: layers share their axes, and one that named none would take the others' away."""
    return {**channel, "field": field}


def paint() -> dict[str, Any]:
    """Fill, and an outline of the same colour so that a hollow mark is seen."""
    plain = {"type": "nominal", "scale": None, "legend": None}
    return {
        "fill": {"field": "fill", **plain},
        "stroke": {"field": "fill", **plain},
        "fillOpacity": {"field": "opacity", "type": "quantitative", "scale": None, "legend": None},
    }


def ticks(low: float, high: float, scale: str) -> list[float]:
    """1, 2, 5 steps between two ends."""
    if scale == "log":
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = [m * 10.0**d for d in decades for m in (1, 2, 5) if low <= m * 10.0**d <= high]
        return steps if len(steps) > 2 else ticks(low, high, "linear")
    raw = (high - low) / 4
    step = next(
        m * 10 ** math.floor(math.log10(raw)) for m in (1, 2, 5, 10) if m * 10 ** math.floor(math.log10(raw)) >= raw
    )
    return [round(i * step, 12) for i in range(math.ceil(low / step), math.floor(high / step) + 1)]


def labels(field: str = "label") -> dict[str, Any]:
    """Names down the left side, in the order given."""
    return {"field": field, "type": "nominal", "sort": None, "axis": {"title": None, "labelLimit": 150, "ticks": False}}
