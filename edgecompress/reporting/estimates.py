"""What a compiler estimates for a device that is not at hand: as numbers, beside each other, and what it left out."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from edgecompress.core.model import Artifact
from edgecompress.core.quantities import CYCLES
from edgecompress.data import compiler_estimates
from edgecompress.reporting import instructions
from edgecompress.reporting.formatting import DASH, known, missing, number, plural, significant, text
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Number
from edgecompress.reporting.model_variant import Estimate
from edgecompress.reporting.tables import TextTable

KEYS = {"npu_time": "inference_ms", "sram": "sram_bytes", "flash": "flash_bytes"}  # of an estimate, by quantity


def of_variant(artifact: Artifact | None) -> Estimate | None:
    """What was estimated of an artifact; None where its runtime estimates nothing."""
    return msgspec.convert(artifact.facts["estimate"], Estimate) if artifact and "estimate" in artifact.facts else None


def numbers(artifact: Artifact | None) -> dict[str, Number]:
    """Cycles, milliseconds, bytes of SRAM and of flash, all estimated; empty where nobody estimates."""
    estimate = of_variant(artifact)
    if estimate is None or artifact is None:
        return {}
    cycles = estimate.cycles.total if estimate.cycles else None
    values = {CYCLES: cycles, **{name: getattr(estimate, key) for name, key in KEYS.items()}}
    by = compiler_estimates.made_by(artifact.facts["estimate"])
    return {
        name: missing(name, estimate.reason)
        if value is None
        else number(name, value, status=estimate.status, n=1, source=by)
        for name, value in values.items()
    }


def table(report: Report) -> TextTable:
    """Each variant's estimates, and what part they are of the first reference's."""
    shown = [(v, v.estimate) for v in report.variants if v.estimate]
    if shown and not any(estimate.clock_mhz for _, estimate in shown):
        columns = ("variant", "compiled for", "NPU + CPU operators", "by")
        counts = (f"{estimate.npu_operators} + {estimate.cpu_operators}" for _, estimate in shown)
        placed = ((v.name, f"{e.system}, {e.accelerator}", next(counts), e.source) for v, e in shown)
        return TextTable("On the NPU", columns, tuple(placed))
    clocks = ", ".join(dict.fromkeys(f"{estimate.clock_mhz:g} MHz" for _, estimate in shown))
    head = ("variant", "cycles", f"at {clocks or DASH}", "SRAM", "flash", "MACs", "NPU + CPU operators")
    beside = next((v for v, _ in shown if v.reference and known(v.numbers[CYCLES])), None)
    rows = []
    for v, estimate in shown:
        other = beside if beside and beside.name != v.name else None
        cells = [_cell(v.numbers[m], other.numbers[m] if other else None) for m in (CYCLES, *KEYS)]
        macs = DASH if estimate.macs is None else instructions.plain(estimate.macs)
        rows.append((v.name, *cells, macs, f"{estimate.npu_operators} + {estimate.cpu_operators}"))
    return TextTable("Estimates", head, tuple(rows))


def _cell(own: Number, other: Number | None) -> str:
    """`≈ 320 k (0.51×)`: with its share of the reference's, where both have the same source."""
    shown = text(own)
    if not known(own) or other is None or not other.value or own.source != other.source:
        return shown
    return f"{shown} ({significant(own.known / other.value, 2)}×)"


def left(report: Report) -> TextTable:
    """The operators that stay on the CPU, each with the compiler's reason."""
    operators = [(v.name, op) for v in report.variants if v.estimate for op in v.estimate.fallback]
    rows = tuple((name, op.name, op.why) for name, op in operators)
    return TextTable("Left on the CPU", ("variant", "operator", "why"), rows)


def notes(report: Report) -> Iterator[str]:
    """What these numbers are, and what they are not."""
    shown = [v.estimate for v in report.variants if v.estimate]
    timed = [e for e in shown if e.clock_mhz]
    if shown and not timed:
        yield f"Verified by {shown[0].source}, emulated: latency and energy were not measured."
        return
    for by in dict.fromkeys(compiler_estimates.made_by(msgspec.to_builtins(each)) for each in timed):
        yield f"Cycles, SRAM and flash are estimated ({by}): good to compare such estimates by, and no measurement."
    if left_out := max((e.cpu_operators for e in shown), default=0):
        yield f"No estimate counts what stays on the CPU, here up to {plural(left_out, 'operator')}."
