"""Sensors: counters that wrap, nest, stand still or may not be read; the power model; traces with holes."""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import bench_inputs
import fake_sys
import pytest
from fake_sys import World, put

from edgecompress.commands import listing
from edgecompress.device.agent import energy as energy_mode
from edgecompress.plugins.sensors import (
    _counter,
    _sampler,
    android_odpm,
    battery,
    hwmon,
    iio,
    power_model,
    rapl,
    replay,
    rpi5_pmic,
)
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

WRAP = 262143328850  # what real packages say, in microjoules


@pytest.fixture
def tree(tmp_path: Path) -> bench_inputs.RaplTree:
    return bench_inputs.RaplTree(tmp_path)


def moving(*zones: Path, step_uj: int = 1000) -> AbstractContextManager[None]:
    """Lets the counters run while the block lasts."""

    def turn() -> None:
        for file in (zone / "energy_uj" for zone in zones):
            put(file, int(file.read_text()) + step_uj)

    return fake_sys.running(turn)


def window(meter: Any, act: Any) -> Any:
    """The energy of what `act` does: the counters are read before and after it, so that no edge divides it."""
    begin = time.monotonic()
    meter.energy(0.0, begin)
    act()
    meter.energy(begin, time.monotonic())
    return meter.energy(begin, time.monotonic())


# --------------------------------------------------------------------------- numbers


def test_a_counter_that_falls_from_above_its_own_range_is_refused():
    with pytest.raises(ValueError, match="range is not known"):
        _counter.unwrap([100, 3], 50)


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


def test_rapl_windows_back_to_back_add_up(tree, tmp_path):
    zone = tree.zone("intel-rapl:0", "package-0", energy_uj=WRAP - 100_000)
    meter = rapl.meter([zone])
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
    monkeypatch.setattr(_sampler, "POLL_S", 0.01)
    zone = tree.zone("intel-rapl:0", "package-0", energy_uj=0, range_uj=999_999)
    meter = rapl.meter([zone])
    meter.start()
    begin = time.monotonic()
    for value in (600_000, 200_000, 800_000):  # 0.6, then past the wrap to 1.2, then 1.8 J
        time.sleep(0.1)
        put(zone / "energy_uj", value)
    time.sleep(0.1)
    found = meter.energy(begin, time.monotonic())
    meter.stop()
    assert found.value == pytest.approx(1.8, abs=0.2)  # 0.8 if the wrap were missed


def test_one_package_that_stands_still_spoils_the_sum(tree, tmp_path):
    tree.zone("intel-rapl:1", "package-1")
    with moving(tree.zone("intel-rapl:0", "package-0")):
        assert "package-1 does not change" in rapl.unavailable({}, tmp_path)


def test_memory_that_stands_still_is_not_named(tree, tmp_path):
    tree.zone("intel-rapl:0:0", "dram")
    with moving(tree.zone("intel-rapl:0", "package-0")):
        assert rapl.open({}, tmp_path).origin.source == "RAPL package-0"


def test_without_a_package_there_is_no_rapl(tree, tmp_path):
    tree.zone("intel-rapl:0", "psys")
    assert "no RAPL package domain" in rapl.unavailable({}, tmp_path)
    assert "no RAPL package domain" in rapl.unavailable({}, tmp_path / "elsewhere")


def test_who_may_not_read_rapl_is_told_how_it_can_be_allowed():
    with fake_sys.nobody() as root:
        zone = bench_inputs.RaplTree(root).zone("intel-rapl:0", "package-0")
        (zone / "energy_uj").chmod(0o200)
        with fake_sys.unprivileged():
            why = rapl.unavailable({}, root)
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
    assert bad.reason == "samples cover 98.1% of the window of 10 s, less than 99% (the longest gap: 0.19 s)"
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
        ("t_s,power_w\n1,2\n2\n", "line 3: power_w is ''"),
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


def test_replay_tells_its_trace_on_our_clock(tmp_path):
    rows = "".join(f"{i / 100},{2 + i % 2}\n" for i in range(1001))
    meter = replay.open(trace(tmp_path / "t.csv", "t_s,power_w\n" + rows), Path("/"))
    before = time.monotonic()
    meter.start()
    time.sleep(0.1)
    samples = meter.samples()
    assert 10 <= len(samples) <= 1000 and {w for _, w in samples} == {2, 3}
    assert before <= samples[0][0] < before + 0.1


