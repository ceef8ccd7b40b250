"""Sensors that are programs, libraries or instruments: played by stand-ins of their interface, real where they are."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fake_sys
import pytest
from fake_sys import World

from edgecompress.core import package_files
from edgecompress.plugins.sensors import _counter, joulescope, meter, nvml, powermetrics

DATA = Path(__file__).parent / "data" / "sensors"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def measure(world: World, opened: Any, seconds: float) -> tuple[Any, float, float]:
    """A window after a pause, and when it was."""
    opened.start()
    world.advance(1.0)
    begin = world.now_s
    world.advance(seconds)
    end = world.now_s
    found = opened.energy(begin, end)
    opened.stop()
    return found, begin, end


# --------------------------------------------------------------------------- NVML


class NvmlError(Exception):
    """As pynvml's."""


def library(world: World, counts: bool = True, mig: bool = False) -> SimpleNamespace:
    """pynvml with one GPU that follows the fake machine's power; its counter steps each 100 ms."""

    def energy_mj(handle: str) -> int:
        if not counts:
            raise NvmlError("Not Supported")
        return int(fake_sys.counted(update_s=0.1)(world.now_s) / 1000)

    def by_index(index: int) -> str:
        if index != 0:
            raise NvmlError("Invalid Argument")
        return "GPU"

    return SimpleNamespace(
        NVMLError=NvmlError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=by_index,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetName=lambda handle: "NVIDIA H200",
        nvmlDeviceGetMigMode=lambda handle: [int(mig), int(mig)],
        nvmlDeviceGetTotalEnergyConsumption=energy_mj,
        nvmlDeviceGetPowerUsage=lambda handle: round(1e3 * fake_sys.watts(world.now_s)),
    )


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Any], None]:
    """Puts a module where an import finds it."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return lambda name, module: monkeypatch.setitem(sys.modules, name, module)


def test_nvml_counts_a_known_energy(world, install):
    install("pynvml", library(world))
    assert nvml.unavailable({}, Path("/")) == ""
    found, begin, end = measure(world, nvml.open({}, Path("/")), 10)
    truth = fake_sys.joules(begin, end)
    assert found.low < truth < found.high and "sensor periods" in found.reason
    assert found.value == pytest.approx(truth, rel=0.01)  # a step of 100 ms in 10 s
    assert (found.scope, found.source) == ("board", "NVML energy counter of NVIDIA H200")


def test_a_gpu_without_a_counter_has_its_power_sampled(world, install):
    install("pynvml", library(world, counts=False))
    assert nvml.unavailable({}, Path("/")) == ""
    found, begin, end = measure(world, nvml.open({}, Path("/")), 10)
    assert found.value == pytest.approx(fake_sys.joules(begin, end), rel=1e-3)
    assert found.source == "NVML power of NVIDIA H200"


def test_a_partitioned_gpu_says_that_all_of_it_is_counted(world, install):
    install("pynvml", library(world, mig=True))
    assert nvml.open({}, Path("/")).origin.source.endswith("all MIG instances together")


def test_the_gpu_is_the_one_that_cuda_would_use(world, install, monkeypatch):
    install("pynvml", library(world))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,0")
    assert "Invalid Argument" in nvml.unavailable({}, Path("/"))
    assert nvml.unavailable({"options": {"nvml": {"gpu": 0}}}, Path("/")) == ""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7f3a")
    assert nvml.unavailable({}, Path("/")) == ""


def test_a_gpu_whose_counter_stands_still_is_no_sensor(world, install):
    stuck = library(world)
    stuck.nvmlDeviceGetTotalEnergyConsumption = lambda handle: 5
    install("pynvml", stuck)
    assert nvml.unavailable({}, Path("/")) == "the counter of NVIDIA H200 does not change"


def test_a_counter_that_a_new_driver_set_back_is_refused(world, install):
    reset = library(world)
    install("pynvml", reset)
    opened = nvml.open({}, Path("/"))
    opened.start()
    world.advance(5)
    reset.nvmlDeviceGetTotalEnergyConsumption = lambda handle: int(world.now_s) - 1000
    found = opened.energy(1001.0, world.now_s)
    assert found.value is None and "the counter fell" in found.reason


def test_nvml_without_its_library_or_driver_says_what_to_do(world, install):
    install("pynvml", None)
    assert nvml.unavailable({}, Path("/")).endswith(package_files.install("gpu"))
    broken = library(world)

    def no_driver() -> None:
        raise NvmlError("Driver Not Loaded")

    broken.nvmlInit = no_driver
    install("pynvml", broken)
    assert "Driver Not Loaded (is the NVIDIA driver installed" in nvml.unavailable({}, Path("/"))


def test_a_real_gpu_counts_its_energy():
    pynvml = pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        pytest.skip(f"no GPU: {error}")
    assert nvml.unavailable({}, Path("/")) == ""
    opened = nvml.open({}, Path("/"))
    opened.start()
    begin = time.monotonic()
    time.sleep(3)
    found = opened.energy(begin, time.monotonic())
    opened.stop()
    assert 3 * 10 < found.value < 3 * 1500 and found.low < found.value < found.high


# --------------------------------------------------------------------------- powermetrics

SAMPLE = """<?xml version="1.0" encoding="UTF-8"?>
<plist version="1.0"><dict><key>elapsed_ns</key><integer>{ns:.0f}</integer>
<key>processor</key><dict><key>combined_power</key><real>{mw}</real></dict></dict></plist>
"""


def program(root: Path, body: str) -> None:
    """A powermetrics of our own."""
    file = root / powermetrics.PROGRAM
    file.parent.mkdir(parents=True)
    file.write_text(f"#!{sys.executable}\nimport sys, time\n{body}")
    file.chmod(0o755)


def test_what_a_mac_printed_is_understood():
    assert powermetrics.joules((DATA / "powermetrics.plist").read_bytes()) == pytest.approx(3.24807 * 1.023685416)


@pytest.mark.parametrize("text", ["", "<plist><dict/></plist>", "<plist><dict><key>elapsed_ns</key>", "no plist"])
def test_what_is_no_sample_of_powermetrics_is_refused(text):
    with pytest.raises(ValueError, match="no sample"):
        powermetrics.joules(text.encode())


def test_powermetrics_adds_up_a_known_energy(world):
    stream = powermetrics._Stream([])
    stream._add(SAMPLE.format(ns=1, mw=0).encode())
    opened = powermetrics.CounterMeter(stream.read, [None], powermetrics.Origin("x", "package"), 0.1)
    last = world.now_s

    def sample(now_s: float) -> str:
        nonlocal last
        if now_s - last >= 0.099:
            mw = 1e3 * fake_sys.joules(last, now_s) / (now_s - last)
            stream._add(SAMPLE.format(ns=1e9 * (now_s - last), mw=mw).encode())
            last = now_s
        return ""

    world.follow({"clockwork": sample})
    for _ in range(130):
        if not world.due:
            opened.start()
        world.advance(0.1)
    found = opened.energy(1002.0, 1012.0)
    assert found.value == pytest.approx(fake_sys.joules(1002.0, 1012.0), rel=1e-3)


def test_powermetrics_is_read_while_it_runs_and_ended_after(tmp_path, monkeypatch):
    """Half a second at 5 W and as long at 15 W, by a program that samples each 20 ms."""
    monkeypatch.setattr(powermetrics, "_command", lambda file, samples: [str(file), str(samples)])
    program(
        tmp_path,
        f"sample = {SAMPLE!r}\nbegin = last = time.monotonic()\nwhile True:\n    time.sleep(0.02)\n"
        "    now = time.monotonic()\n    mw = 5000 if now - begin < 0.5 else 15000\n"
        "    sys.stdout.write(sample.format(ns=1e9 * (now - last), mw=mw) + chr(0))\n    sys.stdout.flush()\n"
        "    last = now\n    if sys.argv[1] == '1':\n        break\n",
    )
    assert powermetrics.unavailable({}, tmp_path) == ""
    opened = powermetrics.open({}, tmp_path)
    opened.start()
    begin = time.monotonic()
    time.sleep(1.0)
    end = time.monotonic()
    found = opened.energy(begin, end)
    opened.stop()
    assert 5 * (end - begin) < found.value < 15 * (end - begin)
    assert (found.status, found.scope) == ("measured", "package") and "Apple" in found.source
    assert len(opened.samples()) > 1


def test_powermetrics_that_may_not_run_says_how_to_allow_it(tmp_path):
    program(tmp_path, "sys.exit('sudo: a password is required')\n")
    why = powermetrics.unavailable({}, tmp_path)
    assert why.startswith("not permitted to run powermetrics (sudo: a password is required)") and "NOPASSWD" in why
    assert "it is a program of macOS" in powermetrics.unavailable({}, tmp_path / "elsewhere")


def test_powermetrics_of_a_mac_without_figures_is_no_sensor(tmp_path):
    program(
        tmp_path,
        "print('<plist><dict><key>elapsed_ns</key><integer>1</integer><key>processor</key><dict/></dict></plist>')",
    )
    assert powermetrics.unavailable({}, tmp_path) == "powermetrics reports neither combined_power nor package_joules"


def test_only_who_is_not_root_asks_sudo_and_never_for_a_password(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 501)
    assert powermetrics._command(Path("/usr/bin/powermetrics"), 0)[:3] == ["sudo", "-n", "/usr/bin/powermetrics"]
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert powermetrics._command(Path("/usr/bin/powermetrics"), 0)[0] == "/usr/bin/powermetrics"


# --------------------------------------------------------------------------- Joulescope


class Instrument:
    """A JS220's driver: it tells of its sums 50 times a second, here whenever the fake clock moves."""

    def __init__(self, world: World, name: str = "JS220-001122") -> None:
        self.world, self.name, self.asked = world, name, dict[str, str]()

    def __str__(self) -> str:
        return self.name

    def open(self) -> None:
        self.asked["open"] = "yes"

    def close(self) -> None:
        self.asked["open"] = "no"

    def parameter_set(self, name: str, value: str) -> None:
        self.asked[name] = value

    def statistics_callback_register(self, tell: Callable[..., None], source: str) -> None:
        self.asked["source"] = source

        def step(now_s: float) -> str:
            tell({"accumulators": {"energy": {"value": fake_sys.joules(1000.0, now_s), "units": "J"}}})
            return ""

        self.world.follow({"joulescope": step})


