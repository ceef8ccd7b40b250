"""The passes: throttling is flagged and noise is not, stalls are not omitted, energy and memory add up."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import bench_inputs
import pytest
from fake_subject import Clock, FakeSubject

from edgecompress.core import registry
from edgecompress.core.errors import ConfigError, NotFound, StageFailed
from edgecompress.core.model import Artifact
from edgecompress.core.protocols import Meter
from edgecompress.device import agent_client, bundle
from edgecompress.device.agent import timing
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.plugins.profilers import _machine, cold, memory, periodic, roofline, streams, sustained, throughput
from edgecompress.plugins.sensors import replay
from edgecompress.plugins.transports import host
from edgecompress.stages import profilers
from edgecompress.testing import conformance

FREQUENCY = "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
TEMPERATURE = "sys/class/thermal/thermal_zone0/temp"
EVENTS = "sys/devices/system/cpu/cpu0/thermal_throttle/core_throttle_count"
NOT_HELD = sustained._Held(None, ())


def tell(root: Path, file: str, value: object) -> None:
    """A file of /sys below a root."""
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    (root / file).write_text(f"{value}\n")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that only a sleep makes go: what is told of time is exact, however busy this machine is."""
    found = Clock()
    for module in (timing, sustained, periodic, throughput):
        monkeypatch.setattr(module, "time", found)
    return found


def meter(folder: Path, watts: float) -> Meter:
    """A sensor that replays a constant power, for twenty minutes of the clock above."""
    rows = "".join(f"{i},{watts}\n" for i in range(1200))
    (folder / "trace.csv").write_text("t_s,power_w\n" + rows)
    return replay.open({"options": {"replay": {"file": str(folder / "trace.csv"), "offset_s": 0.0}}}, folder)


def sleeping(clock: Clock, seconds: float) -> Callable[[Mapping[str, Any]], None]:
    """A session's run that takes so long."""
    return lambda inputs: clock.sleep(seconds)


def asked(folder: Path, model: Artifact, name: str, **options: Any) -> dict[str, Any]:
    """What is asked of an agent about a pass over a net."""
    return {
        "mode": "profiler",
        "runtime": {"name": model.kind, "module": registry.load("runtimes", model.kind).__name__},
        "artifact": str(model.path),
        "samples": str(conformance.samples(model, folder).path),
        "threads": 1,
        "batch": 1,
        "profile": {"warmup_s": 0.02, "warmup_runs": 2, "warmup_tolerance": 0.5, "warmup_cap_s": 0.1},
        "device": {"options": {}},
        "profiler": {"name": name, "module": f"edgecompress.plugins.profilers.{name}", "options": options},
    }


