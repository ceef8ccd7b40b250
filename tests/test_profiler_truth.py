"""The profiler against what is known: a net that logs its own time, memory it touches, an exact integral of power."""

from __future__ import annotations

import csv
import dataclasses
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import bench_inputs
import pytest

from edgecompress.core.settings import Profile
from edgecompress.stages import energy, latency

LONGER = Profile("long enough for a median", 1, 0.1, 3, 0.6, 60, 2, 1.0, idle_s=0.5, warmup_cap_s=1.0)

# --------------------------------------------------------------------------- latency and memory


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.parametrize("behaviour", [{"spin_ms": 6.0}, {"sleep_ms": 8.0}, {"sleep_ms": 5.0, "spin_ms": 12.0}])
def test_latency_is_what_the_net_logged_of_itself_within_1_percent(tmp_path, monkeypatch, behaviour):
    log = tmp_path / "log"
    monkeypatch.setenv("EDGECOMPRESS_NULL_LOG", str(log))
    variants = {"net": bench_inputs.net(tmp_path / "net", **behaviour)}
    asked = bench_inputs.request(tmp_path, variants, profile=dataclasses.asdict(LONGER))
    told = latency.round(asked).facts["variants"]["net"]
    least = 0.8 * max(behaviour.values())  # it sleeps while it spins; the empty net's runs are shorter
    logged = [ms for ms in map(float, log.read_text().split()) if ms > least]
    assert told["n"] >= 60
    assert told["median_ms"] == pytest.approx(statistics.median(logged), rel=0.01)
    kept = json.loads((asked.out / "net.json").read_text())["latencies_ms"]
    assert len(kept) == told["n"] and statistics.median(kept) == pytest.approx(told["median_ms"])
    # each is a run that the net logged, in that order, with nothing of it left out: only what the machine delayed
    # differs. The log has more: the warm-up, the first run of a window, windows that were repeated.
    assert most_in_order(kept, logged, lambda a, b: b <= a <= 1.02 * b) >= 0.8 * len(kept)


def most_in_order(kept: list[float], logged: list[float], same: Callable[[float, float], bool]) -> int:
    """The length of the longest common subsequence of both, where `same` tells which elements are equal."""
    best = [0] * (len(logged) + 1)
    for a in kept:
        last = best
        best = [0]
        for number, b in enumerate(logged):
            best.append(last[number] + 1 if same(a, b) else max(last[number + 1], best[number]))
    return best[-1]


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [64, 200])
def test_memory_that_a_net_touches_is_found_within_5_percent(tmp_path, mebibytes):
    variants = {"net": bench_inputs.net(tmp_path / "net", touch_bytes=mebibytes << 20)}
    told = latency.round(bench_inputs.request(tmp_path, variants)).facts["variants"]["net"]["memory"]
    assert told["peak_rss_bytes"] == pytest.approx(mebibytes << 20, rel=0.05)
    assert told["file_backed_bytes"] < 4 << 20  # all of it is the process's own


@pytest.mark.slow
def test_a_net_that_touches_nothing_costs_nearly_nothing_over_the_baseline(tmp_path):
    variants = {"net": bench_inputs.net(tmp_path / "net")}
    long = dataclasses.replace(LONGER, window_s=1.5)  # tens of thousands of runs: the record itself must not count
    told = latency.round(bench_inputs.request(tmp_path, variants, profile=dataclasses.asdict(long)))
    assert told.facts["variants"]["net"]["memory"]["peak_rss_bytes"] < 2 << 20


# --------------------------------------------------------------------------- energy


@dataclasses.dataclass(frozen=True)
class Power:
    """P(t) = a + b sin(2 pi f t + phase): its integral is known exactly."""

    a: float
    b: float
    f: float
    phase: float

    def watts(self, t: float) -> float:
        return self.a + self.b * math.sin(2 * math.pi * self.f * t + self.phase)

    def joules(self, begin: float, end: float) -> float:
        rate = 2 * math.pi * self.f
        return self.a * (end - begin) - self.b / rate * (
            math.cos(rate * end + self.phase) - math.cos(rate * begin + self.phase)
        )


def jittered(draw: random.Random, begin: float, end: float) -> list[float]:
    """Sampling times at 50 to 200 Hz, each interval up to 40 % off."""
    period, times = 1 / draw.uniform(50, 200), [begin]
    while times[-1] < end:
        times.append(times[-1] + period * draw.uniform(0.6, 1.4))
    return times


def write(file: Path, column: str, times: list[float], value: Callable[[float], float]) -> Path:
    """The instrument's own file: its clock, its column."""
    with file.open("w", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(["t_s", column])
        rows.writerows((repr(t), repr(value(t))) for t in times)
    return file


@pytest.mark.slow
def test_energy_per_inference_of_the_whole_way_is_the_integral_over_the_windows(tmp_path):
    draw, truth = random.Random(5), Power(12.0, 5.0, 0.7, 1.0)
    begin = time.monotonic()
    file = write(tmp_path / "trace.csv", "power_w", jittered(draw, begin - 1.3, begin + 60), truth.watts)
    device = {"sensors": ("replay",), "options": {"replay": {"file": str(file), "offset_s": 0.0}}}
    variants = {"net": bench_inputs.net(tmp_path / "net", spin_ms=4.0)}
    asked = bench_inputs.request(tmp_path, variants, device, profile=dataclasses.asdict(LONGER))
    facts = energy.energy(asked).facts
    numbers = {m["metric"]: m for m in facts["variants"]["net"]}
    windows = json.loads((asked.out / "net.json").read_text())["windows"]
    each = [truth.joules(w["begin_s"], w["begin_s"] + w["seconds"]) / w["n"] for w in windows]
    assert facts["sensor"] == "replay" and numbers["energy_gross"]["status"] == "replayed"
    assert len(windows) == 2 and all(w["seconds"] >= 1.0 for w in windows)
    assert numbers["energy_gross"]["value"] == pytest.approx(1e3 * statistics.median(each), rel=0.01)
    assert numbers["inferences_per_joule"]["value"] == pytest.approx(statistics.median(1 / e for e in each), rel=0.01)


# --------------------------------------------------------------------------- the agent's own cost


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.prove
def test_onnxruntime_is_as_fast_under_the_agent_as_in_a_bare_loop(tmp_path):
    program = Path(__file__).parent.parent / "benchmarks" / "agent_overhead.py"
    argv = [sys.executable, str(program), "--rounds", "8", "--seconds", "0.2"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert abs(json.loads(done.stdout)["ratio"] - 1) <= 0.03
