"""Sensors: counters that wrap, nest, stand still or may not be read; the power model; traces with holes."""

from __future__ import annotations

import dataclasses
import math
import os
import random
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bench_inputs
import pytest

from edgecompress.sensors import _counter, power_model, rapl, replay

WRAP = 262143328850  # what real packages say, in microjoules


@pytest.fixture
def tree(tmp_path: Path) -> bench_inputs.RaplTree:
    return bench_inputs.RaplTree(tmp_path)


@contextmanager
def moving(*zones: Path, step_uj: int = 1000) -> Iterator[None]:
    """Lets the counters run while the block lasts."""
    ended = threading.Event()

    def turn() -> None:
        while not ended.wait(0.002):
            for file in (zone / "energy_uj" for zone in zones):
                put(file, int(file.read_text()) + step_uj)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def put(file: Path, value: int) -> None:
    """As the kernel does: a reader never meets half a number."""
    beside = file.with_suffix(".new")
    beside.write_text(f"{value}\n")
    beside.replace(file)


def window(meter: Any, act: Any) -> Any:
    """The energy of what `act` does, in a window that follows another as the agent's do."""
    meter.energy(0.0, time.monotonic())
    begin = time.monotonic()
    act()
    time.sleep(0.1)  # next to which the moment between two readings is nothing
    return meter.energy(begin, time.monotonic())


# --------------------------------------------------------------------------- numbers


def test_a_wrap_is_counted_by_the_counters_own_range():
    assert _counter.unwrap([262143328000, 1149], WRAP) == [0, 2000]


def test_several_wraps_add_up():
    assert _counter.unwrap([90, 10, 80, 5], 99) == [0, 20, 90, 115]


def test_a_counter_that_falls_without_a_range_is_refused():
    with pytest.raises(ValueError, match="fell from 9 to 3"):
        _counter.unwrap([1, 9, 3], None)
    with pytest.raises(ValueError, match="range is not known"):
        _counter.unwrap([100, 3], 50)  # it was above what it says it can reach


def test_trapezoid_is_exact_for_power_that_changes_linearly():
    curve = _counter.Curve.of_power([0, 1, 3], [2, 4, 8])  # 2 + 2t
    assert curve.read(0.25, 2.5).joules == pytest.approx((2 * 2.5 + 2.5**2) - (2 * 0.25 + 0.25**2))


def test_a_window_between_two_readings_is_interpolated_with_its_bound():
    reading = _counter.Curve.of_counter([0, 10], [0, 40e6], None).read(2.5, 5.0)
    assert reading.joules == pytest.approx(10)
    assert reading.bound_j == pytest.approx(40 * 0.25 + 40 * 0.5)


@pytest.mark.parametrize(("begin", "end"), [(-1, 1), (1, 3.5), (2, 2), (2, 1)])
def test_nothing_is_extrapolated(begin, end):
    with pytest.raises(ValueError, match=r"no samples cover .* from 0.000 to 3.000"):
        _counter.Curve.of_power([0, 1, 3], [1, 1, 1]).read(begin, end)


def test_the_error_bound_holds_for_power_that_is_monotonic_between_samples():
    draw = random.Random(8)
    for _ in range(200):
        times = [i * 0.1 for i in range(40)]
        phase, period = draw.uniform(0, 6), draw.uniform(1.0, 5.0)
        rate = 2 * math.pi / period
        curve = _counter.Curve.of_power(times, [5 + 4 * math.sin(rate * t + phase) for t in times])
        begin, end = sorted((draw.uniform(0, 3.8), draw.uniform(0, 3.8)))
        exact = 5 * (end - begin) - 4 / rate * (math.cos(rate * end + phase) - math.cos(rate * begin + phase))
        reading = curve.read(begin, end)
        # where power peaks between two samples it is not monotonic: what that adds is second order
        assert abs(reading.joules - exact) <= reading.bound_j + 2 * 4 * (rate * 0.1) ** 2 * 0.1


def test_a_short_window_carries_its_bound_and_a_long_one_does_not():
    short = _counter.measured(_counter.Reading(10, 0.5, 199.9), "measured", "board", "x")
    assert (short.low, short.high) == (9.5, 10.5) and "199 sensor periods" in short.reason
    long = _counter.measured(_counter.Reading(10, 0.5, 200), "measured", "board", "x")
    assert (long.low, long.high, long.reason) == (None, None, "")


# --------------------------------------------------------------------------- RAPL


