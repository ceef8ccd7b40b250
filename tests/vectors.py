"""How near numbers are, and whether int8 is exact here: x86 without VNNI adds pairs of products in 16 bits."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from edgecompress.device import machine

EXACT = {"avx512_vnni", "avx_vnni", "amx_int8"}
SATURATE = ("onnx", "onnx_gpu", "openvino")  # whose kernels for AVX2 alone multiply unsigned by signed bytes
NEAR = re.compile(r"is \d+\.\d dB from torch's")  # it ran, and is finite
WHY = "this processor has no VNNI: sums of int8 products saturate (docs/formats.md)"


def features() -> set[str]:
    """What the processor's vectors can do."""
    return set(machine.facts(machine.here()).get("features") or ())


def adds_in_16_bits() -> bool:
    """Whether int8 kernels of this machine saturate where activations and weights are large."""
    facts = machine.facts(machine.here())
    return facts.get("machine") == "x86_64" and EXACT.isdisjoint(features())


def saturates(runtime: str, precision: str) -> bool:
    """Whether a runtime's results in a precision are less exact on this machine than elsewhere."""
    return precision == "int8" and runtime in SATURATE and adds_in_16_bits()


def least_db(exact: float) -> float:
    """The SQNR that int8 reaches at least: `exact` decibels, or what is plainly no garbage where sums saturate."""
    return 5.0 if adds_in_16_bits() else exact


def sqnr_db(wanted: Any, found: Any) -> float:
    """The power of what is wanted over that of what differs."""
    signal, other = (np.asarray(each, np.float64) for each in (wanted, found))
    noise = np.square(signal - other).sum()
    return float(10 * np.log10(np.square(signal).sum() / noise)) if noise else math.inf


BF16 = pytest.mark.skipif(
    not features() & {"avx512_bf16", "amx_bf16", "avx512f"}, reason="oneDNN has no LSTM in bf16 for this processor"
)
