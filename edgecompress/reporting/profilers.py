"""What the profilers of a run found, as report.json keeps it: checked, thinned, and in the words of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from edgecompress.core import registry
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact
from edgecompress.reporting.model import Look, Outcome, Report, sections
from edgecompress.reporting.model_numbers import Number, Table
from edgecompress.reporting.tables import TextTable

KEPT = 2000  # items of a list in report.json: of more, every k-th

# What a device answers is untrusted. A figure reads only what the SHAPE of its section lists; the rest is kept as it
# came. One of these words; [shape]: a list of them; {"?": shape}: or null.
NUMBER, NULLABLE, TEXT = "number", "number or nothing", "text"
TRUTH, MAYBE = "yes or no", "yes, no or nothing"
MEASURED: Mapping[str, Json] = {
    **dict.fromkeys(("unit", "status", "source", "scope", "reason"), TEXT),
    **dict.fromkeys(("value", "low", "high"), NULLABLE),
}


def table(inputs: Mapping[str, Artifact]) -> list[Look]:
    """Each profiler that ran, in the order of the profile."""
    looks = []
    for facts in (artifact.facts for role, artifact in inputs.items() if role.startswith("pass/")):
        name = str(facts["pass"])
        variants = {v: _answer(name, answer) for v, answer in facts["variants"].items()}
        looks.append(Look(name, facts.get("options") or {}, variants))
    return looks


def _answer(name: str, raw: Table) -> Outcome:
    """What is known of a variant, or why nothing is."""
    if "crashed" in raw:
        return Outcome(f"crashed: {raw['crashed']}")
    answer: Table = {key: thinned(value) for key, value in raw.items() if key != "environment"}
    shape = next((section.shape for section in sections() if section.profiler == name), {})
    if wrong := next(_wrong(answer, shape, ""), ""):
        return Outcome(f"its answer cannot be read: {wrong}")
    say = registry.profiler(name).lines if name in registry.names("profilers") else None  # or it was taken away
    try:
        return Outcome("", [str(line) for line in say(answer)] if say else [], answer)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        return Outcome(f"its answer cannot be read: {error!r}")


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
        return kind in (NULLABLE, MAYBE)
    if isinstance(value, bool):
        return kind in (TRUTH, MAYBE)
    finite = isinstance(value, (int, float)) and abs(value) < float("inf")
    return (kind in (NUMBER, NULLABLE) and finite) or (kind == TEXT and isinstance(value, str))


def number(told: Table) -> Number:
    """A number of an answer."""
    return msgspec.convert(told, Number)


def answers(report: Report, name: str) -> dict[str, Table]:
    """variant -> what the profiler found of it, where it found something."""
    looks = (look for look in report.passes if look.profiler == name)
    return {v: outcome.answer for look in looks for v, outcome in look.variants.items() if outcome.answer}


def findings(report: Report, name: str = "") -> TextTable:
    """What each profiler (or only `name`) says of each variant in its own words, or why it says nothing."""
    rows = []
    for look in report.passes:
        for variant, outcome in look.variants.items() if name in ("", look.profiler) else ():
            rows += [(variant, look.profiler, line) for line in ([outcome.why] if outcome.why else outcome.lines)]
    head = ("variant", "profiler", "what it found")
    return TextTable("Profilers", head, tuple(rows))
