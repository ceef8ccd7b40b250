"""The ladder of the accuracy guard: what each rung gained on the split that chooses, and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgecompress.stages import metrics
from edgecompress.stages.report.marks import Figure, Panel, Report, axis, colour, labels, paint, quantity
from edgecompress.stages.report.numbers import DASH, plain, significant
from edgecompress.stages.report.tables import Table
from edgecompress.stages.report.vega import Spec, layer, told, unit

Ladder = dict[str, Any]
KEYS = ("variant", "runtime", "split", "reason")
RUNG_KEYS = ("rung", "label", "inside", "chosen", "sqnr_db", "reason")
_CAPTION = (
    "What each rung loses on the split that chooses, in the order in which they were climbed. The line is the budget; "
    "of right answers it is the chance to keep it that decides. Full: chosen. The split that judges chose nothing."
)


def of_options(options: Mapping[str, Any], variants: Sequence[Mapping[str, Any]]) -> list[Ladder]:
    """Each ladder of a run, with what its end and the plain artifact lose on the split that judges."""
    verdicts = {v["name"]: (v["verify"] or {}).get("metric") for v in variants}
    return [_ladder(facts, verdicts) for facts in (options.get("guards") or {}).values()]


def _ladder(facts: Mapping[str, Any], verdicts: Mapping[str, Any]) -> Ladder:
    first, judged = metrics.lost(facts["plain_test"]), metrics.lost(verdicts.get(facts["variant"]))
    costs = facts["costs"]
    return {
        **{key: str(facts[key]) for key in KEYS},
        "budget": dict(facts["budget"]),
        "limit": _limit(facts["budget"], verdicts.get(facts["variant"])),
        "plain_loss": first,
        "loss": judged,
        "recovered": 1 - judged / first if first and first > 0 and judged is not None else None,
        "rungs": [_rung(row, costs.get(row["label"])) for row in facts["ladder"]],
        "layers": [dict(cell) for cell in facts["cells"]],
    }


def _rung(row: Mapping[str, Any], ratio: float | None) -> dict[str, Any]:
    metric = row["facts"].get("metric")
    return {
        **{key: row[key] for key in RUNG_KEYS},
        "loss": metrics.lost(metric, gross=True),
        "metric": metric,
        "size_bytes": row["facts"].get("size_bytes"),
        "ratio": ratio,
        "before": list(row["recipe"]["before"]),
        "options": dict(row["recipe"]["options"]),
    }


def _limit(budget: Mapping[str, Any], metric: Mapping[str, Any] | None) -> float | None:
    """The budget as a loss."""
    m = metric or {}
    if m.get("net_lost") is not None and "items_lost" in budget:
        return float(budget["items_lost"] / m["n"])
    if m.get("ratio") is not None and "metric_ratio" in budget:
        return float(budget["metric_ratio"] - 1)
    return budget.get("metric_drop")


# ------------------------------------------------------------------ tables


def table(report: Report) -> Table:
    """Where each ladder ended, and how much of the plain artifact's loss that mends."""
    head = ("variant", "ends at", "plain loses on test", "it loses", "budget", "recovered", "how it ended")
    return Table("What the guard mended", head, tuple(map(_row, report["ladders"])))


def _row(found: Ladder) -> tuple[str, ...]:
    chosen = next((r["label"] for r in found["rungs"] if r["chosen"]), DASH)
    recovered = DASH if found["recovered"] is None else f"{100 * found['recovered']:.0f} %"
    losses = (percent(found[key]) for key in ("plain_loss", "loss", "limit"))
    return found["variant"], chosen, *losses, recovered, found["reason"]


def rungs(report: Report) -> Table:
    """Each rung: what it loses on the split that chooses, how near it is, what it costs."""
    head = ("variant", "rung", "loses on select", "SQNR", "latency, plain = 1", "size", "note")
    rows = ((f, r) for f in report["ladders"] for r in f["rungs"])
    return Table("The rungs of the ladder", head, tuple(_rung_row(f, r) for f, r in rows))


def _rung_row(found: Ladder, rung: Mapping[str, Any]) -> tuple[str, ...]:
    near = decibels(rung["sqnr_db"])
    ratio = DASH if rung["ratio"] is None else significant(rung["ratio"], 3)
    size = plain(rung["size_bytes"], "bytes")
    words = ("chosen" if rung["chosen"] else "", "inside" if rung["inside"] else "", rung["reason"])
    note = ", ".join(filter(None, words))
    return found["variant"], rung["label"], percent(rung["loss"]), near, ratio, size, note


def layers(report: Report) -> Table:
    """The layers tried alone in higher precision: what each mends, and costs."""
    head = ("variant", "layer in higher precision", "SQNR then", "costs", "note")
    rows = ((f["variant"], cell) for f in report["ladders"] for cell in f["layers"])
    return Table("Layers kept in higher precision, one alone", head, tuple(_layer_row(v, c) for v, c in rows))


def _layer_row(variant: str, cell: Mapping[str, Any]) -> tuple[str, ...]:
    near = decibels(cell["sqnr_db"])
    cost = DASH if cell["cost"] is None else f"{100 * cell['cost']:+.1f} % of the latency".replace("-", "−")
    note = cell["reason"] or ("" if cell["gain"] > 0 else "mends nothing")
    return variant, cell["name"], near, cost, note


def decibels(value: float | None) -> str:
    """`35.6 dB`."""
    return DASH if value is None else f"{value:.1f} dB".replace("-", "−")


def percent(share: float | None) -> str:
    """`1.2 %`."""
    return DASH if share is None else f"{100 * share:.2g} %".replace("-", "−")


# ------------------------------------------------------------------ figure


def figure(report: Report) -> Figure:
    """What each rung of each ladder loses, beside the budget."""
    panels = tuple(_panels(report))
    return Figure("ladders", "The guard, rung by rung", _CAPTION if panels else "", panels)


def _panels(report: Report) -> Iterator[Panel]:
    for found in report["ladders"]:
        if any(r["loss"] is not None for r in found["rungs"]):
            yield Panel(_heading(found), _spec(found, colour(report, found["variant"])), found["variant"])


def _heading(found: Ladder) -> str:
    return f"plain loses {percent(found['plain_loss'])} on test, its end {percent(found['loss'])}"


def _spec(found: Ladder, fill: str) -> Spec:
    values = [_bar(r, fill) for r in found["rungs"] if r["loss"] is not None]
    x, y = quantity("loss", axis(f"% lost on {found['split']}", grid=True), zero=True), labels()
    bars = told(values, {"type": "bar", "height": 12}, "rung", x=x, y=y, **paint())
    limit = [] if found["limit"] is None else [{"loss": 100 * found["limit"]}]
    rule = layer(limit, {"type": "rule", "color": "var(--ink)", "strokeDash": [3, 2]}, x=x)
    return unit(44 + 20 * len(values), [bars, rule])


def _bar(rung: Mapping[str, Any], fill: str) -> dict[str, Any]:
    says = f"{rung['label']}: loses {percent(rung['loss'])}{', chosen' if rung['chosen'] else ''}"
    paints = {"fill": fill, "opacity": 0.9 if rung["chosen"] else 0.3}
    return {"label": rung["label"], "loss": 100 * rung["loss"], **paints, "says": says}
