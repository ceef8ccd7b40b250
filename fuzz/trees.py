"""Changes of structured inputs: one place of a message or of a document, so that the rest of it stays sound."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from random import Random
from typing import Any

NUMBERS = (0, 1, -1, 2, 3, 7, 8, 11, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**31, 2**53, 2**63 - 1, -(2**63), 2**64 - 1)
REALS = (0.0, -1.0, 0.5, 1e-45, 1e30, 1e308, float("inf"), float("-inf"), float("nan"))
TEXTS = ("", "x", "y", "\0", "a/b", "../x", "\x1b[31m", "\u202e", "é", "x" * 300, "NaN", "0")
ANY: tuple[Any, ...] = (None, True, False, [], {}, [[]], {"": 0}, *NUMBERS, *REALS[:6], *TEXTS)

TOML = (
    *("true", "0", "-1", "9223372036854775807", "0.5", "1e999", "inf", "nan", '""', '"x"', '"../x"', '"\\u0007"'),
    *("[]", "[1]", '["x"]', "[[1]]", "{}", "{x = 1}", '[{name = "x"}]', "1979-05-27", "07:32:00"),
)

# --------------------------------------------------------------------------- protobuf


def message(whole: Any, data: bytes, random: Random) -> bytes:
    """A serialized message with one of its fields changed. `whole`: an empty message. Raises what parsing raises."""
    whole.ParseFromString(data)
    places = [(inside, field) for inside in _messages(whole) for field in inside.DESCRIPTOR.fields]
    inside, field = random.choice(places)
    if field.message_type and field.message_type.GetOptions().map_entry:
        _changed_map(getattr(inside, field.name), field, random)
    elif _repeated(field):
        _changed_list(getattr(inside, field.name), inside, field, random)
    elif field.message_type:
        inside.ClearField(field.name) if random.random() < 0.3 else getattr(inside, field.name).SetInParent()
    else:
        setattr(inside, field.name, _scalar(field, random, _siblings(places, field)))
    return bytes(whole.SerializeToString(deterministic=True))


def _messages(message: Any) -> Iterator[Any]:
    """A message and all inside."""
    yield message
    for field, value in message.ListFields():
        if field.message_type and field.message_type.GetOptions().map_entry:
            yield from (m for inner in value.values() if hasattr(inner, "ListFields") for m in _messages(inner))
        elif field.message_type:
            yield from (m for inner in (value if _repeated(field) else [value]) for m in _messages(inner))


def _repeated(field: Any) -> bool:
    return bool(field.is_repeated)


def _siblings(places: list[tuple[Any, Any]], field: Any) -> list[Any]:
    """The values that other messages have of a field: names that mean something elsewhere."""
    return [getattr(m, f.name) for m, f in places if f.full_name == field.full_name and not _repeated(f)]


def _scalar(field: Any, random: Random, known: list[Any]) -> Any:
    """A value that the field can hold."""
    if known and random.random() < 0.5:
        return random.choice(known)
    kinds = {field.CPPTYPE_BOOL: (True, False), field.CPPTYPE_FLOAT: REALS[:4], field.CPPTYPE_DOUBLE: REALS}
    if field.cpp_type == field.CPPTYPE_STRING:
        text = random.choice(TEXTS)
        return text.encode() if field.type == field.TYPE_BYTES else text
    if field.cpp_type == field.CPPTYPE_ENUM:
        return random.choice([value.number for value in field.enum_type.values])
    if field.cpp_type in kinds:
        return random.choice(kinds[field.cpp_type])
    wide = field.cpp_type in (field.CPPTYPE_INT64, field.CPPTYPE_UINT64)
    low = 0 if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64) else -(2 ** (63 if wide else 31))
    return random.choice([n for n in NUMBERS if low <= n < low + 2 ** (64 if wide else 32)])


def _changed_list(values: Any, inside: Any, field: Any, random: Random) -> None:
    """One of a list taken out, doubled, moved or made."""
    if values and random.random() < 0.4:
        del values[random.randrange(len(values))]
    elif field.message_type and values:
        values.append(copy.deepcopy(random.choice(values)))
    elif field.message_type:
        values.add()
    elif values and random.random() < 0.7:
        values[random.randrange(len(values))] = _scalar(field, random, list(values))
    else:
        values.append(_scalar(field, random, list(values)))


def _changed_map(values: Any, field: Any, random: Random) -> None:
    """One of a map taken out, or put under another name."""
    if not values:
        return
    key = random.choice(sorted(values))
    if hasattr(values[key], "CopyFrom"):
        other = random.choice([*sorted(values), "x", "y", "shape", "axis", "val"])
        values[other].CopyFrom(values[key])
    if random.random() < 0.4:
        del values[key]


# --------------------------------------------------------------------------- JSON


def document(data: bytes, random: Random) -> bytes:
    """A JSON text with one of its values changed. Raises what parsing raises."""
    whole = json.loads(data)
    places = list(_places(whole))
    if not places:
        return json.dumps(random.choice(ANY)).encode()
    inside, key = random.choice(places)
    kind = random.random()
    if kind < 0.2:
        del inside[key]
    elif kind < 0.5:
        inside[key] = copy.deepcopy(_value(random.choice(places)))
    else:
        inside[key] = copy.deepcopy(random.choice(ANY))
    return json.dumps(whole, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")


def _value(place: tuple[Any, Any]) -> Any:
    return place[0][place[1]]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each value inside, as what holds it and where."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


# --------------------------------------------------------------------------- TOML


def lines(data: bytes, random: Random) -> bytes:
    """A text of `key = value` lines with one of them changed, left out, or put elsewhere."""
    text = data.decode().split("\n")
    place, other = random.randrange(len(text)), random.randrange(len(text))
    key, between, _ = text[place].partition("=")
    kind = random.random()
    if between and kind < 0.5:
        text[place] = f"{key}= {random.choice(TOML)}"
    elif between and kind < 0.7:
        text[place] = f"{key}={text[other].partition('=')[2]}"
    elif kind < 0.85:
        text.insert(other, text[place])
    else:
        del text[place]
    return "\n".join(text).encode()
