"""What was removed from each variant's net: channels, ranks, weights; drawn as the remaining part of the dense net."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from edgecompress.core.json import Json
from edgecompress.reporting import instructions
from edgecompress.reporting.figure_style import (
    Figure,
    Panel,
    Values,
    also,
    axis,
    colour,
    labels,
    paint,
    quantity,
)
from edgecompress.reporting.formatting import DASH, percent, plain, plural, significant, times
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_compressed import Compressed, Group, Layer, SparseRow, Sparsity, Storage, Whole
from edgecompress.reporting.request import (
    ChannelGroup,
    LayerFacts,
    NetTotal,
    ReportRequest,
    TechniqueFacts,
)
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import Spec, described, layer, unit

MOST = 40  # bars in a panel
CUTS = 40  # blocks that are told apart in the longest bar
STORAGE = "storage"  # the stage that tells what zeros save
_CAPTION = (
    "Grey: the dense net. Filled: what is left of it. A bar of channels is cut where the device's kernels begin "
    "another block; of what is gone whole only the grey is left."
)


def of_variant(job: ReportRequest, name: str) -> Compressed | None:
    """What the techniques of a variant took out, as they report it; None where none of them took anything."""
    steps = [m for m in job.steps(name) if m["status"] == "ok" and _parts(m["facts"])]
    facts = [m["facts"] for m in steps]
    if not facts:
        return None
    latest = facts[::-1]
    untouched = [left for f in facts for left in (f.get("refused"), f.get("kept"))]
    return Compressed(
        techniques=list(dict.fromkeys(base(m["technique"]) for m in steps)),
        macs=_whole([f["macs"] for f in facts if isinstance(f.get("macs"), Mapping)]),
        parameters=_whole([f["parameters"] for f in facts if isinstance(f.get("parameters"), Mapping)]),
        align=next((f["align"] for f in latest if f.get("align")), None),
        criterion=next((f["criterion"] for f in latest if f.get("criterion")), None),
        scope=next((f["scope"] for f in latest if f.get("scope")), None),
        groups=_groups(facts),
        layers=msgspec.convert([each for f in facts for each in _low_rank(f)], list[Layer]),
        sparsity=msgspec.convert(next((f["sparsity"] for f in latest if f.get("sparsity")), None), Sparsity | None),
        storage=_stored(job, name),
        left={str(part): str(why) for left in untouched for part, why in (left or {}).items()},
    )


def base(technique: str) -> str:
    """`prune_channels` of `prune_channels-2`, its second use in a recipe."""
    name, _, number = technique.rpartition("-")
    return name if number.isdigit() else technique


def _stored(job: ReportRequest, name: str) -> Storage | None:
    """What the weights of the artifact take in each form, and its file as it is and through zstd, in bytes."""
    facts = next((m["facts"] for m in job.steps(name) if m["technique"] == STORAGE and m["facts"]), None)
    if facts is None:
        return None
    total, files = facts["total"], facts["files"]
    sizes = {**total["bytes"], "best": total["best_bytes"], "file": files["bytes"], "sent": files["zstd"]}
    return msgspec.convert(sizes, Storage)


def _parts(facts: TechniqueFacts) -> bool:
    return bool(_channel_groups(facts) or _low_rank(facts) or facts.get("sparsity") or facts.get("dropped"))


def _is_table(row: object) -> bool:
    return isinstance(row, Mapping)


def _channel_groups(facts: TechniqueFacts) -> list[ChannelGroup]:
    """The groups that are of channels: other techniques may use the word otherwise."""
    rows = facts.get("groups")
    return [r for r in rows if _is_table(r) and "channels" in r] if isinstance(rows, list) else []


def _low_rank(facts: TechniqueFacts) -> list[LayerFacts]:
    """The layers that have ranks: other techniques may use the word otherwise."""
    rows = facts.get("layers")
    return [r for r in rows if _is_table(r) and "ranks" in r] if isinstance(rows, list) else []


def _whole(totals: Sequence[NetTotal]) -> Whole | None:
    """MACs or parameters of the whole net: of the source, and what the last technique left."""
    if not totals:
        return None
    dense = totals[0].get("source")
    return Whole(dense if isinstance(dense, int) else totals[0]["before"], totals[-1]["after"])


def _groups(facts: Sequence[TechniqueFacts]) -> list[Group]:
    """Each group of channels as it was before the first technique, and after the last."""
    groups: dict[str, Group] = {}
    for group in (g for f in facts for g in _channel_groups(f)):
        name = str(group["name"])
        before = groups[name].channels if name in groups else group["channels"]
        layers = [str(n) for n in group.get("layers") or ()]
        groups[name] = Group(name, before, group["kept"], layers, str(group.get("class") or ""))
    return list(groups.values())


# ------------------------------------------------------------------ how much, in numbers


def fewer(whole: Whole | None) -> float | None:
    """How many times fewer MACs (or parameters) are left; None where no technique tells."""
    return whole.before / whole.after if whole and whole.after else None


def zeros(compressed: Compressed | None) -> float | None:
    """The share of the weights that is zero; None where nothing was set to zero."""
    total = compressed.sparsity.total if compressed and compressed.sparsity else None
    return total.zeros / total.elements if total and total.elements else None


def reduction(ratio: float, what: str) -> str:
    """`1.99× fewer MACs`."""
    return f"{times(ratio)} fewer {what}" if ratio >= 1 else f"{times(1 / ratio)} more {what}"


# ------------------------------------------------------------------ tables


def _shown(report: Report) -> list[tuple[str, Compressed]]:
    """The variants of which something was taken out."""
    return [(v.name, v.compressed) for v in report.variants if v.compressed]


def table(report: Report) -> TextTable:
    """The whole net before and after."""
    head = ("variant", "by", "MACs", "parameters", "channels", "zero weights", "left as they were")
    rows = []
    for name, cut in _shown(report):
        whole = (_change(cut.macs), _change(cut.parameters))
        share = zeros(cut)
        left = plural(len(cut.left), "part") if cut.left else "none"
        zero = DASH if share is None else f"{percent(share)}, {cut.sparsity.kind if cut.sparsity else ''}"
        rows.append((name, ", ".join(cut.techniques), *whole, _channels(cut), zero, left))
    return TextTable("What was compressed", head, tuple(rows))


def _change(whole: Whole | None) -> str:
    ratio = fewer(whole)
    if not whole or ratio is None:
        return DASH
    return f"{instructions.plain(whole.before)} → {instructions.plain(whole.after)}, {times(ratio)}"


def _channels(compressed: Compressed) -> str:
    before, after = sum(g.channels for g in compressed.groups), sum(g.kept for g in compressed.groups)
    blocks = f", blocks of {compressed.align}" if compressed.align and compressed.align > 1 else ""
    return f"{before:,} → {after:,}{blocks}" if before else DASH


def channels(report: Report) -> TextTable:
    """Each group of channels that go together."""
    head = ("variant", "group", "class", "channels", "left", "layers that make them")
    rows = []
    for name, group in ((name, g) for name, compressed in _shown(report) for g in compressed.groups):
        left = f"{group.kept:,}" if group.kept else "0: gone whole"
        rows.append((name, group.name, group.kind or DASH, f"{group.channels:,}", left, ", ".join(group.layers)))
    return TextTable("Channels", head, tuple(rows))


def low_rank(report: Report) -> TextTable:
    """Each layer that became several of low rank."""
    head = ("variant", "layer", "method", "shape", "ranks", "MACs", "parameters", "error of the weight")
    rows = []
    for name, each in ((name, each) for name, compressed in _shown(report) for each in compressed.layers):
        sizes = (" × ".join(map(str, numbers or ())) for numbers in (each.shape, each.ranks))
        pairs = (" → ".join(map(instructions.plain, n)) if n else DASH for n in (each.macs, each.parameters))
        error = DASH if each.error is None else percent(each.error)
        rows.append((name, each.name, each.method or DASH, *sizes, *pairs, error))
    return TextTable("Layers of low rank", head, tuple(rows))


def sparsity(report: Report) -> TextTable:
    """Each weight in which zeros were made, or why none were."""
    head = ("variant", "layer", "pattern", "weights", "of them zero", "share", "why not")
    sparsities = [(name, compressed.sparsity) for name, compressed in _shown(report) if compressed.sparsity]
    rows = []
    for name, kind, row in ((name, sparse.kind, row) for name, sparse in sparsities for row in sparse.rows):
        share = percent(row.zeros / row.elements) if row.elements else DASH
        sizes = (f"{row.elements:,}", f"{row.zeros:,}", share)
        rows.append((name, row.name, kind if row.pruned else DASH, *sizes, row.why))
    return TextTable("Zero weights", head, tuple(rows))


def storage(report: Report) -> TextTable:
    """What zeros save on disk and on the wire."""
    head = ("variant", "weights", "bitmask", "CSR", "zstd", "each at its best", "file", "file through zstd")
    stored = [(name, compressed.storage) for name, compressed in _shown(report) if compressed.storage]
    keys = ("dense", "bitmask", "csr", "zstd", "best", "file", "sent")
    rows = tuple((n, *(plain(getattr(s, k), "bytes") for k in keys)) for n, s in stored)
    return TextTable("Bytes saved by zeros", head, rows)


def left(report: Report) -> TextTable:
    """What a technique would not touch, and why."""
    rows = ((name, part, why) for name, compressed in _shown(report) for part, why in compressed.left.items())
    return TextTable("Left as they were", ("variant", "part", "why"), tuple(rows))


# ------------------------------------------------------------------ the figure


def figure(report: Report) -> Figure:
    """What is left of each part of each variant's net, beside the dense one."""
    panels = tuple(p for name, cut in _shown(report) for p in _panels(name, cut, colour(report, name)))
    return Figure("compressed", "What is left of each part", _CAPTION if panels else "", panels)


