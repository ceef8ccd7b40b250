"""The bottleneck of a variant, in one sentence: the cause that explains most of its latency, from facts and no guesses.

Each cause takes at least a share of the latency: calls (of an empty model, or what lies outside of operators),
operators that only convert, operators that were not fused, the bytes that no cache holds at the measured rate of
memory, and the MACs at the peak of the device's instructions. The largest is named if it is no less than what none of
them explains. Else the kernels are slow, or where a cause is not known nobody knows, and the sentence says why. A limit
that the variant itself exceeds is none: a roof that was measured too low, or a clock that is not the highest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import Graph
from edgecompress.formats.precision.walk import DYNAMIC
from edgecompress.reporting import profilers
from edgecompress.reporting.formatting import known, percent, plain, significant
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_variant import Bottleneck, Variant
from edgecompress.reporting.tables import TextTable

NO_ROOFS = "the profiler roofline did not run (--profile standard runs it)"
# Types of operators, as runtimes call them: those that compute nothing, and those that others fuse into a product
OPERATORS = {
    "conversions": re.compile(
        r"(?i)(de|dynamic|fake)?quantize(linear)?|reorder(input|output)?|cast|transpose|permute|convert(like)?( \(.*)?"
        r"|transpose \(.*|(aten[.:]+)?permute(_copy.*)?|(quantized_decomposed[.:]+)?(de)?quantize_per_\w+.*"
    ),
    "unfused": re.compile(r"(?i)relu6?|clip|hard_?swish|sigmoid|batchnormalization|bias_?add"),
}
BOUND = {
    "arithmetic": "compute-bound",
    "memory": "memory-bound",
    "calls": "call overhead",
    "unfused": "unfused operators",
}
OPERATORS_DO = {"conversions": "only change layout or precision", "unfused": "were not fused"}


class Instruction(NamedTuple):
    """What a core multiplies `dtype` by where it has `feature`, and the most MACs that it does per cycle."""

    dtype: str
    feature: str
    name: str
    macs: int


# The widest of each dtype first: the MACs of one instruction times those that the widest cores start in a cycle.
# Of 512 and 256 bits two (Intel 64 and IA-32 Architectures Optimization Reference Manual; AMD's Zen 4 starts one of 512
# bits: Software Optimization Guide for the AMD Zen4 Microarchitecture, 57647), in 512 bits 16 float32 or, by VPDPBUSD,
# 64 int8. AMX: 2048 int8 or 1024 bfloat16 operations, a MAC being two (the same manual of Intel's). Neon: four of 128
# bits (Arm, Cortex-X1 and Neoverse V1 Software Optimization Guides; Cortex-A76 starts two): FMLA 4 float32 or 8
# float16, SDOT 16, SMMLA 32.
# Int8 without any of them takes several instructions, as many as the runtime's kernel happens to use: no row.
INSTRUCTIONS = (
    Instruction("int8", "amx_int8", "AMX", 1024),
    Instruction("int8", "avx512_vnni", "AVX-512 VNNI", 128),
    Instruction("int8", "avx_vnni", "AVX-VNNI", 64),
    Instruction("int8", "i8mm", "SMMLA", 128),
    Instruction("int8", "asimddp", "SDOT", 64),
    Instruction("bfloat16", "amx_bf16", "AMX", 512),
    Instruction("float16", "asimdhp", "FMLA", 32),
    Instruction("float32", "avx512f", "AVX-512 FMA", 32),
    Instruction("float32", "avx2", "AVX2 FMA", 16),
    Instruction("float32", "asimd", "FMLA", 16),
)
ROOF = "float32"  # what the profiler roofline multiplies
DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}


@dataclass
class Facts:
    """What is known of a variant and its device; causes are (share of the latency or None, words), or at least so."""

    report: Report
    variant: Variant
    artifact: Artifact | None
    causes: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    at_least: dict[str, str] = field(default_factory=dict)  # the cause -> why its share is not known but so far

    def __post_init__(self) -> None:
        from edgecompress.formats import op_counts

        self.ms = self.variant.numbers["latency"].known
        self.caches: dict[str, int] = self.report.environment.get("caches") or {}
        self.roofs: Mapping[str, Any] = profilers.answers(self.report, "roofline").get(self.variant.name) or {}
        self.precision: Mapping[str, Any] = (self.variant.artifact.precision if self.variant.artifact else None) or {}
        self.graph, self.why = Graph((), ()), "" if self.artifact else "the artifact is not here"
        if self.artifact:
            try:
                self.graph = op_counts.graph(self.artifact, self.report.run.batch)
            except (EdgeError, ImportError) as error:
                self.why = str(error).removeprefix(str(self.artifact.path)).lstrip("/: ")


def of_variant(report: Report, variant: Variant, artifact: Artifact | None) -> Bottleneck | None:
    """None where its operators were not asked for, and on a GPU, of which no facts are recorded."""
    on_gpu = report.device.get("platform") == "cuda"
    if variant.ops is None or on_gpu or not known(variant.numbers["latency"]):
        return None
    facts = Facts(report, variant, artifact)
    found = Bottleneck("unknown", "", {}, {})
    found.weights_bytes = sum((facts.precision.get("weights") or {}).values()) or None
    held = (sum(t.bytes for t in (*op.reads, *op.writes) if not t.constant) for op in facts.graph.ops)
    found.activations_bytes = max(held, default=None)
    facts.causes["calls"] = _calls(facts)
    facts.causes |= {cause: _operators(facts, cause) for cause in OPERATORS}
    facts.causes["memory"] = _memory(facts)
    facts.causes["arithmetic"] = _arithmetic(facts, found)
    found.shares = {cause: share for cause, (share, _) in facts.causes.items() if share is not None}
    found.unknown = {cause: why for cause, (share, why) in facts.causes.items() if share is None} | facts.at_least
    found.cause, says = _sentence(facts, found)
    misfits = []  # the largest cache that each does not fit; never the first level
    for what, size in (("weights", found.weights_bytes), ("largest activations", found.activations_bytes)):
        for name in [name for name, held in facts.caches.items() if size and size > held and name != "L1"][-1:]:
            there = plain(facts.caches[name], "bytes")
            misfits.append(f"its {what} of {plain(size, 'bytes')} do not fit the {name} of {there}")
    found.says = "; ".join([says, *misfits])
    return found


# ------------------------------------------------------------------ the causes


def _calls(facts: Facts) -> tuple[float | None, str]:
    """A call of an empty model, or what of the latency lies outside of its operators, whichever is more."""
    call, total = facts.variant.numbers["call"], facts.variant.ops.total_ms if facts.variant.ops else None
    empty, outside = call.known / facts.ms if known(call) else 0.0, max(0.0, 1 - total / facts.ms) if total else 0.0
    if not known(call) and not total:
        return None, call.reason
    if empty >= outside:
        words = f"a call of an empty model takes {plain(call.value, 'ms')} of its {plain(facts.ms, 'ms')}"
        return min(empty, 1.0), words
    return outside, f"{percent(outside)} of its {plain(facts.ms, 'ms')} lie outside of its operators"


def _operators(facts: Facts, cause: str) -> tuple[float | None, str]:
    """The time of its operators of a kind."""
    table = facts.variant.ops
    if table is None or not table.total_ms:
        return None, (table.why if table else "") or "its operators were not timed"
    own = sorted((op for op in table.ops if OPERATORS[cause].fullmatch(op.type)), key=lambda op: -op.ms)
    share = sum(op.ms for op in own) / max(table.total_ms, facts.ms)
    names = ", ".join(dict.fromkeys(op.type for op in own))
    return share, f"{percent(share)} of its time is spent in operators that {OPERATORS_DO[cause]}: {names}"


def _memory(facts: Facts) -> tuple[float | None, str]:
    """The bytes of a call that the largest cache does not hold, at the rate of memory as it was measured."""
    if facts.why or not facts.caches:
        return None, facts.why or "the sizes of its caches are not known"
    largest = max(facts.caches.values())
    weights = sum({t.name: t.bytes for op in facts.graph.ops for t in op.reads if t.constant}.values())
    others = (t.bytes for op in facts.graph.ops for t in (*op.reads, *op.writes) if not t.constant)
    moved = (weights if weights > largest else 0) + sum(size for size in others if size > largest)
    if not moved:
        return 0.0, "a cache holds all that it reads"
    at, rate = moved / (facts.ms * 1e6), (facts.roofs.get("bandwidth") or {}).get("gb_per_s")
    words = f"no cache holds {plain(moved, 'bytes')} of a call, which is {significant(at, 3)} GB/s"
    if not rate:
        return None, f"{words}, and the rate of memory was not measured: {NO_ROOFS}"
    if at > rate:
        return None, f"{words}, more than the {significant(rate, 3)} GB/s measured, so the rate of memory is not known"
    return at / rate, f"{words}, {percent(at / rate)} of the {significant(rate, 3)} GB/s measured"


def _arithmetic(facts: Facts, found: Bottleneck) -> tuple[float | None, str]:
    """The MACs at the peak of their instructions; where no roof was measured at the most that these can do."""
    if facts.why or any(op.macs is None for op in facts.graph.ops):
        return None, facts.why or "its MACs cannot be counted"
    macs = dict[str, int]()
    for op in facts.graph.ops:
        macs[_dtype(op.dtype, facts)] = macs.get(_dtype(op.dtype, facts), 0) + (op.macs or 0)
    found.macs = sum(macs.values())
    if not found.macs:
        return 0.0, "it has no MACs"
    peaks = {dtype: _peak(facts, dtype) for dtype, n in macs.items() if n}
    main = max(macs, key=lambda dtype: macs[dtype])
    measured, ghz, instruction = _roof(facts, main) is not None, _ghz(facts), _instruction(facts.report, main)
    found.instruction = instruction.name if instruction else ""
    reached, top = found.macs / (facts.ms * 1e6), peaks[main]
    share = sum(macs[dtype] / peak for dtype, peak in peaks.items() if peak) / (facts.ms * 1e6)
    if None in peaks.values() or top is None or share > 1:
        by = f" ({found.instruction})" if found.instruction else ""
        limit = "the measured roof" if measured else "the clock that the device reports"
        why = "the device reports no maximum clock" if instruction else "the instruction it uses is not known"
        doubt = f"more than {limit} allows, so" if share > 1 else "and"
        said = f"it computes {significant(reached, 3)} {main} GMAC/s{by}, {doubt} its peak is not known"
        return None, said if share > 1 else f"{said}: {why}"
    if ghz:
        found.macs_per_cycle, found.peak_macs_per_cycle = reached / ghz, top / ghz
    of = f"{'' if measured else 'at most '}{significant(top / (ghz or 1.0), 3)}"
    by = ", ".join(filter(None, [found.instruction, "by the measured float32 roof" if measured else ""]))
    unit = f"{main} MACs per cycle" if ghz else f"{main} GMAC/s"
    words = f"{significant(reached / (ghz or 1.0), 3)} of {of} {unit} ({by})"
    if not measured:
        why = f"no roof was measured: {NO_ROOFS}" if main == ROOF else f"no roof is measured in {main}"
        facts.at_least["arithmetic"] = f"{words}, and {why}"
    return share, f"{percent(share)} of the {main} peak, {words}"


def _dtype(narrowest: str, facts: Facts) -> str:
    """What operators with this narrowest factor multiply in: weights alone may be narrower than that."""
    words = [(word.removesuffix(DYNAMIC), n) for word, n in (facts.precision.get("computes") or {}).items()]
    computes = {DTYPES.get(word, word): n for word, n in words}
    return narrowest if narrowest in computes or not computes else max(computes, key=lambda dtype: computes[dtype])


def _instruction(report: Report, dtype: str) -> Instruction | None:
    """The widest of the processor's for a dtype."""
    there = report.environment.get("features") or ()
    return next((i for i in INSTRUCTIONS if i.dtype == dtype and i.feature in there), None)


