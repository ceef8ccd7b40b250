"""Power monitors in /sys/class/hwmon: INA219, INA226, INA3221 (Jetson), and every chip with energy or power channels.

Device options: `hwmon = { rails = ["VDD_IN"], scope = "board", wrap_uj = 4294967295 }`. A rail's name is its label, or
CHIP/CHANNEL ("ina226/power1"). Without `rails` the board's input is taken, or the only rail there is. `wrap_uj` is the
largest value of the energy counters, where they wrap.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.plugins.sensors._power_rails import Interface, Rail, number, text
from edgecompress.plugins.sensors._sampler import QUICKEST_S, CounterMeter, Sampled

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "measured"
SCOPE = "rail"  # unless the options name another

# Units of the kernel's hwmon interface: energy uJ, power uW, voltage mV, current mA.
SINGLE = re.compile(r"(energy|power)(\d+)_(?:input|average)")
PAIRED = {"ina3221": 3}  # chips whose inN and currN are of one rail, for N up to this; above are shunts and sums


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why no rail can be read below `root`, or ""."""
    return _interface().unavailable(device, root)


def open(device: Mapping[str, Json], root: Path) -> CounterMeter | Sampled:
    """A meter over the chosen rails."""
    return _interface().open(device, root)


def _interface() -> Interface:
    return Interface("hwmon", "sys/class/hwmon", _all, SCOPE)


def _all(root: Path) -> Iterator[Rail]:
    for chip in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        matches = [m for f in chip.iterdir() if (m := SINGLE.fullmatch(f.name))]
        matches.sort(key=lambda m: (m.group(1) == "energy", m.group().endswith("input")))
        kind, singles = text(chip / "name"), {m.group(2): m for m in matches}
        yield from (_single(chip, kind, singles[channel]) for channel in sorted(singles))
        for channel in map(str, range(1, PAIRED.get(kind, 0) + 1)):
            files = [chip / f"{what}{channel}_input" for what in ("in", "curr")]
            on = all(f.exists() for f in files) and text(chip / f"in{channel}_enable") != "0"
            if channel not in singles and on:
                name = text(chip / f"in{channel}_label") or f"{kind}/in{channel}"
                yield Rail(name, "power", partial(_product, chip, channel), _period_s(chip))


def _single(chip: Path, kind: str, match: re.Match[str]) -> Rail:
    what, channel = match.groups()
    name = text(chip / f"{what}{channel}_label") or text(chip / f"in{channel}_label") or f"{kind}/{what}{channel}"
    file, period_s = chip / match.group(), _period_s(chip, f"{match.group()}_interval")
    if what == "energy":
        return Rail(name, "energy", partial(number, file), period_s)
    return Rail(name, "power", lambda: number(file) * 1e-6, period_s)


def _product(chip: Path, channel: str) -> float:
    """mV * mA = uW."""
    return number(chip / f"in{channel}_input") * number(chip / f"curr{channel}_input") * 1e-6


def _period_s(chip: Path, average: str = "update_interval") -> float:
    """How often the chip has something new: its update interval, or that of an average; both are in milliseconds."""
    intervals = [text(chip / name) for name in ("update_interval", average)]
    return max([QUICKEST_S, *(float(ms) / 1e3 for ms in intervals if ms.isdigit())])
