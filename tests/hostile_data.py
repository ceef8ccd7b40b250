"""Hostile data: .npz, folders of .npy, images."""

from __future__ import annotations

import io
import os
import random
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hostile_inputs import DATA, Hostile, irregular, pipes, written
from hostile_models import EITHER, ESCAPES, HUGE, LOOPS, zipped

NPZ = (*DATA, "--data", "x.npz")
NPY = (*DATA, "--data", "arrays")
PICTURES = (*DATA, "--data", "pictures")
PICKLE = b"cposix\nsystem\n(S'touch executed'\ntR."


def cases() -> Iterator[Hostile]:
    """Every set of data of a stranger."""
    yield from _npy()
    yield from _npz()
    yield from _pictures()


# --------------------------------------------------------------------------- arrays


def array(header: str | bytes, data: bytes = b"", version: int = 1) -> bytes:
    """An .npy of a header as it is given."""
    text = header if isinstance(header, bytes) else header.encode("latin1", "replace")
    length = struct.pack("<H" if version == 1 else "<I", len(text)) if version < 4 else b""
    return b"\x93NUMPY" + bytes([version, 0]) + length + text + data


def described(shape: Any, dtype: Any = "<f4", order: bool = False) -> str:
    """A header."""
    return f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}\n"


def saved(values: Any, pickled: bool = False) -> bytes:
    """An .npy as numpy writes it."""
    out = io.BytesIO()
    np.save(out, values, allow_pickle=pickled)
    return out.getvalue()


FOUR = b"\0" * (16 * 4 * 4)


@cache
def _arrays() -> dict[str, bytes]:
    """What an .npy can be, alone or in an .npz."""
    return {
        "shape-2-40-by-4": array(described((HUGE, 4)), FOUR),
        "shape-2-40-by-0": array(described((HUGE, 0))),
        "shape-negative": array(described((-16, -4)), FOUR),
        "shape-scalar": saved(np.float32(7)),
        "shape-zero-items": saved(np.zeros((0, 4), "float32")),
        "shape-of-65-axes": array(described((16, *[1] * 64)), FOUR),
        "shape-of-words": array(described(("16", "4")), FOUR),
        "shape-of-bools": array(described((True, True)), FOUR),
        "too-short": array(described((16, 4)), FOUR[:100]),
        "objects": saved(np.array([{"a": 1}] * 16, dtype=object), pickled=True),
        "pickle-called-npy": PICKLE,
        "records": saved(np.zeros(16, [("a", "f4"), ("b", "i4")])),
        "records-with-objects": array(described((1,), [("a", "|O")]), PICKLE),
        "dtype-text": saved(np.array(["four"] * 16)),
        "dtype-complex": saved(np.zeros((16, 4), "complex64")),
        "dtype-of-2-31-bytes": array(described((16,), f"|V{2**31 - 1}"), FOUR),
        "dtype-unknown": array(described((16, 4), "<q9"), FOUR),
        "dtype-nested-deep": array(
            "{'descr': " + "[('a', " * 200 + "'<f4'" + ")]" * 200 + ", 'fortran_order': False, 'shape': (1,)}\n", FOUR
        ),
        "order-of-fortran": saved(np.asfortranarray(np.zeros((16, 4), "float32"))),
        "big-endian": saved(np.zeros((16, 4), ">f4")),
        "header-code": array("__import__('os').system('touch executed')\n"),
        "header-nested": array("(" * 5000 + ")" * 5000),
        "header-of-100-mb": array(b" " * (100 << 20), version=2),
        "header-number-of-10000-digits": array(described("@").replace("'@'", "(" + "9" * 10_000 + ",)")),
        "header-no-utf-8": array(b"{'descr': '\xff', 'fortran_order': False, 'shape': (1,)}\n", version=3),
        "header-keys-missing": array("{'descr': '<f4'}\n", FOUR),
        "version-9": b"\x93NUMPY\x09\x00" + FOUR,
        "version-3": array(described((16, 4)).encode(), FOUR, version=3),
        "empty": b"",
        "noise": random.Random(3).randbytes(4096),
        "nan": saved(np.full((16, 4), np.nan, "float32")),
        "infinite": saved(np.full((16, 4), np.inf, "float32")),
        "uint64-of-2-64": saved(np.full((16, 4), 2**64 - 1, "uint64")),
        "float16": saved(np.zeros((16, 4), "float16")),
        "longdouble": saved(np.zeros((16, 4), "longdouble")),
    }


