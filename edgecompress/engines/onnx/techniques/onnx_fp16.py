"""Half-precision weights and arithmetic in ONNX, inputs and outputs unchanged; what overflows stays in fp32."""

from __future__ import annotations

import itertools
import tempfile
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.onnx import branches, external, safe_names
from edgecompress.engines.onnx.graph_edits import matching
from edgecompress.formats import op_counts
from edgecompress.techniques import _fp16_ranges, _skipped_layers
from edgecompress.techniques._calibration import inputs_of, spread

if TYPE_CHECKING:
    import numpy as np
    import onnx
    import onnxruntime

REQUIRES = ("onnx", "onnxruntime")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ("samples",)

RECURRENT = ("LSTM", "GRU", "RNN")  # ONNX Runtime's CPU crashes when it opens one in half precision
SQUARES = {  # what they read
    "GroupNormalization",
    "InstanceNormalization",
    "LayerNormalization",
    "LpNormalization",
    "ReduceL2",
    "ReduceSumSquare",
    "RMSNormalization",
}


@dataclass(frozen=True)
class Options:
    """What stays in fp32, beside what the samples show."""

    keep_ops: tuple[str, ...] = RECURRENT  # operator types
    skip: tuple[str, ...] = ()  # nodes, as patterns of their names
    samples: int | None = 32  # calibration items at most, evenly spread over the split; None is all
    headroom: float = 4.0  # how many times larger than on the samples a number may get
    floor_db: float = 50.0  # of each output against fp32; more nodes stay in fp32 until it is reached

    def __post_init__(self) -> None:
        _fp16_ranges.check(self.samples, self.headroom)


def promises(options: Options) -> Promise:
    """Half-precision weights, and operators that multiply them as such."""
    return _skipped_layers.promise("fp16", "fp16", options.skip)


kept = _skipped_layers.kept_as_patterns


def apply(request: Request) -> Artifact:
    """The ONNX model in half precision; inputs: "model", "samples" (the calibrate split); facts: those of `halved`."""

    batches, model = spread(request, request.options.samples), external.load(request.model.file(".onnx"))
    for index, node in enumerate(model.graph.node):  # what stays in fp32 is identified by its name
        node.name = node.name or f"{node.op_type}_{index}"
    return _fp16_ranges.halved(request, _OnnxTrial(request, model, batches))


def _inside(node: onnx.NodeProto, ranges: _fp16_ranges.Tallies) -> float:
    """The largest number that a node forms before its output."""
    return ranges[node.input[0]].largest ** 2 if node.op_type in SQUARES and node.input[0] in ranges else 0.0


def _unfit(graph: onnx.GraphProto) -> Iterator[str]:
    """The weights that half precision cannot hold."""
    import numpy as np
    import onnx

    for tensor in graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if values.dtype == np.float32:
            yield from _fp16_ranges.unfit(_fp16_ranges.rounded([{tensor.name: values}]), 1.0)


