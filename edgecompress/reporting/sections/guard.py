"""The ladder of the accuracy guard: what each rung gained on the split that chooses, and what it cost."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from edgecompress.core.model import Request
from edgecompress.data import metric_limits, metrics
from edgecompress.data.metrics import MetricComparison
from edgecompress.reporting.figure_style import Figure, Panel, axis, colour, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, plain, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Part, Table
from edgecompress.reporting.model_variant import Metric
from edgecompress.reporting.request import GuardFacts, ReportRequest
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

TITLE = "What the guard repaired"
KEY = "ladders"
ORDER = 50
OPENED = 2
_CAPTION = (
    "What each rung loses on the split that chooses, in the order in which they were climbed. The line is the budget; "
    "of right answers it is the chance to keep it that decides. Full: chosen. The split that judges chose nothing."
)


class Rung(Part):
    """A repair step of the accuracy guard, with what it loses on the split that chooses."""

    rung: str
    label: str
    inside: bool
    chosen: bool
    sqnr_db: float | None
    reason: str
    loss: float | None = None
    metric: Metric | None = None
    size_bytes: float | None = None
    ratio: float | None = None
    before: list[str] = msgspec.field(default_factory=list)
    options: Table = msgspec.field(default_factory=dict)


class TriedLayer(Part):
    """A layer that was tried alone in higher precision."""

    name: str
    sqnr_db: float | None
    cost: float | None
    gain: float | None
    reason: str


class Ladder(Part):
    """The repair steps of a variant."""

    variant: str
    runtime: str
    split: str
    reason: str
    budget: dict[str, float]
    limit: float | None
    plain_loss: float | None
    loss: float | None
    recovered: float | None
    rungs: list[Rung]
    layers: list[TriedLayer]


Data = list[Ladder]


def found(request: Request, job: ReportRequest, report: Report) -> list[Ladder]:
    """Each ladder of a run, with what its end and the plain artifact lose on the split that verifies."""
    told = [v for v in report.variants if v.verify and v.verify.metric]
    verdicts = {v.name: msgspec.to_builtins(v.verify.metric) for v in told if v.verify}
    return [_ladder(facts, verdicts.get(facts["variant"])) for facts in job.guards.values()]


def tables(report: Report) -> list[TextTable]:
    """The ladders, their rungs, the layers that were tried."""
    return [table(report), rungs(report), layers(report)]


def figures(report: Report) -> list[Figure]:
    """The rungs."""
    return [figure(report)]


def _ladders(report: Report) -> list[Ladder]:
    return report.rest.get(KEY) or []


def _ladder(facts: GuardFacts, metric: MetricComparison | None) -> Ladder:
    first, last = metrics.lost(facts["plain_test"]), metrics.lost(metric)
    rungs = []
    for row in facts["ladder"]:
        own, size = row["facts"].get("metric"), row["facts"].get("size_bytes")
        known = {"loss": metrics.lost(own, gross=True), "metric": own, "size_bytes": size}
        ratio = facts["costs"].get(row["label"])
        rungs.append(msgspec.convert({**row, **known, **row["recipe"], "ratio": ratio}, Rung))
    return Ladder(
        variant=facts["variant"],
        runtime=facts["runtime"],
        split=facts["split"],
        reason=facts["reason"],
        budget=dict(facts["budget"]),
        limit=_limit(facts["budget"], metric),
        plain_loss=first,
        loss=last,
        recovered=1 - last / first if first and first > 0 and last is not None else None,
        rungs=rungs,
        layers=msgspec.convert(facts["cells"], list[TriedLayer]),
    )


def _limit(budget: Mapping[str, float], metric: MetricComparison | None) -> float | None:
    """The budget as a loss."""
    if metric and metric.get("net_lost") is not None and "items_lost" in budget:
        return metric_limits.items(budget["items_lost"], metric["n"]) / metric["n"]
    if metric and metric.get("ratio") is not None and "metric_ratio" in budget:
        return float(budget["metric_ratio"] - 1)
    return budget.get("metric_drop")


# ------------------------------------------------------------------ tables


def table(report: Report) -> TextTable:
    """Where each ladder ended, and how much of the plain artifact's loss that mends."""
    head = ("variant", "ends at", "plain loses on test", "it loses", "budget", "recovered", "how it ended")
    rows = []
    for ladder in _ladders(report):
        chosen = next((r.label for r in ladder.rungs if r.chosen), DASH)
        recovered = DASH if ladder.recovered is None else f"{100 * ladder.recovered:.0f} %"
        losses = (percent(ladder.plain_loss), percent(ladder.loss), percent(ladder.limit))
        rows.append((ladder.variant, chosen, *losses, recovered, ladder.reason))
    return TextTable("What the guard repaired", head, tuple(rows))


