"""Which operators stay in float in OpenVINO's int8: on the CPU it computes all of them."""

from __future__ import annotations

from edgecompress.core.operations import MULTIPLYING, Kernels, Operation

UNABLE = "gridsample_volume"
FLOATS = ("gru", "rnn", "lstm", "einsum")


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator in a variant of that precision."""
    if operation.word == UNABLE:
        return Kernels(unable="OpenVINO samples no volumes")
    stays = precision == "int8" and operation.word in FLOATS and operation.word in MULTIPLYING
    return Kernels(floats=[operation.type] if stays else ())
