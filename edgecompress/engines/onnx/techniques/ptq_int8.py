"""Static int8 for ONNX Runtime: weights per channel, activations by ranges calibrated on real samples, as QDQ."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx import kept_in_float, safe_names
from edgecompress.engines.onnx.activation_ranges import Ranges, calibrate, is_finite
from edgecompress.engines.onnx.graph_edits import (
    free_outputs,
    is_quantized,
    matching,
    order_as,
    prepare,
    reading,
    to_their_ends,
)
from edgecompress.techniques import _activation_ranges, _int8, _skipped_layers
from edgecompress.techniques._calibration import check_samples, inputs_of, spread, used

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("onnx", "onnxruntime>=1.31", "sympy")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

OPSET = 13  # the first with scales per channel
# The axis of a weight along which its outputs lie (Gemm: of one that is not transposed), as ONNX Runtime takes it
OUTPUTS = {"Conv": 0, "ConvTranspose": 1, "Gemm": 1, "MatMul": 1}


@dataclass(frozen=True)
class Options:
    """How the ranges of activations are found and what is quantized."""

    calibrator: _activation_ranges.Calibrator = "minmax"
    percentile: float = 99.99  # of the values kept inside the range, for "percentile"
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    per_channel: bool = True  # of weights
    weight_bits: Literal[8, 4] = 8  # 4: 15 levels, held as int8 all the same: ONNX Runtime computes int4 in float
    activation: Literal["uint8", "int8"] = "uint8"  # int8 is half as fast on x86 with VNNI, and what Arm likes
    symmetric: bool = False  # activations with their zero in the middle
    skip: tuple[str, ...] = ()  # nodes kept in float, as patterns of their names ("node_conv2d*")

    def __post_init__(self) -> None:
        _activation_ranges.check_percentile(self.percentile)
        check_samples(self.samples)
        if self.weight_bits < 8 and not self.per_channel:
            raise ValueError("weight_bits = 4 needs per_channel = true")


promises = _int8.promises
kept = _skipped_layers.kept_as_patterns


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: the other calibrators, and a scale for each channel where there is one for all."""
    finer: list[tuple[str, dict[str, Json]]] = (
        [] if options.get("per_channel", Options.per_channel) else [("per channel", {"per_channel": True})]
    )
    return (
        _activation_ranges.rungs(options.get("calibrator", Options.calibrator), _activation_ranges.CALIBRATORS) + finer
    )


def apply(request: Request) -> Artifact:
    """The ONNX model with int8 weights and activations; inputs: "model", "samples" (the calibrate split).

    facts: {"calibrator", "weight_bits", "samples": items used, "skipped": [node]}.
    Raises StageFailed where a tensor is not finite.
    """
    if same := _int8.given(request):
        return same
    options: Options = request.options
    batches = spread(request, options.samples)

    def items() -> Iterator[Mapping[str, np.ndarray]]:
        return (inputs_of(request, batch) for batch in batches)

    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        prepared = prepare(request.model.file(".onnx"), Path(folder) / "prepared.onnx", OPSET)
        skipped = to_their_ends(prepared, matching(prepared, options.skip))
        ranges = calibrate(prepared, items, options, lambda done: request.progress(0.9 * done, "calibrating"))
        coarse = to_their_ends(prepared, list(kept_in_float.coarse(prepared, ranges)))
        coarse += reading(prepared, coarse, products=False)
        masks, pools = kept_in_float.masking(prepared, ranges), kept_in_float.pools(prepared)
        found = dict.fromkeys([*coarse, *masks, *pools, *kept_in_float.behind(prepared)])
        skipped += [name for name in found if name not in skipped]
        _quantize(prepared, request.out / "model.onnx", (options, ranges, skipped))
    order_as(request.out / "model.onnx", request.model.file(".onnx"))
    facts: dict[str, Json] = {"calibrator": options.calibrator, "weight_bits": options.weight_bits}
    facts |= {"samples": used(batches), "skipped": skipped}
    if not is_quantized(request.out / "model.onnx"):
        facts["lost"] = "changed nothing in this model: it has no operator that ONNX Runtime computes in int8"
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _quantize(prepared: Path, out: Path, how: tuple[Options, Ranges, list[str]]) -> None:
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.calibrate import TensorData, TensorsData, save_tensors_data

    options, ranges, skipped = how
    floats = [*skipped, *reading(prepared, skipped)]
    safe, own = safe_names.safe_copy(prepared)
    data = {
        name: TensorData(lowest=np.array(low, np.float32), highest=np.array(high, np.float32))
        for name, (low, high) in ((new, ranges[old]) for new, old in own.items() if old in ranges)
        if is_finite((low, high))
    }
    cache = prepared.with_suffix(".json")  # quantize_static's own input for ranges from another calibrator
    save_tensors_data(TensorsData(CalibrationMethod.MinMax, data), cache)
    quantize_static(
        safe,
        out,
        quant_format=QuantFormat.QDQ,
        per_channel=options.per_channel,
        activation_type=QuantType.QUInt8 if options.activation == "uint8" else QuantType.QInt8,
        weight_type=QuantType.QInt8,
        nodes_to_exclude=floats,
        calibration_cache_path=cache,
        extra_options={
            "ActivationSymmetric": options.symmetric,
            "TensorQuantOverrides": _scales(safe, floats, options),
        },
    )
    safe_names.restore_in(out, own)
    if skipped:
        free_outputs(out, skipped)


def _scales(prepared: Path, floats: Sequence[str], options: Options) -> dict[str, list[Scale]]:
    """The scales of weights that ONNX Runtime's quantizer is not left to find: {weight: one, or one of each channel}.

    Weights of fewer levels than int8 has: max|w| / (2^(bits - 1) - 1). A ConvTranspose in groups: the quantizer would
    give it a scale for each output of one group; its outputs lie along axis 0 if each group has one, else along none.
    """
    import numpy as np
    import onnx

    levels = 2 ** (options.weight_bits - 1) - 1
    graph = onnx.load_model(prepared).graph
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.FLOAT}
    overrides = {}
    for node in (n for n in graph.node if n.op_type in OUTPUTS and n.name not in floats):
        tensor = constants.get(node.input[1])
        if tensor is not None and len(tensor.dims) > 1 and (node.op_type != "MatMul" or len(tensor.dims) == 2):
            numbers = {a.name: a.i for a in node.attribute}
            axis: int | None = 0 if numbers.get("transB") else OUTPUTS[node.op_type]
            groups = numbers.get("group", 1) if node.op_type == "ConvTranspose" else 1
            if options.weight_bits == 8 and (groups == 1 or not options.per_channel):
                continue
            if groups > 1:
                axis = 0 if [*tensor.dims[:2]] == [groups, 1] else None
            weights = onnx.numpy_helper.to_array(tensor)
            rows = weights[None] if axis is None else np.moveaxis(weights, axis, 0)
            largest = np.abs(rows).reshape(len(rows), -1).max(1)
            scales = np.where(largest > 0, largest, 1) / levels
            overrides[tensor.name] = [_scaled(axis, scale) for scale in scales.astype(np.float32)]
    return overrides


class Scale(TypedDict, total=False):
    """An entry of ONNX Runtime's option TensorQuantOverrides."""

    axis: int  # none: one scale for the whole tensor
    scale: np.ndarray
    zero_point: np.ndarray


def _scaled(axis: int | None, scale: np.float32) -> Scale:
    """A scale as ONNX Runtime's quantizer reads it."""
    import numpy as np

    entry: Scale = {"scale": np.array(scale), "zero_point": np.array(0, np.int8)}
    return entry if axis is None else {"axis": axis, **entry}
