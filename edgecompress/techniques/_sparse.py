"""Weights that become zero and stay so: which there are, which are the smallest, and what is told of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any

from edgecompress import torch_net
from edgecompress.errors import InputError, did_you_mean
from edgecompress.model import Artifact, Request

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

MATRIX = 2
LOOKED_UP = "its rows are looked up"


@dataclass(frozen=True)
class Weight:
    """A weight of two or more axes; `layer` is what it is called: "conv1" of conv1.weight, else its whole name."""

    layer: str
    parameter: str
    tensor: Any
    module: Any

    @property
    def aside(self) -> str:
        """Why it is pruned only where it is asked for by name, or ""."""
        from torch import nn

        if isinstance(self.module, (nn.Embedding, nn.EmbeddingBag)):
            return LOOKED_UP
        return "" if "weight" in self.parameter.rpartition(".")[2] else "it is no layer's weight"

    @property
    def magnitudes(self) -> Array:
        """Of its elements, as doubles."""
        found: Array = self.tensor.detach().abs().double().numpy()
        return found


def weights(net: Any) -> list[Weight]:
    """Every weight of a net, a shared one once, under its first name."""
    seen: set[int] = set()
    found = []
    for path, module in net.named_modules():
        for name, tensor in module.named_parameters(recurse=False):
            if tensor.ndim >= MATRIX and tensor.is_floating_point() and id(tensor) not in seen:
                seen.add(id(tensor))
                whole = f"{path}.{name}" if path else name
                found.append(Weight(whole.removesuffix(".weight"), whole, tensor, module))
    return found


def chosen(found: Sequence[Weight], patterns: Sequence[str]) -> list[Weight]:
    """Those that any of the patterns names; without patterns, those of layers that multiply.

    Raises InputError for a pattern that names none, and where there is none at all.
    """
    names = [weight.layer for weight in found]
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in names):
            raise InputError(f"layers: '{pattern}' is no layer with a weight{did_you_mean(pattern, names)}")
    wanted = [w for w in found if any(fnmatch(w.layer, p) for p in patterns) or not (patterns or w.aside)]
    if not wanted:
        raise InputError("the net has no layer with a weight of two or more axes: there is nothing to prune")
    return wanted


def smallest(magnitudes: Array, count: int) -> Array:
    """Whether each element is one of the `count` smallest; of equals the first. As flat as it came."""
    import numpy as np

    found = np.zeros(magnitudes.size, bool)
    found[np.argsort(magnitudes, axis=None, kind="stable")[:count]] = True
    return found.reshape(magnitudes.shape)


def zeroed(request: Request, net: Any, gone: Mapping[str, Array], left: Mapping[str, str], kind: str) -> Artifact:
    """The net with those elements zero, by parameter, as a "module" in which they stay it.

    facts: {"sparsity": see `told`}. `left`: the layers that were left alone, and why.
    """
    import torch

    for weight in weights(net):
        if weight.parameter in gone:
            weight.tensor.data.masked_fill_(torch.from_numpy(gone[weight.parameter]), 0)
    edits = [{"edit": "zeros", "parameters": list(gone)}]
    return torch_net.save(net, request, edits, {"sparsity": told(weights(net), gone, left, kind)})


def told(found: Sequence[Weight], gone: Mapping[str, Array], left: Mapping[str, str], kind: str) -> dict[str, Any]:
    """{"kind", "rows": [{"name", "elements", "zeros", "pruned", "why"}], "total": {"elements", "zeros"}}.

    A row for every weight. `kind`: "2:4", "unstructured"; `why`: it was left alone.
    """
    rows = [
        {
            "name": weight.layer,
            "elements": weight.tensor.numel(),
            "zeros": int((weight.tensor == 0).sum()),
            "pruned": weight.parameter in gone,
            "why": "" if weight.parameter in gone else left.get(weight.layer) or weight.aside or "not asked for",
        }
        for weight in found
    ]
    return {"kind": kind, "rows": rows, "total": {key: sum(r[key] for r in rows) for key in ("elements", "zeros")}}
