"""Formats numbers with their status, interval and band."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from edgecompress.core.plain_text import escaped
from edgecompress.core.plain_text import plural as plural
from edgecompress.core.quantities import COUNTED, CYCLES
from edgecompress.core.quantities import unit as unit_of
from edgecompress.reporting.model import Gain, Report, of, to_json
from edgecompress.reporting.model_numbers import Number, PowerTrace
from edgecompress.reporting.model_variant import UNTOLD, Variant

GUESSED = ("estimated", "simulated")
DASH = "–"
TOLD = ("equal", "undecided", "noisy")  # verdicts that their reasons begin with


def number(quantity: str, value: float | None, *, unit: str = "", **rest: Any) -> Number:
    """A number; `value` None needs a `reason` and becomes "unavailable"."""
    if value is None:
        return missing(quantity, str(rest.get("reason") or "not measured"), unit)
    return Number(quantity, float(value), unit or unit_of(quantity), **rest)


def missing(quantity: str, reason: str, unit: str = "") -> Number:
    """What could not be measured, and why: never 0."""
    return Number(quantity, None, unit or unit_of(quantity), "unavailable", reason=reason or UNTOLD)


def known(n: Number | None) -> bool:
    """Whether there is a value at all."""
    return n is not None and n.value is not None


def vague(n: Number) -> bool:
    """Whether it deserves a ≈ and two digits: guessed, and no count."""
    return guessed(n) and n.unit != COUNTED


def guessed(n: Number | Gain | PowerTrace) -> bool:
    """Whether the number is a model's or an emulator's rather than an instrument's."""
    return n.status in GUESSED


def significant(value: float, digits: int) -> str:
    """`value` in plain decimals with so many significant digits: 1234.5 at 3 is "1,230"."""
    if not value:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    rounded = round(value, digits - 1 - magnitude)
    magnitude = math.floor(math.log10(abs(rounded)))  # 9.99 becomes 10.0
    return f"{rounded:,.{max(0, digits - 1 - magnitude)}f}".replace("-", "−")


