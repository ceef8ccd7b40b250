"""A net's operators as one drawing: coloured, filtered and opened by inputs, links and <details>, without a script."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from edgecompress.reporting.formatting import plain, plural
from edgecompress.reporting.html_tags import Raw, bdi, tag, void

MOST = 5_000  # operators that are drawn
PLAIN = 48  # boxes of one drawing; more are folded
CROWD = 3  # boxes that read an input which is still drawn
FEW = 8  # names that are listed
DEPTH = 12  # parts of a module's path
RUN = 24  # operators of the shortest fold where no modules are known
WIDE, HIGH = 200, 74  # of a box with the space around it
BOX, TALL = 172, 46  # of a box
NO_LAYOUT = "The graph is not drawn: this machine has no fast-sugiyama (pip install fast-sugiyama)."
NOTHING = "The file gives no graph of operators."
# Least dB and share of the time of each class, the worst last
DECIBELS = ((40.0, "e1", "40 dB and more"), (30.0, "e2", "30 – 40"), (20.0, "e3", "20 – 30"), (10.0, "e4", "10 – 20"))
LOUD = ("e5", "below 10 dB")
SHARES = (
    (0.1, "t5", "10 % of the time and more"),
    (0.03, "t4", "3 – 10"),
    (0.01, "t3", "1 – 3"),
    (0.003, "t2", "0.3 – 1"),
)
QUICK = ("t1", "below 0.3 %")
DTYPES = {
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "f16",
    "int16": "i16",
    "int8": "i8",
    "int4": "i4",
    "int2": "i4",
}
WORDS = {
    "f32": "float32",
    "f16": "float16",
    "i16": "int16",
    "i8": "int8",
    "i4": "int4 and narrower",
    "dx": "other",
    "dm": "mixed",
}
KINDS = 12  # types that have a filter of their own
COLOURS = (("error", "Error"), ("time", "Time"), ("dtype", "Precision"))


@dataclass(frozen=True)
class Spread:
    """A histogram: one more edge than counts; `others`: the same bins of the other net."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    others: tuple[int, ...] = ()


@dataclass(frozen=True)
class GraphNode:
    """An operator. `reads`: names of nodes, or of inputs of the net; `error_db`: its SQNR to the other file."""

    name: str
    type: str
    reads: tuple[str, ...]
    module: str = ""  # a path such as "layer1.0.conv1"
    dtype: str = ""
    error_db: float | None = None
    exact: bool = False
    ms: float | None = None
    facts: tuple[tuple[str, str], ...] = ()
    values: Spread | None = None
    other: str = ""  # the operator of the other net that it is aligned with
    mark: str = ""  # why it is marked

    @property
    def departs(self) -> bool:
        """Whether it is marked or has an error."""
        return bool(self.mark) or (self.error_db is not None and not self.exact)


@dataclass(frozen=True)
class _Fold:
    """Operators behind one box."""

    title: str
    nodes: tuple[GraphNode, ...]
    module: str = ""


_Item: TypeAlias = "GraphNode | _Fold"


def style() -> str:
    """The CSS of a view, behind that of the report."""
    return (Path(__file__).parent / "graph_view.css").read_text(encoding="utf-8")


