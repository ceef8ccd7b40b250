"""What a compiler estimates for a device that is not at hand: as numbers, beside each other, and what it left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgecompress.core.model import Artifact
from edgecompress.core.quantities import CYCLES
from edgecompress.data import compiler_estimates
from edgecompress.reporting import instructions
from edgecompress.reporting.formatting import DASH, Number, known, missing, number, plural, significant, text
from edgecompress.reporting.tables import Report, TextTable

KEYS = {"npu_time": "inference_ms", "sram": "sram_bytes", "flash": "flash_bytes"}  # of an estimate, by quantity


def of_variant(artifact: Artifact | None) -> dict[str, Any] | None:
    """What was estimated of an artifact; None where its runtime estimates nothing."""
    return dict(artifact.facts["estimate"]) if artifact and "estimate" in artifact.facts else None


def numbers(artifact: Artifact | None) -> dict[str, Number]:
    """Cycles, milliseconds, bytes of SRAM and of flash, all estimated; empty where nobody estimates."""
    estimate = of_variant(artifact)
    if estimate is None or artifact is None:
        return {}
    cycles = (estimate["cycles"] or {}).get("total")
    values = {CYCLES: cycles, **{name: estimate[key] for name, key in KEYS.items()}}
    return {name: _number(name, value, artifact.facts["estimate"]) for name, value in values.items()}


def _number(metric: str, value: float | None, estimate: compiler_estimates.Estimate) -> Number:
    if value is None:
        return missing(metric, estimate["reason"])
    return number(metric, value, status=estimate["status"], n=1, source=compiler_estimates.made_by(estimate))


def table(report: Report) -> TextTable:
    """Each variant's estimates, and what part they are of the first reference's."""
    shown = [v for v in report["variants"] if v["estimate"]]
    head = ("variant", "cycles", f"at {_clocks(shown)}", "SRAM", "flash", "MACs", "NPU + CPU operators")
    beside = next((v for v in shown if v["reference"] and known(v["numbers"][CYCLES])), None)
    return TextTable("Estimates", head, tuple(_row(v, beside) for v in shown))


def _clocks(shown: list[Mapping[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(f"{v['estimate']['clock_mhz']:g} MHz" for v in shown)) or DASH


def _row(variant: Mapping[str, Any], beside: Mapping[str, Any] | None) -> tuple[str, ...]:
    estimate, other = variant["estimate"], beside if beside and beside["name"] != variant["name"] else None
    cells = [_cell(variant["numbers"][m], other["numbers"][m] if other else None) for m in (CYCLES, *KEYS)]
    macs = DASH if estimate["macs"] is None else instructions.plain(estimate["macs"])
    return variant["name"], *cells, macs, f"{estimate['npu_operators']} + {estimate['cpu_operators']}"


def _cell(own: Number, other: Number | None) -> str:
    """`≈ 320 k (0.51×)`: with its share of the reference's, where both have the same source."""
    shown = text(own)
    if not known(own) or other is None or not other["value"] or own["source"] != other["source"]:
        return shown
    return f"{shown} ({significant(own['value'] / other['value'], 2)}×)"


def left(report: Report) -> TextTable:
    """The operators that stay on the CPU, each with the compiler's reason."""
    operators = [(v["name"], op) for v in report["variants"] if v["estimate"] for op in v["estimate"]["fallback"]]
    rows = tuple((name, op["name"], op["why"]) for name, op in operators)
    return TextTable("Left on the CPU", ("variant", "operator", "why"), rows)


def notes(report: Report) -> Iterator[str]:
    """What these numbers are, and what they are not."""
    shown = [v["estimate"] for v in report["variants"] if v["estimate"]]
    for by in dict.fromkeys(map(compiler_estimates.made_by, shown)):
        yield f"Cycles, SRAM and flash are estimated ({by}): good to compare such estimates by, and no measurement."
    if left_out := max((e["cpu_operators"] for e in shown), default=0):
        yield f"No estimate counts what stays on the CPU, here up to {plural(left_out, 'operator')}."
