"""The precision of a Core ML program: weights as they are packed, by the declarations of its operations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.engines.coreml import package
from edgecompress.engines.coreml.mil.dtypes import BY_NUMBER, Dtype
from edgecompress.engines.coreml.mil.reader import inputs_of
from edgecompress.engines.coreml.mil.weights import size_bytes
from edgecompress.formats.precision import walk
from edgecompress.formats.precision.walk import Does, Net, Node, Stored

if TYPE_CHECKING:
    from coremltools.proto import MIL_pb2

CELL = ("x", "weight_ih", "weight_hh", "weight_ih_back", "weight_hh_back")
FACTORS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("conv", "conv_transpose", "linear"), ("x", "weight")),
    "matmul": ("x", "y"),
    "einsum": ("values",),
    "scaled_dot_product_attention": ("query", "key", "value"),
    **dict.fromkeys(("lstm", "gru", "rnn"), CELL),
}
PICKS = {"gather": ("x",), "gather_nd": ("x",)}
HANDS_ON = ("reshape", "transpose", "squeeze", "expand_dims", "identity", "split", "constexpr_cast")
ROLES: Mapping[str, Does] = {
    **dict.fromkeys(FACTORS, "multiplies"),
    **dict.fromkeys(PICKS, "picks"),
    **dict.fromkeys(HANDS_ON, "hands on"),
    "concat": "joins",
    "dequantize": "dequantizes",
}
MAIN = ("x", "input", "values")  # what an operation changes
PALETTES = {"constexpr_lut_to_dense": "indices", "constexpr_lut_to_sparse": "indices_nonzero_data"}
# What holds the numbers of a packed weight
PACKED = {
    **PALETTES,
    "constexpr_affine_dequantize": "quantized_data",
    "constexpr_blockwise_shift_scale": "data",
    "constexpr_sparse_to_dense": "nonzero_data",
    "constexpr_sparse_blockwise_shift_scale": "nonzero_data",
    "constexpr_cast": "source_val",
}


def net(folder: Path) -> Net:
    """The net in a .mlpackage. Raises InputError for a damaged one, or one that is no program."""
    model, _ = package.read(folder)
    function, block = package.main_function(folder, model)
    made = Net()
    for value in function.inputs:
        made.words[value.name] = _dtype(value.type).name
    _block(block, made)
    return made


def _block(block: MIL_pb2.Block, made: Net) -> None:
    for op in block.operations:
        _operation(op, made)
        for inner in op.blocks:
            _block(inner, made)


def _operation(op: MIL_pb2.Operation, made: Net) -> None:
    outputs = tuple(out.name for out in op.outputs)
    made.words.update({out.name: _dtype(out.type).name.removeprefix("u") for out in op.outputs})
    if op.type == "const":
        made.constants[outputs[0]] = _stored(op.attributes["val"], outputs[0])
        return
    given = {name: tuple(_bound(outputs[0], name, bindings, made)) for name, bindings in inputs_of(op)}
    if op.type in PACKED:
        _unpacks(op, given, made)
        return
    named = FACTORS.get(op.type, PICKS.get(op.type, ()))
    factors = [name for key in named for name in given.get(key, ())]
    others = sorted(given.keys() - {*named}, key=lambda key: (key not in MAIN, key))
    reads = (*factors, *(name for key in others for name in given[key]))
    places = tuple(range(len(factors)))
    made.nodes.append(Node(reads, outputs, ROLES.get(op.type, ""), places))


def _unpacks(op: MIL_pb2.Operation, given: Mapping[str, tuple[str, ...]], made: Net) -> None:
    """A weight as it is packed: with the table, the mask, the scales that belong to it."""
    main = given.get(PACKED[op.type], ())
    parts = [made.constants[name] for names in given.values() for name in names if name in made.constants]
    first = next((made.constants[name] for name in main if name in made.constants), None)
    if first is None:
        return
    word = f"palette{_index_bits(first, given, made)}" if op.type in PALETTES else first.word
    out = op.outputs[0]
    axes = len(out.type.tensorType.dimensions)
    for each in op.outputs:
        made.constants[each.name] = Stored(word, sum(part.bytes for part in parts), axes, out.name)


def _index_bits(indices: Stored, given: Mapping[str, tuple[str, ...]], made: Net) -> int:
    """The bits of an index: before iOS 18 they are packed into bytes, and the table tells."""
    if indices.word != "int8" or "shape" not in given:
        return walk.bits(indices.word)
    table = made.constants.get(next(iter(given.get("lut", ())), ""))
    entries = table.bytes * 8 // max(walk.bits(table.word), 1) if table else 0
    return max(entries - 1, 1).bit_length()


def _bound(where: str, name: str, bindings: Sequence[MIL_pb2.Argument.Binding], made: Net) -> Iterator[str]:
    """The names of what is read; what is written in place is a constant with a name of its own."""
    for index, binding in enumerate(bindings):
        if binding.WhichOneof("binding") == "name":
            yield binding.name
        else:
            own = f"{where}: {name} {index}"
            made.constants[own] = _stored(binding.value, own)
            yield own


def _stored(value: MIL_pb2.Value, name: str) -> Stored:
    tensor, dtype = value.type.tensorType, _dtype(value.type)
    shape = [axis.constant.size for axis in tensor.dimensions]
    offset = value.blobFileValue.offset if value.WhichOneof("value") == "blobFileValue" else None
    return Stored(
        dtype.name.removeprefix("u"), size_bytes(dtype, shape), len(shape), name if offset is None else offset
    )


def _dtype(kind: MIL_pb2.ValueType) -> Dtype:
    number = kind.tensorType.dataType
    return BY_NUMBER.get(number) or Dtype("", "", 0, "", "", number)