def view(nodes: Sequence[GraphNode], beside: Sequence[GraphNode] = (), titles: tuple[str, str] = ("A", "B")) -> Raw:
    """The drawing of one net, or of two side by side; one line where it cannot be drawn."""
    if not nodes:
        return tag("p", NOTHING, class_="empty")
    if max(len(nodes), len(beside)) > MOST:
        return tag("p", f"The graph is not drawn: it has more than {MOST:,} operators.", class_="empty")
    try:
        import fast_sugiyama  # noqa: F401
    except ImportError:
        return tag("p", NO_LAYOUT, class_="empty")
    every = [*nodes, *beside]
    key = hashlib.sha256(repr((titles, [(n.name, n.type) for n in every])).encode()).hexdigest()[:8]
    kinds = [kind for kind, _ in Counter(n.type for n in every).most_common()]
    kinds = kinds if len(kinds) <= KINDS else kinds[: KINDS - 1]
    names = {name: i for i, name in enumerate(kinds)}
    known, far = {n.name for n in beside}, {n.other: n.name for n in reversed(nodes) if n.other}
    pairs = {n.name: n.other if n.other in known else "" for n in nodes}
    backs = {n.name: far.get(n.name, "") for n in beside}
    numbers = {n.name: i for i, n in enumerate((n for n in nodes if pairs[n.name]), 1)}
    side = _Side(f"g{key}", nodes, names, {k: str(i) for k, i in numbers.items()}, f"g{key}b", pairs)
    sides = [(titles[0], side)]
    if beside:
        told = {name: str(numbers[back]) for name, back in backs.items() if back}
        sides.append((titles[1], _Side(f"g{key}b", beside, names, told, f"g{key}", backs)))
        side.links, sides[1][1].links = sides[1][1].places, side.places
    drawn = [
        tag("div", tag("h3", bdi(_cut(title))), each.drawing(), class_="side") if beside else each.drawing()
        for title, each in sides
    ]
    return tag(
        "div",
        _controls(f"g{key}", every, kinds),
        *(each.marks() for _, each in sides),
        tag("div", drawn, class_="sides two" if beside else "sides"),
        class_="graph",
    )


def _controls(key: str, nodes: Sequence[GraphNode], kinds: Sequence[str]) -> Raw:
    """The colours, with what each means, and the filters; only those that tell operators apart."""
    has = {
        "error": any(n.exact or n.error_db is not None for n in nodes),
        "time": any(n.ms is not None for n in nodes),
        "dtype": any(n.dtype for n in nodes),
    }
    chosen = [(name, title) for name, title in COLOURS if has[name]]
    radios = []
    for i, (name, title) in enumerate(chosen):
        first = {"checked": ""} if not i else {}
        radio = void("input", type="radio", name=f"{key}-by", class_=f"by-{name}", **first)
        radios.append(tag("label", radio, " ", title))
    parts = [tag("fieldset", tag("legend", "Colour"), radios)] if radios else []
    options = [tag("option", "all", class_="all")]
    options += [tag("option", _cut(kind, 40), class_=f"k{i}") for i, kind in enumerate(kinds)]
    if len({n.type for n in nodes}) > len(kinds):
        options.append(tag("option", "other types", class_=f"k{KINDS - 1}"))
    parts.append(tag("label", "Type ", tag("select", options)))
    if any(n.departs for n in nodes):
        only = void("input", type="checkbox", class_="only")
        parts.append(tag("label", only, " only what departs or has an error"))
    return tag(
        "div", tag("div", parts, class_="choices"), *_legends(nodes, [name for name, _ in chosen]), class_="choose"
    )


def _legends(nodes: Sequence[GraphNode], chosen: Sequence[str]) -> Iterator[Raw]:
    held = {_dtype({n.dtype}) for n in nodes}
    rows = {
        "error": [("e0", "exact"), *((c, w) for _, c, w in DECIBELS), LOUD],
        "time": [QUICK, *((c, w) for _, c, w in reversed(SHARES))],
        "dtype": [(c, w) for c, w in WORDS.items() if c in held],
    }
    for name in chosen:
        keys = [tag("li", tag("span", class_=f"patch {c}"), " ", w) for c, w in rows[name]]
        yield tag("ul", keys, tag("li", tag("span", class_="patch"), " unknown"), class_=f"legend {name}")


