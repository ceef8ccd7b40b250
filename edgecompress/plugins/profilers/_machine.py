"""What /sys and /proc tell of a busy processor: clock, temperature, throttling, caches, memory. Linux, below a root."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgecompress.device import machine

CPUS = "sys/devices/system/cpu"
PROCESSOR_CHIPS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")  # hwmon names that are a processor's
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"  # of the Raspberry Pi: live bits below, sticky above
FIRMWARE_BITS = ("under-voltage", "the clock capped", "throttled", "the soft temperature limit")


def clock_mhz(root: Path) -> float | None:
    """The clock of the fastest core: a busy one runs at the highest that it may."""
    khz = _numbers(root / CPUS, "cpu[0-9]*/cpufreq/scaling_cur_freq")
    return max(khz, default=0.0) / 1e3 or None


def temperature_c(root: Path) -> float | None:
    """The hottest thermal zone, or where there is none the hottest sensor of the processor."""
    readings = list(_numbers(root / "sys/class/thermal", "thermal_zone*/temp")) or [
        value
        for chip in (root / "sys/class/hwmon").glob("hwmon*")
        if (_text(chip / "name") or "") in PROCESSOR_CHIPS
        for value in _numbers(chip, "temp*_input")
    ]
    return max(readings) / 1e3 if readings else None


def throttle_events(root: Path) -> int | None:
    """How often the kernel saw a core throttled by heat, since the start of the machine (x86)."""
    counts = list(_numbers(root / CPUS, "cpu[0-9]*/thermal_throttle/core_throttle_count"))
    return int(sum(counts)) if counts else None


def firmware_limits(root: Path) -> list[str]:
    """What a Raspberry Pi's firmware holds the processor back for at this moment."""
    try:
        bits = int(_text(root / FIRMWARE) or "0", 16)
    except ValueError:
        return []
    return [name for i, name in enumerate(FIRMWARE_BITS) if bits >> i & 1]


def cache_bytes(root: Path) -> int | None:
    """The largest cache that the first core sees."""
    return max(machine.caches(machine.here(root)).values(), default=None)


def memory_bytes(root: Path) -> int | None:
    """Memory that can still be had."""
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _numbers(folder: Path, pattern: str) -> Iterator[float]:
    """The numbers in the files that can be read: a zone may be there and refuse."""
    for file in sorted(folder.glob(pattern)):
        try:
            yield float(_text(file) or "")
        except ValueError:
            continue


def _text(file: Path) -> str | None:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip("\0 \n")
    except OSError:
        return None
