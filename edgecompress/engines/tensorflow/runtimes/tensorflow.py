"""TensorFlow, as a source: reads Keras files and SavedModels, and runs them for reference outputs."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, first_line
from edgecompress.core.model import OPEN, Artifact, Dim, Request, TensorSpec
from edgecompress.data import declared_ends
from edgecompress.engines.tensorflow import keras_file, known_branches, savedmodel
from edgecompress.formats.tensorflow_replacements import simpler

if TYPE_CHECKING:
    import numpy as np
    from tensorflow.core.framework.graph_pb2 import GraphDef
    from tensorflow.core.protobuf.meta_graph_pb2 import TensorInfo

    from edgecompress.core.operations import Operation
    from edgecompress.core.protocols import OperatorTimes

REQUIRES = ("tensorflow-cpu",)
IMPORTS = ("tensorflow",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "tensorflow"
FORMAT = "savedmodel"
NO_ARENA = "TensorFlow takes memory as it runs: nothing is planned"
NO_EMPTY = "TensorFlow is supported as a source only"
NOT_OPENED = "runs its author's code when it is loaded; if you trust the author, run `edgecompress verify`"
READS: tuple[str, ...] = ()
SUFFIX = ".keras"
OLD_SUFFIXES = keras_file.OLD_SUFFIXES
FOLDER = savedmodel.FILE  # a folder that holds it is a SavedModel
SIZED = True
RUNS_CODE = True  # a SavedModel is a program, and so are the layers that a Keras file names

DRAWS = re.compile("(Stateless|Stateful)?(Random|TruncatedNormal|Uniform(Int|FullInt)?$|StandardNormal|Multinomial)")
KEPT = {"HashTableV2", "LookupTableFindV2", "MutableHashTableV2", "VarHandleOp", "VariableV2"}  # not in the graph


def export(request: Request) -> Artifact:
    """Raises: SavedModels are sources only."""
    raise InputError(
        f"runtime tensorflow: cannot convert {request.model.kind} to a SavedModel; TensorFlow is supported as a "
        "source only"
    )


# --------------------------------------------------------------------------- a user's model becomes an artifact


def read(request: Request) -> Artifact:
    """The user's `.keras` or `.h5` file or SavedModel folder as one frozen graph; raises InputError for an invalid one.

    options: "path", "constants", "state". Its first axis, where dynamic, is called "batch"; other dynamic axes get the
    sizes of the input "samples", where it is there. Inputs have the names of its signature, in Keras' own order.
    """
    path = Path(request.options["path"])
    tf = savedmodel.tensorflow()
    data = request.inputs["samples"].inputs if "samples" in request.inputs else ()
    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as scratch:
        folder, order = (path, []) if path.is_dir() else keras_file.exported(path, Path(scratch) / "exported", data)
        frozen, inputs, outputs = _frozen(tf, folder, path, data, Path(scratch) / "loadable")
    order += sorted(set(inputs) - set(order))
    graph = frozen.graph.as_graph_def()
    _fold(graph, inputs, request.options.get("constants", {}), str(path))
    order = [name for name in order if name in inputs]
    infos = ({name: savedmodel.info(tensor) for name, tensor in side.items()} for side in (inputs, outputs))
    graph = savedmodel.numbered(graph)
    _check(graph, path)
    savedmodel.write(request.out / savedmodel.FOLDER, graph, (*infos,))  # type: ignore[arg-type]
    specs = (
        tuple(_spec(name, inputs[name], path) for name in order),
        tuple(_spec(name, tensor, path) for name, tensor in outputs.items()),
    )
    ends = declared_ends.of(*specs, request.options.get("state", {}), str(path), data)
    artifact = Artifact(request.out, FORMAT, *ends)
    return _rehearsed(artifact, path).write()


def _frozen(
    tf: Any, folder: Path, path: Path, data: Sequence[TensorSpec], copy: Path
) -> tuple[Any, dict[str, object], dict[str, object]]:
    """The graph with its weights inside, and {name: tensor} of its inputs and outputs; `copy`: a place for one."""
    from tensorflow.python.framework import convert_to_constants

    try:
        loaded = tf.saved_model.load(str(savedmodel.loadable(folder, copy)))
        signature = _settled(tf, _signature(loaded.signatures, path), data)
        # the parts of convert_variables_to_constants_v2, which takes no graph that writes a variable
        for lowered in (False, True):
            inlined = convert_to_constants._FunctionConverterDataInEager(signature, lowered, False)
            graph, indices = convert_to_constants._replace_variables_by_constants(inlined)
            known_branches.settle_defaults(graph, [tensor.op.name for tensor in signature.inputs])
            if not known_branches.has_if(graph):
                break
        known_branches.take(graph)
        _prune(graph, [tensor.op.name for tensor in signature.outputs], path)
        graph = simpler(graph, {"Conv3D"}) if any(n.op == "Conv3D" for n in graph.node) else graph  # groups need XLA
        frozen = convert_to_constants._construct_concrete_function(signature, graph, indices)
    except InputError:
        raise
    except Exception as error:  # TensorFlow's errors, protobuf's, the operating system's
        raise InputError(f"{path}: TensorFlow cannot load it: {first_line(error)}; export it again") from error
    names = sorted(signature.structured_input_signature[1]), sorted(signature.structured_outputs)
    if len(names[0]) != len(frozen.inputs):  # what could not be frozen is an input
        told = next((f"'{node.name}' reads" for node in graph.node if "Table" in node.op), "it contains")
        raise InputError(
            f"{path}: {told} a lookup table or other state, which cannot be deployed; move that part to the app"
        )
    pairs = (dict(zip(n, t, strict=True)) for n, t in zip(names, (frozen.inputs, frozen.outputs), strict=True))
    return frozen, *pairs


def _prune(graph: GraphDef, outputs: Sequence[str], path: Path) -> None:
    """Takes out what no output is computed from: checks, and variables that are written for the next call alone.

    Layers that draw random numbers in training count their draws so. Raises InputError where an output is computed from
    random numbers, or from a variable that is written, too.
    """
    nodes = {node.name: node for node in graph.node}

    def sources(*names: str) -> dict[str, None]:
        """Those nodes and all that numbers come from."""
        found, todo = dict[str, None](), [name for name in names if name in nodes]
        while todo:
            name = todo.pop()
            if name not in found:
                found[name] = None
                todo += [i.partition(":")[0] for i in nodes[name].input if not i.startswith("^")]
        return found

    used = sources(*outputs)
    for node in savedmodel.called(map(nodes.get, used), graph):
        if DRAWS.match(node.op):
            raise InputError(
                f"{path}: '{node.name}' draws random numbers ({node.op}), which net.export of Keras 3 keeps of "
                "augmentation; give the .keras file, or export a call with training=False (keras.export.ExportArchive)"
            )
    for node in graph.node:
        if node.op.startswith("Assign") and not used.keys().isdisjoint(sources(node.input[0])):
            raise InputError(
                f"{path}: '{node.name}' keeps state ({node.op}), which cannot be deployed; move that part to the app"
            )
    left = [
        type(node).FromString(node.SerializeToString())
        for node in graph.node
        if node.op == "Placeholder" or node.name in used
    ]
    for node in left:
        node.attr.pop("_class", None)  # beside which node it is to lie
        node.input[:] = [name for name in node.input if not name.startswith("^")]
    del graph.node[:]
    graph.node.extend(left)


def _signature(signatures: Mapping[str, object], path: Path) -> Any:
    """The one to serve with: by its name, else the only one."""
    names = list(signatures)
    if savedmodel.SIGNATURE in names or len(names) == 1:
        return signatures[savedmodel.SIGNATURE if savedmodel.SIGNATURE in names else names[0]]
    have = f"it has {', '.join(names)}" if names else "it has none"
    raise InputError(f"{path}: no signature '{savedmodel.SIGNATURE}' ({have}); export it with one")


def _settled(tf: Any, signature: Any, data: Sequence[TensorSpec]) -> Any:
    """The signature with the sizes of the data on open axes beside the batch."""
    specs = signature.structured_input_signature[1]
    known = {name: spec.shape.as_list() for name, spec in specs.items() if spec.shape.rank is not None}
    sizes = keras_file.sizes_of(known, data)
    if not sizes:
        return signature
    fixed = {name: tf.TensorSpec(sizes.get(name, spec.shape), spec.dtype, name) for name, spec in specs.items()}
    return tf.function(lambda **named: signature(**named)).get_concrete_function(**fixed)


def _fold(graph: GraphDef, inputs: dict[str, Any], constants: Mapping[str, object], where: str) -> None:
    """Makes constants of inputs, and takes them out of `inputs`. Raises InputError for a name or value not theirs."""
    from tensorflow.python.framework.tensor_util import make_tensor_proto

    declared_ends.check_constants(constants, [*inputs], where)
    nodes = {node.name: node for node in graph.node}
    for name, value in constants.items():
        tensor = inputs.pop(name)
        shape = [size or 1 for size in tensor.shape]
        array = declared_ends.constant(name, value, tensor.dtype.as_numpy_dtype.__name__, shape, where)
        node = nodes[tensor.op.name]
        node.op = "Const"
        node.ClearField("attr")
        node.attr["dtype"].type = tensor.dtype.as_datatype_enum
        node.attr["value"].tensor.CopyFrom(make_tensor_proto(array))


def _check(graph: GraphDef, path: Path) -> None:
    """A net of numbers: everything it needs is in the graph, and no weight is broken."""
    import numpy as np
    from tensorflow.python.framework.tensor_util import MakeNdarray

    for node in graph.node:
        if node.op in KEPT:
            raise InputError(
                f"{path}: '{node.name}' keeps state ({node.op}), which cannot be deployed; move that part to the app"
            )
        if node.op == "Const":
            values = MakeNdarray(node.attr["value"].tensor)
            if values.dtype.kind == "f" and (bad := int(np.isnan(values).sum())):
                raise InputError(f"{path}: weight '{node.name}' holds {bad} NaN; train or export it again")


def _spec(name: str, tensor: TensorInfo, path: Path) -> TensorSpec:
    if not tensor.dtype.is_numpy_compatible or tensor.dtype.name in ("string", "resource", "variant"):
        raise InputError(
            f"{path}: '{name}' is a tensor of {tensor.dtype.name}; only tensors of numbers can be deployed"
        )
    axes = enumerate(tensor.shape.as_list() if tensor.shape.rank is not None else [])
    shape = (Dim(f"{name}_{axis}" if axis else "batch", 1, OPEN) if size is None else size for axis, size in axes)
    return TensorSpec(name, tuple(shape), tensor.dtype.name)


def _rehearsed(artifact: Artifact, path: Path) -> Artifact:
    """One run on zeros, where every size is known: what fails only then is the source's fault too."""
    import numpy as np

    if any(isinstance(d, Dim) and d.name != "batch" for spec in artifact.inputs for d in spec.shape):
        return artifact
    try:
        open(artifact, 1).run({s.name: np.zeros(s.concrete(), s.dtype) for s in artifact.inputs})
    except Exception as error:
        raise InputError(f"{path}: TensorFlow cannot run it: {first_line(error)}; export it again") from error
    return artifact


