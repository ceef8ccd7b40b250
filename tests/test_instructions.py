"""Counted instructions: exactly those that ran, by class, the same each time; a clock that stands still."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgecompress.core import catalog, registry
from edgecompress.device.emulation import build
from edgecompress.plugins.sensors import callgrind, instructions

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
CALL = 300  # Python calls one function in a few instructions more or less than another
NOP = 0xD503201F
RET = 0xD65F03C0
# What a Cortex-A76 runs, and the class that it is in (none: it multiplies nothing).
WORDS = {
    "sdot v0.4s, v1.16b, v2.16b": (0x4E829420, "dot_i8"),
    "udot v0.2s, v1.8b, v2.8b": (0x2E829420, "dot_i8"),
    "sdot v0.4s, v1.16b, v2.4b[0]": (0x4F82E020, "dot_i8"),
    "udot v0.4s, v1.16b, v2.4b[3]": (0x6FA2E820, "dot_i8"),
    "smlal v0.8h, v1.8b, v2.8b": (0x0E228020, "mlal"),
    "umlal2 v0.8h, v1.16b, v2.16b": (0x6E228020, "mlal"),
    "umull v0.4s, v1.4h, v2.4h": (0x2E62C020, "mlal"),
    "smlal v0.4s, v1.4h, v2.h[0]": (0x0F422020, "mlal"),
    "smull v0.4s, v1.4h, v2.h[0]": (0x0F42A020, "mlal"),
    "fmla v0.4s, v1.4s, v2.4s": (0x4E22CC20, "fmla_f32"),
    "fmla v0.4s, v1.4s, v2.s[0]": (0x4F821020, "fmla_f32"),
    "fmla v0.8h, v1.8h, v2.8h": (0x4E420C20, "fmla_f16"),
    "fmla v0.8h, v1.8h, v2.h[0]": (0x4F021020, "fmla_f16"),
    "fmla v0.2d, v1.2d, v2.2d": (0x4E62CC20, ""),
    "add v0.4s, v1.4s, v2.4s": (0x4EA28420, ""),
    "mul v0.4s, v1.4s, v2.4s": (0x4EA29C20, ""),
    "fmul v0.4s, v1.4s, v2.4s": (0x6E22DC20, ""),
    "pmull v0.8h, v1.8b, v2.8b": (0x0E22E020, ""),
}
# Runs programs of machine code, and prints what each took: the first is empty, and what it takes is the call's own.
CODE = """
import ctypes, json, mmap, struct, sys
from pathlib import Path
from edgecompress.plugins.sensors import {sensor} as sensor
asked = json.loads(sys.argv[1])
memory = mmap.mmap(-1, 1 << 16, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
place, calls = ctypes.addressof(ctypes.c_char.from_buffer(memory)), []
for program in asked:
    calls.append(ctypes.CFUNCTYPE(None)(place + memory.tell()))
    memory.write(bytes.fromhex(program))
counter = sensor.open({{}}, Path("/"))
for call in calls:
    call(), counter.count(call)
told = [counter.count(call) for call in calls]
import time
clock = [time.monotonic_ns() for _ in range(1000)]
print("TOLD" + json.dumps([told, clock[-1] - clock[0]]))
"""


def counted(device: str, sensor: str, programs: list[str], log: Path) -> tuple[list[dict[str, int]], int]:
    """What each program of machine code takes on a simulated device, and nanoseconds that pass there meanwhile."""
    found = dataclasses.asdict(catalog.device(device).value)
    shell = registry.load("transports", found["transport"]).connect(found)
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{CODE.format(sensor=sensor)}"
    log.unlink(missing_ok=True)
    assert shell.run([shell.facts()["python"], "-c", code, json.dumps(programs)], 60, log) == 0, log.read_text()
    told = next(line for line in log.read_text().splitlines() if line.startswith("TOLD"))
    return json.loads(told.removeprefix("TOLD"))


def arm(*words: int) -> str:
    return b"".join(word.to_bytes(4, "little") for word in (*words, RET)).hex()


@pytest.mark.qemu
def test_each_instruction_is_counted_once_and_in_its_class(tmp_path: Path) -> None:
    programs = [arm(), *(arm(*[word] * 7) for word, _ in WORDS.values())]
    (empty, *told), _ = counted("qemu-cortex-a76", "instructions", programs, tmp_path / "log")
    for (name, (_, kind)), took in zip(WORDS.items(), told, strict=True):
        found = {key: took[key] - empty[key] for key in took}
        assert found.pop("instructions") == pytest.approx(7, abs=CALL), name
        assert found == dict.fromkeys(instructions.LEGEND, 0) | ({kind: 7} if kind else {}), name


@pytest.mark.qemu
def test_three_runs_count_the_same_to_the_last_instruction_while_the_clock_stands_still(tmp_path: Path) -> None:
    programs = [arm(), arm(*[NOP] * 10_000)]
    runs = [counted("qemu-cortex-a53", "instructions", programs, tmp_path / "log") for _ in range(3)]
    assert runs[0] == runs[1] == runs[2]
    (empty, nops), passed_ns = runs[0]
    assert nops["instructions"] - empty["instructions"] == pytest.approx(10_000, abs=CALL)
    assert passed_ns == 0


@pytest.mark.valgrind
@pytest.mark.prove
def test_callgrind_counts_every_instruction_and_three_runs_nearly_the_same(tmp_path: Path) -> None:
    programs = ["c3", "90" * 10_000 + "c3"]  # ret; nop
    runs = [counted("valgrind-x86", "callgrind", programs, tmp_path / "log")[0] for _ in range(3)]
    for empty, nops in runs:
        assert nops["instructions"] - empty["instructions"] == pytest.approx(10_000, abs=CALL)
        assert nops["instructions"] == pytest.approx(runs[0][1]["instructions"], abs=CALL)


@pytest.mark.parametrize("sensor", [instructions, callgrind])
def test_where_nothing_counts_the_sensor_says_so(sensor: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EDGECOMPRESS_COUNTS", raising=False)
    assert "it is a sensor of devices of transport" in sensor.unavailable({}, Path("/"))


def test_asking_callgrind_does_nothing_where_there_is_no_valgrind() -> None:
    code = "from edgecompress.plugins.sensors import callgrind; print(callgrind.CallgrindCounter('nowhere').dumps)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "0"), done.stderr


def test_the_plugin_counts_the_classes_that_the_sensor_explains() -> None:
    told = {line.split('"')[1] for line in build.PLUGIN.read_text().splitlines() if line.startswith('    { "')}
    assert told == set(instructions.LEGEND)
    assert "SPDX-License-Identifier: GPL-2.0-or-later" in build.PLUGIN.read_text()
