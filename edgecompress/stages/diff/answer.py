"""What `diff` says of two models that ran: their outputs, what is aligned, where they depart, the kind of fault."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, Any, TypedDict

from edgecompress.core.errors import InputError
from edgecompress.stages.diagnose.align import Axes
from edgecompress.stages.diagnose.noise import Power
from edgecompress.stages.diff import departure, kinds, match, rounding
from edgecompress.stages.diff import graphs as drawn
from edgecompress.stages.diff.ends import EndFacts
from edgecompress.stages.diff.sides import Side
from edgecompress.stages.diff.words import WEIGHTED, family

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.watched_graph import WatchedOperator

NAMES = ("A", "B")
WORST = 3  # items that are named
FOLDED = ("batch norm", "activation", "norm")  # families that other formats fold into the operator beside them
FUSED = 6  # operators that another format may have as one
LISTED = 40  # operators without a counterpart that are listed


class OutputDiff(TypedDict):
    """An output of both: its SQNR in dB (None: equal to the bit), the largest difference, the items farthest apart."""

    a: str
    b: str
    sqnr_db: float | None
    largest: float
    range: float
    worst: list[int]


def facts(a: Side, b: Side, ends: EndFacts, graphs: bool = False) -> dict[str, Any]:
    """The whole answer as plain data; `graphs`: with both, for the page."""
    precision = "int8" if a.quantized or b.quantized else "float16" if a.half or b.half else "float32"
    rows, near = _outputs(a, b, ends["outputs"])
    pairs = match.pairs(a, b)
    weights_alone = precision == "float16" and not (a.half_values or b.half_values)
    level = departure.LEVELS[departure.HALF_WEIGHTS if weights_alone else precision]
    limit = departure.limit([pair.near_db for pair in pairs.of_a.values()], level)
    unlike = [row for row in rows if row["sqnr_db"] is not None and row["sqnr_db"] < limit]
    answer: dict[str, Any] = {
        "precision": precision,
        "limit_db": limit,
        "outputs": rows,
        "assumed": ends["assumed"],
        "unread": [name for name, side in zip(NAMES, (a, b), strict=True) if side.changed],
        "first": None,
        "kind": "",
        "says": "",
        "do": "",
    }
    least = limit + level.stricter
    equal_a = departure.equal_values(a, {key: pair.near_db for key, pair in pairs.of_a.items()}, level, least)
    equal_b = departure.equal_values(b, {key: pair.near_db for key, pair in pairs.of_b.items()}, level, least)
    answer["aligned"] = _aligned(a, b, pairs, equal_a, equal_b)
    answer |= _verdict(unlike, rows, near)
    if unlike and not answer["kind"]:
        if precision == "int8":
            found = rounding.departure(a, b, pairs)
        else:
            apart = [(a.ends.get(row["a"], ""), b.ends.get(row["b"], "")) for row in unlike]
            found = departure.first(a, b, apart, pairs, (equal_a, equal_b), level)
        if found is not None and ends["by_place"] and any(key not in a.makers for key in found.reads_a):
            which = ", ".join(ends["by_place"])
            says = f"inputs {which} of A have no like names in B and were paired by their place; tell it with --map"
            answer |= {"verdict": "undecided", "says": says}
        elif found is not None:
            answer |= _first(a, b, found, precision)
    if graphs:
        answer["graph"] = drawn.graphs(a, b, pairs.aligned, (equal_a, equal_b))
    return answer


# --------------------------------------------------------------------------- outputs


def _outputs(a: Side, b: Side, pairs: Mapping[str, str]) -> tuple[list[OutputDiff], dict[tuple[str, str], float]]:
    """A row for each output of both, and how near each of A's is to each of B's, in dB."""
    rows, near = list[OutputDiff](), dict[tuple[str, str], float]()
    for name, other in pairs.items():
        for second in pairs.values():
            if (laid := _laid(a.outputs[name], b.outputs[second])) is None:
                continue
            power = Power()
            power.add(a.outputs[name], laid)
            near[name, second] = 200.0 if power.sqnr_db is None and not power.noise else power.sqnr_db or -200.0
            if second == other:
                rows.append(_row(name, other, a.outputs[name], laid, power))
        if (name, other) not in near:
            shapes = [[*each.shape[1:]] for each in (a.outputs[name], b.outputs[other])]
            raise InputError(
                f"output '{name}' of A is {shapes[0]}, '{other}' of B {shapes[1]}: they have other sizes; "
                f"give models of one task, or tell the output: --map {name}=NAME"
            )
    return rows, near


def _laid(x: np.ndarray, z: np.ndarray) -> np.ndarray | None:
    """B's output in A's shape, in the order of axes in which it is nearest."""
    if x.size != z.size:
        return None
    shape, other = x.shape[1:], z.shape[1:]
    orders: list[Axes] = match.orders(other, shape)

    def near(order: Axes) -> float:
        power = Power()
        power.add(x, match.laid_out(z, order, shape))
        return -power.noise

    return match.laid_out(z, max(orders, key=near), shape)


def _row(name: str, other: str, x: np.ndarray, z: np.ndarray, power: Power) -> OutputDiff:
    import numpy as np

    apart = np.abs(np.nan_to_num(z.astype(np.float64) - x)).reshape(len(x), -1).max(axis=1)
    fine = x[np.isfinite(x)]
    far = -200.0 if power.noise and not power.signal else None
    if not np.isfinite(z).all() and np.isfinite(x).all():
        far = -200.0
    return {
        "a": name,
        "b": other,
        "sqnr_db": far if far is not None else power.sqnr_db if power.noise else None,
        "largest": float(apart.max()),
        "range": float(fine.max() - fine.min()) if fine.size else 0.0,
        "worst": [int(i) for i in np.argsort(-apart)[:WORST] if apart[i] > 0],
    }


def _verdict(
    unlike: Sequence[OutputDiff], rows: Sequence[OutputDiff], near: Mapping[tuple[str, str], float]
) -> dict[str, Any]:
    """The word for the whole, and outputs that changed places."""
    if not unlike:
        still = all(row["range"] == 0 for row in rows)
        return (
            {"verdict": "undecided", "says": "every output of A is constant on these items: give other data"}
            if still
            else {"verdict": "equal"}
        )
    ours, theirs = [row["a"] for row in rows], [row["b"] for row in rows]
    if 2 <= len(rows) <= 6:
        now = {row["a"]: near[row["a"], row["b"]] for row in rows}
        for order in permutations(theirs):
            then = {name: near.get((name, other), -300.0) for name, other in zip(ours, order, strict=True)}
            changed = [name for name, other, old in zip(ours, order, theirs, strict=True) if other != old]
            if (
                changed
                and all(then[n] >= min(now.values()) + 20 and then[n] > 20 for n in changed)
                and all(then[n] >= now[n] for n in ours)
            ):
                pairs = ", ".join(f"{n} of A is {o} of B" for n, o in zip(ours, order, strict=True))
                return {
                    "verdict": "differ",
                    "kind": "swapped outputs",
                    "says": f"the outputs are equal in another order: {pairs}",
                    "do": kinds.DO["swapped outputs"],
                }
    return {"verdict": "differ"}


# --------------------------------------------------------------------------- where they depart


def _first(a: Side, b: Side, found: departure.Departure, precision: str) -> dict[str, Any]:
    """The departure in words."""
    kind = kinds.kind(a, b, found, precision)
    ours, theirs = kind.a or found.a, kind.b or found.b
    narrow = family(ours.type) in WEIGHTED and family(theirs.type) not in WEIGHTED
    first = {
        "a": ours.name,
        "b": theirs.name,
        "type": ours.type,
        "type_b": theirs.type,
        "module": (theirs.module if narrow and theirs.module else ours.module) or theirs.module,
        "sqnr_db": found.pair.near_db,
        "inputs_db": found.inputs_db,
        "reads": list(found.reads_a),
        "segment": [op.name for op in found.segment_a],
        "segment_b": [op.name for op in found.segment_b],
        "value_a": found.pair.a,
        "value_b": found.pair.b,
    }
    return {"first": first, "kind": kind.kind, "says": kind.says, "do": kinds.DO.get(kind.kind, kinds.DO["operator"])}


# --------------------------------------------------------------------------- what is aligned


def _aligned(
    a: Side,
    b: Side,
    pairs: match.Pairs,
    equal_a: set[str],
    equal_b: set[str],
) -> dict[str, Any]:
    """How many operators of A have a counterpart: a value that is equal, or the pair that the order gives."""
    aligned = pairs.aligned
    rows = [
        op
        for op in a.operators
        if family(op.type) not in ("move", "part", "rounding") and any(v in a.values for v in op.writes)
    ]

    def known(op: WatchedOperator) -> bool:
        if any(value in equal_a or value in aligned for value in op.writes):
            return True
        # what B computes along with the operators behind it: those of one kernel, up to a value that B has, too
        chain = _behind(a, op, equal_a | {*aligned})
        pair = aligned.get(chain) or pairs.of_a.get(chain)
        if pair is None:
            return False
        there = [family(each.type) for each in b.between(pair.b, equal_b - {pair.b})]
        return family(op.type) in there or (family(op.type) in FOLDED and bool(there))

    compute = [op for op in rows if family(op.type) in WEIGHTED]
    left = [op for op in rows if not known(op)]
    rest = [op.name for op in sorted(left, key=lambda op: family(op.type) not in WEIGHTED)]
    return {
        "operators": len(rows) - len(left),
        "of": len(rows),
        "equal": sum(any(v in equal_a for v in op.writes) for op in rows),
        "compute": len(compute) - sum(family(op.type) in WEIGHTED for op in left),
        "compute_of": len(compute),
        "rest": rest[:LISTED],
        "rest_b": [
            op.name
            for op in b.operators
            if family(op.type) in WEIGHTED
            and not any(v in equal_b or v in {p.b for p in aligned.values()} for v in op.writes)
        ][:LISTED],
    }


def _behind(side: Side, op: WatchedOperator, known: set[str]) -> str:
    """The first value that the other model has, behind an operator that has one reader, as all up to there have."""
    value = next(iter(op.writes), "")
    for _ in range(FUSED):
        readers = side.readers.get(value, [])
        if len(readers) != 1:
            return ""
        value = next(iter(readers[0].writes), "")
        if value in known:
            return value
    return ""
