"""Static int8 for OpenVINO by NNCF: ranges of activations from real samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from edgecompress import openvino_ir
from edgecompress.errors import StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.techniques._calibration import inputs_of, spread

REQUIRES = ("openvino", "nncf")
EXTRA = "openvino"
READS: tuple[str, ...] = ("openvino",)
WRITES = "openvino"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)

PRODUCT, AXES, ENDS = "MatMul", 2, ("Add", "Reshape", "Result")  # of a chain that is fused, and what ends it


@dataclass(frozen=True)
class Options:
    """How NNCF quantizes."""

    preset: Literal["mixed", "performance"] = "mixed"  # asymmetric activations where they can be negative, or never
    samples: int | None = 300  # calibration items at most, evenly spread over the split; None is all
    model_type: Literal["", "transformer"] = ""  # transformer: what attention needs
    # On ResNet-20 extremes keep 7 dB more than NNCF's own mean of them, and no bias correction 5 dB more than "fast".
    ranges: Literal["minmax", "mean"] = "minmax"
    bias_correction: Literal["none", "fast", "full"] = "none"
    skip: tuple[str, ...] = ()  # nodes kept in float, as regular expressions of their names

    def __post_init__(self) -> None:
        if self.samples is not None and self.samples < 1:
            raise ValueError("samples is at least 1")


def apply(request: Request) -> Artifact:
    """The OpenVINO model quantized to int8; inputs: "model", "samples" (the calibrate split).

    facts: {"samples": used, "float": [products of matrices that stay so, as OpenVINO computes them wrongly in int8]}.
    Raises StageFailed with NNCF's reason.
    """
    nncf, openvino = _nncf()
    options: Options = request.options
    batches = spread(request, options.samples)
    net = openvino.Core().read_model(request.model.file(".xml"))
    kept = [node.get_friendly_name() for node in net.get_ordered_ops() if _runs_into_another(node)]
    request.progress(0.1, "calibrating")
    try:
        quantized = nncf.quantize(
            net,
            nncf.Dataset(batches, lambda items: inputs_of(request, items)),
            preset=nncf.QuantizationPreset(options.preset),
            model_type=nncf.ModelType(options.model_type) if options.model_type else None,
            subset_size=len(batches),
            fast_bias_correction=options.bias_correction != "full",
            advanced_parameters=_advanced(nncf, options),
            ignored_scope=nncf.IgnoredScope(names=kept, patterns=list(options.skip)),
        )
    except Exception as error:  # NNCF's errors have no base of their own
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "no message")
        raise StageFailed(f"nncf_int8: {type(error).__name__}: {said[:300]}") from error
    facts = {"samples": len({item for batch in batches for item in batch}), "float": kept}
    openvino_ir.save(quantized, request.out)
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()


def _nncf() -> tuple[Any, Any]:
    """The libraries, their telemetry switched off and their progress bars kept out of the log."""
    import sys

    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # both then take their own stubs
    import logging

    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    return nncf, openvino


def _runs_into_another(node: Any) -> bool:
    """Whether it is a product of matrices, nothing added, whose result goes into the next: a Linear without bias.

    OpenVINO 2026.4 fuses such a chain of two axes into one kernel (TokenizeMLPSeqSnippets) that, in int8, answers what
    happens to be in memory. The factors of a Linear of low rank are such a chain.
    """
    if node.get_type_name() != PRODUCT or node.get_output_partial_shape(0).rank != AXES:
        return False
    while len(readers := node.output(0).get_target_inputs()) == 1:
        node = next(iter(readers)).get_node()
        if node.get_type_name() in (PRODUCT, *ENDS):
            return bool(node.get_type_name() == PRODUCT)
    return False


def _advanced(nncf: Any, options: Options) -> Any:
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    return nncf.AdvancedQuantizationParameters(
        disable_bias_correction=options.bias_correction == "none",
        activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX if options.ranges == "minmax" else None,
    )
