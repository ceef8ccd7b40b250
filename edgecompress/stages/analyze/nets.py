"""A net whose weights can be others for a while: in torch, or an .onnx file in its runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.core.protocols import Change, ChangeableNet
from edgecompress.core.source import TORCH
from edgecompress.formats import torch_module

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "Mapping[str, np.ndarray]"


def opened(model: Artifact, threads: int) -> ChangeableNet:
    """The net of a model; raises InputError for a kind whose weights cannot be changed here."""
    if model.kind in TORCH:
        return _Torch(model, threads)
    for runtime in registry.of_format(model.kind):
        if runtime.changeable:
            return runtime.changeable(model, threads)
    suffixes = ", ".join(sorted(each.suffix for each in registry.runtimes() if each.changeable and each.suffix))
    raise InputError(f"--sensitivity needs a factory, a .pt2 or an {suffixes}, not kind '{model.kind}'")


class _Torch:
    def __init__(self, model: Artifact, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.model, self.net = model, torch_module.rebuild(model)
        matrices = {n: p for n, p in self.net.named_parameters() if p.ndim > 1 and p.is_floating_point()}
        self.weights = {name.removesuffix(".weight"): parameter for name, parameter in matrices.items()}

    @property
    def layers(self) -> Sequence[str]:
        return list(self.weights)

    def run(self, inputs: Arrays) -> Arrays:
        import torch

        outputs = torch_module.outputs(
            self.net, self.model, {name: torch.from_numpy(array) for name, array in inputs.items()}
        )
        return {name: tensor.numpy() for name, tensor in outputs.items()}

    @contextmanager
    def changed(self, layer: str, change: Change) -> Iterator[None]:
        import numpy as np
        import torch

        weight = self.weights[layer].data
        kept = weight.clone()
        weight.copy_(torch.from_numpy(np.ascontiguousarray(change(kept.double().numpy()))))
        try:
            yield
        finally:
            weight.copy_(kept)
