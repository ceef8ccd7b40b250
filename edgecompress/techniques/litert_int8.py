"""Static int8 for LiteRT by ai-edge-quantizer: weights per channel, activations by their extremes on real samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgecompress.errors import InputError, StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.techniques import _litert
from edgecompress.techniques._calibration import inputs_of, spread

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

HUGE = 3e38  # of a value: NaN, infinity, and masks of the smallest float
MASK = -1000.0  # what goes so far below, and not above, is a mask: on its scale nothing else is left
MASKING = {"ADD", "MUL", "SUB", "SELECT_V2", "SOFTMAX"}  # what makes one, lays it on, and takes what is masked
# The axis of a weight along which its outputs lie
OUTPUTS = {"CONV_2D": 0, "DEPTHWISE_CONV_2D": 3, "FULLY_CONNECTED": 0}

Ranges = dict[str, dict[str, Any]]  # tensor -> {"min", "max"}, as the quantizer has them


@dataclass(frozen=True)
class Options:
    """What is quantized, and by how much data."""

    io: Literal["float", "int8"] = "float"  # int8: what a microcontroller's program wants; never of ids
    # Extremes: on ResNet-20 the quantizer's own moving average of them loses 16 dB.
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    skip: tuple[str, ...] = ()  # operators kept in float, as regular expressions of their outputs' names

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError("samples is at least 1")
        _litert.check_patterns(self.skip)


def apply(request: Request) -> Artifact:
    """The TFLite model with int8 weights and activations; inputs: "model", "samples" (the calibrate split).

    facts: {"samples": items used, "skipped": [operator]}. Raises StageFailed where a tensor is not finite.
    """
    options: Options = request.options
    if options.io == "int8" and any(spec.feeds for spec in request.model.outputs):
        raise InputError("int8: a net with state keeps float inputs and outputs; use io = 'float'")
    data = request.model.file(".tflite").read_bytes()
    skipped = _litert.matching(_litert.operators(data), options.skip)
    recipe = _litert.recipe()
    recipe.add_static_config(".*", _all(), activation_num_bits=8, weight_num_bits=8)
    _litert.keep(recipe, skipped, _litert.ENDS if options.io == "float" else ())
    batches = spread(request, options.samples)
    ranges = calibrate(data, (inputs_of(request, items) for items in batches), recipe)
    request.progress(0.8, "quantizing")
    masking = [scope for scope in _masking(data, ranges) if scope not in skipped]
    _litert.keep(recipe, masking)
    skipped += masking
    facts = {"samples": len({item for batch in batches for item in batch}), "skipped": skipped}
    return _litert.artifact(request, _litert.quantized(lifted(data, ranges), recipe, ranges), facts)


def _all() -> Any:
    from ai_edge_quantizer import qtyping

    return qtyping.TFLOperationName.ALL_SUPPORTED


def calibrate(data: bytes, items: Iterator[Mapping[str, Any]], recipe: Any) -> Ranges:
    """The extremes of each tensor over the items, one at a time. Raises StageFailed: one is not finite."""
    from ai_edge_quantizer import calibrator
    from ai_edge_quantizer.utils import qsv_utils

    work = calibrator.Calibrator(
        memoryview(data),
        num_threads=1,
        mode=calibrator.CalibrationMode.CALIBRATION_PROFILER_BASED,
        qsv_update_func=qsv_utils.min_max_update,
    )
    (signature,) = work.get_signature_list()
    for item in items:
        work.calibrate({signature: [item]}, recipe)
    found: Ranges = work.get_model_qsvs()
    for name, extremes in found.items():
        low, high = (float(extremes[end].flat[0]) for end in ("min", "max"))
        if not (abs(low) < HUGE and abs(high) < HUGE):
            raise StageFailed(
                f"int8: the tensor '{name}' takes values from {low} to {high} on the calibration data; "
                "keep its operators in float with the option skip"
            )
    return found


def _masking(data: bytes, ranges: Ranges) -> Iterator[str]:
    """The operators around attention masks: these stay in float."""
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    model = files.read_model(data)
    for graph in model.subgraphs:
        masks = {i for i, tensor in enumerate(graph.tensors) if _is_mask(ranges.get(tensor.name.decode()))}
        for op in graph.operators:
            kind = files.TFL_OP_CODE_TO_NAME.get(model.operatorCodes[op.opcodeIndex].builtinCode)
            if kind is not None and kind.value in MASKING and not masks.isdisjoint({*op.inputs, *op.outputs}):
                yield files.get_op_scope(op, graph.tensors)


def _is_mask(extremes: Mapping[str, Any] | None) -> bool:
    low, high = (float(extremes[end].flat[0]) for end in ("min", "max")) if extremes else (0.0, 0.0)
    return low < MASK and -low > 100 * high


def lifted(data: bytes, ranges: Ranges) -> bytes:
    """The file, its dead channels raised so far that their biases fit into 32 bits.

    A channel whose weights are all but zero gets a scale so small that its bias overflows, and what was a constant
    output becomes another. One weight is raised instead: the output moves by 0.003 % of the bias at most.
    """
    import numpy as np
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils as files

    copy = bytearray(data)
    model = files.read_model(copy)  # its arrays are views of the copy
    for graph in model.subgraphs:
        for op in graph.operators:
            kind = files.TFL_OP_CODE_TO_NAME.get(model.operatorCodes[op.opcodeIndex].builtinCode)
            parts = _weighted(model, graph, op) if kind is not None and kind.value in OUTPUTS else None
            if parts is None or parts[0] not in ranges:
                continue
            name, weights, bias = parts
            step = _step(ranges[name])
            least = 127 * np.abs(bias) / (step * 2**30) if step else np.zeros_like(bias)
            channels = np.moveaxis(weights, OUTPUTS[kind.value], 0)
            for channel in np.flatnonzero(np.abs(channels).reshape(len(channels), -1).max(1) < least):
                channels[(channel, *(0,) * (channels.ndim - 1))] = least[channel]
    return bytes(copy)


def _weighted(model: Any, graph: Any, op: Any) -> tuple[str, Any, Any] | None:
    """The input's name, the weights and the bias of an operator that has constant ones."""
    import numpy as np

    if len(op.inputs) < 3 or op.inputs[2] < 0:
        return None
    source, *constants = (graph.tensors[i] for i in op.inputs[:3])
    data = [model.buffers[tensor.buffer].data for tensor in constants]
    if any(d is None for d in data) or any(tensor.type for tensor in constants):
        return None
    weights, bias = (np.frombuffer(d, np.float32).reshape(t.shape) for d, t in zip(data, constants, strict=True))
    return source.name.decode(), weights, bias


def _step(extremes: Mapping[str, Any]) -> float:
    """The scale of an activation with those extremes."""
    return float(max(extremes["max"].flat[0], 0) - min(extremes["min"].flat[0], 0)) / 255
