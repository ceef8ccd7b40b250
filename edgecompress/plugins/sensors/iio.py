"""Power monitors of the kernel's industrial I/O subsystem: energy, power, or voltage * current channels.

Device options: `iio = { rails = ["VDD_IN"], scope = "board", wrap_uj = 4294967295 }`. A rail's name is its label, or
DEVICE/CHANNEL ("ina226/power2"). Without `rails` the board's input is taken, or the only rail there is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.plugins.sensors._power_rails import Interface, Rail, number, text
from edgecompress.plugins.sensors._sampler import CounterMeter, Sampled

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "measured"
SCOPE = "rail"  # unless the options name another

# Units of the kernel's IIO interface, after scale and offset: energy J, power mW, voltage mV, current mA.
CHANNEL = re.compile(r"in_(energy|power|current)(\d+)_(?:raw|input)")


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why no rail can be read below `root`, or ""."""
    return _interface().unavailable(device, root)


def open(device: Mapping[str, Json], root: Path) -> CounterMeter | Sampled:
    """A meter over the chosen rails."""
    return _interface().open(device, root)


def _interface() -> Interface:
    return Interface("iio", "sys/bus/iio/devices", _all, SCOPE)


def _all(root: Path) -> Iterator[Rail]:
    for chip in sorted((root / "sys/bus/iio/devices").glob("iio:device*")):
        pairs = {m.groups() for f in chip.iterdir() if (m := CHANNEL.fullmatch(f.name))}
        for what in ("energy", "power", "current"):  # the best that the device has: they tell of the same rails
            if channels := sorted(n for w, n in pairs if w == what):
                yield from (rail for n in channels for rail in _rail(chip, what, n))
                break


def _rail(chip: Path, what: str, channel: str) -> Iterator[Rail]:
    label = text(chip / f"in_{what}{channel}_label") or text(chip / f"rail_name_{channel}")
    name = label or f"{text(chip / 'name')}/{what}{channel}"
    if what == "energy":
        yield Rail(name, "energy", lambda: _value(chip, "energy", channel) * 1e6)
    elif what == "power":
        yield Rail(name, "power", lambda: _value(chip, "power", channel) * 1e-3)
    elif any((chip / f"in_voltage{channel}_{form}").exists() for form in ("raw", "input")):
        yield Rail(name, "power", lambda: _value(chip, "voltage", channel) * _value(chip, "current", channel) * 1e-6)


def _value(chip: Path, what: str, channel: str) -> float:
    """A channel in its unit: processed as it is, raw with the offset and scale of the channel or of its kind."""
    processed = chip / f"in_{what}{channel}_input"
    if processed.exists():
        return number(processed)
    parts = {"offset": 0.0, "scale": 1.0}
    for part in parts:
        files = [chip / f"in_{what}{channel}_{part}", chip / f"in_{what}_{part}"]
        parts[part] = next((number(f) for f in files if f.exists()), parts[part])
    return (number(chip / f"in_{what}{channel}_raw") + parts["offset"]) * parts["scale"]
