"""Why a variant lost: one sentence per variant slower than the fastest reference, from what its operators took."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from edgecompress.core.stats import CHANGE
from edgecompress.reporting.formatting import known, percent, significant
from edgecompress.reporting.model_variant import Operator, Operators, Variant

ADDS_UP = 0.3  # of the latency that the sum of the operators' times may be off: then its shares say nothing
NOT_ADDED_UP = "operator times do not add up to the latency"
SHOWN = 0.15  # of the time: a type of operators that takes less is not named

SIGNED = re.compile(r"^(QuantizeLinear|QLinear\w+)$")  # ONNX Runtime's: what they make or take are activations
AT_RUN_TIME = re.compile(r"^ConvInteger$")


def sentences(variants: Sequence[Variant]) -> dict[str, str]:
    """Of each measured variant that is no reference and slower than the fastest one: why, as far as it is known."""
    times = {v.name: v.numbers["latency"].known for v in variants if known(v.numbers["latency"])}
    references = [v.name for v in variants if v.reference and v.name in times]
    if not references:
        return {}
    best = min(references, key=lambda name: times[name])
    slow = [v for v in variants if not v.reference and times.get(v.name, 0.0) > (1 + CHANGE) * times[best]]
    return {v.name: sentence(v, times[v.name] / times[best], best) for v in slow}


def sentence(variant: Variant, ratio: float, beaten_by: str) -> str:
    """What a variant took so long for, how many times as long as the reference, and what to do about it if known."""
    table = variant.ops or Operators(why="no per-operator pass was run")
    off = _sum_says(variant)
    times = () if off else table.ops
    reasons = [*_left(variant, table, times), *_largest(times), *_advice(table.ops), *filter(None, [off])]
    why = "; ".join(reasons) or f"no evidence: {table.why or 'no operator stands out'}"
    return f"{variant.name} takes {significant(ratio, 2)}x the time of {beaten_by}: {why}."


def adds_up(variant: Variant) -> bool | None:
    """Whether the sum of a variant's operator times is its latency within ADDS_UP; None where one is not known."""
    latency, total = variant.numbers["latency"], (variant.ops.total_ms if variant.ops else None)
    return abs(total / latency.known - 1) <= ADDS_UP if total and known(latency) else None


def _sum_says(variant: Variant) -> str:
    """That the operators' times do not add up, or ""."""
    if adds_up(variant) is not False:
        return ""
    total = variant.ops.total_ms if variant.ops else None
    ratio = (total or 0.0) / variant.numbers["latency"].known
    return f"{NOT_ADDED_UP} ({significant(ratio, 2)} of it)"


def _left(variant: Variant, table: Operators, times: Sequence[Operator]) -> Iterator[str]:
    """How many operators the accelerator did not take, of how many, and their share of the time where it is known."""
    fallback = (variant.verify.fallback if variant.verify else None) or ()
    names = list(table.fallback or [op.name for op in fallback])
    if not names:
        return
    count = f"{len(names)} of {len(table.ops)}" if len(table.ops) >= len(names) else f"{len(names)}"
    total = sum(op.ms for op in times)
    share = sum(op.ms for op in times if op.name in names) / total if total else 0.0
    details = f", {percent(share)} of its time" if share else f" ({', '.join(names[:3])}{', …' if names[3:] else ''})"
    yield f"{count} operators left the accelerator{details}"


def _largest(ops: Sequence[Operator]) -> Iterator[str]:
    """The type of operators that takes most, and the kernel or device that computes most of it."""
    total = sum(op.ms for op in ops)
    types = sorted({op.type for op in ops}, key=lambda kind: (-_time(ops, kind), kind))[:2] if total else []
    for kind in types:
        own = [op for op in ops if op.type == kind]
        if _time(ops, kind) >= SHOWN * total:
            where = max(own, key=lambda op: float(op.ms)).where
            yield f"{kind} takes {percent(_time(ops, kind) / total)} of its time ({where})"


def _time(ops: Sequence[Operator], kind: str) -> float:
    return sum(float(op.ms) for op in ops if op.type == kind)


def _advice(ops: Sequence[Operator]) -> Iterator[str]:
    """What is known of such operators, and what to do about it."""
    if any(AT_RUN_TIME.match(op.type) for op in ops):
        yield "no fast kernel convolves with ranges found at run time: quantize convolutions statically, or not at all"
    signed = [op for op in ops if SIGNED.match(op.type) and re.search(r" int8(×|$)", op.where)]
    if signed:
        left = sum(op.type == "Conv" for op in ops)  # what such activations keep from becoming a QLinearConv
        float_ = f" and {left} Conv stay in float" if left else ""
        yield f"{len(signed)} operators on signed (int8) activations{float_}: on x86, use activation = 'uint8'"
