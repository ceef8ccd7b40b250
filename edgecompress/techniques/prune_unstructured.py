"""Single weights set to zero, those of the smallest magnitude: a smaller package; faster only where it is measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module
from edgecompress.techniques import _sparsity

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("torch", "safetensors", "zstandard>=0.22")
EXTRA = "storage"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
ZEROS = True
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How many go, and where from."""

    sparsity: float = 0.5  # share of the weights that are zero afterwards
    scope: Literal["local", "global"] = "local"  # of each layer as many; global: one threshold for all layers
    layers: tuple[str, ...] = ()  # patterns of layers; none: all but embeddings
    steps: int = 1  # more: trained between, by the technique finetune
    between: Mapping[str, Any] = field(default_factory=dict)  # the options of that training

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise ValueError("sparsity must be between 0 and 1")
        if self.steps < 1 or (self.between and self.steps == 1):
            raise ValueError("steps must be at least 1, and at least 2 with between")


def expand(options: Options) -> list[tuple[str, dict[str, Json]]] | None:
    """The steps of gradual pruning, each but the last followed by training; None where there is one only."""
    if options.steps == 1:
        return None
    plain: dict[str, Json] = {"scope": options.scope, "layers": list(options.layers)}
    prunes: list[tuple[str, dict[str, Json]]] = [
        ("prune_unstructured", {**plain, "sparsity": s}) for s in gradual(options.sparsity, options.steps)
    ]
    training: tuple[str, dict[str, Json]] = ("finetune", dict(options.between))
    return [step for prune in prunes for step in (prune, training)][:-1]


def gradual(sparsity: float, steps: int) -> list[float]:
    """The sparsity after each step: fast while there is plenty, slow at the end.

    s_t = s_f + (s_i - s_f) (1 - t / n)^3, from s_i = 0 (Zhu and Gupta 2017, arXiv:1710.01878, eq. 1).
    """
    return [round(sparsity * (1 - (1 - t / steps) ** 3), 6) for t in range(1, steps)] + [sparsity]


def apply(request: Request) -> Artifact:
    """The net with round(sparsity x weights) of the weights zero, of equals the first; they stay it in training.

    input: "model". facts: {"sparsity": see `PrunedWeights`}. Raises InputError for layers that there are not.
    """
    options: Options = request.options
    net = torch_module.rebuild(request.model)
    picked = _sparsity.chosen(_sparsity.weights(net), options.layers)
    sizes = {weight.parameter: weight.magnitudes for weight in picked}
    return _sparsity.zeroed(request, net, gone(sizes, options.sparsity, options.scope), {}, "unstructured")


def gone(sizes: Mapping[str, np.ndarray], sparsity: float, scope: str) -> dict[str, np.ndarray]:
    """Which elements go, by the magnitudes of each weight."""
    import numpy as np

    if scope == "local":
        return {name: _sparsity.smallest(size, round(sparsity * size.size)) for name, size in sizes.items()}
    flat = np.concatenate([size.reshape(-1) for size in sizes.values()])
    ends = np.cumsum([size.size for size in sizes.values()])
    parts = np.split(_sparsity.smallest(flat, round(sparsity * flat.size)), ends[:-1])
    return {name: part.reshape(size.shape) for (name, size), part in zip(sizes.items(), parts, strict=True)}