def ask(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    (folder / "result").mkdir()
    return agent_client.ask(host.connect({}), bench_inputs.agent_request(request), folder / "result", 60)


# --------------------------------------------------------------------------- sustained


class Device:
    """One that gets hot: after a minute its clock falls and a run takes twice as long."""

    def __init__(self, root: Path, clock: Clock) -> None:
        self.root, self.clock, self.hot = root, clock, False
        self.set(mhz=2400, celsius=40)

    def set(self, mhz: int, celsius: int) -> None:
        tell(self.root, FREQUENCY, mhz * 1000)
        tell(self.root, TEMPERATURE, celsius * 1000)

    def run(self, inputs: Mapping[str, Any]) -> None:
        if self.clock.monotonic() > 90 and not self.hot:
            self.set(mhz=1200, celsius=85)
            self.hot = True
        self.clock.sleep(0.4 if self.hot else 0.2)


def test_a_device_that_throttles_is_flagged_with_its_clock_and_temperature(tmp_path, clock):
    subject = FakeSubject(Device(tmp_path, clock).run, tmp_path, meter(tmp_path, 5.0))
    answer = sustained.measure(subject, sustained.Options())
    flag, series = answer["throttling"], answer["series"]
    assert flag["flagged"] is True and answer["ratio"] == pytest.approx(0.5, rel=1e-3)
    assert flag["evidence"] == ["clock 2400 to 1200 MHz", "temperature 40 to 85 °C"]
    assert len(series) == 60 and series[-1]["t_s"] == pytest.approx(590, abs=6)
    assert [series[i]["median_ms"] for i in (0, -1)] == [200.0, 400.0]
    assert all(row["power_w"] == pytest.approx(5.0) for row in series)
    assert answer["power"]["status"] == "replayed"
    assert "5 W at first, 5 W at last (replayed, board)" in sustained.lines(answer)[0]
    assert answer["clock_reason"] == answer["temperature_reason"] == ""
    assert any(line.startswith("THROTTLED: ") for line in sustained.lines(answer))


def test_a_steady_device_is_not_flagged_and_says_what_it_cannot_tell(tmp_path, clock):
    answer = sustained.measure(FakeSubject(sleeping(clock, 0.25), tmp_path), sustained.Options())
    assert answer["throttling"]["flagged"] is False and answer["throttling"]["evidence"] == []
    assert "cpufreq" in answer["clock_reason"] and "thermal" in answer["temperature_reason"]
    assert answer["power"] == {"status": "unavailable", "source": "", "scope": "", "reason": "no sensor in this test"}
    assert {row["power_w"] for row in answer["series"]} == {None} and answer["ratio"] == pytest.approx(1.0)
    assert {row["p95_ms"] for row in answer["series"]} == {None}, "40 runs hold no p95"
    json.dumps(answer, allow_nan=False)


def test_the_device_rests_before_its_burst(tmp_path, clock):
    begins = []
    act = lambda inputs: (begins.append(clock.monotonic()), clock.sleep(1.0))  # noqa: E731
    sustained.measure(FakeSubject(act, tmp_path), sustained.Options(20.0, 10.0, rest_s=45.0))
    assert begins[0] == 45.0


def test_too_few_windows_are_not_judged(tmp_path, clock):
    answer = sustained.measure(FakeSubject(sleeping(clock, 0.1), tmp_path), sustained.Options(20.0, 10.0, 0.0))
    assert answer["throttling"]["flagged"] is None and answer["ratio"] is None
    assert sustained.lines(answer) == ["sustained: 2 windows; 6 are needed to detect throttling"]


def rows(rates: list[float]) -> list[dict[str, Any]]:
    return [{"items_per_s": r, "median_ms": 1e3 / r, "cpu_mhz": None, "temperature_c": None} for r in rates]


def share_flagged(make: Callable[[random.Random], list[float]], trials: int = 200) -> float:
    """How many of seeded series are flagged."""
    flags = [sustained.verified(rows(make(random.Random(seed))), NOT_HELD)["throttling"] for seed in range(trials)]
    return sum(f["flagged"] for f in flags) / trials


def noisy(random: random.Random) -> list[float]:
    return [100 * random.gauss(1, 0.03) for _ in range(60)]


def bimodal(random: random.Random) -> list[float]:
    return [random.choice((100.0, 80.0)) * random.gauss(1, 0.01) for _ in range(60)]


def stalling(random: random.Random) -> list[float]:
    return [100 * random.gauss(1, 0.01) * (0.3 if random.random() < 0.1 else 1.0) for _ in range(60)]


def throttling(random: random.Random) -> list[float]:
    fall = random.randrange(4, 40)
    return [100 * random.gauss(1, 0.02) * (1.0 if i < fall else 0.8) for i in range(60)]


def oscillating(random: random.Random) -> list[float]:
    """Throttled by a governor that lets go now and then."""
    return [100 * random.gauss(1, 0.02) * (1.0 if i < 4 or i % 5 == 0 else 0.7) for i in range(60)]


@pytest.mark.parametrize("make", [noisy, bimodal, stalling])
def test_noise_two_speeds_and_stalls_are_called_throttling_no_oftener_than_the_test_allows(make):
    assert share_flagged(make) <= sustained.CHANCE


@pytest.mark.parametrize("make", [throttling, oscillating])
def test_throttling_is_flagged_wherever_it_begins(make):
    assert share_flagged(make) >= 0.95


def test_throttling_that_only_the_kernel_or_the_firmware_saw_is_flagged():
    steady = rows([100.0] * 12)
    for held, says in (
        (sustained._Held(3, ()), "the kernel counted 3 throttle events"),
        (sustained._Held(None, ("under-voltage",)), "the firmware reported: under-voltage"),
    ):
        flag = sustained.verified(steady, held)["throttling"]
        assert flag["flagged"] is True and says in flag["reason"] and says in flag["evidence"]


def test_the_chance_is_that_of_the_exact_permutation_test():
    assert sustained.chance([3.0, 3.1, 3.2], [1.0, 1.1, 1.2]) == pytest.approx(1 / 20)
    assert sustained.chance([1.0, 1.0, 1.0], [1.0, 1.0, 1.0]) == 1.0


def test_the_machine_is_read_below_a_root(tmp_path):
    told = (_machine.clock_mhz, _machine.temperature_c, _machine.throttle_events, _machine.cache_bytes)
    assert [read(tmp_path) for read in told] == [None] * 4
    assert _machine.firmware_limits(tmp_path) == [] and _machine.memory_bytes(tmp_path) is None
    tell(tmp_path, FREQUENCY, 1500000)
    tell(tmp_path, FREQUENCY.replace("cpu0", "cpu1"), 2400000)
    tell(tmp_path, "sys/class/hwmon/hwmon0/name", "nvme")
    tell(tmp_path, "sys/class/hwmon/hwmon0/temp1_input", 99000)
    tell(tmp_path, "sys/class/hwmon/hwmon1/name", "k10temp")
    tell(tmp_path, "sys/class/hwmon/hwmon1/temp1_input", 61000)
    tell(tmp_path, EVENTS, 7)
    for index, told_of in enumerate((("1", "Data", "32K"), ("2", "Unified", "2M"))):
        for name, value in zip(("level", "type", "size"), told_of, strict=True):
            tell(tmp_path, f"sys/devices/system/cpu/cpu0/cache/index{index}/{name}", value)
    assert [read(tmp_path) for read in told] == [2400.0, 61.0, 7, 2 << 20]
    tell(tmp_path, _machine.FIRMWARE, "0x50005")
    tell(tmp_path, "proc/meminfo", "MemTotal: 9 kB\nMemAvailable: 8 kB")
    assert _machine.firmware_limits(tmp_path) == ["under-voltage", "throttled"]
    assert _machine.memory_bytes(tmp_path) == 8192


# --------------------------------------------------------------------------- periodic


def test_a_stall_is_felt_by_every_period_that_it_made_wait(tmp_path, clock):
    """300 ms at 100 Hz: one inference of 300, but thirty of them were late."""
    calls = itertools.count()
    act = lambda inputs: clock.sleep(0.3 if next(calls) == 100 else 0.001)  # noqa: E731
    answer = periodic.measure(FakeSubject(act, tmp_path), periodic.Options(100.0, 5.0))
    assert (answer["due"], answer["n"], len(answer["responses_ms"])) == (500, 500, 500)
    assert answer["service_ms"]["p99"] == 1.0 and answer["response_ms"]["p99"] > 200
    assert answer["response_ms"]["max"] == pytest.approx(300) == answer["service_ms"]["max"]
    late = [i for i, ms in enumerate(answer["responses_ms"]) if ms > 10]
    assert late == list(range(100, 133)) and answer["missed"] == 33
    assert not answer["saturated"] and not answer["floor"]


def test_periods_that_could_not_begin_count_as_missed_and_waiting(tmp_path, clock):
    answer = periodic.measure(FakeSubject(sleeping(clock, 0.03), tmp_path), periodic.Options(100.0, 0.6))
    assert (answer["due"], answer["n"], answer["missed"]) == (60, 20, 60)
    assert answer["saturated"] and answer["floor"] and answer["duty"] == pytest.approx(1.0)
    assert answer["response_ms"]["p50"] > 100 and answer["response_ms"]["p99"] is None
    assert "SATURATED" in periodic.lines(answer)[1] and " at least " in periodic.lines(answer)[0]


def test_energy_per_period_holds_the_idle_time(tmp_path, clock):
    subject = FakeSubject(sleeping(clock, 0.001), tmp_path, meter(tmp_path, 5.0))
    answer = periodic.measure(subject, periodic.Options(20.0, 60.0))
    energy, power = answer["energy_per_period"], answer["power"]
    assert energy["value"] == pytest.approx(5.0 / 20 * 1e3) and energy["unit"] == "mJ"
    assert power["value"] == pytest.approx(5.0) and power["status"] == "replayed"
    assert answer["duty"] == pytest.approx(0.02) and answer["missed"] == 0


def test_energy_that_nothing_measures_says_why(tmp_path, clock):
    answer = periodic.measure(FakeSubject(sleeping(clock, 0.001), tmp_path), periodic.Options(20.0, 1.0))
    for metric in ("energy_per_period", "power"):
        assert answer[metric]["value"] is None and answer[metric]["reason"] == "no sensor in this test"


# --------------------------------------------------------------------------- throughput


def test_the_knee_is_the_smallest_batch_near_the_most_items_per_second(tmp_path, clock):
    """A device that takes 8 items at once, in 40 ms."""

    def act(inputs: Mapping[str, Any]) -> None:
        if inputs["batch"] > 16:
            raise MemoryError("no room for\n32 items")
        clock.sleep(0.04 * max(1, inputs["batch"] / 8))

    answer = throughput.measure(FakeSubject(act, tmp_path), throughput.Options((1, 4, 8, 16, 32, 128), 4.0))
    assert [(row["batch"], round(row["items_per_s"])) for row in answer["rows"]] == [
        (1, 25),
        (4, 100),
        (8, 200),
        (16, 200),
    ]
    assert answer["knee"]["batch"] == 8 and not answer["fixed"]
    assert answer["rows"][0]["ms_per_item"] == pytest.approx(40) and answer["rows"][0]["runs"] == 100
    assert answer["left_out"]["32"] == "MemoryError: no room for 32 items"
    assert answer["left_out"]["128"] == "the artifact takes batches up to 64"


def test_an_artifact_of_one_batch_is_measured_with_it_alone(tmp_path, clock):
    subject = FakeSubject(sleeping(clock, 0.01), tmp_path, meter(tmp_path, 2.0), axis=4)
    answer = throughput.measure(subject, throughput.Options((1, 2), 30.0))
    row = answer["rows"][0]
    assert [r["batch"] for r in answer["rows"]] == [4] and answer["fixed"] == "the artifact is made for batch 4"
    assert row["ms_per_item"] == pytest.approx(2.5) and row["energy_per_item"]["value"] == pytest.approx(5.0)
    assert throughput.lines(answer)[-1] == "no other batch: the artifact is made for batch 4"


def test_a_sweep_in_which_no_batch_runs_fails(tmp_path):
    def act(inputs: Mapping[str, Any]) -> None:
        raise RuntimeError("no")

    with pytest.raises(StageFailed, match="no batch ran: 1: RuntimeError: no"):
        throughput.measure(FakeSubject(act, tmp_path), throughput.Options((1,), 0.1))


# --------------------------------------------------------------------------- streams


def windows(*seconds: float) -> list[dict[str, Any]]:
    """What sessions tell that ran 100 times each, in so many seconds."""
    return [{"n": 100, "window_s": each, "median_ms": 10 * each} for each in seconds]


class Streams(FakeSubject):
    """Two processors: more sessions than two share them, and the memory holds four."""

    @contextlib.contextmanager
    def at_once(self, sessions: int, seconds: float, runs: int) -> Iterator[Callable[[], Any]]:
        if sessions > 4:
            raise StageFailed("the memory holds 4\nof them")

        def window() -> Any:
            streams.time.sleep(seconds)
            return windows(*[max(1.0, sessions / 2)] * (sessions - 1), 2.0)

        yield window


def test_the_items_of_all_streams_count_and_what_does_not_fit_is_left_out(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(streams, "time", clock)
    subject = Streams(lambda inputs: None, tmp_path, meter(tmp_path, 2.0), batch=4)
    answer = streams.measure(subject, streams.Options((8, 1, 4, 1), 5.0))
    assert [(row["streams"], row["items_per_s"]) for row in answer["rows"]] == [(1, 4 * 50), (4, 4 * (3 * 50 + 50))]
    assert answer["rows"][1]["energy_per_item"]["value"] == pytest.approx(1e3 * 2.0 * 5.0 / (4 * 400))
    told = streams.lines(answer)
    assert told[0].startswith("1 at once: 200 items/s, 20 ms a run on average, ") and told[0].endswith(" an item")
    assert told[1].startswith("4 at once: 800 items/s (4x one alone), 20 ms a run on average, ")
    assert "x one" not in streams.lines({"rows": answer["rows"][1:], "left_out": {}})[0]
    assert told[2:] == ["8 at once left out: StageFailed: the memory holds 4 of them"]
    with pytest.raises(StageFailed, match="no stream ran: 8: StageFailed: the memory holds 4 of them"):
        streams.measure(subject, streams.Options((8,), 5.0))


def test_streams_run_in_processes_of_their_own_at_the_same_time(tmp_path, monkeypatch):
    """Each sleeps: as many as one processor can hold do so at once."""
    model = bench_inputs.net(tmp_path / "net", sleep_ms=20.0)
    request = {**asked(tmp_path, model, "streams", streams=[1, 4], seconds=0.4)}
    request["samples"] = str(bench_inputs.samples(tmp_path / "s").path)
    one, four = ask(tmp_path, request)["rows"]
    assert four["items_per_s"] > 2 * one["items_per_s"] and four["mean_ms"] >= 20.0
    assert one["energy_per_item"]["reason"] == "the device names no sensor of energy"


def test_a_stream_that_crashes_says_why(tmp_path):
    model = bench_inputs.net(tmp_path / "net")
    request = {**asked(tmp_path, model, "streams", streams=[2]), "samples": str(tmp_path / "none")}
    with pytest.raises(StageFailed, match="no stream ran: 2: StageFailed: "):
        ask(tmp_path, request)


# --------------------------------------------------------------------------- cold


def test_each_start_is_a_process_of_its_own_that_loads(tmp_path):
    model = bench_inputs.net(tmp_path / "net", spin_ms=5.0, touch_bytes=1 << 20)
    request = {**asked(tmp_path, model, "cold", starts=2), "samples": str(bench_inputs.samples(tmp_path / "s").path)}
    answer = ask(tmp_path, request)
    warm = [s for s in answer["starts"] if s["cache"] == "warm"]
    assert len(warm) == 2 and all(s["first_ms"] >= 5.0 and s["load_ms"] > 0 and s["import_ms"] > 0 for s in warm)
    assert all(s["ready_ms"] == s["load_ms"] + s["first_ms"] for s in answer["starts"])
    assert all(s["total_ms"] == pytest.approx(s["ready_ms"] + s["import_ms"]) for s in answer["starts"])
    assert bool(answer["dropped_reason"]) == (answer["summary"]["dropped"] is None) == (not answer["dropped"])


@pytest.mark.parametrize(
    ("name", "options", "what"),
    [("cold", {"starts": 1}, "starts"), ("streams", {"streams": [1, 2], "seconds": 0.05}, "rows")],
)
def test_processes_start_from_the_one_file_that_devices_are_given(name, options, what, tmp_path):
    model = bench_inputs.net(tmp_path / "net")
    modules = ["edgecompress.engines.null.runtimes.null", f"edgecompress.plugins.profilers.{name}"]
    zipped = bundle.write(tmp_path / "agent.pyz", modules)
    samples = str(bench_inputs.samples(tmp_path / "samples").path)
    request = {**asked(tmp_path, model, name, **options), "samples": samples, "tied": False, "deadline_s": 60}
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "request.json").write_text(json.dumps(request))
    (tmp_path / "edgecompress.py").write_text("raise ImportError('not the one that was carried')")  # in its way
    argv = [sys.executable, "-P", str(zipped), str(tmp_path / "there" / "request.json")]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=60)
    assert len(json.loads((tmp_path / "there" / "result.json").read_text())[what]) in (1, 2)


