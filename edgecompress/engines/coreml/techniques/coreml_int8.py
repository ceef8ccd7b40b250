"""Int8 weights in Core ML, one scale per output channel; arithmetic stays in the precision of the program."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.coreml import compression, convert
from edgecompress.techniques import _skipped_layers

if TYPE_CHECKING:
    from coremltools.models import MLModel

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
    skip: tuple[str, ...] = ()  # operators or weights left as they are, as patterns of their names


def promises(options: Options) -> Promise:
    """Int8 weights; the arithmetic stays."""
    return _skipped_layers.promise("int8", "", options.skip)


def apply(request: Request) -> Artifact:
    """The package with int8 weights; inputs: "model"; facts: {"compressed": number of weights}."""
    return compression.compressed(request, "coreml_int8", lambda model, kept: _quantized(model, kept, request.options))


kept = compression.kept


def _quantized(model: MLModel, kept: Collection[str], options: Options) -> MLModel:
    convert.coremltools()
    import coremltools.optimize as cto

    how = cto.coreml.OpLinearQuantizerConfig(mode="linear_symmetric", weight_threshold=options.min_size)
    config = cto.coreml.OptimizationConfig(how, op_name_configs=dict.fromkeys(kept))
    return cto.coreml.linear_quantize_weights(model, config)