def test_a_joulescope_adds_up_a_known_energy(world, install):
    instrument = Instrument(world)
    install("joulescope", SimpleNamespace(scan=lambda config: [instrument]))
    device = {"options": {"joulescope": {"scope": "wall"}}}
    assert joulescope.unavailable(device, Path("/")) == ""
    found, begin, end = measure(world, joulescope.open(device, Path("/")), 10)
    assert found.value == pytest.approx(fake_sys.joules(begin, end), rel=1e-3)
    assert (found.scope, found.source) == ("wall", "Joulescope JS220-001122")
    assert instrument.asked == {"open": "no", "reduction_frequency": "50 Hz", "source": "sensor"}


def test_of_several_joulescopes_one_must_be_named(world, install):
    two = [Instrument(world), Instrument(world, "JS110-000003")]
    install("joulescope", SimpleNamespace(scan=lambda config: two))
    assert (
        joulescope.unavailable({}, Path("/")) == "2 Joulescopes are plugged in: name one, joulescope = { name = ... }"
    )
    named = {"options": {"joulescope": {"name": "000003"}}}
    assert joulescope.unavailable(named, Path("/")) == ""
    assert joulescope.open(named, Path("/")).origin.source == "Joulescope JS110-000003"


def test_a_joulescope_that_is_not_there_says_what_to_install_and_plug(install):
    install("joulescope", None)
    why = joulescope.unavailable({}, Path("/"))
    assert "pip install joulescope" in why and "plug the instrument" in why
    install("joulescope", SimpleNamespace(scan=lambda config: []))
    assert "no Joulescope JS110 or JS220 is plugged into this machine" in joulescope.unavailable({}, Path("/"))