def test_an_artifact_whose_starts_crash_says_why(tmp_path):
    model = bench_inputs.net(tmp_path / "net")
    (model.path / "model.null").write_text("{")
    request = {**asked(tmp_path, model, "cold", starts=1), "samples": str(bench_inputs.samples(tmp_path / "s").path)}
    with pytest.raises(Exception, match="not a null net"):
        ask(tmp_path, request)


def test_files_that_cannot_leave_the_page_cache_are_told(tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    assert cold.dropped([empty]) == ""
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK):
        pytest.skip("no file system in memory at /dev/shm")
    held = shared_memory / f"edgecompress-{os.getpid()}"
    held.write_bytes(b"x" * 8192)
    try:
        assert cold.dropped([held])
    finally:
        held.unlink()


# --------------------------------------------------------------------------- memory


@pytest.mark.skipif(not memory.STATM.exists(), reason="resident memory is available on Linux only")
def test_memory_that_a_load_touches_is_seen_in_its_phase(tmp_path):
    model = bench_inputs.net(tmp_path / "net", spin_ms=1.0, touch_bytes=32 << 20)
    request = {
        **asked(tmp_path, model, "memory", seconds=0.2),
        "samples": str(bench_inputs.samples(tmp_path / "s").path),
    }
    answer = ask(tmp_path, request)
    phases = {p["name"]: p for p in answer["phases"]}
    assert list(phases) == ["before", "load", "first inference", "steady"]
    grown = phases["load"]["end_bytes"] - answer["baseline_bytes"]
    assert grown == pytest.approx(32 << 20, rel=0.05)
    assert phases["load"]["anon_bytes"] - phases["before"]["anon_bytes"] == pytest.approx(32 << 20, rel=0.05)
    assert answer["peak_over_bytes"] >= grown
    assert {s["phase"] for s in answer["timeline"]} == set(phases)
    assert len(answer["timeline"]) > 2 * len(phases)  # both ends of each phase are read; the thread reads in between
    times = [s["t_s"] for s in answer["timeline"]]
    assert times == sorted(times)


