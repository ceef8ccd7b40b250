"""Static int8 for LiteRT by ai-edge-quantizer: weights per channel, activation ranges from real samples."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.litert import quantizer, static_integers
from edgecompress.techniques import _activation_ranges, _int8, _skipped_layers
from edgecompress.techniques._calibration import check_samples

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)


@dataclass(frozen=True)
class Options:
    """What is quantized, and by how much data."""

    io: Literal["float", "int8"] = "float"  # int8: what a microcontroller's program wants; never of ids
    calibrator: _activation_ranges.Calibrator = (
        "minmax"  # on ResNet-20 the quantizer's moving average of extremes loses 16 dB
    )
    percentile: float = 99.99  # of the values kept inside the range, for "percentile"
    weight_bits: Literal[8, 4] = 8  # 4: 15 levels, held as int8 all the same: XNNPACK computes no int4 with int8
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    # Operators kept in float, with those that read their outputs, as regular expressions of their outputs' names
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_samples(self.samples)
        _activation_ranges.check_percentile(self.percentile)
        quantizer.check_patterns(self.skip)


promises = _int8.promises
kept = _skipped_layers.kept_as_expressions


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: the other calibrators; weights are quantized per channel anyway."""
    return _activation_ranges.rungs(options.get("calibrator", Options.calibrator), _activation_ranges.CALIBRATORS)


def apply(request: Request) -> Artifact:
    """The TFLite model with int8 weights and activations; inputs and facts as static_integers.quantized has them."""
    return static_integers.quantized(request, request.options, 8, request.options.weight_bits)
