"""Which input and output of one model is which of the other: by what is told, by name, by shape, by order."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Artifact, Dim, Request, Shape, TensorSpec
from edgecompress.data import states, tensors

if TYPE_CHECKING:
    import numpy as np

KIND = "samples"
PLACE = "by its place among those of its shape"
DECORATED = re.compile(r"^(serving_default_|input\.|x\.)|(:\d+|_args_\d+)$")  # what exporters put around a name


class EndFacts(TypedDict):
    """Of the items for B: {A's output: B's}, what was assumed, the batch that both run."""

    inputs: dict[str, str]
    outputs: dict[str, str]
    assumed: list[str]
    batch: int
    by_place: list[str]  # inputs of A that nothing but their order tells apart


def items(request: Request) -> Artifact:
    """The stage: the items of "samples", A's, as B takes them; inputs "a", "b", "samples"; options: "split", "items",
    "map" {A's name: B's}.

    Raises InputError where the two take, or give, nothing in common.
    """
    a, b, samples = (request.inputs[role] for role in ("a", "b", "samples"))
    told: Mapping[str, str] = request.options["map"]
    _check_told(told, a, b)
    batch = _batch(a, b, request.context.batch)
    stored = tensors.check_inputs(a, samples)
    fed = [spec for spec in a.inputs if spec.name in stored and spec.name not in states.names(a)]
    theirs = [spec for spec in b.inputs if spec.name not in states.names(b)]
    inputs, assumed = _paired(fed, theirs, told, "input")
    if missing := [spec.name for spec in theirs if spec.name not in inputs.values()]:
        spec = next(s for s in theirs if s.name == missing[0])
        have = ", ".join(f"{s.name} {_shown(s.shape)} {s.dtype}" for s in fed)
        told_how = f"; tell which one it is: --map NAME={spec.name}" if any(_fits(s, spec) for s in fed) else ""
        raise InputError(
            f"B takes '{spec.name}' {_shown(spec.shape)} {spec.dtype}, which is no input of A: {have}{told_how}"
        )
    split, count = request.options["split"], request.options["items"]
    specs = list[TensorSpec]()
    arrays: dict[str, np.ndarray] = {}
    for spec in fed:
        if stored[spec.name] != spec.name:
            assumed.append(f"the data's {stored[spec.name]} is input {spec.name} of A")
        if spec.name not in inputs:
            assumed.append(f"A's input {spec.name} is no input of B, and is left out there")
            continue
        target = next(s for s in theirs if s.name == inputs[spec.name])
        array = tensors.load(samples, split, stored[spec.name])[:count]
        order = _order(spec, target, array.shape[1:])
        if not order and not tensors.fits(target.shape[1:], array.shape[1:]) and len(target.shape) == array.ndim:
            sizes = f"'{spec.name}' of A is {_shown(spec.shape)}, '{target.name}' of B {_shown(target.shape)}"
            raise InputError(f"the models take other sizes: {sizes}; export both for one size")
        if order:
            assumed.append(f"{target.name} of B is {spec.name} of A with its axes in the order {[0, *order]}")
        arrays[target.name] = array if not order else array.transpose((0, *order))
        kept = next(s for s in samples.inputs if s.name == stored[spec.name])
        shape = (kept.shape[0], *arrays[target.name].shape[1:]) if kept.shape else ()
        specs.append(dataclasses.replace(kept, name=target.name, shape=shape, layout=""))
    writer = tensors.Appender(request.out / split)
    writer.append(arrays)
    writer.close()
    places = [name for name in inputs if any(PLACE in each and f"input {name} " in each for each in assumed)]
    outputs, more = _paired(_given(a), _given(b), told, "output")
    if not outputs:
        sides = [", ".join(f"{s.name} {_shown(s.shape)}" for s in _given(side)) for side in (a, b)]
        raise InputError(f"the models have no output in common: A gives {sides[0]}; B gives {sides[1]}")
    facts: EndFacts = {
        "inputs": inputs,
        "outputs": outputs,
        "assumed": [*assumed, *more],
        "batch": batch,
        "by_place": places,
    }
    return Artifact(request.out, KIND, tuple(specs), facts={**facts}).write()


def _given(model: Artifact) -> list[TensorSpec]:
    return [spec for spec in model.outputs if not spec.feeds]


def _check_told(told: Mapping[str, str], a: Artifact, b: Artifact) -> None:
    for name, other in told.items():
        for which, side, word in (("A", a, name), ("B", b, other)):
            have = [spec.name for spec in (*side.inputs, *side.outputs)]
            if word not in have:
                raise InputError(f"--map {name}={other}: {which} has no '{word}'{did_you_mean(word, have)}")


def _batch(a: Artifact, b: Artifact, asked: int) -> int:
    """The batch of both: one that is fixed, else the one that was asked for."""
    fixed = [side.batch for side in (a, b) if isinstance(side.batch, int)]
    if len(fixed) == 2 and fixed[0] != fixed[1]:
        raise InputError(f"A takes {fixed[0]} items at once, B {fixed[1]}; export both with one batch, or give --batch")
    return fixed[0] if fixed else asked


def _shown(shape: Shape) -> str:
    return f"[{', '.join(d.name if isinstance(d, Dim) else str(d) for d in shape)}]"


def _paired(
    ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec], told: Mapping[str, str], what: str
) -> tuple[dict[str, str], list[str]]:
    """{A's name: B's}, and what was assumed: names first, then shapes that one of each has, then the order."""
    names = {s.name for s in theirs}
    pairs = {s.name: told[s.name] for s in ours if told.get(s.name) in names}
    pairs |= {s.name: s.name for s in ours if s.name in names and s.name not in pairs and s.name not in pairs.values()}
    left_a = [s for s in ours if s.name not in pairs]
    left_b = [s for s in theirs if s.name not in pairs.values()]
    assumed = list[str]()
    bare = {DECORATED.sub("", s.name): s.name for s in left_b}
    for spec in [s for s in left_a if DECORATED.sub("", s.name) in bare]:
        pairs[spec.name] = bare[DECORATED.sub("", spec.name)]
    left_a = [s for s in left_a if s.name not in pairs]
    left_b = [s for s in left_b if s.name not in pairs.values()]
    for spec in left_a:
        alike = [s for s in left_b if _fits(spec, s) and s.name not in pairs.values()]
        rivals = [s for s in left_a if alike and _fits(s, alike[0]) and s.name not in pairs]
        if alike and (len(alike) == 1 or len(rivals) == len(alike)):
            pairs[spec.name] = alike[0].name
            of_shape = [s for s in ours if _fits(s, alike[0])], [s for s in theirs if _fits(spec, s)]
            by = "the only one of its shape" if len(of_shape[0]) == len(of_shape[1]) == 1 else PLACE
            assumed.append(f"{what} {spec.name} of A is {alike[0].name} of B: {by}")
    return pairs, assumed


def _fits(a: TensorSpec, b: TensorSpec) -> bool:
    """Whether the sizes, in some order, are the same: an axis of any size is every size."""
    if len(a.shape) != len(b.shape):
        sizes = [[d for d in s.shape if isinstance(d, int) and d != 1] for s in (a, b)]
        return sizes[0] == sizes[1]
    fixed = [sorted(d for d in s.shape if isinstance(d, int)) for s in (a, b)]
    return fixed[0] == fixed[1] or any(isinstance(d, Dim) for d in (*a.shape, *b.shape))


def _order(a: TensorSpec, b: TensorSpec, item: tuple[int, ...]) -> tuple[int, ...]:
    """The axes of A's items, from 1 on, in B's order; () where it is the same."""
    wanted = b.shape[1:]
    if len(wanted) != len(item) or tensors.fits(wanted, item):
        return ()
    known = [(1, 2, 0), (2, 0, 1)] if len(item) == 3 else []
    for p in [*known, *permutations(range(len(item)))]:
        if tensors.fits(wanted, tuple(item[i] for i in p)):
            return tuple(i + 1 for i in p)
    return ()
