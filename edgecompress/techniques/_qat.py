"""A net as quantization-aware training sees it: exported, its batch norms folded in, rounding where int8 rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core import user_code
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Dim
from edgecompress.formats import torch_faults, torch_module, torch_outputs
from edgecompress.techniques._training.data import Items, spread

if TYPE_CHECKING:
    import torch
    from torchao.quantization.pt2e.quantizer import QuantizationSpec, Quantizer

OWN = "graph.net."  # before a weight's own name where it trains
NOTE = "quantization_annotation"  # torchao's key in a node's meta
LEAST_SCALE = 2.0**-40  # torchao's own is 2^-12: coarser than the grid of a runtime where weights are small
CLAMPS = ("relu", "relu_", "relu6", "relu6_", "hardtanh", "hardtanh_", "clamp", "clamp_")
SUMS = ("add", "add_")


def recurrent(net: torch.nn.Module) -> str:
    """The first recurrent layer of a net, which PT2E does not quantize; or nothing."""
    import torch

    kinds = (torch.nn.RNNBase, torch.nn.RNNCellBase)
    return next((name or "it" for name, module in net.named_modules() if isinstance(module, kinds)), "")


def student(net: torch.nn.Module, items: Items, bits: int, size: int) -> torch.nn.Module | None:
    """`net` with the same inputs by name and outputs in order, rounding as it will in int8; its weights are the net's.

    First ranges are those of `size` items. None where it has no layer to quantize. While it trains, ranges of weights
    are the weights' own, and those of activations follow the data until `watch(False)`. A batch norm behind
    a layer is folded into it, its statistics fixed (Krishnamoorthi 2018, arXiv:1806.08342, section 3.2.2). Raises
    InputError for a net that torch.export cannot trace, StageFailed for one that torchao cannot prepare.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

    graph = _folded(_exported(net, items))
    try:
        made = _student(prepare_qat_pt2e(graph, _quantizer(bits)), [spec.name for spec in items.model.inputs])
    except Exception as error:  # torchao's errors have no base of their own
        raise StageFailed(f"preparing the net for int8: {user_code.error_line(error)}") from error
    if not made.layers:
        return None
    with torch.no_grad():  # the buffers of a range have their shapes from here on: a checkpoint is laid into them
        torch_module.call(made.train(), _taken(items, size))
    return made


def taken_back(net: torch.nn.Module, trained: torch.nn.Module) -> None:
    """Sets the net's parameters to the student's, by name."""
    import torch

    learned = dict(trained.named_parameters(remove_duplicate=False))
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if OWN + name in learned:
                parameter.copy_(learned[OWN + name])


# --------------------------------------------------------------------------- the graph


def _exported(net: torch.nn.Module, items: Items) -> torch.fx.GraphModule:
    """The net in eval mode as a graph of operators on its own parameters, for any size of its dynamic axes."""
    import torch
    from torch.export import Dim as Exported

    model = items.model
    first = model.batch
    inputs = _taken(items, first if isinstance(first, int) else 2)  # one item would be taken for a constant
    try:
        flat = _flat(net.eval(), list(inputs))
        axes = [{i: Exported.DYNAMIC for i, d in enumerate(s.shape) if isinstance(d, Dim)} for s in model.inputs]
        program = torch.export.export(flat, tuple(inputs.values()), dynamic_shapes={"inputs": tuple(axes)})
    except Exception as error:
        raise InputError(
            f"{torch_module.reference(model)}: torch.export cannot trace it: "
            f"{torch_faults.told(error, says=user_code.error_line(error))}"
        ) from error
    return program.module(check_guards=False)


def _taken(items: Items, count: int) -> dict[str, torch.Tensor]:
    """The inputs of so many items, evenly spread, some of them twice where there are fewer."""
    import numpy as np

    return items.take(np.resize(spread(items.count, count), count))[0]


