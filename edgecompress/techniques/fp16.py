"""Half-precision weights and arithmetic in ONNX, inputs and outputs as they were; what it cannot hold stays in fp32."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.techniques import _half
from edgecompress.techniques._calibration import inputs_of, spread
from edgecompress.techniques._onnx_graph import first_line, matching

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

REQUIRES = ("onnx", "onnxruntime")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "fp16"
NEEDS_SAMPLES = True

RECURRENT = ("LSTM", "GRU", "RNN")  # ONNX Runtime's CPU crashes when it opens one in half precision
FLOATS = ("tensor(float)", "tensor(float16)")
IN_FP32 = "_cast_to_fp16"  # what the converter adds to the name of a tensor that a kept node makes


@dataclass(frozen=True)
class Options:
    """What stays in fp32, beside what the samples show."""

    keep_ops: tuple[str, ...] = RECURRENT  # operator types
    skip: tuple[str, ...] = ()  # nodes, as patterns of their names
    samples: int | None = 32  # calibration items at most, evenly spread over the split; None is all
    headroom: float = 4.0  # how many times larger than on the samples a number may get
    floor_db: float = 50.0  # of each output against fp32; more nodes stay in fp32 until it is reached

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError("samples is at least 1")
        if self.headroom < 1:
            raise ValueError("headroom is at least 1")


def apply(request: Request) -> Artifact:
    """The ONNX model in half precision; inputs: "model", "samples" (the calibrate split).

    facts: {"kept": nodes in fp32, "largest": {"tensor", "value"}, "samples"}; "lost" where that does not mend it.
    """
    import onnx

    options: Options = request.options
    batches = spread(request, options.samples)
    model = _named(onnx.load_model(request.model.file(".onnx")))
    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        trial = _Trial(request, model, batches, Path(folder))
        ranges = trial.ranges()
        kept = trial.chosen() | trial.graph.touching(_half.unfit(ranges, options.headroom) | set(_unfit(model.graph)))
        request.progress(0.4, "half precision")
        settled = _half.settle(trial.graph, kept, options.floor_db, trial.judge)
    half = converted(model, settled.kept)
    onnx.save_model(half, request.out / "model.onnx")
    used = len({item for batch in batches for item in batch})
    names = [node.name for node in model.graph.node if node.name in settled.kept]
    facts: dict[str, Any] = {"kept": names, "largest": _half.largest(ranges), "samples": used}
    if lost := settled.lost or _nothing(half):
        facts["lost"] = lost
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _named(model: Any) -> Any:
    """Every node has a name: what stays in fp32 is told by it."""
    for index, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{index}"
    return model


def _unfit(graph: Any) -> Iterator[str]:
    """The weights that half precision cannot hold."""
    import numpy as np
    import onnx

    for tensor in graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            yield from _half.unfit(_half.rounded([{tensor.name: values}]), 1.0)


def _nothing(half: Any) -> str:
    """Why a model with no half-precision arithmetic left is out."""
    import onnx

    values = {v.name for v in half.graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    works = (n for n in half.graph.node if n.op_type not in ("Cast", "Constant"))
    return "" if any(values & set(n.output) for n in works) else "every node would have to stay in fp32"


# --------------------------------------------------------------------------- the converter, and what it leaves to do


def converted(model: Any, kept: set[str]) -> Any:
    """The model in half precision but for the nodes in `kept`. Raises StageFailed with the converter's reason."""
    import onnx
    from onnxruntime.transformers import float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers it truncates: their nodes are kept
            half = float16.convert_float_to_float16(model, keep_io_types=True, node_block_list=sorted(kept))
        _drop_repeated(half.graph)
        _join(half.graph, {node.name for node in model.graph.node})
        OnnxModel(half).topological_sort()  # the converter appends its casts at the end
        onnx.checker.check_model(half)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise StageFailed(f"fp16: {type(error).__name__}: {first_line(error)}") from error
    return half


def _drop_repeated(graph: Any) -> None:
    """The converter casts a tensor twice, under one name, where a node that stays in fp32 reads it twice."""
    seen: set[str] = set()
    for node in list(graph.node):
        if node.output[0] in seen:
            graph.node.remove(node)
        seen.add(node.output[0])


