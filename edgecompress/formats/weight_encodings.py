"""The size of a weight in bytes: dense, as a bitmask, in CSR, compressed by zstd. Each form is packed, not computed.

A tensor has n elements of b bytes, k of which are not zero, in r rows (its first axis) of c columns (all others).
Shape and dtype are known beforehand in every form, as they are where it is stored as it is.

    dense       n b
    bitmask     ceil(n / 8) + k b           a bit for each element, the first the highest; the others behind it
    csr         (r + 1) p + k i + k b       where each row begins, the column of each, the values (Tinney and Walker,
                                            Proceedings of the IEEE 55(11), 1967; Saad, Iterative Methods, 3.4)
    zstd        the dense bytes, compressed (RFC 8878), level 19
    bitmask+zstd    the bitmask form, compressed
    codebook    p + d b + ceil(n / 8) + k j     how many values there are, those d of them but zero, the bitmask, and
                                            which of them each element is (Han, Mao and Dally, ICLR 2016)
    packed      as a file that `edgecompress pack` wrote has it: a codebook or byte planes through deflate (packed_file)

p, i and j are the bytes of the smallest unsigned integer that holds n, the last column, and d - 1. Numbers are
little-endian. Beside the forms stands the entropy bound n H / 8, H = -sum p log2 p bits over the shares p of its values
(Shannon 1948, theorem 9): no code of one element after the other is shorter, even where it needs no table of values.
A negative zero comes back as zero out of the bitmask and of CSR; all else, byte for byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, TypedDict

from edgecompress.formats import packed_file

if TYPE_CHECKING:
    import numpy as np

REQUIRES = ("zstandard>=0.22",)
EXTRA = "storage"
LEVEL = 19  # of zstd: those above need more memory to unpack
Shape = Sequence[int]

# --------------------------------------------------------------------------- forms


def dense(array: np.ndarray) -> bytes:
    """The elements one after the other, the last axis first."""
    import numpy as np

    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()


def from_dense(data: bytes, shape: Shape, dtype: str) -> np.ndarray:
    """What `dense` packed."""
    import numpy as np

    return np.frombuffer(data, _little(dtype)).reshape(shape)


def bitmask(array: np.ndarray) -> bytes:
    """A bit for each element, set where it is not zero, and behind them those elements."""
    import numpy as np

    flat = array.reshape(-1)
    return np.packbits(flat != 0).tobytes() + dense(flat[flat != 0])


def from_bitmask(data: bytes, shape: Shape, dtype: str) -> np.ndarray:
    """What `bitmask` packed."""
    import numpy as np

    size = math.prod(shape)
    bits = math.ceil(size / 8)
    array = np.zeros(size, _little(dtype))
    array[np.unpackbits(np.frombuffer(data, np.uint8, bits), count=size).astype(bool)] = np.frombuffer(
        data, _little(dtype), offset=bits
    )
    return array.reshape(shape)


def csr(array: np.ndarray) -> bytes:
    """Where each row begins, the column of each element that is not zero, and those elements."""
    import numpy as np

    rows, columns = _matrix(array.shape)
    matrix = array.reshape(rows, columns)
    pointers, indices = _integers(array.shape)
    begins = np.concatenate([[0], np.cumsum(np.count_nonzero(matrix, axis=1))])
    kept = matrix != 0
    return begins.astype(pointers).tobytes() + np.nonzero(kept)[1].astype(indices).tobytes() + dense(matrix[kept])


def from_csr(data: bytes, shape: Shape, dtype: str) -> np.ndarray:
    """What `csr` packed."""
    import numpy as np

    rows, columns = _matrix(shape)
    pointers, indices = _integers(shape)
    begins = np.frombuffer(data, pointers, rows + 1).astype(np.int64)
    column = np.frombuffer(data, indices, begins[-1], begins.size * pointers.itemsize)
    values = np.frombuffer(data, _little(dtype), offset=len(data) - begins[-1] * np.dtype(dtype).itemsize)
    matrix = np.zeros((rows, columns), _little(dtype))
    matrix[np.repeat(np.arange(rows), np.diff(begins)), column] = values
    return matrix.reshape(shape)


def codebook(array: np.ndarray) -> bytes:
    """How many values there are, those, a bit for each element as in `bitmask`, and which value each has."""
    import numpy as np

    mask, indices, values = packed_file.codebook(np.frombuffer(dense(array), f"<u{array.itemsize}"))
    count, place = (np.min_scalar_type(n).newbyteorder("<") for n in (array.size, max(len(values) - 1, 0)))
    parts = (np.array(len(values), count), values, mask, indices.astype(place))
    return b"".join(part.tobytes() for part in parts)


def from_codebook(data: bytes, shape: Shape, dtype: str) -> np.ndarray:
    """What `codebook` packed."""
    import numpy as np

    size, little = math.prod(shape), _little(dtype)
    count = np.min_scalar_type(size).newbyteorder("<")
    values = np.frombuffer(data, little, int(np.frombuffer(data, count, 1)[0]), count.itemsize)
    begin = count.itemsize + values.nbytes
    bits = math.ceil(size / 8)
    array = np.zeros(size, little)
    kept = np.unpackbits(np.frombuffer(data, np.uint8, bits, begin), count=size).astype(bool)
    place = np.min_scalar_type(max(len(values) - 1, 0)).newbyteorder("<")
    array[kept] = values[np.frombuffer(data, place, offset=begin + bits)]
    return array.reshape(shape)


def packed(array: np.ndarray) -> bytes:
    """The segments of a packed file."""
    return b"".join(packed_file.segments(dense(array), (packed_file.width(array.itemsize),)))


def from_packed(data: bytes, shape: Shape, dtype: str) -> np.ndarray:
    """What `packed` packed."""
    size, whole, at = math.prod(shape) * _little(dtype).itemsize, b"", 0
    while at < len(data):
        piece, at = packed_file.decoded(data, at, size - len(whole))
        whole += piece
    return from_dense(whole, shape, dtype)


def _little(dtype: str) -> np.dtype:
    import numpy as np

    return np.dtype(dtype).newbyteorder("<")


def _matrix(shape: Shape) -> tuple[int, int]:
    """Rows and columns."""
    rows = shape[0] if len(shape) > 1 else 1
    return rows, math.prod(shape) // max(rows, 1)


def _integers(shape: Shape) -> tuple[np.dtype, np.dtype]:
    """What holds the place where a row begins, and what holds a column."""
    import numpy as np

    _, columns = _matrix(shape)
    most = (math.prod(shape), max(columns - 1, 0))
    begin, column = (np.min_scalar_type(n).newbyteorder("<") for n in most)
    return begin, column


# --------------------------------------------------------------------------- compressed


def squeezed(data: bytes) -> bytes:
    """Through zstd: one frame, with its size and without a checksum."""
    import zstandard

    return zstandard.ZstdCompressor(level=LEVEL).compress(data)


def loosened(data: bytes) -> bytes:
    """What `squeezed` packed."""
    import zstandard

    return zstandard.ZstdDecompressor().decompress(data)


Pack = Callable[["np.ndarray"], bytes]
Unpack = Callable[[bytes, Shape, str], "np.ndarray"]

# The order decides between forms of the same size: the simplest first.
FORMS: dict[str, tuple[Pack, Unpack]] = {
    "dense": (dense, from_dense),
    "bitmask": (bitmask, from_bitmask),
    "csr": (csr, from_csr),
    "zstd": (lambda a: squeezed(dense(a)), lambda data, shape, dtype: from_dense(loosened(data), shape, dtype)),
    "bitmask+zstd": (
        lambda a: squeezed(bitmask(a)),
        lambda data, shape, dtype: from_bitmask(loosened(data), shape, dtype),
    ),
    "codebook": (codebook, from_codebook),
    "packed": (packed, from_packed),
}


def pack(array: np.ndarray, form: str) -> bytes:
    """An array of numbers of whole bytes in one of FORMS."""
    return FORMS[form][0](array)


def unpack(data: bytes, form: str, shape: Shape, dtype: str) -> np.ndarray:
    """The array that `pack` was given; `dtype` is numpy's name."""
    return FORMS[form][1](data, shape, dtype)