@dataclass
class _Side:
    """One net: its ids begin with `key`; `numbers` are shown of aligned operators, `pairs` name their partners."""

    key: str
    nodes: Sequence[GraphNode]
    kinds: Mapping[str, int]
    numbers: Mapping[str, str]
    other: str
    pairs: Mapping[str, str]
    links: Mapping[str, int] = field(default_factory=dict)  # the places of the other net's
    folds: int = 0

    def __post_init__(self) -> None:
        self.places = {n.name: i for i, n in enumerate(self.nodes)}
        self.total = sum(n.ms or 0.0 for n in self.nodes)

    def drawing(self) -> Raw:
        """The whole net."""
        return self._drawn(tuple(self.nodes), "", "Graph of the operators")

    def marks(self) -> Raw:
        """Links to the marked operators."""
        marked = [n for n in self.nodes if n.mark][:PLAIN]
        rows = [tag("li", self._link(n.name), ": ", bdi(_cut(n.mark))) for n in marked]
        return tag("ul", rows, class_="marks") if rows else Raw("")

    def _drawn(self, nodes: tuple[GraphNode, ...], module: str, title: str) -> Raw:
        """A drawing, and under it those of its folds."""
        items = _folded(nodes, module)
        inside = {
            n.name: i for i, item in enumerate(items) for n in (item.nodes if isinstance(item, _Fold) else (item,))
        }
        reads = dict.fromkeys((r, inside[n.name]) for n in nodes for r in n.reads)
        readers = Counter(name for name, _ in reads if name not in inside)
        # What many read would stretch the drawing: it is named below
        crowd = [(name, count) for name, count in readers.items() if count > CROWD and name not in self.places]
        outside = [name for name in readers if name not in dict(crowd)]
        ends = {name: len(items) + i for i, name in enumerate(outside[:PLAIN])}
        at = inside | ends
        # each line leads on: folds can read each other, and the library never ends on a circle
        begins = [self.places[(item.nodes[0] if isinstance(item, _Fold) else item).name] for item in items]
        rank = [*begins, *(-1 for _ in ends)]
        edges = dict.fromkeys((at[r], i) for r, i in reads if r in at and rank[at[r]] < rank[i])
        spots, lines = _layout(len(items) + len(ends), list(edges))
        first, boxes, folds = self.folds, [], []
        self.folds += sum(isinstance(item, _Fold) for item in items)
        for i, item in enumerate(items):
            if isinstance(item, GraphNode):
                boxes.append((spots[i][1], self._box(item, _place(spots[i]))))
                continue
            first += 1
            boxes.append((spots[i][1], self._group(item, first, _place(spots[i]))))
            body = self._drawn(item.nodes, item.module, item.title)
            summary = tag("summary", bdi(_cut(item.title)), f" ({plural(len(item.nodes), 'operator')})")
            inner = tag("div", body, id=f"{self.key}f{first}")
            folds.append(tag("details", summary, inner, class_=f"fold {self._classes(item.nodes)}"))
        boxes += [(spots[i][1], self._end(name, _place(spots[i]))) for name, i in ends.items()]
        width = max(x for x, _ in spots) + BOX
        height = max(y for _, y in spots) + TALL
        frames = "".join(f"M{x + 3:.0f} {y + 3:.0f}h{BOX - 6}v{TALL - 6}h{6 - BOX}z" for x, y in spots[: len(items)])
        paths = f'<path class="frames" d="{frames}"/><path d="{lines}"/>'
        picture = f'<svg class="edges" width="{width:.0f}" height="{height:.0f}" aria-hidden="true">{paths}</svg>'
        ordered = [box for _, box in sorted(boxes, key=lambda each: each[0])]
        canvas = tag("div", Raw(picture), ordered, class_="canvas", style=f"width:{width:.0f}px;height:{height:.0f}px")
        box = tag("div", canvas, class_="drawing", tabindex="0", role="region", aria_label=_cut(title))
        inputs = [part for name, count in crowd[:FEW] for part in (bdi(_cut(name, 60)), f" (read by {count} boxes) ")]
        left = tag("p", "Inputs without lines: ", *inputs, class_="empty") if inputs else Raw("")
        return Raw(box + left + "".join(folds))

    def _classes(self, nodes: Sequence[GraphNode]) -> str:
        """What colours and filters go by."""
        kinds = sorted({self.kinds.get(n.type, KINDS - 1) for n in nodes})
        found = [*(f"k{k}" for k in kinds), _error(nodes)[0], self._time(nodes)[0], _dtype({n.dtype for n in nodes})]
        found += ["dev"] if any(n.departs for n in nodes) else []
        return " ".join(filter(None, [*found, "flagged" if any(n.mark for n in nodes) else ""]))

    def _time(self, nodes: Sequence[GraphNode]) -> tuple[str, str]:
        """The class and the words of their time."""
        timed = [n.ms for n in nodes if n.ms is not None]
        if not timed:
            return "", ""
        share = sum(timed) / self.total if self.total else 0.0
        return next((c for least, c, _ in SHARES if share >= least), QUICK[0]), plain(sum(timed), "ms")

    def _numbers(self, nodes: Sequence[GraphNode]) -> list[Raw]:
        """The number of each colour; the chosen one is shown."""
        held = sorted({n.dtype for n in nodes if n.dtype})
        told = {
            "error": _error(nodes)[1],
            "time": self._time(nodes)[1],
            "dtype": " + ".join(held[:2]) + " …" * (len(held) > 2),
        }
        return [tag("span", f" {_cut(words, 18)}", class_=f"n {name}") for name, words in told.items() if words]

    def _box(self, node: GraphNode, place: str) -> Raw:
        number = self.numbers.get(node.name, "")
        badge = [tag("span", number, class_="number"), " "] if number else []
        flag = [tag("span", "!", class_="flag", aria_label="marked:"), " "] if node.mark else []
        head = tag("span", *flag, *badge, tag("b", bdi(_cut(node.type, 24))), self._numbers([node]), class_="head")
        summary = tag("summary", head, tag("span", " ", bdi(_tail(node.name)), class_="name"), title=_cut(node.name))
        # The anchor is inside: a link to it opens the operator, and every fold around it.
        anchor = tag("span", id=f"{self.key}n{self.places[node.name]}", class_="anchor")
        classes = f"op {self._classes([node])}"
        return tag("details", summary, anchor, self._panel(node), class_=classes, style=place, name=self.key[:9])

    def _group(self, fold: _Fold, place: int, at: str) -> Raw:
        name = fold.title
        while fold.title == fold.module and len(name) > 14 and "." in name:
            name = name.split(".", 1)[1]
        head = tag("span", tag("b", bdi(_tail(name))), self._numbers(fold.nodes), class_="head")
        count = tag("span", " ", plural(len(fold.nodes), "operator"), class_="name")
        classes = f"op group {self._classes(fold.nodes)}"
        return tag("a", head, count, class_=classes, style=at, href=f"#{self.key}f{place}", title=_cut(fold.title))

    def _end(self, name: str, at: str) -> Raw:
        """What is read from outside of a drawing."""
        words = tag("span", bdi(_tail(name)), class_="name")
        if name in self.places:
            return tag("a", words, class_="end", style=at, href=f"#{self.key}n{self.places[name]}", title=_cut(name))
        return tag("span", tag("span", "input ", class_="kicker"), words, class_="end", style=at, title=_cut(name))

    def _link(self, name: str) -> Raw:
        """The name of an operator, which leads to it; of an input, only the name."""
        shown = bdi(_tail(name, 60))
        return tag("a", shown, href=f"#{self.key}n{self.places[name]}") if name in self.places else shown

    def _panel(self, node: GraphNode) -> Raw:
        """All that is known of an operator."""
        partner = self.pairs.get(node.name, "")
        rows: list[tuple[str, Raw | str]] = [("module", _tail(node.module, 160)), ("held as", node.dtype)]
        rows += [("error", _error([node])[1]), ("time", self._time([node])[1])]
        rows += [(_cut(label, 40), words) for label, words in node.facts[:PLAIN]]
        if node.reads:
            more = f" and {len(node.reads) - FEW} more" if len(node.reads) > FEW else ""
            rows.append(("reads", Raw(", ".join(map(self._link, node.reads[:FEW])) + more)))
        if partner in self.links:
            link = tag("a", bdi(_tail(partner, 60)), href=f"#{self.other}n{self.links[partner]}")
            rows.append((f"aligned as {self.numbers[node.name]} with", link))
        told = [
            part
            for label, words in rows
            if words
            for part in (tag("dt", label), tag("dd", words if isinstance(words, Raw) else bdi(_cut(words))))
        ]
        mark = tag("p", bdi(_cut(node.mark)), class_="why") if node.mark else Raw("")
        title = tag("p", tag("b", bdi(_cut(node.type, 40))), " ", bdi(_tail(node.name, 160)))
        return tag("div", title, mark, tag("dl", told), _histogram(node.values), class_="about")