# --------------------------------------------------------------------------- boards: a known power, on a clock of ours


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


HWMON, IIO, SUPPLY = "sys/class/hwmon/hwmon", "sys/bus/iio/devices/iio:device", "sys/class/power_supply/"
FULL_UJ = 2**24 - 1  # a counter that wraps every three seconds of the fake machine


def hwmon_energy(world: World, **more: Any) -> None:
    world.say({f"{HWMON}0/name": "i915", f"{HWMON}0/energy1_label": "board"})
    world.follow({f"{HWMON}0/energy1_input": fake_sys.counted(**more)})


def hwmon_power(world: World) -> None:
    """An INA226: in0 is its shunt, power1 what it works out."""
    world.say({f"{HWMON}0/name": "ina226", f"{HWMON}0/in0_input": 3, f"{HWMON}0/update_interval": 35})
    world.follow({f"{HWMON}0/power1_input": fake_sys.scaled(1e6), f"{HWMON}0/curr1_input": fake_sys.scaled(200)})


def jetson(world: World) -> None:
    """An INA3221 as on the Jetson Orin: three rails, their shunts, and the sum of the currents."""
    rails = {1: ("VDD_IN", 1.0), 2: ("VDD_CPU_GPU_CV", 0.5), 3: ("VDD_SOC", 0.2)}
    world.say({f"{HWMON}3/name": "ina3221", f"{HWMON}3/update_interval": 50, f"{HWMON}3/in7_label": "sum of shunts"})
    for n, (label, share) in rails.items():
        world.say({f"{HWMON}3/in{n}_label": label, f"{HWMON}3/in{n}_input": 5000, f"{HWMON}3/in{n}_enable": 1})
        world.follow({f"{HWMON}3/curr{n}_input": scaled_exactly(1e6 / 5000, share)})
        world.follow({f"{HWMON}3/in{n + 3}_input": fake_sys.scaled(3, share)})
    world.follow({f"{HWMON}3/curr4_input": fake_sys.scaled(340), f"{HWMON}3/in7_input": fake_sys.scaled(5)})


def scaled_exactly(unit: float, share: float) -> Callable[[float], float]:
    return lambda now_s: unit * share * fake_sys.watts(now_s)


def iio_energy(world: World, **more: Any) -> None:
    """A PAC1934 counts in steps of its scale: 1 uJ here."""
    world.say({f"{IIO}0/name": "pac1934", f"{IIO}0/in_energy_scale": 1e-6, f"{IIO}0/in_energy1_label": "board"})
    world.follow({f"{IIO}0/in_energy1_raw": fake_sys.counted(**more), f"{IIO}0/in_power1_raw": fake_sys.scaled(9)})


def iio_power(world: World) -> None:
    """An INA226 by its other driver: the channels have numbers of their own."""
    world.say({f"{IIO}0/name": "ina226", f"{IIO}0/in_power2_scale": 0.025, f"{IIO}0/in_voltage0_raw": 7})
    world.follow({f"{IIO}0/in_power2_raw": fake_sys.scaled(1e3 / 0.025), f"{IIO}0/in_current3_raw": lambda _: 5})


def iio_product(world: World) -> None:
    world.say({f"{IIO}0/name": "adc", f"{IIO}0/in_voltage1_raw": 900, f"{IIO}0/in_voltage_scale": 5})
    world.say({f"{IIO}0/in_voltage1_offset": 100, f"{IIO}0/in_current1_scale": 0.01})
    world.follow({f"{IIO}0/in_current1_raw": scaled_exactly(100 * 1e6 / 5000, 1.0)})


def odpm(world: World) -> None:
    """Two chips; the driver refreshes its sums each 160 ms and gives them again until then."""
    rails = [("S2M_VDD_CPUCL2", 0.5), ("S4M_VDD_CPUCL0", 0.25)], [("S2S_VDD_G3D", 0.25), ("VSYS_PWR_DISPLAY", 2.0)]
    for i, chip in enumerate(rails):

        def tells(now_s: float, chip: Any = chip, late_s: float = 0.07 * i) -> str:
            then_s = math.floor((now_s + late_s) / 0.16) * 0.16 - late_s
            sums = [fake_sys.counted(share, first_uj=10**9)(then_s) for _, share in chip]
            lines = [f"CH{n}(T={then_s * 1e3:.0f})[{chip[n][0]}], {uws}" for n, uws in enumerate(sums)]
            return "\n".join([f"t={then_s * 1e3:.0f}", *lines])

        world.follow({f"{IIO}{i}/energy_value": tells})


