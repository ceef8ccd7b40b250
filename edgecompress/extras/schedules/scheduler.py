"""A schedule in a user's training loop: masks, regularization and learning rates, and their state in one file."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

from edgecompress.core.errors import InputError, blamed
from edgecompress.core.json import Json
from edgecompress.extras.schedules import arguments, parameters, pruners, reader, rewinding
from edgecompress.extras.schedules.channels import Gone
from edgecompress.extras.schedules.feature_maps import FeatureMap
from edgecompress.extras.schedules.learning_rates import LearningRate
from edgecompress.extras.schedules.masks import Mask
from edgecompress.extras.schedules.policies import Pruning, Regularizing
from edgecompress.extras.schedules.quantizers import Quantizing
from edgecompress.extras.schedules.reader import Policy, Schedule
from edgecompress.extras.schedules.rewinding import Rewinder
from edgecompress.extras.schedules.thinning import Thinner
from edgecompress.formats import torch_edits

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer

FILE = "schedule.safetensors"  # the masks, and a quantizer's tensors; in its metadata all else, as JSON
CARD = "numbers"
Table = Literal["quantized", "rewound", "feature_maps"]
TABLES: tuple[Table, ...] = ("quantized", "rewound", "feature_maps")  # of a state; in the file a name begins with one:


class PruningNumbers(TypedDict):
    """Of one pruning policy: whether it has begun, and what its rule remembers."""

    begun: bool
    rule: pruners.State


class Numbers(TypedDict):
    """All of a state but the masks. `flags`: of a mask, those of its three switches that are on."""

    flags: dict[str, list[str]]
    pruning: list[PruningNumbers]
    learning_rates: dict[str, dict[str, Json]]
    thinned: list[Gone]
    rewinding: rewinding.State | None


class State(TypedDict):
    """What `state_dict` gives: `masks_dict` by the model's names, None where nothing is masked.

    `quantized` has the float weights of a quantizer, and what its activations learned; `rewound` what a Rewinder goes
    back to; `feature_maps` what weights are fitted to.
    """

    masks_dict: dict[str, Tensor | None]
    numbers: Numbers
    quantized: dict[str, Tensor]
    rewound: dict[str, Tensor]
    feature_maps: dict[str, Tensor]


class CompressionScheduler:
    """Runs a schedule on a model and its optimizer.

    for epoch in range(epochs):
        scheduler.on_epoch_begin(epoch)
        for step, (inputs, labels) in enumerate(loader):
            scheduler.on_minibatch_begin(epoch, step, len(loader))
            loss = scheduler.before_backward_pass(criterion(model(inputs), labels))
            optimizer.zero_grad()
            loss.backward()
            scheduler.before_parameter_optimization()
            optimizer.step()
            scheduler.on_minibatch_end()
        scheduler.on_epoch_end({"min": validation_loss, "max": top1})
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        schedule: str | Path | Schedule,
        example_inputs: Sequence[Tensor] | Tensor | None = None,
    ) -> None:
        """`schedule`: a YAML file, or what `reader.read` makes of it; what is odd in it is warned of.

        `example_inputs`: what the model is called with, for extensions that thin it.

        Raises InputError, one line with the file's line: for what the file says wrongly, what the model lacks, and
        what does not fit its weights.
        """
        from torch.nn.parallel import DistributedDataParallel

        self.schedule = schedule if isinstance(schedule, Schedule) else reader.read(schedule)
        for warning in self.schedule.warnings:
            warnings.warn(warning, stacklevel=2)
        given, model = model, parameters.unwrapped(model)
        self.masks = {name: Mask(parameter) for name, parameter in model.named_parameters()}
        of = {id(mask.parameter): mask for mask in self.masks.values()}
        kinds: dict[str, list[Policy]] = {kind: [] for kind in reader.KINDS}
        for policy in self.schedule.policies:
            kinds[policy.kind].append(policy)
        self._pruning = [Pruning(policy, model, of) for policy in kinds["pruner"]]
        self._thins = [each for each in kinds["extension"] if isinstance(each.instance.arguments, arguments.Thinning)]
        inputs = (example_inputs,) if hasattr(example_inputs, "shape") else example_inputs  # one tensor will do
        self._thinner = Thinner(model, optimizer, of, inputs, self._thins) if self._thins else None
        if self._thinner and isinstance(given, DistributedDataParallel):
            raise InputError(
                f"{self._thinner.where}: DistributedDataParallel holds the sizes of the model; thin before"
            )
        pruned = [mask.parameter for each in self._pruning for mask in each.masks.values()]
        self._quantizing = Quantizing(self.schedule, model, optimizer, pruned, given is not model)
        self._regularizing = [Regularizing(policy, model, of) for policy in kinds["regularizer"]]
        used = {policy.instance.name: policy.instance for policy in kinds["lr_scheduler"]}
        self._rates = {name: LearningRate(instance, optimizer) for name, instance in used.items()}
        self._setting = kinds["lr_scheduler"]
        rewinds = [each for each in kinds["extension"] if isinstance(each.instance.arguments, arguments.Rewinding)]
        self._rewinder = Rewinder(rewinds, model, optimizer, self._rates) if rewinds else None
        if self._thinner and self._rewinder and self._rewinder.weights:
            raise InputError(
                f"{self._rewinder.where}: weights do not go back to sizes before thinning; take `what: lr`"
            )
        self._epoch, self._last = -1, False

    def on_epoch_begin(self, epoch: int) -> None:
        """Chooses the masks of an epoch, counted from 0. Raises InputError where nothing of a weight would stay."""
        self._epoch = epoch
        self._quantizing.release()
        if self._rewinder:
            self._rewinder.begin_epoch(epoch)
        for each in self._pruning:
            if epoch in each.policy.epochs:
                each.begin_epoch(epoch)
        self._quantizing.hold()

    def on_minibatch_begin(self, epoch: int, step: int, steps: int) -> None:
        """Masks the weights for the forward pass of a step, of as many as the epoch has."""
        if epoch != self._epoch:
            raise InputError(f"on_minibatch_begin: call on_epoch_begin({epoch}) before the first step of the epoch")
        self._last = step == steps - 1
        pruning = {id(each.policy): each for each in self._pruning}
        self._quantizing.release()
        if self._rewinder and step == 0 and any(epoch in each.epochs for each in self._rewinder.policies):
            self._rewinder.rewind(epoch)
            self._hold()
        for policy in (each for each in self.schedule.policies if epoch in each.epochs):
            if policy.kind == "pruner":
                pruning[id(policy)].begin_step(epoch, step, steps)
            elif policy in self._thins and step == 0:
                self._thin(policy)
        self._quantizing.hold()

    def _hold(self) -> None:
        for mask in self.masks.values():
            if not mask.forward_only:
                mask.hold()

    def _thin(self, policy: Policy) -> None:
        assert self._thinner is not None
        self._thinner.thin(policy)
        for each in self._pruning:
            if isinstance(each.pruner.rule, pruners.Ranked):
                each.pruner.rule.state.clear()  # of filters that are no more
        for feature_map in self._maps().values():
            feature_map.products = None

    def before_backward_pass(self, loss: Tensor) -> Tensor:
        """The loss with what the regularizers add."""
        for each in self._regularizing:
            if self._epoch in each.policy.epochs:
                loss = loss + each.regularizer.loss().to(loss.device)
        return loss

    def before_parameter_optimization(self) -> None:
        """The weights as the optimizer is to change them."""
        self._quantizing.backward()
        for each in self._pruning:
            if self._epoch in each.policy.epochs:
                for mask in each.masks.values():
                    mask.revert()

    def on_minibatch_end(self) -> None:
        """After the step: what is masked for good is zero again, in epochs without any policy too."""
        self._hold()
        for regularizing in self._regularizing:
            if self._epoch in regularizing.policy.epochs:
                regularizing.end_step(self._epoch, self._last)
        for pruning in self._pruning:
            if self._epoch in pruning.policy.epochs and pruning.arguments.discard_masks_at_minibatch_end:
                for mask in pruning.masks.values():
                    mask.values = None
        self._quantizing.hold()

    def on_epoch_end(self, metrics: Mapping[str, float] | None = None) -> None:
        """Keeps masks for good, and sets the next epoch's learning rates; a plateau needs the metric "min" or "max"."""
        self._quantizing.release()
        for each in self._pruning:
            each.end_epoch(self._epoch)
        self._quantizing.hold()
        epoch = self._epoch - (self._rewinder.back if self._rewinder else 0)
        for policy in self._setting:
            if epoch in policy.epochs:
                self._rates[policy.instance.name].step(epoch + 1, metrics or {})

    def mask_gradients(self) -> None:
        """From now on what is masked for good has no gradient: for loops that clip gradients by their norm.

        Those of a filter of zeros before a batch norm are hundreds of times larger than all others.
        """
        for mask in self.masks.values():
            mask.quiet()

    def finish(self) -> list[torch_edits.Edit]:
        """After the last epoch: the model is as it is to be, and nothing of the schedule holds on to it any more.

        Returns the edits of the net that was given: its sizes after thinning, the levels of its activations, and the
        parameters whose zeros stay. Raises InputError where a quantizer has learned nothing.
        """
        for each in self._pruning:
            each.release()
        for mask in self.masks.values():
            mask.loud()
        kept = [name for name, mask in self.masks.items() if not mask.forward_only and mask.keeps_zeros()]
        edits = [*self._quantizing.finish(), *(self._thinner.edits() if self._thinner else [])]
        return [*edits, {"edit": "zeros", "parameters": kept}] if kept else edits

    # ----------------------------------------------------------------------- state

    def state_dict(self) -> State:
        """Where it stands between two epochs; the model's and the optimizer's states are yours to keep."""
        numbers: Numbers = {
            "flags": {name: mask.flags for name, mask in self.masks.items() if mask.flags},
            "pruning": [{"begun": each.begun, "rule": each.pruner.rule.state} for each in self._pruning],
            "learning_rates": {name: rate.state() for name, rate in self._rates.items()},
            "thinned": self._thinner.gone if self._thinner else [],
            "rewinding": self._rewinder.state() if self._rewinder else None,
        }
        masks = {name: mask.values for name, mask in self.masks.items()}
        return {
            "masks_dict": masks,
            "numbers": numbers,
            "quantized": self._quantizing.tensors(),
            "rewound": self._rewinder.tensors if self._rewinder else {},
            "feature_maps": {n: each.products for n, each in self._maps().items() if each.products is not None},
        }

    def _maps(self) -> dict[str, FeatureMap]:
        """Each with a name of its own."""
        return {
            f"{number} {each.name}": each
            for number, pruning in enumerate(self._pruning)
            for each in pruning.pruner.activations
            if isinstance(each, FeatureMap)
        }

    def load_state_dict(self, state: State) -> None:
        """The inverse; a model that was thinned is thinned again: load its own state, and the optimizer's, after this.

        Raises InputError for the state of another model or schedule, before anything but its shapes is changed.
        """
        masks, numbers = state["masks_dict"], state["numbers"]
        self._quantizing.release()
        if self._thinner:
            self._thinner.replay(numbers["thinned"])
        self._quantizing.hold()
        for name, values in masks.items():
            own = self.masks[name].parameter.shape if name in self.masks else None
            if own is None or (values is not None and values.shape != own):
                raise InputError(
                    f"the state has a mask of '{name}' that does not fit the model; load that model's state"
                )
        if len(numbers["pruning"]) != len(self._pruning) or numbers["learning_rates"].keys() != self._rates.keys():
            raise InputError(f"the state is not of the schedule {self.schedule.path}; load the schedule that it is of")
        self._quantizing.check(state["quantized"])
        if self._rewinder and numbers["rewinding"]:
            self._rewinder.restore(numbers["rewinding"], state["rewound"])
        for name, feature_map in self._maps().items():
            feature_map.restore(state["feature_maps"].get(name))
        for name, mask in self.masks.items():
            values = masks.get(name)
            mask.values = None if values is None else values.to(mask.parameter)
            mask.switch(numbers["flags"].get(name, []))
        for each, kept in zip(self._pruning, numbers["pruning"], strict=True):
            each.begun = kept["begun"]
            each.pruner.rule.state.clear()
            each.pruner.rule.state.update(kept["rule"])
        for name, rate in self._rates.items():
            rate.restore(numbers["learning_rates"][name])
        self._quantizing.load(state["quantized"])

    def save(self, folder: str | Path) -> None:
        """Writes the state into a folder, which it makes: one file, whole or not there."""
        from safetensors.torch import save_file

        state, place = self.state_dict(), Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        masked = {
            n: values.detach().cpu().contiguous() for n, values in state["masks_dict"].items() if values is not None
        }
        for table in TABLES:
            masked |= {f"{table}:{name}": tensor.cpu().contiguous() for name, tensor in state[table].items()}
        part = place / f"{FILE}.{os.getpid()}.part"
        save_file(masked, part, {CARD: json.dumps(state["numbers"])})
        part.replace(place / FILE)

    def load(self, folder: str | Path) -> None:
        """Goes on from what `save` wrote. Raises InputError for what cannot be read, or is of another model."""
        from safetensors import SafetensorError, safe_open

        file = Path(folder) / FILE
        try:
            with safe_open(file, "pt") as stored:
                numbers = json.loads((stored.metadata() or {})[CARD])
                tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
            tables = {
                table: {
                    name.removeprefix(f"{table}:"): tensors.pop(name)
                    for name in [*tensors]
                    if name.startswith(f"{table}:")
                }
                for table in TABLES
            }
            state = cast(State, {"masks_dict": tensors, "numbers": numbers, **tables})
            self.load_state_dict(state)
        except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise blamed(error)(f"{file}: cannot be read as the state of a schedule: {error}") from error
