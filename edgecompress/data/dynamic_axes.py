"""The axes of inputs whose sizes a model leaves open: ranges that a source declares, and the sizes of data."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Dim, TensorSpec
from edgecompress.data import tensors

RANGE = re.compile(r"([A-Za-z_]\w*):(\d+)\.\.(\d+)")

Dims = Mapping[str, Mapping[int, Dim]]  # input -> axis -> the dimension


def declared(table: Mapping[str, Mapping[str, str]], names: Sequence[str]) -> dict[str, dict[int, Dim]]:
    """The dynamic dimensions that a source declares: {input: {axis: "name:min..max"}}; raises InputError."""
    dims: dict[str, dict[int, Dim]] = {}
    for name, axes in table.items():
        if name not in names:
            raise InputError(f"dynamic: the model has no input '{name}'{did_you_mean(name, names)}")
        dims[name] = {}
        for axis, text in axes.items():
            if not str(axis).isdigit():
                raise InputError(f"dynamic.{name}: an axis is a number from 0, not '{axis}'")
            match = RANGE.fullmatch(text)
            if not match or int(match[2]) > int(match[3]):
                raise InputError(f"dynamic.{name}: '{text}' is not a range; write it as name:min..max, like seq:1..128")
            dims[name][int(axis)] = Dim(match[1], int(match[2]), int(match[3]))
    return dims


def sizes(inputs: Sequence[TensorSpec], data: Sequence[TensorSpec], dims: Dims) -> dict[str, dict[int, int]]:
    """{input: {axis: the data's size}} of the open axes behind the batch that are not in `dims`.

    Data whose names do not fit the inputs gives none: who compares them tells.
    """
    names: dict[str, str] = {}
    with contextlib.suppress(InputError):
        names = tensors.paired(inputs, data) if data else {}
    given = {spec.name: spec.shape for spec in data}
    found: dict[str, dict[int, int]] = {}
    for spec in inputs:
        shape = given.get(names.get(spec.name, ""), ())
        for axis, (own, size) in enumerate(zip(spec.shape, shape, strict=False)):
            free = axis and isinstance(own, Dim) and axis not in dims.get(spec.name, {})
            if free and isinstance(size, int) and len(shape) == len(spec.shape):
                found.setdefault(spec.name, {})[axis] = size
    return found


def ranged(spec: TensorSpec, axes: Mapping[int, Dim]) -> TensorSpec:
    """The input with the ranges that are declared of its open axes. Raises InputError for an axis that is not open."""
    for axis in axes:
        if axis >= len(spec.shape) or isinstance(spec.shape[axis], int):
            raise InputError(f"dynamic.{spec.name}: axis {axis} of [{tensors.words(spec)}] is not open; remove it")
    return replace(spec, shape=tuple(axes.get(axis, size) for axis, size in enumerate(spec.shape)))
