"""Programs with what their layers answer as further outputs: a .pte file cannot be edited, they are lowered again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, Dim, TensorSpec

if TYPE_CHECKING:
    import torch

WRAPPER = "net"  # what a traced program calls the user's own module
QUANTIZE = "quantize_per_tensor"
VIEWS = {  # the same numbers, some of them, or zeros around them
    *("_to_copy", "_unsafe_view", "alias", "chunk", "clone", "constant_pad_nd", "contiguous", "detach", "dropout"),
    *("expand", "expand_as", "flatten", "lift_fresh_copy", "movedim", "narrow", "pad", "permute", "reshape"),
    *("select", "slice", "split"),
    *("split_with_sizes", "squeeze", "t", "to", "transpose", "unbind", "unflatten", "unsqueeze", "view", "view_as"),
    *("dequantize_affine", "dequantize_per_channel", "dequantize_per_tensor", QUANTIZE),
}
PART = "getitem"  # one of an operator's several answers
PRODUCTS = {
    *("addmm", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "convolution"),
    "linear",
}
NORMS = {"_native_batch_norm_legit_no_training", "batch_norm", "native_batch_norm"}
CLAMPED = {*PRODUCTS, *NORMS, PART, "add", "mul", "sub"}
CLAMPS = {"hardtanh", "relu", "relu6"}  # delegates compute these along with what is before them
FLOATS = {"float16", "float32", "float64"}


@dataclass(frozen=True)
class _ProgramLayerOutput:
    """A layer: the node that it begins with, that it ends with, and that which makes its answer an integer, if any."""

    head: torch.fx.Node
    end: torch.fx.Node
    quantize: torch.fx.Node | None = None


def add(program: torch.export.ExportedProgram, model: Artifact) -> tuple[list[TensorSpec], list[dict[str, str]]]:
    """Gives torch's exported program, in place, an output per layer; returns their specs, and facts["taps"].

    A layer ends where its kernel does: behind the batch norm and the activation that are fused into it, and behind its
    quantization, which is undone once more for the output alone. The batch is on axis 0; what has none is left out.
    """
    graph = _ProgramGraph(program)
    # what the artifact calls each symbol of the inputs' sizes
    dims = {
        size.node.expr: dim
        for node, spec in zip(graph.inputs, model.inputs, strict=True)
        for size, dim in zip(node.meta["val"].shape, spec.shape, strict=True)
        if isinstance(dim, Dim) and not isinstance(size, int)
    }
    pairs = [(layer, node) for layer in list(graph.layer_outputs()) if (node := graph.handed_out(layer)) is not None]
    taken = {spec.name for spec in model.outputs}
    names = [_unique(layer.head.name, taken) for layer, _ in pairs]
    _end_with(program, [node for _, node in pairs])
    values = [node.meta["val"] for _, node in pairs]
    specs = [
        TensorSpec(name, tuple(_dim(size, dims) for size in value.shape), _dtype(value))
        for name, value in zip(names, values, strict=True)
    ]
    return specs, [{"output": name, **_words(layer)} for name, (layer, _) in zip(names, pairs, strict=True)]


def _unique(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    taken.add(name)
    return name


def _words(layer: _ProgramLayerOutput) -> dict[str, str]:
    """What a row says of a layer: its operator is the node that it begins with."""
    node = layer.head.args[0] if _word(layer.head) == PART else layer.head
    paths = ["", *(path for path, _ in node.meta.get("nn_module_stack", {}).values())]
    return {
        "operator": node.name,
        "type": _word(node),
        "dtype": _dtype((layer.quantize or layer.end).meta["val"]),
        "layout": "",
        "module": f"{paths[-1]}.".removeprefix(f"{WRAPPER}.").rstrip("."),
    }


# --------------------------------------------------------------------------- where the layers end


@dataclass(frozen=True)
class _ProgramGraph:
    """The nodes of a program."""

    program: torch.export.ExportedProgram

    @cached_property
    def inputs(self) -> list[torch.fx.Node]:
        """The placeholders of what the user gives."""
        names = set(self.program.graph_signature.user_inputs)
        return [node for node in self.program.graph.nodes if node.op == "placeholder" and node.name in names]

    @cached_property
    def batch(self) -> torch.SymInt | int:
        """The size of the first input's axis 0."""
        return self.inputs[0].meta["val"].shape[0]

    def layer_outputs(self) -> Iterator[_ProgramLayerOutput]:
        """The layers, in the order of computing."""
        live = set(self.inputs)
        taken: set[torch.fx.Node] = set()
        for node in self.program.graph.nodes:
            if live.isdisjoint(node.all_input_nodes):
                continue
            if _has_numbers(node):
                live.add(node)
            if node not in taken and node.users and _computes(node):
                end = _end(node, taken)
                after = _only_reader(end)
                yield _ProgramLayerOutput(node, end, after if _word(after) == QUANTIZE else None)

    def handed_out(self, layer: _ProgramLayerOutput) -> torch.fx.Node | None:
        """A node that makes a layer's output, its batch on axis 0; None where the layer's answer has no batch."""
        node = layer.end
        if layer.quantize is not None:
            import torch

            undo = torch.ops.quantized_decomposed.dequantize_per_tensor.default
            node = self._after(layer.quantize, undo, layer.quantize, *layer.quantize.args[1:])
        elif any(_writes_into(reader, node) for reader in node.users):
            node = self._after(node, _aten("clone"), node)
        shape = node.meta["val"].shape
        times = [_ratio(size, self.batch) for size in shape]
        if times[:1] == [1]:
            return node
        if 1 in times:
            axis = times.index(1)
            order = [axis, *(i for i in range(len(shape)) if i != axis)]
            return self._after(node, _aten("permute"), node, order)
        if times and times[0]:
            return self._after(node, _aten("unflatten", "int"), node, 0, [-1, times[0]])
        return None

    def _after(self, place: torch.fx.Node, target: torch._ops.OpOverload, *args: object) -> torch.fx.Node:
        """A new node."""
        import torch

        with self.program.graph.inserting_after(place):
            node = self.program.graph.call_function(target, args)
        node.meta["val"] = target(*torch.fx.map_arg(args, lambda argument: argument.meta["val"]))
        return node


