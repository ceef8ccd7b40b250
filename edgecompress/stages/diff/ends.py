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


Paired = tuple[dict[str, str], list[str]]  # {A's name: B's}, and what was assumed


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
    split, count = request.options["split"], request.options["items"]
    _check_told(told, a, b)
    batch = _batch(a, b, request.context.batch)
    stored = tensors.check_inputs(a, samples)
    fed = [spec for spec in a.inputs if spec.name in stored and spec.name not in states.names(a)]
    theirs = [spec for spec in b.inputs if spec.name not in states.names(b)]
    inputs, assumed = _paired(fed, theirs, told, "input")
    if missing := next((spec for spec in theirs if spec.name not in inputs.values()), None):
        have = ", ".join(f"{s.name} {_shown(s.shape)} {s.dtype}" for s in fed)
        hint = f"; tell which one it is: --map NAME={missing.name}" if any(_fits(s, missing) for s in fed) else ""
        takes = f"B takes '{missing.name}' {_shown(missing.shape)} {missing.dtype}"
        raise InputError(f"{takes}, which is no input of A: {have}{hint}")
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
        if order:
            assumed.append(f"{target.name} of B is {spec.name} of A with its axes in the order {[0, *order]}")
        arrays[target.name] = array.transpose((0, *order)) if order else array
        kept = next(s for s in samples.inputs if s.name == stored[spec.name])
        shape = (kept.shape[0], *arrays[target.name].shape[1:]) if kept.shape else ()
        specs.append(dataclasses.replace(kept, name=target.name, shape=shape, layout=""))
    writer = tensors.Appender(request.out / split)
    writer.append(arrays)
    writer.close()
    facts = _facts(a, b, told, (inputs, assumed), batch)
    return Artifact(request.out, KIND, tuple(specs), facts={**facts}).write()


def _facts(a: Artifact, b: Artifact, told: Mapping[str, str], paired: Paired, batch: int) -> EndFacts:
    """The inputs as they were paired, and the outputs. Raises InputError where no output is one of both."""
    inputs, assumed = paired
    places = [name for name in inputs if any(PLACE in each and f"input {name} " in each for each in assumed)]
    outputs, more = _paired(_given(a), _given(b), told, "output")
    if not outputs:
        sides = [", ".join(f"{s.name} {_shown(s.shape)}" for s in _given(side)) for side in (a, b)]
        raise InputError(f"the models have no output in common: A gives {sides[0]}; B gives {sides[1]}")
    return {
        "inputs": inputs,
        "outputs": outputs,
        "assumed": [*assumed, *more],
        "batch": batch,
        "by_place": places,
    }


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
        raise InputError(f"A takes {fixed[0]} items at once, B {fixed[1]}; export both with one batch")
    return fixed[0] if fixed else asked


def _shown(shape: Shape) -> str:
    return f"[{', '.join(d.name if isinstance(d, Dim) else str(d) for d in shape)}]"


def _paired(ours: Sequence[TensorSpec], theirs: Sequence[TensorSpec], told: Mapping[str, str], what: str) -> Paired:
    """Names first, then shapes that one of each has, then the order."""
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
    """The axes of A's items, from 1 on, in B's order; () where it is the same. Raises InputError for other sizes."""
    wanted = b.shape[1:]
    if len(wanted) != len(item) or tensors.fits(wanted, item):
        return ()
    known = [(1, 2, 0), (2, 0, 1)] if len(item) == 3 else []  # those of images come first
    for p in [*known, *permutations(range(len(item)))]:
        if tensors.fits(wanted, tuple(item[i] for i in p)):
            return tuple(i + 1 for i in p)
    sizes = f"'{a.name}' of A is {_shown(a.shape)}, '{b.name}' of B {_shown(b.shape)}"
    raise InputError(f"the models take other sizes: {sizes}; export both for one size")
