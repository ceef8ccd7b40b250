"""The files that a worker, its native code and all that it starts open to read: the kernel asks the parent before each.

By the notifications of seccomp (Linux 5.5). Elsewhere a worker tells of the files that its Python code opens.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import select
import socket
import struct
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path

from edgecompress.core import package_files, syscall_filter
from edgecompress.pipeline.store import observed_digest

RECEIVE, SEND, CONTINUE = 0xC0502100, 0xC0182101, 1  # <linux/seccomp.h>
NOTIFICATION = struct.Struct("=QIIiIQ6Q")  # id, thread, flags; call, architecture, instruction, arguments
ANSWER = struct.Struct("=QqiI")  # id, value, error, flags
AT_FDCWD = -100
PAGE = 4096  # bytes: the longest path, too
UNREAD = os.O_WRONLY | os.O_DIRECTORY | getattr(os, "O_PATH", 0)
MOST = 200_000  # paths that are kept


def tell(to: int) -> None:
    """In a worker without threads: from now on who has the other end of the socket `to` is asked, where it can be."""
    with socket.socket(fileno=to) as end, contextlib.suppress(OSError):
        listener = syscall_filter.listener()
        try:
            socket.send_fds(end, [b"\0"], [listener])
        finally:  # held here it would keep every open waiting when the parent is gone
            os.close(listener)


def users(paths: Iterable[str], store: str) -> set[str]:
    """Those that are files and folders of the user's: not of an installation, the system, or edgecompress.

    What lies below the store is no input, links resolved: a stage's temporary folder is there, with a short name that
    leads to it, and what a library generates in it has another name each time (TensorFlow's AutoGraph: modules).
    """
    below = os.path.realpath(store) + os.sep
    asked = {p for p in map(_source, paths) if package_files.is_users(p) and os.path.exists(p)}
    return {p for p in asked if not os.path.realpath(p).startswith(below)}


def _source(path: str) -> str:
    """The .py behind a cached .pyc; any other path as it is."""
    if path.endswith(".pyc") and "__pycache__" in path:
        folder, name = os.path.split(path)
        return os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
    return path


class OpenedFiles:
    """The parent's end. While a worker lives it must be served: an open waits for its answer."""

    def __init__(self) -> None:
        self._own, self.workers = socket.socketpair()
        self._listener = -1
        self._paths: set[str] = set()

    @property
    def waits(self) -> list[int]:
        """The descriptor that is to be served when it can be read, if there is one."""
        return [each for each in (self._listener, self._own.fileno()) if each >= 0][:1]

    def serve(self) -> None:
        """Answers what waits."""
        if self._listener >= 0:
            self._answer()
            return
        with contextlib.suppress(OSError):
            _, descriptors, _, _ = socket.recv_fds(self._own, 1, 1)
            for self._listener in descriptors[:1]:
                os.set_inheritable(self._listener, False)
        self._own.close()

    def close(self) -> None:
        """Nobody is asked any longer: an open that still waits fails."""
        self.workers.close()
        self._own.close()
        if self._listener >= 0:
            os.close(self._listener)
            self._listener = -1

    def digests(self, store: str, known: Collection[str], begun: float) -> dict[str, str]:
        """The user's files that were opened, as `observed_digest` has them, without the known ones.

        What was written since the time `begun` is no input: a cache that a library keeps.
        """
        found = {os.path.realpath(path) for path in self._paths} - {os.path.realpath(path) for path in known}
        old = [path for path in users(found, store) if os.path.isfile(path) and os.stat(path).st_mtime < begun]
        return {path: observed_digest(Path(path)) for path in sorted(old)}

    def _answer(self) -> None:
        asked, waiting = bytearray(NOTIFICATION.size), select.poll()
        waiting.register(self._listener, select.POLLIN)
        events = next((events for _, events in waiting.poll(0)), 0)
        if not events & select.POLLIN:
            if events:
                self.close()  # the worker and all that it started have ended
            return  # else who asked has ended: older kernels would wait for the next one
        try:
            fcntl.ioctl(self._listener, RECEIVE, asked)
            number, thread, _, call, _, _, *arguments = NOTIFICATION.unpack(asked)
            with contextlib.suppress(OSError):  # it has ended, or may not be looked at
                if len(self._paths) < MOST:
                    self._paths.update(_opened(thread, call, arguments))
            fcntl.ioctl(self._listener, SEND, ANSWER.pack(number, 0, 0, CONTINUE))
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.EINTR):  # the end of who asked
                self.close()


def _opened(thread: int, call: int, arguments: Sequence[int]) -> Iterator[str]:
    """The path that a call opens to read."""
    folder, name, flags = (AT_FDCWD, *arguments[:2]) if call == syscall_filter.OPEN[0] else arguments[:3]
    if call == syscall_filter.OPENAT2 or not flags & UNREAD:
        path = _text(thread, name)
        if not path.startswith(os.sep):
            at = struct.unpack("=i", struct.pack("=I", folder & 0xFFFFFFFF))[0] if folder != AT_FDCWD else folder
            path = os.path.join(os.readlink(f"/proc/{thread}/{'cwd' if at == AT_FDCWD else f'fd/{at}'}"), path)
        yield path


def _text(thread: int, address: int) -> str:
    """A text that ends with NUL in the memory of a thread; memory is read by page, since the next may not be there."""
    memory = os.open(f"/proc/{thread}/mem", os.O_RDONLY)
    try:
        text = b""
        while b"\0" not in text and len(text) < PAGE:
            at = address + len(text)
            if not (more := os.pread(memory, PAGE - at % PAGE, at)):
                raise ProcessLookupError(f"thread {thread} has ended")
            text += more
    finally:
        os.close(memory)
    return os.fsdecode(text.partition(b"\0")[0])