# --------------------------------------------------------------------------- external meters: marks


def trace(swing_w: float, noise_w: float = 0.0, again: bool = False, period_s: float = 0.02) -> Any:
    """A meter's trace, 123 s behind our clock: idle, marks, idle, and work in steps of 20 W."""
    begin, chip = 500.0, meter.CHIP_S
    edges = [begin + i * chip for i in range(len(meter.PATTERN) + 1)]
    late = 30.0

    def power(t: float) -> float:
        for first in (begin, begin + late)[: 1 + again]:
            if first <= t < first + edges[-1] - begin:
                return 3 + swing_w * meter.PATTERN[min(int((t - first) / chip), len(meter.PATTERN) - 1)]
        return 23.0 if t > edges[-1] + 5 and int(t / 4) % 2 and not again else 3.0

    draw = __import__("random").Random(5)
    times = [begin - 3 + i * period_s for i in range(int(45 / period_s))]
    curve = _counter.Curve.of_power([t - 123 for t in times], [power(t) + draw.gauss(0, noise_w) for t in times])
    return curve, meter.Marks(edges, meter.PATTERN)


@pytest.mark.parametrize(("swing_w", "noise_w"), [(4, 0), (4, 1), (0.5, 0.1), (40, 5)])
def test_marks_are_found_to_a_sample_whatever_the_work_draws(swing_w, noise_w):
    curve, marks = trace(swing_w, noise_w)
    assert meter.align(curve, marks) == pytest.approx(123, abs=0.02)


