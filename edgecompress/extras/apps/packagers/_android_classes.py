"""Class files as javac writes them: which class, of which Java, with which constants. Read, never run."""

from __future__ import annotations

import struct
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from edgecompress.core.errors import InputError
from edgecompress.extras.apps import archive

MAGIC = 0xCAFEBABE
JAVA_8 = 52  # the major version that Android's dexer takes everywhere
UTF8, INTEGER, FLOAT, LONG, DOUBLE, CLASS, STRING = 1, 3, 4, 5, 6, 7, 8
SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
LARGEST = 1 << 20  # bytes of a class: ours have some kilobytes
CLASSES = 1000


@dataclass
class ClassFile:
    """`name` has dots; `texts`: each field that is a constant text; `uses`: every class that it names."""

    name: str
    major: int
    texts: dict[str, str] = field(default_factory=dict)
    uses: frozenset[str] = frozenset()


def jar(file: Path) -> dict[str, ClassFile]:
    """Each class of a .jar by its name. Raises InputError for entries that are no class files, or another's."""
    with tempfile.TemporaryDirectory(prefix="edgecompress-jar-") as work:
        archive.unpack(file, Path(work))
        files = sorted(path for path in Path(work).rglob("*") if path.is_file())
        if len(files) > CLASSES:
            raise InputError(f"{file.name}: has more than {CLASSES} entries")
        return dict(_named(entry, entry.relative_to(work).as_posix(), file.name) for entry in files)


def _named(file: Path, entry: str, inside: str) -> tuple[str, ClassFile]:
    """The class in an unpacked file, by its name. Raises InputError."""
    if not entry.endswith(".class") or file.stat().st_size > LARGEST:
        raise InputError(f"{inside}: an entry is not a class: {archive.shown(entry)}")
    read = parse(file.read_bytes())
    if f"{read.name.replace('.', '/')}.class" != entry:
        raise InputError(f"{inside}: {archive.shown(entry)} contains a class of another name")
    return read.name, read


def parse(data: bytes) -> ClassFile:
    """One class. Raises InputError for bytes that are none."""
    try:
        return _parse(_Bytes(data))
    except (struct.error, IndexError, KeyError, TypeError, ValueError) as error:
        raise InputError("not a class file, or a damaged one") from error


class _Bytes:
    """Big-endian numbers, one after another."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, count: int) -> bytes:
        self._at += count
        if self._at > len(self._data):
            raise ValueError("cut off")
        return self._data[self._at - count : self._at]

    def u2(self) -> int:
        return int(struct.unpack(">H", self.take(2))[0])

    def u4(self) -> int:
        return int(struct.unpack(">I", self.take(4))[0])


def _parse(data: _Bytes) -> ClassFile:
    if data.u4() != MAGIC:
        raise ValueError("no magic number")
    data.u2()
    major = data.u2()
    pool = _pool(data)
    data.u2()
    name = _class(pool, data.u2())
    data.take(2)
    data.take(2 * data.u2())
    texts = dict(constant for _ in range(data.u2()) if (constant := _field(data, pool)))
    uses = frozenset(_class(pool, at) for at, value in pool.items() if value[0] == CLASS)
    return ClassFile(name, major, texts, uses)


def _pool(data: _Bytes) -> dict[int, tuple[int, bytes]]:
    """The constants by their number: tag and bytes."""
    pool, at, count = {}, 1, data.u2()
    while at < count:
        tag = data.take(1)[0]
        pool[at] = (tag, data.take(data.u2() if tag == UTF8 else SIZES[tag]))
        at += 2 if tag in (LONG, DOUBLE) else 1
    return pool


def _text(pool: dict[int, tuple[int, bytes]], at: int) -> str:
    tag, data = pool[at]
    if tag != UTF8:
        raise ValueError("no text")
    halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
    return halves.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _class(pool: dict[int, tuple[int, bytes]], at: int) -> str:
    tag, data = pool[at]
    if tag != CLASS:
        raise ValueError("no class")
    return _text(pool, int.from_bytes(data, "big")).replace("/", ".")


def _field(data: _Bytes, pool: dict[int, tuple[int, bytes]]) -> tuple[str, str] | None:
    """A field and its text, where it is a constant one."""
    data.u2()
    name, _ = _text(pool, data.u2()), data.u2()
    constant = None
    for _ in range(data.u2()):
        kind, held = _text(pool, data.u2()), data.take(data.u4())
        if kind == "ConstantValue":
            tag, where = pool[int.from_bytes(held, "big")]
            constant = (name, _text(pool, int.from_bytes(where, "big"))) if tag == STRING else None
    return constant
