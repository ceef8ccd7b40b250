"""PyTorch's quantization of exported programs, as both techniques use it: annotate, observe, convert, export again."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgecompress.core import package_files
from edgecompress.core.errors import InputError, MissingDependency, StageFailed, did_you_mean, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Dim, Request
from edgecompress.formats import torch_program, torch_shortcuts
from edgecompress.techniques import _tail
from edgecompress.techniques._calibration import inputs_of

if TYPE_CHECKING:
    from types import ModuleType

    import torch
    from torch.export import ExportedProgram
    from torchao.quantization.pt2e.quantizer import Quantizer as TorchaoQuantizer
    from torchao.quantization.pt2e.quantizer.utils import QuantizationConfig

PROGRAM = "program.pt2"
WRAPPER = "net."  # what a traced program calls the user's own module
NOTE = "quantization_annotation"  # the quantizers' key in a node's meta
SCALAR = "_tensor_constant_"  # what quantizers call a number of the graph that they have made a tensor of
HISTORY = ("from_node", "stack_trace")  # of a node: addresses in memory and paths of this machine
MOVES = {  # what hands on the numbers that it reads
    *("batch_norm", "clamp", "contiguous", "dropout", "expand", "flatten", "hardtanh", "max_pool2d", "pad", "permute"),
    *("relu", "relu6", "reshape", "select", "slice", "squeeze", "transpose", "unsqueeze", "view"),
}
ROLES: dict[str, _tail.Role] = {
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "convolution"), "layer"),
    **dict.fromkeys(("linear", "addmm", "matmul", "mm", "bmm", "lstm", "gru", "rnn_tanh", "rnn_relu"), "layer"),
    **dict.fromkeys(("topk", "sort", "argsort", "nms"), "choice"),
    **dict.fromkeys(("sigmoid", "hardsigmoid"), "share"),
    **dict.fromkeys((*MOVES - {"clamp", "hardtanh", "relu", "relu6"}, "split", "split_with_sizes", "chunk"), "move"),
    **dict.fromkeys(("unbind", "getitem"), "move"),
    "softmax": "softmax",
    "cat": "join",
    "stack": "join",
    "mul": "scale",
    "sum": "sum",
    **dict.fromkeys(("exp", "softplus"), "grow"),
}

Quantizer = Literal["xnnpack", "litert"]


def library(quantizer: Quantizer) -> ModuleType:
    """The module that holds a quantizer and its configurations. Raises MissingDependency."""
    if quantizer == "xnnpack":
        from executorch.backends.xnnpack.quantizer import xnnpack_quantizer

        library: ModuleType = xnnpack_quantizer
        return library
    try:
        from litert_torch.quantize import pt2e_quantizer
    except ImportError as error:
        raise MissingDependency(
            f"quantizer 'litert' needs litert-torch, not installed; run: {package_files.install('litert')}"
        ) from error
    library = pt2e_quantizer
    return library


def made(library: ModuleType, config: QuantizationConfig) -> TorchaoQuantizer:
    """The library's quantizer with one configuration for all that it knows."""
    quantizer = library.PT2EQuantizer if hasattr(library, "PT2EQuantizer") else library.XNNPACKQuantizer
    return quantizer().set_global(config)


def quantized(
    request: Request, quantizer: TorchaoQuantizer, batches: Sequence[list[int]], skip: Sequence[str]
) -> dict[str, Json]:
    """Writes the program with the quantize and dequantize operators of `quantizer`; inputs and outputs stay the same.

    `batches`: the items that show the ranges; `skip`: patterns of the modules that stay in float with what reads them,
    or nodes. Returns the facts of what was rewritten (`torch_shortcuts`). Raises StageFailed.
    """
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    program = torch_program.load(request.model.file(".pt2"))
    facts = torch_shortcuts.folded(program)
    net = program.module(check_guards=False)
    _limit(quantizer, skip)
    try:
        with torch.no_grad():
            prepared = prepare_pt2e(net, quantizer)
            for count, items in enumerate(batches):
                request.progress(0.9 * count / len(batches), "calibrating")
                args, kwargs = _call(program, request, items)
                prepared(*args, **kwargs)
            folded = request.options.quantizer != "litert"  # whose converter folds them itself
            again = exported(convert_pt2e(prepared, fold_quantize=folded), program, request)
    except InputError:
        raise
    except Exception as error:  # torchao's and torch's errors have no base of their own
        raise StageFailed(f"quantizing the program: {first_line(error)}") from error
    save(again, request.out)
    return facts


