"""Mode round: a session of each artifact in a process of its own, all open together, their windows by turns."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import json
import os
import select
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypedDict, cast

from edgecompress.core import child_process
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.device.agent import disturbance, window_schedule
from edgecompress.device.agent.disturbance import Window
from edgecompress.device.agent.session import LATENCIES, WINDOW, SessionAnswer
from edgecompress.device.request import REQUEST, RESULT, AgentRequest

MODULE = "edgecompress.device.agent"
ENDING_S = 60.0  # for a session to write what it has
TOGETHER = 4  # times the memory of the largest session so far that must be free before another one begins


class TurnsTaken(TypedDict):
    """What the windows of a session were."""

    windows_ms: list[float | None]  # the median of each turn; None where something disturbed it
    rough_ms: list[float]  # the medians of all turns, whatever disturbed them
    repeated: int
    noisy: str  # why nothing can be said of the session, or ""
    n: int  # of what was kept, as all below
    window_s: float
    cpu_s: float
    preempted: int | None
    stolen_s: float | None
    others_s: float | None


class RoundSession(TurnsTaken, SessionAnswer):
    """A session of a round."""


class Crashed(TypedDict):
    """In the place of a session's numbers: why there are none."""

    crashed: str


class RoundAnswer(TypedDict):
    """The answer of mode round: by label; the latencies of each are LABEL/LATENCIES."""

    sessions: dict[str, RoundSession | Crashed]


def run(request: AgentRequest, out: Path) -> RoundAnswer:
    """A session of each of `artifacts`; those that do not fit into memory together follow one another."""
    answers: dict[str, RoundSession | Crashed] = {}
    left = list(request.artifacts)
    while left:
        opened, left = _open(request, left, out, answers)
        answers |= _by_turns(request, opened)
    return {"sessions": {label: answers[label] for label in request.artifacts}}


def _open(
    request: AgentRequest, labels: list[str], out: Path, answers: dict[str, RoundSession | Crashed]
) -> tuple[dict[str, SessionProcess], list[str]]:
    """The sessions that fit into memory together, warm, one after the other; and the labels that are left."""
    opened: dict[str, SessionProcess] = {}
    for number, label in enumerate(labels):
        free = _free_bytes()
        if opened and free is not None and free < TOGETHER * max(each.held_bytes() for each in opened.values()):
            return opened, labels[number:]
        process = SessionProcess(request, label, out / label)
        try:
            process.answer()
            opened[label] = process
        except EdgeError as error:
            process.end()
            answers[label] = {"crashed": str(error)}
    return opened, []


def _by_turns(request: AgentRequest, opened: Mapping[str, SessionProcess]) -> Iterator[tuple[str, Any]]:
    takes = {label: functools.partial(process.ask, WINDOW) for label, process in opened.items()}
    most = max((request.own_threads.get(label, request.threads) for label in opened), default=request.threads)
    doubt = functools.partial(disturbance.cause, threads=most)
    taken = window_schedule.take(takes, request.profile["windows"], request.number, doubt)
    for label, process in opened.items():
        try:
            yield label, process.finish(taken[label])
        except EdgeError as error:
            yield label, {"crashed": str(error)}
        finally:
            process.end()


@contextlib.contextmanager
def at_once(request: AgentRequest, count: int, folder: Path) -> Iterator[Callable[[], list[Window]]]:
    """So many sessions of its artifact, warm; each call is a window of all of them at once. Raises StageFailed."""
    labels, here = [str(number) for number in range(count)], not zipfile.is_zipfile(sys.argv[0])
    runtimes = {label: request.runtime for label in labels if request.runtime}
    pythons = dict.fromkeys(labels, sys.executable if here else "")
    asked = replace(request, runtimes=runtimes, artifacts=dict.fromkeys(labels, request.artifact), pythons=pythons)
    crashed: dict[str, RoundSession | Crashed] = {}
    opened, left = _open(asked, labels, folder, crashed)
    try:
        for each in crashed.values():
            raise StageFailed(str(each.get("crashed")))
        if left:
            raise StageFailed(f"the memory holds {len(opened)} of {count} sessions")

        def window() -> list[Window]:
            for process in opened.values():
                process.say(WINDOW)
            return [cast("Window", process.answer()) for process in opened.values()]

        yield window
    finally:
        for process in opened.values():
            process.end()


def facts(taken: window_schedule.Taken) -> TurnsTaken:
    """The turns of a session as plain data."""
    kept = [taken.windows[k] for k in taken.kept]
    causes = zip(taken.windows, taken.causes, strict=True)
    preempted = [w["preempted"] for w in kept if w["preempted"] is not None]
    return {
        "windows_ms": [None if cause else window["median_ms"] for window, cause in causes],
        "rough_ms": [window["median_ms"] for window in taken.windows],
        "repeated": taken.repeated,
        "noisy": taken.noisy,
        "n": sum(w["n"] for w in kept),
        "window_s": sum(w["window_s"] for w in kept),
        "cpu_s": sum(w["cpu_s"] for w in kept),
        "preempted": sum(preempted) if preempted else None,
        "stolen_s": _sum(kept, "stolen_s"),
        "others_s": _sum(kept, "others_s"),
    }


