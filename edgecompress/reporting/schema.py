"""Whether a report.json is as report.schema.json says: the part of JSON Schema that it uses, without a library."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

Schema = Mapping[str, Any]
Faults = Iterator[str]

FILE = Path(__file__).with_name("report.schema.json")
TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: _number(v),
    "integer": lambda v: _number(v) and float(v).is_integer(),
}
NUMERIC: Mapping[str, Callable[[Any, Any], bool]] = {
    "minimum": lambda v, limit: v >= limit,
    "maximum": lambda v, limit: v <= limit,
    "exclusiveMinimum": lambda v, limit: v > limit,
}
SIZED: Mapping[str, Callable[[int, int], bool]] = {
    "minItems": lambda n, limit: n >= limit,
    "maxItems": lambda n, limit: n <= limit,
    "minLength": lambda n, limit: n >= limit,
}


@functools.cache
def of_report() -> Schema:
    """The schema of report.json."""
    schema: Schema = json.loads(FILE.read_text(encoding="utf-8"))
    return schema


@functools.cache
def of_any_version() -> Schema:
    """The schema of report.json with no part required: another version writes fewer."""
    schema: Schema = _without_required(of_report())
    return schema


def _without_required(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {key: each for key, each in schema.items() if key != "required" or not isinstance(each, list)}
        return {key: _without_required(each) for key, each in kept.items()}
    return [_without_required(each) for each in schema] if isinstance(schema, list) else schema


def fault(value: Any, schema: Schema) -> str:
    """The first thing that is wrong with a value, with its place, or "". A key that the schema does not know is none:

    a later version may have written it.
    """
    return next(_faults(value, schema, schema, ""), "")


def _faults(value: Any, schema: Schema, root: Schema, at: str) -> Faults:
    if "$ref" in schema:
        yield from _faults(value, _referred(schema["$ref"], root), root, at)
    types = schema.get("type", ())
    if types and not any(TYPES[name](value) for name in ([types] if isinstance(types, str) else types)):
        yield f"{at or 'it'} is not of type {types if isinstance(types, str) else ' or '.join(types)}"
    elif "const" in schema and not _same(value, schema["const"]):
        yield f"{at or 'it'} is not {schema['const']!r}"
    elif "enum" in schema and not any(_same(value, each) for each in schema["enum"]):
        yield f"{at or 'it'} is none of {', '.join(map(repr, schema['enum']))}"
    else:
        yield from _sizes(value, schema, at)
        yield from _inside(value, schema, root, at)
        yield from _either(value, schema, root, at)


def _referred(reference: str, root: Schema) -> Schema:
    found = root
    for name in reference.removeprefix("#/").split("/"):
        found = found[name]
    return found


def _same(value: Any, known: Any) -> bool:
    """True is not 1."""
    return bool(value == known) and isinstance(value, bool) == isinstance(known, bool)


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _sizes(value: Any, schema: Schema, at: str) -> Faults:
    if _number(value):
        yield from (
            f"{at} is {value}, {k} {schema[k]}" for k in NUMERIC.keys() & schema if not NUMERIC[k](value, schema[k])
        )
    own = ("minItems", "maxItems") if isinstance(value, list) else ("minLength",) if isinstance(value, str) else ()
    yield from (f"{at}: {k} is {schema[k]}" for k in own if k in schema and not SIZED[k](len(value), schema[k]))
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{at} is not like {schema['pattern']}"


def _inside(value: Any, schema: Schema, root: Schema, at: str) -> Faults:
    if isinstance(value, dict):
        yield from (
            f"{at and at + ': '}key '{key}' is missing" for key in schema.get("required", ()) if key not in value
        )
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            part = known.get(key, others)
            if isinstance(part, dict):
                yield from _faults(inner, part, root, f"{at}.{key}".lstrip("."))
    elif isinstance(value, list) and "items" in schema:
        for i, inner in enumerate(value):
            yield from _faults(inner, schema["items"], root, f"{at}[{i}]")


def _either(value: Any, schema: Schema, root: Schema, at: str) -> Faults:
    if "anyOf" in schema:
        tried = [next(_faults(value, each, root, at), "") for each in schema["anyOf"]]
        if all(tried):
            yield max(tried, key=len)
    if "if" in schema:
        branch = "else" if next(_faults(value, schema["if"], root, at), "") else "then"
        yield from _faults(value, schema.get(branch, {}), root, at)
