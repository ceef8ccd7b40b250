"""The signature of an op's function is its schema: names, types, allowed words, defaults.

An op is a function that is named after it and whose parameters are the op's inputs. What a program gives is held
against that when it is loaded: what the function does not take, the interpreter does not know.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from edgecompress.engines.coreml.mil.dtypes import Dtype

if TYPE_CHECKING:
    import torch
    from torch import Tensor as Held

    Result: TypeAlias = torch.Tensor | tuple[torch.Tensor, ...]
else:
    Held = Result = object  # only what is annotated on it is read at run time, and torch is not imported for that

FLOATS = frozenset({"float"})
Tensor = Annotated[Held, frozenset({"float", "int", "bool"})]
Number = Annotated[Held, frozenset({"float", "int"})]
Float = Annotated[Held, FLOATS]
Whole = Annotated[Held, frozenset({"int"})]
Bool = Annotated[Held, frozenset({"bool"})]
Tensors = Annotated[Sequence[Held], "several"]
Blocks = Annotated[Sequence[Callable[..., tuple[Held, ...]]], "blocks"]  # of an op, not an input: never in a file
Ints = tuple[int, ...]
Bools = tuple[bool, ...]
Argument: TypeAlias = "torch.Tensor | Sequence[torch.Tensor | str] | str | int | float | bool | Ints | Bools"
Op = Callable[..., Result]

CONVERT: dict[object, Callable[[torch.Tensor], Argument]] = {
    int: lambda value: int(value.item()),
    float: lambda value: float(value.item()),
    bool: lambda value: bool(value.item()),
    Ints: lambda value: tuple(int(v) for v in value.reshape(-1).tolist()),
    Bools: lambda value: tuple(bool(v) for v in value.reshape(-1).tolist()),
}
KINDS = {int: {"int"}, float: {"float", "int"}, bool: {"bool"}, Ints: {"int"}, Bools: {"bool"}}


@dataclass(frozen=True)
class Parameter:
    """One input of an op: the types it may have, and how the function takes it."""

    name: str
    required: bool
    several: bool
    words: tuple[str, ...]  # what a string may be; empty: it is no string, ("",): any
    kinds: frozenset[str]
    convert: Callable[[torch.Tensor], Argument] | None

    def refuses(self, dtype: Dtype, value: torch.Tensor | str | None) -> str:
        """Why a value of this type, or this word, is not one that the op takes; empty where it is."""
        if dtype.kind == "string":
            return "" if value in self.words or "" in self.words else f"{self.name} = {value!r}"
        return "" if dtype.kind in self.kinds else f"{self.name} of type {dtype.name}"

    def take(self, values: Sequence[torch.Tensor | str]) -> Argument:
        """The argument of the function."""
        taken = values if self.convert is None else [self.convert(v) for v in values]
        return taken if self.several else taken[0]


@functools.cache
def parameters(function: Op) -> dict[str, Parameter]:
    """The schema of an op, from its function."""
    hints = typing.get_type_hints(function, include_extras=True)
    own = inspect.signature(function).parameters
    return {name: _parameter(name, hints[name], p.default is p.empty) for name, p in own.items()}


def _parameter(name: str, hint: Any, required: bool) -> Parameter:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        hint = next(h for h in typing.get_args(hint) if h is not types.NoneType)
    if hint is str or typing.get_origin(hint) is Literal:
        return Parameter(name, required, False, ("",) if hint is str else typing.get_args(hint), frozenset(), None)
    if hint == Tensors:
        return Parameter(name, required, True, (), frozenset({"float", "int", "bool"}), None)
    if typing.get_origin(hint) is Annotated:
        return Parameter(name, required, False, (), typing.get_args(hint)[1], None)
    return Parameter(name, required, False, (), frozenset(KINDS[hint]), CONVERT[hint])