def rapl_zones(world: World, wrap_uj: int = 2**40 - 1) -> None:
    """Two packages and the memory of one, whose counters wrap; and psys and cores, which hold and are held."""
    zones = {"0": ("package-0", 0.5), "1": ("package-1", 0.3), "0:0": ("dram", 0.2), "0:1": ("core", 0.4)}
    for place, (name, share) in {**zones, "2": ("psys", 2.0)}.items():
        zone = f"sys/class/powercap/intel-rapl:{place}"
        world.say({f"{zone}/name": name, f"{zone}/max_energy_range_uj": wrap_uj})
        world.follow({f"{zone}/energy_uj": fake_sys.counted(share, first_uj=wrap_uj - 5, wrap_uj=wrap_uj)})


FOLLOWED: dict[str, tuple[Any, Callable[..., None], dict[str, Any]]] = {
    "hwmon energy": (hwmon, hwmon_energy, {}),
    "hwmon power": (hwmon, hwmon_power, {}),
    "hwmon volts and amperes": (hwmon, jetson, {}),
    "iio energy": (iio, iio_energy, {}),
    "iio power": (iio, iio_power, {}),
    "iio volts and amperes": (iio, iio_product, {}),
    "android_odpm": (android_odpm, odpm, {}),
    "rapl": (rapl, rapl_zones, {}),
    "rapl that wraps": (rapl, partial(rapl_zones, wrap_uj=FULL_UJ), {}),
}


def named(module: Any, **options: Any) -> dict[str, Any]:
    return {"options": {module.__name__.rpartition(".")[2]: options}}


def measure(world: World, meter: Any, seconds: float) -> tuple[Any, float, float]:
    """A window after a pause, and when it was."""
    world.advance(1.0)
    begin = world.now_s
    world.advance(seconds)
    end = world.now_s
    return meter.energy(begin, end), begin, end


@pytest.mark.parametrize("case", FOLLOWED)
def test_a_known_energy_is_recovered(case, world):
    module, build, options = FOLLOWED[case]
    build(world)
    device = named(module, **options)
    assert module.unavailable(device, world.root) == ""
    meter = module.open(device, world.root)
    meter.start()
    found, begin, end = measure(world, meter, 10)
    meter.stop()
    assert found.value == pytest.approx(fake_sys.joules(begin, end), rel=1e-3), found.reason
    assert (found.status, found.scope) == ("measured", module.SCOPE)


@pytest.mark.parametrize("case", FOLLOWED)
def test_the_trace_of_power_holds_the_same_energy(case, world):
    module, build, options = FOLLOWED[case]
    build(world)
    meter = module.open(named(module, **options), world.root)
    meter.start()
    world.advance(10)
    samples = meter.samples()
    whole = _counter.Curve.of_power([t for t, _ in samples], [w for _, w in samples])
    assert whole.joules[-1] == pytest.approx(fake_sys.joules(samples[0][0], samples[-1][0]), rel=5e-3)
    assert all(1 < w < 11 for _, w in samples) and len(samples) > 30


def test_a_battery_gives_what_it_loses(world):
    supplies(world, "Discharging")
    assert battery.unavailable({}, world.root) == ""
    meter = battery.open({}, world.root)
    meter.start()
    found, begin, end = measure(world, meter, 60)
    assert found.value == pytest.approx(fake_sys.slow_joules(begin, end), rel=1e-3)
    assert (found.scope, found.source) == ("battery", "battery BAT0+BAT1")
    assert found.low < found.value < found.high and "sensor periods" in found.reason


