"""Joulescope JS110 and JS220: an ammeter in the supply line that adds up the energy itself, 2 million times a second.

Device options: `joulescope = { name = "JS220-001122", scope = "board" }`. It measures what is wired behind it.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.plugins.sensors._sampler import CounterMeter, Origin, Stamped, options_of, wait_for

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ("joulescope>=1.1",)
STATUS = "measured"
SCOPE = "rail"  # unless the options name another

RATE_HZ = 50  # how often it tells of its sums
FIRST_S = 10.0


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why no instrument can be read, or ""."""
    try:
        instruments = _scan(device)
    except ImportError:
        return "joulescope is not installed; run: pip install joulescope, and plug the instrument into this machine"
    except (OSError, RuntimeError, ValueError) as error:
        return f"joulescope: {' '.join(str(error).split())}"
    name = options_of(device, "joulescope").get("name", "")
    if not instruments:
        return f"no Joulescope {name or 'JS110 or JS220'} is plugged into this machine (USB)"
    if len(instruments) > 1:
        return f"{len(instruments)} Joulescopes are plugged in: name one, joulescope = {{ name = ... }}"
    return ""


def open(device: Mapping[str, Json], root: Path) -> CounterMeter:
    """A meter over the instrument that is plugged in."""
    instrument = _Instrument(_scan(device)[0])
    scope = options_of(device, "joulescope").get("scope", SCOPE)
    return CounterMeter(instrument.read, [None], Origin(instrument.name, scope), 1 / RATE_HZ, instrument.running())


def _scan(device: Mapping[str, Json]) -> list[object]:
    """The instruments plugged in whose name holds the one asked for. Raises ImportError without the library."""
    instruments = importlib.import_module("joulescope").scan(config="auto")
    return [d for d in instruments if str(options_of(device, "joulescope").get("name", "")) in str(d)]


class _Instrument:
    """What the instrument last told of its sum, stamped when that arrived."""

    def __init__(self, driver: Any) -> None:
        self._driver, self.name = driver, f"Joulescope {driver}"
        self._sum: list[Stamped] = []

    def read(self) -> list[Stamped]:
        return self._sum

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        self._driver.open()
        try:
            self._driver.parameter_set("reduction_frequency", f"{RATE_HZ} Hz")
            self._driver.statistics_callback_register(self._add, "sensor")
            wait_for(lambda: self._sum, FIRST_S, f"{self.name} sent no sample within {FIRST_S:g} s")
            yield
        finally:
            self._driver.close()

    def _add(self, statistics: Mapping[str, Any], *_: object) -> None:
        joules = statistics["accumulators"]["energy"]["value"]
        self._sum = [Stamped(time.monotonic(), float(joules) * 1e6)]