def test_rapl_sums_packages_and_memory_and_nothing_nested(tree, tmp_path):
    zones = {
        "intel-rapl:0": "package-0",
        "intel-rapl:0:0": "core",
        "intel-rapl:0:1": "uncore",
        "intel-rapl:0:2": "dram",
        "intel-rapl:1": "package-1",
        "intel-rapl:2": "psys",
        "intel-rapl-mmio:0": "package-0",  # the same package by another way
    }
    made = {zone: tree.zone(zone, name) for zone, name in zones.items()}
    with moving(*made.values()):
        assert rapl.unavailable({}, tmp_path) == ""
        meter = rapl.open({}, tmp_path)
    meter.start()

    def add() -> None:
        for zone in made.values():
            put(zone / "energy_uj", int((zone / "energy_uj").read_text()) + 2_000_000)

    found = window(meter, add)
    meter.stop()
    assert found.source == "RAPL package-0+dram+package-1"
    assert found.value == pytest.approx(3 * 2.0, rel=0.1)  # two packages and one memory
    assert (found.status, found.scope) == ("measured", "package")


def test_rapl_takes_mmio_where_there_is_nothing_else(tree, tmp_path):
    zone = tree.zone("intel-rapl-mmio:0", "package-0")
    with moving(zone):
        assert rapl.unavailable({}, tmp_path) == ""


def test_rapl_counts_through_a_wrap(tree, tmp_path):
    zone = tree.zone("intel-rapl:0", "package-0", energy_uj=262143328000)
    meter = rapl.RaplMeter([zone])
    meter.start()
    found = window(meter, lambda: put(zone / "energy_uj", 1149))
    meter.stop()
    assert found.value == pytest.approx(2000e-6, rel=0.1)


def test_rapl_windows_back_to_back_add_up(tree, tmp_path):
    zone = tree.zone("intel-rapl:0", "package-0", energy_uj=WRAP - 100_000)
    meter = rapl.RaplMeter([zone])
    meter.start()
    meter.energy(0.0, time.monotonic())
    begin = time.monotonic()
    readings, edge = [], begin
    for _ in range(3):
        put(zone / "energy_uj", (int((zone / "energy_uj").read_text()) + 70_000) % (WRAP + 1))
        time.sleep(0.05)
        readings.append(meter.energy(edge, edge := time.monotonic()).value)
    whole = meter.energy(begin, edge).value
    meter.stop()
    assert sum(readings) == pytest.approx(whole)
    assert whole == pytest.approx(0.21, rel=0.1)


def test_rapl_polls_between_windows_so_that_no_wrap_is_missed(tree, monkeypatch):
    monkeypatch.setattr(rapl, "POLL_S", 0.01)
    zone = tree.zone("intel-rapl:0", "package-0", energy_uj=0, range_uj=999_999)
    meter = rapl.RaplMeter([zone])
    meter.start()
    begin = time.monotonic()
    for value in (600_000, 200_000, 800_000):  # 0.6, then past the wrap to 1.2, then 1.8 J
        time.sleep(0.1)
        put(zone / "energy_uj", value)
    time.sleep(0.1)
    found = meter.energy(begin, time.monotonic())
    meter.stop()
    assert found.value == pytest.approx(1.8, abs=0.2)  # 0.8 if the wrap were missed


def test_a_counter_that_stands_still_is_no_sensor(tree, tmp_path):
    tree.zone("intel-rapl:0", "package-0")
    assert "package-0 does not move" in rapl.unavailable({}, tmp_path)


def test_one_package_that_stands_still_spoils_the_sum(tree, tmp_path):
    tree.zone("intel-rapl:1", "package-1")
    with moving(tree.zone("intel-rapl:0", "package-0")):
        assert "package-1 does not move" in rapl.unavailable({}, tmp_path)


def test_memory_that_stands_still_is_not_named(tree, tmp_path):
    tree.zone("intel-rapl:0:0", "dram")
    with moving(tree.zone("intel-rapl:0", "package-0")):
        assert rapl.open({}, tmp_path).source == "RAPL package-0"


def test_without_a_package_there_is_no_rapl(tree, tmp_path):
    tree.zone("intel-rapl:0", "psys")
    assert "no RAPL package domain" in rapl.unavailable({}, tmp_path)
    assert "no RAPL package domain" in rapl.unavailable({}, tmp_path / "elsewhere")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root, to become somebody who is not")
def test_who_may_not_read_is_told_how_it_can_be_allowed():
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        zone = bench_inputs.RaplTree(root).zone("intel-rapl:0", "package-0")
        root.chmod(0o755)
        (zone / "energy_uj").chmod(0o400)
        os.seteuid(65534)
        try:
            why = rapl.unavailable({}, root)
        finally:
            os.seteuid(0)
    assert "not permitted to read" in why and "CVE-2020-8694" in why and "chmod a+r" in why
    assert "sudo" not in why


def test_a_counter_that_is_not_a_number_is_no_sensor(tree, tmp_path):
    (tree.zone("intel-rapl:0", "package-0") / "energy_uj").write_text("unknown")
    assert "RAPL cannot be read" in rapl.unavailable({}, tmp_path)