GOOD = ("shape-of-bools", "order-of-fortran", "big-endian", "version-3", "uint64-of-2-64", "float16", "longdouble")


def _npy() -> Iterator[Hostile]:
    for name, data in _arrays().items():
        yield Hostile(f"npy/{name}", NPY, written("arrays/x.npy", data), EITHER if name in GOOD else (2,))
    for name, make in irregular("arrays/x.npy"):
        yield Hostile(f"npy/{name}", NPY, make)
    for name, make in pipes("arrays/labels.npy"):
        yield Hostile(f"npy/labels-{name}", NPY, lambda folder, make=make: (_sound(folder / "arrays"), make(folder))[0])
    for name, make in pipes("arrays"):
        yield Hostile(f"npy/arrays-{name}", NPY, make)
    for name, labels in _labels().items():
        codes = EITHER if name == "2-62" else (2,)  # whether there is such a class is known later
        yield Hostile(f"npy/labels-{name}", NPY, lambda folder, data=labels: _with_labels(folder, data), codes)
    for name, called in _called().items():
        codes = EITHER if name in ("dots", "with-spaces", "markup", "unicode") else (2,)
        yield Hostile(f"npy/called-{name}", NPY, lambda folder, called=called: _sound(folder / "arrays", called), codes)
    yield Hostile("npy/arrays-5000", NPY, _many_files, EITHER, slow=True)
    yield Hostile("npy/empty-folder", NPY, lambda folder: (folder / "arrays").mkdir())
    yield Hostile("npy/split-and-not", NPY, _split_and_not)
    yield Hostile("npy/link-out", NPY, _linked_arrays, EITHER)
    yield Hostile("npy/splits-of-other-shapes", NPY, _other_shapes)


def _labels() -> dict[str, bytes]:
    return {
        "negative": saved(np.full(16, -1)),
        "2-62": saved(np.full(16, LOOPS)),
        "2-64": saved(np.full(16, 2**64 - 1, "uint64")),
        "nan": saved(np.full(16, np.nan)),
        "objects": saved(np.array([None] * 16, object), pickled=True),
        "text": saved(np.array(["cat"] * 16)),
        "too-few": saved(np.zeros(3, "int64")),
        "scalar": saved(np.int64(1)),
        "2-40": array(described((HUGE,), "<i8"), FOUR),
    }


def _called() -> dict[str, bytes]:
    """Names of files, as bytes."""
    return {
        "with-escapes": ESCAPES.encode(),
        "with-newlines": b"a\nedgecompress: error: b",
        "no-utf-8": b"\xff\xfe",
        "of-250-characters": b"n" * 250,
        "nothing": b"",
        "dots": b"..",
        "with-spaces": b"  ",
        "markup": b"[red]x[bold]",
        "unicode": "ｘ".encode(),
    }


def _sound(folder: Path, called: bytes = b"x") -> None:
    folder.mkdir(exist_ok=True)
    with open(os.fsencode(folder) + b"/" + called + b".npy", "wb") as file:
        file.write(saved(np.zeros((16, 4), "float32")))


def _with_labels(folder: Path, data: bytes) -> None:
    _sound(folder / "arrays")
    (folder / "arrays" / "labels.npy").write_bytes(data)


def _many_files(folder: Path) -> None:
    (folder / "arrays").mkdir()
    for i in range(5000):
        (folder / "arrays" / f"x{i}.npy").write_bytes(saved(np.zeros((8, 1), "float32")))


def _split_and_not(folder: Path) -> None:
    _sound(folder / "arrays")
    _sound(folder / "arrays" / "test")


def _linked_arrays(folder: Path) -> None:
    _sound(folder / "elsewhere")
    (folder / "arrays").mkdir()
    (folder / "arrays" / "x.npy").symlink_to("../elsewhere/x.npy")


def _other_shapes(folder: Path) -> None:
    for split, size in (("calibrate", 4), ("select", 4), ("test", 5)):
        written(f"arrays/{split}/x.npy", saved(np.zeros((8, size), "float32")))(folder)


# --------------------------------------------------------------------------- npz