def _flat(net: torch.nn.Module, names: Sequence[str]) -> torch.nn.Module:
    """`net` with its inputs in the order of `names`, its outputs in a tuple."""
    import torch

    class PositionalNet(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(
                torch_outputs.flatten(torch_module.call(self.net, dict(zip(names, inputs, strict=True)))).values()
            )

    return PositionalNet()


def _student(graph: torch.fx.GraphModule, names: Sequence[str]) -> torch.nn.Module:
    """The prepared graph as a module that is called like the user's net."""
    import torch
    from torchao.quantization.pt2e.fake_quantize import FakeQuantize

    ranges = [module for module in graph.modules() if isinstance(module, FakeQuantize)]

    class Student(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.graph, self.watching = graph, True
            self.layers = sum(each.is_per_channel for each in ranges)

        def forward(self, **named: object) -> object:
            leaves = torch_outputs.flatten(named)
            return self.graph(*(leaves[name] for name in names))

        def train(self, mode: bool = True) -> torch.nn.Module:
            """The graph is that of eval mode in either: what changes is whether ranges follow the data."""
            self.training = mode
            for each in ranges:
                each.enable_observer(each.is_per_channel or (mode and self.watching))
            return self

        def watch(self, on: bool) -> None:
            self.watching = on
            self.train(self.training)

    return Student()


# --------------------------------------------------------------------------- batch norms


def _folded(net: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph with each batch norm of fixed statistics computed in the weights of the layer before it."""
    for node in list(net.graph.nodes):
        if _operator(node) == "batch_norm" and _foldable(node):
            _fold(net.graph, node)
    net.graph.eliminate_dead_code()
    net.recompile()
    return net


def _foldable(node: torch.fx.Node) -> bool:
    """Whether a batch norm is over the channels of a layer whose result nothing else reads."""
    layer, mean, trains = node.args[0], node.args[3], node.args[5]
    axis = _channels(layer)
    if axis is None or trains or mean is None or len(layer.users) != 1:
        return False
    return _operator(layer) != "linear" or layer.meta["val"].dim() == 2


def _fold(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    """weight * s and (bias - mean) * s + beta, s = gamma / sqrt(variance + eps): what a converter makes of the two."""
    import torch

    aten = torch.ops.aten
    layer, gamma, beta, mean, variance, _, _, eps = node.args[:8]
    data, weight, bias, *rest = (*layer.args, None)[: max(len(layer.args), 3)]
    axis, rank = _channels(layer), weight.meta["val"].dim()
    with graph.inserting_before(layer):

        def add(operator: torch._ops.OpOverload, *args: object) -> torch.fx.Node:
            return graph.call_function(operator, args)

        scale = add(aten.rsqrt.default, add(aten.add.Tensor, variance, eps))
        scale = scale if gamma is None else add(aten.mul.Tensor, scale, gamma)
        shape = [-1 if i == axis else 1 for i in range(rank)]
        wide = add(aten.mul.Tensor, weight, add(aten.reshape.default, scale, shape))
        shift = add(aten.neg.default, mean) if bias is None else add(aten.sub.Tensor, bias, mean)
        shift = add(aten.mul.Tensor, shift, scale)
        shift = shift if beta is None else add(aten.add.Tensor, shift, beta)
    layer.args = (data, wide, shift, *rest)
    node.replace_all_uses_with(layer)
    graph.erase_node(node)


def _channels(node: torch.fx.Node) -> int | None:
    """The axis of the output channels in the weight of a layer; None for what is no layer that int8 has per channel."""
    name = _operator(node)
    if name in ("conv1d", "conv2d", "conv3d", "linear"):
        return 0
    if name.startswith("conv_transpose"):
        groups = node.args[6] if len(node.args) > 6 else 1
        return 1 if groups == 1 else None
    return None


def _operator(node: torch.fx.Node) -> str:
    """The name of a node's operator without its overload; nothing for what is no operator."""
    packet = getattr(node.target, "overloadpacket", None) if node.op == "call_function" else None
    return getattr(packet, "__name__", "")


# --------------------------------------------------------------------------- where int8 rounds


def _quantizer(bits: int) -> Quantizer:
    """torchao's kind of quantizer: weights of layers per channel, what goes into and comes out of them and of sums.

    What is computed with a mask, and whatever else runtimes quantize or do not, keeps its real numbers.
    """
    from torchao.quantization.pt2e.quantizer import QuantizationAnnotation, Quantizer

    activation, weights = _activation(), [_weight(bits, axis) for axis in (0, 1)]

    class Own(Quantizer):  # type: ignore[misc]
        def annotate(self, model: torch.fx.GraphModule) -> torch.fx.GraphModule:
            for node in model.graph.nodes:
                axis = _channels(node)
                if axis is not None:
                    self.note(node, {node.args[0]: activation, node.args[1]: weights[axis]})
                elif _is_sum(node):
                    self.note(node, dict.fromkeys(node.args[:2], activation))
            return model

        def note(self, node: torch.fx.Node, inputs: dict[torch.fx.Node, QuantizationSpec]) -> None:
            """A clamp behind a node is computed with it: what is rounded is the clamp's result."""
            node.meta[NOTE] = QuantizationAnnotation(inputs, _annotated=True)
            users = list(node.users)
            end = users[0] if len(users) == 1 and _operator(users[0]) in CLAMPS else node
            end.meta.setdefault(NOTE, QuantizationAnnotation(_annotated=True)).output_qspec = activation

        def validate(self, model: torch.fx.GraphModule) -> None: ...

    return Own()


def _is_sum(node: torch.fx.Node) -> bool:
    """Whether it adds two tensors of real numbers and of one shape: a shortcut, no mask, no bias."""
    if _operator(node) not in SUMS:
        return False
    values: list[Any] = [getattr(argument, "meta", {}).get("val") for argument in node.args[:2]]
    if not all(hasattr(value, "shape") and value.is_floating_point() for value in values):
        return False
    return bool(values[0].dim()) and values[0].shape == values[1].shape and node.args[0] is not node.args[1]


def _activation() -> QuantizationSpec:
    """8 bits per tensor, with a zero point; the range is a moving average of extremes."""
    import torch
    from torchao.quantization.pt2e.fake_quantize import FusedMovingAvgObsFakeQuantize
    from torchao.quantization.pt2e.observer import MovingAverageMinMaxObserver
    from torchao.quantization.pt2e.quantizer import QuantizationSpec

    made = FusedMovingAvgObsFakeQuantize.with_args(observer=MovingAverageMinMaxObserver)
    return QuantizationSpec(torch.int8, made, -128, 127, torch.per_tensor_affine)


def _weight(bits: int, axis: int) -> QuantizationSpec:
    """So many bits per channel, as many steps below zero as above; the range is that of the weights at each step."""
    import torch
    from torchao.quantization.pt2e.fake_quantize import FakeQuantize
    from torchao.quantization.pt2e.observer import MovingAveragePerChannelMinMaxObserver
    from torchao.quantization.pt2e.quantizer import QuantizationSpec

    observer = MovingAveragePerChannelMinMaxObserver.with_args(averaging_constant=1.0)
    made = FakeQuantize.with_args(observer=observer, eps=LEAST_SCALE, ch_axis=axis)  # the specification's own is lost
    most = 2 ** (bits - 1) - 1
    return QuantizationSpec(torch.int8, made, -most, most, torch.per_channel_symmetric)
