"""What was taken out of each variant's net: channels, ranks, single weights; drawn as what is left of the dense one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgecompress.stages.report import counts
from edgecompress.stages.report.marks import Figure, Panel, Report, Values, also, axis, colour, labels, paint, quantity
from edgecompress.stages.report.numbers import DASH, plain, plural, significant, times
from edgecompress.stages.report.tables import Table
from edgecompress.stages.report.vega import Spec, layer, told, unit

Compressed = dict[str, Any]
Facts = Mapping[str, Any]
MOST = 40  # bars in a panel
CUTS = 40  # blocks that are told apart in the longest bar
WHOLE = ("macs", "parameters")
STORAGE = "storage"  # the stage that tells what zeros save
_CAPTION = (
    "Grey: the dense net. Filled: what is left of it. A bar of channels is cut where the device's kernels begin "
    "another block; of what is gone whole only the grey is left."
)


def of_variant(options: Facts, name: str) -> Compressed | None:
    """What the techniques of a variant took out, as they tell it; None where none of them took anything."""
    steps = [m for m in made(options, name) if m["status"] == "ok" and _parts(m["facts"])]
    facts = [dict(m["facts"]) for m in steps]
    if not facts:
        return None
    sparse = next((f["sparsity"] for f in reversed(facts) if f.get("sparsity")), None)
    return {
        "techniques": list(dict.fromkeys(base(m["technique"]) for m in steps)),
        **{key: _whole(facts, key) for key in WHOLE},
        **{key: next((f[key] for f in reversed(facts) if f.get(key)), None) for key in ("align", "criterion", "scope")},
        "groups": _groups(facts),
        "layers": [_layer(each) for f in facts for each in _of(f, "layers", "ranks")],
        "sparsity": dict(sparse) if sparse else None,
        "storage": _stored(options, name),
        "left": {str(k): str(v) for f in facts for key in ("refused", "kept") for k, v in (f.get(key) or {}).items()},
    }


def made(options: Facts, name: str) -> Sequence[Facts]:
    """What each technique did for a variant, in order."""
    found: Sequence[Facts] = (options.get("made") or {}).get(name) or ()
    return found


def base(technique: str) -> str:
    """`prune_channels` of `prune_channels-2`, its second use in a recipe."""
    name, _, number = technique.rpartition("-")
    return name if number.isdigit() else technique


def _stored(options: Facts, name: str) -> dict[str, Any] | None:
    """What the weights of the artifact take in each form, and its file as it is and through zstd, in bytes."""
    facts = next((m["facts"] for m in made(options, name) if m["technique"] == STORAGE and m["facts"]), None)
    if facts is None:
        return None
    total, files = facts["total"], facts["files"]
    return {**total["bytes"], "best": total["best_bytes"], "file": files["bytes"], "sent": files["zstd"]}


def _parts(facts: Facts) -> bool:
    return bool(_of(facts, "groups", "channels") or _of(facts, "layers", "ranks") or facts.get("sparsity"))


def _of(facts: Facts, key: str, has: str) -> list[Facts]:
    """The rows of a fact that are of the kind meant here: other techniques may use the word otherwise."""
    rows = facts.get(key)
    return [r for r in rows if isinstance(r, Mapping) and has in r] if isinstance(rows, list) else []


def _whole(facts: Sequence[Facts], key: str) -> dict[str, int] | None:
    """MACs or parameters of the whole net: of the source, and what the last technique left."""
    told_ = [f[key] for f in facts if isinstance(f.get(key), Mapping)]
    if not told_:
        return None
    dense = told_[0].get("source")
    return {"before": dense if isinstance(dense, int) else told_[0]["before"], "after": told_[-1]["after"]}


def _groups(facts: Sequence[Facts]) -> list[dict[str, Any]]:
    """Each group of channels as it was before the first technique, and after the last."""
    found: dict[str, dict[str, Any]] = {}
    for group in (g for f in facts for g in _of(f, "groups", "channels")):
        name, before = str(group["name"]), found.get(str(group["name"]), group)["channels"]
        rest = {"layers": [str(n) for n in group.get("layers") or ()], "class": str(group.get("class") or "")}
        found[name] = {"name": name, "channels": before, "kept": group["kept"], **rest}
    return list(found.values())


def _layer(told_: Facts) -> dict[str, Any]:
    return {key: told_.get(key) for key in ("name", "method", "shape", "ranks", "macs", "parameters", "error")}


# ------------------------------------------------------------------ how much, in numbers


def fewer(found: Compressed | None, key: str = "macs") -> float | None:
    """How many times fewer MACs (or parameters) are left; None where no technique tells."""
    whole = found[key] if found else None
    return whole["before"] / whole["after"] if whole and whole["after"] else None


def zeros(found: Compressed | None) -> float | None:
    """The share of the weights that is zero; None where nothing was set to zero."""
    total = found["sparsity"]["total"] if found and found["sparsity"] else None
    return total["zeros"] / total["elements"] if total and total["elements"] else None


def said(ratio: float, what: str) -> str:
    """`1.99× fewer MACs`."""
    return f"{times(ratio)} fewer {what}" if ratio >= 1 else f"{times(1 / ratio)} more {what}"


def percent(share: float) -> str:
    """`50 %`."""
    return f"{significant(100 * share, 2)} %"


# ------------------------------------------------------------------ tables


def shown(report: Report) -> list[Mapping[str, Any]]:
    """The variants of which something was taken out."""
    return [v for v in report["variants"] if v["compressed"]]


def table(report: Report) -> Table:
    """The whole net before and after."""
    head = ("variant", "by", "MACs", "parameters", "channels", "zero weights", "left as they were")
    return Table("What was compressed", head, tuple(_row(v["name"], v["compressed"]) for v in shown(report)))


def _row(name: str, found: Compressed) -> tuple[str, ...]:
    whole = (_change(found, key) for key in WHOLE)
    share = zeros(found)
    left = plural(len(found["left"]), "part") if found["left"] else "none"
    zero = DASH if share is None else f"{percent(share)}, {found['sparsity']['kind']}"
    return name, ", ".join(found["techniques"]), *whole, _channels(found), zero, left


def _change(found: Compressed, key: str) -> str:
    whole, ratio = found[key], fewer(found, key)
    if not whole or ratio is None:
        return DASH
    return f"{counts.plain(whole['before'])} → {counts.plain(whole['after'])}, {times(ratio)}"


def _channels(found: Compressed) -> str:
    before, after = (sum(g[key] for g in found["groups"]) for key in ("channels", "kept"))
    blocks = f", blocks of {found['align']}" if found["align"] and found["align"] > 1 else ""
    return f"{before:,} → {after:,}{blocks}" if before else DASH


def channels(report: Report) -> Table:
    """Each group of channels that go together."""
    head = ("variant", "group", "class", "channels", "left", "layers that make them")
    found = [(v["name"], g) for v in shown(report) for g in v["compressed"]["groups"]]
    return Table("Channels", head, tuple(_group(name, g) for name, g in found))


def _group(name: str, group: Facts) -> tuple[str, ...]:
    left = f"{group['kept']:,}" if group["kept"] else "0: gone whole"
    return name, group["name"], group["class"] or DASH, f"{group['channels']:,}", left, ", ".join(group["layers"])


def low_rank(report: Report) -> Table:
    """Each layer that became several of low rank."""
    head = ("variant", "layer", "method", "shape", "ranks", "MACs", "parameters", "error of the weight")
    found = [(v["name"], each) for v in shown(report) for each in v["compressed"]["layers"]]
    return Table("Layers of low rank", head, tuple(_factors(name, each) for name, each in found))


def _factors(name: str, each: Facts) -> tuple[str, ...]:
    sizes = (" × ".join(map(str, each[key] or ())) for key in ("shape", "ranks"))
    pairs = (" → ".join(map(counts.plain, each[key])) if each[key] else DASH for key in WHOLE)
    error = DASH if each["error"] is None else percent(each["error"])
    return name, str(each["name"]), str(each["method"] or DASH), *sizes, *pairs, error


def sparsity(report: Report) -> Table:
    """Each weight in which zeros were made, or why none were."""
    head = ("variant", "layer", "pattern", "weights", "of them zero", "share", "why not")
    found = [(v["name"], v["compressed"]["sparsity"]) for v in shown(report) if v["compressed"]["sparsity"]]
    rows = tuple((name, *_zeros(row, sparse["kind"])) for name, sparse in found for row in sparse["rows"])
    return Table("Zero weights", head, rows)


def _zeros(row: Facts, kind: str) -> tuple[str, ...]:
    share = percent(row["zeros"] / row["elements"]) if row["elements"] else DASH
    sizes = (f"{row[key]:,}" for key in ("elements", "zeros"))
    return row["name"], kind if row["pruned"] else DASH, *sizes, share, row["why"]


def storage(report: Report) -> Table:
    """What zeros save on disk and on the wire."""
    head = ("variant", "weights", "bitmask", "CSR", "zstd", "each at its best", "file", "file through zstd")
    found = [(v["name"], v["compressed"]["storage"]) for v in shown(report) if v["compressed"]["storage"]]
    keys = ("dense", "bitmask", "csr", "zstd", "best", "file", "sent")
    return Table("What zeros save as bytes", head, tuple((n, *(plain(s[k], "bytes") for k in keys)) for n, s in found))


def left(report: Report) -> Table:
    """What a technique would not touch, and why."""
    rows = ((v["name"], part, why) for v in shown(report) for part, why in v["compressed"]["left"].items())
    return Table("Left as they were", ("variant", "part", "why"), tuple(rows))


# ------------------------------------------------------------------ the figure


def figure(report: Report) -> Figure:
    """What is left of each part of each variant's net, beside the dense one."""
    panels = tuple(p for v in shown(report) for p in _panels(v, colour(report, v["name"])))
    return Figure("compressed", "What is left of each part", _CAPTION if panels else "", panels)


