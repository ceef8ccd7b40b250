"""What a compiler estimates of artifacts for a device that is not at hand, and how variants rank by that."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edgecompress.model import Outcome

Estimate = Mapping[str, Any]  # what a runtime's export tells in facts["estimate"]; `cycles` is None where it cannot
SAME = 1.02  # within 2 % the target's own order decides
SETTINGS = ("source", "accelerator", "system", "memory", "optimise")  # estimates are comparable under equal ones only


def of(outcome: Outcome | None) -> Estimate | None:
    """The estimate of an artifact; None where its runtime makes none."""
    found: Estimate | None = outcome.facts.get("estimate") if outcome else None
    return found


def made_by(estimate: Estimate) -> str:
    """`Vela 5.2.0: ethos-u55-128, ...`: who estimated, and for what."""
    return f"{estimate['source']}: {', '.join(str(estimate[key]) for key in SETTINGS[1:])}"


def best(found: Mapping[str, Estimate | None]) -> str:
    """The variant with the fewest operators off the accelerator, whose cycles nobody counts, then the fewest cycles.

    Empty where estimates are missing, or were not made under equal settings: then they rank nothing.
    """
    ranked = {name: e for name, e in found.items() if e and e["cycles"]}
    if not ranked or None in found.values() or len({made_by(e) for e in ranked.values()}) > 1:
        return ""
    least = min(e["cpu_operators"] for e in ranked.values())
    cycles = {name: e["cycles"]["total"] for name, e in ranked.items() if e["cpu_operators"] == least}
    return next(name for name, n in cycles.items() if n <= SAME * min(cycles.values()))


def why(found: Mapping[str, Estimate | None]) -> str:
    """Why the best is it; empty where estimates rank nothing."""
    winner = found.get(best(found))
    return f"the best by what {winner['source']} estimates" if winner else ""


def behind(found: Mapping[str, Estimate | None], name: str) -> str:
    """Why a variant stands behind the best; empty where estimates rank nothing."""
    first = best(found)
    own, other = found.get(name), found.get(first)
    if not own or not other:
        return ""
    if not own["cycles"]:
        return str(own["reason"])
    if more := own["cpu_operators"] - other["cpu_operators"]:
        return f"leaves {more} more operator{'s' if more > 1 else ''} to the CPU than {first}"
    factor = own["cycles"]["total"] / other["cycles"]["total"]
    if factor <= SAME:
        return f"as many cycles as {first} (estimated), after it in the target's order"
    return f"about {factor:.2g}x the cycles of {first} (estimated)"
