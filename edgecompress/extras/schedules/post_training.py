"""Distiller's quantizer without training: weights and activations on the grids of what calibration batches show."""

from __future__ import annotations

import dataclasses
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, first_line
from edgecompress.extras.schedules import batch_norms, documents, grids, reader
from edgecompress.extras.schedules.grids import Statistics
from edgecompress.extras.schedules.parameters import normalized
from edgecompress.extras.schedules.quantizer_arguments import InputOverride, PostTraining
from edgecompress.extras.schedules.quantizers import Choice, check_bits, choices
from edgecompress.extras.schedules.reader import Instance, Schedule
from edgecompress.formats import torch_edits

if TYPE_CHECKING:
    from torch import Tensor, fx, nn

    from edgecompress.formats.torch_edits import Edit

SUMS = (operator.add, operator.iadd)
Key = tuple[str, int | None]  # a module and one of its inputs, or its output
Table = dict[Key, Statistics]


def quantize(
    model: nn.Module,
    schedule: str | Path | Schedule,
    batches: Iterable[Any] | None = None,
    statistics: str | Path | None = None,
) -> list[Edit]:
    """Quantizes a trained model in place, in eval mode; returns the edits that make its factory's net one of this form.

    `batches`: calibration data, what the model takes, one input or a tuple of them each; read twice for the clip mode
    LAPLACE. Instead of them `statistics`: Distiller's file, which a schedule may also name inside its own folder.
    Batch norms are folded into the convolutions before them. Raises InputError, one line, for what does not fit.
    """
    read = schedule if isinstance(schedule, Schedule) else reader.read(schedule)
    found = quantizer(read)
    if not found:
        raise InputError(f"{read.path}: has no PostTrainLinearQuantizer; run it in a training loop")
    work = _Work(found, model.eval())
    work.seen = _stored(work, read, statistics) if batches is None else _measured(work, batches)
    work.round_activations()
    work.fold()
    work.round_weights()
    torch_edits.apply(model, work.levels)
    return work.edits + work.levels


def quantizer(schedule: Schedule) -> Instance | None:
    """The quantizer without training of a schedule."""
    every = schedule.instances.get("quantizers", {}).values()
    return next((each for each in every if isinstance(each.arguments, PostTraining)), None)


def check(model: nn.Module, instance: Instance) -> None:
    """Raises InputError where the quantizer does not fit a model, as far as that is known without data."""
    list(_Work(instance, model.eval()).keys())