def _ghz(facts: Facts) -> float | None:
    """Of all cores that compute, together."""
    around = facts.report.environment
    mhz, cores = around.get("clock_mhz"), around.get("cores") or 1
    return mhz * min(facts.report.threads(facts.variant.name), cores) / 1e3 if mhz else None


def _roof(facts: Facts, dtype: str) -> float | None:
    """The GMAC/s measured in this dtype; by what instructions is not known, so they tell nothing of others."""
    gflops = (facts.roofs.get("compute") or {}).get("gflops")
    return gflops / 2 if gflops and dtype == ROOF else None


def _peak(facts: Facts, dtype: str) -> float | None:
    """The most GMAC/s: as measured, or at most what the instruction does."""
    own, ghz = _instruction(facts.report, dtype), _ghz(facts)
    return _roof(facts, dtype) or (ghz * own.macs if own and ghz else None)


# ------------------------------------------------------------------ in words


def _sentence(facts: Facts, found: Bottleneck) -> tuple[Any, str]:
    """The cause and the sentence, without the name of the variant."""
    first = max(found.shares, key=lambda cause: found.shares[cause], default="")
    left = 1 - sum(found.shares.values())
    if first and found.shares[first] >= left:
        return first, f"{BOUND.get(first, first)}: {facts.causes[first][1]}"
    told = ", ".join(f"{cause} {percent(share)}" for cause, share in found.shares.items())
    if found.unknown:
        reasons = {why: [c for c, each in found.unknown.items() if each == why] for why in found.unknown.values()}
        why = "; ".join(f"{' and '.join(named)} ({reason})" for reason, named in reasons.items())
        return "unknown", f"bottleneck unknown: {why}{f'; known: {told}' if told else ''}"
    far = f"{facts.causes['arithmetic'][1]}; {percent(left)} of the time is not explained by {told}"
    return "kernels", f"slow kernels, below every limit: {far}"


def table(report: Report) -> TextTable:
    """The bottleneck of each variant whose operators were timed."""
    rows = tuple((v.name, v.bottleneck.says) for v in report.variants if v.bottleneck)
    return TextTable("Bottlenecks", ("variant", "bottleneck, from the facts of the device and the file"), rows)