def supplies(world: World, status: str) -> None:
    """Two batteries, one of each kind of gauge and one with the other sign; a charger; a mouse."""
    for name, kind in (("AC", "Mains"), ("BAT0", "Battery"), ("BAT1", "Battery"), ("mouse", "Battery")):
        world.say({f"{SUPPLY}{name}/type": kind})
    world.say({f"{SUPPLY}BAT0/status": status, f"{SUPPLY}BAT1/status": status, f"{SUPPLY}BAT0/voltage_now": 4_000_000})
    world.say({f"{SUPPLY}mouse/power_now": 9_000_000, f"{SUPPLY}mouse/scope": "Device"})
    world.follow({f"{SUPPLY}BAT0/current_now": lambda t: -round(0.5e6 * fake_sys.slow_watts(t) / 4)})
    world.follow({f"{SUPPLY}BAT1/power_now": lambda t: round(0.5e6 * fake_sys.slow_watts(t))})


@pytest.mark.parametrize("status", ["Charging", "Full", "Not charging"])
def test_a_battery_that_is_fed_is_no_sensor(world, status):
    supplies(world, status)
    assert (
        battery.unavailable({}, world.root)
        == f"battery: battery BAT0 is not discharging ({status}): unplug the charger"
    )


def test_a_charger_plugged_in_during_a_window_spoils_it_and_not_the_next(world):
    supplies(world, "Discharging")
    meter = battery.open({}, world.root)
    meter.start()
    world.advance(5)
    world.say({f"{SUPPLY}BAT1/status": "Charging"})
    world.advance(2)
    world.say({f"{SUPPLY}BAT1/status": "Discharging"})
    world.advance(5)
    bad = meter.energy(1001.0, world.now_s)
    good, begin, end = measure(world, meter, 30)
    assert bad.value is None and "BAT1 is not discharging" in bad.reason
    assert good.value == pytest.approx(fake_sys.slow_joules(begin, end), rel=1e-3)


def test_a_gauge_that_stands_still_is_found_while_it_measures(world):
    supplies(world, "Discharging")
    for name in ("BAT0/current_now", "BAT1/power_now"):
        del world.files[world.root / (SUPPLY + name)]
    meter = battery.open({}, world.root)
    meter.start()
    world.advance(5)
    found, *_ = measure(world, meter, 30)
    assert found.value is None and "does not change: 5 W in each of" in found.reason


def pmic(world: World) -> None:
    """A vcgencmd that prints a file."""
    program = world.root / rpi5_pmic.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\n[ "$1" = pmic_read_adc ] && cat "$0.txt"\n')
    program.chmod(0o755)

    def tells(now_s: float) -> str:
        amperes = fake_sys.slow_watts(now_s)
        return (
            f" VDD_CORE_A current(7)={0.8 * amperes:.8f}A\n 3V3_SYS_A current(1)={0.2 * amperes / 3.2:.8f}A\n"
            " VDD_CORE_V volt(15)=1.00000000V\n 3V3_SYS_V volt(9)=3.20000000V\n EXT5V_V volt(24)=5.1V\n"
        )

    world.follow({f"{rpi5_pmic.PROGRAM}.txt": tells})


def test_the_pi_adds_its_rails_and_says_what_they_leave_out(world):
    pmic(world)
    assert rpi5_pmic.unavailable({}, world.root) == ""
    meter = rpi5_pmic.open({}, world.root)
    meter.start()
    found, begin, end = measure(world, meter, 20)
    assert found.value == pytest.approx(fake_sys.slow_joules(begin, end), rel=1e-3)
    assert found.scope == "board" and "2 rails (without USB, fan" in found.source


def test_what_a_pi_printed_is_understood(data):
    rails = rpi5_pmic._rails((data / "vcgencmd.txt").read_text())
    assert len(rails) == 12 and "EXT5V" not in rails and "BATT" not in rails
    assert rails["VDD_CORE"] == pytest.approx(1.11625 * 0.7494498)
    assert sum(rails.values()) == pytest.approx(2.2858, abs=0.0001)


def test_a_vcgencmd_that_refuses_is_quoted(world):
    pmic(world)
    world.files.clear()
    world.say({f"{rpi5_pmic.PROGRAM}.txt": "VCHI initialization failed"})
    why = rpi5_pmic.unavailable({}, world.root)
    assert "it printed: VCHI initialization failed" in why and "group `video`" in why