# --------------------------------------------------------------------------- a session


def operations(artifact: Artifact) -> list[Operation]:
    """The operators of a file, in order."""
    from edgecompress.engines.tensorflow import operations as tensorflow_operations

    return tensorflow_operations.operations(artifact)


def watched(request: Request) -> Artifact:
    """The input "model" with every real number that it computes as a further output."""
    from edgecompress.engines.tensorflow import layer_outputs

    return layer_outputs.watched(request)


def open(artifact: Artifact, threads: int, profile: bool = False) -> TensorflowSession:
    """A session on `threads` threads of the CPU."""
    return TensorflowSession(artifact, threads)


class TensorflowSession:
    """A SavedModel run by TensorFlow."""

    def __init__(self, artifact: Artifact, threads: int) -> None:
        tf = savedmodel.tensorflow()
        with contextlib.suppress(RuntimeError):  # a process that has run TensorFlow keeps its threads
            tf.config.threading.set_intra_op_parallelism_threads(threads)
            tf.config.threading.set_inter_op_parallelism_threads(1)
        self.loaded: object = tf.saved_model.load(str(artifact.path / savedmodel.FOLDER))
        self.serve = self.loaded.signatures[savedmodel.SIGNATURE]
        self.constant = tf.constant

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        answers = self.serve(**{name: self.constant(array) for name, array in inputs.items()})
        return {name: tensor.numpy() for name, tensor in answers.items()}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """No times: TensorFlow runs sources only."""
        return {
            "ops": [],
            "why": "TensorFlow is supported as a source only, so its operators are not timed",
            "fallback": [],
        }

    def close(self) -> None:
        """Frees it."""
        self.loaded = self.serve = None