def save(program: ExportedProgram, out: Path) -> None:
    """Writes a program without addresses in memory and paths of this machine."""
    import torch

    for node in program.graph.nodes:
        for history in HISTORY:
            node.meta.pop(history, None)
    torch.export.save(program, out / PROGRAM)


# --------------------------------------------------------------------------- what is quantized


def _limit(quantizer: TorchaoQuantizer, skip: Sequence[str]) -> None:
    """Makes a quantizer leave whole numbers (indices, masks) and the modules of `skip` alone."""
    transform, annotate = quantizer.transform_for_annotation, quantizer.annotate

    def transformed(model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        made = transform(model)
        for node in made.graph.nodes:
            _keep_whole(made, node)
        return made

    def limited(model: torch.fx.GraphModule) -> torch.fx.GraphModule:
        noted = annotate(model)
        check_known(noted.graph.nodes, skip)
        floats = _to_their_ends(noted.graph.nodes, skip) | _behind(noted.graph.nodes)
        for node in noted.graph.nodes:
            if NOTE in node.meta and (node in floats or _holds_integers(node)):
                del node.meta[NOTE]
        for node in noted.graph.nodes:
            _fuse_clamp(node)
        while orphans := [node for node in noted.graph.nodes if _is_orphan(node)]:
            for node in orphans:
                del node.meta[NOTE]
        return noted

    quantizer.transform_for_annotation, quantizer.annotate = transformed, limited


def _keep_whole(net: torch.fx.GraphModule, node: torch.fx.Node) -> None:
    """A number added to indices stays whole: XNNPACK's quantizer has made a float of it, and of them."""
    value = node.meta.get("val")
    if node.op == "call_function" and _is_whole(value):
        for source in node.args:
            if str(getattr(source, "target", "")).startswith(SCALAR):
                setattr(net, source.target, getattr(net, source.target).to(value.dtype))


def _is_whole(value: object) -> bool:
    return hasattr(value, "dtype") and not value.dtype.is_floating_point


def _fuse_clamp(node: torch.fx.Node) -> None:
    """ReLU6 behind a convolution: what is quantized is its result, not what it is about to cut off."""
    import torch

    aten = torch.ops.aten
    if node.target not in (aten.relu6.default, aten.relu6_.default, aten.hardtanh.default, aten.hardtanh_.default):
        return
    before = node.args[0]
    note = before.meta.get(NOTE)
    if note and note.output_qspec and len(before.users) == 1:
        node.meta[NOTE] = dataclasses.replace(note, input_qspec_map={})
        note.output_qspec = None


def _holds_integers(node: torch.fx.Node) -> bool:
    """Whether it computes whole numbers or reads them: quantized indices are no indices any more."""
    return any(_is_whole(n.meta.get("val")) for n in (node, *node.meta[NOTE].input_qspec_map))


def _is_orphan(node: torch.fx.Node) -> bool:
    """Whether its range is that of another operator, which has none any more."""
    if NOTE not in node.meta:
        return False
    note = node.meta[NOTE]
    shared = [getattr(spec, "edge_or_node", None) for spec in (note.output_qspec, *note.input_qspec_map.values())]
    owners = [place[1] if isinstance(place, tuple) else place for place in shared if place is not None]
    return any(NOTE not in owner.meta for owner in owners)


def modules(node: torch.fx.Node) -> Iterator[str]:
    """The modules that a node is in, by the names that the user's code gives them."""
    for path, _ in node.meta.get("nn_module_stack", {}).values():
        if path:
            yield path.removeprefix(WRAPPER)


def named(node: torch.fx.Node, patterns: Sequence[str]) -> bool:
    """Whether it is one of the nodes that are named, or in one of the modules."""
    return node.name in patterns or any(fnmatch.fnmatchcase(m, pattern) for m in modules(node) for pattern in patterns)


def _to_their_ends(nodes: Sequence[torch.fx.Node], skip: Sequence[str]) -> set[torch.fx.Node]:
    """The nodes of `skip`, what clips or moves their outputs, and what reads these: nothing rounds them on the way."""
    floats: set[torch.fx.Node] = set()
    handed: set[torch.fx.Node] = set()
    for node in nodes:
        own, reads = named(node, skip), not handed.isdisjoint(node.all_input_nodes)
        if own or (reads and getattr(node.target, "_opname", "").rstrip("_") in MOVES):
            handed.add(node)
        if own or reads:
            floats.add(node)
    return floats


def _behind(nodes: Iterable[torch.fx.Node]) -> set[torch.fx.Node]:
    """The nodes that choose, and those around them, where no layer follows any more."""
    calls = {node.name: node for node in nodes if node.op == "call_function"}
    steps = []
    for node in calls.values():
        inputs = [each.name for each in node.all_input_nodes if each.op != "get_attr"]
        name = getattr(node.target, "_opname", getattr(node.target, "__name__", "")).rstrip("_")
        role = ROLES.get(name, "")
        role = "" if role == "layer" and len(inputs) == len(node.all_input_nodes) else role  # of two computed tensors
        steps.append(_tail.Step(node.name, role, inputs, [node.name]))
    return {calls[name] for name in _tail.tail(steps)}


def check_known(nodes: Sequence[torch.fx.Node], patterns: Sequence[str]) -> None:
    known, own = {name for node in nodes for name in modules(node)}, {node.name for node in nodes}
    for pattern in patterns:
        if pattern not in own and not fnmatch.filter(known, pattern):
            raise InputError(f"skip: no module is called '{pattern}'{did_you_mean(pattern, known)}")


# --------------------------------------------------------------------------- calls


def _call(
    program: ExportedProgram, request: Request, items: Sequence[int]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Positional and named arguments of the program for those items."""
    import torch
    from torch.utils import _pytree as pytree

    arrays = inputs_of(request, list(items))
    leaves = [torch.from_numpy(arrays[spec.name]) for spec in request.model.inputs]
    return pytree.tree_unflatten(leaves, program.call_spec.in_spec)  # type: ignore[no-any-return]


def exported(net: torch.fx.GraphModule, program: ExportedProgram, request: Request) -> ExportedProgram:
    """The net as a program again, dynamic where it was."""
    import torch
    from torch.utils import _pytree as pytree

    specs = request.model.inputs
    first = request.model.batch
    # a batch of one would be taken for a constant
    args, kwargs = _call(program, request, [0] * (first if isinstance(first, int) else max(first.min, 2)))
    shapes = torch.export.ShapesCollection()
    known: dict[str, torch.export.Dim] = {}
    for spec, leaf in zip(specs, pytree.tree_leaves((args, kwargs)), strict=True):
        named = {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, Dim)}
        if named:
            for dim in named.values():
                known.setdefault(dim.name, torch.export.Dim(dim.name, min=dim.min, max=dim.max))
            shapes[leaf] = {axis: known[dim.name] for axis, dim in named.items()}
    return torch.export.export(net, args, kwargs, dynamic_shapes=shapes if known else None)


def ends(request: Request, facts: Mapping[str, Json]) -> Artifact:
    """The artifact around what `quantized` wrote."""
    return Artifact(request.out, "program", request.model.inputs, request.model.outputs, facts).write()
