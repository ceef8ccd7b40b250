"""A lower bound: the energy of an inference's multiplications and memory traffic only, far below the real energy.

MACs times the energy of a multiplier and an adder, and each weight, input and output once times that of the smallest
memory there is: no instruction, no register, no idle silicon. Device options: `op_floor = { node_nm = 45 }` when the
chip is known to be of that process or an older, hungrier one; else the finest process with a published table counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.core.json import Json
from edgecompress.core.model import Measured
from edgecompress.plugins.sensors._counter import no_energy

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "estimated"
SCOPE = "package"
NEEDS_WORK = True  # the stage gives device["work"]: op_counts.total of the artifact


@dataclass(frozen=True)
class EnergyTable:
    """Picojoules of a MAC by its dtype (sums of 8-bit products are kept in 32 bits), and of a byte of an 8 KB SRAM."""

    source: str
    mac_pj: Mapping[str, float]
    byte_pj: float


# By the process in nm. A dtype that a table lacks counts as nothing: it stays a floor.
TABLES = {
    45: EnergyTable(
        "Horowitz, ISSCC 2014, fig. 1.1.9: 45 nm, 0.9 V",
        {"int8": 0.2 + 0.1, "float16": 1.1 + 0.4, "float32": 3.7 + 0.9, "float64": 3.7 + 0.9},
        10 / 8,
    ),
    7: EnergyTable(
        "Jouppi et al., ISCA 2021, table 2: Horowitz's table at 7 nm",
        {"int8": 0.07 + 0.03, "bfloat16": 0.21 + 0.11, "float16": 0.34 + 0.16, "float32": 1.31 + 0.38, "float64": 1.69},
        7.5 / 8,
    ),
}


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no floor, or "": the device's process is finer than any that is published."""
    node_nm = _node_nm(device)
    return "" if node_nm >= min(TABLES) else f"no table of a process of {node_nm:g} nm; the finest is {min(TABLES)} nm"


def open(device: Mapping[str, Any], root: Path) -> FloorMeter:
    """A meter of the work in `device["work"]`."""
    return FloorMeter(device.get("work") or {"macs": None, "why": "the operators were not counted"}, _node_nm(device))


def _node_nm(device: Mapping[str, Any]) -> float:
    options = (device.get("options") or {}).get("op_floor") or {}
    return float(options.get("node_nm", min(TABLES)))


class FloorMeter:
    """One inference's floor, whatever the window: `low` is the value, and there is no `high`."""

    def __init__(self, work: Mapping[str, Any], node_nm: float) -> None:
        self.work, self.table = work, TABLES[max(nm for nm in TABLES if nm <= node_nm)]
        self.source = f"floor of MACs and bytes: {self.table.source}"

    def start(self) -> None:
        """Nothing to start."""

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules that one inference takes at the least."""
        if self.work["macs"] is None:
            return no_energy(SCOPE, self.source, str(self.work["why"]))
        macs_pj = sum(self.table.mac_pj.get(dtype, 0.0) * macs for dtype, macs in self.work["macs_of"].items())
        joules = (macs_pj + self.table.byte_pj * self.work["once_bytes"]) / self.work["batch"] * 1e-12
        reason = "a lower bound: arithmetic and one pass over the weights, nothing else"
        return Measured("energy", joules, "J", "estimated", 1, joules, None, self.source, SCOPE, reason)

    def stop(self) -> None:
        """Nothing to stop."""
