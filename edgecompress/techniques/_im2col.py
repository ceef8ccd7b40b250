"""What a layer multiplies its weight by, as rows: a convolution is a matrix product of patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgecompress.techniques import _torch_graph
from edgecompress.techniques._torch_graph import WeightedLayer

if TYPE_CHECKING:
    import torch

ROWS = 16384  # of a layer at most
NUMBERS = 1 << 24  # in them at most


def why_not(layer: WeightedLayer) -> str:
    """Why there are no patches of a layer, or nothing."""
    return "a convolution of three axes" if _torch_graph.operator(layer.node) == "conv3d" else ""


def rows(layer: WeightedLayer, values: Sequence[torch.Tensor], seed: int) -> torch.Tensor:
    """[groups, rows, inputs of a group] at random places of the layer's input, a tensor for each batch.

    As many of each item; the same places for the same seed and shapes.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    items = [item for batch in values for item in batch]
    wide = _one(layer, items[0]).shape[0]
    each = max(1, min(ROWS, NUMBERS // wide) // len(items))
    samples = []
    for item in items:
        patches = _one(layer, item)
        samples.append(patches[:, torch.randint(patches.shape[1], (each,), generator=generator)].T)
    return torch.cat(samples).unflatten(1, (layer.groups, -1)).movedim(1, 0).contiguous()


def _one(layer: WeightedLayer, item: torch.Tensor) -> torch.Tensor:
    """[inputs x kernel, places] of one item."""
    from torch.nn import functional

    if layer.dense:
        return item.reshape(-1, item.shape[-1]).T
    arguments, kernel = _torch_graph.arguments(layer.node), _torch_graph.shape(layer.node.args[1])[2:]
    stride, dilation = (_pair(arguments[name]) for name in ("stride", "dilation"))
    kernel = _pair(kernel, before=1)
    item = item.unsqueeze(-2) if len(item.shape) == 2 else item
    padding = _padding(arguments["padding"], kernel, dilation)
    padded = functional.pad(item, padding)
    return functional.unfold(padded[None], kernel, dilation, 0, stride)[0]


def _pair(sizes: Sequence[int], before: int = 1) -> tuple[int, int]:
    """Of the two axes; a convolution of one axis is one of two, the first of which is 1 long."""
    one = tuple(sizes)
    return (before, *one) if len(one) == 1 else one  # type: ignore[return-value]


def _padding(padding: str | tuple[int, ...], kernel: Sequence[int], dilation: Sequence[int]) -> list[int]:
    """Before and after, the last axis first; "same" pads the odd one behind."""
    if isinstance(padding, str):
        whole = [0 if padding == "valid" else d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [n for w in reversed(whole) for n in (w // 2, w - w // 2)]
    return [n for w in reversed(_pair(padding, before=0)) for n in (w, w)]
