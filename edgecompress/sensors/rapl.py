"""RAPL: the energy counters of x86 processors in /sys/class/powercap (Intel, and AMD from Zen on)."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.model import Measured
from edgecompress.sensors._counter import Curve, measured, no_energy, unwrap

REQUIRES: tuple[str, ...] = ()
STATUS = "measured"
SCOPE = "package"

UPDATE_S = 0.001  # the counters move about once a millisecond (Intel SDM vol. 3B, 15.10)
POLL_S = 0.25  # against wraps (minutes apart); the edges of a window are read when `energy` is asked
SELF_TEST_S = 0.25


def unavailable(device: Mapping[str, Any], root: Path) -> str:
    """Why the counters cannot be read below `root`, or "". Takes up to 0.25 s: they must be seen to move."""
    zones = _zones(root)
    packages = [z for z in zones if _name(z).startswith("package")]
    if not packages:
        return f"no RAPL package domain in {root / 'sys/class/powercap'} (virtual machines rarely have one)"
    try:
        still = [z for z in packages if z not in _moving(packages)]
    except PermissionError as error:
        return (
            f"not permitted to read {error.filename}: only root may since Linux 5.10 (CVE-2020-8694); the machine's "
            "owner can allow it with a udev rule or `chmod a+r` on the energy_uj files"
        )
    except (OSError, ValueError) as error:
        return f"RAPL cannot be read: {error}"
    return f"the counter of {_name(still[0])} does not move ({still[0]})" if still else ""


def open(device: Mapping[str, Any], root: Path) -> RaplMeter:
    """A meter over all packages and the memory domains that move; `unavailable` has said that there are some."""
    zones = _zones(root)
    moving = _moving(zones)
    return RaplMeter([z for z in zones if _name(z) != "dram" or z in moving])


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
    first = {z: _read(z / "energy_uj") for z in zones}
    moved: set[Path] = set()
    end = time.monotonic() + SELF_TEST_S
    while len(moved) < len(first) and time.monotonic() < end:
        time.sleep(UPDATE_S)
        moved |= {z for z in zones if _read(z / "energy_uj") != first[z]}
    return moved


class RaplMeter:
    """The sum of the zones since `start`; reads them when asked for a window, and now and then against wraps."""

    def __init__(self, zones: Sequence[Path]) -> None:
        self.zones = zones
        self.wraps = [_read(z / "max_energy_range_uj") for z in zones]
        self.source = "RAPL " + "+".join(_name(z) for z in zones)
        self._times: list[float] = []
        self._readings: list[list[int]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._poller = threading.Thread(target=self._poll, daemon=True)

    def start(self) -> None:
        """Takes the first reading."""
        self._sample()
        self._poller.start()

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments (`time.monotonic()`); ask at the window's end: the counters are read then."""
        self._sample()
        with self._lock:
            times = list(self._times)
            columns = list(zip(*self._readings))  # noqa: B905 (Python 3.9)
        try:
            grown = [unwrap(c, w) for c, w in zip(columns, self.wraps)]  # noqa: B905 (Python 3.9)
            curve = Curve(times, [sum(row) * 1e-6 for row in zip(*grown)])  # noqa: B905 (Python 3.9)
            return measured(curve.read(begin_s, end_s, UPDATE_S), "measured", SCOPE, self.source)
        except ValueError as error:
            return no_energy(SCOPE, self.source, str(error))

    def stop(self) -> None:
        """Ends the polling."""
        self._ended.set()
        self._poller.join()

    def _poll(self) -> None:
        while not self._ended.wait(POLL_S):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            readings = [_read(z / "energy_uj") for z in self.zones]
            self._times.append(time.monotonic())
            self._readings.append(readings)
