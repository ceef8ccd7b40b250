"""Distiller's quantizers in training: rounded activations, and weights beside float copies that are trained."""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import grids
from edgecompress.extras.schedules.grids import FLOAT, Weights, mode_of
from edgecompress.extras.schedules.parameters import normalized
from edgecompress.extras.schedules.quantizer_arguments import (
    BITS,
    LearnedClip,
    Mode,
    Override,
    PostTraining,
    Quantizer,
    Range,
)
from edgecompress.extras.schedules.reader import Instance, Schedule

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

    from edgecompress.extras.schedules.activations import Activation
    from edgecompress.formats.torch_edits import Edit

OUTPUTS = ("EltwiseMult", "Concat")  # Distiller's modules whose outputs its quantizer of NCF rounds, as Linear's


# --------------------------------------------------------------------------- what is quantized, and to how many bits


@dataclass(frozen=True)
class Choice:
    """How one module is quantized; None: in floating point."""

    module: nn.Module
    activations: int | None
    weights: int | None
    bias: int | None
    override: Override

    @property
    def is_layer(self) -> bool:
        """Whether it is of the kinds whose weights are quantized."""
        from torch import nn

        return isinstance(self.module, (nn.Conv2d, nn.Conv3d, nn.Linear, nn.Embedding))

    def tensors(self) -> Iterator[tuple[str, nn.Parameter, int]]:
        """Its own parameters that are quantized, each with its bits."""
        if self.is_layer:
            for name, parameter in self.module.named_parameters(recurse=False):
                if bits := self.bias if name == "bias" else self.weights:
                    yield name, parameter, bits


def choices(instance: Instance, model: nn.Module) -> dict[str, Choice]:
    """Of each module, by its name; the first pattern that matches it all counts. Warns of one that matches none."""
    given = instance.arguments
    assert isinstance(given, Quantizer)
    post = given.bits_parameters if isinstance(given, PostTraining) else None
    usual = {"activations": given.bits_activations, "weights": post or given.bits_weights, "bias": given.bits_bias}
    found, used = {}, set()
    for name, module in model.named_modules():
        override = Override()
        for pattern, each in (given.overrides or {}).items():
            if re.fullmatch(pattern, normalized(name)):
                override = each
                used.add(pattern)
                break
        bits = {kind: _of(getattr(override, f"bits_{kind}"), default) for kind, default in usual.items()}
        found[name] = Choice(module, **bits, override=override)
    for pattern in (given.overrides or {}).keys() - used:
        warnings.warn(f"{instance.where}: {instance.name}: overrides: '{pattern}' matches no module", stacklevel=4)
    return found


def _of(own: int | str | None, default: int | None) -> int | None:
    """The bits of an override, or those of the quantizer."""
    bits = own if own is None or isinstance(own, int) else default
    return None if bits == FLOAT else bits


def check_bits(bits: int | None, mode: Mode, where: str) -> None:
    """Raises InputError for a grid without a level beside zero."""
    if bits == 1 and mode.startswith("SYMMETRIC"):
        raise InputError(f"{where}: mode {mode} needs at least 2 bits; take ASYMMETRIC_UNSIGNED, or DorefaQuantizer")


# --------------------------------------------------------------------------- in training


@dataclass
class Weight:
    """A parameter: outside of the optimizer's step it holds rounded values, and `kept` what they were made of."""

    parameter: nn.Parameter
    rounded: Weights
    signs_only: bool  # zero is not one of the values
    kept: Tensor | None = None

    def hold(self) -> None:
        """Rounds; what is zero stays zero."""
        import torch

        if self.kept is None:
            self.kept = self.parameter.detach().clone()
            with torch.no_grad():
                values = self.rounded(self.kept)
                zeros = torch.zeros_like(values, dtype=torch.bool) if self.signs_only else self.kept == 0
                self.parameter.data.copy_(values.masked_fill(zeros, 0))

    def release(self) -> None:
        """The float values are back."""
        if self.kept is not None:
            self.parameter.data.copy_(self.kept)
            self.kept = None

    def backward(self) -> None:
        """The gradient of the rounded values becomes that of the float ones."""
        import torch

        if self.kept is not None and self.parameter.grad is not None:
            with torch.enable_grad():
                leaf = self.kept.clone().requires_grad_()
                (grad,) = torch.autograd.grad(self.rounded(leaf), leaf, self.parameter.grad)
            self.parameter.grad.copy_(grad)