# --------------------------------------------------------------------------- power model


def device(**more: Any) -> dict[str, Any]:
    return {"power": dataclasses.asdict(bench_inputs.POWER), "cores": 4, **more}


@pytest.mark.parametrize(("threads", "watts"), [(0, 2.0), (1, 5.5), (4, 16.0), (9, 16.0)])
def test_power_model_follows_the_threads(threads, watts):
    found = power_model.open(device(threads=threads), Path("/")).energy(10.0, 12.0)
    assert found.value == pytest.approx(2 * watts)
    assert (found.low, found.high) == (pytest.approx(1.5 * watts), pytest.approx(2.5 * watts))
    assert (found.status, found.scope, found.source) == ("estimated", "package", "power model: a data sheet")


def test_power_model_says_what_it_lacks():
    assert "[power]" in power_model.unavailable({"power": None, "cores": 4}, Path("/"))
    assert "cores" in power_model.unavailable(device(cores=None), Path("/"))
    assert power_model.unavailable(device(), Path("/")) == ""
    assert power_model.open(device(), Path("/")).energy(1.0, 1.0).status == "unavailable"


# --------------------------------------------------------------------------- replay


def trace(file: Path, text: str, **more: Any) -> dict[str, Any]:
    """A device whose sensor replays `text`."""
    file.write_text(text)
    return {"options": {"replay": {"file": str(file), **more}}}


def test_replay_reads_power_at_the_offset_of_the_clocks(tmp_path):
    rows = "".join(f"{100 + i / 100},{3.0}\n" for i in range(1001))
    found = trace(tmp_path / "trace.csv", "t_s,power_w\n" + rows, offset_s=-90.0, scope="wall")
    assert replay.unavailable(found, Path("/")) == ""
    meter = replay.open(found, Path("/"))
    meter.start()
    energy = meter.energy(11.005, 16.005)
    assert (energy.value, energy.status, energy.scope) == (pytest.approx(15.0), "replayed", "wall")
    assert "no samples cover" in meter.energy(19.0, 21.0).reason


def test_replay_without_an_offset_begins_when_it_is_started(tmp_path):
    rows = "".join(f"{7 + i / 100},{i * 1e6}\n" for i in range(1001))  # 100 W
    meter = replay.open(trace(tmp_path / "trace.csv", "t_s,energy_uj\n" + rows), Path("/"))
    before = time.monotonic()
    meter.start()
    assert meter.energy(before + 1, before + 6).value == pytest.approx(500, rel=1e-6)


def test_a_hole_in_the_sampling_makes_its_windows_unavailable_and_no_others(tmp_path):
    times = [i / 100 for i in range(2001) if not 500 < i < 519]
    text = "t_s,power_w\n" + "".join(f"{t},2\n" for t in times)
    meter = replay.open(trace(tmp_path / "trace.csv", text, offset_s=0.0), Path("/"))
    bad, good = meter.energy(0.5, 10.5), meter.energy(6.0, 16.0)
    assert (bad.value, bad.status) == (None, "unavailable")
    assert "a gap of 0.19 s" in bad.reason and bad.reason.endswith("over 1% of the window of 10 s")
    assert good.value == pytest.approx(20)
    assert meter.energy(0.0, 20.0).value == pytest.approx(40)  # 0.19 s is not over 1 % of 20 s


def test_a_slow_gauge_is_no_hole_but_has_a_bound(tmp_path):
    text = "t_s,power_w\n" + "".join(f"{i},{2 + i % 2}\n" for i in range(100))
    found = replay.open(trace(tmp_path / "t.csv", text, offset_s=0.0), Path("/")).energy(5.5, 65.5)
    assert found.value == pytest.approx(150, abs=1)
    assert found.low < 150 < found.high and "60 sensor periods" in found.reason


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("t_s,volts\n1,2\n", "needs the columns"),
        ("t_s,power_w\n1,2\n", "fewer than two samples"),
        ("t_s,power_w\n1,2\n2,nan\n", "line 3: power_w is 'nan'"),
        ("t_s,power_w\n1,2\n2\n", "line 3: power_w is None"),
        ("t_s,power_w\n1,2\n1,3\n", "sample 2: its t_s is not later"),
        ("t_s,energy_uj\n1,20\n2,10\n", "the counter fell from 20 to 10"),
    ],
)
def test_a_trace_that_cannot_be_read_says_where(tmp_path, text, says):
    assert says in replay.unavailable(trace(tmp_path / "trace.csv", text), Path("/"))


def test_replay_without_a_trace_says_so(tmp_path):
    assert "no trace is named" in replay.unavailable({"options": {}}, Path("/"))
    missing = {"options": {"replay": {"file": str(tmp_path / "none.csv")}}}
    assert "No such file" in replay.unavailable(missing, Path("/"))
