"""weight.bin, and the values written in the program itself: untrusted bytes, so every length is checked.

The file is a header of 64 bytes, then for each tensor a header of 64 bytes (a mark, the data type, the number of bytes,
where they begin) and its bytes. Types below 8 bits are packed, the lowest bits first.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, blamed
from edgecompress.engines.coreml.mil.dtypes import Dtype
from edgecompress.engines.coreml.mil.lazy import numpy, torch

if TYPE_CHECKING:
    import numpy as np

HEADER = struct.Struct("<IIQQ")  # mark, data type, bytes, offset
MARK = 0xDEADBEEF


class Blob:
    """The tensors of a weight.bin, by the offset of their header."""

    def __init__(self, file: Path) -> None:
        self.file = file

    @cached_property
    def bytes(self) -> np.memmap:
        """The file, mapped."""
        try:
            return numpy.memmap(self.file, dtype="uint8", mode="r")
        except (OSError, ValueError) as error:
            raise blamed(error)(f"{self.file}: the weights cannot be read: {error}; convert the model again") from error

    def read(self, offset: int, dtype: Dtype, shape: Sequence[int]) -> np.ndarray:
        """The array whose header is at `offset`."""
        try:
            mark, stored, size, begin = HEADER.unpack(self.bytes[offset : offset + HEADER.size].tobytes())
        except struct.error as error:
            raise self._damaged(offset, "its header is outside the file") from error
        if mark != MARK:
            raise self._damaged(offset, "there is no header")
        if stored != dtype.blob:
            raise self._damaged(offset, f"it has type {stored}, but the program declares {dtype.name}")
        if size != size_bytes(dtype, shape):
            raise self._damaged(offset, f"it has {size} bytes, {dtype.name} of {list(shape)} has another size")
        if begin + size > len(self.bytes):
            raise self._damaged(offset, "its data is outside the file")
        return decode(self.bytes[begin : begin + size].tobytes(), dtype, shape)

    def _damaged(self, offset: int, why: str) -> InputError:
        return InputError(f"{self.file}: the tensor at {offset} is damaged: {why}; convert the model again")


def size_bytes(dtype: Dtype, shape: Sequence[int]) -> int:
    """Bytes of a tensor as stored."""
    return math.ceil(math.prod(shape) * dtype.bits / 8)


def decode(data: bytes, dtype: Dtype, shape: Sequence[int]) -> np.ndarray:
    """Stored bytes as a numpy array; those of the right number only."""
    if len(data) != size_bytes(dtype, shape):
        raise InputError(f"a value of {len(data)} bytes cannot be {dtype.name} of {list(shape)}; convert again")
    if dtype.bits >= 8:
        return numpy.frombuffer(data, dtype=numpy.dtype(dtype.numpy).newbyteorder("<")).reshape(shape)
    return _unpack(numpy.frombuffer(data, dtype="uint8"), dtype, math.prod(shape)).reshape(shape)


def _unpack(packed: np.ndarray, dtype: Dtype, count: int) -> np.ndarray:
    bits = numpy.unpackbits(packed, bitorder="little")[: count * dtype.bits].reshape(count, dtype.bits)
    values: np.ndarray = (bits << numpy.arange(dtype.bits, dtype="uint8")).sum(axis=1, dtype="uint8")
    if dtype.numpy.startswith("u"):
        return values
    sign = 1 << dtype.bits - 1  # the highest bit
    signed: np.ndarray = (values.astype("int8") ^ sign) - sign
    return signed


def held(array: np.ndarray, dtype: Dtype) -> torch.Tensor:
    """An array as the tensor that the interpreter computes with; its own copy."""
    exact = array.astype(dtype.held)  # each value of the stored type is one of the held type
    return torch.from_numpy(numpy.ascontiguousarray(exact).reshape(array.shape))