def test_what_a_pixel_printed_is_understood(data, tmp_path):
    put(tmp_path / f"{IIO}0/energy_value", (data / "energy_value.txt").read_text())
    files = android_odpm._files(tmp_path)
    [rails] = android_odpm._rails({}, files).values()
    assert rails == ["S10M_VDD_TPU", "S2M_VDD_CPUCL2", "S3M_VDD_CPUCL1", "S4M_VDD_CPUCL0", "S5M_VDD_INT", "S1M_VDD_MIF"]
    assert android_odpm._read({files[0]: ["S1M_VDD_MIF"]})[0].microjoules == 21091363


@pytest.fixture
def data() -> Path:
    return Path(__file__).parent / "data" / "sensors"


@pytest.mark.parametrize(("module", "build"), [(hwmon, hwmon_energy), (iio, iio_energy)])
def test_a_counter_that_wraps_is_counted_through(module, build, world):
    wrap = {"first_uj": FULL_UJ - 5, "wrap_uj": FULL_UJ}
    build(world, **wrap)
    found, begin, end = window_of(world, module, wrap_uj=FULL_UJ)
    assert found.value == pytest.approx(fake_sys.joules(begin, end), rel=1e-3)
    assert found.value > 3 * FULL_UJ * 1e-6
    found, *_ = window_of(world, module)
    assert found.value is None and "its range is not known" in found.reason


def window_of(world: World, module: Any, seconds: float = 10.0, **options: Any) -> tuple[Any, float, float]:
    meter = module.open(named(module, **options), world.root)
    meter.start()
    return measure(world, meter, seconds)


def test_the_boards_input_is_taken_and_the_rails_inside_are_never_added(world):
    jetson(world)
    assert window_of(world, hwmon)[0].source == "hwmon VDD_IN"
    inner = ["VDD_CPU_GPU_CV", "VDD_SOC"]
    found, begin, end = window_of(world, hwmon, rails=inner, scope="package")
    assert found.value == pytest.approx(0.7 * fake_sys.joules(begin, end), rel=1e-3)
    assert (found.source, found.scope) == ("hwmon VDD_CPU_GPU_CV+VDD_SOC", "package")
    why = hwmon.unavailable(named(hwmon, rails=["VDD_IN", *inner]), world.root)
    assert "'VDD_IN' includes the others and cannot be added" in why


def test_rails_that_nobody_chose_are_not_added(world):
    jetson(world)
    world.say({f"{HWMON}3/in1_label": "INPUT"})
    why = hwmon.unavailable({}, world.root)
    assert "several rails (INPUT, VDD_CPU_GPU_CV, VDD_SOC)" in why and "hwmon = { rails = [...] }" in why
    assert "no rail 'VDD_OUT'; there are INPUT" in hwmon.unavailable(named(hwmon, rails=["VDD_OUT"]), world.root)


def test_an_average_is_new_as_often_as_the_chip_says(world):
    world.say({f"{HWMON}0/name": "power_meter", f"{HWMON}0/power1_average_interval": 1000})
    world.follow({f"{HWMON}0/power1_average": lambda t: round(1e6 * fake_sys.slow_watts(t))})
    found, begin, end = window_of(world, hwmon, seconds=60)
    assert found.value == pytest.approx(fake_sys.slow_joules(begin, end), rel=1e-3)
    assert found.n == 60 and found.source == "hwmon power_meter/power1"


def test_a_rail_that_is_switched_off_is_not_there(world):
    jetson(world)
    world.say({f"{HWMON}3/in2_enable": 0})
    assert "no rail 'VDD_CPU_GPU_CV'" in hwmon.unavailable(named(hwmon, rails=["VDD_CPU_GPU_CV"]), world.root)


def test_energy_and_power_are_not_added(world):
    hwmon_energy(world)
    world.say({f"{HWMON}1/name": "ina226", f"{HWMON}1/power1_input": 5})
    why = hwmon.unavailable(named(hwmon, rails=["board", "ina226/power1"]), world.root)
    assert "name rails of one kind" in why


def test_two_rails_of_one_name_are_refused(world):
    jetson(world)
    world.say({f"{HWMON}4/name": "ina226", f"{HWMON}4/power1_input": 5, f"{HWMON}4/power1_label": "VDD_IN"})
    assert "several rails are named 'VDD_IN'" in hwmon.unavailable({}, world.root)


