"""Sparse weights in Core ML: the smallest become zero and are not stored. Loses accuracy unless trained afterwards."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.model import Artifact, Request
from edgecompress.engines.coreml import compression, convert

if TYPE_CHECKING:
    import numpy as np
    from coremltools.models import MLModel

REQUIRES = ("coremltools",)
EXTRA = "coreml"
READS: tuple[str, ...] = ("mlpackage",)
WRITES = "mlpackage"
PROVIDES = "sparse"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How much goes."""

    sparsity: float = 0.5  # share of each weight's numbers that become zero
    min_size: int = 512  # weights of fewer numbers stay as they are
    skip: tuple[str, ...] = ()  # operators or weights left as they are, as patterns of their names

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise ValueError("sparsity must be between 0 and 1")


def apply(request: Request) -> Artifact:
    """The package with sparse weights; inputs: "model"; facts: {"compressed": number of weights}."""
    return compression.compressed(request, "coreml_sparse", lambda model, kept: _pruned(model, kept, request.options))


kept = compression.kept


def _pruned(model: MLModel, kept: Collection[str], options: Options) -> MLModel:
    convert.coremltools()
    import coremltools.optimize as cto

    # a threshold for each weight: coremltools' own, from a share, is wrong for fp16 weights of over 65,504 numbers
    how = {
        name: cto.coreml.OpThresholdPrunerConfig(
            threshold=_threshold(weight.val, options.sparsity),
            minimum_sparsity_percentile=0.0,
            weight_threshold=options.min_size,
        )
        for name, weight in cto.coreml.get_weights_metadata(model, weight_threshold=options.min_size).items()
        if name not in kept
    }
    return cto.coreml.prune_weights(model, cto.coreml.OptimizationConfig(op_name_configs=how))


def _threshold(weight: np.ndarray, sparsity: float) -> float:
    """The largest magnitude of the share of numbers that goes."""
    import numpy

    count = max(int(weight.size * sparsity), 1)
    return float(numpy.partition(numpy.abs(weight).ravel(), count - 1)[count - 1])
