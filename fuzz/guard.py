"""What holds of every input: a result or one line of error, in time, in memory, within its folder, nothing executed."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

from edgecompress.core.catalog import KINDS, shipped
from edgecompress.core.errors import EdgeError, InputError
from edgecompress.core.package_files import PACKAGE
from edgecompress.core.plain_text import one_line

Check = Callable[[bytes, Path], None]  # reads an input within an empty folder; raises EdgeError where it refuses it

SECONDS = 5.0  # of the processor: that of a wall clock is the machine's too
ENDED_S = 10.0  # after which a reader is ended
BYTES = 512 << 20  # resident, beyond what was there before
LINE = 2000  # characters of an error
DRIVES = ("Cc", "Cs", "Zl", "Zp")  # categories of characters that break a line or drive a terminal
RUNS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "os.forkpty", "pty.spawn")
REACHES = ("socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "pickle.find_class", "ctypes.dlopen")
FORBIDDEN = frozenset((*RUNS, *REACHES))
LISTS = ("os.listdir", "os.scandir")
PATHS = {  # an event, and which of its arguments are paths
    **dict.fromkeys(("open", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod"), (0,)),
    **dict.fromkeys(LISTS, (0,)),
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), (0, 1)),
}
PLACES = (sys.prefix, sys.base_prefix, str(PACKAGE), *(str(shipped(kind)) for kind in KINDS))
CODE = [os.path.realpath(place) for place in PLACES]  # of ours and of libraries: it is read when it is first used


@dataclass(frozen=True)
class Finding:
    """An input of which something does not hold: `what` in a line, the same for the same fault; `how` at length."""

    what: str
    how: str
    data: bytes


class _Watch:
    """What this process opens and starts while an input is read; what is not allowed is refused and kept."""

    def __init__(self) -> None:
        self.folder = ""
        self.seen: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folder:
            return
        if event in FORBIDDEN:
            self._refuse(f"{event} of {arguments[:1]!r}")
        for index in PATHS.get(event, ()):
            if isinstance(path := arguments[index], (str, bytes, os.PathLike)):
                self._opened(event, os.fsdecode(path), _writes(event, arguments))

    def _opened(self, event: str, path: str, writes: bool) -> None:
        """Refuses a path outside of the folder, unless it is code of ours or a library's that is read or looked for."""
        real = os.path.realpath(path)
        imported = event in LISTS and real in map(os.path.realpath, sys.path)
        code = imported or any(_inside(real, folder) for folder in CODE)
        if not _inside(real, self.folder) and (writes or not code):
            self._refuse(f"{event} of {path!r}")

    def _refuse(self, what: str) -> None:
        self.seen.append(what)
        raise PermissionError(f"outside of the folder: {what}")

    @contextmanager
    def within(self, folder: Path) -> Iterator[None]:
        """Only in this folder anything may be opened; what is imported meanwhile leaves no bytecode behind."""
        kept, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        self.folder, self.seen = os.path.realpath(folder), []
        try:
            yield
        finally:
            self.folder, sys.dont_write_bytecode = "", kept


@cache
def _watch() -> _Watch:
    """The one there is: a hook is never taken off again."""
    return _Watch()


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(f"{folder}{os.sep}")


def _writes(event: str, arguments: tuple[Any, ...]) -> bool:
    if event != "open":
        return event not in LISTS
    return bool((arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def warm(check: Check, seeds: Sequence[Path], folder: Path) -> None:
    """Reads sound inputs with nobody watching: libraries are imported, which opens files and takes time."""
    for seed in seeds:
        with contextlib.suppress(EdgeError):
            check(seed.read_bytes(), emptied(folder))


def emptied(folder: Path) -> Path:
    """A folder with nothing in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


class TooLong(BaseException):
    """Ends a reader that does not end by itself; no `except Exception` of it holds this one."""


def _late(*_: object) -> None:
    raise TooLong(f"more than {ENDED_S} s of the processor")


@contextmanager
def _ended() -> Iterator[None]:
    """At most so much of the processor's time."""
    signal.signal(signal.SIGPROF, _late)
    signal.setitimer(signal.ITIMER_PROF, ENDED_S)
    try:
        yield
    finally:
        signal.signal(signal.SIGPROF, signal.SIG_IGN)  # one that is on its way raises nothing any more
        signal.setitimer(signal.ITIMER_PROF, 0)


def judged(check: Check, data: bytes, folder: Path) -> Finding | None:
    """Reads an input in an empty folder; what does not hold of it, or None."""
    watch = _watch()
    begin, before = time.process_time(), _resident()
    with watch.within(folder):
        error = _raised(check, data, folder)
    spent, grown = time.process_time() - begin, _peak() - before
    if watch.seen:
        return Finding(watch.seen[0], "\n".join(watch.seen), data)
    if what := _wrong(error):
        return Finding(what, "".join(traceback.format_exception(error)), data)
    if spent > SECONDS:
        return Finding("it takes too long", f"{spent:.1f} s of the processor", data)
    return Finding("it takes too much memory", f"{grown >> 20} MiB more", data) if grown > BYTES else None


def _raised(check: Check, data: bytes, folder: Path) -> BaseException | None:
    try:
        with _ended():
            check(data, folder)
    except (Exception, SystemExit, TooLong) as error:
        return error
    return None


def _wrong(error: BaseException | None) -> str:
    """What is wrong with how a reader ended; nothing where it ended well, or with one line for its user."""
    if error is None:
        return ""
    if not isinstance(error, EdgeError):
        return f"{type(error).__name__} at {_place(error)}"
    why = _refused(error)
    return f"{why} at {_place(error)}" if why else ""


def _refused(error: EdgeError) -> str:
    line = one_line(str(error))  # as the command line prints it
    return (
        f"exit code {error.exit_code}" if error.exit_code != InputError.exit_code
        else "an error that is no printable line" if not line or any(category(c) in DRIVES for c in line)
        else "an error of too many characters" if len(line) > LINE
        else ""
    )  # fmt: skip


def _place(error: BaseException) -> str:
    """The innermost line of ours that an exception came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _inside(f.filename, str(PACKAGE.parent))]
    own = [f for f in frames if not _inside(f.filename, sys.prefix)]
    return f"{Path(own[-1].filename).relative_to(PACKAGE.parent)}:{own[-1].name}" if own else "no line of ours"


# --------------------------------------------------------------------------- resident memory, where Linux tells it

RESET = Path("/proc/self/clear_refs")


@cache
def _reset() -> int:
    """The open file that is told to forget the peak."""
    return os.open(RESET, os.O_WRONLY)


def _resident() -> int:
    """Resident bytes; the peak that is told later begins here."""
    if RESET.exists():
        os.pwrite(_reset(), b"5", 0)
    return _peak()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
