"""Starts the child process of a stage and hears its answers, until it is done, fails, dies, or exceeds a limit."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import resource
import secrets
import select
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edgecompress.core import child_process, home, sandbox
from edgecompress.core.child_process import Child
from edgecompress.core.errors import EdgeError, InputError, StageFailed, TooMuchMemory, kind_of
from edgecompress.pipeline import bytecode, fork_server
from edgecompress.pipeline.opened_files import OpenedFiles
from edgecompress.pipeline.worker_protocol import LONGEST, Done, Progress, StageRequest, answer

LINK = "edgecompress-"  # to a worker's temporary folder
SPINS = {"GOMP_SPINCOUNT": "1000"}  # rounds that a thread of PyTorch's OpenMP waits for others, before it sleeps


@dataclass(frozen=True)
class Patience:
    """Seconds until a worker is stopped: from its start, and from its last answer; `over` when nobody waits for it."""

    whole_s: float
    silence_s: float
    over: threading.Event = field(default_factory=threading.Event)


def answers(
    request: StageRequest, scratch: Path, log: Path, patience: Patience, fork_of: str = "", alone: bool = False
) -> Iterator[Progress | Done]:
    """What the worker of a stage answers. `scratch` is the folder of the request, of `tmp` and of what the stage makes.

    `fork_of`: the digest of this package, where the fork server is to start it. `alone`: nothing works beside it.

    Raises the error that it reports, or StageFailed: it died, hung, sent what is no answer, or held too much memory;
    InputError where that is the fault of the file that it reads.
    """
    file = scratch / "request.json"
    file.write_text(json.dumps(request, default=dataclasses.asdict), encoding="utf-8")
    (scratch / "tmp").mkdir()
    bytecode.keep_package()
    with _short(scratch / "tmp") as temporary, contextlib.closing(OpenedFiles()) as opened:
        begun = time.time()
        process = _started(file, _environment(request["offline"], temporary, alone), log, opened, fork_of)
        yield from _heard(process, request, log, patience, opened, begun)


def _started(file: Path, environment: Mapping[str, str], log: Path, opened: OpenedFiles, fork_of: str) -> Child:
    try:
        if fork_of and (child := fork_server.worker(file, environment, log, opened.workers, fork_of)):
            return child
        end = opened.workers.fileno()
        argv = child_process.python("edgecompress.pipeline.worker", str(file), str(end))
        return child_process.spawn(argv, log, environment, [end])
    finally:
        opened.workers.close()


def _heard(
    process: Child, request: StageRequest, log: Path, patience: Patience, opened: OpenedFiles, begun: float
) -> Iterator[Progress | Done]:
    try:
        for line in _lines(process, patience, request, log, opened):
            message = answer(line, request["stage"])
            if "error" in message:
                raise kind_of(message["error"])(f"{message['message']} (log: {log})")
            if "done" in message:
                message["files"] |= opened.digests(request["store"], message["files"], begun)
                bytecode.keep(message["uncompiled"])
                yield message
                return
            yield message
        opened.close()  # so that it can end
        raise _failure(request, _ending(process, log))
    finally:
        child_process.end(process)


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[Path]:
    """A short path to a folder: that of a Unix socket, which multiprocessing makes there, has at most 107 bytes."""
    base = Path(tempfile.gettempdir())
    for left in base.glob(f"{LINK}*"):  # of a run that was killed
        with contextlib.suppress(OSError):
            if left.is_symlink() and not left.exists():
                left.unlink()
    link = base / f"{LINK}{secrets.token_hex(4)}"
    try:
        link.symlink_to(folder.resolve())
    except OSError:
        link = folder
    try:
        yield link
    finally:
        if link != folder:
            link.unlink(missing_ok=True)


def _lines(
    process: Child, patience: Patience, request: StageRequest, log: Path, opened: OpenedFiles
) -> Iterator[bytes]:
    """The worker's answers until it closes its output; raises `_failure` when it takes too long or too much memory."""
    assert process.stdout is not None
    buffer = b""
    begin = heard = looked = time.monotonic()
    while (now := time.monotonic()) < min(begin + patience.whole_s, heard + patience.silence_s):
        if now - looked >= child_process.LOOK_S:
            _check_memory(request, process.pid)
            looked = now
        if patience.over.is_set():
            raise StageFailed(f"{request['stage']}: stopped, as the run ended")
        waits, output = opened.waits, process.stdout.fileno()
        ready, _, _ = select.select([output, *waits], [], [], child_process.LOOK_S)
        if waits and waits[0] in ready:
            opened.serve()
        if output not in ready:
            continue
        block = os.read(output, 1 << 16)
        if not block:
            return
        heard = now
        *lines, buffer = (buffer + block).split(b"\n")
        yield from lines
        if len(buffer) > LONGEST:
            yield buffer  # no answer is so long
    quiet = f" and no progress for {now - heard:.0f} s" if now - heard >= patience.silence_s else ""
    raise _failure(request, f"no end after {now - begin:.0f} s{quiet}, stopped (log: {log})")


def _check_memory(request: StageRequest, pid: int) -> None:
    """Of a stage that reads a stranger's file all processes count together: what it starts is no way out."""
    files = request["reads"]
    try:
        child_process.check_memory((*files, request["stage"])[0], pid, request["limits"]["resident_bytes"], bool(files))
    except TooMuchMemory as error:
        if files:
            raise InputError(str(error)) from error
        raise


def _failure(request: StageRequest, what: str) -> EdgeError:
    """What broke a worker, in words, as an error: of one that reads a stranger's file that is the file's fault."""
    if request["reads"]:
        return InputError(f"{request['reads'][0]}: cannot be read: {what}; {sandbox.SMALLER}")
    return StageFailed(f"{request['stage']}: {what}")


def _ending(process: Child, log: Path) -> str:
    """How a worker ended that gave no answer, in words."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=5)
    code = process.returncode
    if code is None:
        return f"its process closed its output and did not end (log: {log})"
    if code < 0:
        name = signal.Signals(-code).name
        hints = {"SIGKILL": "out of memory?", "SIGXCPU": "its limit of CPU time"}
        return f"its process was ended by {name} ({hints.get(name, 'a crash in native code')}{_limited()}; log: {log})"
    return f"its process ended with code {code} and no answer (log: {log}{_limited()})"


def _limited() -> str:
    """The limit of address space that this process was started with, which few libraries tell that they met."""
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return "" if most == resource.RLIM_INFINITY else f"; `ulimit -v` allows it {most / 2**30:.1f} GiB: raise it"


def _environment(offline: bool, scratch: Path, alone: bool) -> dict[str, str]:
    """What a worker inherits. Libraries that never clear what they leave in the temporary folder leave it in ours.

    What works beside others waits for its threads as SPINS says: by default the threads of two that build spin on the
    processors that each other's work needs, and both take five times as long.
    """
    extra = {"PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false", "TMPDIR": str(scratch)}
    extra["PYTHONSAFEPATH"] = "1"  # nor does a Python that a library starts find modules in the working folder
    extra["ORT_DISABLE_TELEMETRY"] = "1"  # ONNX Runtime's own: what is deployed here is nobody's business
    extra["HOME"] = str(home.home())
    if not alone:
        extra |= {name: os.environ.get(name, value) for name, value in SPINS.items()}
    if not home.has_account():
        extra["LOGNAME"] = str(os.getuid())  # PyTorch wants a name
    if not os.path.exists(home.home() / ".keras"):
        extra["KERAS_HOME"] = str(scratch / "keras")  # it would write its defaults there
    if offline:
        extra |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return {**os.environ, **extra}
