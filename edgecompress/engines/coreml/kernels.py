"""Which operators coremltools cannot convert; where the others run (ANE, GPU, CPU) Core ML decides on the device."""

from __future__ import annotations

from edgecompress.core.operations import Kernels, Operation

UNABLE: dict[str, str] = {}


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator; all precisions of Core ML take the same operators."""
    return Kernels(unable=UNABLE.get(operation.word, ""))
