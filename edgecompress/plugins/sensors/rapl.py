"""RAPL: the energy counters of x86 processors in /sys/class/powercap (Intel, and AMD from Zen on)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.plugins.sensors import _sampler
from edgecompress.plugins.sensors._sampler import CounterMeter, Origin, Stamped

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "measured"
SCOPE = "package"

UPDATE_S = 0.001  # the counters move about once a millisecond (Intel SDM vol. 3B, 15.10)
ALLOW = (
    "only root may since Linux 5.10 (CVE-2020-8694); the machine's owner can allow it with a udev rule or "
    "`chmod a+r` on the energy_uj files"
)


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why the counters cannot be read below `root`, or "". Takes up to 0.25 s: they must be seen to move."""
    zones = _zones(root)
    packages = [z for z in zones if _name(z).startswith("package")]
    if not packages:
        return f"no RAPL package domain in {root / 'sys/class/powercap'} (virtual machines rarely have one)"
    try:
        still = sorted(set(packages) - _moving(packages))
    except PermissionError as error:
        return _sampler.denied(error, ALLOW)
    except (OSError, ValueError) as error:
        return f"RAPL cannot be read: {error}"
    return f"the counter of {_name(still[0])} does not change ({still[0]})" if still else ""


def open(device: Mapping[str, Json], root: Path) -> CounterMeter:
    """A meter over all packages and the memory domains that move; `unavailable` has said that there are some."""
    zones = _zones(root)
    moving = _moving(zones)
    return meter([z for z in zones if _name(z) != "dram" or z in moving])


def meter(zones: Sequence[Path]) -> CounterMeter:
    """The sum of these zones."""
    wraps = [_read(z / "max_energy_range_uj") for z in zones]
    origin = Origin("RAPL " + "+".join(_name(z) for z in zones), SCOPE)
    return CounterMeter(lambda: [Stamped.now(partial(_read, z / "energy_uj")) for z in zones], wraps, origin, UPDATE_S)


def _zones(root: Path) -> list[Path]:
    """Packages and their dram. Never psys (it holds the packages), core and uncore (packages hold them), nor twice.

    intel-rapl-mmio shows the same counters by another way: taken only where intel-rapl has no package.
    """
    for control in ("intel-rapl", "intel-rapl-mmio"):
        zones = [z for z in sorted((root / "sys/class/powercap").glob(f"{control}:*")) if (z / "energy_uj").exists()]
        kept = [z for z in zones if _name(z).startswith("package") or _name(z) == "dram"]
        if any(_name(z).startswith("package") for z in kept):
            return kept
    return []


def _name(zone: Path) -> str:
    return (zone / "name").read_text(encoding="ascii").strip()


def _read(file: Path) -> int:
    return int(file.read_text(encoding="ascii"))


def _moving(zones: Sequence[Path]) -> set[Path]:
    """The zones whose counter changes while we look."""
    return _sampler.moving({z: partial(_read, z / "energy_uj") for z in zones})