def _panels(variant: Mapping[str, Any], fill: str) -> Iterator[Panel]:
    found, name = variant["compressed"], variant["name"]
    sparse = found["sparsity"]
    if parts := [_bar(g["name"], (g["channels"], g["kept"]), "channels") for g in found["groups"]]:
        yield Panel(f"channels: {_channels(found)}", _spec(parts, "channels", fill, found["align"]), name)
    if parts := [_bar(str(each["name"]), each["macs"], "MACs") for each in found["layers"] if each["macs"]]:
        ratio = sum(p["whole"] for p in parts) / max(1, sum(p["left"] for p in parts))
        yield Panel(f"low rank: {said(ratio, 'MACs')} in these layers", _spec(parts, "MACs", fill), name)
    if parts := [_weights(row) for row in sparse["rows"] if row["elements"]] if sparse else []:
        heading = f"{sparse['kind']}: {percent(1 - (zeros(found) or 0))} of the weights are not zero"
        yield Panel(heading, _spec(parts, "% not zero", fill), name)


def _bar(label: str, ends: Sequence[int], what: str) -> dict[str, Any]:
    whole, rest = ends
    amounts = (counts.plain(n) if n >= 1e4 else f"{n:,}" for n in (rest, whole))
    says = f"{label}: {' of '.join(amounts)} {what} left" if rest else f"{label}: gone whole, it had {whole:,} {what}"
    return {"label": label, "whole": whole, "left": rest, "says": says}


