"""ONNX Runtime on the CPU: exports programs and SavedModels, reads users' .onnx files, runs and profiles them."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import package_files
from edgecompress.core.errors import MissingDependency, StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.engines.onnx import external, layer_outputs, user_file
from edgecompress.engines.onnx import session as onnx_session
from edgecompress.engines.onnx.session import CPU, OnnxSession
from edgecompress.engines.tensorflow import savedmodel
from edgecompress.formats import (
    torch_decompositions,
    torch_faults,
    torch_foresight,
    torch_program,
    torch_shortcuts,
)
from edgecompress.formats.tensorflow_replacements import TF2ONNX, simpler
from edgecompress.formats.torch_replacements import pools

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import torch
    from tensorflow.core.framework.graph_pb2 import GraphDef

    from edgecompress.core import operator_graph
    from edgecompress.core.operations import Foreseen, Kernels, Operation
    from edgecompress.core.protocols import ChangeableNet

REQUIRES = ("onnx", "onnxruntime")
OPTIONAL = ("onnxscript", "tf2onnx")  # what `export` needs, for a torch net and for a SavedModel
OPENS_WITH = ("onnxruntime",)
IMPORTS = ("onnxruntime",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "onnx"
FORMAT = "onnx"
SETTINGS = onnx_session.SETTINGS
NO_ARENA = onnx_session.NO_ARENA
READS: tuple[str, ...] = ("program", "savedmodel")
SUFFIX = ".onnx"
SIZED = True  # open axes that an If asks for get the sizes of the data's

OPSET = 20
ALIASES = ("divide", "true_divide", "multiply", "subtract")  # of which torch's exporter promotes no types
TF_OPSET = 18  # the newest that tf2onnx writes
FILE = "model.onnx"


# --------------------------------------------------------------------------- a program or a SavedModel becomes a file


def export(request: Request) -> Artifact:
    """The model as `model.onnx`, its tensors named as in the specs. Raises StageFailed where a converter cannot."""
    model = request.model
    proto, facts = _from_program(model) if model.kind == "program" else (_from_savedmodel(model), {})
    proto = _tidied(proto, model)
    external.save(proto, external.Weights(proto, request.out), request.out / FILE)
    return Artifact(request.out, FORMAT, model.inputs, model.outputs, facts).write()


def _from_program(model: Artifact) -> tuple[onnx.ModelProto, dict[str, Json]]:
    """The model, and the facts of what was rewritten."""
    try:
        import onnxscript  # noqa: F401 - torch's exporter asks for it after a minute
        import torch
    except ImportError as error:
        raise MissingDependency(
            f"a torch net as ONNX needs {error.name}, not installed; run: {package_files.install('torch')}"
        ) from error
    program = torch_program.load(model.file(".pt2"))
    program, spelled = torch_decompositions.simpler(program, _right)
    facts = torch_decompositions.together(spelled, torch_shortcuts.folded(program))
    names = [[s.name for s in specs] for specs in (model.inputs, model.outputs)]

    def convert(program: torch.export.ExportedProgram) -> onnx.ModelProto:
        exported = torch.onnx.export(
            program,
            dynamo=True,
            optimize=True,
            external_data=False,
            opset_version=OPSET,
            input_names=names[0],
            output_names=names[1],
            verbose=False,
        )
        return exported.model_proto

    try:
        proto, simpler = torch_decompositions.retried(convert, program, _known)
    except Exception as error:
        why = torch_faults.told(error, program, refused=lambda: foreseen(model).refused)
        raise StageFailed(f"runtime onnx: torch.onnx.export: {why}") from error
    return proto, torch_decompositions.together(facts, simpler)


@cache
def _registry() -> Any:
    from torch.onnx._internal.exporter._registration import ONNXRegistry

    return ONNXRegistry.from_torchlib(OPSET)


def _known(node: torch.fx.Node) -> bool:
    """Whether torch's exporter has an operator."""
    return bool(_registry().is_registered(node.target))


