"""Batches for training: items of a memory-mapped split on the device that trains, shuffled, moved and mirrored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.data import states, tensors

if TYPE_CHECKING:
    import numpy as np
    import torch

Augment = Literal["flip", "crop"]
Batch: TypeAlias = "tuple[dict[str, torch.Tensor], torch.Tensor | None]"  # inputs by name, and labels or None

PADDING = 4  # pixels that a picture is moved by at most, on each side ...
SMALL = 8  # ... and no more than its side divided by this
LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True)
class Items:
    """One split as the inputs of a model, on a device."""

    model: Artifact
    samples: Artifact
    split: str
    device: torch.device

    @cached_property
    def count(self) -> int:
        """How many there are."""
        return int(self.samples.facts["splits"].get(self.split, 0))

    @cached_property
    def sequence(self) -> int:
        """Of a net with state: the items that follow each other, before the first of which state is zero."""
        return int(self.samples.facts.get(states.SEQUENCE) or self.count)

    @cached_property
    def labels(self) -> np.ndarray | None:
        """All labels, memory-mapped, or None."""
        return tensors.labels(self.samples, self.split) if self.count else None

    @cached_property
    def _inputs(self) -> dict[str, np.ndarray]:
        names = tensors.check_inputs(self.model, self.samples)
        return {name: tensors.load(self.samples, self.split, stored) for name, stored in names.items()}

    def take(self, index: np.ndarray) -> Batch:
        """The items of those numbers."""
        import numpy as np
        import torch

        taken = tensors.taken(self.model, {name: array[index] for name, array in self._inputs.items()})
        inputs = {s.name: self._placed(torch.from_numpy(taken[s.name]), s.layout) for s in self.model.inputs}
        labels = None if self.labels is None else torch.from_numpy(np.ascontiguousarray(self.labels[index]))
        return inputs, None if labels is None else labels.to(self.device)

    def _placed(self, tensor: torch.Tensor, layout: str) -> torch.Tensor:
        """On the device; pictures with their channels last in memory, on which convolutions are faster."""
        import torch

        if self.device.type == "cuda":
            tensor = tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.contiguous(memory_format=torch.channels_last) if pictured(tensor, layout) else tensor


def pictured(tensor: torch.Tensor, layout: str) -> bool:
    """Whether it is a batch of pictures with the channels before the pixels, as far as is known."""
    return bool(tensor.dim() == 4) and layout in ("NCHW", "")


def shuffled(count: int, size: int, generator: np.random.Generator) -> Iterator[np.ndarray]:
    """Each item's number once, `size` at a time, in random order; what is left over waits for another epoch."""
    order = generator.permutation(count)
    for begin in range(0, count - size + 1, size):
        yield order[begin : begin + size]


def contiguous(count: int, size: int, sequence: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The batches of a net with state, and which of their items it is zero before; what is left over is left out.

    The items are cut into `size` parts of equal length, and batch t has item t of each part: what follows an item is
    in its place of the next batch, as in the training of Zaremba et al. 2014, arXiv:1409.2329, section 4.1.
    """
    import numpy as np

    length = count // size
    for step in range(length):
        index = np.arange(size) * length + step
        yield index, (index % sequence == 0) | (step == 0)


def spread(count: int, most: int) -> np.ndarray:
    """At most `most` numbers below `count`, evenly spread: a split may be sorted by class."""
    import numpy as np

    return np.linspace(0, count - 1, min(count, most)).round().astype(np.int64)


def images(model: Artifact) -> dict[str, str]:
    """The inputs that are pictures, with their layouts."""
    return {spec.name: spec.layout for spec in model.inputs if len(spec.shape) == 4 and spec.layout in LAYOUTS}


def check_augment(augment: tuple[Augment, ...] | None, items: Items) -> None:
    """Raises InputError where there is no picture to augment, or labels that would have to move with it."""
    if augment and not images(items.model):
        raise InputError(
            f"augment: no input is declared as an image; declare its layout ({' or '.join(LAYOUTS)}) in [preprocess]"
        )
    if augment and items.labels is not None and items.labels.ndim > 1:
        raise InputError(
            f"augment shifts images but cannot shift their labels, which have shape {list(items.labels.shape)}; "
            "remove augment"
        )


def augmented(
    inputs: Mapping[str, torch.Tensor],
    layouts: Mapping[str, str],
    kinds: tuple[Augment, ...],
    generator: np.random.Generator,
) -> dict[str, torch.Tensor]:
    """The batch with every item mirrored by chance and moved by chance, what comes in from outside being zero.

    The pictures of one item move alike. The chances come from `generator`, two or three per item.
    """
    if not kinds:
        return dict(inputs)
    chances = generator.random((3, len(next(iter(inputs.values())))))
    return {n: _moved(t, layouts[n], kinds, chances) if n in layouts else t for n, t in inputs.items()}


def _moved(images: torch.Tensor, layout: str, kinds: tuple[Augment, ...], chances: np.ndarray) -> torch.Tensor:
    """One gather of rows and columns per batch."""
    import numpy as np
    import torch
    from torch.nn import functional

    last = images.permute(0, 2, 3, 1) if layout == "NCHW" else images
    height, width = last.shape[1:3]
    pad = min(PADDING, min(height, width) // SMALL) if "crop" in kinds else 0
    rows = (chances[0] * (2 * pad + 1)).astype(np.int64)[:, None] + np.arange(height)
    columns = (chances[1] * (2 * pad + 1)).astype(np.int64)[:, None] + np.arange(width)
    mirrored = (chances[2] < 0.5) & ("flip" in kinds)
    columns = np.where(mirrored[:, None], columns[:, ::-1], columns)
    index = (np.arange(len(last))[:, None, None], rows[:, :, None], columns[:, None, :])
    places = tuple(torch.from_numpy(np.ascontiguousarray(i)).to(images.device) for i in index)
    taken = functional.pad(last, (0, 0, pad, pad, pad, pad))[places]
    return taken.permute(0, 3, 1, 2) if layout == "NCHW" else taken
