"""A packed form of a model's file: codebooks and byte planes through deflate. A reader needs only inflate.

Numbers are little-endian. A stream is a uint32, its length, and so many bytes of raw deflate (RFC 1951).

    header      "ECP1", uint32: bytes of the file, 32 bytes: its SHA-256
    segments    uint8 form, uint8 width w, uint16 values v, uint32 bytes n, and streams: the next n bytes of the file,
                at most 4 MiB, in elements of w bytes

    form 0      w streams, the byte planes: the first bytes of all elements; their second ones; ...
    form 1      a bitmask: a bit for each element, the first the highest, set where it is not zero; the byte planes of
                those elements
    form 2      a bitmask; one byte for each of those elements, its index among the values; the v values, at most 256
"""

from __future__ import annotations

import hashlib
import math
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np

SUFFIX = ".packed"
MAGIC = b"ECP1"
HEADER, SEGMENT, LENGTH = struct.Struct("<4sI32s"), struct.Struct("<BBHI"), struct.Struct("<I")
MOST = 4 << 20  # bytes of a segment: a reader's memory
WIDTHS = (1, 2, 4)
PLANES, SPARSE, CODEBOOK = range(3)
LEAST = 64  # bytes of a tensor that is worth a segment
STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_FILTERED, zlib.Z_HUFFMAN_ONLY, zlib.Z_RLE)

Tensor = tuple[int, bytes]  # bytes of an element, and of all of them
Form = tuple[int, int, int, list[bytes]]  # form, width, values, what the streams hold


def pack(data: bytes, tensors: Iterable[Tensor] = ()) -> bytes:
    """A file packed; `tensors`: those in it, as they are stored there. What is none of them, or not found, is bytes.

    Raises InputError for a file of 4 GiB or more.
    """
    if len(data) >= 1 << 32:
        raise InputError(f"{len(data):,} bytes: a packed file holds less than 4 GiB")
    parts, at = [HEADER.pack(MAGIC, len(data), hashlib.sha256(data).digest())], 0
    for start, end, width in [*places(data, tensors), (len(data), len(data), 1)]:
        parts += [*segments(data[at:start], WIDTHS), *segments(data[start:end], (width,))]
        at = end
    return b"".join(parts)


def places(data: bytes, tensors: Iterable[Tensor]) -> list[tuple[int, int, int]]:
    """Where tensors begin and end, in order, and their width; each is looked for behind the one before it first."""
    found, at = [], 0
    for width, raw in tensors:
        start = data.find(raw, at) if len(raw) >= LEAST else -1
        start = data.find(raw) if start < 0 and len(raw) >= LEAST else start
        if start >= 0:
            at = start + len(raw)
            found.append((start, at, width))
    places: list[tuple[int, int, int]] = []
    for place in sorted(found):
        if not places or place[0] >= places[-1][1]:
            places.append(place)
    return places


def segments(data: bytes, widths: Sequence[int]) -> Iterator[bytes]:
    """The segments of bytes: of elements of one of these widths, or of bytes, whichever is smallest."""
    for at in range(0, len(data), MOST):
        piece = data[at : at + MOST]
        forms = _forms(piece, sorted({1, *widths}))
        form, width, values, streams = min(
            forms, key=lambda each: sum(LENGTH.size + len(zlib.compress(stream, 1)) for stream in each[3])
        )
        yield SEGMENT.pack(form, width, values, len(piece))
        for stream in map(_deflated, streams):
            yield LENGTH.pack(len(stream)) + stream


def _forms(piece: bytes, widths: Sequence[int]) -> Iterator[Form]:
    import numpy as np

    for width in widths:
        yield PLANES, width, 0, _planes(piece, width)
        if len(piece) % width == 0:
            elements = np.frombuffer(piece, f"<u{width}")
            mask, indices, values = codebook(elements)
            bits = mask.tobytes()
            yield SPARSE, width, 0, [bits, *_planes(elements[elements != 0].tobytes(), width)]
            if len(values) <= 256:
                yield CODEBOOK, width, len(values), [bits, indices.astype(np.uint8).tobytes(), values.tobytes()]


def _planes(data: bytes, width: int) -> list[bytes]:
    return [data[plane::width] for plane in range(width)]


