"""Strict configuration: a TOML table into a frozen dataclass, every mistake with its address and a suggestion."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from edgecompress.core.errors import ConfigError, did_you_mean

T = TypeVar("T")
RENAMED = {"passes": "profilers"}  # keys of a TOML file: what older versions called them


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; raises ConfigError with the file and the position."""
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error


def build(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """`table` as an instance of the dataclass `cls`; nested dataclasses, tuples, mappings and `X | None` are followed.

    Raises ConfigError: `where: unknown key 'raito', did you mean 'ratio'?`, and the like.
    """
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls) if f.init}  # type: ignore[arg-type]
    for key in table:
        if key not in fields:
            if (now := RENAMED.get(key, "")) in fields:
                raise ConfigError(f"{where}: '{key}' was renamed to '{now}' in edgecompress 0.2; use the new name")
            raise ConfigError(f"{where}: unknown key '{key}'{did_you_mean(key, fields)}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in table:
            raise ConfigError(f"{where}: key '{name}' is missing; it must be {_words(hints[name])}")
    values = {key: _convert(hints[key], value, f"{where}: {key}") for key, value in table.items()}
    try:
        return cls(**values)
    except ValueError as error:  # a dataclass checks its own ranges in __post_init__
        raise ConfigError(f"{where}: {error}") from error


def _convert(hint: Any, value: Any, where: str) -> Any:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        return _convert_union(arguments, value, where)
    if origin is typing.Literal:
        if value not in arguments:
            raise ConfigError(f"{where}: '{value}' is not a valid value{did_you_mean(str(value), arguments)}")
        return value
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return build(typing.cast(type[Any], hint), value, where)
    if origin is tuple and isinstance(value, (list, tuple)):
        return _convert_tuple(arguments, value, where)
    if isinstance(origin, type) and issubclass(origin, Mapping) and isinstance(value, Mapping):
        return {str(k): _convert(arguments[1], v, f"{where}.{k}") for k, v in value.items()}
    return _convert_scalar(hint, value, where)


def _convert_union(arguments: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    error: ConfigError | None = None
    for choice in (a for a in arguments if a is not type(None)):
        try:
            return _convert(choice, value, where)
        except ConfigError as failed:
            error = failed
    assert error is not None
    raise error


def _convert_tuple(arguments: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(_convert(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if len(arguments) != len(value):
        raise ConfigError(f"{where}: must have {len(arguments)} values, not {len(value)}")
    return tuple(_convert(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(arguments, value, strict=True)))


def _convert_scalar(hint: Any, value: Any, where: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise ConfigError(f"{where}: must be {_words(hint)}, not {value!r}")


def _words(hint: Any) -> str:
    plain = {float: "a number", int: "a whole number", str: "a string", bool: "true or false", list: "a list"}
    if hint in plain:
        return plain[hint]
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        return " or ".join(_words(a) for a in typing.get_args(hint) if a is not type(None))
    if typing.get_origin(hint) in (tuple, list):
        return "a list"
    table = dataclasses.is_dataclass(hint) or typing.get_origin(hint)
    return "a table" if table else str(getattr(hint, "__name__", hint))


def from_text(text: str) -> Any:
    """The value of `--set key=value`: TOML if it is TOML, else the text itself."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
