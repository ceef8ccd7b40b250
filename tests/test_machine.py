"""What a machine is: told by a shell script as it is read from files."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from edgecompress.device import machine

PI = """==edgecompress== system
Linux
==edgecompress== kernel
6.12.25+rpt-rpi-2712
==edgecompress== machine
aarch64
==edgecompress== nproc
4
==edgecompress== release
==edgecompress== proc/cpuinfo
processor\t: 0
Features\t: fp asimd evtstrm aes crc32 atomics fphp asimdhp asimdrdm asimddp
CPU implementer\t: 0x41
CPU part\t: 0xd0b

processor\t: 1
==edgecompress== proc/meminfo
MemTotal:        8244576 kB
MemAvailable:    7000000 kB
==edgecompress== proc/device-tree/model
Raspberry Pi 5 Model B Rev 1.0

==edgecompress== etc/os-release
PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"
==edgecompress== sys/devices/system/cpu/cpu0/cpufreq/scaling_governor
ondemand
==edgecompress== sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq
2400000
==edgecompress== sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq
2400000
==edgecompress== sys/devices/system/cpu/cpu0/cache/index0/level
1
==edgecompress== sys/devices/system/cpu/cpu0/cache/index0/type
Data
==edgecompress== sys/devices/system/cpu/cpu0/cache/index0/size
64K
==edgecompress== sys/devices/system/cpu/cpu0/cache/index1/level
1
==edgecompress== sys/devices/system/cpu/cpu0/cache/index1/type
Instruction
==edgecompress== sys/devices/system/cpu/cpu0/cache/index1/size
32K
==edgecompress== sys/devices/system/cpu/cpu0/cache/index2/level
2
==edgecompress== sys/devices/system/cpu/cpu0/cache/index2/type
Unified
==edgecompress== sys/devices/system/cpu/cpu0/cache/index2/size
512K
==edgecompress== sys/class/thermal/thermal_zone0/temp
61200
"""
APPLE = {
    "system": "Darwin",
    "caches": "hw.l1dcachesize: 65536\nhw.l2cachesize: 4194304\nhw.perflevel0.l1dcachesize: 131072\n"
    "hw.perflevel0.l2cachesize: 16777216\nhw.l3cachesize: many",
}


def test_the_script_tells_what_the_files_tell() -> None:
    said = subprocess.run(["sh", "-c", machine.SCRIPT], capture_output=True, text=True, check=True).stdout
    there, here = (machine.facts(texts) for texts in (machine.parsed(said), machine.here()))
    now = {"now"}
    assert {k: v for k, v in there.items() if k not in now} == {k: v for k, v in here.items() if k not in now}
    assert there["now"].keys() == here["now"].keys()


def test_a_board_is_named_by_its_core_and_its_device_tree() -> None:
    facts = machine.facts(machine.parsed(PI))
    assert (facts["platform"], facts["cores"], facts["cpu"]) == ("linux-aarch64", 4, "Cortex-A76")
    assert facts["board"] == "Raspberry Pi 5 Model B Rev 1.0"
    assert facts["features"] == ["asimd", "asimdhp", "asimddp"]
    assert (facts["governor"], facts["memory_bytes"]) == ("ondemand", 8244576 * 1024)
    assert (facts["now"]["cpu_mhz"], facts["now"]["temperature_c"]) == (2400.0, 61.2)
    assert facts["caches"] == {"L1": 64 << 10, "L2": 512 << 10} and facts["clock_mhz"] == 2400.0


def test_of_apples_cores_the_fast_ones_tell_the_caches() -> None:
    facts = machine.facts(APPLE)
    assert facts["caches"] == {"L1": 128 << 10, "L2": 16 << 20} and facts["clock_mhz"] is None


def test_the_clock_of_a_moment_or_of_a_virtual_machine_is_not_the_highest() -> None:
    assert machine.facts({"proc/cpuinfo": "processor: 0\ncpu MHz\t\t: 2596.130\n"})["clock_mhz"] is None


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("AuthenticAMD", 23, 49, "Zen 2"),
        ("AuthenticAMD", 25, 1, "Zen 3"),
        ("AuthenticAMD", 25, 17, "Zen 4"),
        ("AuthenticAMD", 25, 97, "Zen 4"),
        ("AuthenticAMD", 26, 2, "Zen 5"),
        ("AuthenticAMD", 26, 68, "Zen 5"),
        ("GenuineIntel", 6, 85, "Skylake-SP, Cascade Lake or Cooper Lake"),
        ("GenuineIntel", 6, 106, "Ice Lake"),
        ("GenuineIntel", 6, 143, "Sapphire Rapids"),
        ("GenuineIntel", 6, 255, None),
        ("AuthenticAMD", 6, 143, None),
        ("", 26, "²", None),
    ],
)
def test_a_processor_is_told_by_its_family_and_model(vendor: str, family: int, model: object, name: str | None) -> None:
    told = f"processor: 0\nvendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\nmodel name\t: AMD EPYC\n"
    facts = machine.facts({"proc/cpuinfo": told})
    assert (facts["microarchitecture"], facts["cpu"]) == (name, "AMD EPYC")


def test_no_model_is_of_two_microarchitectures() -> None:
    for known in machine.MICROARCHITECTURES.values():
        models = [model for _, ranges in known for low, high in ranges for model in range(low, high + 1)]
        assert len(models) == len(set(models))


def test_a_machine_that_tells_nothing_has_no_facts(tmp_path: Path) -> None:
    facts = machine.facts(machine.parsed(""))
    assert facts["cpu"] is None and facts["cores"] is None and facts["features"] == []
    assert facts["caches"] == {} and facts["clock_mhz"] is None
    assert facts["now"] == {
        "loadavg": None,
        "memory_available_bytes": None,
        "cpu_mhz": None,
        "temperature_c": None,
    }


def test_what_is_no_number_is_not_one() -> None:
    lie = {"proc/loadavg": "1.0 2.0 3.0", "sys/class/thermal/thermal_zone0/temp": "hot", "nproc": "many"}
    facts = machine.facts(lie)
    assert facts["now"]["temperature_c"] is None and facts["cores"] is None
    nonsense = {"proc/loadavg": "much more than that", "proc/meminfo": "MemTotal:\nMemAvailable: 1e9 kB", "nproc": "²"}
    facts = machine.facts({**nonsense, "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "9" * 5000})
    assert facts["memory_bytes"] is None and facts["cores"] is None and not any(facts["now"].values())


def test_what_a_machine_calls_itself_cannot_steer_a_terminal() -> None:
    facts = machine.facts({"system": "Linux\x1b[2J", "machine": "x\n", "proc/device-tree/model": "Pi \x1b[31m5"})
    assert all(value.isprintable() for value in facts.values() if isinstance(value, str))
