"""Static int8 for OpenVINO by NNCF: ranges of activations from real samples."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.openvino import ir
from edgecompress.techniques import _activation_ranges, _int8, _nncf, _skipped_layers, _tail
from edgecompress.techniques._calibration import check_samples, inputs_of, spread, used

if TYPE_CHECKING:
    import openvino
    from nncf.quantization.range_estimator import RangeEstimatorParameters

REQUIRES = ("openvino", "nncf")
EXTRA = "openvino"
READS: tuple[str, ...] = ("openvino",)
WRITES = "openvino"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

CALIBRATORS = ("minmax", "percentile", "mse")  # worth a try, in order; NNCF knows no divergence
SCALES = {"Add", "Multiply", "Subtract", "Divide"}
MOVES = {  # what hands on the numbers that it reads
    *("Clamp", "MaxPool", "PRelu", "Relu", "Reshape", "Slice", "Split", "Squeeze", "StridedSlice", "Transpose"),
    *("Convert", "Pad", "Unsqueeze", "VariadicSplit"),
}
ADDING = ("Add", "Subtract")
TABLE = "Gather"
ROLES: dict[str, _tail.Role] = {
    **dict.fromkeys(("Convolution", "GroupConvolution", "ConvolutionBackpropData", "MatMul"), "layer"),
    **dict.fromkeys(("GroupConvolutionBackpropData", "LSTMSequence", "GRUSequence", "RNNSequence"), "layer"),
    **dict.fromkeys(("LSTMCell", "GRUCell", "RNNCell", "TensorIterator", "Loop"), "layer"),
    **dict.fromkeys(("TopK", "NonMaxSuppression", "MulticlassNms", "MatrixNms", "DetectionOutput"), "choice"),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), "share"),
    **dict.fromkeys(("Reshape", "Transpose", "Slice", "StridedSlice", "Split", "VariadicSplit"), "move"),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), "move"),
    "Softmax": "softmax",
    "Concat": "join",
    "Multiply": "scale",
    "ReduceSum": "sum",
    **dict.fromkeys(("Exp", "SoftPlus"), "grow"),
}
PRODUCT, AXES, ENDS = "MatMul", 2, ("Add", "Reshape", "Result")  # of a chain that is fused, and what ends it


@dataclass(frozen=True)
class Options:
    """How NNCF quantizes."""

    preset: Literal["mixed", "performance"] = "mixed"  # asymmetric activations where they can be negative, or never
    samples: int | None = 300  # calibration items at most, evenly spread over the split; None is all
    model_type: Literal["", "transformer"] = ""  # transformer: what attention needs
    # On ResNet-20 extremes keep 7 dB more than NNCF's own mean of them, and no bias correction 5 dB more than "fast".
    # "mean": of the extremes of each item; "percentile": of its quantiles; "mse": NNCF's histogram, the least error.
    calibrator: Literal["minmax", "mean", "percentile", "mse"] = "minmax"
    percentile: float = 99.99  # of an item's values kept inside the range, for "percentile"
    bias_correction: Literal["none", "fast", "full"] = "none"
    # Nodes kept in float, with those that read their outputs, as regular expressions of their names
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_samples(self.samples)
        _activation_ranges.check_percentile(self.percentile)


promises = _int8.promises
kept = _skipped_layers.kept_as_expressions


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: NNCF's other range estimators, and its full correction of biases."""
    calibrators = _activation_ranges.rungs(options.get("calibrator", Options.calibrator), CALIBRATORS)
    corrected = options.get("bias_correction", Options.bias_correction) != "none"
    return calibrators if corrected else [*calibrators, ("bias correction", {"bias_correction": "full"})]


