"""What int8 leaves in float at the end of a net that finds things: what follows its last layers, and chooses or joins.

There, lengths in pixels, probabilities and numbers of classes are put together: on one scale of 8 bits the boxes leave
the probabilities nothing, and what is chosen by rounded ones is chosen by chance.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

# layer: multiplies with weights; choice: picks by rank, or among boxes; share, softmax: makes probabilities; move:
# hands on the numbers that it reads; join: puts several tensors into one
Role = Literal["layer", "choice", "share", "softmax", "move", "join", ""]


@dataclass(frozen=True)
class Step:
    """An operator of a graph; `inputs` are the tensors that it computes from, without constants."""

    name: str
    role: Role
    inputs: Sequence[Hashable]
    outputs: Sequence[Hashable]


def tail(steps: Sequence[Step]) -> list[str]:
    """The names of the operators behind the last layers, where one of them chooses, or joins probabilities with others.

    `steps` are in the order of computing. An expectation over a softmax (of the bins of a box's sides) is a product
    with weights, but no layer.
    """
    makers = {tensor: step for step in steps for tensor in step.outputs}
    behind, leading = list[Step](), set[Hashable]()  # to a layer
    for step in reversed(steps):
        layer = step.role == "layer" and not any(_origin(makers, each) == "softmax" for each in step.inputs)
        if layer or not leading.isdisjoint(step.outputs):
            leading.update(step.inputs)
        if not layer and leading.isdisjoint(step.outputs):
            behind.append(step)
    mixed = any(step.role == "choice" or (step.role == "join" and _mixes(makers, step)) for step in behind)
    return [step.name for step in reversed(behind)] if mixed else []


def _origin(makers: Mapping[Hashable, Step], tensor: Hashable) -> Role:
    """What made the numbers of a tensor, whatever moved them since."""
    while (step := makers.get(tensor)) and step.role == "move" and step.inputs:
        tensor = step.inputs[0]
    return step.role if step else ""


def _mixes(makers: Mapping[Hashable, Step], step: Step) -> bool:
    """Whether some of what it joins are probabilities, and some not."""
    return len({_origin(makers, each) in ("share", "softmax") for each in step.inputs}) > 1
