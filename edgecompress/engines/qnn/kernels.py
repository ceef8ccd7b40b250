"""Which operators the HTP takes in which precision: the compiler's answers, and what it does not know is unknown."""

from __future__ import annotations

from edgecompress.core.operations import Kernels, Operation
from edgecompress.engines.qnn.htp import HALF
from edgecompress.engines.qnn.placed import TYPES, TYPES_LEFT, WORDS, WORDS_LEFT

BITS = {"int8": 8, "int8-a16": 16}  # of activations
BODIES = ("If", "Loop", "Scan")
NAMED = {"cumsum": "CumSum", "logsumexp": "ReduceLogSumExp", "prelu": "PRelu"}  # words of the types in HALF


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator: on the HTP in whole numbers or in half precision, or on the CPU beside it."""
    asked = precision if precision in BITS else "fp16"  # floats are of half precision there
    if operation.type in BODIES:
        return Kernels(unable=f"the HTP has no {operation.type}")
    by_type = operation.type in TYPES
    if not by_type and operation.word not in WORDS:
        return Kernels(known=False)
    left = operation.type in TYPES_LEFT[asked] if by_type else operation.word in WORDS_LEFT[asked]
    half = NAMED.get(operation.word, operation.type) in HALF[BITS[asked]] if asked in BITS else False
    return Kernels([operation.type] if left else (), [operation.type] if half else ())