def apply(request: Request) -> Artifact:
    """The OpenVINO model quantized to int8; inputs: "model", "samples" (the calibrate split).

    facts: {"samples": used, "float": [products of matrices that stay so, as OpenVINO computes them wrongly in int8]}.
    Raises StageFailed with NNCF's reason.
    """
    if same := _int8.given(request):
        return same
    nncf = _nncf.library()
    import openvino

    options: Options = request.options
    batches = spread(request, options.samples)
    net = openvino.Core().read_model(request.model.file(".xml"))
    kept = [node.get_friendly_name() for node in net.get_ordered_ops() if _runs_into_another(node)]
    still = [name for name in _still(net) if name not in kept]
    readers = [name for name in (*_to_their_ends(net, options.skip), *_behind(net)) if name not in kept]
    request.progress(0.1, "calibrating")
    try:
        quantized = nncf.quantize(
            net,
            nncf.Dataset(batches, lambda items: inputs_of(request, items)),
            preset=nncf.QuantizationPreset(options.preset),
            model_type=nncf.ModelType(options.model_type) if options.model_type else None,
            subset_size=len(batches),
            fast_bias_correction=options.bias_correction != "full",
            advanced_parameters=nncf.AdvancedQuantizationParameters(
                disable_bias_correction=options.bias_correction == "none",
                activations_range_estimator_params=_estimator(options),
            ),
            ignored_scope=nncf.IgnoredScope(
                names=[*kept, *still, *(name for name in readers if name not in still)], patterns=list(options.skip)
            ),
        )
    except Exception as error:  # NNCF's errors have no base of their own
        raise StageFailed(f"nncf_int8: {first_line(error)}") from error
    facts = {"samples": used(batches), "float": kept}
    ir.save(quantized, request.out)
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _still(net: openvino.Model) -> Iterator[str]:
    """Tables that constants alone pick from: they have no activation, which NNCF looks for."""
    moving: set[str] = set()
    for node in net.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        if kind == "Parameter" or any(v.get_node().get_friendly_name() in moving for v in node.input_values()):
            moving.add(name)
        elif kind == TABLE:
            yield name


def _behind(net: openvino.Model) -> list[str]:
    """The operators that choose, and those around them, where no layer follows any more."""
    steps, constant = [], set[tuple[str, int]]()
    for node in net.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        read = [(value.get_node().get_friendly_name(), value.get_index()) for value in node.input_values()]
        inputs = [tensor for tensor in read if tensor not in constant]
        outputs = [(name, index) for index in range(node.get_output_size())]
        if kind != "Parameter" and not inputs:
            constant.update(outputs)
            continue
        role = "" if kind == PRODUCT and inputs == read else ROLES.get(kind, "")
        added = [
            value.get_shape() for value, tensor in zip(node.input_values(), read, strict=True) if tensor in constant
        ]
        role = "place" if kind in ADDING and any(map(_tail.places, added)) else role
        if kind not in ("Parameter", "Result"):
            steps.append(_tail.Step(name, role, inputs, outputs))
    return _tail.tail(steps)


def _runs_into_another(node: openvino.Node) -> bool:
    """Whether it is a product of matrices, nothing added, whose result goes into the next: a Linear without bias.

    OpenVINO 2026.4 fuses such a chain of two axes into one kernel (TokenizeMLPSeqSnippets) that, in int8, returns what
    happens to be in memory. The factors of a Linear of low rank are such a chain.
    """
    if node.get_type_name() != PRODUCT or node.get_output_partial_shape(0).rank != AXES:
        return False
    while len(readers := node.output(0).get_target_inputs()) == 1:
        node = next(iter(readers)).get_node()
        if node.get_type_name() in (PRODUCT, *ENDS):
            return bool(node.get_type_name() == PRODUCT)
    return False


def _to_their_ends(net: openvino.Model, patterns: Sequence[str]) -> Iterator[str]:
    """What clips or moves the outputs of the nodes that match, and what reads these: NNCF would round them there."""
    handed: set[str] = set()
    for node in net.get_ordered_ops():
        name, kind = node.get_friendly_name(), node.get_type_name()
        sources = [value.get_node() for value in node.input_values()]
        reads = not handed.isdisjoint(source.get_friendly_name() for source in sources)
        alone = sum(source.get_type_name() != "Constant" for source in sources) == 1  # a bias, a scale
        if any(re.match(p, name) for p in patterns) or (reads and (kind in MOVES or (kind in SCALES and alone))):
            handed.add(name)
        if reads and kind != "Result":
            yield name


def _estimator(options: Options) -> RangeEstimatorParameters:
    """How NNCF finds the ranges of activations."""
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet as Known

    names = {"minmax": "MINMAX", "mean": "MEAN_MINMAX", "percentile": "MEAN_QUANTILE", "mse": "HISTOGRAM"}
    estimator = copy.deepcopy(getattr(Known, names[options.calibrator]))
    if options.calibrator == "percentile":
        estimator.min.quantile_outlier_prob = estimator.max.quantile_outlier_prob = (100 - options.percentile) / 200
    return estimator
