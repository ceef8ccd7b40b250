"""Which TFLite operators Vela gives to an Ethos-U55: its own list, which tests/test_kernels.py holds to this one."""

from __future__ import annotations

from edgecompress.core.operations import Kernels, Operation, words
from edgecompress.engines.litert import kernels as litert_kernels

# Vela has conditions of sizes and types beside; what it then leaves stands in the report of a deploy
NPU = words(
    "ABS ADD ARG_MAX AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D EXP EXPAND_DIMS FULLY_CONNECTED "
    "HARD_SWISH LEAKY_RELU LOGISTIC MAXIMUM MAX_POOL_2D MEAN MINIMUM MIRROR_PAD MUL PACK PAD PRELU QUANTIZE RELU RELU6 "
    "RELU_0_TO_1 RELU_N1_TO_1 RESHAPE RESIZE_BILINEAR RESIZE_NEAREST_NEIGHBOR RSQRT SHAPE SLICE SOFTMAX SPLIT SPLIT_V "
    "SQUARED_DIFFERENCE SQUEEZE STRIDED_SLICE SUB TANH TRANSPOSE TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM UNPACK"
)


def kernels(operation: Operation, precision: str) -> Kernels:
    """What becomes of an operator: what LiteRT makes of it, on the NPU or on the CPU beside it."""
    found = litert_kernels.kernels(operation, precision)
    if found.unable or not found.known or not operation.word:
        return found
    made = [name.rstrip("!~") for name in litert_kernels.made_of(operation)]
    return Kernels([name for name in made if name not in NPU or name in found.floats], found.floats)