def test_memory_is_unavailable_where_there_is_no_proc(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "STATM", tmp_path / "statm")
    answer = memory.measure(FakeSubject(sleeping(Clock(), 0.001), tmp_path), memory.Options())
    assert answer["phases"] == answer["timeline"] == [] and answer["baseline_bytes"] is None
    assert memory.lines(answer) == [f"memory unavailable: {answer['reason']}"]


# --------------------------------------------------------------------------- roofline


@pytest.mark.slow
def test_the_roofs_come_with_the_operators_of_a_real_net(tmp_path):
    pytest.importorskip("onnxruntime")
    model = conformance.net("onnx", tmp_path)
    answer = ask(tmp_path, asked(tmp_path, model, "roofline", seconds=0.1, size=128, runs=3))
    assert answer["ops"] and all(op["ms"] >= 0 for op in answer["ops"])
    compute, bandwidth = answer["compute"]["gflops"], answer["bandwidth"]["gb_per_s"]
    assert compute > 0.1 and bandwidth > 0.1
    assert answer["ridge_flops_per_byte"] == pytest.approx(compute / bandwidth)
    assert bandwidth == max(answer["bandwidth"]["copy_gb_per_s"], answer["bandwidth"]["triad_gb_per_s"])


def test_arrays_exceed_the_caches_and_leave_the_device_its_memory():
    assert roofline._array_bytes(None, None) == 64 << 20
    assert roofline._array_bytes(32 << 20, None) == 128 << 20
    assert roofline._array_bytes(512 << 20, None) == 256 << 20
    assert roofline._array_bytes(None, 256 << 20) == 32 << 20


