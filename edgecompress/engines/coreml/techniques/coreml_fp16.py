"""Half precision in Core ML, inputs and outputs unchanged; what overflows on real data stays in fp32."""

from __future__ import annotations

import itertools
import math
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.coreml import compression, convert
from edgecompress.engines.coreml import macs as coreml_macs
from edgecompress.formats import mlpackage
from edgecompress.techniques import _fp16_ranges, _skipped_layers
from edgecompress.techniques._calibration import inputs_of, spread

if TYPE_CHECKING:
    import numpy as np
    from coremltools.converters.mil.mil import Operation, Var
    from coremltools.models import MLModel

    from edgecompress.engines.coreml import mil

REQUIRES = ("coremltools", "torch")
EXTRA = "coreml"
READS: tuple[str, ...] = ("mlpackage",)
WRITES = "mlpackage"
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ("samples",)

BOUNDLESS = 1e38  # numbers that stand for infinity, in masks: half precision may make it of them
SQUARES = ("instance_norm", "l2_norm", "layer_norm", "reduce_l2_norm", "reduce_sum_square")  # what they read


@dataclass(frozen=True)
class Options:
    """What stays in fp32, beside what the samples show."""

    keep_ops: tuple[str, ...] = ()  # operator types
    skip: tuple[str, ...] = ()  # operators, as patterns of the names of what they make
    samples: int | None = 16  # calibration items at most, evenly spread over the split; None is all
    headroom: float = 2.0  # how many times larger than on the samples a number may get; masks are often -30,000
    floor_db: float = 50.0  # of each output against fp32; more operators stay in fp32 until it is reached

    def __post_init__(self) -> None:
        _fp16_ranges.check(self.samples, self.headroom)


def promises(options: Options) -> Promise:
    """Half-precision weights, and operators that multiply them as such."""
    return _skipped_layers.promise("fp16", "fp16", (*options.keep_ops, *options.skip))


def apply(request: Request) -> Artifact:
    """The package in half precision; inputs: "model", "samples" (the calibrate split); facts: those of `halved`."""
    return _fp16_ranges.halved(request, _CoremlTrial(request, spread(request, request.options.samples)))


kept = compression.kept


