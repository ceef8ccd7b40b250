"""ONNX files in half precision as the same nets in float32: few tools and runtimes take other numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx

FLOAT = 1
HALF = {10: "float16", 16: "bfloat16"}  # by the number of TensorProto.DataType
# Attributes that hold such a number: of Cast, of what draws numbers, of quantizers, normalizations and Attention
OF_TYPES = {"dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type", "to"}


def raise_halves(proto: onnx.ModelProto) -> tuple[list[str], dict[str, int]]:
    """Makes float32 of every float16 and bfloat16 of a valid model: weights, inputs, outputs, and all in between.

    Returns what is told of it, and the types of the weights that lie in a file beside, which stay as they are there.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper
    from onnx.external_data_helper import uses_external_data

    found, beside = set[int](), dict[str, int]()
    types = onnx.TypeProto.Tensor, onnx.TypeProto.SparseTensor
    values = (*proto.graph.input, *proto.graph.output)
    ends = [v.name for v in values if any(isinstance(m, types) and m.elem_type in HALF for m in _messages(v))]
    for message in _messages(proto):
        if isinstance(message, onnx.TensorProto) and message.data_type in HALF:
            found.add(message.data_type)
            if uses_external_data(message):
                beside[message.name] = message.data_type
                message.data_type = FLOAT
            else:
                values = numpy_helper.to_array(message).astype(np.float32)
                message.CopyFrom(numpy_helper.from_array(values, message.name))
        elif isinstance(message, types) and message.elem_type in HALF:
            found.add(message.elem_type)
            message.elem_type = FLOAT
        elif isinstance(message, onnx.AttributeProto) and message.name in OF_TYPES and message.i in HALF:
            found.add(message.i)
            message.i = FLOAT
    if not found:
        return [], beside
    names = f", with its inputs and outputs {', '.join(ends)}" if ends else ""
    kinds = " and ".join(HALF[kind] for kind in sorted(found))
    return [f"the source is {kinds}: it is raised to float32{names}"], beside


def _messages(message: Any) -> Iterator[Any]:
    """A message of protobuf, and all messages in it."""
    yield message
    fields = message.ListFields() if message.DESCRIPTOR.name != "TensorProto" else ()  # those copy the weights
    for field, value in fields:
        if field.message_type:
            for each in (value,) if hasattr(value, "ListFields") else value:
                yield from _messages(each)
