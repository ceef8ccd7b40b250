"""What a narrower net does to the outputs: their distance from the dense net's on calibration data, without labels.

Batch norms count anew before: with the dense net's statistics the distance says little of what training will recover
(Li et al. 2020, "EagleEye", arXiv:2007.02491).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.model import Artifact, Request
from edgecompress.data import channel_axis, tensors
from edgecompress.formats import torch_module, torch_outputs
from edgecompress.techniques._calibration import SPLIT, inputs_of, spread
from edgecompress.techniques._training import losses

if TYPE_CHECKING:
    import torch

BATCH = 32  # items at a time, where the net takes any number

Tensors: TypeAlias = "Mapping[str, torch.Tensor]"  # inputs or outputs by name
Batch: TypeAlias = "tuple[Tensors, torch.Tensor | None]"  # inputs, and labels where there are some


class CalibrationBench:
    """Calibration items of a request, and the outputs of nets for them."""

    def __init__(self, request: Request, samples: int | None) -> None:
        self.request = request
        self.items = _chunks(request.model, spread(request, samples))
        self.labels = tensors.labels(request.inputs["samples"], SPLIT)
        self.dense: list[Tensors] = []

    def batches(self) -> Iterator[Batch]:
        """The items from the first on."""
        import torch

        for chosen in self.items:
            named = {name: torch.from_numpy(array) for name, array in inputs_of(self.request, chosen).items()}
            yield named, None if self.labels is None else torch.from_numpy(self.labels[chosen])

    def singles(self) -> Iterator[Batch]:
        """The same one by one, where the net takes any number."""
        batch = self.request.model.batch
        step = batch if isinstance(batch, int) else 1
        for inputs, labels in self.batches():
            for at in range(0, len(next(iter(inputs.values()))), step):
                part = slice(at, at + step)
                yield {name: tensor[part] for name, tensor in inputs.items()}, None if labels is None else labels[part]

    def run(self, net: torch.nn.Module, batch: Batch) -> Tensors:
        """The outputs for a batch by name, with gradients."""
        return torch_outputs.flatten(
            torch_module.call(net, batch[0]), [spec.name for spec in self.request.model.outputs]
        )

    def loss(self, net: torch.nn.Module, batch: Batch) -> torch.Tensor:
        """Cross entropy where there are classes as labels, else the mean square of the outputs."""
        from torch.nn import functional

        outputs, labels = self.run(net, batch), batch[1]
        for output in outputs.values():
            if labels is not None and (axis := self._classes(output)):
                rows = output.movedim(axis, -1)
                return functional.cross_entropy(rows.flatten(0, -2), losses.judged(labels, rows).flatten())
        return sum(o.square().mean() for o in outputs.values() if o.is_floating_point())

    def learn(self, dense: torch.nn.Module) -> None:
        """Keeps the outputs of the dense net."""
        import torch

        with torch.inference_mode():
            self.dense = [self.run(dense, batch) for batch in self.batches()]

    def settle(self, net: torch.nn.Module) -> None:
        """Batch norms take the mean and variance of these items.

        They stay as they are where a batch has a single number per channel: that has no variance.
        """
        import torch

        norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
        norms = [norm for norm in norms if norm.track_running_stats]
        kept = [(norm, norm.momentum, copy.deepcopy(norm.state_dict())) for norm in norms]
        try:
            for norm in norms:
                norm.reset_running_stats()
                norm.train().momentum = None  # the mean over the batches
            with torch.no_grad():
                for batch in self.batches():
                    self.run(net, batch)
        except ValueError:
            for norm, _, state in kept:
                norm.load_state_dict(state)
        finally:
            for norm, momentum, _ in kept:
                norm.eval().momentum = momentum

    def harm(self, net: torch.nn.Module) -> float:
        """How far a settled net's outputs are from the dense net's: summed over the outputs, the mean over the items.

        KL(dense || net) in nats where labels are classes; else the squared error over the variance of the output.
        """
        import torch

        self.settle(net)
        with torch.inference_mode():
            pairs = zip(self.batches(), self.dense, strict=True)
            each = [self._distance(self.run(net, batch), ref) for batch, ref in pairs]
        sizes = [len(chosen) for chosen in self.items]
        return sum(d * n for d, n in zip(each, sizes, strict=True)) / sum(sizes)

    def _distance(self, outputs: Tensors, dense_outputs: Tensors) -> float:
        from torch.nn import functional

        total = 0.0
        for name, output in outputs.items():
            dense = dense_outputs[name]
            if axis := self._classes(output):
                ours, theirs = (functional.log_softmax(x.double(), axis) for x in (output, dense))
                total += float(functional.kl_div(ours, theirs, reduction="none", log_target=True).sum(axis).mean())
            elif output.is_floating_point():
                spread = float(dense.double().var(unbiased=False)) or 1.0
                total += float((output.double() - dense.double()).square().mean()) / spread
        return total

    def _classes(self, output: torch.Tensor) -> int:
        """The axis of this output that the labels are classes of; 0 where they are none."""
        if self.labels is None or self.labels.dtype.kind not in "iu" or not output.is_floating_point():
            return 0
        if output.ndim != self.labels.ndim + 1:
            return 0
        axis = channel_axis.class_axis(output.shape, self.labels.shape)
        fits = (*output.shape[1:axis], *output.shape[axis + 1 :]) == self.labels.shape[1:]
        judged = self.labels[~losses.ignored(self.labels, output.shape[axis])]
        return axis if fits and output.shape[axis] > judged.max(initial=0) else 0


def _chunks(model: Artifact, batches: Sequence[Sequence[int]]) -> list[list[int]]:
    """The items in batches of BATCH, unless the net takes its own number only."""
    if any(isinstance(spec.shape[0], int) for spec in model.inputs if spec.shape):
        return [list(batch) for batch in batches]
    items = [item for batch in batches for item in batch]
    return [items[begin : begin + BATCH] for begin in range(0, len(items), BATCH)]
