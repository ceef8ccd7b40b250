"""Int8 weights in Core ML, one scale per output channel; they are computed with in the precision of the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgecompress.mil import convert
from edgecompress.model import Artifact, Request
from edgecompress.techniques._coreml import compressed

REQUIRES = ("coremltools",)
EXTRA = "coreml"
READS: tuple[str, ...] = ("mlpackage",)
WRITES = "mlpackage"
PROVIDES = "int8-weights"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """What is quantized."""

    min_size: int = 512  # weights of fewer numbers stay as they are


def apply(request: Request) -> Artifact:
    """The package with int8 weights; inputs: "model"; facts: {"compressed": number of weights}."""
    return compressed(request, "coreml_int8", lambda model: _quantized(model, request.options))


def _quantized(model: Any, options: Options) -> Any:
    convert.coremltools()
    import coremltools.optimize as cto

    how = cto.coreml.OpLinearQuantizerConfig(mode="linear_symmetric", weight_threshold=options.min_size)
    return cto.coreml.linear_quantize_weights(model, cto.coreml.OptimizationConfig(how))
