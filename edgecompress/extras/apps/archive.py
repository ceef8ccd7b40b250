"""Archives: written reproducibly, and unpacked safely if they are untrusted."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from edgecompress.core.errors import InputError, brief

EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest moment that a zip can hold
LEVEL = 6  # of zlib: 9 takes twice the time and leaves 0.4 % less of a native library
BLOCK = 1 << 20
ENTRIES = 10_000
BYTES = 4 << 30
RATIO, SMALL = 200, 64 << 20  # unpacked to packed bytes: more is a bomb, once it is not small
NAME_BYTES = 1024
HEADER = 4096  # bytes that come before a file of a tar: longer ones are slow to read, and none of ours
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DRIVE = re.compile(r"[A-Za-z]:")
DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    NotImplementedError,
    zlib.error,
    zipfile.BadZipFile,
    tarfile.TarError,
)

# --------------------------------------------------------------------------- writing


def write(tree: Path, out: Path, suffix: str, stored: Collection[str] = ()) -> None:
    """Packs what is in `tree` as ".zip" or ".tar.gz": sorted entries, no times, no owners.

    A file that its owner may execute stays so, any other is 0644. `stored`: entries of a zip that stay uncompressed,
    for what is mapped into memory from inside of it. Raises InputError for a link, or another suffix.
    """
    if suffix not in (".zip", ".tar.gz"):
        raise InputError(f"{out}: a package is a .zip or a .tar.gz, not '{suffix}'")
    files = _files(tree)
    if suffix == ".zip":
        _write_zip(files, out, stored)
    else:
        _write_tar(files, out)


def _files(tree: Path) -> dict[str, Path]:
    """Each file by its name in the archive, sorted by that name."""
    files = {
        path.relative_to(tree).as_posix(): path for path in tree.rglob("*") if path.is_symlink() or not path.is_dir()
    }
    for name, path in files.items():
        if path.is_symlink() or not path.is_file():
            raise InputError(f"{path}: is a link or a device; a package contains regular files only")
        check_name(name)
    return dict(sorted(files.items()))


def _mode(file: Path) -> int:
    return 0o755 if file.stat().st_mode & stat.S_IXUSR else 0o644


def _write_zip(files: dict[str, Path], out: Path, stored: Collection[str]) -> None:
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=LEVEL) as archive:
        for name, file in files.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.create_system = 3  # Unix: its modes hold
            entry.external_attr = (stat.S_IFREG | _mode(file)) << 16
            entry.compress_type = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            entry.file_size = file.stat().st_size
            with file.open("rb") as content, archive.open(entry, "w") as inside:
                shutil.copyfileobj(content, inside, BLOCK)


def _write_tar(files: dict[str, Path], out: Path) -> None:
    with (
        out.open("wb") as raw,
        gzip.GzipFile("", "wb", LEVEL, raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = file.stat().st_size, _mode(file)
            with file.open("rb") as content:
                archive.addfile(entry, content)


# --------------------------------------------------------------------------- opening a stranger's


@dataclass
class _Guard:
    """Counts what comes out of an archive, on its real bytes, and ends a bomb."""

    file: Path
    packed: int
    out: int = 0
    entries: int = 0

    def grow(self, count: int) -> None:
        self.out += count
        if self.out > BYTES:
            raise InputError(f"{self.file}: holds more than {BYTES >> 30} GiB; refused")
        if self.out > SMALL and self.out > RATIO * self.packed:
            raise InputError(f"{self.file}: unpacks to more than {RATIO} times its size (a bomb); refused")

    def entry(self, count: int = 1) -> None:
        self.entries += count
        if self.entries > ENTRIES:
            raise InputError(f"{self.file}: has more than {ENTRIES} entries; refused")


def unpack(file: Path, into: Path) -> None:
    """Opens a .zip (.aar, .jar) or .tar.gz, told by its first bytes, into the empty folder `into`.

    Only files and folders come out, with fixed modes. Raises InputError, one line, for anything that leaves the folder,
    is there twice (on a disk that knows no case as well), is a link or a device, is encrypted, or is a bomb.
    """
    try:
        with file.open("rb") as stream:
            magic = stream.read(4)
        guard = _Guard(file, file.stat().st_size)
        if magic[:2] == b"\x1f\x8b":
            _unpack_tar(file, into, guard)
        elif magic in (b"PK\3\4", b"PK\5\6"):
            _unpack_zip(file, into, guard)
        else:
            raise InputError(f"{file}: neither a .zip nor a .tar.gz; give the file that `edgecompress package` wrote")
    except InputError:
        raise
    except DAMAGED as error:
        message = brief(str(error)) or type(error).__name__
        raise InputError(f"{file}: cannot be unpacked: {ascii(message)[1:-1]}") from error


def shown(name: str) -> str:
    """Untrusted text for an error message: ASCII, and short."""
    text = ascii(name)
    return text if len(text) <= 100 else f"{text[:96]}...'"


def check_name(name: str) -> None:
    """Raises InputError for an entry's name that is no plain relative path on every system."""
    parts = name.split("/")
    why = (
        "an empty name" if not name
        else "a backslash" if "\\" in name
        else "an absolute path" if name.startswith("/") or DRIVE.match(name)
        else "a path that points outside its folder" if ".." in parts
        else "a path with empty parts" if "" in parts or "." in parts
        else "a character that cannot be printed" if not name.isprintable()
        else "a colon" if ":" in name
        else "a part that ends in a dot or a space" if any(part[-1] in ". " for part in parts)
        else "too long a name" if len(name.encode()) > NAME_BYTES or any(len(p.encode()) > 255 for p in parts)
        else ""
    )  # fmt: skip
    if why:
        raise InputError(f"entry {shown(name)}: {why}; refused")


