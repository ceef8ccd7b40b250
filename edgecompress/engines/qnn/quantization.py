"""ONNX files as the HTP takes them in whole numbers: every operator quantized, activations of 8 or 16 bits."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx import activation_ranges, kept_in_float, safe_names
from edgecompress.engines.onnx.activation_ranges import Calibrating, Ranges
from edgecompress.engines.onnx.graph_edits import (
    free_outputs,
    is_quantized,
    matching,
    order_as,
    reading,
    to_their_ends,
)
from edgecompress.engines.qnn import static_graph
from edgecompress.engines.qnn.htp import FILE, HALF, KIND, ONE_INPUT
from edgecompress.formats.precision import facts
from edgecompress.techniques._calibration import inputs_of, spread, used

if TYPE_CHECKING:
    import numpy as np
    import onnx

WIDE = 65535  # levels of 16 bits
BACK = "DequantizeLinear"


class Quantizing(Calibrating, Protocol):
    """Options of a technique that makes such a file."""

    @property
    def samples(self) -> int | None: ...

    @property
    def skip(self) -> tuple[str, ...]: ...


def quantized(request: Request, options: Quantizing, bits: int, wide: Sequence[str] = ()) -> Artifact:
    """The model with int8 weights and activations of `bits`, those of the nodes `wide` of 16; inputs as NEEDS.

    facts: {"calibrator", "samples": items used, "skipped": [node], "bits", "numbers": {node: numbers that it makes of
    an item}, "int8": []}. Raises StageFailed where an input is not finite.
    """
    given = facts.of(request.model)
    if facts.whole(given):  # rounded once more it would only lose
        computes = given["computes"] or {}
        own = 16 if 2 * computes.get("int16", 0) > sum(computes.values()) else 8
        if own != bits:
            raise StageFailed(
                f"the model is of whole numbers already, of {own} bits between its operators: {bits} would add nothing"
            )
        ends = static_graph.fixed(request, request.out / FILE)
        return Artifact(request.out, KIND, *ends, {"given": True}).write()
    batches = spread(request, options.samples, request.context.batch)

    def items() -> Iterator[Mapping[str, np.ndarray]]:
        return (inputs_of(request, batch) for batch in batches)

    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        ends = static_graph.fixed(request, Path(folder) / "fixed.onnx")
        opset = static_graph.WIDE if bits > 8 or wide else static_graph.OPSET
        prepared = static_graph.prepared(Path(folder) / "fixed.onnx", Path(folder) / "prepared.onnx", opset)
        skipped = to_their_ends(prepared, matching(prepared, options.skip))
        ranges = activation_ranges.calibrate(
            prepared, items, options, lambda done: request.progress(0.9 * done, "calibrating")
        )
        coarse = kept_in_float.coarse(prepared, ranges, WIDE if bits > 8 else 255)
        found = [*to_their_ends(prepared, list(coarse)), *kept_in_float.masking(prepared, ranges)]
        found += [*kept_in_float.behind(prepared), *_of_one_input(prepared, bits)]
        skipped += [name for name in dict.fromkeys(found) if name not in skipped]
        numbers = _quantize(prepared, request.out / FILE, ranges, skipped, bits, matching(prepared, wide))
    order_as(request.out / FILE, request.model.file(".onnx"))
    told: dict[str, Any] = {"calibrator": options.calibrator, "samples": used(batches), "skipped": skipped}
    told |= {"bits": bits, "numbers": numbers, "int8": []}
    if not is_quantized(request.out / FILE):
        told["lost"] = "changed nothing in this model: it has no operator that the HTP computes in whole numbers"
    return Artifact(request.out, KIND, *ends, told).write()


def _without_scale(file: Path, ranges: Ranges) -> Iterator[str]:
    """The nodes that read a number without an end: a mask of the least float, which no scale holds."""
    import onnx

    for node in onnx.load_model(file).graph.node:
        if any(name in ranges and not activation_ranges.is_finite(ranges[name]) for name in node.input):
            yield node.name


def _of_one_input(file: Path, bits: int) -> Iterator[str]:
    """The nodes of ONE_INPUT that stay in half precision: what quantizes their ends has to go, too."""
    import onnx

    for node in onnx.load_model(file).graph.node:
        if node.op_type in ONE_INPUT and node.op_type in HALF[bits]:
            yield node.name


def _half(file: Path, bits: int, wide: Sequence[str]) -> list[str]:
    """What the HTP computes right in half precision alone: HALF, and of 16 bits x * sigmoid(x), which it makes one."""
    import onnx

    nodes = onnx.load_model(file).graph.node
    found = [node.name for node in nodes if node.op_type in HALF[16 if node.name in wide else bits]]
    gates = {node.output[0]: node for node in nodes if node.op_type == "Sigmoid"}
    for node in (node for node in nodes if node.op_type == "Mul"):
        gate = next((gates[name] for name in node.input if name in gates), None)
        if (
            gate is not None
            and gate.input[0] in node.input
            and (bits > 8 or not {gate.name, node.name}.isdisjoint(wide))
        ):
            found += [gate.name, node.name]
    return found


def _quantize(
    prepared: Path, out: Path, ranges: Ranges, skipped: Sequence[str], bits: int, wide: Sequence[str]
) -> dict[str, int]:
    """Writes the file; returns how many numbers each quantized node makes of an item."""
    import numpy as np
    import onnx
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import TensorData, TensorsData, save_tensors_data
    from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config

    floats = [*skipped, *reading(prepared, skipped), *_half(prepared, bits, wide), *_without_scale(prepared, ranges)]
    safe, own = safe_names.safe_copy(prepared)
    data = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ((new, ranges[old]) for new, old in own.items() if old in ranges)
        if activation_ranges.is_finite((low, high))
    }
    cache = prepared.with_suffix(".json")  # quantize_static's own input for ranges from another calibrator
    save_tensors_data(TensorsData(CalibrationMethod.MinMax, data), cache)
    model = onnx.load_model(safe)
    types = {8: QuantType.QUInt8, 16: QuantType.QUInt16}
    how = get_qnn_qdq_config(
        model,
        None,
        activation_type=types[bits],
        weight_type=QuantType.QInt8,
        per_channel=True,
        init_overrides=_overrides(model.graph, floats, types[bits], wide, types[16]),
        nodes_to_exclude=floats,
    )
    quantize_static(
        safe,
        out,
        quant_format=QuantFormat.QDQ,
        per_channel=True,
        activation_type=how.activation_type,
        weight_type=how.weight_type,
        op_types_to_quantize=how.op_types_to_quantize,
        nodes_to_exclude=floats,
        calibration_cache_path=cache,
        extra_options=how.extra_options,
    )
    safe_names.restore_in(out, own)
    if skipped:
        free_outputs(out, skipped)
    _whole_constants(prepared, out, floats)
    sizes = _sizes(model)
    return {node.name: sizes.get(node.output[0], 1) for node in model.graph.node if node.name not in floats}


def _whole_constants(prepared: Path, file: Path, floats: Sequence[str]) -> None:
    """Gives the nodes `floats` their constants as floats, where others read the same ones as integers."""
    import onnx

    whole = {tensor.name: tensor for tensor in onnx.load_model(prepared).graph.initializer}
    model = onnx.load_model(file)
    back = {
        node.output[0]: node.input[0].removesuffix("_quantized") for node in model.graph.node if node.op_type == BACK
    }
    known = {tensor.name for tensor in model.graph.initializer}
    for node in (node for node in model.graph.node if node.name in floats):
        for index, name in enumerate(node.input):
            if (constant := back.get(name, "")) in whole:
                node.input[index] = constant
                model.graph.initializer.extend([whole[constant]] if constant not in known else [])
                known.add(constant)
    read = {name for node in model.graph.node for name in node.input} | {value.name for value in model.graph.output}
    for node in [node for node in model.graph.node if node.op_type == BACK and node.output[0] not in read]:
        model.graph.node.remove(node)
    onnx.save_model(model, file)


def _overrides(
    graph: onnx.GraphProto, floats: Sequence[str], own: object, wide: Sequence[str], widest: object
) -> dict[str, list[dict[str, Any]]]:
    """What the tensors of a graph are held as, beside the quantizer's defaults, as it reads that.

    Weights of products: a scale per channel. Those of a LayerNormalization: as wide as its activations, which is all
    that the HTP takes. What the nodes `wide` make: of 16 bits.
    """
    from onnxruntime.quantization import QuantType

    constants = {tensor.name: tensor for tensor in graph.initializer}
    told: dict[str, list[dict[str, Any]]] = {}
    for node in (node for node in graph.node if node.name not in floats):
        weight = constants.get(node.input[1]) if len(node.input) > 1 else None
        if node.name in wide:
            told |= {name: [{"quant_type": widest}] for name in node.output if name}
        if weight is None:
            continue
        if node.op_type in ("Gemm", "MatMul") and len(weight.dims) == 2:
            rows_first = not any(a.name == "transB" and a.i for a in node.attribute)
            told[weight.name] = [{"axis": int(rows_first), "quant_type": QuantType.QInt8, "symmetric": True}]
        elif node.op_type in ("LayerNormalization", "InstanceNormalization", "GroupNormalization"):
            told[weight.name] = [{"quant_type": widest if node.name in wide else own}]
    return told


def _sizes(model: onnx.ModelProto) -> dict[str, int]:
    """How many numbers a tensor has, of one item."""
    import onnx

    graph = onnx.shape_inference.infer_shapes(model).graph
    return {
        value.name: math.prod(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.output)
    }