class _CoremlTrial:
    """The program on the samples, in fp32 and in half precision."""

    def __init__(self, request: Request, batches: Sequence[list[int]]) -> None:
        self.request, self.batches = request, batches
        self.file = request.model.path / convert.FILE
        self.full = self.loaded(self.file)
        operations = convert.program(self.file).functions["main"].operations
        self.operators = [op for op in operations if op.op_type != "const"]
        self.names = [_name(op) for op in self.operators]
        self.words = mlpackage.names([s.name for s in request.model.inputs], [s.name for s in request.model.outputs])

    @cached_property
    def outputs(self) -> list[dict[str, np.ndarray]]:
        """The outputs of the fp32 program for each batch."""
        return [_floats(self.full.run(inputs)) for inputs in self._items()]

    def fixed(self, ranges: _fp16_ranges.Tallies) -> set[str]:
        """The operators that stay in fp32: by their type, their name, or what they read, make or form in between."""
        options: Options = self.request.options
        unfit = _fp16_ranges.unfit(ranges, options.headroom) | self._unfit_inside(ranges)
        fixed = {_name(op) for op in self.operators if unfit & {v.name for v in (*_variables(op), *op.outputs)}}
        typed = {_name(op) for op in self.operators if op.op_type in options.keep_ops}
        return fixed | typed | compression.matching(self.names, options.skip, "operator")

    def ranges(self) -> dict[str, _fp16_ranges.PrecisionTally]:
        """Every tensor of the fp32 program, and what rounding it would lose."""
        return _fp16_ranges.rounded(
            {**_floats(inputs), **_floats({name: values for name, _, values in self.full.trace(inputs)})}
            for inputs in self._items()
        )

    def _unfit_inside(self, ranges: _fp16_ranges.Tallies) -> set[str]:
        """What operators make that form larger numbers in between: squares, and sums before they divide."""
        limit = _fp16_ranges.LARGEST / self.request.options.headroom

        def inside(op: Operation) -> float:
            peaks = [ranges[var.name].largest for var in _variables(op) if var.name in ranges]
            if op.op_type in SQUARES:
                return max(peaks, default=0.0) ** 2
            if op.op_type == "reduce_mean":
                share = math.prod(op.x.shape) / max(math.prod(op.outputs[0].shape), 1)
                return share * ranges[_name(op)].largest if _name(op) in ranges else 0.0
            return 0.0

        return {_name(op) for op in self.operators if inside(op) > limit}

    def loaded(self, file: Path) -> mil.Program:
        """A package in the interpreter, which no plan needs."""
        from edgecompress.engines.coreml import mil

        return mil.load(file)

    def loss(self, kept: Sequence[str], limit: int | None) -> dict[str, _fp16_ranges.PrecisionTally]:
        """What each output loses with only `kept` in fp32, on at most `limit` batches."""
        with tempfile.TemporaryDirectory(dir=self.request.out, prefix="work-") as folder:
            convert.save(self.halved(kept), Path(folder))
            half = self.loaded(Path(folder) / convert.FILE)
        return _fp16_ranges.tallied(itertools.islice(self._pairs(half), limit))

    def write(self, kept: Sequence[str]) -> dict[str, Json]:
        """Writes the package with only `kept` in fp32; the share of the MACs in half precision, for the facts."""
        convert.save(self.halved(kept), self.request.out)
        try:
            macs = coreml_macs.by_dtype(convert.program(self.request.out / convert.FILE))
        except ValueError as error:
            return _fp16_ranges.share(0, 0, str(error))
        return _fp16_ranges.share(macs.get("fp16", 0), sum(macs.values()))

    def halved(self, kept: Collection[str]) -> MLModel:
        """coremltools' model with only `kept` in fp32. Raises StageFailed with its reason."""
        ct = convert.coremltools()
        program = convert.program(self.file)
        try:
            return ct.convert(
                program,
                source="milinternal",
                convert_to="mlprogram",
                compute_precision=ct.transform.FP16ComputePrecision(op_selector=lambda op: _name(op) not in kept),
                minimum_deployment_target=program.functions["main"].opset_version,
                skip_model_load=True,
            )
        except Exception as error:  # coremltools' errors have no base of their own
            raise StageFailed(f"coreml_fp16: coremltools: {first_line(error)}") from error

    def _pairs(self, half: mil.Program) -> Iterator[Mapping[str, tuple[np.ndarray, np.ndarray]]]:
        for inputs, full in zip(self._items(), self.outputs, strict=True):
            other = half.run(inputs)
            yield {name: (values, other[name]) for name, values in full.items()}

    def _items(self) -> Iterator[dict[str, np.ndarray]]:
        """The samples by the package's own names."""
        specs = self.request.model.inputs
        for batch in self.batches:
            arrays = inputs_of(self.request, batch)
            yield {word: arrays[spec.name] for word, spec in zip(self.words["inputs"], specs, strict=True)}


def _floats(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Those of floating-point numbers; what stands for infinity made infinite."""
    import numpy as np

    return {
        name: np.where(np.abs(values) < BOUNDLESS, values, np.copysign(np.inf, values))
        for name, values in arrays.items()
        if values.dtype.kind == "f"
    }


# --------------------------------------------------------------------------- coremltools' own view of a program


def _name(op: Operation) -> str:
    """What an operator makes first: names of tensors stay, those of operators do not."""
    return str(op.outputs[0].name)


def _variables(op: Operation) -> Iterator[Var]:
    """The tensors that an operator reads."""
    for value in op.inputs.values():
        yield from value if isinstance(value, (list, tuple)) else (value,)
