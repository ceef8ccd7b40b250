"""What a compiler tells of artifacts for a device that is not available, and the ranking of variants by that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from edgecompress.core.model import Outcome, Status

SAME = 1.02  # within 2 % the target's own order decides


class Estimate(TypedDict):
    """What a runtime's export reports in facts["estimate"]; `cycles` is None, or not there, with the `reason`."""

    status: Status
    source: str
    accelerator: str
    system: str
    memory: NotRequired[str]
    optimise: NotRequired[str]
    cycles: NotRequired[Mapping[str, int] | None]
    npu_operators: int
    cpu_operators: int
    reason: str


def of(outcome: Outcome | None) -> Estimate | None:
    """The estimate of an artifact; None where its runtime makes none."""
    estimate: Estimate | None = outcome.facts.get("estimate") if outcome else None
    return estimate


def made_by(estimate: Estimate) -> str:
    """`Vela 5.2.0: ethos-u55-128, ...`: who estimated, and for what; only estimates with equal ones are comparable."""
    settings = (estimate["accelerator"], estimate["system"], estimate.get("memory"), estimate.get("optimise"))
    return f"{estimate['source']}: {', '.join(str(each) for each in settings if each)}"


def best(estimates: Mapping[str, Estimate | None]) -> str:
    """The variant with the fewest operators off the accelerator, whose cycles nobody counts, then the fewest cycles.

    Where the compiler estimates none, the first of these. Empty where estimates are missing, or were not made under
    equal settings: then they rank nothing.
    """
    ranked = {name: e for name, e in estimates.items() if e and e["npu_operators"]}
    if not ranked or None in estimates.values() or len({made_by(e) for e in ranked.values()}) > 1:
        return ""
    least = min(e["cpu_operators"] for e in ranked.values())
    cycles = {n: _cycles(e) for n, e in ranked.items() if e["cpu_operators"] == least}
    return next(name for name, n in cycles.items() if n <= SAME * min(cycles.values()))


def _cycles(estimate: Estimate) -> int:
    """Of one inference; 0 where nobody estimates them."""
    return (estimate.get("cycles") or {"total": 0})["total"]


def why(estimates: Mapping[str, Estimate | None]) -> str:
    """Why the best is the best; empty if estimates rank nothing."""
    winner = estimates.get(best(estimates))
    if winner and not _cycles(winner):
        return "the first in the target's order of those that leave the fewest operators to the CPU"
    return f"the best by the estimate of {winner['source']}" if winner else ""


def behind(estimates: Mapping[str, Estimate | None], name: str) -> str:
    """Why a variant stands behind the best; empty where estimates rank nothing."""
    first = best(estimates)
    own, other = estimates.get(name), estimates.get(first)
    if not own or not other:
        return ""
    if not own["npu_operators"]:
        return str(own["reason"])
    if more := own["cpu_operators"] - other["cpu_operators"]:
        return f"leaves {more} more operator{'s' if more > 1 else ''} to the CPU than {first}"
    if not _cycles(own) or not _cycles(other):
        return ""
    factor = _cycles(own) / _cycles(other)
    if factor <= SAME:
        return f"as many cycles as {first} (estimated), after it in the target's order"
    return f"about {factor:.2g}x the cycles of {first} (estimated)"