def _npz() -> Iterator[Hostile]:
    for name, data in list(_arrays().items())[::3]:
        codes = EITHER if name in GOOD else (2,)
        yield Hostile(f"npz/{name}", NPZ, written("x.npz", zipped({"x.npy": data})), codes)
    for name, (data, codes) in _archives().items():
        yield Hostile(f"npz/{name}", NPZ, written("x.npz", data), codes)
    for name, make in pipes("x.npz"):
        yield Hostile(f"npz/{name}", NPZ, make)
    yield Hostile("npz/arrays-5000", NPZ, _many_arrays, EITHER)
    yield Hostile("npz/bomb-of-20-gib", NPZ, lambda folder: _bomb(folder / "x.npz", 20))
    yield Hostile("npz/item-of-3-gib", NPZ, lambda folder: _bomb(folder / "x.npz", 12, items=4))


@cache
def _archives() -> dict[str, tuple[bytes, tuple[int, ...]]]:
    sound = saved(np.zeros((16, 4), "float32"))
    plain = zipped({"x.npy": sound}, zipfile.ZIP_STORED)
    return {
        "not-a-zip": (b"PK\3\4" + b"\0" * 64, (2,)),
        "zip-in-a-zip": (zipped({"x.npy": plain}), (2,)),
        "no-arrays": (zipped({"readme.txt": b"x"}), (2,)),
        "bzip2": (zipped({"x.npy": sound}, zipfile.ZIP_BZIP2), EITHER),
        "method-unknown": (_patched(plain, b"PK\1\2", 10, 77), (2,)),
        "encrypted": (_patched(plain, b"PK\1\2", 8, 1), (2,)),
        "crc-wrong": (_patched(plain, b"PK\1\2", 16, 1), (2,)),
        "size-that-lies": (_patched(plain, b"PK\1\2", 24, 2**31), EITHER),
        "offset-that-lies": (_patched(plain, b"PK\1\2", 42, 2**31), (2,)),
        "entries-that-overlap": (_overlapping(sound), (2,)),
        "array-twice": (_double(sound), (2,)),
        "climbs": (zipped({"../../climbed.npy": sound}), EITHER),
        "called-with-escapes": (zipped({f"{ESCAPES}.npy": sound}), (2,)),
        "called-of-60000-characters": (zipped({"n" * 60_000 + ".npy": sound}), (2,)),
        "called-with-a-slash": (zipped({"a/b.npy": sound}), EITHER),
        "called-with-nul": (zipped({"aXb.npy": sound}).replace(b"aXb", b"a\0b"), (2,)),
        "cut": (plain[: len(plain) // 2], (2,)),
        "behind-a-megabyte-of-noise": (random.Random(5).randbytes(1 << 20) + plain, EITHER),
        "lengths-differ": (zipped({"x.npy": sound, "y.npy": saved(np.zeros((3, 4), "float32"))}), (2,)),
        **{
            f"flip-{at}": (plain[:at] + bytes([plain[at] ^ 16]) + plain[at + 1 :], EITHER)
            for at in random.Random("npz").sample(range(len(plain)), 6)
        },
    }


def _patched(data: bytes, record: bytes, offset: int, value: int) -> bytes:
    """A number of a .zip's table of contents, changed."""
    at = data.rindex(record) + offset
    wide = "<I" if offset in (16, 24, 42) else "<H"
    out = bytearray(data)
    struct.pack_into(wide, out, at, value)
    return bytes(out)


def _double(data: bytes) -> bytes:
    """Two entries of one name."""
    return zipped({"x.npy": data, "y.npy": data}).replace(b"y.npy", b"x.npy")


def _overlapping(data: bytes) -> bytes:
    """Two entries of the table of contents that point to one place."""
    plain = bytearray(zipped({"x.npy": data, "y.npy": data}, zipfile.ZIP_STORED))
    second = bytes(plain).rindex(b"PK\1\2")
    struct.pack_into("<I", plain, second + 42, 0)
    return bytes(plain)


def _many_arrays(folder: Path) -> None:
    one = saved(np.zeros((8, 1), "float32"))
    (folder / "x.npz").write_bytes(zipped({f"x{i}.npy": one for i in range(5000)}, zipfile.ZIP_STORED))


def _bomb(file: Path, gib: int, items: int = 1 << 20) -> None:
    """Gibibytes of zeros in megabytes: one block, packed once, again and again."""
    size = gib << 30
    head = array(described((items, size // items // 4)).ljust(118) + "\n")
    block = 64 << 20
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream = packer.compress(head) + packer.flush(zlib.Z_FULL_FLUSH)
    again = zlib.compressobj(9, zlib.DEFLATED, -15)
    zeros = again.compress(bytes(block)) + again.flush(zlib.Z_FULL_FLUSH)
    stream += zeros * (size // block) + zlib.compressobj(9, zlib.DEFLATED, -15).flush()
    _raw_zip(file, "x.npy", stream, len(head) + size)


def _raw_zip(file: Path, name: str, stream: bytes, size: int) -> None:
    """A .zip of one entry of zip64, packed already."""
    more = struct.pack("<HHQQ", 1, 16, size, len(stream))
    head = struct.pack("<HHHHHIIIHH", 45, 0, 8, 0, 33, 0, 2**32 - 1, 2**32 - 1, len(name), len(more))
    local = b"PK\3\4" + head + name.encode() + more
    entry = b"PK\1\2" + struct.pack("<H", 45) + head + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name.encode() + more
    end = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(local) + len(stream), 0)
    file.write_bytes(local + stream + entry + b"PK\5\6" + end)


# --------------------------------------------------------------------------- images


def _pictures() -> Iterator[Hostile]:
    for name, (suffix, data, codes) in _images().items():
        yield Hostile(f"image/{name}", PICTURES, lambda folder, s=suffix, d=data: _classes(folder, s, d), codes)
    for suffix in (".png", ".jpg", ".tif"):
        for kind, data in _programs().items():
            make = lambda folder, s=suffix, d=data: _classes(folder, s, d)  # noqa: E731 - one per case
            yield Hostile(f"image/{kind}-as{suffix}", PICTURES, make)
    for name, make in irregular("pictures/cat/4.png"):
        yield Hostile(f"image/{name}", PICTURES, lambda folder, make=make: (_classes(folder), make(folder))[0])
    for name, called in _called().items():
        codes = EITHER if name not in ("no-utf-8",) else (0, 2)
        yield Hostile(f"image/class-called-{name}", PICTURES, lambda f, called=called: _class_called(f, called), codes)
    yield Hostile("image/pixels-of-2-gib", PICTURES, _large_pictures, EITHER, slow=True)


def _classes(folder: Path, suffix: str = ".png", data: bytes | None = None) -> None:
    """Pictures of two classes; the last is another."""
    for i, name in enumerate(("cat", "dog") * 3):
        written(f"pictures/{name}/{i}.png", picture())(folder)
    if data is not None:
        written(f"pictures/cat/4{suffix}", data)(folder)
        if suffix != ".png":
            (folder / "pictures/cat/4.png").unlink()


def _class_called(folder: Path, called: bytes) -> None:
    _classes(folder)
    if called.strip(b"."):
        os.rename(os.fsencode(folder / "pictures/dog"), os.fsencode(folder / "pictures") + b"/" + called)


def _large_pictures(folder: Path) -> None:
    """9 pictures of 80 million pixels, each in 80 kB."""
    data = png(9000, 8900)
    for i in range(9):
        written(f"pictures/{('cat', 'dog')[i % 2]}/{i}.png", data)(folder)


@cache
def picture(kind: str = "PNG", size: tuple[int, int] = (8, 8), **more: Any) -> bytes:
    """A sound picture."""
    from PIL import Image

    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (*size, 3)).astype(np.uint8)).save(out, kind, **more)
    return out.getvalue()


@cache
def png(width: int, height: int, *chunks: tuple[bytes, bytes], rows: int | None = None) -> bytes:
    """A grey PNG of zeros, with more chunks."""
    packed = zlib.compress(bytes((width + 1) * (height if rows is None else rows)), 9)
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", packed), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


EPS = (
    b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
    b"(executed) (w) file closefile\n%pipe%touch executed\nshowpage\n%%EOF\n"
)
WMF = b"\xd7\xcd\xc6\x9a\0\0" + struct.pack("<hhhhHIH", 0, 0, 8, 8, 96, 0, 0) + b"\1\0\t\0\0\3" + b"\0" * 64
EMF = struct.pack("<II", 1, 108) + b"\0" * 32 + b" EMF" + b"\0" * 64
FLI = struct.pack("<IHHHHHH", 128, 0xAF11, 1, 8, 8, 8, 0) + b"\0" * 112
SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="8" height="8"><script>open()</script></svg>'
PDF = b"%PDF-1.7\n1 0 obj\n<</Type/Catalog/OpenAction<</S/Launch/F(sh)>>>>\nendobj\ntrailer<</Root 1 0 R>>\n%%EOF"


def _programs() -> dict[str, bytes]:
    """What is drawn by a program, or has a decoder that no photograph needs."""
    return {"eps": EPS, "wmf": WMF, "fli": FLI} | {"pdf": PDF, "svg": SVG}


def _images() -> dict[str, tuple[str, bytes, tuple[int, ...]]]:
    """Suffix, bytes, and how it may end."""
    jpeg, gif, tiff, webp = (picture(kind) for kind in ("JPEG", "GIF", "TIFF", "WEBP"))
    bomb = zlib.compress(bytes(64 << 20), 9)
    return {
        "emf": (".png", EMF, (2,)),
        "eps-with-a-preview": (
            ".png",
            b"\xc5\xd0\xd3\xc6" + struct.pack("<IIIIIIH", 32, len(EPS), 0, 0, 0, 0, 0) + EPS,
            (2,),
        ),
        "ico": (".png", picture("ICO"), (2,)),
        "hdf5": (".png", b"\x89HDF\r\n\x1a\n" + b"\0" * 64, (2,)),
        "jpeg-called-png": (".png", jpeg, (0,)),
        "gif-called-jpg": (".jpg", gif, (0,)),
        "png-60000-by-60000": (".png", png(60_000, 60_000, rows=1), (2,)),
        "png-13000-by-13000": (".png", png(13_000, 13_000), (2,)),
        "png-0-by-0": (".png", png(0, 0), (2,)),
        "png-too-short": (".png", png(8, 8, rows=2), EITHER),
        "png-text-bomb": (".png", png(8, 8, *[(b"zTXt", b"k\0\0" + bomb)] * 4), EITHER),
        "png-profile-bomb": (".png", png(8, 8, (b"iCCP", b"k\0\0" + bomb)), EITHER),
        "png-chunks-100000": (".png", png(8, 8, *[(b"abCd", b"")] * 100_000), EITHER),
        "png-chunk-of-4-gib": (".png", png(8, 8)[:33] + struct.pack(">I", 2**32 - 1) + b"IDAT", (2,)),
        "png-animated": (".png", png(8, 8, (b"acTL", struct.pack(">II", 2**31 - 1, 0))), EITHER),
        "jpeg-65500-by-65500": (".jpg", _resized_jpeg(jpeg, 65_500), (2,)),
        "jpeg-cut": (".jpg", jpeg[: len(jpeg) // 2], (2,)),
        "jpeg-with-exif": (
            ".jpg",
            jpeg[:2] + b"\xff\xe1\xff\xfd" + b"Exif\0\0II*\0" + b"\xff" * 65_519 + jpeg[2:],
            EITHER,
        ),
        "gif-65535-by-65535": (".gif", b"GIF89a" + b"\xff" * 4 + gif[10:], (2,)),
        "gif-frames-100000": (".gif", gif[:-1] + b"!\xf9\4\0\0\0\0\0" * 100_000 + b";", EITHER),
        "tiff-tags-65535": (".tif", b"II*\0\x08\0\0\0\xff\xff" + b"\xff" * 1000, (2,)),
        "tiff-strip-of-4-gib": (".tif", tiff.replace(struct.pack("<I", 192), b"\xff" * 4), EITHER),
        "bmp-2-31-by-2-31": (
            ".bmp",
            b"BM" + b"\0" * 8 + struct.pack("<IIiiHHI", 54, 40, 2**31 - 1, 2**31 - 1, 1, 24, 0) + b"\0" * 24,
            (2,),
        ),
        "ppm-10-to-the-9": (".ppm", b"P6\n1000000000 1000000000\n255\n", (2,)),
        "ppm-endless-comment": (".ppm", b"P6\n#" + b"c" * (16 << 20), (2,)),
        "webp-cut": (".webp", webp[: len(webp) // 2], (2,)),
        "noise": (".png", random.Random(9).randbytes(4096), (2,)),
        "empty": (".png", b"", (2,)),
        "a-pickle": (".png", PICKLE, (2,)),
        **{
            f"png-flip-{at}": (".png", picture()[:at] + bytes([picture()[at] ^ 4]) + picture()[at + 1 :], EITHER)
            for at in random.Random("png").sample(range(len(picture())), 4)
        },
    }


def _resized_jpeg(data: bytes, side: int) -> bytes:
    """A JPEG that claims another size."""
    at = data.index(b"\xff\xc0") + 5
    return data[:at] + struct.pack(">HH", side, side) + data[at + 4 :]