def _right(node: torch.fx.Node) -> bool:
    """Whether it makes of an operator what that computes, and ONNX Runtime reads.

    It promotes no types of ALIASES, attends in 4 axes alone, and drops axes that have more than one place.
    """
    name = node.target._opname
    if name == "scaled_dot_product_attention":
        return bool(node.args[0].meta["val"].dim() == 4)
    if name == "squeeze" and node.args[1:]:
        axes = [node.args[1]] if isinstance(node.args[1], int) else node.args[1]
        sizes = node.args[0].meta["val"].shape
        return all(not isinstance(sizes[axis], int) or sizes[axis] == 1 for axis in axes if sizes)
    if name == "einsum":
        return "..." not in node.args[0]
    if name.startswith("conv_transpose"):  # more at an end than a step
        given = dict(enumerate(node.args))
        axes = node.args[1].meta["val"].dim() - 2
        stride, more = (pools.each_axis(given.get(i) or (i == 3) * 1, axes) for i in (3, 5))
        return all(m < s for m, s in zip(more, stride, strict=True))
    if name in ("scatter_add", "scatter_reduce"):
        return bool(node.args[2].meta["val"].shape == node.args[3].meta["val"].shape)
    if name == "linalg_vector_norm":
        return bool(node.args[0].meta["val"].dim())
    if name == "pad" and "circular" in node.args:  # which OpenVINO and MNN do not read
        return False
    return name not in ALIASES and not (name == "lstm" and torch_decompositions.projects(node.args[2]))


def foreseen(program: Artifact) -> Foreseen:
    """What it replaces and refuses in a program."""
    from torch.onnx._internal.exporter import _decomp

    def known(node: torch.fx.Node) -> bool:
        return _known(node) or node.target._opname == "_assert_async"  # which goes before

    own = _decomp.create_onnx_friendly_decomposition_table(set(_decomp.get_onnx_implemented_overloads(_registry())))
    return torch_foresight.foreseen(torch_program.load(program.file(".pt2")), known, own, _right)


def _from_savedmodel(model: Artifact) -> onnx.ModelProto:
    """By tf2onnx: only this road needs it, and TensorFlow."""
    try:
        savedmodel.tensorflow()
        import onnx
        import tf2onnx
    except ImportError as error:
        raise MissingDependency(
            f"a SavedModel as ONNX needs {error.name}, not installed; run: {package_files.install('tensorflow')}"
        ) from error
    graph, *ends = savedmodel.parsed(model.path / savedmodel.FOLDER)
    _part(graph, ends[1])
    sides = zip(ends, (model.inputs, model.outputs), strict=True)
    inputs, outputs = ([names[spec.name] for spec in specs] for names, specs in sides)
    try:
        proto, _ = tf2onnx.convert.from_graph_def(
            simpler(graph, TF2ONNX),
            input_names=inputs,
            output_names=outputs,
            opset=TF_OPSET,
            tensors_to_rename={tensor: name for names in ends for name, tensor in names.items()},
        )
    except Exception as error:  # tf2onnx raises ValueError, RuntimeError, TensorFlow's own
        raise StageFailed(f"runtime onnx: tf2onnx: {first_line(error)}") from error
    _order(proto.graph)
    known = {schema.name for schema in onnx.defs.get_all_schemas()}
    if lacking := sorted({n.op_type for n in proto.graph.node if not n.domain} - known):  # which tf2onnx leaves as is
        raise StageFailed(
            f"runtime onnx: ONNX has no operator for TensorFlow's {', '.join(lacking)}; compute it by other operators, "
            "or outside of the net"
        )
    return proto


def _part(graph: GraphDef, outputs: dict[str, str]) -> None:
    """Gives outputs that are one tensor, an Identity's, a tensor each: tf2onnx has one name for one tensor."""
    nodes = {f"{node.name}:0": node for node in graph.node if node.op == "Identity"}
    for index, (name, tensor) in enumerate(outputs.items()):
        if tensor in [*outputs.values()][:index] and tensor in nodes:
            graph.node.add().CopyFrom(nodes[tensor])
            graph.node[-1].name = f"{nodes[tensor].name}/{index}"
            outputs[name] = f"{graph.node[-1].name}:0"


def _order(graph: onnx.GraphProto) -> None:
    """Nodes as the outputs need them, all named by that order: tf2onnx goes through sets, and counts for ever."""
    if any(a.HasField("g") for node in graph.node for a in node.attribute):
        return  # a loop's body reads tensors by their names
    nodes = list(_needed(graph))
    ends = {value.name for value in (*graph.input, *graph.output)}
    made = {t: f"{n.op_type}_{i}_{k}" for i, n in enumerate(nodes) for k, t in enumerate(n.output) if t}
    read = dict.fromkeys(t for node in nodes for t in node.input if t and t not in made)
    names = {**made, **{t: f"constant_{i}" for i, t in enumerate(read)}, **{t: t for t in ends}}
    constants = sorted((c for c in graph.initializer if c.name in read), key=lambda c: list(read).index(c.name))
    for index, node in enumerate(nodes):
        node.name = f"{node.op_type}_{index}"
        for side in (node.input, node.output):
            side[:] = [names.get(t, t) for t in side]
    for constant in constants:
        constant.name = names[constant.name]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(constants)


