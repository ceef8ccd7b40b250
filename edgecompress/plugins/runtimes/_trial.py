"""A stranger's model is read by libraries that its bytes may crash, fill or hold up: in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from edgecompress.core import sandbox
from edgecompress.core.errors import EdgeError, InputError, kind_of
from edgecompress.core.json import Json

SECONDS = 120.0  # that reading and one inference may take
LARGEST = 16 << 20  # bytes of an answer
COPIED = 16 << 20  # bytes of which a copy counts
NEXT = f"export it again, a smaller one, or give more memory with {sandbox.MEMORY}=GIB"


def run(read: Callable[[], Json], where: str, size: int, seconds: float = SECONDS) -> Any:
    """What `read` returns, as JSON, called in a copy of this process. `size`: the bytes of the file that it reads.

    Raises the error that it raises; InputError where it crashes, needs too much memory, or does not end in time.
    """
    if sys.platform != "linux":  # elsewhere a process with loaded libraries cannot be copied safely
        return read()
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        _child(read, where, size, send)
    os.close(send)
    try:
        data = _received(receive, time.monotonic() + seconds)
    finally:
        os.close(receive)
        os.kill(pid, signal.SIGKILL)  # it has answered, or will not
        _, status = os.waitpid(pid, 0)
    if data is None:
        raise InputError(f"{where}: was not read within {seconds:.0f} s; {NEXT}")
    return _answer(data, where, status)


def _answer(data: bytes, where: str, status: int) -> Any:
    try:
        answer: Mapping[str, Any] = json.loads(data)
    except ValueError as error:
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        ended = signal.Signals(number).name if number else f"code {os.waitstatus_to_exitcode(status)}"
        raise InputError(f"{where}: a library crashes on it ({ended}); {NEXT}") from error
    for path in answer["read"]:
        sys.audit("open", path, "rb", 0)  # for who keeps an account of the files that a result depends on
    if "error" in answer:
        raise kind_of(answer["error"])(answer["message"])
    return answer["result"]


def _received(receive: int, end: float) -> bytes | None:
    """All that is sent; None where it does not end in time."""
    data = b""
    while (left := end - time.monotonic()) > 0 and len(data) <= LARGEST:
        if select.select([receive], [], [], left)[0]:
            if not (block := os.read(receive, 1 << 16)):
                return data
            data += block
    return None


# --------------------------------------------------------------------------- in the process of its own


def _child(read: Callable[[], Json], where: str, size: int, send: int) -> None:
    """Reads, answers and ends: nothing of what the parent does at its end is done here."""
    opened = set[str]()
    try:
        sys.addaudithook(lambda event, arguments: _hear(event, arguments, opened))
        before = _held()
        _limit(before + sandbox.resident_bytes(sandbox.READ_BYTES, size, sandbox.READ_PER_BYTE))
        answer = _tried(read, where, before)
        with os.fdopen(send, "wb") as stream:
            stream.write(json.dumps({**answer, "read": sorted(opened)}).encode())
    finally:
        os._exit(0)


def _tried(read: Callable[[], Json], where: str, before: int) -> dict[str, Json]:
    try:
        return {"result": read()}
    except Exception as error:  # a library raises whatever a stranger's bytes make it
        if _lacks_memory(error) or _is_full(before):
            return {"error": InputError.__name__, "message": f"{where}: reading it needs too much memory; {NEXT}"}
        if isinstance(error, EdgeError):
            return {"error": type(error).__name__, "message": str(error)}
        traceback.print_exc()
        line = " ".join(str(error).split())[:300]
        return {"error": InputError.__name__, "message": f"{where}: {type(error).__name__}: {line}; {NEXT}"}


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether it, or what it was raised from, is a want of memory, as Python or as a library in C++ tells it."""
    while error is not None:
        if isinstance(error, MemoryError) or "bad_alloc" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _is_full(before: int) -> bool:
    """Whether a second copy of what was read would not fit: then a library may have failed in words of its own."""
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    held = _held()
    return most != resource.RLIM_INFINITY and held - before > COPIED and most - held < held - before


def _hear(event: str, arguments: tuple[Any, ...], opened: set[str]) -> None:
    if event == "open" and isinstance(arguments[0], str) and arguments[1] in ("r", "rb"):
        opened.add(os.path.abspath(arguments[0]))


def allow(size: int) -> None:
    """Within a trial: the file has so many bytes more, beside it. Elsewhere nothing is limited."""
    most, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        _limit(most + sandbox.READ_PER_BYTE * size)


def _limit(most: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


def _held() -> int:
    """Bytes that this process has allocated."""
    with open("/proc/self/statm", encoding="ascii") as stream:
        return int(stream.read().split()[5]) * resource.getpagesize()
