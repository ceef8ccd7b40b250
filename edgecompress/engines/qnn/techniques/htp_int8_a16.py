"""Int8 weights and 16-bit activations for the HTP: what norms, softmax and the heads of detectors need."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.qnn import htp, quantization
from edgecompress.techniques import _activation_ranges, _skipped_layers
from edgecompress.techniques._calibration import check_samples

REQUIRES = ("onnx", "onnxruntime>=1.31", "sympy")
EXTRA = "qnn"
READS: tuple[str, ...] = ("onnx",)
WRITES = htp.KIND
PROVIDES = "int8-a16"
NEEDS: tuple[str, ...] = ("samples",)


@dataclass(frozen=True)
class Options:
    """How the ranges of activations are found, and what is not quantized."""

    calibrator: _activation_ranges.Calibrator = "minmax"
    percentile: float = 99.99  # of the values kept inside the range, for "percentile"
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    skip: tuple[str, ...] = ()  # nodes computed in half precision, as patterns of their names

    def __post_init__(self) -> None:
        _activation_ranges.check_percentile(self.percentile)
        check_samples(self.samples)


kept = _skipped_layers.kept_as_patterns


def promises(options: Options) -> Promise:
    """Int8 weights, multiplied with 16-bit activations; tables of embeddings, which are activations, have 16 too."""
    return dataclasses.replace(_skipped_layers.promise("int8", "int16", options.skip), share=0.0)


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: the other calibrators."""
    return _activation_ranges.rungs(options.get("calibrator", Options.calibrator), _activation_ranges.CALIBRATORS)


def apply(request: Request) -> Artifact:
    """The model with int8 weights and 16-bit activations; inputs and facts as those of htp_int8."""
    return quantization.quantized(request, request.options, 16)
