"""The types that a program declares, and its constants."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.engines.coreml.mil.dtypes import BY_NUMBER, Dtype
from edgecompress.engines.coreml.mil.lazy import numpy
from edgecompress.engines.coreml.mil.weights import Blob, decode, held
from edgecompress.engines.coreml.package import WEIGHTS_NAME

if TYPE_CHECKING:
    import numpy as np
    import torch
    from coremltools.proto import MIL_pb2

Value: TypeAlias = "torch.Tensor | str"  # what a name of a program stands for
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


def declared(name: str, kind: MIL_pb2.ValueType) -> Declared:
    """A `ValueType` message; raises StageFailed for an unsupported type."""
    if kind.WhichOneof("type") != "tensorType":
        raise StageFailed(
            f"Core ML: {name!r} is a {kind.WhichOneof('type')}, which the interpreter does not support: it handles "
            "tensors only"
        )
    dtype = BY_NUMBER.get(kind.tensorType.dataType)
    if dtype is None:
        raise StageFailed(
            f"Core ML: {name!r} has data type {kind.tensorType.dataType}, which the interpreter does not support"
        )
    dimensions = kind.tensorType.dimensions
    shape = tuple(d.constant.size if d.WhichOneof("dimension") == "constant" else None for d in dimensions)
    return Declared(name, dtype, shape)


def constant(name: str, value: MIL_pb2.Value, blob: Blob) -> tuple[Declared, Value]:
    """A `Value` message: its type, and a tensor, or a string."""
    what = declared(name, value.type)
    shape = tuple(-1 if d is None else d for d in what.shape)
    if min(shape, default=0) < 0:
        raise InputError(f"Core ML: the constant {name!r} has no fixed shape; convert the model again")
    stored, tensor = value.WhichOneof("value") == "blobFileValue", value.immediateValue.tensor
    if what.dtype.kind == "string" and not stored:
        if len(tensor.strings.values) != 1:
            raise StageFailed(f"Core ML: {name!r} is a list of strings, which the interpreter does not support")
        return what, str(tensor.strings.values[0])
    place = value.blobFileValue
    if stored and place.fileName != WEIGHTS_NAME:
        raise InputError(f"Core ML: the constant {name!r} is in {place.fileName!r}; only {WEIGHTS_NAME} is read")
    try:
        array = blob.read(place.offset, what.dtype, shape) if stored else _written(name, tensor, what.dtype, shape)
        return what, held(array, what.dtype)
    except (ArithmeticError, MemoryError, TypeError, ValueError) as error:  # numpy's: a number or a shape too large
        raise InputError(f"Core ML: the constant {name!r} cannot be held: {error}; convert the model again") from error


def _written(name: str, tensor: MIL_pb2.TensorValue, dtype: Dtype, shape: tuple[int, ...]) -> np.ndarray:
    field = tensor.WhichOneof("value")
    if field == "bytes":
        return decode(tensor.bytes.values, dtype, shape)
    values = getattr(tensor, field).values if field else ()
    if len(values) != math.prod(shape) or FIELD_KINDS.get(field, dtype.kind) != dtype.kind:
        raise InputError(
            f"Core ML: the constant {name!r} is {len(values)} {field}, not {dtype.name} of {list(shape)}; convert again"
        )
    return numpy.array(values, dtype=dtype.numpy).reshape(shape)
