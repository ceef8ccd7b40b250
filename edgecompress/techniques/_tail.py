"""What int8 leaves in float at the end of a net that finds things: what follows its last layers, and makes boxes.

There, lengths in pixels, probabilities and numbers of classes are put together: on one scale of 8 bits the boxes leave
the probabilities nothing, what is chosen by rounded ones is chosen by chance, and things rank by some 200 scores.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# layer: multiplies with weights; choice: picks by rank, or among boxes; share, softmax: makes probabilities; move:
# hands on the numbers that it reads; scale: multiplies them; join: puts several tensors into one; sum: of an axis;
# grow: a power of e, of which the sizes of boxes are made; place: adds where each cell lies
Role = Literal["layer", "choice", "share", "softmax", "move", "scale", "join", "sum", "grow", "place", ""]


@dataclass(frozen=True)
class Step:
    """An operator of a graph; `inputs` are the tensors that it computes from, without constants."""

    name: str
    role: Role
    inputs: Sequence[Hashable]
    outputs: Sequence[Hashable]


def tail(steps: Sequence[Step]) -> list[str]:
    """The names of the operators behind the last layers, where they make boxes.

    They do where one of them chooses, adds places, joins probabilities with others, takes the expectation over a
    softmax (of the bins of a box's sides: as a product with weights it is no layer), or makes sizes beside
    probabilities. `steps` are in the order of computing.
    """
    makers = {tensor: step for step in steps for tensor in step.outputs}
    behind, leading = list[Step](), set[Hashable]()  # to a layer
    for step in reversed(steps):
        layer = step.role == "layer" and not _expects(makers, step)
        if layer or not leading.isdisjoint(step.outputs):
            leading.update(step.inputs)
        if not layer and leading.isdisjoint(step.outputs):
            behind.append(step)
    roles = {step.role for step in behind}
    boxes = not roles.isdisjoint({"choice", "place"}) or (
        "grow" in roles and not roles.isdisjoint({"share", "softmax"})
    )
    boxes = boxes or any(step.role == "join" and _mixes(makers, step) for step in behind)
    boxes = boxes or any(step.role in ("sum", "layer") and _expects(makers, step) for step in behind)
    return [step.name for step in reversed(behind)] if boxes else []


def places(constant: Sequence[int]) -> bool:
    """Whether a constant of this shape, which is added, has numbers of its own for each place: a bias has one axis."""
    return sum(size > 1 for size in constant) > 1


def _origin(makers: Mapping[Hashable, Step], tensor: Hashable) -> Role:
    """What made the numbers of a tensor, whatever moved them since."""
    while (step := makers.get(tensor)) and step.inputs and (step.role == "move" or _scales(step)):
        tensor = step.inputs[0]
    return step.role if step else ""


def _scales(step: Step) -> bool:
    """Whether it multiplies with constants alone."""
    return step.role == "scale" and len(step.inputs) == 1


def _expects(makers: Mapping[Hashable, Step], step: Step) -> bool:
    """Whether it adds up the probabilities of a softmax, each times a constant."""
    return any(_origin(makers, each) == "softmax" for each in step.inputs)


def _mixes(makers: Mapping[Hashable, Step], step: Step) -> bool:
    """Whether some of what it joins are probabilities, and some not."""
    return len({_origin(makers, each) in ("share", "softmax") for each in step.inputs}) > 1
