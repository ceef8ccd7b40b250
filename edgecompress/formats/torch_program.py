"""A program of torch.export: loaded, called, and the weights that a rewrite adds and takes away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.formats import torch_paddings

if TYPE_CHECKING:
    import torch


def load(file: Path) -> torch.export.ExportedProgram:
    """The program in a .pt2 file, quantized or not. Raises what torch raises: it has no error of its own.

    The operators of quantized ones are registered, which in a process of its own nothing else does. Weights and
    constants that are views become contiguous: converters write some in the order of their storage. Circular paddings
    are spelled out, casts that change nothing go: quantizers put scales on both sides of one, which XNNPACK refuses.
    """
    import torch
    import torch.ao.quantization.fx._decomposed  # quantize_per_tensor and the like

    program = torch.export.load(file)
    for held in (program.state_dict, program.constants):
        for tensor in held.values():
            if isinstance(tensor, torch.Tensor) and tensor.layout == torch.strided and not tensor.is_contiguous():
                tensor.data = tensor.detach().contiguous()
    torch_paddings.spelled_out(program, *torch_paddings.EVERYWHERE)
    for node in program.graph.find_nodes(op="call_function", target=torch.ops.aten.to.dtype):
        same = node.args[0].meta["val"].dtype == node.meta["val"].dtype
        if same and not any(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.args[0])
            program.graph.erase_node(node)
    return program


def call(net: torch.nn.Module, leaves: Sequence[object]) -> Any:
    """What a program's module returns for its inputs in a flat list, however it takes them."""
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_unflatten(list(leaves), net._in_spec)
    return net(*args, **kwargs)


def module_of(node: torch.fx.Node) -> str:
    """The innermost module that computes a node; the node's own name where that is the net itself."""
    stack: Mapping[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    return next(reversed([path for path, _ in stack.values() if path]), node.name)


def add_parameter(program: torch.export.ExportedProgram, name: str, value: torch.nn.Parameter) -> torch.fx.Node:
    """A further parameter of a program, behind those that it has."""
    from torch.export.graph_signature import InputKind, InputSpec, TensorArgument

    specs = program.graph_signature.input_specs
    places = [node for node in program.graph.nodes if node.op == "placeholder"]
    last = sum(spec.kind == InputKind.PARAMETER for spec in specs)
    mode = next(node.meta["val"].fake_mode for node in places if hasattr(node.meta.get("val"), "fake_mode"))
    with program.graph.inserting_before(places[last]):
        held = program.graph.placeholder(f"p_{name.replace('.', '_')}")
    held.meta["val"] = mode.from_tensor(value, static_shapes=True)
    specs.insert(last, InputSpec(InputKind.PARAMETER, TensorArgument(held.name), name))
    program.state_dict[name] = value
    return held


def put(
    program: torch.export.ExportedProgram, old: torch.fx.Node, operation: Callable[..., object], args: Sequence[object]
) -> None:
    """An operation in the place of `old`, under its name; what nothing else read of what `old` read goes, too."""
    with program.graph.inserting_before(old):
        new = program.graph.call_function(operation, tuple(args))
    new.meta = {key: told for key, told in old.meta.items() if key != "torch_fn"}
    old.replace_all_uses_with(new)
    name = old.name
    _erase(program.graph, old)
    new.name = name  # by which an output of the program, and a layer of a diagnosis, is known


def _erase(graph: torch.fx.Graph, node: torch.fx.Node) -> None:
    before = node.all_input_nodes
    graph.erase_node(node)
    for each in before:
        if not each.users and each.op == "call_function":
            _erase(graph, each)


def doubles(weights: Mapping[str, torch.Tensor]) -> list[str]:
    """The names of those in float64."""
    return [name for name, tensor in weights.items() if str(tensor.dtype) == "torch.float64"]


def in_single_precision(program: torch.export.ExportedProgram) -> torch.fx.GraphModule:
    """The module of a program with float32 wherever it has float64; its inputs stay as they are."""
    import torch

    net = program.module(check_guards=False)
    net._apply(_single)
    for node in list(net.graph.nodes):
        if str(node.target) == "aten._assert_tensor_metadata.default":  # it asks for the old type
            net.graph.erase_node(node)
            continue
        node.args, node.kwargs = (
            torch.fx.node.map_aggregate(each, lambda a: torch.float32 if a is torch.float64 else a)
            for each in (node.args, node.kwargs)
        )
        if node.op == "get_attr" and isinstance(held := getattr(net, node.target, None), torch.Tensor):
            setattr(net, node.target, _single(held))
        value = node.meta.get("val")
        if node.op == "placeholder" and isinstance(value, torch.Tensor) and value.dtype == torch.float64:
            with net.graph.inserting_after(node):
                cast = net.graph.call_function(torch.ops.aten.to.dtype, (node, torch.float32))
            node.replace_all_uses_with(cast, delete_user_cb=lambda user, cast=cast: user is not cast)
    net.recompile()
    return net


def _single(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if str(tensor.dtype) == "torch.float64" else tensor


def weight(program: torch.export.ExportedProgram, node: object) -> torch.Tensor | None:
    """The parameter, buffer or constant that a placeholder stands for; None for anything else."""
    signature, name = program.graph_signature, getattr(node, "name", "")
    places = (signature.inputs_to_parameters, signature.inputs_to_buffers, signature.inputs_to_lifted_tensor_constants)
    held = next((each[name] for each in places if name in each), None)
    return None if held is None else program.state_dict.get(held, program.constants.get(held))


def drop_unread(program: torch.export.ExportedProgram, nodes: Sequence[torch.fx.Node]) -> None:
    """Takes those of the placeholders `nodes` that stand for a weight and that nothing reads out of a program."""
    specs = program.graph_signature.input_specs
    for node in nodes:
        if node.users or weight(program, node) is None:
            continue
        spec = next(each for each in specs if each.arg.name == node.name)
        specs.remove(spec)
        program.graph.erase_node(node)
        if not any(each.target == spec.target for each in specs):
            program.state_dict.pop(spec.target, None)
            program.constants.pop(spec.target, None)
