"""Static int8 for OpenVINO by NNCF: ranges of activations from real samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from edgecompress import tensors
from edgecompress.errors import InputError, StageFailed
from edgecompress.model import Artifact, Request

REQUIRES = ("openvino", "nncf")
EXTRA = "openvino"
READS: tuple[str, ...] = ("openvino",)
WRITES = "openvino"
PROVIDES = "int8"
NEEDS_SAMPLES = True

SPLIT = "calibrate"


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
    """The OpenVINO model quantized to int8; inputs: "model", "samples" (the calibrate split); facts: {"samples": used}.

    Raises StageFailed with NNCF's reason.
    """
    nncf, openvino = _nncf()
    options: Options = request.options
    items = list(_chosen(request, options.samples))
    net = openvino.Core().read_model(request.model.file(".xml"))
    request.progress(0.1, "calibrating")
    try:
        quantized = nncf.quantize(
            net,
            nncf.Dataset(items, lambda index: _item(request, index)),
            preset=nncf.QuantizationPreset(options.preset),
            model_type=nncf.ModelType(options.model_type) if options.model_type else None,
            subset_size=len(items),
            fast_bias_correction=options.bias_correction != "full",
            advanced_parameters=_advanced(nncf, options),
            ignored_scope=nncf.IgnoredScope(patterns=list(options.skip)) if options.skip else None,
        )
    except (RuntimeError, ValueError) as error:  # NNCF's own errors are ValueErrors
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        raise StageFailed(f"nncf_int8: {type(error).__name__}: {said[:300]}") from error
    openvino.save_model(quantized, request.out / "model.xml", compress_to_fp16=False)
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, {"samples": len(items)}).write()


def _nncf() -> tuple[Any, Any]:
    """The libraries, their telemetry switched off and their progress bars kept out of the log."""
    import sys

    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # both then take their own stubs
    import logging

    import nncf
    import openvino

    nncf.set_log_level(logging.ERROR)
    return nncf, openvino


def _advanced(nncf: Any, options: Options) -> Any:
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    return nncf.AdvancedQuantizationParameters(
        disable_bias_correction=options.bias_correction == "none",
        activations_range_estimator_params=RangeEstimatorParametersSet.MINMAX if options.ranges == "minmax" else None,
    )


def _chosen(request: Request, limit: int | None) -> Iterator[int]:
    """The items to calibrate with, evenly spread over the split."""
    total = tensors.count(request.inputs["samples"], SPLIT)
    if total == 0:
        raise InputError(f"int8 needs calibration data: the split '{SPLIT}' is empty")
    used = min(total, limit or total)
    return (round(i * (total - 1) / max(used - 1, 1)) for i in range(used))


def _item(request: Request, index: int) -> Mapping[str, Any]:
    """The model's inputs for one item, repeated to its batch; state is zeros."""
    import numpy as np

    model, samples = request.model, request.inputs["samples"]
    names = tensors.check_inputs(model, samples)
    batch = next(size if isinstance(size := s.shape[0], int) else 1 for s in model.inputs)
    state = {s.name: np.zeros(s.concrete(batch), s.dtype) for s in model.inputs if s.name not in names}
    data = {name: tensors.load(samples, SPLIT, stored)[[index] * batch] for name, stored in names.items()}
    return {**state, **data}
