"""Adds the outputs of layers to a package as further outputs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.watched_graph import WatchedOperator, attributes
from edgecompress.engines.coreml import package
from edgecompress.engines.coreml.mil.dtypes import BY_NAME, BY_NUMBER, Dtype
from edgecompress.engines.coreml.mil.values import Declared, constant, declared
from edgecompress.engines.coreml.mil.weights import Blob
from edgecompress.formats import mlpackage

if TYPE_CHECKING:
    import numpy as np
    from coremltools.proto import MIL_pb2, Model_pb2

VIEWS = {  # the same numbers, some of them, or zeros around them
    *("cast", "expand_dims", "flatten2d", "identity", "pad", "reshape", "reshape_like", "slice_by_index"),
    *("slice_by_size", "split", "squeeze", "transpose"),
}
PRODUCTS = {"conv", "conv_transpose", "linear"}
NORM = "batch_norm"
CLAMPS = {"clip", "relu", "relu6"}
CLAMPED = {*PRODUCTS, NORM, "add", "mul", "sub"}
ROUNDED = {"dequantize", "quantize"}  # what follows any operator in a program with integer activations
FORMS = {"lut": "palettized", "sparse": "sparse"}  # a part of the name of a compression, and what it leaves
DATA = ("quantized_data", "data")  # the integers of the others
FLOATS = {"fp16": "FLOAT16", "fp32": "FLOAT32"}  # what a package's outputs call them


@dataclass(frozen=True)
class AddedOutput:
    """One further output: its name in the package and what numpy calls its type, and the layer that it is of.

    `operator` is what the layer's first op makes; `held` the type of its weights where they are compressed ("int8",
    "palettized", "sparse"), else that of its output.
    """

    output: str
    shape: tuple[int, ...]
    dtype: str
    operator: str
    type: str
    held: str


def write(source: Path, target: Path) -> list[AddedOutput]:
    """Copies a package to `target`, with one output per layer behind its own; returns those in the order of computing.

    A layer ends behind the batch norm and the activation that follow nowhere else. Raises InputError for a damaged
    file.
    """
    model, _ = package.read(source)
    graph = _BlockGraph(*package.main_function(source, model))
    with package.parsed(source):
        added = [_added(model, graph, head, end) for head, end in list(graph.layers())]
    shutil.copytree(source, target)
    (target / mlpackage.MODEL).write_bytes(model.SerializeToString(deterministic=True))
    return added


def watched(source: Path, target: Path) -> tuple[list[AddedOutput], list[WatchedOperator], dict[str, np.ndarray]]:
    """Copies a package to `target` with each real number as an output; its live operators, and its constants."""
    model, weights = package.read(source)
    graph, blob = _BlockGraph(*package.main_function(source, model)), Blob(weights)
    live = {value.name for value in graph.function.inputs}
    added, operators = list[AddedOutput](), list[WatchedOperator]()
    constants: dict[str, np.ndarray] = {}
    with package.parsed(source):
        for op in list(graph.block.operations):
            reads, made = list(_reads(op)), tuple(out.name for out in op.outputs)
            if op.type == "const":
                _, value = constant(made[0], op.attributes["val"], blob)
                constants |= (
                    {made[0]: value.float().numpy() if value.is_floating_point() else value.numpy()}
                    if not isinstance(value, str)
                    else {}
                )
            if live.isdisjoint(reads):
                continue
            live.update(made)
            inputs = {name: [b.name for b in argument.arguments] for name, argument in op.inputs.items()}
            told = {name: constants[names[0]] for name, names in inputs.items() if names and names[0] in constants}
            from_constants = [n for names in inputs.values() for n in names if n not in live]
            origin = [
                next(iter(_reads(graph.makers[n])), n) if n in graph.makers and graph.makers[n].type != "const" else n
                for n in from_constants
            ]
            operators.append(
                WatchedOperator(
                    made[0], op.type, tuple(r for r in reads if r in live), made, tuple(origin), attributes(told)
                )
            )
            added += [_added(model, graph, op, op)] if _is_float(op) else []
    shutil.copytree(source, target)
    (target / mlpackage.MODEL).write_bytes(model.SerializeToString(deterministic=True))
    return added, operators, constants


@dataclass(frozen=True)
class _BlockGraph:
    """The ops of a function's block."""

    function: MIL_pb2.Function
    block: MIL_pb2.Block

    @cached_property
    def makers(self) -> dict[str, MIL_pb2.Operation]:
        """The op that makes each value."""
        return {out.name: op for op in self.block.operations for out in op.outputs}

    @cached_property
    def readers(self) -> Mapping[str, list[MIL_pb2.Operation]]:
        """The ops that read each value, inside of their blocks too."""
        readers: dict[str, list[MIL_pb2.Operation]] = {}
        for op in self.block.operations:
            for name in set(_reads(op)):
                readers.setdefault(name, []).append(op)
        return readers

    def layers(self) -> Iterator[tuple[MIL_pb2.Operation, MIL_pb2.Operation]]:
        """The first and the last op of each layer, in the order of computing."""
        live, taken = {value.name for value in self.function.inputs}, set[str]()
        for op in self.block.operations:
            if live.isdisjoint(_reads(op)):
                continue
            live.update(out.name for out in op.outputs)
            if op.outputs[0].name not in taken and op.type not in VIEWS and _is_float(op):
                yield op, self._end(op, taken)

    def _end(self, op: MIL_pb2.Operation, taken: set[str]) -> MIL_pb2.Operation:
        end = op
        while (reader := self._only_reader(op)) is not None and _fuses(op.type, reader.type):
            op = reader
            taken.add(op.outputs[0].name)
            end = op if _is_float(op) else end
        return end

    def _only_reader(self, op: MIL_pb2.Operation) -> MIL_pb2.Operation | None:
        name = op.outputs[0].name
        readers = self.readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self.block.outputs else None

    def held(self, op: MIL_pb2.Operation) -> str:
        """The form of an op's weights where they are compressed, else nothing."""
        packed = (self.makers[name] for name in _reads(op) if name in self.makers)
        return next((self._form(maker) for maker in packed if maker.type.startswith("constexpr_")), "")

    def _form(self, maker: MIL_pb2.Operation) -> str:
        for part, form in FORMS.items():
            if part in maker.type:
                return form
        arguments = dict(_arguments(maker))
        return next((self._type(arguments[name]).name for name in DATA if name in arguments), "")

    def _type(self, binding: MIL_pb2.Argument.Binding) -> Dtype:
        if binding.WhichOneof("binding") == "value":
            return BY_NUMBER[binding.value.type.tensorType.dataType]
        return declared(binding.name, self.makers[binding.name].outputs[0].type).dtype


