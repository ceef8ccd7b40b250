"""Whether a device is fit to be measured on now: its temperature, its load, its memory, its clock."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core import config, registry
from edgecompress.core.json import Json

DEADLINE_S = 20.0
# Lines of `name value...`; what a system does not have it does not tell
ASK = (
    "head -n 1 /proc/stat; sleep 1; head -n 1 /proc/stat; "
    "grep -E '^(MemTotal|MemAvailable):' /proc/meminfo; "
    "for f in /sys/class/thermal/thermal_zone*/temp; do [ -r $f ] && echo heat $(cat $f 2>/dev/null); done; "
    "for d in /sys/devices/system/cpu/cpufreq/policy*; do [ -r $d/scaling_max_freq ] && "
    "echo clock $(cat $d/scaling_max_freq) $(cat $d/cpuinfo_max_freq); done; true"
)


@dataclass(frozen=True)
class Fit:
    """What a device has to keep: `[options.health]` of its file."""

    hot_c: float = 85.0  # at most: there the processors of phones, boards and PCs slow down
    busy: float = 0.5  # of its cores that others keep busy, at most: half of what is measured would be theirs
    free: float = 0.05  # of its memory, at least
    clock: float = 0.5  # of the highest clock that its processors are allowed now, at least


def ill(device: Mapping[str, Json]) -> str:
    """Why nothing is measured on a device now, "" where nothing speaks against it. Raises Unreachable, ConfigError.

    device: the content of its file. An emulated one and one that is no Linux have nothing to be looked at.
    """
    options = device.get("options")
    table = options.get("health", {}) if isinstance(options, Mapping) else {}
    fit = config.build(Fit, table, "options.health") if isinstance(table, Mapping) else Fit()
    transport = registry.transport(str(device["transport"]))
    if transport.simulated or str(device.get("platform", "")).startswith(("macos", "ios", "windows")):
        return ""
    shell = registry.load("transports", transport.name).connect(device)
    try:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "log"
            log.touch()
            shell.run(["sh", "-c", ASK], DEADLINE_S, log)
            return "; ".join(reasons(log.read_text(encoding="utf-8", errors="replace"), fit))
    finally:
        shell.close()


def reasons(told: str, fit: Fit) -> Iterator[str]:
    """What speaks against measuring, from what ASK prints."""
    rows: dict[str, list[list[float]]] = {}
    for line in told.splitlines():
        name, *words = line.replace(":", " ").split()
        numbers = [float(word) for word in words if word.replace(".", "", 1).isdigit()]
        rows.setdefault(name, []).append(numbers) if name and numbers else None
    if len(ticks := rows.get("cpu", [])) > 1:  # since it started, in all states: the fourth and fifth are idle ones
        spent = [after - before for before, after in zip(ticks[0], ticks[-1], strict=False)]
        busy = 1 - sum(spent[3:5]) / sum(spent) if sum(spent) else 0.0
        if busy > fit.busy:
            yield f"others keep {busy:.0%} of its cores busy (more than {fit.busy:.0%})"
    if (heat := max((row[0] / 1000 for row in rows.get("heat", ())), default=0.0)) > fit.hot_c:
        yield f"its temperature is {heat:.0f} °C (more than {fit.hot_c:.0f})"
    free, whole = (rows.get(name, [[0.0]])[0][0] for name in ("MemAvailable", "MemTotal"))
    if whole and free < fit.free * whole:
        yield f"{free / whole:.1%} of its memory are free (less than {fit.free:.0%})"
    if any(len(row) > 1 and row[0] < fit.clock * row[1] for row in rows.get("clock", ())):
        yield f"its clock is limited to less than {fit.clock:.0%} of the highest"
