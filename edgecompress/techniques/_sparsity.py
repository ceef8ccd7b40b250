"""Weights that become zero and stay so: which there are, which are the smallest, and what the facts say of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_edits, torch_module

if TYPE_CHECKING:
    import numpy as np
    import torch

MATRIX = 2
LOOKED_UP = "its rows are looked up"


@dataclass(frozen=True)
class Weight:
    """A weight of two or more axes; `layer` is what it is called: "conv1" of conv1.weight, else its whole name."""

    layer: str
    parameter: str
    tensor: torch.Tensor
    module: torch.nn.Module

    @property
    def aside(self) -> str:
        """Why it is pruned only where a pattern names it, or ""."""
        from torch import nn

        if isinstance(self.module, (nn.Embedding, nn.EmbeddingBag)):
            return LOOKED_UP
        return "" if "weight" in self.parameter.rpartition(".")[2] else "it is not the weight of a layer"

    @property
    def magnitudes(self) -> np.ndarray:
        """Of its elements, as doubles."""
        magnitudes: np.ndarray = self.tensor.detach().abs().double().numpy()
        return magnitudes


def weights(net: torch.nn.Module) -> list[Weight]:
    """Every weight of a net, a shared one once, under its first name."""
    seen: set[int] = set()
    listed = []
    for path, module in net.named_modules():
        for name, tensor in module.named_parameters(recurse=False):
            if tensor.ndim >= MATRIX and tensor.is_floating_point() and id(tensor) not in seen:
                seen.add(id(tensor))
                whole = f"{path}.{name}" if path else name
                listed.append(Weight(whole.removesuffix(".weight"), whole, tensor, module))
    return listed


def chosen(known: Sequence[Weight], patterns: Sequence[str]) -> list[Weight]:
    """Those that any of the patterns names; without patterns, those of layers that multiply.

    Raises InputError for a pattern that names none, and where there is none at all.
    """
    names = [weight.layer for weight in known]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise InputError(f"layers: '{pattern}' is not a layer with a weight{did_you_mean(pattern, names)}")
    picked = [w for w in known if any(fnmatch(w.layer, p) for p in patterns) or not (patterns or w.aside)]
    if not picked:
        raise InputError("the net has no layer with a weight of two or more axes: there is nothing to prune")
    return picked


def smallest(magnitudes: np.ndarray, count: int) -> np.ndarray:
    """Whether each element is one of the `count` smallest; of equals the first. As flat as it came."""
    import numpy as np

    mask = np.zeros(magnitudes.size, bool)
    mask[np.argsort(magnitudes, axis=None, kind="stable")[:count]] = True
    return mask.reshape(magnitudes.shape)


def zeroed(
    request: Request, net: torch.nn.Module, gone: Mapping[str, np.ndarray], left: Mapping[str, str], kind: str
) -> Artifact:
    """The net with those elements zero, by parameter, as a "module" in which they stay it.

    facts: {"sparsity": see `PrunedWeights`}. `left`: the layers that were left alone, and why.
    """
    import torch

    for weight in weights(net):
        if weight.parameter in gone:
            weight.tensor.data.masked_fill_(torch.from_numpy(gone[weight.parameter]), 0)
    edits: list[torch_edits.Edit] = [{"edit": "zeros", "parameters": list(gone)}]
    return torch_module.save(net, request, edits, {"sparsity": told(weights(net), gone, left, kind)})


class WeightZeros(TypedDict):
    """The zeros of one weight; `why`: it was left alone."""

    name: str
    elements: int
    zeros: int
    pruned: bool
    why: str


class PrunedWeights(TypedDict):
    """The zeros of a net, a row for each weight; `kind`: "2:4", "unstructured"; `total`: "elements" and "zeros"."""

    kind: str
    rows: list[WeightZeros]
    total: dict[str, int]


def told(known: Sequence[Weight], gone: Collection[str], left: Mapping[str, str], kind: str) -> PrunedWeights:
    """The zeros of those weights, of which the parameters `gone` were pruned."""
    rows: list[WeightZeros] = [
        {
            "name": weight.layer,
            "elements": weight.tensor.numel(),
            "zeros": int((weight.tensor == 0).sum()),
            "pruned": weight.parameter in gone,
            "why": "" if weight.parameter in gone else left.get(weight.layer) or weight.aside or "not asked for",
        }
        for weight in known
    ]
    total = {"elements": sum(row["elements"] for row in rows), "zeros": sum(row["zeros"] for row in rows)}
    return {"kind": kind, "rows": rows, "total": total}