class _Names:
    """The names so far, as a disk sees them that knows no case and one form of each accent."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._files: set[str] = set()
        self._folders: set[str] = set()

    def add(self, name: str, folder: bool) -> None:
        """Raises InputError for a bad name, one that is there, or a file where others have a folder."""
        try:
            check_name(name)
        except InputError as error:
            raise InputError(f"{self._file}: {error}") from error
        same = unicodedata.normalize("NFC", unicodedata.normalize("NFKC", name).casefold())
        parents = {same[:i] for i, char in enumerate(same) if char == "/"}
        taken = self._files | (set() if folder else self._folders)
        if same in taken or parents & self._files:
            raise InputError(f"{self._file}: entry {shown(name)} occurs twice; refused")
        (self._folders if folder else self._files).add(same)
        self._folders |= parents


def _put(content: IO[bytes] | gzip.GzipFile, place: Path, executable: bool, guard: _Guard) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as out:
        while block := content.read(BLOCK):
            guard.grow(len(block))
            out.write(block)
    place.chmod(0o755 if executable else 0o644)


# --------------------------------------------------------------------------- zip


def _unpack_zip(file: Path, into: Path, guard: _Guard) -> None:
    _check_directory(file)
    names = _Names(file)
    with zipfile.ZipFile(file) as archive:
        guard.entry(len(archive.infolist()))  # before the first is written
        for entry in archive.infolist():
            _check_zip_entry(file, entry)
            names.add(entry.orig_filename.rstrip("/") if _is_folder(entry) else entry.orig_filename, _is_folder(entry))
            if _is_folder(entry):
                (into / entry.filename).mkdir(parents=True, exist_ok=True)
                continue
            with archive.open(entry) as content:
                _put(content, into / entry.filename, bool(entry.external_attr >> 16 & 0o100), guard)


def _check_directory(file: Path) -> None:
    """Raises InputError for a table of contents larger than ours ever is, before anything reads it into memory."""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - 65_600))
        tail = stream.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) < at + 22:
        raise InputError(f"{file}: is truncated: the end of the .zip is missing")
    size = int.from_bytes(tail[at + 12 : at + 16], "little")
    if b"PK\6\7" in tail[max(0, at - 20) : at] or size > ENTRIES * NAME_BYTES:
        raise InputError(f"{file}: has more than {ENTRIES} entries, or declares more; refused")


def _is_folder(entry: zipfile.ZipInfo) -> bool:
    """As zipfile has it, which raises where the name is empty."""
    return entry.filename.endswith("/")


def _check_zip_entry(file: Path, entry: zipfile.ZipInfo) -> None:
    kind = stat.S_IFMT(entry.external_attr >> 16)
    plain = kind in (0, stat.S_IFREG) or (kind == stat.S_IFDIR and _is_folder(entry))
    why = (
        "is encrypted" if entry.flag_bits & 0x41
        else "is a link or a device" if not plain
        else "uses a compression method that is not supported" if entry.compress_type not in METHODS
        else "has a second name" if entry.filename != entry.orig_filename  # in an extra field, as newer Pythons read it
        else ""
    )  # fmt: skip
    if why:
        raise InputError(f"{file}: entry {shown(entry.orig_filename)} {why}; refused")


# --------------------------------------------------------------------------- tar


class _Bounded:
    """A plain tar that gives at most so much between two files, and a block at once of a file."""

    def __init__(self, stream: IO[bytes], file: Path) -> None:
        self._stream, self._file = stream, file
        self.left: int | None = None  # bytes of headers that may still be read; None: a file is read
        self.seek, self.tell = stream.seek, stream.tell

    def read(self, count: int = -1) -> bytes:
        if not 0 <= count <= (BLOCK if self.left is None else self.left):
            raise InputError(f"{self._file}: a header of more than {HEADER >> 10} KiB; refused")
        self.left = None if self.left is None else self.left - count
        return self._stream.read(count)


def _unpack_tar(file: Path, into: Path, guard: _Guard) -> None:
    plain = into / ".unpacked.tar"  # no name that a stranger may give: it is gone before entries are written
    try:
        with gzip.open(file) as content:
            _put(content, plain, False, guard)
        with plain.open("rb") as stream:
            plain.unlink()
            _entries(_Bounded(stream, file), into, _Guard(file, guard.packed))
    finally:
        plain.unlink(missing_ok=True)


def _entries(stream: _Bounded, into: Path, guard: _Guard) -> None:
    names, stream.left = _Names(guard.file), HEADER
    with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as archive:
        for entry in _members(archive):
            stream.left = None
            guard.entry()
            if not (entry.isdir() or entry.type in (tarfile.REGTYPE, tarfile.AREGTYPE)) or entry.sparse:
                raise InputError(f"{guard.file}: entry {shown(entry.name)} is a link or a device; refused")
            names.add(entry.name, entry.isdir())
            if entry.isdir():
                (into / entry.name).mkdir(parents=True, exist_ok=True)
            elif content := archive.extractfile(entry):
                with content:
                    _put(content, into / entry.name, bool(entry.mode & 0o100), guard)
            stream.left = HEADER


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """One after the other; what was read is forgotten, or ten million headers would be held."""
    while (entry := archive.next()) is not None:
        archive.members = []  # type: ignore[attr-defined]
        yield entry


def top(into: Path, file: Path) -> Path:
    """The one folder that an opened package holds. Raises InputError when there is not exactly one."""
    entries = os.listdir(into)
    if len(entries) != 1 or not (into / entries[0]).is_dir():
        raise InputError(f"{file}: a package has one folder at its top, this one has {len(entries)} entries")
    return into / entries[0]