def _needed(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes, each after those it reads, from the first output's on."""
    makers = {tensor: node for node in graph.node for tensor in node.output}
    done: set[str] = set()
    stack = [value.name for value in reversed(graph.output) if value.name in makers]
    while stack:
        tensor = stack[-1]
        ahead = [t for t in makers[tensor].input if t in makers and t not in done] if tensor not in done else []
        if ahead:
            stack += reversed(ahead)
            continue
        stack.pop()
        if tensor not in done:
            done.update(makers[tensor].output)
            yield copy.deepcopy(makers[tensor])


def _tidied(proto: onnx.ModelProto, model: Artifact) -> onnx.ModelProto:
    """Without the exporter's notes (stack traces, paths of this machine), its dimensions named as in the specs."""
    import onnx

    graph = proto.graph
    values = (*graph.input, *graph.output, *graph.value_info)
    for item in (*graph.node, *values, graph, proto):
        del item.metadata_props[:]
        item.doc_string = ""
    symbols = dict(_symbols((*graph.input, *graph.output), (*model.inputs, *model.outputs)))
    for dim in (d for value in values for d in value.type.tensor_type.shape.dim if d.dim_param):
        dim.dim_param = re.sub(r"\w+", lambda word: symbols.get(word[0], word[0]), dim.dim_param)
    if external.size(proto) <= external.MOST:
        onnx.checker.check_model(proto)
    return proto


def _symbols(values: Iterable[onnx.ValueInfoProto], specs: Sequence[TensorSpec]) -> Iterator[tuple[str, str]]:
    """The exporter's name of each dynamic dimension with the spec's."""
    by_name = {spec.name: spec for spec in specs}
    for value in values:
        spec = by_name.get(value.name)
        if spec is None:
            raise StageFailed(f"runtime onnx: the export has a tensor '{value.name}' that the program does not have")
        for dim, ours in zip(value.type.tensor_type.shape.dim, spec.shape, strict=True):
            if dim.dim_param and isinstance(ours, Dim):
                yield dim.dim_param, ours.name


read = user_file.read


# --------------------------------------------------------------------------- what the file tells


def count(artifact: Artifact, batch: int) -> operator_graph.Graph:
    """The operators of one run of `batch` items. Raises StageFailed where they cannot be counted."""
    from edgecompress.engines.onnx import op_counts

    return op_counts.graph(artifact, batch)


def operations(artifact: Artifact) -> list[Operation]:
    """The operators of a file, in order."""
    from edgecompress.engines.onnx import operations as onnx_operations

    return onnx_operations.operations(artifact)


def kernels(operation: Operation, precision: str) -> Kernels:
    """What it makes of an operator in a variant of that precision."""
    from edgecompress.engines.onnx import operations as onnx_kernels

    return onnx_kernels.kernels(operation, precision)


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Bytes of the weights by precision, and the operators that multiply by what they compute in."""
    from edgecompress.engines.onnx import precision as onnx_precision
    from edgecompress.formats.precision import walk

    return walk.weights_and_computes(onnx_precision.net(artifact.file(SUFFIX)))


def weights(artifact: Artifact) -> Iterator[tuple[str, np.ndarray]]:
    """Each weight of two or more axes, as torch lays it out."""
    from edgecompress.engines.onnx import weights as onnx_weights

    return onnx_weights.of(artifact)


def stored(artifact: Artifact) -> Iterator[tuple[str, np.ndarray | None]]:
    """Each constant of two or more axes, as the file has it."""
    from edgecompress.engines.onnx import weights as onnx_weights

    return onnx_weights.stored(artifact)


def changeable(artifact: Artifact, threads: int) -> ChangeableNet:
    """The net with weights that can be others for a while."""
    from edgecompress.engines.onnx import weights as onnx_weights

    return onnx_weights.ChangeableOnnx(artifact, threads)


# --------------------------------------------------------------------------- a session


def open(artifact: Artifact, threads: int, profile: bool = False) -> OnnxSession:
    """A session on `threads` threads of the CPU, by the artifact's settings."""
    return OnnxSession(artifact, threads, profile, (CPU,))


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return onnx_session.empty(folder)


def tapped(request: Request) -> Artifact:
    """The input "model" with the outputs of its layers as further outputs; facts: {"taps": [row]}."""
    return layer_outputs.tapped(request)


def watched(request: Request) -> Artifact:
    """The input "model" with every real number that it computes as a further output."""
    return layer_outputs.watched(request)
