"""Static int8 for the HTP by ONNX Runtime's QNN recipe: all operators, weights per channel, real ranges."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Goal, Promise, Request
from edgecompress.engines.qnn import htp, quantization
from edgecompress.techniques import _activation_ranges, _int8, _skipped_layers
from edgecompress.techniques._calibration import check_samples

REQUIRES = ("onnx", "onnxruntime>=1.31", "sympy")
EXTRA = "qnn"
READS: tuple[str, ...] = ("onnx",)
WRITES = htp.KIND
PROVIDES = "int8"
NEEDS: tuple[str, ...] = ("samples",)


@dataclass(frozen=True)
class Options:
    """How the ranges of activations are found, and which nodes get more than 8 bits."""

    calibrator: _activation_ranges.Calibrator = "minmax"
    percentile: float = 99.99  # of the values kept inside the range, for "percentile"
    samples: int | None = 512  # calibration items at most, evenly spread over the split; None is all
    # Of a number between operators on average: an integer program gives 16 where a diagnosis says that it mends most
    bits: float | None = None
    wide: tuple[str, ...] = ()  # nodes whose outputs have 16 bits, as patterns of their names ("node_softmax*")
    skip: tuple[str, ...] = ()  # nodes computed in half precision, as patterns of their names

    def __post_init__(self) -> None:
        _activation_ranges.check_percentile(self.percentile)
        check_samples(self.samples)
        if self.bits is not None and not 8 <= self.bits <= 16:
            raise ValueError("bits must be 8 to 16")
        if self.bits is not None and self.wide:
            raise ValueError("bits chooses the nodes that are wide; give one of them")


def kept(options: Mapping[str, Json], layers: Sequence[_skipped_layers.SensitiveLayer]) -> dict[str, Json]:
    """The options with the outputs of those layers in 16 bits."""
    return _skipped_layers.kept_as_patterns(options, layers, "wide")


FINER = {16: kept}


def promises(options: Options) -> Promise:
    """Int8 weights, multiplied with int8 activations, or as many of those as `wide` and `bits` leave."""
    promise = _int8.promises(options)
    return dataclasses.replace(promise, operators=0.0) if options.wide or options.bits else promise


def goal(options: Options) -> Goal | None:
    """The bits on average, where they are asked for."""
    return None if options.bits is None else Goal("bits", options.bits)


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less: the other calibrators."""
    return _activation_ranges.rungs(options.get("calibrator", Options.calibrator), _activation_ranges.CALIBRATORS)


def apply(request: Request) -> Artifact:
    """The model in int8 for the HTP; inputs: "model", "samples" (the calibrate split); facts: quantization.quantized's.

    Raises StageFailed where an input is not finite.
    """
    return quantization.quantized(request, request.options, 8, request.options.wide)