def _sum(kept: list[Window], key: str) -> float | None:
    known = [float(w[key]) for w in kept if w[key] is not None]  # type: ignore[literal-required]
    return sum(known) if known else None


class SessionProcess:
    """The process of one session, which is told when to measure. Raises StageFailed when it ends before that."""

    def __init__(self, request: AgentRequest, label: str, folder: Path) -> None:
        folder.mkdir()
        self.label, self.folder, self.end_s = label, folder, time.monotonic() + request.deadline_s
        self.deadline_s, self.most_bytes = request.deadline_s, request.resident_bytes
        own = replace(
            request,
            mode="session",
            runtime=request.runtimes[label],
            artifact=request.artifacts[label],
            threads=request.own_threads.get(label, request.threads),
            out=str(folder),
        )
        file = folder / REQUEST
        file.write_text(replace(own, artifacts={}, runtimes={}, own_threads={}, tied=False).to_json(), encoding="utf-8")
        # by a Python here, or the file that this agent was started from
        python = request.pythons.get(label, "")
        command = child_process.python(MODULE, by=python) if python else [sys.executable, sys.argv[0]]
        with (folder / "log").open("wb") as log:
            self.process = _started([*command, str(file)], log)
        assert self.process.stdin and self.process.stdout
        self.words: IO[bytes] = self.process.stdin
        self.lines, self.read = self.process.stdout.fileno(), b""

    def ask(self, word: object) -> Any:
        """What it answers to a word."""
        self.say(word)
        return self.answer()

    def say(self, word: object) -> None:
        """Tells it a word, as JSON."""
        with contextlib.suppress(BrokenPipeError):  # it has ended: `answer` says how
            self.words.write(json.dumps(word).encode() + b"\n")
            self.words.flush()

    def answer(self) -> object:
        """The next line that it writes, as JSON. Raises StageFailed, TooMuchMemory."""
        while b"\n" not in self.read:
            if time.monotonic() > self.end_s:
                raise StageFailed(f"the agent gave no answer within {self.deadline_s:.0f} s")
            if not select.select([self.lines], [], [], child_process.LOOK_S)[0]:
                if self.most_bytes:
                    child_process.check_memory(self.label, self.process.pid, self.most_bytes)
                continue
            if not (part := os.read(self.lines, 1 << 16)):
                raise self._ended()
            self.read += part
        line, _, self.read = self.read.partition(b"\n")
        return json.loads(line)

    def _ended(self) -> EdgeError:
        """Why it ended: what it says, or how its process did."""
        code = self.process.wait()
        result = self.folder / RESULT
        if result.is_file():
            return StageFailed(str(json.loads(result.read_text(encoding="utf-8")).get("error")))
        lines = [line for line in self._log().splitlines() if line.strip()]
        return StageFailed(f"the agent {child_process.ending(code, 0.0)}{f': {lines[-1]}' if lines else ''}")

    def _log(self) -> str:
        return (self.folder / "log").read_text(encoding="utf-8", errors="replace")

    def finish(self, taken: window_schedule.Taken) -> RoundSession:
        """Its answer, after its last window. Raises StageFailed where it has ended, or ends now, without one."""
        if taken.crashed:
            raise StageFailed(taken.crashed)
        self.say([taken.numbers[k] for k in taken.kept])
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(ENDING_S)
        if self.process.poll() != 0:
            raise self._ended() if self.process.poll() is not None else StageFailed("the agent did not end")
        session: SessionAnswer = json.loads((self.folder / RESULT).read_text(encoding="utf-8"))
        return {**session, **facts(taken)}

    def end(self) -> None:
        """Ends it; its log goes to ours, and its folder keeps the latencies alone."""
        self.process.kill()
        self.process.communicate()
        sys.stderr.write(self._log())
        for name in (REQUEST, RESULT, "log"):
            (self.folder / name).unlink(missing_ok=True)
        if not (self.folder / LATENCIES).exists():
            shutil.rmtree(self.folder)

    def held_bytes(self) -> int:
        """Its resident memory; 0 where the kernel does not tell."""
        return _kib(Path(f"/proc/{self.process.pid}/status"), "VmRSS:") or 0


def _started(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """The process of an agent; a copy of this one where this Python is emulated, so that the kernel cannot start it."""
    try:
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise
    copy = functools.partial(_as_agent, command[-1])
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, preexec_fn=copy)


def _as_agent(file: str) -> None:
    """Answers a request in a copy of this process, and ends it."""
    code = 1
    try:
        os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # Popen waits for the end of one of them
        sys.argv = [sys.argv[0], file]
        code = importlib.import_module(f"{MODULE}.__main__").main()
    finally:
        os._exit(code)


def _free_bytes() -> int | None:
    """Memory that a new process can have without swapping; None where the kernel does not tell."""
    return _kib(Path("/proc/meminfo"), "MemAvailable:")


def _kib(file: Path, key: str) -> int | None:
    """The bytes of an entry of a file of /proc."""
    try:
        lines = file.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(key)), None)