class Quantizing:
    """The quantizer of a schedule, if it has one: from the start on, at all epochs."""

    def __init__(
        self,
        schedule: Schedule,
        model: nn.Module,
        optimizer: Optimizer,
        pruned: Collection[nn.Parameter],
        is_wrapped: bool = False,
    ) -> None:
        """Rounds the weights and what the activations give. Raises InputError for what it cannot do.

        `is_wrapped`: in DistributedDataParallel or the like, which does not see parameters that come later.
        """
        self._model = model
        self._weights: dict[str, Weight] = {}
        self._activations: list[Activation] = []
        for each in schedule.instances.get("quantizers", {}).values():  # at most one
            self._instance, self._where = each, f"{each.where}: {each.name}"
            if isinstance(each.arguments, PostTraining):
                raise InputError(f"{self._where}: {each.cls} does not train; give the file to post_training.quantize")
        if any(policy.kind == "quantizer" for policy in schedule.policies):
            if is_wrapped and isinstance(self._instance.arguments, LearnedClip):
                what = f"{self._where}: {self._instance.cls} adds parameters"
                raise InputError(f"{what}; make the scheduler before anything (DDP, torch.compile) wraps the model")
            found = choices(self._instance, model)
            self._prepare_weights(found, {id(parameter) for parameter in pruned})
            self._prepare_activations(found, optimizer)
        self.hold()

    def hold(self) -> None:
        """The weights as the forward pass takes them."""
        for weight in self._weights.values():
            weight.hold()

    def release(self) -> None:
        """The weights as the optimizer and the pruners take them."""
        for weight in self._weights.values():
            weight.release()

    def backward(self) -> None:
        """Before a step: the weights and their gradients as the optimizer takes them."""
        for weight in self._weights.values():
            weight.backward()
        self.release()

    def finish(self) -> list[Edit]:
        """Leaves rounded weights alone in the model, and puts fixed levels in the place of what learned them.

        Raises InputError where nothing was learned.
        """
        from edgecompress.formats import torch_edits

        edits = [activation.freeze() for activation in self._activations]
        self.hold()
        self._weights.clear()
        self._activations.clear()
        torch_edits.apply(self._model, edits)
        return edits

    # ----------------------------------------------------------------------- state

    def tensors(self) -> dict[str, Tensor]:
        """Its state by the model's names: float weights, and what the activations learned."""
        weights = {
            name: weight.parameter.detach() if weight.kept is None else weight.kept
            for name, weight in self._weights.items()
        }
        return weights | {name: each.detach() for a in self._activations for name, each in a.tensors().items()}

    def check(self, tensors: Mapping[str, Tensor]) -> None:
        """Raises InputError for the state of another model or schedule."""
        own = {name: each.shape for name, each in self.tensors().items()}
        if own != {name: each.shape for name, each in tensors.items()}:
            raise InputError("the state is of another quantizer, or of another model; load that schedule's state")

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.release()
        for name, each in self.tensors().items():
            each.copy_(tensors[name])
        self.hold()

    # ----------------------------------------------------------------------- the model is prepared

    def _prepare_weights(self, found: Mapping[str, Choice], pruned: Collection[int]) -> None:
        seen = set()
        for module, choice in found.items():
            for name, parameter, bits in choice.tensors():
                full = f"{module}.{name}" if module else name
                signs_only = bits == 1 and not isinstance(self._instance.arguments, Range)
                if signs_only and id(parameter) in pruned:
                    raise InputError(
                        f"{self._where}: {full} is pruned, and of 1 bit no value is "
                        "zero; give it more bits, or null, in overrides"
                    )
                if id(parameter) not in seen:
                    self._weights[full] = Weight(parameter, self._rule(choice, parameter, bits), signs_only)
                seen.add(id(parameter))

    def _rule(self, choice: Choice, parameter: nn.Parameter, bits: int) -> Weights:
        from torch import nn

        given = self._instance.arguments
        if isinstance(given, Range):
            mode = mode_of(given.mode, "weights")
            check_bits(bits, mode, self._where)
            each = given.per_channel_wts and parameter.dim() in (2, 4) and not isinstance(choice.module, nn.Embedding)
            return functools.partial(grids.linear, bits=bits, mode=mode, per_channel=each)
        return functools.partial(grids.wrpn if self._instance.cls == "WRPNQuantizer" else grids.dorefa, bits=bits)

    def _prepare_activations(self, found: Mapping[str, Choice], optimizer: Optimizer) -> None:
        from torch import nn

        from edgecompress.extras.schedules import activations

        given = self._instance.arguments
        assert isinstance(given, Quantizer)
        like = next(self._model.parameters())
        ncf = self._instance.cls == "NCFQuantAwareTrainQuantizer"
        for name, choice in found.items():
            kind = type(choice.module)
            if changed := _other_than_bits(choice.override):
                raise InputError(f"{self._where}: {self._instance.cls}: overrides take bits alone, not {changed}")
            rounds = kind is nn.ReLU or (ncf and (kind is nn.Linear or kind.__name__ in OUTPUTS))
            if rounds and choice.activations:
                self._add(activations.build(given, choice.module, name, choice.activations, like))
        if not self._activations and _of(given.bits_activations, None):
            warnings.warn(
                f"{self._where}: the model has no nn.ReLU to quantize: activations stay as they are", stacklevel=4
            )
        if isinstance(given, Range):
            bits = _of(given.num_bits_inputs or given.bits_activations, None)
            if given.quantize_inputs and not ncf and bits:
                self._add(activations.build(given, self._model, "", bits, like, place=0))
        learned = [each for a in self._activations for each in a.parameters()]
        if isinstance(given, LearnedClip) and learned:
            decay = {} if given.act_clip_decay is None else {"weight_decay": given.act_clip_decay}
            optimizer.add_param_group({"params": learned, **decay})

    def _add(self, activation: Activation) -> None:
        if isinstance(self._instance.arguments, Range):
            mode = mode_of(self._instance.arguments.mode, "activations")
            check_bits(activation.bits, mode, self._where)
        self._activations.append(activation)


def _other_than_bits(override: Override) -> str:
    """What an override says beside bits."""
    usual = Override()
    return ", ".join(n for n in vars(usual) if n not in BITS and getattr(override, n) != getattr(usual, n))