def width(itemsize: int) -> int:
    """The elements as which a segment takes those of so many bytes."""
    return itemsize if itemsize in WIDTHS else math.gcd(itemsize, max(WIDTHS))


def codebook(elements: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A bit for each element, set where it is not zero; for each of those, which of the values it is; the values.

    `elements`: whole numbers, [n]. The values are in order, each once.
    """
    import numpy as np

    kept = elements != 0
    values, indices = np.unique(elements[kept], return_inverse=True)
    return np.packbits(kept), indices, values


def _deflated(data: bytes) -> bytes:
    """Raw deflate by the strategy of zlib that gives the fewest bytes."""
    makers = (zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zlib.DEF_MEM_LEVEL + 1, s) for s in STRATEGIES)
    return min((maker.compress(data) + maker.flush() for maker in makers), key=len)


# --------------------------------------------------------------------------- reading one


def size(packed: bytes) -> int:
    """Bytes of the file that was packed, as the header says. Raises InputError for what is no packed file."""
    if len(packed) < HEADER.size or not packed.startswith(MAGIC):
        raise InputError("is no packed file; give one that `edgecompress pack` wrote")
    return int(HEADER.unpack_from(packed)[1])


def unpack(packed: bytes) -> bytes:
    """The file that was packed, to the bit. Raises InputError for one that is damaged; never more than its size."""
    whole, digest = size(packed), HEADER.unpack_from(packed)[2]
    data, at = bytearray(), HEADER.size
    try:
        while at < len(packed):
            piece, at = decoded(packed, at, whole - len(data))
            data += piece
    except (ValueError, IndexError, struct.error, zlib.error) as error:
        why = "too few bytes for a segment" if isinstance(error, struct.error) else error
        raise InputError(f"is damaged at byte {at:,} of {len(packed):,}: {why}; pack the file again") from error
    if len(data) != whole or hashlib.sha256(data).digest() != digest:
        raise InputError("is damaged: its bytes are not those that were packed (sha256 differs); pack the file again")
    return bytes(data)


def decoded(packed: bytes, at: int, room: int) -> tuple[bytes, int]:
    """The bytes of the segment at `at`, at most `room` of them, and where the next one is.

    Raises ValueError, IndexError, struct.error and zlib.error for a damaged one.
    """
    import numpy as np

    form, width, values, count = SEGMENT.unpack_from(packed, at)
    at += SEGMENT.size
    if form > CODEBOOK or width not in WIDTHS or not 0 < count <= min(room, MOST) or (form and count % width):
        raise ValueError("a segment of no such form")
    if form == PLANES:
        return _interleaved(packed, at, count, width)
    elements = np.zeros(count // width, f"<u{width}")
    mask, at = _inflated(packed, at, (elements.size + 7) // 8)
    kept = np.unpackbits(np.frombuffer(mask, np.uint8), count=elements.size).astype(bool)
    number = int(np.count_nonzero(kept))
    if form == SPARSE:
        data, at = _interleaved(packed, at, number * width, width)
        elements[kept] = np.frombuffer(data, elements.dtype)
    else:
        indices, at = _inflated(packed, at, number)
        book, at = _inflated(packed, at, values * width)
        elements[kept] = np.frombuffer(book, elements.dtype)[np.frombuffer(indices, np.uint8)]
    return elements.tobytes(), at


def _interleaved(packed: bytes, at: int, count: int, width: int) -> tuple[bytes, int]:
    """So many bytes out of their planes, and where those end."""
    data = bytearray(count)
    for plane in range(width):
        data[plane::width], at = _inflated(packed, at, len(range(plane, count, width)))
    return bytes(data), at


def _inflated(packed: bytes, at: int, count: int) -> tuple[bytes, int]:
    """The bytes of a stream, which are so many, and where it ends."""
    (length,) = LENGTH.unpack_from(packed, at)
    end = at + LENGTH.size + length
    if end > len(packed):
        raise ValueError("a stream that is cut off")
    reader = zlib.decompressobj(-zlib.MAX_WBITS)
    data = reader.decompress(packed[at + LENGTH.size : end], count + 1)
    if len(data) != count or not reader.eof or reader.unused_data:
        raise ValueError("a stream of another length")
    return data, end