def test_a_phones_whole_is_never_added_to_its_rails(world):
    odpm(world)
    assert window_of(world, android_odpm)[0].source == "ODPM S2M_VDD_CPUCL2+S4M_VDD_CPUCL0+S2S_VDD_G3D"
    world.follow({f"{IIO}2/energy_value": lambda t: f"CH0(T=1)[VSYS_PWR_VBATT], {fake_sys.counted()(t)}"})
    why = android_odpm.unavailable(named(android_odpm, rails=["*"]), world.root)
    assert "'VSYS_PWR_VBATT' includes the others" in why
    found, begin, end = window_of(world, android_odpm, rails=["VSYS_PWR_VBATT"])
    assert found.value == pytest.approx(fake_sys.joules(begin, end), rel=1e-3)
    assert "no rail is named X; there are S2M_VDD" in android_odpm.unavailable(
        named(android_odpm, rails=["X"]), world.root
    )


STILL = {
    "hwmon energy": "board does not change: it reads 1000 all the time",
    "hwmon power": "ina226/power1 does not change",
    "hwmon volts and amperes": "VDD_IN does not change",
    "iio energy": "board does not change",
    "iio power": "ina226/power2 does not change",
    "iio volts and amperes": "adc/current1 does not change",
    "android_odpm": "iio:device0/energy_value do not change",
}


@pytest.mark.parametrize("case", STILL)
def test_a_sensor_that_never_moves_is_none(case, world):
    module, build, options = FOLLOWED[case]
    build(world)
    world.files.clear()
    assert STILL[case] in module.unavailable(named(module, **options), world.root)


def test_a_pi_whose_rails_never_move_is_no_sensor(world):
    pmic(world)
    world.files.clear()
    assert "do not change" in rpi5_pmic.unavailable({}, world.root)


@pytest.mark.parametrize("case", [*FOLLOWED, "battery"])
def test_who_may_not_read_is_told_which_file_and_how_it_can_be_allowed(case, monkeypatch):
    module, build, options = FOLLOWED.get(case, (battery, lambda w: supplies(w, "Discharging"), {}))
    with fake_sys.nobody() as root:
        world = World(root, monkeypatch)
        build(world)
        closed = list(world.files)
        world.files.clear()
        for file in closed:
            file.chmod(0o000)
        with fake_sys.unprivileged():
            why = module.unavailable(named(module, **options), root)
    assert why.startswith(f"not permitted to read {root}/sys/")
    assert any(way in why for way in ("chmod a+r", "adb root", "run as root"))


ABSENT = {
    hwmon: "nothing with energy or power channels in",
    iio: "nothing with energy or power channels in",
    battery: "no battery that reports its current in",
    rpi5_pmic: "no /",
    android_odpm: "no iio:device*/energy_value in",
}


@pytest.mark.parametrize("module", ABSENT, ids=lambda m: m.__name__.rpartition(".")[2])
def test_a_sensor_that_is_not_there_says_where_it_was_looked_for(module, tmp_path):
    assert module.unavailable({}, tmp_path).startswith(ABSENT[module])
    put(tmp_path / f"{HWMON}0/name", "coretemp")  # chips without power are no sensor either
    put(tmp_path / f"{IIO}0/in_voltage0_raw", 5)
    put(tmp_path / f"{SUPPLY}AC/type", "Mains")
    assert module.unavailable({}, tmp_path).startswith(ABSENT[module])


def test_what_is_not_a_number_is_told_with_its_file(world):
    jetson(world)
    del world.files[world.root / f"{HWMON}3/curr1_input"]
    world.say({f"{HWMON}3/curr1_input": "n/a"})
    why = hwmon.unavailable({}, world.root)
    assert why.startswith("hwmon: ") and why.endswith("curr1_input contains 'n/a', not a number")


# --------------------------------------------------------------------------- sampling


@pytest.mark.parametrize(("gap_s", "whole"), [(0.05, True), (0.19, True), (0.21, False), (3.0, False)])
def test_a_window_is_valid_when_samples_cover_99_percent_of_it(world, gap_s, whole):
    jetson(world)
    meter = hwmon.open({}, world.root)
    meter.start()
    world.advance(1)
    begin = world.now_s
    world.advance(10)
    world.advance(gap_s, sampling=False)
    world.advance(10 - gap_s)
    found = meter.energy(begin, world.now_s)
    assert (found.value is not None) is whole
    if not whole:
        assert f"less than 99% (the longest gap: {gap_s:.3g}" in found.reason


