"""What the profilers of a run found, as report.json keeps it: checked, thinned, and in the words of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from edgecompress.core import registry
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.reporting.model import Look, Number, Outcome, Report, Table

KEPT = 2000  # items of a list in report.json: of more, every k-th

# What a device answers is untrusted. A figure reads only what is listed here; the rest is kept as it came.
# A number, one that may be null, text, a truth, one that may be null; [shape]: a list of them; {"?": shape}: or null.
N, M, S, B, T = "number", "number or nothing", "text", "yes or no", "yes, no or nothing"
_RATE = {"windows": N, "items_per_s": N, "median_ms": N}
_TIMES = dict.fromkeys(("p50", "p95", "p99", "max"), M)
_MEASURED = {"value": M, "unit": S, "status": S, "low": M, "high": M, "source": S, "scope": S, "reason": S}
_STARTS = {key: {"median": M, "min": M, "max": M} for key in ("import_ms", "load_ms", "first_ms", "second_ms")}
SHAPES: dict[str, Mapping[str, Json]] = {
    "sustained": {
        "series": [
            {"t_s": N, "seconds": N, "runs": N, "median_ms": N, "p95_ms": M, "items_per_s": N}
            | {"cpu_mhz": M, "temperature_c": M, "power_w": M}
        ],
        "burst": {"?": _RATE},
        "sustained": {"?": _RATE},
        "ratio": M,
        "throttling": {"flagged": T, "reason": S, "evidence": [S]},
        "power": {"status": S},
    },
    "periodic": {
        "period_ms": N,
        "rate_hz": N,
        "n": N,
        "due": N,
        "response_ms": _TIMES,
        "service_ms": _TIMES,
        "wake_ms": _TIMES,
        "floor": B,
        "saturated": B,
        "missed": N,
        "missed_share": N,
        "duty": N,
        "responses_ms": [N],
        "every": N,
        "energy_per_period": _MEASURED,
        "power": _MEASURED,
    },
    "throughput": {
        "rows": [
            {"batch": N, "runs": N, "items_per_s": N, "median_ms": N, "p95_ms": M, "ms_per_item": N}
            | {"energy_per_item": _MEASURED}
        ],
        "knee": {"batch": N, "items_per_s": N, "reason": S},
        "best": {"batch": N, "items_per_s": N},
        "left_out": {},
    },
    "cold": {
        "summary": {"warm": _STARTS, "dropped": {"?": _STARTS}},
        "starts": [{"cache": S}],
        "dropped": S,
        "dropped_reason": S,
    },
    "memory": {
        "timeline": [{"t_s": N, "rss_bytes": N, "phase": S}],
        "phases": [
            {"name": S, "begin_s": N, "end_s": N, "runs": M, "end_bytes": M}
            | {"anon_bytes": M, "file_bytes": M, "peak_bytes": M}
        ],
        "baseline_bytes": M,
        "peak_over_bytes": M,
        "reason": S,
        "split_reason": S,
    },
    "roofline": {
        "compute": {"gflops": M, "reason": S},
        "bandwidth": {"gb_per_s": M, "reason": S},
        "ops": [{"name": S, "type": S, "ms": N}],
        "why": S,
    },
}


def table(inputs: Mapping[str, Artifact]) -> list[Look]:
    """Each profiler that ran, in the order of the profile."""
    profiles = [artifact.facts for role, artifact in inputs.items() if role.startswith("pass/")]
    return [_look(facts) for facts in profiles]


def _look(facts: Mapping[str, Any]) -> Look:
    name = str(facts["pass"])
    variants = {v: _answer(name, answer) for v, answer in facts["variants"].items()}
    return Look(name, facts.get("options") or {}, variants)


def _answer(name: str, raw: Table) -> Outcome:
    """What is known of a variant, or why nothing is."""
    if "crashed" in raw:
        return Outcome(f"crashed: {raw['crashed']}")
    answer = {key: thinned(value) for key, value in raw.items() if key != "environment"}
    if wrong := next(_wrong(answer, SHAPES.get(name, {}), ""), ""):
        return Outcome(f"its answer cannot be read: {wrong}")
    try:
        return Outcome("", _lines(name, answer), answer)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Outcome(f"its answer cannot be read: {error!r}")


def _lines(name: str, answer: Table) -> list[str]:
    """What the profiler says of its answer in words; none where it was taken away, or has none."""
    if name not in registry.names("profilers"):
        return []
    say = registry.profiler(name).lines
    return [str(line) for line in say(answer)] if say else []


def thinned(value: object) -> object:
    """A long list as every k-th of its items."""
    return value[:: -(-len(value) // KEPT)] if isinstance(value, list) and len(value) > KEPT else value


def _wrong(value: object, shape: Any, at: str) -> Iterator[str]:
    """Where a value is not what its shape says."""
    if isinstance(shape, str):
        if not _is(value, shape):
            yield _mismatch(value, at, shape)
    elif isinstance(shape, list):
        for i, item in enumerate(value if isinstance(value, list) else ()):
            yield from _wrong(item, shape[0], f"{at}[{i}]")
        if not isinstance(value, list):
            yield _mismatch(value, at, "a list")
    elif "?" in shape:
        yield from () if value is None else _wrong(value, shape["?"], at)
    elif not isinstance(value, Mapping):
        yield _mismatch(value, at, "a table")
    else:
        for key, inner in shape.items():
            yield from _wrong(value.get(key), inner, f"{at}.{key}".lstrip("."))


def _mismatch(value: object, at: str, kind: str) -> str:
    return f"{at or 'it'} is {str(value)[:40]!r}, not {kind}"


def _is(value: object, kind: str) -> bool:
    if value is None:
        return kind in (M, T)
    if isinstance(value, bool):
        return kind in (B, T)
    finite = isinstance(value, (int, float)) and abs(value) < float("inf")
    return (kind in (N, M) and finite) or (kind == S and isinstance(value, str))


def number(told: Table) -> Number:
    """A number of an answer."""
    return msgspec.convert(told, Number)


def answers(report: Report, name: str) -> dict[str, Table]:
    """variant -> what the profiler found of it, where it found something."""
    looks = (look for look in report.passes if look.profiler == name)
    return {v: outcome.answer for look in looks for v, outcome in look.variants.items() if outcome.answer}
