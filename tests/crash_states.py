"""What a disk may hold after a crash, of what strace saw a program write: the method of ALICE (OSDI 2014).

The file system is a weak one: of a change that no fsync has followed, of the file for its bytes, of the folder for its
names, any may be missing after a crash, in any combination; bytes may also be there in part, or as zeros.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

CALLS = (
    "openat,creat,dup,dup2,dup3,fcntl,lseek,read,write,writev,pwrite64,close,rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "fsync,fdatasync,ftruncate,sendfile,copy_file_range,symlink,symlinkat,link,linkat"
)
_LINE = re.compile(r"(\d+\.\d+) (\w+)\((.*)\) += (-?\d+)(?:<(.*)>)?(?: .*)?$")
_STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_DESCRIPTOR = re.compile(r"(AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>")


def unavailable() -> str:
    """Why programs cannot be traced here, or ""."""
    if not shutil.which("strace"):
        return "strace not installed (Debian: apt-get install strace)"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return f"strace cannot trace here: {tried.stderr.strip()[:200]}" if tried.returncode else ""


T = TypeVar("T")


@dataclass
class File:
    """A file's bytes, whatever its name is."""

    content: bytearray = field(default_factory=bytearray)


@dataclass(frozen=True)
class Change:
    """One change of the disk, or one fsync. `at` and `data` belong to a write."""

    kind: str  # create, write, truncate, mkdir, rename, exchange, unlink, fsync, fsync-folder
    path: str
    to: str = ""
    number: int = 0  # of the file that is written or created
    at: int = 0
    data: bytes = b""


# --------------------------------------------------------------------------- recording


def recorded(command: Sequence[str], roots: Sequence[Path], **popen: object) -> list[Change]:
    """Runs a command, which must end with 0; what it and its children changed below some folders, in order."""
    with tempfile.TemporaryDirectory() as folder:
        options = [  # without --seccomp-bpf: what a worker's own filter hears of is told to no tracer
            "-ff",
            "-ttt",
            "-y",
            "-xx",
            "-s",
            "100000000",
            "-e",
            f"trace={CALLS}",
            "-o",
            f"{folder}/trace",
        ]
        done = subprocess.run(["strace", *options, *command], capture_output=True, text=True, **popen)  # type: ignore[call-overload]
        assert done.returncode == 0, done.stderr
        lines = []
        for file in Path(folder).iterdir():
            process = file.name.rpartition(".")[2]
            lines += [(match, process) for line in file.read_text().splitlines() if (match := _LINE.match(line))]
    lines.sort(key=lambda each: float(each[0][1]))
    return list(_Recorder([str(root) for root in roots]).changes(lines))


@dataclass
class _Opened:
    """A file that a program has open, and where its next read or write begins."""

    number: int
    at: int


