"""Int8 weights and 16-bit activations for LiteRT: what an Ethos-U computes where 8 bits lose too much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.litert import quantizer, static_integers
from edgecompress.techniques import _activation_ranges, _skipped_layers
from edgecompress.techniques._calibration import check_samples

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "int8-a16"
NEEDS: tuple[str, ...] = ("samples",)


@dataclass(frozen=True)
class Options:
    """What is quantized, and by how much data."""

    io: Literal["float", "int16"] = "float"  # int16: what a microcontroller's program wants; never of ids
    calibrator: _activation_ranges.Calibrator = "minmax"
    percentile: float = 99.99  # of the values kept inside the range, for "percentile"
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    # Operators kept in float, with those that read their outputs, as regular expressions of their outputs' names
    skip: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_samples(self.samples)
        _activation_ranges.check_percentile(self.percentile)
        quantizer.check_patterns(self.skip)


kept = _skipped_layers.kept_as_expressions


def promises(options: Options) -> Promise:
    """Int8 weights, multiplied with 16-bit activations."""
    return _skipped_layers.promise("int8", "int16", options.skip)


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: the other calibrators."""
    return _activation_ranges.rungs(options.get("calibrator", Options.calibrator), _activation_ranges.CALIBRATORS)


def apply(request: Request) -> Artifact:
    """The TFLite model with int8 weights and int16 activations; inputs and facts as static_integers has them."""
    return static_integers.quantized(request, request.options, 16)