# --------------------------------------------------------------------------- the stage, profiles, old Pythons


def test_a_pass_looks_at_each_variant_and_one_that_dies_costs_only_itself(tmp_path):
    variants = {"good": bench_inputs.net(tmp_path / "good"), "bad": bench_inputs.net(tmp_path / "bad")}
    (variants["bad"].path / "model.null").write_text("{")
    options = {"pass": "periodic", "options": {"rate_hz": 50.0, "seconds": 0.1}}
    result = profilers.run(bench_inputs.request(tmp_path, variants, **options))
    facts = Artifact.read(result.path).facts
    assert result.kind == "pass" and facts["pass"] == "periodic" and list(facts["variants"]) == ["good", "bad"]
    assert facts["variants"]["good"]["due"] == 5 and facts["variants"]["good"]["batch"] == 1
    assert "not a null net" in facts["variants"]["bad"]["crashed"]


def test_a_pass_in_which_every_variant_dies_fails(tmp_path):
    model = bench_inputs.net(tmp_path / "bad")
    (model.path / "model.null").write_text("{")
    options = {"pass": "memory", "options": {}}
    with pytest.raises(StageFailed, match="bad crashed: "):
        profilers.run(bench_inputs.request(tmp_path, {"bad": model}, **options))


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        ({"profile.profilers.memry.seconds": 1}, NotFound, "no profiler 'memry', did you mean 'memory'"),
        ({"profile.profilers.memory.secnds": 1}, ConfigError, "profilers.memory: unknown key 'secnds'"),
        ({"profile.profilers.sustained.every_s": 0.0}, ConfigError, "profilers.sustained: every_s must be above 0"),
        ({"profile.profilers.periodic.rate_hz": 0.0}, ConfigError, "profilers.periodic: rate_hz must be above 0"),
        (
            {"profile.profilers.throughput.batches": [0]},
            ConfigError,
            "profilers.throughput: batches must be at least 1",
        ),
        ({"profile.profilers.streams.streams": [0]}, ConfigError, "profilers.streams: streams must be 1 to 256"),
        ({"profile.profilers.cold.starts": 0}, ConfigError, "profilers.cold: starts must be at least 1"),
        (
            {"profile.profilers.roofline.size": 1},
            ConfigError,
            "profilers.roofline: seconds must be above 0, size at least 16",
        ),
    ],
)
def test_a_pass_or_an_option_that_there_is_not_is_named_before_anything_runs(settings, error, says):
    with pytest.raises(error, match=says):
        plan._check_profilers(job(profile="quick", settings=settings))


@pytest.mark.parametrize("name", ["energy", "sustained", "periodic", "throughput", "cold"])
def test_a_profile_names_passes_that_there_are(name):
    plan._check_profilers(job(profile=name))
