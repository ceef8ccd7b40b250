"""Static int8 of a SavedModel by TensorFlow's own converter: weights per channel, activations calibrated on samples."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgecompress.core import registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.litert import model_edits, model_file, saved_model
from edgecompress.engines.litert.quantizer import MOVES, check_patterns
from edgecompress.techniques import _int8, _skipped_layers
from edgecompress.techniques._calibration import check_samples, inputs_of, spread, used

if TYPE_CHECKING:
    import numpy as np
    import tensorflow as tf

REQUIRES = ("tensorflow-cpu", "ai-edge-litert", "ai-edge-quantizer")
EXTRA = "tensorflow"
READS: tuple[str, ...] = ("savedmodel",)
WRITES = "tflite"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

FILE = "model.tflite"
JOINS = {"CONCATENATION", "PACK", "MAXIMUM", "MINIMUM", "SELECT_V2"}  # they have one scale for all that they read
SAME_SCALE = MOVES | {"AVERAGE_POOL_2D", "RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"}  # as their outputs have
LEVELS = 16  # an input that has fewer on the scale of a join is lost


@dataclass(frozen=True)
class Options:
    """What the file takes and gives, and by how much data it is calibrated."""

    io: Literal["float", "int8"] = "float"  # int8: what a microcontroller's program wants; never of ids
    samples: int | None = 300  # calibration items at most, evenly spread over the split; None is all
    # Operators kept in float, with those that read their outputs, as regular expressions of their outputs' names
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_samples(self.samples)
        check_patterns(self.skip)


promises = _int8.promises
kept = _skipped_layers.kept_as_expressions


def apply(request: Request) -> Artifact:
    """The SavedModel as an int8 TFLite file, its batch fixed to the context's; inputs: "model", "samples".

    facts: {"samples": items used}; where the converter would spoil joined numbers, those of litert_int8, which then
    makes the file. Raises StageFailed with the converter's reason.
    """
    model, options = request.model, request.options
    if saved_model.loops(model):  # its calibration ends the process
        raise StageFailed(
            "tf_int8: the steps of its LSTM or GRU are a loop, which TensorFlow's converter does not calibrate; "
            "use int8-dynamic, or build the layer with unroll=True"
        )
    batches = spread(request, options.samples)
    try:
        data = _converted(request, batches)
    except InputError:
        raise
    except Exception as error:  # the converter's own class, TensorFlow's, plain RuntimeError
        raise StageFailed(f"tf_int8: TFLiteConverter: {saved_model.fault(error)}") from error
    if data is None:
        return _by_litert(request)
    data = model_edits.without_far_sames(_renamed(data, model))
    (request.out / FILE).write_bytes(data)
    written = model_file.inputs_and_outputs(data, FILE)
    facts = {"samples": used(batches)}
    ends = model_file.as_written(model.inputs, written[0]), model_file.as_written(model.outputs, written[1])
    return Artifact(request.out, WRITES, *ends, facts).write()


def _by_litert(request: Request) -> Artifact:
    """What ai-edge-quantizer makes of the net: what it joins keeps scales of its own, and is rounded again."""
    litert, litert_int8 = registry.load("runtimes", "litert"), registry.load("techniques", "litert_int8")
    with tempfile.TemporaryDirectory(dir=request.out) as scratch:
        exported = litert.export(replace(request, inputs={"model": request.model}, out=Path(scratch), options=None))
        inputs = {**request.inputs, "model": exported}
        options = litert_int8.Options(**asdict(request.options))
        made: Artifact = litert_int8.apply(replace(request, inputs=inputs, options=options))
    return made


def _converted(request: Request, batches: list[list[int]]) -> bytes | None:
    """The file; None where its joins would spoil what they read."""
    import tensorflow as tf

    model, options = request.model, request.options
    call, loaded = saved_model.call(model, request.context.batch)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([call], loaded)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.representative_dataset = lambda: _items(request, batches)
    if options.io == "int8":
        converter.inference_input_type = converter.inference_output_type = tf.int8
    data = b"" if options.skip else bytes(converter.convert())
    alone = data and JOINS.isdisjoint(model_file.types(data))
    return data if alone else _partly(converter, request, data)


def _partly(converter: tf.lite.TFLiteConverter, request: Request, data: bytes) -> bytes | None:
    """The file with the operators of `skip` in float: what TensorFlow's debugger of quantization can do.

    `data`: the file without exceptions. None where its joins would spoil what they read.
    """
    import tensorflow as tf

    library, whole = tf.lite.experimental, request.options.io == "int8"
    options = library.QuantizationDebugOptions(fully_quantize=whole)
    work = library.QuantizationDebugger(
        converter=converter, debug_dataset=converter.representative_dataset, debug_options=options
    )
    if _spoils(work.calibrated_model):
        return None
    if not request.options.skip:
        return data
    names = _to_their_ends(work.calibrated_model, request)
    work.options = library.QuantizationDebugOptions(fully_quantize=whole, denylisted_nodes=names)
    return bytes(work.get_nondebug_quantized_model())


def _to_their_ends(data: bytes, request: Request) -> list[str]:
    """The tensors of the operators of `skip`, of what moves their outputs, and of what reads these.

    Raises InputError: a pattern matches no operator.
    """
    before, after = model_file.graph(data), model_file.graph(_renamed(data, request.model))
    scopes = ["".join(f"{after.tensors[number].name};" for number in node.writes) for node in after.nodes]
    for pattern in request.options.skip:
        if not any(re.search(pattern, scope) for scope in scopes):
            raise InputError(
                f"skip: no operator's name matches '{pattern}'; the names are {', '.join(scopes[:4])}, ..."
            )
    handed, floats = set[int](), list[int]()
    for node, scope in zip(after.nodes, scopes, strict=True):  # in the order of computing
        named = any(re.search(pattern, scope) for pattern in request.options.skip)
        reads = not handed.isdisjoint(node.reads)
        handed.update(node.writes if named or (reads and node.type in MOVES) else ())
        floats += node.writes if named or reads else ()
    return [before.tensors[number].name for number in floats]


def _spoils(calibrated: bytes) -> bool:
    """Whether the scale of a join, which the converter runs back to whatever made the numbers, does not fit there."""
    from ai_edge_litert import schema_py_generated as schema

    graph, whole = model_file.graph(calibrated), schema.ModelT.InitFromPackedBuf(calibrated, 0)
    known = [(i, tensor.quantization) for i, tensor in enumerate(whole.subgraphs[0].tensors)]
    ends = {i: (float(q.min[0]), float(q.max[0])) for i, q in known if q is not None and q.min is not None}
    ranges = {i: (min(low, 0.0), max(high, 0.0)) for i, (low, high) in ends.items() if low < high}
    makers = {number: node for node in graph.nodes for number in node.writes}
    for node in graph.nodes:
        group: set[int] = set()
        todo = [i for i in node.reads if i in ranges] if node.type in JOINS and node.writes[0] in ranges else []
        while todo:
            number = todo.pop()
            group.add(number)
            if number in makers and makers[number].type in SAME_SCALE:
                todo += [i for i in makers[number].reads if i in ranges and i not in group]
        low, high = ranges.get(node.writes[0], (0.0, 0.0))
        step = (high - low) / 255
        if any(a < low - step or b > high + step or b - a < LEVELS * step for a, b in (ranges[i] for i in group)):
            return True
    return False


def _renamed(data: bytes, model: Artifact) -> bytes:
    inputs, outputs = ({spec.name: spec.name for spec in specs} for specs in (model.inputs, model.outputs))
    return model_edits.renamed(data, inputs, outputs)


def _items(request: Request, batches: list[list[int]]) -> Iterator[dict[str, np.ndarray]]:
    """The calibration items by name: the converter puts inputs into an order of its own."""
    size = request.context.batch
    for batch in batches:
        for begin in range(0, len(batch), size):
            part = batch[begin : begin + size]
            yield inputs_of(request, part + part[-1:] * (size - len(part)))