def _end(node: torch.fx.Node, taken: set[torch.fx.Node]) -> torch.fx.Node:
    """The node where the layer ends that `node` begins; those on the way are `taken`."""
    while (reader := _only_reader(node)) is not None and _fuses(_word(node), _word(reader)):
        node = reader
        taken.add(node)
    return node


def _fuses(before: str, after: str) -> bool:
    if after in NORMS:
        return before in PRODUCTS
    return before in (CLAMPED if after in CLAMPS else NORMS if after == PART else ())


def _only_reader(node: torch.fx.Node) -> torch.fx.Node | None:
    """The one node that reads the numbers of `node`; None where there are more, or where it is an output."""
    readers = [user for user in node.users if user.op == "output" or _has_numbers(user)]
    return readers[0] if len(readers) == 1 and readers[0].op != "output" else None


def _has_numbers(node: torch.fx.Node) -> bool:
    """Whether it makes a tensor, or several: not a size, not a check."""
    return _is_tensor(node) or isinstance(node.meta.get("val"), (list, tuple))


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node makes floating-point numbers of its own."""
    if not _is_tensor(node) or _dtype(node.meta["val"]) not in FLOATS:
        return False
    return _word(node) not in VIEWS and (_word(node) != PART or _word(node.args[0]) not in VIEWS)


def _is_tensor(node: torch.fx.Node) -> bool:
    return hasattr(node.meta.get("val"), "dtype")


def _word(node: torch.fx.Node) -> str:
    """The operator that a node calls, the one that works in place by the same word: "conv2d", "add", "getitem"."""
    if node is None or node.op != "call_function":
        return ""
    schema = getattr(node.target, "_schema", None)
    return str(schema.name).partition("::")[2].rstrip("_") if schema else str(node.target.__name__)


def _writes_into(reader: torch.fx.Node, node: torch.fx.Node) -> bool:
    """Whether a node works in place on what another made."""
    schema = getattr(reader.target, "_schema", None)
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.arguments] if schema else []
    return any(argument is node and writes for argument, writes in zip(reader.args, written, strict=False))


def _aten(name: str, overload: str = "default") -> torch._ops.OpOverload:
    import torch

    return getattr(getattr(torch.ops.aten, name), overload)


# --------------------------------------------------------------------------- sizes and outputs


def _ratio(size: torch.SymInt | int, batch: torch.SymInt | int) -> int | None:
    """How many times the batch a size is; None where it is no multiple."""
    if isinstance(size, int) and isinstance(batch, int):
        return None if size % batch else size // batch
    if isinstance(size, int) or isinstance(batch, int):
        return None
    ratio = size.node.expr / batch.node.expr
    return int(ratio) if ratio.is_Integer else None


def _dim(size: torch.SymInt | int, known: Mapping[object, Dim]) -> int | Dim:
    """A size of a tensor as specs have it."""
    if isinstance(size, int):
        return size
    expression = size.node.expr
    if expression in known:
        return known[expression]
    low, high = (int(expression.subs({s: getattr(d, end) for s, d in known.items()})) for end in ("min", "max"))
    return Dim(str(expression), min(low, high), max(low, high))


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _end_with(program: torch.export.ExportedProgram, nodes: Sequence[torch.fx.Node]) -> None:
    """The program's outputs, then these."""
    from torch.export.graph_signature import OutputKind, OutputSpec, TensorArgument
    from torch.utils import _pytree as pytree

    end = program.graph.output_node()
    end.args = ((*end.args[0], *nodes),)
    specs = program.graph_signature.output_specs
    specs += [OutputSpec(OutputKind.USER_OUTPUT, TensorArgument(name=node.name), None) for node in nodes]
    count = sum(spec.kind == OutputKind.USER_OUTPUT for spec in specs)
    program.module_call_graph[0].signature.out_spec = pytree.tree_structure((0,) * count)
    program.graph.lint()
    program.graph_module.recompile()
