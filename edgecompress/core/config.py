"""Strict configuration: a TOML table into a frozen dataclass, every mistake with its address and a suggestion."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from edgecompress.core import plain_file
from edgecompress.core.errors import ConfigError, blamed, did_you_mean
from edgecompress.core.json import Json, inside

T = TypeVar("T")
LARGEST = 1 << 20  # bytes of a TOML file
LARGEST_NUMBER = 2**63 - 1  # of whole numbers: TOML promises no larger ones
DEEPEST = 32  # levels of tables and lists in a TOML file
TOO_DEEP = f"nested more than {DEEPEST} levels deep"
SHOWN = 100  # characters of a wrong value
# It is parsed in quadratic time. A word is looked at from its beginning alone, and given back by no character.
DOTTED = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*"|'[^'\n]*')[ \t]*+\.[ \t]*+){64}""")
RENAMED = {"passes": "profilers"}  # keys of a TOML file: what older versions called them
# Keys of another file or table than people look for them in
ELSEWHERE = {"use": 'it is a step of a target\'s variant: write compress = [{ use = "int8" }] under [[variant]]'}


def read_toml(path: Path) -> dict[str, object]:
    """The tables of a TOML file; raises ConfigError with the file and the position, InputError for what is no file."""
    return _tables(read_text(path, LARGEST), str(path))


def read_text(path: Path, largest: int) -> str:
    """The text of a file that people write, of so many bytes at most; raises ConfigError, InputError for no file."""
    try:
        return plain_file.read(path, largest).decode("utf-8-sig")
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise blamed(error, ConfigError)(f"{path}: cannot be read: {error}") from error


def _tables(text: str, where: str) -> dict[str, object]:
    """The tables of a TOML text; raises ConfigError."""
    import tomllib

    if DOTTED.search(text):
        raise ConfigError(f"{where}: not valid TOML: a key of more than 64 parts")
    try:
        tables = tomllib.loads(text)
    except RecursionError as error:
        raise ConfigError(f"{where}: not valid TOML: {TOO_DEEP}") from error
    except ValueError as error:  # TOMLDecodeError; a number of thousands of digits
        raise ConfigError(f"{where}: not valid TOML: {error}") from error
    if why := _unlike_ours(tables):
        raise ConfigError(f"{where}: not valid TOML: {why}")
    return tables


def _unlike_ours(tables: dict[str, object]) -> str:
    """What no file of ours has: values nested deeply, or texts that no file can be called by."""
    level: list[object] = [tables]
    for _ in range(DEEPEST):
        level = [inner for value in level for inner in inside(value)]
        if any(isinstance(value, str) and "\0" in value for value in level):
            return "a text contains the character NUL"
    return TOO_DEEP if level else ""


def build(cls: type[T], table: Mapping[str, object], where: str) -> T:
    """`table` as an instance of the dataclass `cls`; nested dataclasses, tuples, mappings and `X | None` are followed.

    Raises ConfigError: `where: unknown key 'raito', did you mean 'ratio'?`, and the like.
    """
    known = hints(typing.cast(type, cls))
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            if (now := RENAMED.get(key, "")) in fields:
                raise ConfigError(f"{where}: '{key}' was renamed to '{now}' in edgecompress 0.2; use the new name")
            hint = f"; {ELSEWHERE[key]}" if key in ELSEWHERE else did_you_mean(key[:SHOWN], fields)
            raise ConfigError(f"{where}: unknown key {_shown(key)}{hint}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise ConfigError(f"{where}: key '{name}' is missing; it must be {_words(known[name])}")
    values = {key: convert(known[key], value, f"{where}: {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except ValueError as error:  # a dataclass checks its own ranges in __post_init__
        raise ConfigError(f"{where}: {error}") from error


@cache
def hints(cls: type) -> dict[str, object]:
    """The types of the fields of a dataclass."""
    return typing.get_type_hints(cls)


def convert(hint: object, value: object, where: str) -> object:
    """A value as a type says that it is; raises ConfigError, which begins with `where`."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return _plain(value, where)
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in arguments:
            return None
        error: ConfigError | None = None
        for choice in (a for a in arguments if a is not type(None)):
            try:
                return convert(choice, value, where)
            except ConfigError as failed:
                error = failed
        assert error is not None
        raise error
    if origin is typing.Literal:
        if value not in arguments:
            hint = did_you_mean(str(value)[:SHOWN], arguments)
            raise ConfigError(f"{where}: {_shown(value)} is not a valid value{hint}")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type[object], hint), value, where)
    if origin is tuple and isinstance(value, (list, tuple)):
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return tuple(convert(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value))
        if len(arguments) != len(value):
            raise ConfigError(f"{where}: must have {len(arguments)} values, not {len(value)}")
        return tuple(convert(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(arguments, value, strict=True)))
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(k): convert(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        _plain(value, where)
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value if hint is list else _plain(value, where)  # who asks for a list checks its items
    raise ConfigError(f"{where}: must be {_words(hint)}, not {_shown(value)}")


def _plain(value: object, where: str) -> object:
    """A value that JSON and every machine have. Raises ConfigError for a date, nan, inf, a number over 64 bits."""
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_plain(v, f"{where}[{i}]") for i, v in enumerate(value))
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{where}: must be a finite number, not {value}")
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        raise ConfigError(f"{where}: must be a number of at most 64 bits, not {_shown(value)}")
    if value is not None and not isinstance(value, (str, int, float)):
        raise ConfigError(f"{where}: must be text, a number, true, false, a list or a table, not {_shown(value)}")
    return value


def _shown(value: object) -> str:
    """A wrong value in an error, cut where it is long."""
    if isinstance(value, int) and abs(value) > LARGEST_NUMBER:
        return f"one of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _words(hint: object) -> str:
    plain = {float: "a number", int: "a whole number", str: "a string", bool: "true or false", list: "a list"}
    if hint in plain:
        return plain[hint]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_words(a) for a in typing.get_args(hint) if a is not type(None))
    if typing.get_origin(hint) in (tuple, list):
        return "a list"
    table = dataclasses.is_dataclass(hint) or typing.get_origin(hint)
    return "a table" if table else str(getattr(hint, "__name__", hint))


def from_text(text: str) -> Json:
    """The value of `--set key=value`: TOML if it is TOML, else the text itself."""
    try:
        table = _tables(f"value = {text}", "--set")
    except ConfigError:
        return text
    return typing.cast("Json", table["value"]) if len(table) == 1 else text  # `build` refuses a date


def to_toml(value: object) -> str:
    """A value as TOML has it, tables inline."""
    if isinstance(value, Mapping):
        return (
            "{ " + ", ".join(f"{_key(key)} = {to_toml(each)}" for key, each in value.items()) + " }" if value else "{}"
        )
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(to_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _key(key: object) -> str:
    return str(key) if re.fullmatch(r"[\w-]+", str(key), re.ASCII) else json.dumps(str(key), ensure_ascii=False)
