"""Instructions per inference, where a simulator counted them: their classes, and the kernel that the device decides."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.core.quantities import COUNTED
from edgecompress.reporting.figure_style import Figure, Panel, Values, axis, labels, paint, quantity
from edgecompress.reporting.formatting import DASH, known, missing, number, significant, text
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Counted, Number
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import described, layer, unit

NAMED = 0.09  # of the longest bar: a segment that is shorter has no name written on it
# What a sensor calls a class of instructions: the word for it. The first that matches; the others keep their own name.
WORDS = (
    (r"mmla", "MMLA"),
    (r"dot", "SDOT"),
    (r"mlal", "MLAL"),
    (r"fmla.*16", "FMLA f16"),
    (r"fmla", "FMLA"),
    (r"^bf16", "BF16"),
    (r"sve", "SVE"),
    (r"sme", "SME"),
)
EIGHT_BITS = ("SDOT", "MMLA")


def of_variant(count: Artifact | None, name: str) -> Counted | None:
    """What was counted of a variant, its classes by their words, the largest first; None where nothing was."""
    counted = count.facts["variants"].get(name) if count else None
    if not counted or "crashed" in counted:
        return None
    classes: dict[str, int] = {}
    for raw, n in counted["classes"].items():
        classes[word(raw)] = classes.get(word(raw), 0) + n
    ranked = dict(sorted(classes.items(), key=lambda pair: -pair[1]))
    return msgspec.convert({**counted, "classes": ranked, "sensor": count.facts["sensor"] if count else ""}, Counted)


def word(class_name: str) -> str:
    """SDOT, MLAL, FMLA, SVE: what people call a class."""
    return next((mnemonic for pattern, mnemonic in WORDS if re.search(pattern, class_name.lower())), class_name)


def total(counted: Counted | None, simulated: str, crashed: str = "") -> Number:
    """Instructions per inference as a number: simulated, whatever machine it is of."""
    if counted is None:
        return missing(COUNTED, crashed or "only a simulated device counts instructions")
    low, high = (None, None) if counted.identical else (min(counted.processes), max(counted.processes))
    n, source = len(counted.processes), simulated or counted.sensor
    return number(COUNTED, counted.instructions, status="simulated", n=n, source=source, low=low, high=high)


def plain(n: float) -> str:
    """`62.5 k`."""
    return text(Number("", n, COUNTED, "simulated"))


# ------------------------------------------------------------------ the kernels


def kernels(report: Report, names: Sequence[str] = ()) -> list[str]:
    """Of each variant (or only of `names`), the instructions that it multiplies with on this device."""
    shown = _shown(report)
    eight_bits = any(counted.classes.get(c) for _, counted in shown for c in EIGHT_BITS)
    device = str(report.device.get("name") or "this device")
    named = [(name, counted) for name, counted in shown if counted.classes and (not names or name in names)]
    return [_kernel(name, counted, device, eight_bits) for name, counted in named]


def _kernel(name: str, counted: Counted, device: str, eight_bits: bool) -> str:
    used = next(((c, n) for c, n in counted.classes.items() if n and c in dict(WORDS).values()), None)
    if used is None:
        return f"{name}: no vector multiplication was counted."
    share = f"{plain(used[1])} of {plain(counted.instructions)} instructions"
    if used[0] == "MLAL" and not eight_bits:
        return f"No SDOT on {device}: {name} multiplies in 16-bit MLAL, {share}."
    return f"{name} uses {used[0]}{' and no SDOT' if used[0] == 'MLAL' else ''}: {share}."


# ------------------------------------------------------------------ table and figure


def _shown(report: Report) -> list[tuple[str, Counted]]:
    return [(v.name, v.count) for v in report.variants if v.count]


def _classes(shown: Sequence[tuple[str, Counted]]) -> list[str]:
    """Every class that some variant uses, the one that is used most first."""
    names = dict.fromkeys(c for _, counted in shown for c in counted.classes)
    most = {c: max(counted.classes.get(c, 0) for _, counted in shown) for c in names}
    return sorted((c for c in names if most[c]), key=lambda c: -most[c])


def table(report: Report) -> TextTable:
    """Instructions per inference of each variant, and what part of them each class is."""
    shown = _shown(report)
    classes = _classes(shown)
    head = ("variant", "per inference", "to the best", *classes, "other", "processes")
    fewest = min((counted.instructions for _, counted in shown), default=1)
    rows = []
    for name, counted in shown:
        whole, other = counted.instructions, counted.instructions - sum(counted.classes.values())
        parts = [_part(n, whole) for n in (*(counted.classes.get(c, 0) for c in classes), other)]
        agreed = f"{len(counted.processes)} alike" if counted.identical else _apart(counted.processes)
        rows.append((name, f"{whole:,}", f"{significant(whole / fewest, 3)}×", *parts, agreed))
    return TextTable("Instructions per inference (simulated)", head, tuple(rows))


def _apart(processes: Sequence[int]) -> str:
    return f"{len(processes)} from {min(processes):,} to {max(processes):,}"


def _part(n: int, whole: int) -> str:
    return f"{n:,} ({significant(100 * n / whole, 2)} %)" if n and whole else DASH


def figure(report: Report) -> Figure:
    """A bar per variant made of its classes: hollow and dashed, as everything simulated."""
    shown = _shown(report)
    title = "Instructions per inference: which kernels the device makes each variant use"
    if not shown:
        return Figure("instructions", title, "")
    classes = _classes(shown)
    values = [segment for name, counted in shown for segment in _segments(name, counted, classes)]
    sources = sorted({v.numbers[COUNTED].source for v in report.variants if v.count})
    caption = f"Counted, not timed: simulated by {'; '.join(sources)}. Shorter is better, and need not be faster. "
    caption += "Dashed and hollow is simulated; grey is all that is in no class."
    return Figure("instructions", title, caption, (Panel("", _spec(values, len(shown))),))


def _segments(label: str, counted: Counted, classes: Sequence[str]) -> Iterator[dict[str, Json]]:
    other = counted.instructions - sum(counted.classes.values())
    begin = 0
    for place, (name, n) in enumerate([*((c, counted.classes.get(c, 0)) for c in classes), ("other", max(0, other))]):
        if not n:
            continue
        colour = "var(--c0)" if name == "other" else f"var(--c{1 + place % 6})"
        says = f"{label}, {name}: {n:,} of {counted.instructions:,} instructions"
        ends = {"a": begin, "b": begin + n, "middle": begin + n / 2}
        yield {"label": label, "class": name, **ends, "fill": colour, "opacity": 0.14, "says": says}
        begin += n


def _spec(values: Values, bars: int) -> dict[str, Json]:
    y = labels()
    x = quantity("a", axis("instructions", grid=True, format="~s"), zero=True)
    mark = {"type": "bar", "height": 22, "strokeDash": [4, 2], "strokeWidth": 1.2}
    segments = described(values, mark, "instructions", x=x, x2={"field": "b"}, y=y, **paint())
    longest = max(v["b"] for v in values)
    wide = [v for v in values if v["b"] - v["a"] > NAMED * longest]
    words = {"type": "text", "fontSize": 10, "color": "var(--ink)"}
    named = layer(wide, words, x={**x, "field": "middle"}, y=y, text={"field": "class", "type": "nominal"})
    return unit(46 + 34 * bars, [segments, named])


def apart(report: Report) -> list[str]:
    """Variants whose processes counted differently: no figure of theirs is exact."""
    shown = [(v.name, v.count) for v in report.variants if v.count and known(v.numbers[COUNTED])]
    apart = [(name, counted.processes) for name, counted in shown if not counted.identical]
    return [f"{name}: its processes did not count alike ({_apart(processes)})." for name, processes in apart]