class _Work:
    """One model on its way; `edits` fold its batch norms, `levels` round its activations."""

    def __init__(self, instance: Instance, model: nn.Module) -> None:
        assert isinstance(instance.arguments, PostTraining)
        self.where = f"{instance.where}: {instance.name}"
        self.given, self.model = instance.arguments, model
        self.choices = choices(instance, model)
        for name, choice in self.choices.items():
            if self._option(choice, "fpq_module") or self._option(choice, "fp16"):
                raise InputError(f"{self.where}: '{name}': fp16 and fpq_module are not run; leave them out")
        self.names = {id(module): name for name, module in model.named_modules()}
        graph = batch_norms.traced(model, f"{self.where}: the quantizer")
        if loose := [str(node.name) for node in graph.nodes if node.target in SUMS and len(node.all_input_nodes) > 1]:
            warnings.warn(
                f"{self.where}: sums of the forward itself ({', '.join(loose)}) are computed in float, and rounded "
                "where a module reads them; overrides name sums that are modules called EltwiseAdd",
                stacklevel=3,
            )
        self.nodes = {
            str(node.target): node
            for node in graph.nodes
            if node.op == "call_module" and not any(True for _ in self._module(node).children())
        }
        self.norms = {
            weight.rpartition(".")[0]: self.names[id(norm)]
            for weight, norm in batch_norms.following(graph, model).items()
        }
        self.seen: Table = {}
        self.edits: list[Edit] = []
        self.levels: list[Edit] = []

    def _module(self, node: fx.Node) -> nn.Module:
        return self.model.get_submodule(str(node.target))

    def _option(self, choice: Choice, name: str) -> Any:
        """What an override says of it, or the quantizer."""
        own = getattr(choice.override, name)
        return getattr(self.given, name) if own is None else own

    # ----------------------------------------------------------------------- which tensors are rounded

    def keys(self) -> Iterator[tuple[Key, InputOverride | None]]:
        """The outputs and inputs that are rounded, in the order of the forward pass. Raises InputError."""
        from torch import nn

        rounded: set[str] = set()
        for name, node in self.nodes.items():
            choice, module = self.choices[name], self._module(node)
            if not choice.activations or name in self.norms.values() or isinstance(module, (_passing(), nn.Embedding)):
                continue
            if choice.is_layer:
                takes = bool(choice.weights) and not choice.override.fake
            else:
                takes = choice.override.quantize_inputs is not False and not self._follows(node)
            if takes:
                yield from self._inputs(name, node, rounded)
            if not self._is_activated(node):
                rounded.add(name)
                yield (name, None), None

    def _inputs(self, name: str, node: fx.Node, rounded: set[str]) -> Iterator[tuple[Key, InputOverride | None]]:
        own = self.choices[name].override.input_overrides or {}
        for place, value in enumerate(node.args):
            before = self._source(value)
            override = own.get(str(place))
            if before is None:
                continue
            if before in rounded and override is not None:
                raise InputError(
                    f"{self.where}: input_overrides of '{name}': '{before}' has rounded input {place} already"
                )
            if before not in rounded:
                if override is None and not self.given.inputs_quant_auto_fallback:
                    what = f"input {place} of '{name}' is not quantized, and inputs_quant_auto_fallback is off"
                    raise InputError(f"{self.where}: {what}; name it in input_overrides")
                yield (name, place), override

    def _source(self, value: object) -> str | None:
        """The module whose output a value is, "" for what none gives, None for what is no tensor of the graph."""
        from torch import fx

        if not isinstance(value, fx.Node):
            return None
        if value.op != "call_module":
            return ""
        name = str(value.target)
        if isinstance(self._module(value), _passing()) or name in self.norms.values():
            return self._source(value.args[0])
        return name

    def _is_activated(self, node: fx.Node) -> bool:
        """Whether a ReLU alone reads what a layer gives, behind its batch norm; then the ReLU's output is rounded."""
        norm = self.norms.get(str(node.target))
        readers = list((self.nodes[norm] if norm else node).users)
        return self.choices[str(node.target)].is_layer and len(readers) == 1 and self._is_relu(readers[0])

    def _is_relu(self, node: fx.Node) -> bool:
        from torch import nn

        rounds = node.op == "call_module" and bool(self.choices[str(node.target)].activations)
        return rounds and isinstance(self._module(node), (nn.ReLU, nn.ReLU6))

    def _follows(self, node: fx.Node) -> bool:
        """Whether it is the ReLU of a layer: then what it takes is not rounded."""
        before = self._source(node.args[0]) if node.args and self._is_relu(node) else None
        return before in self.nodes and self._is_activated(self.nodes[str(before)])

    # ----------------------------------------------------------------------- rounding

    def round_activations(self) -> None:
        """Makes the edits that round them. Raises InputError for what was not seen."""
        for (name, place), override in self.keys():
            choice = self.choices[name]
            at = (self.norms.get(name, name), None) if place is None else (name, place)
            if at not in self.seen:
                what = f"{self.where}: no statistics of '{at[0]}'"
                raise InputError(f"{what}; give batches, a file that has them, or null bits in overrides")
            self.levels.append(self._level(choice, override, (name, place), self.seen[at]))

    def _level(self, choice: Choice, override: InputOverride | None, key: Key, seen: Statistics) -> Edit:
        import torch

        one = override if override and not override.from_output else InputOverride()
        bits = one.bits_activations if isinstance(one.bits_activations, int) else choice.activations
        mode = grids.mode_of(one.mode or self._option(choice, "mode"), "activations")
        clip = one.clip_acts or self._option(choice, "clip_acts")
        stds = one.clip_n_stds or self._option(choice, "clip_n_stds")
        assert bits
        check_bits(bits, mode, self.where)
        try:
            ends = grids.ends(seen, bits, mode, clip, stds, self._option(choice, "clip_half_range"))
        except ValueError as error:
            raise InputError(f"{self.where}: '{key[0]}': {error}") from error
        least, most = (torch.tensor(end, dtype=torch.float64) for end in ends)
        step, low, high = (float(part) for part in grids.fitted(bits, mode, least, most))
        if approximate := self._option(choice, "scale_approx_mult_bits"):
            step = 1 / grids.approximated(1 / step, approximate)
        edit: Edit = {"edit": "levels", "module": key[0], "step": step, "low": int(low), "high": int(high)}
        return edit if key[1] is None else {**edit, "input": key[1]}

    def fold(self) -> None:
        """The batch norms become part of the convolutions before them."""
        from torch import nn
        from torch.nn.utils.fusion import fuse_conv_bn_eval

        for name, norm in self.norms.items():
            conv = self.model.get_submodule(name)
            assert isinstance(conv, nn.Conv2d)
            fused = fuse_conv_bn_eval(conv, self.model.get_submodule(norm))
            made: list[Edit] = [{"edit": "replace", "module": norm, "by": [("Identity", {})]}]
            if conv.bias is None:
                kept = {n: getattr(fused, n) for n in CONVOLUTION}
                options = {n: list(value) if isinstance(value, tuple) else value for n, value in kept.items()}
                made.append({"edit": "replace", "module": name, "by": [("Conv2d", options | {"bias": True})]})
            torch_edits.apply(self.model, made)
            self.edits += made
            self.model.get_submodule(name).to(fused.weight).load_state_dict(fused.state_dict())

    def round_weights(self) -> None:
        """Puts the weights on their grids."""
        import torch

        done: set[int] = set()
        for name, choice in self.choices.items():
            for kind, parameter, bits in dataclasses.replace(choice, module=self.model.get_submodule(name)).tensors():
                if kind == "bias" or choice.override.fake or id(parameter) in done:
                    continue
                done.add(id(parameter))
                mode = grids.mode_of(self._option(choice, "mode"), "weights")
                check_bits(bits, mode, self.where)
                each = self._option(choice, "per_channel_wts") and not isinstance(choice.module, torch.nn.Embedding)
                weight = parameter.detach()
                if self.given.also_clip_weights:
                    clip, stds = self._option(choice, "clip_acts"), self._option(choice, "clip_n_stds")
                    seen = Accumulated()
                    seen.add(weight)
                    seen.add_distances(weight)
                    weight = weight.clamp(*grids.ends(seen.statistics(), bits, mode, clip, stds))
                parameter.data.copy_(grids.linear(weight, bits, mode, each))


