"""Reads a package as a program, all of whose ops are supported."""

from __future__ import annotations

import difflib
from collections import ChainMap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.engines.coreml import package
from edgecompress.engines.coreml.mil import ops, signature
from edgecompress.engines.coreml.mil.block import Block, BlockStep, name_of
from edgecompress.engines.coreml.mil.program import Program
from edgecompress.engines.coreml.mil.values import Declared, Value, constant, declared
from edgecompress.engines.coreml.mil.weights import Blob

if TYPE_CHECKING:
    from coremltools.proto import MIL_pb2

NAME = "name"  # an attribute that every op may have


def load(folder: Path) -> Program:
    """The program of a saved .mlpackage.

    Raises InputError for a file that is damaged or leads out of its folder, StageFailed for an op, or an input, a type
    or a mode of one, that the interpreter does not know.
    """
    model, weights = package.read(folder)
    function, block = package.main_function(folder, model)
    with package.parsed(folder):
        return _FunctionReader(Blob(weights)).program(function, block)


class _FunctionReader:
    """Reads one function: what is declared, and what is constant, by name, that of the innermost block first."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self.known: ChainMap[str, Declared] = ChainMap()
        self.constants: ChainMap[str, Value] = ChainMap()

    def program(self, function: MIL_pb2.Function, block: MIL_pb2.Block) -> Program:
        """A `Function` message by one of its blocks."""
        return Program(self._block(block, function.inputs))

    def _block(self, message: MIL_pb2.Block, inputs: Sequence[MIL_pb2.NamedValueType]) -> Block:
        self.known, self.constants = self.known.new_child(), self.constants.new_child()
        own = tuple(self._declare(declared(i.name, i.type)) for i in inputs)
        steps = [step for op in message.operations for step in self._operation(op)]
        outputs = tuple(self._value(name, "Core ML: the end of a block") for name in message.outputs)
        block = Block(own, tuple(steps), outputs, self.constants.maps[0])
        self.known, self.constants = self.known.parents, self.constants.parents
        return block

    def _declare(self, value: Declared) -> Declared:
        if value.name in self.known.maps[0]:
            raise InputError(f"Core ML: two values are named {value.name!r}; convert the model again")
        self.known[value.name] = value
        return value

    def _operation(self, op: MIL_pb2.Operation) -> Iterator[BlockStep]:
        """The step that an op is; none for a constant, which is kept instead."""
        outputs = tuple(declared(o.name, o.type) for o in op.outputs)
        where = name_of(op.type, outputs)
        if op.type == "const":
            if len(outputs) != 1 or "val" not in op.attributes:
                raise InputError(f"{where} is not one value; convert the model again")
            (out,) = outputs
            what, self.constants[out.name] = constant(out.name, op.attributes["val"], self.blob)
            if what != out:
                raise InputError(f"{where} declares a type that is not its value's; convert the model again")
            self._declare(out)
            return
        step = self._step(op, outputs, where)
        for out in outputs:
            self._declare(out)
        if not op.type.startswith("constexpr_") or step.moving:
            yield step
            return
        try:
            unpacked = step.run({})
        except StageFailed as error:  # its constants do not fit together
            raise InputError(f"{error}; convert the model again") from error
        self.constants.update(zip((out.name for out in outputs), unpacked, strict=True))

    def _step(self, op: MIL_pb2.Operation, outputs: tuple[Declared, ...], where: str) -> BlockStep:
        function = ops.REGISTRY.get(op.type)
        if function is None:
            near = difflib.get_close_matches(op.type, ops.REGISTRY, n=1)
            raise _unknown(where, f", '{near[0]}' is" if near else "")
        schema = signature.parameters(function)
        arguments = {
            name: [self._bound(f"{where}: {name} {index}", binding) for index, binding in enumerate(bindings)]
            for name, bindings in inputs_of(op)
        }
        given = {*arguments, *(["blocks"] if op.blocks else [])}
        if extra := sorted(given - schema.keys()):
            raise _unknown(where, f": its input {extra[0]!r}")
        if missing := [name for name, parameter in schema.items() if parameter.required and name not in given]:
            raise InputError(f"{where} has no input {missing[0]!r}; convert the model again")
        for name, names in arguments.items():
            self._check(where, schema[name], names)
        fixed = {name for name, names in arguments.items() if all(n in self.constants for n in names)}
        return BlockStep(
            op.type,
            outputs,
            function,
            {name: schema[name].take([self.constants[n] for n in arguments[name]]) for name in fixed},
            {name: names for name, names in arguments.items() if name not in fixed},
            tuple(self._block(block, block.inputs) for block in op.blocks),
        )

    def _check(self, where: str, parameter: signature.Parameter, names: Sequence[str]) -> None:
        if len(names) != 1 and not parameter.several:
            raise _unknown(where, f": {len(names)} values of {parameter.name}")
        refusals = (parameter.refuses(self.known[name].dtype, self.constants.get(name)) for name in names)
        if refusal := next(filter(None, refusals), ""):
            raise _unknown(where, f": {refusal}")

    def _bound(self, where: str, binding: MIL_pb2.Argument.Binding) -> str:
        """The name of a value; one that is written in place is kept as a constant with a name of its own."""
        if binding.WhichOneof("binding") == "name":
            return self._value(binding.name, where).name
        self.known[where], self.constants[where] = constant(where, binding.value, self.blob)
        return where

    def _value(self, name: str, where: str) -> Declared:
        if name not in self.known:
            raise InputError(f"{where}: reads {name!r}, which no earlier operation computes; convert the model again")
        return self.known[name]


def inputs_of(op: MIL_pb2.Operation) -> Iterator[tuple[str, Sequence[MIL_pb2.Argument.Binding]]]:
    """Inputs, and attributes: programs before iOS 18 write the inputs of constexpr ops so."""
    for name, argument in op.inputs.items():
        yield name, argument.arguments
    binding = package.messages("MIL_pb2").Argument.Binding
    for name, value in op.attributes.items():
        if name != NAME:
            yield name, [binding(value=value)]


def _unknown(where: str, what: str) -> StageFailed:
    return StageFailed(f"{where} is not supported by the interpreter{what}; the artifact cannot be verified")