def _fuses(before: str, after: str) -> bool:
    if after == NORM:
        return before in PRODUCTS
    return after in ROUNDED or (after in CLAMPS and before in CLAMPED)


def _is_float(op: MIL_pb2.Operation) -> bool:
    return op.outputs[0].type.WhichOneof("type") == "tensorType" and _made(op).dtype.name in FLOATS


def _made(op: MIL_pb2.Operation) -> Declared:
    return declared(op.outputs[0].name, op.outputs[0].type)


def _arguments(op: MIL_pb2.Operation) -> Iterator[tuple[str, MIL_pb2.Argument.Binding]]:
    """Inputs, and attributes: programs before iOS 18 write the inputs of constexpr ops so."""
    for name, argument in op.inputs.items():
        yield from ((name, binding) for binding in argument.arguments)
    binding = package.messages("MIL_pb2").Argument.Binding
    yield from ((name, binding(value=value)) for name, value in op.attributes.items())


def _reads(op: MIL_pb2.Operation) -> Iterator[str]:
    """The names of the values that an op reads, its blocks included."""
    yield from (b.name for argument in op.inputs.values() for b in argument.arguments if b.name)
    for block in op.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from _reads(inner)


def _added(model: Model_pb2.Model, graph: _BlockGraph, head: MIL_pb2.Operation, end: MIL_pb2.Operation) -> AddedOutput:
    """Makes an output of what an op computes; of one that is an output already, a copy."""
    if end.outputs[0].name in graph.block.outputs:
        end = _copied(graph.block, end.outputs[0])
    made = _made(end)
    graph.block.outputs.append(made.name)
    feature = model.description.output.add(name=made.name)
    array = feature.type.multiArrayType
    array.dataType = array.ArrayDataType.Value(FLOATS[made.dtype.name])
    shape = tuple(size for size in made.shape if size is not None)
    array.shape.extend(shape)
    held = graph.held(head) or made.dtype.numpy
    return AddedOutput(made.name, shape, made.dtype.numpy, head.outputs[0].name, head.type, held)


def _copied(block: MIL_pb2.Block, value: MIL_pb2.NamedValueType) -> MIL_pb2.Operation:
    """An op that hands a value on."""
    name = f"{value.name}_again"
    op = block.operations.add(type="identity")
    op.inputs["x"].arguments.add(name=value.name)
    op.outputs.add(name=name, type=value.type)
    written = op.attributes["name"]
    written.type.tensorType.dataType = BY_NAME["string"].number
    written.immediateValue.tensor.strings.values.append(name)
    return op
