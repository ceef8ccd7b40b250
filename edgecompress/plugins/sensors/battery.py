"""The battery's own gauge (/sys/class/power_supply): the whole device, about once a second, while it is not charged.

A phone on a USB cable is charged: reach it over the network.
Device options: `battery = { period_s = 1.0 }`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.plugins.sensors import _sampler
from edgecompress.plugins.sensors._power_rails import number, text
from edgecompress.plugins.sensors._sampler import Origin, Sampled, options_of

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "measured"
SCOPE = "battery"

PERIOD_S = 1.0  # gauges are slow: a faster reading repeats the last one
ALLOW = "run as root, or where the kernel lets everybody read it"
# The kernel's units: microvolts, microamperes, microwatts. The sign of the current differs between vendors.
POWER, CURRENT, VOLTAGE = "power_now", "current_now", "voltage_now"


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no gauge to read, or "". A gauge that stands still is found while it measures."""
    supplies = _supplies(root)
    if not supplies:
        return f"no battery that reports its current in {root / 'sys/class/power_supply'}"
    try:
        return "" if _watts(supplies) else f"the battery's gauge reads 0 W ({supplies[0]})"
    except PermissionError as error:
        return _sampler.denied(error, ALLOW)
    except (OSError, ValueError) as error:
        return f"battery: {error}"


def open(device: Mapping[str, Json], root: Path) -> Sampled:
    """A meter over every battery of the machine."""
    supplies = _supplies(root)
    period_s = float(options_of(device, "battery").get("period_s", PERIOD_S))
    return Sampled(partial(_watts, supplies), Origin("battery " + "+".join(s.name for s in supplies), SCOPE), period_s)


def _supplies(root: Path) -> list[Path]:
    """The machine's batteries; a mouse has one too, of scope "Device"."""
    every = sorted((root / "sys/class/power_supply").glob("*"))
    batteries = (s for s in every if text(s / "type") == "Battery" and text(s / "scope") != "Device")
    return [s for s in batteries if (s / POWER).exists() or all((s / f).exists() for f in (CURRENT, VOLTAGE))]


def _watts(supplies: Sequence[Path]) -> float:
    """What the batteries give. Raises ValueError while one is charged, or rests because a charger feeds the device."""
    for supply in supplies:
        status = text(supply / "status")
        if status != "Discharging":
            raise ValueError(f"battery {supply.name} is not discharging ({status}): unplug the charger")
    watts = 0.0
    for supply in supplies:
        if (supply / POWER).exists():
            watts += abs(number(supply / POWER)) * 1e-6
        else:
            watts += abs(number(supply / CURRENT)) * number(supply / VOLTAGE) * 1e-12
    return watts