def rungs(report: Report) -> TextTable:
    """Each rung: what it loses on the split that chooses, how near it is, what it costs."""
    head = ("variant", "rung", "loses on select", "SQNR", "latency, plain = 1", "size", "note")
    rows = []
    for variant, r in ((ladder.variant, r) for ladder in _ladders(report) for r in ladder.rungs):
        ratio = DASH if r.ratio is None else significant(r.ratio, 3)
        costs = (ratio, plain(r.size_bytes, "bytes"))
        words = ("chosen" if r.chosen else "", "inside" if r.inside else "", r.reason)
        rows.append((variant, r.label, percent(r.loss), decibels(r.sqnr_db), *costs, ", ".join(filter(None, words))))
    return TextTable("Repair steps", head, tuple(rows))


def layers(report: Report) -> TextTable:
    """The layers tried alone in higher precision: what each mends, and costs."""
    head = ("variant", "layer in higher precision", "SQNR then", "costs", "note")
    rows = []
    for variant, cell in ((ladder.variant, cell) for ladder in _ladders(report) for cell in ladder.layers):
        cost = DASH if cell.cost is None else f"{100 * cell.cost:+.1f} % of the latency".replace("-", "−")
        note = cell.reason or ("" if (cell.gain or 0) > 0 else "mends nothing")
        rows.append((variant, cell.name, decibels(cell.sqnr_db), cost, note))
    return TextTable("Layers kept in higher precision, one alone", head, tuple(rows))


def decibels(value: float | None) -> str:
    """`35.6 dB`."""
    return DASH if value is None else f"{value:.1f} dB".replace("-", "−")


def percent(share: float | None) -> str:
    """`1.2 %`."""
    return DASH if share is None else f"{100 * share:.2g} %".replace("-", "−")


# ------------------------------------------------------------------ figure


def figure(report: Report) -> Figure:
    """What each rung of each ladder loses, beside the budget."""
    panels = []
    for ladder in _ladders(report):
        if any(r.loss is not None for r in ladder.rungs):
            heading = f"plain loses {percent(ladder.plain_loss)} on test, its end {percent(ladder.loss)}"
            panels.append(Panel(heading, _spec(ladder, colour(report, ladder.variant)), ladder.variant))
    return Figure("ladders", "The guard, rung by rung", _CAPTION if panels else "", tuple(panels))


def _spec(ladder: Ladder, fill: str) -> Spec:
    values = [
        {"label": r.label, "loss": 100 * r.loss, "fill": fill, "opacity": 0.9 if r.chosen else 0.3}
        | {"says": f"{r.label}: loses {percent(r.loss)}{', chosen' if r.chosen else ''}"}
        for r in ladder.rungs
        if r.loss is not None
    ]
    x, y = quantity("loss", axis(f"% lost on {ladder.split}", grid=True), zero=True), labels()
    bars = described(values, {"type": "bar", "height": 12}, "rung", x=x, y=y, **paint())
    limit = [] if ladder.limit is None else [{"loss": 100 * ladder.limit}]
    rule = layer(limit, {"type": "rule", "color": "var(--ink)", "strokeDash": [3, 2]}, x=x)
    return unit(44 + 20 * len(values), [bars, rule])