def test_a_sensor_that_fails_in_a_window_leaves_it_without_energy(world):
    jetson(world)
    meter = hwmon.open({}, world.root)
    meter.start()
    world.advance(1)
    begin = world.now_s
    world.advance(3)
    file = world.root / f"{HWMON}3/curr1_input"
    tells = world.files.pop(file)
    put(file, "")
    world.advance(0.1)
    world.files[file] = tells
    world.advance(3)
    assert "curr1_input contains '', not a number" in meter.energy(begin, world.now_s).reason


def test_a_counter_may_miss_a_reading_but_not_the_windows_end(world):
    hwmon_energy(world)
    meter = hwmon.open({}, world.root)
    meter.start()
    world.advance(1)
    begin = world.now_s
    world.advance(5)
    file = world.root / f"{HWMON}0/energy1_input"
    tells = world.files.pop(file)
    file.unlink()
    world.advance(1)
    lost = meter.energy(begin, world.now_s)
    world.files[file] = tells
    world.advance(5)
    end = world.now_s
    assert lost.value is None and "No such file" in lost.reason
    assert meter.energy(begin, end).value == pytest.approx(fake_sys.joules(begin, end), rel=1e-3)


def test_samplers_run_in_real_time_beside_work():
    clock = {"watts": 4.0}
    meter = _sampler.Sampled(lambda: clock["watts"], _sampler.Origin("a lamp", "board"), 0.05)
    meter.start()
    begin = time.monotonic()
    time.sleep(0.5)
    half = time.monotonic()
    clock["watts"] = 8.0
    found = meter.energy(begin, half)
    while time.monotonic() < half + 0.5:
        sum(range(1000))
    later = meter.energy(half, time.monotonic())
    meter.stop()
    assert found.value == pytest.approx(4.0 * (half - begin), rel=0.15)
    assert later.value == pytest.approx(8.0 * 0.5, rel=0.2)
    assert len(meter.samples()) >= 10


def test_power_is_not_sampled_faster_than_is_good_for_what_runs():
    assert _sampler.Sampled(lambda: 1.0, _sampler.Origin("x", "rail"), 0.001)._period_s == _sampler.QUICKEST_S


@pytest.fixture
def chip(tmp_path: Path) -> AbstractContextManager[None]:
    """A chip of 5 W below a folder, whose reading moves while the block lasts."""
    told = {"name": "ina226", "update_interval": 100, "power1_input": 5_000_000}
    for name, value in told.items():
        put(tmp_path / f"{HWMON}0" / name, value)
    turns = iter(range(10**9))
    return fake_sys.running(lambda: put(tmp_path / f"{HWMON}0/power1_input", 5_000_000 + next(turns) % 7))


def test_a_sensor_on_a_fake_root_passes_the_conformance_suite(chip, tmp_path):
    with chip:
        assert hwmon.unavailable({}, tmp_path) == ""
        conformance.check_sensor("hwmon", tmp_path / "work", {"options": {}, "sensors": []}, tmp_path)


def test_a_machine_without_sensors_is_told_so_in_a_moment(tmp_path):
    begin = time.process_time()
    rows = listing.sensors(root=tmp_path)
    assert time.process_time() - begin < 1.0
    assert all("\n" not in row["why_not"] for row in rows)


def test_an_agent_brings_back_energy_and_its_trace(chip, tmp_path):
    more = {"sensors": [{"name": "hwmon", "module": hwmon.__name__}], "device": {"options": {}}, "root": str(tmp_path)}
    model, data = bench_inputs.net(tmp_path / "net"), bench_inputs.samples(tmp_path / "samples")
    asked = bench_inputs.asked(model, data, profile=dataclasses.asdict(bench_inputs.MOMENT), **more)
    with chip:
        answer = energy_mode.run(bench_inputs.agent_request(asked), tmp_path)
    for each in (*answer["idle"], *answer["windows"]):
        assert each["energy"]["value"] == pytest.approx(5 * each["seconds"], rel=1e-3), each["energy"]["reason"]
    trace = answer["trace"]
    assert trace["t_s"][0] <= answer["idle"][0]["begin_s"] and trace["t_s"][-1] >= answer["idle"][-1]["begin_s"]
    assert set(map(round, trace["watts"])) == {5}
