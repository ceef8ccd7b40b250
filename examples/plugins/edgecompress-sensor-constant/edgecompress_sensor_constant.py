"""A power that does not change, read off a bench supply by eye: a sensor in one file, in a distribution of its own.

Device options: `constant = { watts = 4.2, scope = "wall" }`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgecompress.core.json import Json
from edgecompress.core.model import Measured

REQUIRES: tuple[str, ...] = ()
EXTRA = ""
STATUS = "estimated"  # or "measured"
SCOPE = "wall"  # what its number covers: a package, a rail, the whole board


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why there is no power to go by, or ""."""
    watts = _options(device).get("watts")
    if isinstance(watts, (int, float)) and watts > 0:
        return ""
    return "no power is given; add constant = { watts = ... } to the device's options"


def open(device: Mapping[str, Json], root: Path) -> ConstantMeter:
    """A meter that always sees the same watts."""
    return ConstantMeter(float(_options(device)["watts"]), str(_options(device).get("scope", SCOPE)))


def _options(device: Mapping[str, Json]) -> Mapping[str, float | str]:
    options = device.get("options")
    own = options.get("constant") if isinstance(options, Mapping) else None
    return {k: v for k, v in own.items() if isinstance(v, (int, float, str))} if isinstance(own, Mapping) else {}


class ConstantMeter:
    """watts * seconds."""

    def __init__(self, watts: float, scope: str) -> None:
        self.watts, self.scope = watts, scope

    def start(self) -> None:
        """Nothing to start."""

    def energy(self, begin_s: float, end_s: float) -> Measured:
        """Joules between two moments."""
        if end_s <= begin_s:
            return Measured("energy", None, "J", "unavailable", scope=self.scope, reason="an empty window")
        joules = self.watts * (end_s - begin_s)
        source = f"a constant {self.watts:g} W"
        return Measured("energy", joules, "J", "estimated", 1, joules, joules, source, self.scope)

    def stop(self) -> None:
        """Nothing to stop."""