_STEPS: dict[str, tuple[tuple[float, float, str], ...]] = {  # unit -> (from, divided by, unit shown), the largest first
    "bytes": ((2.0**30, 2.0**30, "GiB"), (2.0**20, 2.0**20, "MiB"), (2.0**10, 2.0**10, "KiB"), (0, 1.0, "B")),
    "J": ((1.0, 1.0, "J"), (1e-3, 1e-3, "mJ"), (0, 1e-6, "µJ")),
    "mJ": ((1e3, 1e3, "J"), (1.0, 1.0, "mJ"), (0, 1e-3, "µJ")),
    "ms": ((1e4, 1e3, "s"), (1e-2, 1.0, "ms"), (0, 1e-3, "µs")),
    "s": ((1e-1, 1.0, "s"), (0, 1e-3, "ms")),
    "fraction": ((0, 0.01, "%"),),
    "1/J": ((0, 1.0, "/J"),),
    **dict.fromkeys((COUNTED, CYCLES), ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k"), (0, 1.0, ""))),
}
_DIGITS = {"bytes": 3, "ms": 4, "/s": 4, "fraction": 3}


def scaled(value: float, unit: str) -> tuple[float, str]:
    """The factor to divide by and the unit to show, so that the number reads well: (1024.0, "KiB")."""
    return next(((by, shown) for start, by, shown in _STEPS.get(unit, ()) if abs(value) >= start), (1.0, unit))


Scale = tuple[float, str]


def common(numbers: Sequence[Number | None]) -> Scale | None:
    """The scale of the median, in which a column shows all its numbers; None where none is known or units differ."""
    found = sorted(n.known for n in numbers if n is not None and n.value is not None)
    units = {n.unit for n in numbers if n is not None and n.value is not None}
    return scaled(found[len(found) // 2], units.pop()) if len(units) == 1 else None


def column(numbers: Sequence[Number | None], spread: bool = False, why: bool = False) -> list[str]:
    """The numbers of a column in one unit. `why`: with intervals, and of a missing one the reason."""
    scale = common(numbers)
    return [or_why(n, scale) if why and n else text(n, spread, scale) for n in numbers]


def plain_column(values: Sequence[float | None], unit: str) -> list[str]:
    """Measured values in one unit."""
    return column([None if value is None else Number("", value, unit) for value in values])


def sign(n: Number) -> str:
    """What stands before it: nothing, ≈, or ≥ and ≤ of a bound, whose value is one end of its band, the other open."""
    if not vague(n):
        return ""
    return ("≥ " if n.high is None else "≤ ") if is_bound(n) else "≈ "


def is_bound(n: Number) -> bool:
    """Whether its value is one end of its band, and the other end is open."""
    return (n.low, n.high) in ((n.value, None), (None, n.value))


def text(n: Number | None, spread: bool = False, scale: Scale | None = None) -> str:
    """`0.3012 ms`, `≈ 1.9 mJ`, `≥ 2 µJ`, or a dash; with `spread` also its interval or band. `scale`: of its column."""
    if n is None or n.value is None:
        return DASH
    factor, unit = scale or scaled(n.value, n.unit)
    head = f"{sign(n)}{_digits(n, n.value / factor)}{' ' if unit else ''}{unit}"
    return f"{head} {interval(n, factor)}".rstrip() if spread else head


def or_why(n: Number, scale: Scale | None = None) -> str:
    """It with its interval, or a dash and why there is none."""
    return text(n, spread=True, scale=scale) if known(n) else f"{DASH} {n.reason}"


def percent(share: float) -> str:
    """`50 %`."""
    return f"{significant(100 * share, 2)} %"


def plain(value: float | None, unit: str) -> str:
    """A measured value that carries nothing else, in words."""
    return DASH if value is None else text(Number("", value, unit))


def _digits(n: Number, value: float) -> str:
    whole = n.unit in ("bytes", "items", "operators", COUNTED) and float(value).is_integer()
    if whole and not vague(n) and abs(value) < 1e4:
        return f"{int(value)}".replace("-", "−")
    if n.unit == "fraction" and 0 < abs(value) < 1:
        return f"{value:.2f}".replace("-", "−")
    return significant(value, 2 if vague(n) else _DIGITS.get(n.unit, 4))


def interval(n: Number, factor: float | None = None) -> str:
    """`[0.298, 0.305]` of what was measured, `(0.95 – 2.9)` of what was estimated, or nothing."""
    if n.low is None or n.high is None or n.value is None:
        return ""
    factor = factor or scaled(n.value, n.unit)[0]
    middle, low, high = (_digits(n, end / factor) for end in (n.value, n.low, n.high))
    if low == middle == high:
        return ""
    return f"({low} – {high})" if vague(n) else f"[{low}, {high}]"


def provenance(n: Number, brief: bool = False) -> str:
    """`estimated, package, power model: its citation`: what stands behind a number, or why there is none."""
    if n.value is None:
        return str(n.reason)
    source = n.source.split(":")[0] if brief else n.source
    return ", ".join(p for p in (n.status, n.scope, source, "" if brief else n.reason) if p)


def ended(variant: Variant) -> str:
    """How a variant ended, and why: `slower: 1.92x (1.88–1.95) the time of int8`."""
    verdict = "" if variant.verdict in TOLD else variant.verdict
    return ": ".join(filter(None, (verdict, variant.reason)))


def times(value: float) -> str:
    """A factor as people write it: 1.92×."""
    return f"{significant(value, 3)}×"


def clean(report: Report) -> Report:
    """A report with all its words `cleaned`."""
    return of(cleaned(to_json(report)))


def cleaned(value: object) -> Any:
    """`value` with each character that hides, reorders or drives a terminal written out, as in "\\u202e"."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        return {cleaned(str(k)): cleaned(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [cleaned(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
