"""A torch module of the user's own process as a program: exported with the first items of its data."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import user_code
from edgecompress.core.errors import InputError
from edgecompress.core.model import OPEN, Artifact, Dim, TensorSpec
from edgecompress.core.settings import Source
from edgecompress.data import dynamic_axes
from edgecompress.data.dynamic_axes import Dims
from edgecompress.stages import data, trace

if TYPE_CHECKING:
    import torch

FACTORY = "give a factory pkg.mod:fn"


def exported(net: torch.nn.Module, source: Source, batch: int) -> torch.export.ExportedProgram:
    """The module, in eval mode on the CPU, by torch.export; the one that is given stays as it is.

    Its batch is dynamic where it takes any, else `batch`. Raises InputError where it cannot be traced.
    """
    name = type(net).__name__
    if source.state or source.constants:
        raise InputError(f"model: state and constants are for factories and files, not for a {name}; {FACTORY}")
    try:
        still = copy.deepcopy(net).cpu().eval()
    except Exception as error:
        raise InputError(f"model: {name} cannot be copied: {user_code.error_line(error)}; {FACTORY}") from error
    items = _items(still, source, max(batch, 2))  # one would be taken for a constant
    trace.outputs_of(still, {word: tensor[:batch] for word, tensor in items.items()}, name)
    dims = dynamic_axes.declared(source.dynamic, list(items))
    try:
        return _program(still, items, {word: {0: Dim("batch", 1, OPEN), **dims.get(word, {})} for word in items})
    except Exception:
        try:
            return _program(still, {word: tensor[:batch] for word, tensor in items.items()}, dims)
        except Exception as error:
            raise InputError(f"model: torch.export cannot trace {name}: {user_code.error_line(error)}") from error


def _items(net: torch.nn.Module, source: Source, count: int) -> dict[str, torch.Tensor]:
    """The first items by the names of forward's parameters, in their order."""
    import torch

    arrays = data.first(source, count)
    specs = tuple(TensorSpec(name, array.shape, str(array.dtype)) for name, array in arrays.items())
    samples = Artifact(Path(), "samples", specs)
    wanted = [spec.name for spec in trace.input_specs(net, samples, source, type(net).__name__)]
    by_name = arrays if {*wanted} == {*arrays} else dict(zip(wanted, arrays.values(), strict=True))
    return {name: torch.from_numpy(by_name[name]) for name in wanted}


def _program(net: torch.nn.Module, items: Mapping[str, torch.Tensor], dims: Dims) -> torch.export.ExportedProgram:
    """Without the user's items and paths: the same module is the same program."""
    import torch

    known: dict[str, torch.export.Dim] = {}

    def symbol(dim: Dim) -> torch.export.Dim:
        return known.setdefault(dim.name, torch.export.Dim(dim.name, min=dim.min, max=dim.max))

    shapes = {name: {axis: symbol(dim) for axis, dim in dims.get(name, {}).items()} for name in items}
    program = torch.export.export(net, (), dict(items), dynamic_shapes=shapes)
    program.example_inputs = None
    for part in program.graph_module.modules():
        for node in part.graph.nodes if isinstance(part, torch.fx.GraphModule) else ():
            node.meta.pop("stack_trace", None)
    return program
