"""The data types of MIL: in the program, for callers, and in the interpreter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.engines.coreml.mil.lazy import torch

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Dtype:
    """`numpy` is what a caller sees, `held` torch's type while computing, `number` MIL's, `blob` that of weight.bin."""

    name: str
    kind: str  # "float", "int", "bool" or "string"
    bits: int
    numpy: str
    held: str
    number: int
    blob: int = 0  # 0: never stored in weight.bin


ALL = (
    Dtype("fp16", "float", 16, "float16", "float32", 10, 1),
    Dtype("fp32", "float", 32, "float32", "float32", 11, 2),
    Dtype("bool", "bool", 8, "bool", "bool", 1),
    Dtype("string", "string", 0, "str", "", 2),
    Dtype("int8", "int", 8, "int8", "int8", 21, 4),
    Dtype("int16", "int", 16, "int16", "int16", 22, 6),
    Dtype("int32", "int", 32, "int32", "int32", 23, 14),
    Dtype("int4", "int", 4, "int8", "int8", 25, 8),
    Dtype("uint8", "int", 8, "uint8", "uint8", 31, 3),
    Dtype("uint16", "int", 16, "uint16", "int32", 32, 7),
    Dtype("uint32", "int", 32, "uint32", "int64", 33, 15),
    Dtype("uint4", "int", 4, "uint8", "uint8", 35, 11),
    Dtype("uint2", "int", 2, "uint8", "uint8", 36, 10),
    Dtype("uint1", "int", 1, "uint8", "uint8", 37, 9),
    Dtype("uint6", "int", 6, "uint8", "uint8", 38, 13),
    Dtype("uint3", "int", 3, "uint8", "uint8", 39, 12),
)
BY_NUMBER = {dtype.number: dtype for dtype in ALL}
BY_NAME = {dtype.name: dtype for dtype in ALL}


def kind_of(tensor: torch.Tensor) -> str:
    """The kind of a torch tensor."""
    if tensor.dtype == torch.bool:
        return "bool"
    return "float" if tensor.is_floating_point() else "int"


def settle(tensor: torch.Tensor, dtype: Dtype) -> torch.Tensor:
    """A result in the precision that the program states, still in the type that the interpreter computes in."""
    if dtype.name == "fp16":
        tensor = tensor.to(torch.float16)
    elif dtype.name == "uint16":
        tensor = tensor & 0xFFFF
    return tensor.to(getattr(torch, dtype.held))


def to_numpy(tensor: torch.Tensor, dtype: Dtype) -> np.ndarray:
    """A settled tensor as a numpy array, without loss."""
    array: np.ndarray = tensor.numpy()
    return array.astype(dtype.numpy)
