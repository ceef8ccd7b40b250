"""What compression gained: each variant beside the same one without compression, even if it gained nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from edgecompress.core import registry
from edgecompress.core.quantities import COUNTED, CYCLES, QUANTITIES
from edgecompress.core.stats import CHANGE
from edgecompress.reporting import before_after
from edgecompress.reporting.compression import fewer, reduction, zeros
from edgecompress.reporting.figure_style import Figure, Panel, Values, also, axis, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, guessed, percent, plural, significant, times
from edgecompress.reporting.model import Gain, Report
from edgecompress.reporting.model_numbers import Change, Table
from edgecompress.reporting.model_variant import Variant
from edgecompress.reporting.strength_search import goal_and_share
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

FEW_MACS = 1.2  # times fewer: less than this explains no speed
NOUN = {"latency": "", COUNTED: " instructions", CYCLES: " cycles"}
_CAPTION = (
    "How many times less: the bar by MACs and by weights that are not zero, the dot by what the device takes, beside "
    "the same variant without it. A dot left of its bar's end: not all that was taken out took time."
)


def of_report(report: Report) -> list[Gain]:
    """Each compressed variant beside its twin: the one of its runtime and precision that was not compressed."""
    by = before_after.ranked_by(report)
    return [_gain(report, v, by) for v in report.variants if _structural(report, v) or v.compressed]


def _gain(report: Report, variant: Variant, by: str) -> Gain:
    compressed, twin = variant.compressed, report.variant(_twin(report, variant))
    change, why = before_after.between(by, twin, variant) if twin else (None, "no such variant without it was built")
    number = variant.numbers.get(by) or variant.numbers["latency"]
    gain = Gain(
        variant=variant.name,
        twin=twin.name if twin else "",
        techniques=compressed.techniques if compressed else _structural(report, variant),
        fewer_macs=fewer(compressed.macs) if compressed else None,
        zeros=zeros(compressed),
        metric=by,
        status=number.status,
        source=number.source,
        change=change,
        reason="" if change else variant.reason if number.value is None and variant.reason else why,
        gained=_gained(change) if change else None,
        asked=goal_and_share(report, variant.name),
    )
    gain.says = f"{gain.variant}: {_taken(gain)}, {_bought(gain, variant.runtime)}."
    return gain


def _gained(change: Change) -> bool | None:
    """Whether less is taken; None where it looks so, but too few sessions ran to call it a change."""
    less = float(change.factor) > 1 + CHANGE
    if change.called == "better" or change.guessed:
        return less
    apart = change.low is None or change.low > 1
    return None if less and apart else False


# ------------------------------------------------------------------ the twin


def _declared(report: Report, name: str) -> Table:
    return next((v for v in report.target.get("variant", ()) if v["name"] == name), {})


def _uses(report: Report, variant: Variant) -> Sequence[Table]:
    steps: Sequence[Table] = _declared(report, variant.name).get("compress", ())
    return steps


def _trainable(use: str) -> bool:
    """Whether it is a technique on the net that can still be trained: all before precision and runtime."""
    known = use in registry.names("techniques")
    return known and registry.technique(use).writes == "module"


def _structural(report: Report, variant: Variant) -> list[str]:
    """The techniques of a variant that take something out of the net."""
    named = [str(step.get("use", "")) for step in _uses(report, variant)]
    return [n for n in named if _trainable(n) and not registry.technique(n).trains]


def _twin(report: Report, variant: Variant) -> str:
    """The one of the same runtime and precision that was not compressed; of several the one most alike."""

    def kept(v: Variant) -> list[Table]:
        return [s for s in _uses(report, v) if not _trainable(str(s.get("use", "")))]

    def unlike(v: Variant) -> tuple[bool, ...]:
        export = (_declared(report, each.name).get("export") for each in (v, variant))
        return kept(v) != kept(variant), len(set(map(str, export))) > 1

    named = [s.get("use") for s in kept(variant)]
    others = (v for v in report.variants if v.runtime == variant.runtime and _plain(report, v))
    alike = [v for v in others if [s.get("use") for s in kept(v)] == named]
    return str(min(alike, key=unlike).name) if alike else ""


def _plain(report: Report, variant: Variant) -> bool:
    """Whether it is known of a variant that nothing was taken out of it."""
    return bool(_declared(report, variant.name)) and not _structural(report, variant) and not variant.compressed


# ------------------------------------------------------------------ in words


def _taken(gain: Gain) -> str:
    """`1.99× fewer MACs`, `50 % of its weights are zero`."""
    macs = [reduction(gain.fewer_macs, "MACs")] if gain.fewer_macs else []
    zero = [f"{percent(gain.zeros)} of its weights are zero"] if gain.zeros else []
    return ", ".join(macs + zero) or ", ".join(gain.techniques)


def _bought(gain: Gain, runtime: str) -> str:
    if not gain.change:
        beside = f"not compared with {gain.twin}" if gain.twin else "not compared"
        return f"{beside}: {gain.reason}"
    factor = f"{_factor(gain)} ({_standing(gain)})"
    return f"{factor}: no speed-up here, {_why(gain, runtime)}" if gain.gained is False else factor


def _factor(gain: Gain) -> str:
    """`1.76× faster [1.70, 1.82] than int8`, `1.00× [0.99, 1.01] the speed of int8`."""
    change = _told(gain)
    if gain.gained is False and (change.called == "same" or abs(change.factor - 1) <= CHANGE):
        ends = f" [{significant(change.low, 3)}, {significant(change.high, 3)}]" if change.low and change.high else ""
        near = "≈ " if change.guessed and not change.exact else ""
        return f"{near}{times(change.factor)}{ends} the{NOUN[gain.metric] or ' speed'} of {gain.twin}"
    beside = "as" if before_after.alike(_told(gain)) else "than"
    return f"{_change(gain)} {beside} {gain.twin}"


def _change(gain: Gain) -> str:
    """`1.76× faster [1.70, 1.82]`, also where it is only told that too few sessions ran to call it."""
    says = before_after.say(_told(gain), QUANTITIES[gain.metric].words)
    return says if says.startswith("no change") else f"{says}{NOUN[gain.metric]}"


def _told(gain: Gain) -> Change:
    """The change, called none where too few sessions ran."""
    assert gain.change, gain.reason
    return msgspec.structs.replace(gain.change, called="none") if gain.gained is None else gain.change


def _standing(gain: Gain) -> str:
    """`measured`, `simulated`, `estimated by Vela 5.2.0`."""
    if gain.gained is None:
        return f"{gain.status} in {plural(_told(gain).n, 'session')}: too few to judge a change"
    by = f" by {gain.source.split(':')[0]}" if gain.status == "estimated" else ""
    return f"{gain.status}{by}"


def _why(gain: Gain, runtime: str) -> str:
    """What explains that nothing was gained, as far as it is known."""
    if gain.zeros and not (gain.fewer_macs or 0) > 1:
        return f"{runtime or 'this runtime'} computes zeros like any number"
    if gain.techniques == ["low_rank"]:
        return "the layers of low rank take as long as those they replace"
    if 1 < (gain.fewer_macs or 0) < FEW_MACS:
        return "hardly any MACs went, as most layers were left whole"
    return "MACs are not what takes its time"


def note(report: Report, name: str) -> Iterator[str]:
    """What compression gained the variant that ships over its twin; a baseline of its own, so none of the headline."""
    yield from (g.says for g in report.gains if g.variant == name and g.gained)


def warnings(report: Report) -> Iterator[str]:
    """What was compressed and gained nothing is no small thing."""
    yield from (g.says for g in report.gains if g.gained is False)


# ------------------------------------------------------------------ table and figure


def table(report: Report) -> TextTable:
    """What was taken out of each, and what the device gained by it."""
    head = ("variant", "by", "MACs", "zero weights", "beside", "bought", "asked for: found")
    rows = []
    for g in report.gains:
        taken = reduction(g.fewer_macs, "").strip() if g.fewer_macs else DASH, percent(g.zeros) if g.zeros else DASH
        bought = f"{DASH} {g.reason}"
        if g.change:
            bought = f"{'nothing: ' if g.gained is False else ''}{_change(g)}, {_standing(g)}"
        rows.append((g.variant, ", ".join(g.techniques), *taken, g.twin or DASH, bought, g.asked or DASH))
    return TextTable("Gains of compression", head, tuple(rows))


def figure(report: Report) -> Figure:
    """The promise of MACs or weights as a bar, what the device made of it as a dot."""
    rows = [g for g in report.gains if g.change]
    title = "What was removed, and the gain"
    if not rows:
        return Figure("gains", title, "")
    caption = _CAPTION + (" Hollow and dashed is estimated or simulated." if any(map(guessed, rows)) else "")
    return Figure("gains", title, caption, (Panel("", _spec([_point(g) for g in rows])),))


def _point(gain: Gain) -> dict[str, object]:
    change, hollow = _told(gain), guessed(gain)
    called = "better" if gain.gained else "worse" if change.called == "worse" else ""
    promised = (gain.fewer_macs or 1.0) / (1 - min(gain.zeros or 0.0, 0.99))
    says = f"{gain.variant}: {_taken(gain)}"
    drawn = {"fill": f"var(--{called})" if called else "var(--c0)", "opacity": 0.0 if hollow else 1.0}
    ends = {"factor": change.factor, "low": change.low, "high": change.high, "one": 1, "promised": promised}
    return {"label": gain.variant, **ends, **drawn, "hollow": hollow, "taken": says, "says": gain.says}


def _spec(values: Values) -> Spec:
    ends = [v[key] for v in values for key in ("factor", "low", "high", "promised", "one") if v[key]]
    low, high = min(ends), max(ends)
    room = 0.06 * max(high - low, 0.2)
    x, y = quantity("one", axis("times less", grid=True), domain=[low - room, high + room]), labels()
    bars = [{**v, "says": v["taken"], "fill": "var(--c0)", "opacity": 0.22} for v in values if v["promised"] != 1]
    promise = {"type": "bar", "height": 16, "strokeWidth": 0.8}
    promises = described(bars, promise, "promise", x=x, x2={"field": "promised"}, y=y, **paint())
    spans = [v for v in values if v["low"] and v["high"]]
    rule = {"type": "rule", "color": "var(--ink)", "strokeWidth": 1.5}
    intervals = layer(spans, rule, x=also(x, "low"), x2={"field": "high"}, y=y)
    one = layer([{"one": 1}], {"type": "rule", "color": "var(--ink)"}, x=x)
    dots = []
    for hollow, dashes in ((False, {}), (True, {"strokeDash": [3, 2]})):
        mark = {"type": "point", "size": 90, "strokeWidth": 1.8, **dashes}
        if own := [v for v in values if v["hollow"] == hollow]:
            dots.append(described(own, mark, "gain", x=also(x, "factor"), y=y, **paint()))
    return unit(48 + 30 * len(values), [one, promises, intervals, *dots])