def _join(graph: Any, ours: set[str]) -> None:
    """Between two nodes in fp32 the converter goes through half precision and back: there numbers would be lost."""
    import onnx

    casts = {n.output[0]: n for n in graph.node if n.op_type == "Cast" and n.name not in ours}
    back = [n for n in casts.values() if n.attribute[0].i == onnx.TensorProto.FLOAT and n.input[0] in casts]
    straight = {node.output[0]: casts[node.input[0]].input[0] for node in back}
    for node in graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = straight.get(name, name)
    for node in back:
        node.input[0] = straight[node.output[0]]  # of an output of the graph: it keeps its name
    used = {name for node in graph.node for name in node.input} | {value.name for value in graph.output}
    for name in casts.keys() - used:
        graph.node.remove(casts[name])


# --------------------------------------------------------------------------- trials on samples


class _Trial:
    """The model on the samples, in fp32 and in half precision."""

    def __init__(self, request: Request, model: Any, batches: Sequence[list[int]], folder: Path) -> None:
        self.request, self.model, self.batches, self.folder = request, model, batches, folder
        nodes = model.graph.node
        reads, makes = ({n.name: [t for t in getattr(n, end) if t] for n in nodes} for end in ("input", "output"))
        self.graph = _half.Graph(reads, makes, [value.name for value in model.graph.output])
        self.full = self._session(_exposed(model))

    def chosen(self) -> set[str]:
        """The nodes that stay in fp32 whatever the samples show."""
        import onnx
        from onnxruntime.transformers import float16

        options: Options = self.request.options
        types = {*float16.DEFAULT_OP_BLOCK_LIST, *options.keep_ops}
        onnx.save_model(self.model, self.folder / "named.onnx")
        named = matching(self.folder / "named.onnx", options.skip)
        return {node.name for node in self.model.graph.node if node.op_type in types} | set(named)

    def ranges(self) -> dict[str, _half.Tally]:
        """Every tensor of the fp32 model, and what rounding it would lose."""
        import numpy as np

        def tensors(inputs: Mapping[str, Any]) -> dict[str, Array]:
            given = {name: values for name, values in inputs.items() if values.dtype == np.float32}
            return {**given, **self.run(self.full, inputs)}

        return _half.rounded(map(tensors, self._items()))

    def judge(self, kept: set[str]) -> dict[str, _half.Tally]:
        """Every tensor with only `kept` in fp32, against the fp32 model."""
        half = self._session(_exposed(_stored(converted(self.model, kept))))
        return _half.tallied(self._pairs(half))

    def _pairs(self, half: Any) -> Iterator[Mapping[str, tuple[Array, Array]]]:
        for inputs in self._items():
            full, other = self.run(self.full, inputs), self.run(half, inputs)
            names = {name: next((n for n in (name + IN_FP32, name) if n in other), "") for name in full}
            yield {name: (full[name], other[same]) for name, same in names.items() if same}

    def run(self, session: Any, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """The floating-point tensors that a session answers."""
        names = [value.name for value in session.get_outputs() if value.type in FLOATS]
        return dict(zip(names, session.run(names, inputs), strict=True))

    def _items(self) -> Iterator[dict[str, Any]]:
        return (inputs_of(self.request, batch) for batch in self.batches)

    def _session(self, model: Any) -> Any:
        """Unoptimised: an optimised graph would not make every tensor."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.request.context.threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has a class per status, and no common one but Exception
            raise StageFailed(f"fp16: ONNX Runtime cannot open a trial: {first_line(error)}") from error


def _exposed(model: Any) -> Any:
    """A copy whose every tensor is an output."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    made = (name for node in copy.graph.node for name in node.output if name)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in known)
    return copy


def _stored(half: Any) -> Any:
    """The model with each tensor held in memory as it is typed.

    ONNX Runtime's CPU computes most of a half-precision graph in fp32 and drops the casts between two nodes: what is
    infinite on a GPU would be finite here. Two nodes that only hand a half-precision tensor on stop that (it makes a
    lone one fp32 as well).
    """
    from onnx import helper

    nodes = list(half.graph.node)
    del half.graph.node[:]
    for node in nodes:
        made = [name for name in node.output if name]
        for index, name in enumerate(node.output):
            node.output[index] = f"{name}_made" if name else ""
        half.graph.node.append(node)
        for name in made:
            half.graph.node.append(helper.make_node("Identity", [f"{name}_made"], [f"{name}_held"]))
            half.graph.node.append(helper.make_node("Identity", [f"{name}_held"], [name]))
    return half