@pytest.mark.parametrize(
    ("seen", "says"),
    [
        ({"swing_w": 0, "noise_w": 0.5}, "the marks were not found"),
        ({"swing_w": 4, "noise_w": 0.1, "again": True}, r"found in several places, (29.9|30)\S* s apart"),
        ({"swing_w": 4, "period_s": 0.2}, r"one sample every 0.2 s is too few for marks of 0.25 s"),
    ],
)
def test_marks_that_are_not_there_there_twice_or_too_fast_for_the_meter_are_refused(seen, says):
    with pytest.raises(ValueError, match=says):
        meter.align(*trace(**seen))


# --------------------------------------------------------------------------- external meters: traces


class Lamp:
    """A load that draws 3 W, and 4 W more while it computes; a meter tells of it each 40 ms, on a clock of its own."""

    _period_s = 0.04

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch, row: str) -> None:
        self.world, self.row, self.watts = world, row, 3.0
        self.heard: Callable[[str], object] = lambda row: None
        monkeypatch.setattr(meter, "time", world.clock())
        monkeypatch.setattr(meter, "_compute", self.compute)
        world.due[self] = world.now_s

    def now(self) -> None:
        """What the world calls each time."""
        self.heard(self.row.format(t=self.world.now_s - 777, w=self.watts))

    def compute(self, seconds: float) -> None:
        self.watts = 7.0
        self.world.advance(seconds)
        self.watts = 3.0


def window(world: World, opened: Any) -> tuple[Any, float]:
    """A window of 4 s at 3 W and 6 s at 7 W, and what is true of it."""
    opened.start()
    world.advance(2.0)
    begin = world.now_s
    world.advance(4.0)
    meter._compute(6.0)
    end = world.now_s
    return opened.energy(begin, end), 3 * (end - begin) + 4 * 6.0


def test_a_log_that_grows_is_read_on_its_own_clock(world, tmp_path, monkeypatch):
    log = tmp_path / "log.csv"
    log.write_text("t_s,note,power_w\n1,old,5\n")
    os.utime(log, (world.now_s, world.now_s))
    lamp = Lamp(world, monkeypatch, "{t:.6f},x,{w}\n")
    device = {"options": {"meter": {"file": str(log), "scope": "wall"}}}
    opened = meter.open(device, Path("/"))
    with log.open("a", buffering=1) as stream:
        lamp.heard = stream.write
        found, truth = window(world, opened)
    opened.stop()
    assert found.value == pytest.approx(truth, rel=5e-3), found.reason
    assert (found.scope, found.source) == ("wall", "external meter, log.csv")
    assert opened._offset_s == pytest.approx(777, abs=0.04)
    assert abs(opened.samples()[-1][0] - world.now_s) < 0.2