# --------------------------------------------------------------------------- folds


def _folded(nodes: tuple[GraphNode, ...], module: str) -> list[_Item]:
    """Operators as they are where they are few, otherwise by the parts of their modules, otherwise in runs."""
    if len(nodes) <= PLAIN:
        return list(nodes)
    items = _parts(nodes, module)
    while len(items) <= PLAIN:  # the largest fold is opened here for as long as there is room for what it holds
        large = [item for item in items if isinstance(item, _Fold) and len(item.nodes) > PLAIN]
        parts = [(item, _parts(item.nodes, item.module)) for item in sorted(large, key=lambda fold: -len(fold.nodes))]
        found = next(((item, inner) for item, inner in parts if 1 <= len(inner) <= PLAIN + 1 - len(items)), None)
        if not found:
            if len(items) > 1:
                return items
            break
        place = items.index(found[0])
        items[place : place + 1] = found[1]
    size = max(RUN, math.ceil(len(nodes) / 40))
    runs = [nodes[i : i + size] for i in range(0, len(nodes), size)]
    return [_Fold(f"{_tail(run[0].name)} – {_tail(run[-1].name)}", run, module) for run in runs]


def _parts(nodes: tuple[GraphNode, ...], module: str) -> list[_Item]:
    """A fold for each next part of the modules below `module`; operators of no deeper module stand alone."""
    groups: dict[str, list[GraphNode]] = {}
    depth = module.count(".") + 1 if module else 0
    for node in nodes:
        parts = node.module.split(".", DEPTH) if node.module else []
        groups.setdefault(".".join(parts[: depth + 1]) if len(parts) > depth else "", []).append(node)
    loose = groups.pop("", [])
    folds: list[_Item] = [_Fold(name, tuple(g), name) if len(g) > 1 else g[0] for name, g in groups.items()]
    return [*folds, *loose]


