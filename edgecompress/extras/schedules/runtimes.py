"""Which runtimes have kernels for the bits of a quantizer."""

from __future__ import annotations

from edgecompress.extras.schedules.grids import FLOAT

INT8 = "int8 in every runtime"
FOUR = (
    "4-bit weights of linear layers by int4: ONNX Runtime (MatMulNBits), OpenVINO, LiteRT, ExecuTorch (8da4w), Core ML"
)
KERNELS = (  # up to so many bits of the weights: what computes with them
    (2, f"{INT8}: none has kernels of 1 or 2 bits"),
    (4, f"{INT8}; {FOUR}"),
    (8, INT8),
    (FLOAT, "floating point in every runtime: integer kernels take at most 8 bits"),
)


def runtimes_for(bits_weights: int | None, bits_activations: int | None) -> str:
    """What computes with weights and activations of so many bits, None in floating point; as a text."""
    weights, activations = bits_weights or FLOAT, bits_activations or FLOAT
    if activations > 8 and weights <= 8:
        stored = f"; {FOUR}" if 2 < weights <= 4 else ""
        return f"int8 weights alone, with activations in floating point{stored}"
    if activations <= 8 < weights:
        return "floating point in every runtime: none has kernels of integer activations with such weights"
    return next(text for most, text in KERNELS if weights <= most)