class _Recorder:
    """Follows names, descriptors and positions from system call to system call."""

    def __init__(self, roots: Sequence[str]) -> None:
        self.roots = roots
        self.names: dict[str, int] = {}  # files by their present path
        self.contents: dict[int, bytearray] = {}
        self.open: dict[tuple[str, int], _Opened] = {}  # by process and descriptor

    def changes(self, lines: Sequence[tuple[re.Match[str], str]]) -> Iterator[Change]:
        """The changes that successful calls made."""
        for match, process in lines:
            _, call, arguments, result, at = match.groups()
            if int(result) >= 0 and (known := getattr(self, f"_{call}", None)):
                yield from known(process, arguments, int(result), _text(at or "").decode(errors="surrogateescape"))

    def _inside(self, path: str) -> bool:
        return any(path == root or path.startswith(f"{root}/") for root in self.roots) and ".sqlite" not in path

    def _paths(self, arguments: str) -> list[str]:
        """The paths among the arguments, each below the folder that stands before it."""
        strings = [(m.start(), _text(m[1]).decode(errors="surrogateescape")) for m in _STRING.finditer(arguments)]
        folders = [(m.start(), _text(m[2]).decode(errors="surrogateescape")) for m in _DESCRIPTOR.finditer(arguments)]
        return [str(Path(next((f for at, f in reversed(folders) if at < start), "/"), text)) for start, text in strings]

    def _openat(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        if not self._inside(path) or "O_DIRECTORY" in arguments:
            return
        if path not in self.names and "O_CREAT" in arguments:
            self.names[path] = len(self.contents)
            self.contents[self.names[path]] = bytearray()
            yield Change("create", path, number=self.names[path])
        if path not in self.names:
            return
        number = self.names[path]
        if "O_TRUNC" in arguments and self.contents[number]:
            self.contents[number].clear()
            yield Change("truncate", path, number=number)
        self.open[process, result] = _Opened(number, len(self.contents[number]) if "O_APPEND" in arguments else 0)

    def _close(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        self.open.pop((process, int(arguments.split("<")[0])), None)
        yield from ()

    def _lseek(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        if opened := self._opened(process, arguments):
            opened.at = result
        yield from ()

    def _read(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        if opened := self._opened(process, arguments):
            opened.at += result
        yield from ()

    def _dup(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        if opened := self._opened(process, arguments):
            self.open[process, result] = opened
        yield from ()

    _dup2 = _dup3 = _dup

    def _fcntl(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        if "F_DUPFD" in arguments:
            yield from self._dup(process, arguments, result, path)

    def _opened(self, process: str, arguments: str) -> _Opened | None:
        return self.open.get((process, int(arguments.split("<")[0])))

    def _write(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        yield from self._put(process, arguments, _text("".join(_STRING.findall(arguments)))[:result])

    _writev = _write

    def _sendfile(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        source = _DESCRIPTOR.findall(arguments)[1][1]
        name = _text(source).decode(errors="surrogateescape")
        content = self.contents[self.names[name]] if name in self.names else Path(name).read_bytes()
        begin = re.search(r"\[(\d+)\] =>", arguments)
        at = int(begin[1]) if begin else 0
        yield from self._put(process, arguments, bytes(content[at : at + result]))

    def _put(self, process: str, arguments: str, data: bytes) -> Iterator[Change]:
        opened, path = self._opened(process, arguments), _DESCRIPTOR.match(arguments)
        if opened is None or not path or not data:
            return
        _put(self.contents[opened.number], opened.at, data)
        name = _text(path[2]).decode(errors="surrogateescape")
        yield Change("write", name, number=opened.number, at=opened.at, data=data)
        opened.at += len(data)

    def _fsync(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        opened = self._opened(process, arguments)
        name = _text(_DESCRIPTOR.match(arguments)[2]).decode(errors="surrogateescape")  # type: ignore[index]
        if opened:
            yield Change("fsync", name, number=opened.number)
        elif self._inside(name):
            yield Change("fsync", name, number=self.names[name]) if name in self.names else Change("fsync-folder", name)

    _fdatasync = _fsync

    def _mkdir(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        yield from (Change("mkdir", name) for name in self._paths(arguments) if self._inside(name))

    _mkdirat = _mkdir

    def _unlink(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        for name in filter(self._inside, self._paths(arguments)):
            self.names.pop(name, None)
            yield Change("unlink", name)

    _unlinkat = _rmdir = _unlink

    def _symlink(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        """What it leads to is words; where it lies counts."""
        assert not self._inside(link := self._paths(arguments)[-1]), f"a call that is not simulated: {link}"
        yield from ()

    _symlinkat = _symlink

    def _link(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        named = [*self._paths(arguments), *(_text(m[1]).decode() for m in _DESCRIPTOR.findall(arguments))]
        assert not any(map(self._inside, named)), f"a call that is not simulated: {named}"
        yield from ()

    _linkat = _copy_file_range = _pwrite64 = _ftruncate = _creat = _link

    def _rename(self, process: str, arguments: str, result: int, path: str) -> Iterator[Change]:
        one, other = self._paths(arguments)
        if self._inside(one) or self._inside(other):
            assert self._inside(one) and self._inside(other), (one, other)
            kind = "exchange" if "EXCHANGE" in arguments or arguments.endswith(", 0x2") else "rename"
            _rename(self.names, one, other, kind == "exchange")
            yield Change(kind, one, other)

    _renameat = _renameat2 = _rename


def _text(escaped: str) -> bytes:
    return bytes.fromhex(escaped.replace("\\x", ""))


def _put(content: bytearray, at: int, data: bytes) -> None:
    content.extend(b"\0" * (at - len(content)))
    content[at : at + len(data)] = data


def _rename(names: dict[str, T], one: str, other: str, exchange: bool) -> None:
    """Moves a path and what is below it; what is at the other is replaced or comes here."""

    def taken(path: str) -> dict[str, T]:
        return {n: names.pop(n) for n in list(names) if n == path or n.startswith(f"{path}/")}

    first, second = taken(one), taken(other)
    names.update({other + name[len(one) :]: value for name, value in first.items()})
    if exchange:
        names.update({one + name[len(other) :]: value for name, value in second.items()})


# --------------------------------------------------------------------------- crashing


def crashed(changes: Sequence[Change], at: int, seeded: random.Random | None, base: Path) -> dict[str, bytes | None]:
    """The files (and folders: None) in `base` that a crash after `at` changes may leave; all changes, unless seeded."""
    kept = changes[:at]
    lost: set[int] = set()
    if seeded:
        share = seeded.choice((0.0, 0.2, 0.5, 1.0))
        lost = {n for n, change in enumerate(kept) if _loose(kept, n, change) and seeded.random() < share}
    names: dict[str, File | None] = {str(base): None}
    files: dict[int, File] = {}
    for number, change in enumerate(kept):
        if number in lost and change.kind != "write":
            continue
        _apply(names, files, change, seeded if number in lost else None)
    return {name: None if file is None else bytes(file.content) for name, file in names.items()}


def _loose(kept: Sequence[Change], number: int, change: Change) -> bool:
    """Whether no fsync follows the change, of its file or of its folder."""
    later = kept[number + 1 :]
    if change.kind in ("write", "truncate"):
        return not any(each.kind == "fsync" and each.number == change.number for each in later)
    folders = {str(Path(path).parent) for path in (change.path, change.to) if path}
    if any(each.kind == "fsync-folder" and each.path in folders for each in later):
        return False
    # A name that is on the disk leads to what it was given, whatever that was called before.
    moved = next((n for n, each in enumerate(later) if each.path == (change.to or change.path) and each.to), None)
    return moved is None or _loose(kept, number + 1 + moved, later[moved])


def _apply(names: dict[str, File | None], files: dict[int, File], change: Change, torn: random.Random | None) -> None:
    """Makes a change, as far as what it needs is there; a write that is `torn` in part, as zeros or not at all."""
    parent_is_there = names.get(str(Path(change.to or change.path).parent), 0) is None
    if change.kind == "write":
        file = files.setdefault(change.number, File())
        data = change.data
        if torn:
            data = torn.choice((b"", data[: torn.randrange(len(data))], b"\0" * len(data)))
        if data:
            _put(file.content, change.at, data)
    elif change.kind == "truncate":
        files.setdefault(change.number, File()).content.clear()
    elif change.kind == "create" and parent_is_there:
        names[change.path] = files.setdefault(change.number, File())
    elif change.kind == "mkdir" and parent_is_there:
        names.setdefault(change.path, None)
    elif change.kind == "unlink":
        for name in [n for n in names if n == change.path or n.startswith(f"{change.path}/")]:
            del names[name]
    elif (
        change.kind in ("rename", "exchange")
        and change.path in names
        and parent_is_there
        and (change.kind == "rename" or change.to in names)
    ):
        _rename(names, change.path, change.to, change.kind == "exchange")


def written(state: Mapping[str, bytes | None], base: Path, folder: Path) -> None:
    """Puts a state that was recorded below `base` into a folder."""
    for name, content in sorted(state.items()):
        place = folder / Path(name).relative_to(base)
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
