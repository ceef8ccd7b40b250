"""Mode profiler: what a profiler plug-in finds in an artifact."""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, StageFailed, kind_of
from edgecompress.core.model import Artifact
from edgecompress.core.protocols import Meter, Session, StartTimes, TimedWindow, WarmUp, Windows
from edgecompress.device.agent import measuring_round
from edgecompress.device.agent.environment import environment
from edgecompress.device.agent.inputs import preloaded, runtime_module
from edgecompress.device.agent.timing import Inputs, Run, timed, warm_up
from edgecompress.device.request import REQUEST, RESULT, AgentRequest

if TYPE_CHECKING:
    import numpy as np

START = "import sys\nsys.path[:] = {path!r}\nfrom edgecompress.device.agent.__main__ import main\nsys.exit(main())\n"


def run(request: AgentRequest, out: Path) -> dict[str, object]:
    """The result of a profiler, with the batch and the environment."""
    if request.profiler is None:
        raise InputError("agent: mode 'profiler' needs a profiler")
    module = importlib.import_module(request.profiler.module)
    subject = ArtifactSubject(request, out)
    findings = module.measure(subject, module.Options(**request.profiler.options))
    return {**findings, "batch": subject.batch, "environment": environment(request, subject.runtime)}


class ArtifactSubject:
    """What a profiler is given: core.protocols.Subject says what each part is."""

    def __init__(self, request: AgentRequest, out: Path) -> None:
        self.request, self.out = request, out
        self.profile = request.profile
        self.batch, self.threads = request.batch, request.threads
        self.root = Path(request.root)
        self.runtime = runtime_module(request)
        self.model = Artifact.read(Path(request.artifact))

    def open(self, profile: bool = False) -> Session:
        """A new session."""
        session: Session = self.runtime.open(self.model, self.threads, profile)
        return session

    def start(self) -> StartTimes:
        """What mode `start` answers, from a process of its own that ends with this one."""
        with tempfile.TemporaryDirectory(dir=self.out) as folder:
            file, script = Path(folder) / REQUEST, Path(folder) / "start.py"
            file.write_text(replace(self.request, mode="start", tied=True, out="").to_json(), encoding="utf-8")
            script.write_text(START.format(path=sys.path), encoding="utf-8")
            with subprocess.Popen([sys.executable, str(script), str(file)], stdin=subprocess.PIPE) as child:
                code = child.wait()
            if not file.with_name(RESULT).exists():
                raise StageFailed(f"a fresh process ended with code {code} and no result")
            answer = json.loads(file.with_name(RESULT).read_text(encoding="utf-8"))
        if "error" in answer:
            raise kind_of(answer["class"])(answer["error"])
        times: StartTimes = answer
        return times

    def inputs(self, batch: int | None = None) -> list[dict[str, np.ndarray]]:
        """Batches of real inputs, in memory. Raises InputError where the model is made for another batch."""
        return preloaded(replace(self.request, batch=batch or self.batch), self.model)

    def timed(self, run: Run, inputs: Sequence[Inputs], seconds: float, runs: int) -> array.array[int]:
        """Nanoseconds of each run, for at least `seconds` and `runs`."""
        return timed(run, inputs, seconds, runs)

    def warm_up(self, run: Run, inputs: Sequence[Inputs]) -> WarmUp:
        """Runs until the latency is steady."""
        return warm_up(run, inputs, self.profile)

    @contextlib.contextmanager
    def at_once(self, sessions: int, seconds: float, runs: int) -> Iterator[Callable[[], Sequence[TimedWindow]]]:
        """Opens sessions in processes of their own; each call times runs of all at once."""
        profile: Windows = {**self.profile, "windows": 1, "window_s": seconds, "window_runs": runs}
        with tempfile.TemporaryDirectory(dir=self.out) as folder:
            asked = replace(self.request, profile=profile, profiler=None, sensors=(), batch=self.batch)
            with measuring_round.at_once(asked, sessions, Path(folder)) as window:
                yield window

    def meter(self) -> tuple[Meter | None, str]:
        """The first of the device's sensors of energy that reads, or why none does."""
        reasons = []
        for named in self.request.sensors:
            sensor = importlib.import_module(named.module)
            why_not = sensor.unavailable(self.request.device, self.root)
            if not why_not and sensor.STATUS != "estimated":
                return sensor.open(self.request.device, self.root), ""
            reasons.append(f"{named.name}: {why_not or 'it only estimates'}")
        return None, "; ".join(reasons) or "the device names no sensor of energy"
