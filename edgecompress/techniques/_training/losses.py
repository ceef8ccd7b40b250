"""What training makes small: the error on the labels, and the distance to the unpruned net."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from edgecompress.core.errors import InputError
from edgecompress.data.task_metrics import IGNORED
from edgecompress.data.tensors import UNJUDGED

if TYPE_CHECKING:
    import numpy as np
    import torch

Kind = Literal["cross_entropy", "mse"]
PERPLEXITY = "perplexity"
Named: TypeAlias = "Mapping[str, torch.Tensor]"  # of each output


def kind_of(labels: np.ndarray | None) -> Kind:
    """Cross entropy for labels that are whole numbers; the squared error for others, and where there are none."""
    return "cross_entropy" if labels is not None and labels.dtype.kind in "iub" else "mse"


def distillation(student: torch.Tensor, teacher: torch.Tensor, temperature: float) -> torch.Tensor:
    """T^2 KL(softmax(teacher / T) || softmax(student / T)), the mean over rows; both [..., classes].

    Hinton, Vinyals & Dean 2015, arXiv:1503.02531, section 2: the square keeps the gradients as large as at T = 1.
    """
    from torch.nn import functional

    soft = functional.log_softmax(teacher / temperature, dim=-1)
    mine = functional.log_softmax(student / temperature, dim=-1)
    each = functional.kl_div(mine, soft, reduction="none", log_target=True)
    return temperature**2 * each.sum(dim=-1).mean()


def ensemble(teachers: Sequence[torch.Tensor], temperature: float) -> torch.Tensor:
    """Logits whose softened probabilities are the mean of the teachers'; all [..., classes].

    softmax(result / T) = mean of softmax(teacher / T): an ensemble as in Hinton, Vinyals & Dean 2015, section 1;
    of one teacher they are its own logits, but for a number that is added to all of a row.
    """
    import torch

    soft = torch.stack([torch.log_softmax(teacher / temperature, dim=-1) for teacher in teachers])
    return temperature * (soft.logsumexp(dim=0) - math.log(len(teachers)))


@dataclass(frozen=True)
class Objective:
    """`kind` on the labels of the first output, and `distill` (0..1) of the way to the unpruned net's outputs."""

    kind: Kind
    distill: float
    temperature: float
    outputs: tuple[str, ...]  # those that are compared, the labelled one first
    axis: int = -1  # of the classes in the first one
    asked: str = ""  # the metric that the source is judged by

    def loss(self, outputs: Named, taught: Named | None, labels: torch.Tensor | None) -> torch.Tensor:
        """(1 - distill) * the error on the labels + distill * the distance to what the unpruned net answered.

        Without labels it is the distance alone, without the unpruned net the error alone. Raises InputError for labels
        that do not fit the output.
        """
        if taught is None:
            return self.error(outputs[self.outputs[0]], labels)
        if labels is None:
            return self.distance(outputs, taught)
        error = self.error(outputs[self.outputs[0]], labels)
        return (1 - self.distill) * error + self.distill * self.distance(outputs, taught)

    def together(self, outputs: Sequence[Named]) -> Named:
        """What several nets teach: of classes the mean of their softened probabilities, of all else their mean."""
        if len(outputs) == 1:
            return outputs[0]
        means = {name: sum(each[name] for each in outputs) / len(outputs) for name in self.outputs}
        if self.kind == "cross_entropy":
            first = self.outputs[0]
            means[first] = ensemble([self._rows(each[first]) for each in outputs], self.temperature)
            means[first] = means[first].movedim(-1, self.axis)
        return means

    def metric(self, against_labels: bool) -> str:
        """What `scores` counts: top1, agreement (shares, higher is better), perplexity, mse or distance (lower)."""
        if self.kind == "cross_entropy":
            if against_labels and self.asked == PERPLEXITY:
                return PERPLEXITY
            return "top1" if against_labels else "agreement"
        return "mse" if against_labels else "distance"

    def scores(self, outputs: Named, taught: Named | None, labels: torch.Tensor | None) -> torch.Tensor:
        """One number per item, [n]: whether the best class is the label's (else the unpruned net's), or the error.

        Of a perplexity, its logarithm: the mean of -ln p of the item's labels.
        """
        from torch.nn import functional

        first = self.outputs[0]
        expected = labels if taught is None else taught[first]
        assert expected is not None
        if taught is None:
            self._check(outputs[first], expected)
        if self.kind == "mse":
            return (outputs[first] - expected).square().flatten(1).mean(dim=1)
        rows = self._rows(outputs[first])
        if self.metric(taught is None) == PERPLEXITY:
            wanted = judged(expected, rows)
            each = functional.cross_entropy(rows.movedim(-1, 1), wanted, ignore_index=UNJUDGED, reduction="none")
            count = (wanted != UNJUDGED).reshape(len(wanted), -1).sum(1)
            return each.reshape(len(wanted), -1).sum(1) / count.clamp(min=1)
        best = judged(expected, rows) if taught is None else self._rows(expected).argmax(dim=-1)
        right = (rows.argmax(dim=-1) == best).reshape(len(best), -1).sum(dim=1)
        return right / (best != UNJUDGED).reshape(len(best), -1).sum(dim=1).clamp(min=1)

    def error(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """That of the first output on the labels; raises InputError for labels that do not fit it."""
        from torch.nn import functional

        self._check(output, labels)
        if self.kind == "mse":
            return functional.mse_loss(output, labels.float())
        rows = self._rows(output)
        return functional.cross_entropy(rows.flatten(0, -2), judged(labels, rows).flatten(), ignore_index=UNJUDGED)

    def _rows(self, output: torch.Tensor) -> torch.Tensor:
        """The first output with its classes last."""
        return output.movedim(self.axis, -1)

    def distance(self, outputs: Named, taught: Named) -> torch.Tensor:
        """To what was taught: of classes the softened divergence, of all else the mean squared error."""
        return sum(self._distances(outputs, taught))

    def _distances(self, outputs: Named, taught: Named) -> Iterator[torch.Tensor]:
        from torch.nn import functional

        first, *rest = self.outputs
        if self.kind == "cross_entropy":
            yield distillation(self._rows(outputs[first]), self._rows(taught[first]), self.temperature)
        else:
            yield functional.mse_loss(outputs[first], taught[first])
        for name in rest:
            yield functional.mse_loss(outputs[name], taught[name])

    def _check(self, output: torch.Tensor, labels: torch.Tensor | None) -> None:
        """Raises InputError when labels do not fit an output."""
        needed = list(self._rows(output).shape[:-1] if self.kind == "cross_entropy" else output.shape)
        if labels is not None and list(labels.shape) != needed:
            raise InputError(
                f"labels {list(labels.shape)} do not fit an output {list(output.shape)} for the loss {self.kind}: "
                f"they must be {needed}; correct the labels, or choose another loss"
            )


def ignored(labels: np.ndarray | torch.Tensor, classes: int) -> np.ndarray | torch.Tensor:
    """Where labels count for nothing: UNJUDGED, and in pictures of `classes` what the metrics leave out as well."""
    unjudged = labels == UNJUDGED
    return unjudged | (labels < 0) | (labels == IGNORED) if labels.ndim > 2 and classes <= IGNORED else unjudged


def judged(labels: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Labels as whole numbers, UNJUDGED where they count for nothing; `rows`: the output, its classes last."""
    return labels.long().masked_fill(ignored(labels.long(), rows.shape[-1]), UNJUDGED)
