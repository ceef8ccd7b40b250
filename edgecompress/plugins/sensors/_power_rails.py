"""Rails of a board by name: which of them make one figure, never one and what it holds. Standard library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgecompress.plugins.sensors import _sampler
from edgecompress.plugins.sensors._sampler import CounterMeter, Origin, Sampled, Stamped, options_of

if TYPE_CHECKING:
    from edgecompress.core.json import Json

# They hold the other rails of their board (Jetson Linux developer guide; Pixel's and Apple's labels).
WHOLE = ("VDD_IN", "POM_5V_IN", "VSYS_PWR_VBATT", "Total System Power")
ALLOW = "the machine's owner can allow it with a udev rule or `chmod a+r` on that file"


@dataclass(frozen=True)
class Rail:
    """One supply: `read` gives microjoules since some time (kind "energy") or watts ("power")."""

    name: str
    kind: Literal["energy", "power"]
    read: Callable[[], float]
    period_s: float = _sampler.QUICKEST_S  # how often it has something new


def number(file: Path) -> float:
    """What a sysfs file says; raises ValueError that names the file."""
    text = file.read_text(encoding="ascii", errors="replace").strip()
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{file} contains {text!r}, not a number") from None


def text(file: Path) -> str:
    """What a sysfs file says, or "" where there is none."""
    return file.read_text(encoding="utf-8", errors="replace").strip() if file.exists() else ""


def chosen(rails: Sequence[Rail], listed: Sequence[str], sensor: str) -> list[Rail]:
    """The rails to add up. Raises ValueError where they are not told apart, not there, or one holds another."""
    names, ways = [r.name for r in rails], f"{sensor} = {{ rails = [...] }}"
    selected = set(listed or [n for n in names if n in WHOLE] or names)
    if missing := sorted(selected - set(names)):
        raise ValueError(f"no rail '{missing[0]}'; there are {', '.join(names)}")
    kept = [r for r in rails if r.name in selected]
    if twice := [n for n in sorted(selected) if names.count(n) > 1]:
        raise ValueError(f"several rails are named '{twice[0]}'")
    if len(kept) > 1 and not listed:
        says = "a rail may include others: name those to add in the device's options"
        raise ValueError(f"several rails ({', '.join(names)}), and {says}: {ways}")
    if len(kept) > 1 and (whole := sorted(selected & set(WHOLE))):
        raise ValueError(f"rail '{whole[0]}' includes the others and cannot be added to them; name it alone: {ways}")
    if len({r.kind for r in kept}) > 1:
        raise ValueError(f"energy counters and power samples cannot be added; name rails of one kind: {ways}")
    return kept


@dataclass(frozen=True)
class Interface:
    """An interface of the kernel that shows rails below `place`; `every` finds them. `sensor` has the options."""

    sensor: str
    place: str
    every: Callable[[Path], Iterator[Rail]]
    scope: str  # unless the options name another

    def unavailable(self, device: Mapping[str, Json], root: Path) -> str:
        """Why the chosen rails cannot be read, or "". They must be seen to move."""
        if not any(True for _ in self.every(root)):
            return f"nothing with energy or power channels in {root / self.place}"
        try:
            return _still(self._chosen(device, root))
        except PermissionError as error:
            return _sampler.denied(error, ALLOW)
        except (OSError, ValueError) as error:
            return f"{self.sensor}: {error}"

    def open(self, device: Mapping[str, Json], root: Path) -> CounterMeter | Sampled:
        """A meter over the chosen rails. Option `wrap_uj`: the largest value of their counters."""
        rails, options = self._chosen(device, root), options_of(device, self.sensor)
        names = "+".join(r.name for r in rails)
        origin = Origin(f"{self.sensor} {names}", options.get("scope", self.scope))
        period_s = max(r.period_s for r in rails)
        if rails[0].kind == "power":
            return Sampled(lambda: sum(r.read() for r in rails), origin, period_s)
        wraps = [options.get("wrap_uj")] * len(rails)
        return CounterMeter(lambda: [Stamped.now(r.read) for r in rails], wraps, origin, period_s)

    def _chosen(self, device: Mapping[str, Json], root: Path) -> list[Rail]:
        return chosen(list(self.every(root)), options_of(device, self.sensor).get("rails", ()), self.sensor)


def _still(rails: Sequence[Rail]) -> str:
    """The first rail that stands still, in words; "" where all move."""
    named = {r.name: r for r in rails}
    seconds = max([_sampler.SELF_TEST_S, *(3 * r.period_s for r in rails)])
    still = sorted(named.keys() - _sampler.moving({n: r.read for n, r in named.items()}, seconds))
    return f"{still[0]} does not change: it reads {named[still[0]].read():g} all the time" if still else ""
