"""A Core ML program, op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from edgecompress.errors import InputError, StageFailed, did_you_mean
from edgecompress.mil import ops, package, signature
from edgecompress.mil.dtypes import kind_of, settle, to_numpy
from edgecompress.mil.lazy import numpy, torch
from edgecompress.mil.values import Declared, constant, declared
from edgecompress.mil.weights import Blob, held

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

BROKEN = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)  # what torch raises
NAME = "name"  # an attribute that every op may have


class Port(NamedTuple):
    """An input or output: its shape (None: any size) and numpy's name of its type."""

    shape: tuple[int | None, ...]
    dtype: str


@dataclass(frozen=True)
class Step:
    """One op: its function, the arguments known beforehand, and the names of those that are not."""

    kind: str
    outputs: tuple[Declared, ...]
    function: Callable[..., Any]
    fixed: Mapping[str, Any]
    moving: Mapping[str, Sequence[str]]

    @property
    def where(self) -> str:
        """How an error names it."""
        return _where(self.kind, self.outputs[0].name if self.outputs else "")

    def run(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs: computed in fp32, each rounded once to the type that the program declares."""
        schema = signature.parameters(self.function)
        moving = {name: schema[name].take([values[n] for n in names]) for name, names in self.moving.items()}
        try:
            with torch.inference_mode():
                result = self.function(**self.fixed, **moving)
        except BROKEN as error:
            raise StageFailed(f"{self.where} cannot be computed: {str(error).splitlines()[0]}") from error
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(self.outputs):
            raise StageFailed(f"{self.where} has {len(self.outputs)} outputs in the program, computed: {len(results)}")
        return tuple(self._settled(out, value) for out, value in zip(self.outputs, results, strict=True))

    def _settled(self, out: Declared, value: Any) -> Any:
        if kind_of(value) != out.dtype.kind or not out.fits(tuple(value.shape)):
            raise StageFailed(
                f"{self.where}: '{out.name}' is {out.dtype.name} of {list(out.shape)} in the program, "
                f"computed: {kind_of(value)} of {list(value.shape)}"
            )
        return settle(value, out.dtype)


@dataclass
class Program:
    """A program that can run: `inputs` and `outputs` by name, as a caller sees them."""

    inputs: dict[str, Port]
    outputs: dict[str, Port]
    _inputs: tuple[Declared, ...]
    _constants: Mapping[str, Any]
    _steps: Sequence[Step]
    _outputs: Mapping[str, Declared]
    _last: dict[int, list[str]] = field(default_factory=dict)  # the values that nothing reads after a step

    def __post_init__(self) -> None:
        last = {name: index for index, step in enumerate(self._steps) for name in _names(step)}
        for name, index in last.items():
            if name not in self._constants and name not in self._outputs:
                self._last.setdefault(index, []).append(name)

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference. Raises InputError where the inputs are not the program's."""
        values = self._start(inputs)
        for _ in self._walk(values):
            pass
        return {name: to_numpy(values[name], what.dtype) for name, what in self._outputs.items()}

    def trace(self, inputs: Mapping[str, Array]) -> Iterator[tuple[str, str, Array]]:
        """Each op's outputs in the program's order: the output's name, the op's type, the array."""
        for step, out, value in self._walk(self._start(inputs)):
            yield out.name, step.kind, to_numpy(value, out.dtype)

    def _walk(self, values: dict[str, Any]) -> Iterator[tuple[Step, Declared, Any]]:
        for index, step in enumerate(self._steps):
            for out, value in zip(step.outputs, step.run(values), strict=True):
                values[out.name] = value
                yield step, out, value
            for name in self._last.get(index, ()):
                del values[name]

    def _start(self, inputs: Mapping[str, Array]) -> dict[str, Any]:
        if set(inputs) != set(self.inputs):
            raise InputError(f"Core ML: the inputs are {sorted(self.inputs)}, given: {sorted(inputs)}")
        return {**self._constants, **{want.name: _given(want, inputs[want.name]) for want in self._inputs}}


def _given(want: Declared, array: Array) -> Any:
    if array.dtype != numpy.dtype(want.dtype.numpy) or not want.fits(array.shape):
        raise InputError(
            f"Core ML: input '{want.name}' is {want.dtype.numpy} of {list(want.shape)}, "
            f"given: {array.dtype} of {list(array.shape)}"
        )
    return held(array, want.dtype)


def _names(step: Step) -> Iterator[str]:
    for names in step.moving.values():
        yield from names
    yield from (out.name for out in step.outputs)


def _where(kind: str, output: str) -> str:
    return f"Core ML: op '{kind}' ('{output}')"


# --------------------------------------------------------------------------- loading


def load(folder: Path) -> Program:
    """The program of a saved .mlpackage, every op of it known.

    Raises InputError for a file that is damaged or leads out of its folder, StageFailed for an op, or an input, a type
    or a mode of one, that the interpreter does not know.
    """
    model, weights = package.read(folder)
    if model.WhichOneof("Type") != "mlProgram":
        raise InputError(f"{folder}: a Core ML {model.WhichOneof('Type')}, not a program; convert it to an mlprogram")
    name = model.description.defaultFunctionName or "main"
    if name not in model.mlProgram.functions:
        raise InputError(f"{folder}: the program has no function '{name}'; convert the model again")
    return _Reader(Blob(weights)).function(model.mlProgram.functions[name])


class _Reader:
    """Reads one function: what is known so far, by name."""

    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self.known: dict[str, Declared] = {}
        self.constants: dict[str, Any] = {}
        self.steps: list[Step] = []

    def function(self, message: Any) -> Program:
        """A `Function` message."""
        inputs = tuple(declared(i.name, i.type) for i in message.inputs)
        self.known.update({i.name: i for i in inputs})
        block = message.block_specializations.get(message.opset)
        if block is None:
            raise InputError(f"Core ML: the program has no block for its opset '{message.opset}'; convert again")
        for op in block.operations:
            self._operation(op)
        outputs = {name: self._value(name, "the program's end") for name in block.outputs}
        return Program(_ports(inputs), _ports(outputs.values()), inputs, self.constants, self.steps, outputs)

    def _operation(self, op: Any) -> None:
        outputs = tuple(declared(o.name, o.type) for o in op.outputs)
        where = _where(op.type, outputs[0].name if outputs else "")
        if op.type == "const":
            self._constant(outputs[0], op.attributes["val"], where)
            return
        step = self._step(op, outputs, where)
        self.known.update({out.name: out for out in outputs})
        if op.type.startswith("constexpr_") and not step.moving:
            self.constants.update(zip((o.name for o in outputs), step.run({}), strict=True))
        else:
            self.steps.append(step)

    def _constant(self, out: Declared, value: Any, where: str) -> None:
        what, self.constants[out.name] = constant(out.name, value, self.blob)
        if what != out:
            raise InputError(f"{where} declares another type than its value has; convert the model again")
        self.known[out.name] = out

    def _step(self, op: Any, outputs: tuple[Declared, ...], where: str) -> Step:
        function = ops.REGISTRY.get(op.type)
        if function is None or op.blocks:
            raise StageFailed(f"{where} is not known to the interpreter{did_you_mean(op.type, ops.REGISTRY)}")
        schema = signature.parameters(function)
        given = {name: self._argument(f"{where}: {name}", argument) for name, argument in _arguments(op)}
        for name, parameter in schema.items():
            if parameter.required and name not in given:
                raise InputError(f"{where} has no input '{name}'; convert the model again")
        for name, names in given.items():
            self._check(where, schema.get(name), name, names)
        fixed = {name: names for name, names in given.items() if all(n in self.constants for n in names)}
        return Step(
            op.type,
            outputs,
            function,
            {name: schema[name].take([self.constants[n] for n in names]) for name, names in fixed.items()},
            {name: names for name, names in given.items() if name not in fixed},
        )

    def _check(self, where: str, parameter: signature.Parameter | None, name: str, names: Sequence[str]) -> None:
        refusals = [name] if parameter is None else []
        if parameter is not None:
            refusals = [parameter.refuses(self.known[n].dtype, self.constants.get(n)) for n in names]
            if len(names) != 1 and not parameter.several:
                refusals = [f"{len(names)} values of {name}"]
        if any(refusals):
            raise StageFailed(f"{where} is not known to the interpreter: its {next(r for r in refusals if r)}")

    def _argument(self, where: str, bindings: Sequence[Any]) -> list[str]:
        return [self._bound(f"{where} {index}", binding) for index, binding in enumerate(bindings)]

    def _bound(self, where: str, binding: Any) -> str:
        """The name of a value; one that is written in place is kept as a constant of a name of its own."""
        if binding.WhichOneof("binding") == "name":
            return self._value(binding.name, where).name
        self.known[where], self.constants[where] = constant(where, binding.value, self.blob)
        return where

    def _value(self, name: str, where: str) -> Declared:
        if name not in self.known:
            raise InputError(f"{where}: reads '{name}', which nothing has computed; convert the model again")
        return self.known[name]


def _arguments(op: Any) -> Iterator[tuple[str, Sequence[Any]]]:
    """Inputs, and attributes, which are inputs that are constant: older programs write those of constexpr ops so."""
    for name, argument in op.inputs.items():
        yield name, argument.arguments
    binding = package.messages("MIL_pb2").Argument.Binding
    for name, value in op.attributes.items():
        if name != NAME:
            yield name, [binding(value=value)]


def _ports(values: Iterable[Declared]) -> dict[str, Port]:
    return {value.name: Port(value.shape, value.dtype.numpy) for value in values}
