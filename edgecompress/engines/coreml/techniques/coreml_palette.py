"""Palettes in Core ML: each weight is an index into a small table of its best values (k-means, the exact optimum)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.coreml import compression, convert
from edgecompress.techniques import _skipped_layers

if TYPE_CHECKING:
    import numpy as np
    from coremltools.models import MLModel

REQUIRES = ("coremltools",)
EXTRA = "coreml"
READS: tuple[str, ...] = ("mlpackage",)
WRITES = "mlpackage"
PROVIDES = "palette"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """How large the tables are, and how many."""

    bits: Literal[4, 6, 8] = 6  # of an index
    group: int = 0  # output channels that share a table; 0: all of a weight. Needs an export for iOS18
    min_size: int = 2048  # weights of fewer numbers stay as they are
    skip: tuple[str, ...] = ()  # operators or weights left as they are, as patterns of their names

    def __post_init__(self) -> None:
        if self.group < 0:
            raise ValueError("group must be at least 0")


def promises(options: Options) -> Promise:
    """An index of so many bits for each weight; the arithmetic stays."""
    return _skipped_layers.promise(f"palette{options.bits}", "", options.skip)


def apply(request: Request) -> Artifact:
    """The package with palettes; inputs: "model"; facts: {"compressed": number of weights}."""
    return compression.compressed(
        request, "coreml_palette", lambda model, kept: _palettized(model, kept, request.options)
    )


kept = compression.kept


def _palettized(model: MLModel, kept: Collection[str], options: Options) -> MLModel:
    convert.coremltools()
    import coremltools.optimize as cto

    how = cto.coreml.OpPalettizerConfig(
        mode="custom",
        lut_function=lambda weight: _table(weight, options.bits),
        granularity="per_grouped_channel" if options.group else "per_tensor",
        group_size=options.group,
        weight_threshold=options.min_size,
    )
    config = cto.coreml.OptimizationConfig(how, op_name_configs=dict.fromkeys(kept))
    return cto.coreml.palettize_weights(model, config)


def _table(weight: np.ndarray, bits: int) -> tuple[np.ndarray, np.ndarray]:
    """The table and the index of each number: of all tables of that size the one nearest to the weight.

    coremltools' own mode takes scikit-learn's k-means for most weights, which finds a good one only.
    """
    import numpy
    from coremltools._deps import _kmeans1d

    rounded = weight.astype("float16")  # few different numbers, however large the weight
    values, where, counts = numpy.unique(rounded, return_inverse=True, return_counts=True)
    size = min(len(values), 2**bits)
    clusters = _kmeans1d.cluster(values, size, weights=counts)
    table = numpy.zeros(2**bits, weight.dtype)
    table[:size] = clusters.centroids
    return table, numpy.array(clusters.clusters, "uint8")[where.ravel()]