CONVOLUTION = (
    "in_channels", "out_channels", "kernel_size", "stride", "padding", "dilation", "groups", "padding_mode",
)  # fmt: skip


def _passing() -> Any:
    """Modules that give what they take, so that what was rounded still is."""
    from torch import nn

    return nn.Identity | nn.Flatten | nn.Dropout | nn.Dropout2d | nn.Dropout3d


# --------------------------------------------------------------------------- statistics


@dataclass
class Accumulated:
    """What is added up of a tensor over batches; a module may be called several times in one."""

    least: list[float] = field(default_factory=list)  # of each item
    most: list[float] = field(default_factory=list)
    count: int = 0
    total: float = 0.0
    squares: float = 0.0
    distances: float = 0.0

    def add(self, x: Tensor) -> None:
        """Items along the first axis."""
        items = x.detach().double().reshape(len(x) if x.dim() else 1, -1)
        self.least += items.amin(1).tolist()
        self.most += items.amax(1).tolist()
        self.count += items.numel()
        self.total += float(items.sum())
        self.squares += float(items.square().sum())

    def add_distances(self, x: Tensor) -> None:
        """In a second pass, those from the mean of the first."""
        self.distances += float((x.detach().double() - self.total / self.count).abs().sum())

    def statistics(self) -> Statistics:
        """Of all of it."""
        items, mean = len(self.least), self.total / self.count
        spread = max(self.squares - self.count * mean**2, 0.0) / max(self.count - 1, 1)
        return Statistics(
            min(self.least), max(self.most), sum(self.least) / items, sum(self.most) / items, mean, spread**0.5,
            self.distances / self.count,
        )  # fmt: skip


def _measured(work: _Work, batches: Iterable[Any]) -> Table:
    """Of the inputs and outputs that are rounded, over the batches."""
    passes = ["add", "add_distances"] if "LAPLACE" in str(work.given) else ["add"]
    table: dict[Key, Accumulated] = {}
    for way in passes:
        hooks = [work.model.get_submodule(name).register_forward_hook(_watch(table, name, way)) for name in work.nodes]
        try:
            _run(work, batches)
        finally:
            for hook in hooks:
                hook.remove()
    return {key: each.statistics() for key, each in table.items()}


def _run(work: _Work, batches: Iterable[Any]) -> None:
    """Raises InputError for what the model does not take, such as labels."""
    import torch

    with torch.no_grad():
        for batch in batches:
            try:
                work.model(*batch) if isinstance(batch, (tuple, list)) else work.model(batch)
            except Exception as error:  # of the user's own forward
                raise InputError(
                    f"{work.where}: the model does not take a batch: {first_line(error)}; batches are a list of what "
                    "it is called with, one tensor or a tuple each, without labels"
                ) from error


def _watch(table: dict[Key, Accumulated], name: str, way: str) -> Any:
    import torch

    def watch(_: nn.Module, inputs: Sequence[object], output: object) -> None:
        for place, value in [(None, output), *enumerate(inputs)]:
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.numel():
                getattr(table.setdefault((name, place), Accumulated()), way)(value)

    return watch


def _stored(work: _Work, schedule: Schedule, statistics: str | Path | None) -> Table:
    """Of the file that the caller gives, or the schedule; by names without DataParallel's. Raises InputError."""
    named = work.given.model_activation_stats
    if isinstance(named, str) and statistics is None:
        folder = Path(schedule.path).resolve().parent
        statistics = folder / named
        if not statistics.resolve().is_relative_to(folder):
            return {}
    where = work.where if statistics is None else str(statistics)
    tables: Any = (named or {}) if statistics is None else documents.read(Path(statistics)).root.plain()
    names = {normalized(name): name for name in work.nodes}
    found: Table = {}
    try:
        for name, table in tables.items():
            if own := names.get(normalized(name)):
                found[own, None] = _statistics(table["output"])
                for place, each in table["inputs"].items():
                    found[own, int(place)] = _statistics(each)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{where}: not Distiller's statistics of activations: {type(error).__name__}: {error}"
        ) from error
    return found


def _statistics(table: Mapping[str, Any]) -> Statistics:
    given = {each.name: float(table[each.name]) for each in dataclasses.fields(Statistics) if each.name in table}
    return Statistics(**given)
