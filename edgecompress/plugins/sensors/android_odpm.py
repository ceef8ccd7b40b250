"""On-device power monitors of Pixel phones (6 and later): energy counters per rail, in the kernel's IIO devices.

Device options: `android_odpm = { rails = ["*_CPU*", "S2S_VDD_G3D"] }`, as shell patterns. Without it: the rails of the
processors, the memory and what joins them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.plugins.sensors import _sampler
from edgecompress.plugins.sensors._power_rails import WHOLE
from edgecompress.plugins.sensors._sampler import CounterMeter, Origin, Stamped, options_of

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
STATUS = "measured"
SCOPE = "rail"

COMPUTE = ("*_CPU*", "*_INT", "*_MIF", "*_MEM", "*VDD2L*", "*_G3D*", "*_GPU*", "*_TPU*")
UPDATE_S = 0.2  # the driver refreshes its sums at least so often at the rates that phones come with
SELF_TEST_S = 1.0
OLD_S = 5.0  # a stamp further back is of another clock
READING = re.compile(r"CH\d+(?:\(T=\d+\))?\[(\w+)\], (\d+)")  # microwatt seconds
STAMP = re.compile(r"(?m)^t=(\d+)$")  # milliseconds since the boot
ALLOW = (
    "root may (`adb root` on a debuggable build), and the shell on some builds; perfetto's android.power data source "
    "reads them without"
)


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why the counters cannot be read below `root`, or ""."""
    files = _files(root)
    if not files:
        return f"no iio:device*/energy_value in {root / 'sys/bus/iio/devices'} (Pixel 6 and later have it)"
    try:
        rails = _rails(device, files)
        moved = _sampler.moving({f: f.read_text for f in rails}, SELF_TEST_S)
    except PermissionError as error:
        return _sampler.denied(error, ALLOW)
    except (OSError, ValueError) as error:
        return f"android_odpm: {error}"
    return "".join(f"the counters in {file} do not change" for file in list(rails)[:1] if not moved)


def open(device: Mapping[str, Json], root: Path) -> CounterMeter:
    """A meter over the sum of the chosen rails."""
    rails = _rails(device, _files(root))
    names = [name for each in rails.values() for name in each]
    origin = Origin("ODPM " + "+".join(names), SCOPE)
    return CounterMeter(partial(_read, rails), [None] * len(names), origin, UPDATE_S)


def _files(root: Path) -> list[Path]:
    return sorted((root / "sys/bus/iio/devices").glob("iio:device*/energy_value"))


def _rails(device: Mapping[str, Json], files: Sequence[Path]) -> dict[Path, list[str]]:
    """The chosen rails by file; raises ValueError where there is none, or one holds the others."""
    patterns = options_of(device, "android_odpm").get("rails", COMPUTE)
    known = {file: [name for name, _ in READING.findall(file.read_text())] for file in files}
    kept = {file: [n for n in names if any(fnmatchcase(n, p) for p in patterns)] for file, names in known.items()}
    names = [n for each in kept.values() for n in each]
    if not names:
        there = ", ".join(", ".join(each) for each in known.values())
        raise ValueError(f"no rail is named {' or '.join(patterns)}; there are {there}")
    if len(names) > 1 and (whole := sorted(set(names) & set(WHOLE))):
        raise ValueError(f"rail '{whole[0]}' includes the others and cannot be added to them; name it alone")
    return {file: each for file, each in kept.items() if each}


def _read(rails: Mapping[Path, Sequence[str]]) -> list[Stamped]:
    """The chosen counters, stamped with the driver's own time where that is of the kernel's boot clock."""
    readings = []
    for file, names in rails.items():
        text, now_s = file.read_text(), time.monotonic()
        counters = dict(READING.findall(text))
        if missing := [n for n in names if n not in counters]:
            raise ValueError(f"{file} no longer lists {missing[0]}")
        readings += [Stamped(now_s - _age_s(text), float(counters[n])) for n in names]
    return readings


def _age_s(text: str) -> float:
    """How old a reading is: the driver gives the last one again until it has a newer one."""
    stamp = STAMP.search(text)
    if not stamp or not hasattr(time, "CLOCK_BOOTTIME"):
        return 0.0
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(stamp.group(1)) / 1e3
    return age_s if 0.0 <= age_s < OLD_S else 0.0