# --------------------------------------------------------------------------- the drawing


def _layout(count: int, edges: Sequence[tuple[int, int]]) -> tuple[list[tuple[float, float]], str]:
    """The corners of boxes, by their numbers, and the path of all edges."""
    from fast_sugiyama import from_edges

    joined = sorted({end for edge in edges for end in edge})
    short = {end: i for i, end in enumerate(joined)}  # numbers from `len(joined)` on are bends of edges
    spots: dict[int, tuple[float, float]] = {}
    left, bent = 0.0, list[tuple[int, int]]()
    for placed, _, _, parts in (
        from_edges([(short[a], short[b]) for a, b in edges], vertex_spacing=100, dummy_size=20) if edges else ()
    ):
        least, top = min(x for _, (x, _) in placed), max(y for _, (_, y) in placed)
        for i, (x, y) in placed:
            spots[int(i)] = left + (x - least) / 100 * WIDE, (top - y) / 100 * HIGH
        left = max(x for x, _ in spots.values()) + WIDE
        bent += [(int(a), int(b)) for a, b in parts or ()]
    alone = [i for i in range(count) if i not in short]
    row = max((y for _, y in spots.values()), default=-HIGH) + HIGH
    wide = math.ceil(math.sqrt(len(alone)))
    at = {i: (k % wide * float(WIDE), row + k // wide * HIGH) for k, i in enumerate(alone)}
    at |= {end: spots[short[end]] for end in joined}
    return [at[i] for i in range(count)], "".join(_curve(spots, len(joined), a, b) for a, b in bent)


def _curve(spots: Mapping[int, tuple[float, float]], real: int, a: int, b: int) -> str:
    """From the lower side of a box, or a bend, to the upper side of the next, with the head of an arrow."""
    (x, y), (x2, y2) = spots[a], spots[b]
    start = y + (TALL if a < real else TALL / 2)
    end = y2 + (0 if b < real else TALL / 2)
    x, x2, middle = x + BOX / 2, x2 + BOX / 2, (start + end) / 2
    head = "m-4-6l4 6 4-6" if b < real else ""
    return f"M{x:.0f} {start:.0f}C{x:.0f} {middle:.0f} {x2:.0f} {middle:.0f} {x2:.0f} {end:.0f}{head}"


def _place(spot: tuple[float, float]) -> str:
    return f"left:{spot[0]:.0f}px;top:{spot[1]:.0f}px"


def _histogram(spread: Spread | None) -> Raw:
    """Bars, and those of the other net as a line."""
    if spread is None or not spread.counts or len(spread.edges) != len(spread.counts) + 1:
        return Raw("")
    most, wide = max(*spread.counts, *spread.others, 1), 300 / len(spread.counts)
    heights = [80 * count / most for count in spread.counts]
    bars = "".join(f"M{i * wide:.1f} 82v-{h:.1f}h{wide * 0.9:.1f}v{h:.1f}z" for i, h in enumerate(heights) if h)
    line = "".join(
        f"{'L' if i else 'M'}{i * wide:.1f} {82 - 80 * c / most:.1f}h{wide:.1f}" for i, c in enumerate(spread.others)
    )
    peak = max(range(len(heights)), key=heights.__getitem__)
    low, high = (f"{edge:.3g}" for edge in (spread.edges[0], spread.edges[-1]))
    near = " to ".join(f"{edge:.3g}" for edge in spread.edges[peak : peak + 2])
    says = f"Histogram of {sum(spread.counts):,} values from {low} to {high}, most of them from {near}"
    drawn = f'<path class="bars" d="{bars}"/>' + (f'<path class="line" d="{line}"/>' if line else "")
    svg = tag("svg", Raw(drawn), viewBox="0 0 300 84", role="img", aria_label=says)
    ends = tag(
        "p", tag("span", low), tag("span", "line: the other net") if line else "", tag("span", high), class_="ends"
    )
    return Raw(svg + ends)


# --------------------------------------------------------------------------- words


def _error(nodes: Sequence[GraphNode]) -> tuple[str, str]:
    """The class and the words of the largest error."""
    errors = [n.error_db for n in nodes if n.error_db is not None and not n.exact]
    if errors:
        worst = min(errors)
        return next((c for least, c, _ in DECIBELS if worst >= least), LOUD[0]), f"{worst:.1f} dB"
    return ("e0", "exact") if any(n.exact for n in nodes) else ("", "")


def _dtype(held: set[str]) -> str:
    kinds = {DTYPES.get(dtype.removeprefix("u"), "dx") for dtype in held if dtype}
    return "dm" if len(kinds) > 1 else next(iter(kinds), "")


def _cut(words: str, most: int = 160) -> str:
    return words if len(words) <= most else f"{words[: most - 1]}…"


def _tail(name: str, most: int = 22) -> str:
    """The end of a name, where names of one module differ."""
    return name if len(name) <= most else f"…{name[1 - most :]}"