# --------------------------------------------------------------------------- tables


class TensorStorage(TypedDict):
    """The size of one tensor in each form."""

    name: str
    shape: list[int]
    dtype: str
    elements: int
    zeros: int
    bytes: dict[str, int]
    entropy_bytes: int
    best: str


class StorageTotals(TypedDict):
    """The sums over tensors."""

    elements: int
    zeros: int
    bytes: dict[str, int]
    entropy_bytes: int
    best_bytes: int


def row(name: str, array: np.ndarray) -> TensorStorage:
    """Of one tensor its size in each form, the smallest of them, and the entropy bound."""
    import numpy as np

    sizes = {form: len(pack(array, form)) for form in FORMS}
    shares = np.unique(array, return_counts=True)[1] / max(array.size, 1)
    bits = -float((shares * np.log2(shares)).sum())
    zeros = int(array.size - np.count_nonzero(array))
    return {
        "name": name,
        "shape": list(array.shape),
        "dtype": array.dtype.name,
        "elements": int(array.size),
        "zeros": zeros,
        "bytes": sizes,
        "entropy_bytes": math.ceil(array.size * bits / 8),
        "best": min(sizes, key=lambda form: sizes[form]),
    }


def total(rows: Iterable[TensorStorage]) -> StorageTotals:
    """The sums, and "best_bytes": those of each tensor's best form."""
    every = list(rows)
    return {
        "elements": sum(r["elements"] for r in every),
        "zeros": sum(r["zeros"] for r in every),
        "bytes": {form: sum(r["bytes"][form] for r in every) for form in FORMS},
        "entropy_bytes": sum(r["entropy_bytes"] for r in every),
        "best_bytes": sum(r["bytes"][r["best"]] for r in every),
    }
