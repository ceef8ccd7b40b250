"""What Distiller's regularizers add to the loss, and what they set to zero after a step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import arguments, groups, parameters
from edgecompress.extras.schedules.reader import Instance

if TYPE_CHECKING:
    from torch import Tensor, nn

EPSILON = 1e-8  # below the root: a group of zeros has a gradient


class Regularizer:
    """A term for each of its parameters."""

    def __init__(self, instance: Instance, model: nn.Module) -> None:
        """Raises InputError for what the model lacks, and what does not fit its weights."""
        given = instance.arguments
        assert isinstance(given, (arguments.Absolute, arguments.GroupLasso, arguments.GroupVariance))
        own = dict(model.named_parameters(remove_duplicate=False))
        called = parameters.found(model, given.reg_regims, instance.where)
        self.parameters: Mapping[str, nn.Parameter] = {name: own[name] for name in called.values()}
        self.variance = isinstance(given, arguments.GroupVariance)
        self.criterion = None if isinstance(given, arguments.GroupVariance) else given.threshold_criteria
        self.terms = {called[name]: _term(regime) for name, regime in given.reg_regims.items()}
        for name, (_, structures) in self.terms.items():
            for structure in structures:
                try:
                    groups.of(structure, own[name].shape)
                except ValueError as error:
                    raise InputError(f"{instance.where}: {instance.name}: {name}: {error}") from error

    def loss(self) -> Tensor:
        """The sum of its terms."""
        import torch

        losses: list[Tensor] = []
        for name, (strength, structures) in self.terms.items():
            weight = self.parameters[name]
            if self.variance:
                losses.append(variance(weight, strength))
            elif structures:
                losses.append(lasso(weight, strength, structures))
            else:
                losses.append(strength * weight.abs().sum())
        return torch.stack(losses).sum()

    def above(self, name: str) -> Tensor:
        """1 at each element of what is above the strength by the criterion, else 0: of the weight's shape."""
        weight, (strength, structures) = self.parameters[name], self.terms[name]
        mask = (weight.detach().abs() > strength).to(weight.dtype) if not structures else weight.new_ones(weight.shape)
        for structure in structures:
            mask = mask * groups.above(weight, structure, strength, str(self.criterion))
        return mask


def _term(regime: float | tuple[float, str]) -> tuple[float, tuple[str, ...]]:
    """A strength, and the structures that it is of: none where it is of each element."""
    return (regime, ()) if isinstance(regime, float) else (regime[0], tuple(regime[1].split("+")))


def lasso(weight: Tensor, strength: float, structures: tuple[str, ...]) -> Tensor:
    """strength x the sum of the groups' lengths, however many elements they have (Yuan and Lin 2006)."""
    import torch

    terms = []
    for structure in structures:
        rows = groups.of(structure, weight.shape).rows(weight)
        one = structure == "4D"
        terms.append(torch.linalg.vector_norm(rows) if one else (rows.square().sum(1) + EPSILON).sqrt().sum())
    return strength * torch.stack(terms).sum()


def variance(weight: Tensor, strength: float) -> Tensor:
    """strength / the variance of the channels' lengths (Torfi et al. 2018, arXiv:1802.09902)."""
    rows = groups.of("Channels", weight.shape).rows(weight)
    return strength / (rows.square().sum(1) + EPSILON).sqrt().var()