def test_a_serial_port_is_read_line_by_line(world, monkeypatch):
    ours, theirs = os.openpty()
    device = {"options": {"meter": {"port": os.ttyname(theirs), "baud": 9600, "scale": 0.001}}}
    assert meter.unavailable(device, Path("/")) == ""
    lamp = Lamp(world, monkeypatch, "{w:.0f}000\r\n")
    opened = meter.open(device, Path("/"))
    rows = opened._trace._rows

    def say(row: str) -> None:
        """Through the kernel's terminal, to the thread that listens."""
        before, end = len(rows), time.monotonic() + 5
        os.write(ours, row.encode())
        while len(rows) == before and time.monotonic() < end:
            time.sleep(0.0005)

    begin, play = opened._trace.begin, meter.play
    monkeypatch.setattr(opened._trace, "begin", lambda: (begin(), setattr(lamp, "heard", say)))
    monkeypatch.setattr(meter, "play", lambda: (world.advance(0.5), play())[1])
    found, truth = window(world, opened)
    opened.stop()
    assert found.value == pytest.approx(truth, rel=5e-3), found.reason
    assert found.scope == "board" and abs(opened._offset_s) < 0.04
    os.close(ours)
    os.close(theirs)


@pytest.mark.parametrize("line", [b"nan", b"inf", b"1e999", b"3.3.3", b""])
def test_what_a_serial_port_says_that_is_no_power_is_passed_over(line):
    heard = meter._Serial({"port": "none"})
    heard._hear(line, 1.0, 1.0)
    assert heard._rows == []


@pytest.mark.parametrize(("stops", "says"), [(True, "no samples cover"), (False, "less than 99%")])
def test_a_log_that_stops_growing_or_has_a_hole_leaves_that_window_without_energy(
    world, tmp_path, monkeypatch, stops, says
):
    log = tmp_path / "log.csv"
    log.write_text("t_s,power_w\n")
    lamp = Lamp(world, monkeypatch, "{t:.6f},{w}\n")
    opened = meter.open({"options": {"meter": {"file": str(log)}}}, Path("/"))
    with log.open("a", buffering=1) as stream:
        lamp.heard = stream.write
        opened.start()
        world.advance(1.0)
        if stops:
            lamp.heard = lambda row: None
        begin = world.now_s
        world.advance(0.3, sampling=stops)
        world.advance(5.0)
        found = opened.energy(begin, world.now_s - 0.1)
    assert found.value is None and says in found.reason


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "add meter = { file = ... } or { port = ... }"),
        ({"file": "a", "port": "b"}, "no external meter is named"),
        ({"file": "none.csv"}, "No such file"),
        ({"file": "bad.csv"}, "needs the columns t_s"),
        ({"file": "old.csv"}, "s ago: start the meter's logging first"),
        ({"port": "none"}, "No such file"),
        ({"port": "bad.csv"}, "not a serial port"),
        ({"port": "bad.csv", "baud": 7}, "7 baud is not supported"),
    ],
)
def test_a_meter_that_cannot_be_read_says_why(tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    Path("bad.csv").write_text("a,b\n")
    Path("old.csv").write_text("t_s,power_w\n")
    os.utime("old.csv", (1e9, 1e9))
    assert says in meter.unavailable({"options": {"meter": options}}, Path("/"))


def test_a_log_that_is_being_written_is_a_sensor(tmp_path):
    (tmp_path / "log.csv").write_text("t_s,energy_uj\n")
    assert meter.unavailable({"options": {"meter": {"file": str(tmp_path / "log.csv")}}}, Path("/")) == ""


def test_who_may_not_open_a_port_is_told_which_group_may():
    with fake_sys.nobody() as root:
        (root / "ttyUSB0").touch(mode=0o000)
        with fake_sys.unprivileged():
            why = meter.unavailable({"options": {"meter": {"port": str(root / "ttyUSB0")}}}, Path("/"))
    assert why.startswith("not permitted to open") and "dialout" in why


def test_a_mark_is_made_by_computing():
    busy = time.process_time()
    meter._compute(0.2)
    assert time.process_time() - busy > 0.02  # the machine may be busy with other things