def _panels(name: str, compressed: Compressed, fill: str) -> Iterator[Panel]:
    sparse = compressed.sparsity
    if parts := [_bar(g.name, (g.channels, g.kept), "channels") for g in compressed.groups]:
        yield Panel(f"channels: {_channels(compressed)}", _spec(parts, "channels", fill, compressed.align), name)
    if parts := [_bar(str(each.name), each.macs, "MACs") for each in compressed.layers if each.macs]:
        ratio = sum(p["whole"] for p in parts) / max(1, sum(p["left"] for p in parts))
        yield Panel(f"low rank: {reduction(ratio, 'MACs')} in these layers", _spec(parts, "MACs", fill), name)
    if sparse and (parts := [_weights(row) for row in sparse.rows if row.elements]):
        heading = f"{sparse.kind}: {percent(1 - (zeros(compressed) or 0))} of the weights are not zero"
        yield Panel(heading, _spec(parts, "% not zero", fill), name)


def _bar(label: str, ends: Sequence[float], what: str) -> dict[str, Any]:
    whole, rest = ends
    amounts = (instructions.plain(n) if n >= 1e4 else f"{n:,}" for n in (rest, whole))
    says = f"{label}: {' of '.join(amounts)} {what} left" if rest else f"{label}: gone whole, it had {whole:,} {what}"
    return {"label": label, "whole": whole, "left": rest, "says": says}