def _weights(row: Facts) -> dict[str, Any]:
    share = 100 * (1 - row["zeros"] / row["elements"])
    says = f"{row['name']}: {significant(share, 2)} % of {row['elements']:,} weights are not zero"
    return {"label": row["name"], "whole": 100, "left": share, "says": says}


def _spec(parts: Values, title: str, fill: str, align: int | None = None) -> Spec:
    """Bars over their dense width; of too many those that lost most, in the order of the net."""
    most = sorted(parts, key=lambda p: p["left"] / p["whole"])[:MOST]
    values = [{**p, "fill": "var(--c0)", "opacity": 0.2} for p in parts if p in most]
    longest = max(p["whole"] for p in values)
    block = align if align and 1 < align >= longest / CUTS else longest
    ticks = {"values": [*range(0, longest + 1, block)]} if block < longest else {}
    x, y = quantity("whole", axis(title, format="~s", **ticks), zero=True), labels()
    track = told(values, {"type": "bar", "height": 10, "strokeWidth": 0.8}, "part", x=x, y=y, **paint())
    rest = [v for v in values if v["left"]]
    kept = layer(rest, {"type": "bar", "height": 10, "fill": fill, "fillOpacity": 0.9}, x=also(x, "left"), y=y)
    cuts = [{"label": v["label"], "cut": n} for v in values for n in range(block, v["whole"], block)]
    cut = {"type": "tick", "size": 11, "thickness": 1.5, "color": "var(--card)"}
    between = layer(cuts, cut, x=also(x, "cut"), y=y)
    words = {"type": "text", "align": "left", "dx": 4, "fontSize": 9, "color": "var(--ink)", "text": "gone", "x": 0}
    gone = layer([v for v in values if not v["left"]], words, y=y)
    return unit(44 + 16 * len(values), [track, kept, between, gone])
