"""The roofline: what each operator reached of what the device can do at most, and which of them wait for memory."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import EdgeError
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.reporting.figure_style import Figure, Panel, also, axis, colour, paint, quantity, ticks
from edgecompress.reporting.formatting import DASH, plain, plural, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Table
from edgecompress.reporting.model_variant import Roofline, RoofOperator
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

if TYPE_CHECKING:
    from edgecompress.formats.op_counts import OpWork

DESCRIBED = 30  # dots with words of their own: the slowest
LISTED = 12  # operators of a variant in a table; report.json has all
NAMED = 4
OPACITY = {"memory": 0.15, "unknown": 0.5, "compute": 0.9}
_TITLE = "Roofline: which operators wait for memory"
_CAPTION = (
    "One dot per operator that multiplies, its area its time; both axes logarithmic. Left of the corner an operator is "
    "memory-bound (pale): fewer bytes would make it faster, more arithmetic units would not. The roofs were measured "
    "on the device, the flat one in float32: what is narrower may lie above it, and what stays in a cache above the "
    "slope. What binds an operator above a roof, or a narrower one right of the corner, is not known (half pale)."
)


def joined(artifact: Artifact | None, answer: Mapping[str, Any] | None) -> Roofline | None:
    """The operators' times beside what they compute and move; None where no roof was measured."""
    if answer is None:
        return None
    gflops, gb_per_s = answer["compute"]["gflops"], answer["bandwidth"]["gb_per_s"]
    doubt = answer["bandwidth"]["reason"] or answer["compute"]["reason"]
    if not (gflops and gb_per_s):
        return Roofline(gflops, gb_per_s, doubt, [], [], doubt or "a roof was not measured")
    costs, why = _costs(artifact, int(answer.get("batch") or 1))
    costed = [(op, costs.get(op["name"])) for op in answer["ops"]]
    ops = [
        _op(op, cost, (gflops, gb_per_s)) for op, cost in costed if cost and cost["macs"] is not None and op["ms"] > 0
    ]
    unmatched = [op["name"] for op, cost in costed if not cost or cost["macs"] is None] if costs else []
    return Roofline(gflops, gb_per_s, doubt, ops, unmatched, answer["why"] or why)


def _costs(artifact: Artifact | None, batch: int) -> tuple[dict[str, OpWork], str]:
    """name -> what the operator costs, those of one name together; or why nobody can tell."""
    from edgecompress.formats import op_counts

    if artifact is None:
        return {}, "the artifact is not here"
    costs: dict[str, OpWork] = {}
    try:
        for cost in op_counts.of(artifact, batch):
            if same := costs.get(cost["name"]):
                macs = None if same["macs"] is None or cost["macs"] is None else same["macs"] + cost["macs"]
                cost = {**same, "macs": macs, "bytes": same["bytes"] + cost["bytes"]}
            costs[cost["name"]] = cost
    except (EdgeError, ImportError) as error:
        return {}, f"what its operators compute is not known: {error}"
    return costs, ""


def _op(op: Table, cost: OpWork, roofs: tuple[float, float]) -> RoofOperator:
    """An operator under the roofs. Right of the corner only float32 has one; a roof below it is none of its."""
    macs, moved = cost["macs"] or 0, cost["bytes"]
    gflops, gb_per_s = 2 * macs / (op["ms"] * 1e6), moved / (op["ms"] * 1e6)
    under = RoofOperator(op["name"], op["type"], op["ms"], macs, moved, cost["dtype"], gflops, gb_per_s)
    under.flops_per_byte = 2 * macs / moved if moved else None
    if under.flops_per_byte is not None and under.flops_per_byte < roofs[0] / roofs[1]:
        if gb_per_s <= roofs[1]:
            under.bound, under.of_roof = "memory", gb_per_s / roofs[1]
    elif cost["dtype"] in ("float32", "") and gflops <= roofs[0]:
        under.bound, under.of_roof = "compute", gflops / roofs[0]
    return under


# ------------------------------------------------------------------ tables


def _shown(report: Report) -> list[tuple[str, Roofline]]:
    return [(v.name, v.roofline) for v in report.variants if v.roofline]


def _roofs(roofline: Roofline) -> tuple[float, float]:
    """GFLOP/s and GB/s, of one whose operators are placed."""
    assert roofline.gflops and roofline.gb_per_s, roofline.doubt
    return roofline.gflops, roofline.gb_per_s


def table(report: Report) -> TextTable:
    """The roofs, and which operators of each variant wait for memory."""
    head = (
        "variant",
        "compute",
        "memory",
        "corner",
        "memory-bound",
        "of its time",
        "the slowest of them",
        "not placed",
    )
    return TextTable("Roofline", head, tuple(_row(*each) for each in _shown(report)))


def _row(name: str, roofline: Roofline) -> tuple[str, ...]:
    roofs = (plain(roofline.gflops, "GFLOP/s"), plain(roofline.gb_per_s, "GB/s"))
    if not roofline.ops:
        return name, *roofs, *[DASH] * 4, roofline.why or _unplaced(roofline)
    peak, rate = _roofs(roofline)
    corner = f"{significant(peak / rate, 3)} FLOP/byte"
    waits = bound(roofline)
    share = sum(op.ms for op in waits) / sum(op.ms for op in roofline.ops)
    names = ", ".join(op.name for op in waits[:NAMED]) or "none"
    count = f"{len(waits)} of {plural(len(roofline.ops), 'operator')}"
    return name, *roofs, corner, count, plain(share, "fraction"), names, _unplaced(roofline)