def _weights(row: SparseRow) -> dict[str, Json]:
    share = 100 * (1 - row.zeros / row.elements)
    says = f"{row.name}: {significant(share, 2)} % of {row.elements:,} weights are not zero"
    return {"label": row.name, "whole": 100, "left": share, "says": says}


def _spec(parts: Values, title: str, fill: str, align: int | None = None) -> Spec:
    """Bars over their dense width; of too many those that lost most, in the order of the net."""
    most = sorted(parts, key=lambda p: p["left"] / p["whole"])[:MOST]
    values = [{**p, "fill": "var(--c0)", "opacity": 0.2} for p in parts if p in most]
    longest = max(p["whole"] for p in values)
    block = align if align and 1 < align >= longest / CUTS else longest
    ticks = {"values": [*range(0, longest + 1, block)]} if block < longest else {}
    x, y = quantity("whole", axis(title, format="~s", **ticks), zero=True), labels()
    track = described(values, {"type": "bar", "height": 10, "strokeWidth": 0.8}, "part", x=x, y=y, **paint())
    rest = [v for v in values if v["left"]]
    kept = layer(rest, {"type": "bar", "height": 10, "fill": fill, "fillOpacity": 0.9}, x=also(x, "left"), y=y)
    cuts = [{"label": v["label"], "cut": n} for v in values for n in range(block, v["whole"], block)]
    cut = {"type": "tick", "size": 11, "thickness": 1.5, "color": "var(--card)"}
    between = layer(cuts, cut, x=also(x, "cut"), y=y)
    words = {"type": "text", "align": "left", "dx": 4, "fontSize": 9, "color": "var(--ink)", "text": "gone", "x": 0}
    gone = layer([v for v in values if not v["left"]], words, y=y)
    return unit(44 + 16 * len(values), [track, kept, between, gone])
