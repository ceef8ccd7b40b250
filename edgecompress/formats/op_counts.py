"""The multiply-accumulates (MACs) and bytes moved of each operator of an artifact in one inference.

A MAC is one product added to a sum: what He et al. (2015) and Sandler et al. (2018) count, half of torch's FLOPs. Only
convolutions, matrix products and recurrent cells have any. Bytes are what an operator reads and writes, weights too, in
the artifact's own precision: what lies between QuantizeLinear and DequantizeLinear counts as the integers that it is,
and a Relu, Clip or QuantizeLinear behind an operator is its last step, as every runtime has it, and moves nothing.
Caches are not in it: a tensor that is written and read at once counts both times.
"""

from __future__ import annotations

from typing import TypedDict

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import Graph, Op, Shape, Tensor

__all__ = ["CONTRADICTION", "Graph", "Op", "OpWork", "Shape", "Sums", "Tensor", "Work", "graph", "of", "total"]

# What reading a file that contradicts itself raises: an axis, a shape, an option that is not there
CONTRADICTION = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


class OpWork(TypedDict):
    """The cost of one operator; `dtype` is that of its factors."""

    name: str
    type: str
    macs: int | None
    bytes: int
    dtype: str


class Sums(TypedDict):
    """The cost of all operators: the MACs also by the dtype of the factors.

    `once_bytes` is each weight, input and output once, as if everything between them stayed in registers.
    """

    macs: int | None
    bytes: int | None
    macs_of: dict[str, int] | None
    once_bytes: int | None


class Work(Sums):
    """The sums of one artifact, or the reason why they are unknown."""

    kind: str
    batch: int
    why: str


def of(artifact: Artifact, batch: int = 1) -> list[OpWork]:
    """The cost of each operator in one run; `macs` is None for an unknown operator.

    Raises StageFailed, with the reason, for an artifact whose operators cannot be counted.
    """
    ops = graph(artifact, batch).ops
    return [{"name": o.name, "type": o.type, "macs": o.macs, "bytes": o.bytes, "dtype": o.dtype} for o in ops]


def total(artifact: Artifact, batch: int = 1) -> Work:
    """The sums of one run of `batch` items; all are None, with the reason in `why`, where they cannot be counted."""
    try:
        counted = graph(artifact, batch)
        if unknown := sorted({op.type for op in counted.ops if op.macs is None}):
            raise StageFailed(f"the MACs of {', '.join(unknown)} cannot be counted")
    except EdgeError as error:
        none = Sums(macs=None, bytes=None, macs_of=None, once_bytes=None)
        return {"kind": artifact.kind, "batch": batch, **none, "why": str(error)}
    return {"kind": artifact.kind, "batch": batch, **_sums(counted), "why": ""}


def _sums(graph: Graph) -> Sums:
    by_dtype: dict[str, int] = {}
    for op in graph.ops:
        if op.macs:
            by_dtype[op.dtype] = by_dtype.get(op.dtype, 0) + op.macs
    weights = {t.name: t.bytes for op in graph.ops for t in op.reads if t.constant}
    once = sum(weights.values()) + sum(t.bytes for t in graph.ends)
    moved = sum(op.bytes for op in graph.ops)
    return {"macs": sum(by_dtype.values()), "bytes": moved, "macs_of": by_dtype, "once_bytes": once}


def graph(artifact: Artifact, batch: int = 1, partly: bool = False) -> Graph:
    """The operators of one run of `batch` items; raises StageFailed where they cannot be counted.

    And where a shape depends on the data, unless `partly`: then the tensor is in `unsized`.
    """
    count = next((runtime.count for runtime in registry.of_format(artifact.kind) if runtime.count), None)
    if count is None:
        known = ", ".join(sorted({runtime.format for runtime in registry.runtimes() if runtime.count}))
        raise StageFailed(f"operators can be counted in {known} files, not in kind '{artifact.kind}'")
    try:
        counted = count(artifact, batch)
    except CONTRADICTION as error:
        what = f"{type(error).__name__}: {error}"
        raise StageFailed(f"{artifact.path}: its operators or their shapes contradict each other ({what})") from error
    if counted.unsized and not partly:
        raise StageFailed(f"the shape of '{counted.unsized[0]}' is known only at run time")
    return counted
