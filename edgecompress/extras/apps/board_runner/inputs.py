"""Reads a user's file or request body as arrays: the type by its first bytes, bounded in size, never unpickled."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError, MissingDependency

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.model_card import Item, Spec

    Array = np.ndarray

LARGEST = 16 << 20  # bytes that are read
PIXELS = 24_000_000  # of a picture, when it is unpacked
NPY, NPZ = b"\x93NUMPY", b"PK\3\4"
PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff")
KNOWN = "a PNG, a JPEG, a .npy or a .npz"


def arrays(data: bytes, names: Sequence[str], image: str, plain: Item | Spec | None) -> dict[str, Array]:
    """One item by the names of the inputs. `image`: the input that a picture is for; `plain`: the item of the card that
    tells the shape and dtype of bare bytes.

    Raises InputError, one line, for what is none of these, or larger than it may be.
    """
    if data.startswith(NPZ):
        return _many(data, names)
    if len(names) != 1 and not image:
        raise InputError(f"the model takes {', '.join(names)}: give a .npz with arrays of these names")
    name = image or names[0]
    if data.startswith(NPY):
        return {name: npy(data)}
    if data.startswith(PICTURES):
        return {name: picture(data)}
    if plain is None:
        raise InputError(f"{len(data)} bytes: not {KNOWN}")
    return {name: bare(data, plain["shape"], plain["dtype"])}


def npy(data: bytes) -> Array:
    """The array of a .npy file, whose header may promise no more than there is."""
    import numpy as np

    stream = io.BytesIO(data)
    try:
        shape, fortran, dtype = _header(stream)
    except (ValueError, KeyError, SyntaxError, RecursionError, MemoryError) as error:
        raise InputError("not a .npy file that NumPy can read: save it with numpy.save") from error
    if dtype.kind not in "biuf":
        raise InputError(f"a .npy of {str(dtype)[:40]}: give numbers")
    rest = data[stream.tell() :]
    if any(size < 0 for size in shape) or len(rest) != math.prod(shape) * dtype.itemsize:
        raise InputError(f"a .npy of {len(rest)} bytes that says it holds {str(list(shape))[:80]} {dtype}: cut off?")
    array = np.frombuffer(rest, dtype).reshape(shape, order="F" if fortran else "C")
    return np.ascontiguousarray(array.astype(dtype.newbyteorder("=")))


def _header(stream: io.BytesIO) -> tuple[tuple[int, ...], bool, np.dtype]:
    from numpy.lib import format as npy_format

    untyped: Any = npy_format
    known = {(1, 0): untyped.read_array_header_1_0, (2, 0): untyped.read_array_header_2_0}
    shape, fortran, dtype = known[untyped.read_magic(stream)](stream)
    return shape, fortran, dtype


def _many(data: bytes, names: Sequence[str]) -> dict[str, Array]:
    """The arrays of a .npz, those that the model takes."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            there = {entry.filename: entry for entry in archive.infolist()}
            entries = [there[f"{name}.npy"] for name in names]
            if sum(entry.file_size for entry in entries) > LARGEST:
                raise InputError(f"the .npz unpacks to more than {LARGEST >> 20} MiB")
            return {name: npy(archive.open(entry).read(LARGEST)) for name, entry in zip(names, entries, strict=True)}
    except KeyError as error:
        raise InputError(f"the .npz has no array {error}; the model takes {', '.join(names)}") from error
    except (OSError, EOFError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise InputError("not a .npz file that NumPy can read: save it with numpy.savez") from error


def picture(data: bytes) -> Array:
    """A PNG or JPEG as uint8 [H, W, 3]. Raises MissingDependency without Pillow."""
    import numpy as np

    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependency("images need Pillow, which is not installed: install it, or give a .npy") from error
    try:
        with Image.open(io.BytesIO(data), formats=("PNG", "JPEG")) as image:
            if image.width * image.height > PIXELS:
                raise InputError(f"a picture of {image.width} x {image.height}: at most {PIXELS // 10**6} megapixels")
            return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise InputError("not a readable image: damaged or truncated") from error


def bare(data: bytes, shape: Sequence[int], dtype: str) -> Array:
    """Bytes that are the numbers themselves."""
    import numpy as np

    kind = np.dtype(dtype).newbyteorder("<")
    if len(data) != math.prod(shape) * kind.itemsize:
        raise InputError(
            f"{len(data)} bytes: neither {KNOWN}, nor the {math.prod(shape) * kind.itemsize} of {dtype} {list(shape)}"
        )
    return np.frombuffer(data, kind).astype(dtype).reshape(shape)