def _nothing(half: onnx.ModelProto) -> str:
    """Why a model with no half-precision arithmetic left is out."""
    import onnx

    values = {v.name for v in half.graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    works = (n for n in half.graph.node if n.op_type not in ("Cast", "Constant"))
    return "" if any(values & set(n.output) for n in works) else "every node would have to stay in fp32"


# --------------------------------------------------------------------------- the converter, and what it leaves to do


def converted(model: onnx.ModelProto, kept: Collection[str]) -> onnx.ModelProto:
    """The model in half precision but for the nodes in `kept`. Raises StageFailed with the converter's reason."""
    import onnx
    from onnxruntime.transformers import float16
    from onnxruntime.transformers.onnx_model import OnnxModel

    named = branches.copied(model)
    own = safe_names.make_safe(named)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of numbers it truncates: their nodes are kept
            half = float16.convert_float_to_float16(named, keep_io_types=True, node_block_list=sorted(kept))
        _drop_repeated(half.graph)
        _join(half.graph, {node.name for node in model.graph.node})
        OnnxModel(half).topological_sort()  # the converter appends its casts at the end
        safe_names.restore(half, own)
        onnx.checker.check_model(half)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise StageFailed(f"onnx_fp16: {first_line(error)}") from error
    return half


def _drop_repeated(graph: onnx.GraphProto) -> None:
    """The converter casts a tensor twice, under one name, where a node that stays in fp32 reads it twice."""
    seen: set[str] = set()
    for node in list(graph.node):
        if node.output[0] in seen:
            graph.node.remove(node)
        seen.add(node.output[0])


def _join(graph: onnx.GraphProto, ours: set[str]) -> None:
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


class _OnnxTrial:
    """The model on the samples, in fp32 and in half precision."""

    def __init__(self, request: Request, model: onnx.ModelProto, batches: Sequence[list[int]]) -> None:
        self.request, self.model, self.batches = request, model, batches
        self.names = [node.name for node in model.graph.node]
        self.full: list[dict[str, np.ndarray]] = []  # of fp32: the outputs of each batch

    def ranges(self) -> dict[str, _fp16_ranges.PrecisionTally]:
        """Every tensor of the fp32 model, and what rounding it would lose."""
        import numpy as np

        session = self._session(_exposed(self.model))
        outputs = [spec.name for spec in self.request.model.outputs]

        def tensors(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
            layers = self._run(session, inputs)
            self.full.append({name: layers[name] for name in outputs if name in layers})
            return {**{n: values for n, values in inputs.items() if values.dtype == np.float32}, **layers}

        return _fp16_ranges.rounded(map(tensors, self._items()))

    def fixed(self, ranges: _fp16_ranges.Tallies) -> set[str]:
        """The nodes that stay in fp32: by their type, their name, or what they read, make or form in between."""
        nodes, headroom = self.model.graph.node, self.request.options.headroom
        unfit = _fp16_ranges.unfit(ranges, headroom) | set(_unfit(self.model.graph))
        fixed = {n.name for n in nodes if unfit & {*n.input, *n.output}}
        return self._chosen() | fixed | {n.name for n in nodes if _inside(n, ranges) * headroom > _fp16_ranges.LARGEST}

    def _chosen(self) -> set[str]:
        """The nodes that stay in fp32 whatever the samples show."""
        import onnx
        from onnxruntime.transformers import float16

        options: Options = self.request.options
        types = {*float16.DEFAULT_OP_BLOCK_LIST, *options.keep_ops}
        with tempfile.TemporaryDirectory(dir=self.request.out, prefix="work-") as folder:
            onnx.save_model(self.model, Path(folder) / "named.onnx")
            named = matching(Path(folder) / "named.onnx", options.skip)
        return {node.name for node in self.model.graph.node if node.op_type in types} | set(named)

    def loss(self, kept: Sequence[str], limit: int | None) -> dict[str, _fp16_ranges.PrecisionTally]:
        """What each output loses with only `kept` in fp32, on at most `limit` batches."""
        session = self._session(_stored(converted(self.model, kept)))
        halves = (self._run(session, inputs) for inputs in itertools.islice(self._items(), limit))
        return _fp16_ranges.tallied(
            {n: (full[n], half[n]) for n in full} for full, half in zip(self.full, halves, strict=False)
        )

    def write(self, kept: Sequence[str]) -> dict[str, Json]:
        """Writes the model with only `kept` in fp32; the share of the MACs in half precision, for the facts."""
        import onnx

        request, half = self.request, converted(self.model, kept)
        onnx.save_model(half, request.out / "model.onnx")
        written = Artifact(request.out, WRITES, request.model.inputs, request.model.outputs)
        counts = op_counts.total(written, request.context.batch)
        share = _fp16_ranges.share((counts["macs_of"] or {}).get("float16", 0), counts["macs"] or 0, counts["why"])
        return share | ({"lost": lost} if (lost := _nothing(half)) else {})

    def _run(self, session: onnxruntime.InferenceSession, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The fp32 outputs of a session."""
        names = [value.name for value in session.get_outputs() if value.type == "tensor(float)"]
        return dict(zip(names, session.run(names, inputs), strict=True))

    def _items(self) -> Iterator[dict[str, np.ndarray]]:
        return (inputs_of(self.request, batch) for batch in self.batches)

    def _session(self, model: onnx.ModelProto) -> onnxruntime.InferenceSession:
        """Unoptimised: an optimised graph would not make every tensor."""
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.request.context.threads
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3
        try:
            return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime has a class per status, and no common one but Exception
            raise StageFailed(f"onnx_fp16: ONNX Runtime cannot open a trial model: {first_line(error)}") from error


def _exposed(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose every tensor is an output."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    made = (name for node in copy.graph.node for name in node.output if name)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in known)
    return copy


def _stored(half: onnx.ModelProto) -> onnx.ModelProto:
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
