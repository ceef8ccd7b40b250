"""Child processes that end with their parent: the parent starts them with `spawn`, the child calls `tie` first."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from edgecompress.core.errors import TooMuchMemory
from edgecompress.core.protocols import DEADLINE

PR_SET_PDEATHSIG = 1
LOOK_S = 0.1  # between two looks at how much memory a child holds


class Child(Protocol):
    """What ends a child: that of `subprocess.Popen`, and of what starts children otherwise."""

    pid: int
    returncode: int | None

    @property
    def stdout(self) -> IO[bytes] | None:
        """Its output."""

    def kill(self) -> None:
        """Kills it where it still runs."""

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises TimeoutExpired."""


def python(module: str, *words: str, by: str = "") -> list[str]:
    """The command that runs a module by this Python, or `by` another one of this version.

    It imports nothing from the working folder, whose files are not trusted.
    """
    return [by or sys.executable, "-P", "-m", module, *words]


def spawn(
    argv: Sequence[str], log: Path, env: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Starts a child in a new session: stderr goes to `log`, stdout is piped, stdin closes when the parent ends."""
    with log.open("ab") as stream:
        return subprocess.Popen(
            list(argv),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            env=dict(env) if env is not None else None,
            start_new_session=True,
            pass_fds=pass_fds,
        )


def tie() -> None:
    """Ends this process when its parent ends: by the kernel on Linux, and everywhere by the end of stdin.

    Whoever reads stdin afterwards finds it empty: the pipe is kept from code that would wait for it.
    """
    end_with_parent()
    pipe, empty = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    threading.Thread(target=_watch, args=(pipe,), daemon=True).start()


def end_with_parent() -> None:
    """Lets the kernel end this process when its parent ends: on Linux; elsewhere nothing does."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_after(seconds: float) -> None:
    """Ends this process when nobody waits for it any longer.

    By the kernel: it needs no thread, which what is measured would notice, and native code cannot hold it up.
    """
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _watch(pipe: int) -> None:
    """Blocks on a pipe that the parent never writes to: its end is the parent's end."""
    while os.read(pipe, 1):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def wait(process: subprocess.Popen[bytes], seconds: float, most_bytes: int, who: str) -> int | None:
    """The exit code of a child; None when it has not ended in time. Raises TooMuchMemory."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(left, LOOK_S))
        check_memory(who, process.pid, most_bytes)
    return process.poll()


def check_memory(who: str, pid: int, most_bytes: int, together: bool = False) -> None:
    """Raises TooMuchMemory when a process, or one that it started, holds more: not counting files that they read.

    `together`: all of them may hold so much, instead of each.
    """
    family = [pid]  # the process, its children, theirs, ...
    for each in family:
        for task in _listed(f"/proc/{each}/task"):
            with contextlib.suppress(OSError):  # it has ended
                family += map(int, Path(f"/proc/{each}/task/{task}/children").read_text().split())
    held = [_resident(each, shared=together and len(family) > 1) + _unnamed_files(each) for each in family]
    most = sum(held) if together else max(held)
    if most > most_bytes:
        raise TooMuchMemory(
            f"{who}: its process took {most / 1e9:.1f} GB of memory, its limit is {most_bytes / 1e9:.1f} GB; "
            "give more with EDGECOMPRESS_MEMORY=GIB in the environment"
        )


def _listed(folder: str) -> list[str]:
    """The names in a folder of /proc; none where the process has ended, or may not be asked this."""
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _resident(pid: int, shared: bool) -> int:
    """Bytes of a process's own pages; `shared`: its share of those that several processes hold (a slower question)."""
    fields = ("Pss_Anon:", "Pss_Shmem:") if shared else ("RssAnon:", "RssShmem:")
    try:
        lines = Path(f"/proc/{pid}/{'smaps_rollup' if shared else 'status'}").read_text(errors="replace").splitlines()
    except OSError:  # it has ended, or may not be asked this, or this system has no /proc
        return _resident(pid, shared=False) if shared else 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(fields))


def _unnamed_files(pid: int) -> int:
    """Bytes of the files in memory (memfd_create) that a process has open, mapped or not."""
    held: dict[int, int] = {}
    for name in _listed(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):  # it is closed meanwhile
            if os.readlink(f"/proc/{pid}/fd/{name}").startswith("/memfd:"):
                there = os.stat(f"/proc/{pid}/fd/{name}")
                held[there.st_ino] = there.st_blocks * 512
    return sum(held.values())


def end(process: Child) -> None:
    """Kills a child started by `spawn` and all processes left in its session."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()  # within a limited worker it has no session of its own
    process.wait()


def ending(code: int, deadline_s: float) -> str:
    """How a process ended, from its code: words after "the process"."""
    if code == DEADLINE:
        return f"gave no answer within {deadline_s:.0f} s"
    number = -code if code < 0 else code - 128  # a shell reports a signal as 128 + its number
    try:
        return f"was ended by {signal.Signals(number).name}"
    except ValueError:
        return f"ended with code {code} and no result"
