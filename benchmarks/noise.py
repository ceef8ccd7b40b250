"""Do the race and its numbers hold on a noisy machine? Nets of known speed are raced while other work runs.

    python benchmarks/noise.py [--runs 3] [--only quiet,bursts,...] [--seed 0] [--json]
    python benchmarks/noise.py --simulated [--runs 100]

Each race has three nets 2 to 20 % apart, in a random order of the target, and a reference of twice the time. Meanwhile
nothing else runs that this script starts, or 1, 2 or 4 busy processes, or bursts of two, or the whole group of the
processes that measure is stopped and continued (SIGSTOP). Each row is a promise: how often it was kept, and the chance
of that if it holds (one-sided binomial; below 1 % it is broken): the ratio to the reference lies in its interval; where
a variant is too noisy to compare, nothing is told of it; on a quiet machine that is rare; what ships is within 3 % of
the fastest. `--simulated` draws the windows and what the kernel counts of them, as Linux, macOS and a system that
counts nothing tell them: it takes seconds, and depends on no machine. Exit 1 when a promise is broken.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import coverage
import figures
import numpy as np

from edgecompress.core import stats
from edgecompress.core.model import Artifact, Choice, Context, Dim, Outcome, Request, Stage, TensorSpec
from edgecompress.core.settings import Device, Profile, Variant
from edgecompress.data import tensors
from edgecompress.device.agent import disturbance, window_schedule
from edgecompress.device.agent import measuring_round as rounds
from edgecompress.engines.null.runtimes import null
from edgecompress.pipeline.candidate_variant import Candidate
from edgecompress.pipeline.searches.race import Race
from edgecompress.reporting import sessions
from edgecompress.stages import latency

PROFILE = Profile("of the races", 6, 0.1, 3, 0.5, 20, 0, 0, more_sessions=3, warmup_cap_s=1.0)
NEAR = 1.03  # of the fastest: what ships is within it
WITHIN, TOO_NOISY = 0.97, 0.05  # of the races: at least, at most
FASTEST_MS = (0.5, 4.0)
APART = (1.02, 1.20)
REFERENCE = "reference"
Round = Callable[[Stage], Artifact]  # measures the round of a stage


@dataclass(frozen=True)
class Raced:
    """How one race ended."""

    within: bool  # what shipped is within NEAR of the fastest
    noisy: bool  # what shipped, or the reference, was too noisy to compare
    told: bool  # a factor between the two was told all the same
    hit: bool | None  # the interval of the factor holds the truth; None where none is told


def main() -> int:
    parser = figures.flags(__doc__)
    parser.add_argument("--runs", type=int, help="races under each load; 3, or 100 where they are simulated")
    parser.add_argument("--only", default="", help="loads, separated by commas")
    parser.add_argument("--simulated", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    count = asked.runs or (100 if asked.simulated else 3)
    every = simulated(count, asked.seed) if asked.simulated else measured(count, asked.seed)
    wanted = asked.only.split(",") if asked.only else ()
    races = {name: found() for name, found in every.items() if not wanted or name in wanted}
    found = [row for name, each in races.items() for row in promises(name, each) if row.trials]
    if asked.json:
        print(json.dumps([{**vars(row), "share": row.share, "kept": row.kept} for row in found]))
    else:
        print(f"{count} races under each load{', simulated' if asked.simulated else ''}, seed {asked.seed}\n")
        print(coverage.table(found))
    return 0 if all(row.kept for row in found) else 1


def promises(load: str, races: Sequence[Raced]) -> Iterator[coverage.Row]:
    """What must hold under a load."""
    clear, told = [r for r in races if not r.noisy], [r.hit for r in races if r.hit is not None]
    yield coverage.Row(load, "the factor's interval", sum(told), len(told), stats.COVERAGE)
    told_of_noisy = sum(r.noisy and r.told for r in races)
    yield coverage.Row(load, "told though too noisy", told_of_noisy, len(races), 0.0, at_most=True)
    if load.startswith("quiet"):
        noisy = sum(r.noisy for r in races)
        yield coverage.Row(load, "too noisy", noisy, len(races), TOO_NOISY, at_most=True)
    yield coverage.Row(load, "shipped within 3 %", sum(r.within for r in clear), len(clear), WITHIN)


# --------------------------------------------------------------------------- a race


def race(truth: Mapping[str, float], measure: Round) -> Raced:
    """A race of nets whose times are known, in the order of the target."""
    entrants = [Candidate(Variant(n, reference=n == REFERENCE), "null", n, f"{n}/verify") for n in truth]
    search, measured_rounds = Race(tuple(entrants), PROFILE), dict[str, Artifact]()
    outcomes = {e.verdict: Outcome(e.verdict, "ok") for e in entrants}
    while not isinstance(step := search.step(outcomes), Choice):
        for stage in step:
            if stage.name.startswith("race/"):
                measured_rounds[stage.name.removeprefix("race/")] = measure(stage)
                outcomes[stage.name] = Outcome(stage.name, "ok", measured_rounds[stage.name.removeprefix("race/")])
            else:
                outcomes[stage.name] = Outcome(stage.name, "ok")
    return _ended(step, truth, measured_rounds)


def _ended(choice: Choice, truth: Mapping[str, float], measured_rounds: Mapping[str, Artifact]) -> Raced:
    """The end of a race, with the factor as a report tells it."""
    ships, slow = (sessions.of_variant(measured_rounds, name)[0] for name in (choice.stage, REFERENCE))
    factor = sessions.improvement(slow, ships, sessions.LATENCY) if choice.stage != REFERENCE else None
    noisy = any(choice.table[name]["median_ms"] is None for name in (choice.stage, REFERENCE))
    hit = None
    if factor and factor.low and factor.high and factor.n >= PROFILE.sessions:
        hit = factor.low <= truth[REFERENCE] / truth[choice.stage] <= factor.high
    within = truth[choice.stage] <= NEAR * min(truth.values())
    return Raced(within, noisy, factor is not None, hit)


def field(draw: random.Random) -> dict[str, float]:
    """Milliseconds of three nets and the reference, in the order of the target."""
    fastest_ms = math.exp(draw.uniform(*map(math.log, FASTEST_MS)))
    nets = {"a": fastest_ms, "b": fastest_ms * draw.uniform(*APART), "c": fastest_ms * draw.uniform(*APART)}
    names = draw.sample([*nets, REFERENCE], 4)
    return {name: nets.get(name, 2 * fastest_ms) for name in names}


# --------------------------------------------------------------------------- on this machine


def measured(count: int, seed: int) -> dict[str, Callable[[], list[Raced]]]:
    """The races under each load of this machine."""
    loads: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
        "quiet": contextlib.nullcontext,
        **{f"{n} busy": functools.partial(busy, n) for n in (1, 2, 4)},
        "bursts": functools.partial(busy, 2, BURSTS),
        "stopped": stopped,
    }

    def races(name: str) -> list[Raced]:
        draw = random.Random(f"{seed} {name}")
        with loads[name]():
            return [_here(field(draw)) for _ in range(count)]

    return {name: functools.partial(races, name) for name in loads}


def _here(wanted_ms: Mapping[str, float]) -> Raced:
    """A race of null nets with as many steps as take these times."""
    overhead_ms, step_ms = speed()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        steps = {name: max(1, round((ms - overhead_ms) / step_ms)) for name, ms in wanted_ms.items()}
        inputs = {name: _net(folder / name, work) for name, work in steps.items()} | {"samples": _samples(folder)}
        truth = {name: overhead_ms + work * step_ms for name, work in steps.items()}

        def measure(stage: Stage) -> Artifact:
            out = folder / stage.name
            out.mkdir(parents=True)
            own = {name: inputs[name] for name in (*stage.options["runtimes"], "samples")}
            device = {**dataclasses.asdict(Device("this machine")), "cores": os.cpu_count()}
            return latency.round(Request(own, out, stage.options, Context(device=device)))

        return race(truth, measure)


def _spec(work: int) -> null.NullNet:
    batch = Dim("batch", 1, 64)
    return null.NullNet((TensorSpec("x", (batch, 6)),), (TensorSpec("y", (batch, 3)),), work=work)


def _net(folder: Path, work: int) -> Artifact:
    folder.mkdir()
    net = _spec(work)
    null.write(folder / "model.null", net)
    return Artifact(folder, "null", net.inputs, net.outputs).write()


def _samples(folder: Path) -> Artifact:
    tensors.write_split(folder / "samples/test", {"x": np.zeros((4, 6), np.float32)})
    return Artifact(folder / "samples", "samples", (TensorSpec("x", (Dim("batch", 1, 64), 6)),)).write()


@functools.cache
def speed() -> tuple[float, float]:
    """Milliseconds of a run without steps, and of one step: the least of many, which other work does not change."""

    def least_ms(work: int) -> float:
        session, inputs = null.NullSession(_spec(work)), {"x": np.zeros((1, 6), np.float32)}
        edges = [time.perf_counter()]
        for _ in range(300):
            session.run(inputs)
            edges.append(time.perf_counter())
        return 1e3 * min(b - a for a, b in itertools.pairwise(edges))

    overhead_ms, steps = least_ms(0), 100_000
    return overhead_ms, (least_ms(steps) - overhead_ms) / steps


BUSY = "while True: pass"
BURSTS = (
    "import random, time\nwhile True:\n    end = time.monotonic() + random.uniform(0.05, 1.0)\n"
    "    while time.monotonic() < end: pass\n    time.sleep(random.uniform(0.05, 1.0))"
)


@contextlib.contextmanager
def busy(count: int, code: str = BUSY) -> Iterator[None]:
    """So many processes beside what is measured."""
    speed()  # before they begin
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextlib.contextmanager
def stopped() -> Iterator[None]:
    """Now and then the whole group of processes that measures stands still."""
    speed()
    over = threading.Event()
    thread = threading.Thread(target=_stop_now_and_then, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _stop_now_and_then(over: threading.Event) -> None:
    draw = random.Random(0)
    while not over.wait(draw.uniform(0.05, 1.5)):
        for group in _groups():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGSTOP)
                time.sleep(draw.uniform(0.02, 0.5))
                os.killpg(group, signal.SIGCONT)


def _groups() -> list[int]:
    """Of the children of this process, which are leaders of groups of their own."""
    tasks = Path("/proc/self/task").iterdir()
    children = [int(pid) for task in tasks for pid in (task / "children").read_text(encoding="ascii").split()]
    return [pid for pid in children if os.getpgid(pid) == pid]


# --------------------------------------------------------------------------- simulated

SLICE_MS = 4.0  # that a process computes before another one that waits gets its processor
CORES, UNEVEN, JITTER, TAIL = 2, 0.01, 0.01, 0.02
TELLS = {"Linux": (), "macOS": ("waited_s", "stolen_s", "others_s"), "nothing": ()}
TELLS["nothing"] = (*TELLS["macOS"], "preempted", "gave_up")


@dataclass
class Machine:
    """A machine whose other processes and standstills are drawn; `now_s` is its clock."""

    draw: np.random.Generator
    others: Callable[[float], int]  # busy processes at a time
    stops_per_s: float = 0.0
    silent: Sequence[str] = ()  # what its kernel does not tell
    now_s: float = 0.0

    def window(self, run_ms: float) -> disturbance.Window:
        """A window of a net of so many milliseconds per run, after its process, and what the kernel counts of it."""
        seconds = PROFILE.window_s / PROFILE.windows
        count = max(math.ceil(1e3 * seconds / run_ms), -(-PROFILE.window_runs // PROFILE.windows))
        late = np.where(self.draw.random(count) < TAIL, self.draw.uniform(0.1, 1.0, count), 0.0)
        cpu_ms = run_ms * np.exp(JITTER * self.draw.normal(size=count)) * (1 + late)
        busy = self.others(self.now_s)
        wait_ms = SLICE_MS * max(0.0, (busy + 1) / CORES - 1)
        at = np.floor((np.cumsum(cpu_ms) + self.draw.uniform(0, SLICE_MS)) / SLICE_MS)
        turns_lost = np.diff(at, prepend=0.0 if at[0] else at[0]).clip(0) * (wait_ms > 0)
        waited_ms = turns_lost * wait_ms * self.draw.exponential(1.0, count)
        stops = self.draw.poisson(self.stops_per_s * (cpu_ms + waited_ms) / 1e3)
        times_ms = cpu_ms * (1 + 0.03 * busy) + waited_ms + stops * self.draw.uniform(20, 500, count)
        self.now_s += times_ms.sum() / 1e3
        counted = {"cpu_s": cpu_ms.sum() * (1 + 0.03 * busy) / 1e3, "waited_s": waited_ms.sum() / 1e3}
        return self._told(
            times_ms, run_ms, {**counted, "preempted": int(turns_lost.sum()), "gave_up": 0, "stolen_s": 0.0}
        )

    def _told(self, times_ms: Any, run_ms: float, counted: Mapping[str, Any]) -> disturbance.Window:
        long = times_ms[times_ms > disturbance.LONG * run_ms] - run_ms
        known: Any = {"n": len(times_ms), "window_s": times_ms.sum() / 1e3, "median_ms": float(np.median(times_ms))}
        known |= {**counted, "others_s": 0.0, "long_s": long.sum() / 1e3}
        told: disturbance.Window = {**known, **dict.fromkeys(self.silent, None)}
        return told


def simulated(count: int, seed: int) -> dict[str, Callable[[], list[Raced]]]:
    """The races under each load, as each kind of kernel tells of it."""

    def bursts(draw: np.random.Generator) -> Callable[[float], int]:
        edges = np.cumsum(draw.uniform(0.05, 1.0, 4000))
        return lambda now_s: 2 * int(np.searchsorted(edges, now_s) % 2)

    def races(load: str, kernel: str) -> list[Raced]:
        draw, order = np.random.default_rng([seed, len(load), len(kernel)]), random.Random(f"{seed} {load} {kernel}")
        others = bursts(draw) if load == "bursts" else lambda now_s: _busy(load)
        stops = 1.0 if load == "stopped" else 0.0
        return [_drawn(field(order), Machine(draw, others, stops, TELLS[kernel])) for _ in range(count)]

    loads = ("quiet", "1 busy", "2 busy", "4 busy", "bursts", "stopped")
    return {f"{load}, {k}": functools.partial(races, load, k) for k in TELLS for load in loads}


def _busy(load: str) -> int:
    return int(load.split()[0]) if load[0].isdigit() else 0


def _drawn(truth: Mapping[str, float], machine: Machine) -> Raced:
    """A race on a simulated machine, through the agent's turns and the decision what is doubtful."""

    def measure(stage: Stage) -> Artifact:
        levels = {name: float(np.exp(UNEVEN * machine.draw.normal())) for name in stage.options["runtimes"]}
        takes = {name: functools.partial(machine.window, truth[name] * level) for name, level in levels.items()}
        doubt = functools.partial(disturbance.cause, threads=1)
        taken = window_schedule.take(takes, PROFILE.windows, stage.options["number"], doubt)
        numbers = {name: _numbers(rounds.facts(each)) for name, each in taken.items()}
        return Artifact(Path("nowhere"), "round", facts={"variants": numbers})

    return race(truth, measure)


def _numbers(told: rounds.TurnsTaken) -> dict[str, Any]:
    known = [ms for ms in told["windows_ms"] if ms is not None]
    median_ms = None if told["noisy"] else statistics.median(known)
    return {**told, "median_ms": median_ms, "memory": {"peak_rss_bytes": None}}


if __name__ == "__main__":
    sys.exit(main())