def bound(roofline: Roofline) -> list[RoofOperator]:
    """The operators that wait for memory, the slowest first."""
    return sorted((op for op in roofline.ops if op.bound == "memory"), key=lambda op: -float(op.ms))


def _unplaced(roofline: Roofline) -> str:
    names = roofline.unmatched
    return f"{len(names)}: {', '.join(names[:NAMED])}{', …' if len(names) > NAMED else ''}" if names else "none"


def operators(report: Report) -> TextTable:
    """The slowest operators of each variant under the roofs."""
    head = (
        "variant",
        "operator",
        "type",
        "time",
        "MACs",
        "bytes",
        "FLOP per byte",
        "GFLOP/s",
        "of its roof",
        "bound by",
    )
    rows = []
    for name, op in ((name, op) for name, roofline in _shown(report) for op in _slowest(roofline.ops)[:LISTED]):
        counts = (f"{op.macs:,}", plain(op.bytes, "bytes"))
        intensity = DASH if op.flops_per_byte is None else significant(op.flops_per_byte, 3)
        rates = (intensity, significant(op.gflops, 3), plain(op.of_roof, "fraction"))
        rows.append((name, op.name, op.type, plain(op.ms, "ms"), *counts, *rates, op.bound))
    return TextTable(f"The {LISTED} slowest under the roof", head, tuple(rows))


def _slowest(ops: Sequence[RoofOperator]) -> list[RoofOperator]:
    return sorted(ops, key=lambda op: -float(op.ms))


# ------------------------------------------------------------------ figure


def figure(report: Report) -> Figure:
    """A panel per variant: the two roofs, and a dot per operator below them."""
    shown = [(name, roofline) for name, roofline in _shown(report) if any(op.macs for op in roofline.ops)]
    if not shown:
        return Figure("roofline", _TITLE, "")
    panels = []
    for name, roofline in shown:
        dots = plural(sum(bool(op.macs) for op in roofline.ops), "operator")
        heading = f"{dots} under {plain(roofline.gflops, 'GFLOP/s')}, {plain(roofline.gb_per_s, 'GB/s')}"
        panels.append(Panel(heading, _spec(roofline, colour(report, name)), name))
    doubts = sorted({roofline.doubt for _, roofline in shown} - {""})
    return Figure("roofline", _TITLE, " ".join([_CAPTION, *(f"In doubt: {why}." for why in doubts)]), tuple(panels))


def _spec(roofline: Roofline, fill: str) -> Spec:
    peak, rate = _roofs(roofline)
    dots = _slowest([op for op in roofline.ops if op.macs])
    ridge = peak / rate
    across = [op.flops_per_byte or ridge for op in dots] + [ridge]
    high = [op.gflops for op in dots] + [peak]
    wide, tall = (min(across) / 2, max(across) * 2), (min(high) / 2, max(high) * 2)
    x = quantity("a", axis("FLOP per byte", values=_decades(*wide), format="~g"), type="log", domain=list(wide))
    y = quantity("w", axis("GFLOP/s", values=_decades(*tall), grid=True, format="~g"), type="log", domain=list(tall))
    roof = [{"a": a, "w": min(peak, a * rate)} for a in (wide[0], ridge, wide[1])]
    line = layer(roof, {"type": "line", "color": "var(--ink)", "strokeWidth": 1.5, "clip": True}, x=x, y=y)
    size = {"field": "ms", "type": "quantitative", "legend": None, "scale": {"zero": True, "range": [12, 260]}}
    marked = {"x": x, "y": also(y, "w"), "size": size, **paint()}
    values = [_dot(op, fill) for op in dots]
    quiet = layer(values[DESCRIBED:], {"type": "point", "strokeWidth": 1.2}, **marked)
    loud = described(values[:DESCRIBED], {"type": "point", "strokeWidth": 1.2}, "roofline operator", **marked)
    return unit(200, [line, *([quiet] if values[DESCRIBED:] else []), loud])


def _decades(low: float, high: float) -> list[float]:
    """Few ticks: powers of ten, or 1, 2, 5 where the axis is short."""
    tens = [10.0**d for d in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    return tens if len(tens) > 2 else ticks(low, high, "log")


def _dot(op: RoofOperator, fill: str) -> dict[str, Json]:
    says = f"{op.name}: {significant(op.gflops, 3)} GFLOP/s at {significant(op.flops_per_byte or 0.0, 3)} FLOP/byte, "
    roof = "no roof is known" if op.of_roof is None else f"{plain(op.of_roof, 'fraction')} of its roof"
    says += f"{roof} ({op.bound})"
    at = {"a": op.flops_per_byte, "w": op.gflops, "ms": op.ms}
    return {**at, "fill": fill, "opacity": OPACITY[op.bound], "says": says}
