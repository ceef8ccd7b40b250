"""A net whose weights can be others for a while: in torch, or an .onnx file in its runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.core.protocols import Session
from edgecompress.core.source import TORCH
from edgecompress.formats import torch_module
from edgecompress.stages.analyze import weights

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "Mapping[str, np.ndarray]"
Change = Callable[["np.ndarray"], "np.ndarray"]  # of a weight as [filters, channels, *kernel] or [rows, columns]


class ChangeableNet(Protocol):
    """A net whose weights have the names of their layers: "conv1" for conv1.weight, the whole name for any other."""

    @property
    def layers(self) -> Sequence[str]:
        """Those that have a weight of two or more axes."""

    def run(self, inputs: Arrays) -> Arrays:
        """One inference with the weights as they are now."""

    def changed(self, layer: str, change: Change) -> AbstractContextManager[None]:
        """A context within which the weight of a layer is what `change` makes of it."""


def opened(model: Artifact, threads: int) -> ChangeableNet:
    """The net of a model; raises InputError for a kind whose weights cannot be changed here."""
    if model.kind in TORCH:
        return _Torch(model, threads)
    if model.kind == "onnx":
        return _Onnx(model, threads)
    raise InputError(f"--sensitivity needs a factory, a .pt2 or an .onnx, not kind '{model.kind}'")


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


class _Onnx:
    def __init__(self, model: Artifact, threads: int) -> None:
        import onnx

        self.model, self.threads = model, threads
        self.proto = onnx.load(model.file(".onnx"))
        readers = weights.readers(self.proto.graph)
        matrices = {w.name: w for w in weights.factors(self.proto.graph) if w.data_type == onnx.TensorProto.FLOAT}
        self.turned = {name: weights.turned(readers, name) for name in matrices}
        self.weights = {name.removesuffix(".weight"): weight for name, weight in matrices.items()}
        self.session = self._session(model)

    @property
    def layers(self) -> Sequence[str]:
        return list(self.weights)

    def run(self, inputs: Arrays) -> Arrays:
        return self.session.run(inputs)

    def _session(self, model: Artifact) -> Session:
        session: Session = registry.load("runtimes", "onnx").open(model, self.threads)
        return session

    @contextmanager
    def changed(self, layer: str, change: Change) -> Iterator[None]:
        import onnx

        weight, dense = self.weights[layer], self.session
        kept = onnx.TensorProto()
        kept.CopyFrom(weight)
        array = onnx.numpy_helper.to_array(kept)
        changed = change(array.T).T if self.turned[weight.name] else change(array)
        weight.CopyFrom(onnx.numpy_helper.from_array(changed.astype(array.dtype), weight.name))
        with tempfile.TemporaryDirectory() as folder:
            onnx.save(self.proto, Path(folder) / "model.onnx")
            self.session = self._session(Artifact(Path(folder), "onnx", self.model.inputs, self.model.outputs))
            try:
                yield
            finally:
                self.session.close()
                self.session = dense
                weight.CopyFrom(kept)
