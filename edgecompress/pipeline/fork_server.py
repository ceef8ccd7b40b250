"""Workers by fork, on Linux: a process that has imported PyTorch forks for each stage that needs it.

An import of PyTorch takes seconds, and most stages of a deploy begin with one. The server is asked through a socket, by
one message for each worker and one for each that has ended; it ends with the process that started it, and where nobody
has asked for a while. A worker limits itself as one that was started alone does, before it does anything else.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from edgecompress.core import child_process, environments, registry
from edgecompress.core.model import Stage, Substitute

LIBRARY = "torch"  # whose import is saved
IMPORTS = (LIBRARY, "torch.export", "edgecompress.pipeline.worker")  # before the first worker
LATER = ("torch._dynamo",)  # while nobody asks: exporters and quantizers begin with it
FIRST = 3  # workers that are forked before that: the data, the source and its answers need no more
WITH_IT = frozenset({LIBRARY, "litert-torch"})  # who needs one of these imports it
IDLE_S = 60.0  # without a worker or a question, then the server ends
ANSWER_S = 600.0  # the longest import, from a slow disk
LONGEST = 1 << 18  # bytes of a message: an environment
READ = ("LD_", "PYTHON", "TORCH", "PYTORCH", "CUDA", "NVIDIA", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "DNNL_")


def serves(stage: Stage, ahead: Iterable[Stage | Substitute]) -> bool:
    """Whether a stage is a fork's: it imports PyTorch, reads no stranger's file and measures nothing.

    The user's code is taken to import it where one of the steps `ahead` does.
    """
    if stage.reads or stage.max_age_s is not None or not _possible():
        return False
    steps = (step if isinstance(step, Stage) else step.stage for step in ahead)
    return _imports(stage) or (stage.user_code and any(map(_imports, steps)))


def _imports(stage: Stage) -> bool:
    """Whether what a stage calls says that it imports PyTorch."""
    return not WITH_IT.isdisjoint(map(environments.package, registry.step(stage.call).requires))


@functools.cache
def _possible() -> bool:
    """Whether this system forks safely and tells of the end of another's child, and PyTorch is here."""
    if sys.platform != "linux" or not environments.version(LIBRARY):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


class ForkedWorker:
    """A child of the server, with what `subprocess.Popen` has for a child of our own."""

    def __init__(self, server: ForkServer, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout: IO[bytes] = os.fdopen(stdout, "rb", buffering=0)
        self._server, self._stdin, self._end = server, stdin, os.pidfd_open(pid)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            self.returncode = self._server.code(self.pid)
            self.stdout.close()
            for each in (self._stdin, self._end):
                os.close(each)
        return self.returncode

    def kill(self) -> None:
        """Kills it where it still runs."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._end, signal.SIGKILL)


class ForkServer:
    """The parent's end of a server. Raises OSError where it is gone."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._own, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._own.settimeout(ANSWER_S)
        self._asking = threading.Lock()
        with end:
            words = child_process.python("edgecompress.pipeline.fork_server", str(end.fileno()))
            self._process = child_process.spawn(words, Path(os.devnull), environment, [end.fileno()])

    def worker(self, file: Path, environment: Mapping[str, str], log: Path, end: socket.socket) -> ForkedWorker:
        """Starts a worker for a request."""
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        asked = {"file": str(file), "environment": dict(environment), "folder": os.getcwd()}
        try:
            with log.open("ab") as stream:
                pid = self._ask(asked, [theirs_in, theirs_out, stream.fileno(), end.fileno()])
            return ForkedWorker(self, pid, ours_in, ours_out)
        except OSError:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)

    def code(self, pid: int) -> int:
        """The exit code of a worker that has ended; that of a kill where the server is gone, which ends its workers."""
        try:
            return self._ask({"ended": pid}, [])
        except OSError:
            return -signal.SIGKILL

    def close(self) -> None:
        """Ends the server, and the workers that it has."""
        self._own.close()
        self._process.kill()
        self._process.wait()

    def _ask(self, message: Mapping[str, object], descriptors: Sequence[int]) -> int:
        with self._asking:
            socket.send_fds(self._own, [json.dumps(message).encode()], descriptors)
            if not (answer := self._own.recv(LONGEST)):
                raise BrokenPipeError("the fork server has ended")
            return int(answer)


_servers: dict[object, ForkServer] = {}  # by the code that they imported, and what its import read
_changing = threading.Lock()


def worker(file: Path, environment: Mapping[str, str], log: Path, end: socket.socket, code: str) -> ForkedWorker | None:
    """A worker by the server of this process, or by a new one where it has ended; None where none can be had.

    `end`: the worker's of `opened_files`; `code`: the digest of this package, which may have been edited since.
    """
    key = (code, frozenset((name, value) for name, value in environment.items() if name.startswith(READ)))
    gone = None
    for _ in range(2):
        with _changing:
            if gone and _servers.get(key) is gone:
                _servers.pop(key).close()
            if key not in _servers:
                _servers[key] = ForkServer(environment)
            server = gone = _servers[key]
        with contextlib.suppress(OSError):
            return server.worker(file, environment, log, end)
    return None


@atexit.register
def _close() -> None:
    for server in _servers.values():
        server.close()


# --------------------------------------------------------------------------- the server


def main() -> int:
    """Serves on the socket that the argument names; in a worker, which begins here too, runs the stage."""
    from edgecompress.pipeline import worker

    gc.set_threshold(worker.YOUNG)
    end, living, forked, later = socket.socket(fileno=int(sys.argv[1])), 0, 0, [*LATER]
    _import(IMPORTS)
    while True:
        while later and forked >= FIRST and not select.select([end], [], [], 0)[0]:
            _import([later.pop(0)])
        if not living and not select.select([end], [], [], IDLE_S)[0]:
            return 0
        text, descriptors, _, _ = socket.recv_fds(end, LONGEST, 4)
        if not text:
            return 0  # the parent has ended
        message = json.loads(text)
        if "ended" in message:
            _, status = os.waitpid(message["ended"], 0)
            answer, living = os.waitstatus_to_exitcode(status), living - 1
        elif answer := os.fork():
            living, forked = living + 1, forked + 1
        else:
            end.close()
            _become(message, descriptors)
            return worker.main(message["file"], descriptors[3])
        for each in descriptors:
            os.close(each)
        end.send(str(answer).encode())


def _import(names: Iterable[str]) -> None:
    """Imports those that are here. They stay: a worker's looks for garbage leave their pages shared."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _become(message: Mapping[str, Mapping[str, str]], descriptors: Sequence[int]) -> None:
    """Gives this process what a worker is started with: a session, a folder, an environment, and its standard files."""
    os.setsid()
    os.chdir(str(message["folder"]))
    os.environ.clear()
    os.environ.update(message["environment"])
    tempfile.tempdir = None
    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
        os.close(each)


if __name__ == "__main__":
    sys.exit(main())
