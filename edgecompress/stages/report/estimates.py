"""What a compiler estimates for a device that is not at hand: as numbers, beside each other, and what it left out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from edgecompress import estimate
from edgecompress.model import Artifact
from edgecompress.stages.report import counts
from edgecompress.stages.report.numbers import (
    CYCLES,
    DASH,
    Number,
    known,
    missing,
    number,
    plural,
    significant,
    text,
)
from edgecompress.stages.report.tables import Report, Table

METRICS = (("npu_time", "inference_ms", "ms"), ("sram", "sram_bytes", "bytes"), ("flash", "flash_bytes", "bytes"))


def of_variant(artifact: Artifact | None) -> dict[str, Any] | None:
    """What was estimated of an artifact; None where its runtime estimates nothing."""
    return dict(artifact.facts["estimate"]) if artifact and "estimate" in artifact.facts else None


def numbers(artifact: Artifact | None) -> dict[str, Number]:
    """Cycles, milliseconds, bytes of SRAM and of flash, all estimated; empty where nobody estimates."""
    found = of_variant(artifact)
    if found is None:
        return {}
    cycles = (found["cycles"] or {}).get("total")
    values = ((CYCLES, cycles, CYCLES), *((metric, found[key], unit) for metric, key, unit in METRICS))
    return {metric: _number(metric, value, unit, found) for metric, value, unit in values}


def _number(metric: str, value: float | None, unit: str, found: Mapping[str, Any]) -> Number:
    if value is None:
        return missing(metric, unit, found["reason"])
    return number(metric, value, unit, status=found["status"], n=1, source=estimate.made_by(found))


def table(report: Report) -> Table:
    """Each variant's estimates, and what part they are of the first reference's."""
    shown = [v for v in report["variants"] if v["estimate"]]
    head = ("variant", "cycles", f"at {_clocks(shown)}", "SRAM", "flash", "MACs", "NPU + CPU operators")
    beside = next((v for v in shown if v["reference"] and known(v["numbers"][CYCLES])), None)
    return Table("Estimates", head, tuple(_row(v, beside) for v in shown))


def _clocks(shown: list[Mapping[str, Any]]) -> str:
    return ", ".join(dict.fromkeys(f"{v['estimate']['clock_mhz']:g} MHz" for v in shown)) or DASH


def _row(variant: Mapping[str, Any], beside: Mapping[str, Any] | None) -> tuple[str, ...]:
    found, other = variant["estimate"], beside if beside and beside["name"] != variant["name"] else None
    metrics = (CYCLES, *(metric for metric, *_ in METRICS))
    cells = [_cell(variant["numbers"][m], other["numbers"][m] if other else None) for m in metrics]
    macs = DASH if found["macs"] is None else counts.plain(found["macs"])
    return variant["name"], *cells, macs, f"{found['npu_operators']} + {found['cpu_operators']}"


def _cell(own: Number, other: Number | None) -> str:
    """`≈ 320 k (0.51×)`: with its share of the reference's, where both have the same source."""
    said = text(own)
    if not known(own) or other is None or not other["value"] or own["source"] != other["source"]:
        return said
    return f"{said} ({significant(own['value'] / other['value'], 2)}×)"


def left(report: Report) -> Table:
    """The operators that stay on the CPU, each with the compiler's reason."""
    found = [(v["name"], op) for v in report["variants"] if v["estimate"] for op in v["estimate"]["fallback"]]
    rows = tuple((name, op["name"], op["why"]) for name, op in found)
    return Table("Left on the CPU", ("variant", "operator", "why"), rows)


def notes(report: Report) -> Iterator[str]:
    """What these numbers are, and what they are not."""
    shown = [v["estimate"] for v in report["variants"] if v["estimate"]]
    for by in dict.fromkeys(map(estimate.made_by, shown)):
        yield f"Cycles, SRAM and flash are estimated ({by}): good to compare such estimates by, and no measurement."
    if left_out := max((e["cpu_operators"] for e in shown), default=0):
        yield f"No estimate counts what stays on the CPU, here up to {plural(left_out, 'operator')}."
