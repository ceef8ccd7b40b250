"""What a program writes down: the types it declares, and its constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from edgecompress.errors import InputError, StageFailed
from edgecompress.mil.dtypes import BY_NUMBER, Dtype
from edgecompress.mil.lazy import numpy
from edgecompress.mil.package import WEIGHTS_NAME
from edgecompress.mil.weights import Blob, decode, held

FIELD_KINDS = {"floats": "float", "ints": "int", "bools": "bool", "strings": "string"}


@dataclass(frozen=True)
class Declared:
    """A value's name, type and shape; None for a dimension that the program leaves open."""

    name: str
    dtype: Dtype
    shape: tuple[int | None, ...]

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a shape is the declared one."""
        same = (want is None or want == have for want, have in zip(self.shape, shape, strict=False))
        return len(shape) == len(self.shape) and all(same)


def declared(name: str, kind: Any) -> Declared:
    """A `ValueType` message; raises StageFailed for a type that the interpreter does not know."""
    if kind.WhichOneof("type") != "tensorType":
        raise StageFailed(
            f"Core ML: {name!r} is a {kind.WhichOneof('type')}, not known to the interpreter: only tensors"
        )
    dtype = BY_NUMBER.get(kind.tensorType.dataType)
    if dtype is None:
        raise StageFailed(f"Core ML: {name!r} has data type {kind.tensorType.dataType}, not known to the interpreter")
    dimensions = kind.tensorType.dimensions
    shape = tuple(d.constant.size if d.WhichOneof("dimension") == "constant" else None for d in dimensions)
    return Declared(name, dtype, shape)


def constant(name: str, value: Any, blob: Blob) -> tuple[Declared, Any]:
    """A `Value` message: its type, and a tensor, or a string."""
    what = declared(name, value.type)
    shape = tuple(-1 if d is None else d for d in what.shape)
    if min(shape, default=0) < 0:
        raise InputError(f"Core ML: the constant {name!r} has no fixed shape; convert the model again")
    if value.WhichOneof("value") == "blobFileValue":
        return what, held(_stored(name, value.blobFileValue, what.dtype, shape, blob), what.dtype)
    tensor = value.immediateValue.tensor
    if what.dtype.kind == "string":
        return what, _word(name, tensor)
    return what, held(_written(name, tensor, what.dtype, shape), what.dtype)


def _stored(name: str, place: Any, dtype: Dtype, shape: tuple[int, ...], blob: Blob) -> Any:
    if place.fileName != WEIGHTS_NAME:
        raise InputError(f"Core ML: the constant {name!r} is in {place.fileName!r}; only {WEIGHTS_NAME} is read")
    return blob.read(place.offset, dtype, shape)


def _word(name: str, tensor: Any) -> str:
    if len(tensor.strings.values) != 1:
        raise StageFailed(f"Core ML: {name!r} is a list of strings, not known to the interpreter")
    return str(tensor.strings.values[0])


def _written(name: str, tensor: Any, dtype: Dtype, shape: tuple[int, ...]) -> Any:
    field = tensor.WhichOneof("value")
    if field == "bytes":
        return decode(tensor.bytes.values, dtype, shape)
    values = getattr(tensor, field).values if field else ()
    if len(values) != math.prod(shape) or FIELD_KINDS.get(field, dtype.kind) != dtype.kind:
        raise InputError(
            f"Core ML: the constant {name!r} is {len(values)} {field}, not {dtype.name} of {list(shape)}; convert again"
        )
    return numpy.array(values, dtype=dtype.numpy).reshape(shape)
