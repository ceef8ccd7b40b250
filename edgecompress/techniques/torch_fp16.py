"""A program in half precision, inputs and outputs as they were; what it cannot hold on real data stays in fp32."""

from __future__ import annotations

import glob
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Dim, Promise, Request
from edgecompress.formats import torch_program
from edgecompress.techniques import _fp16_ranges, _skipped_layers
from edgecompress.techniques._calibration import inputs_of, spread
from edgecompress.techniques._pruning import macs

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch.export import ExportedProgram
    from torch.fx.node import Target

REQUIRES = ("torch",)
EXTRA = "torch"
READS: tuple[str, ...] = ("program",)
WRITES = "program"
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ("samples",)

FILE = "program.pt2"
WRAPPER = "net."  # what a traced program calls the user's own module


@dataclass(frozen=True)
class Options:
    """What stays in fp32, beside what the samples show."""

    keep_ops: tuple[str, ...] = ("lstm", "gru", "rnn_tanh", "rnn_relu")  # PyTorch's operators, without their overloads
    skip: tuple[str, ...] = ()  # nodes, or modules (what they compute themselves), as patterns of their names
    samples: int | None = 16  # calibration items at most, evenly spread over the split; None is all
    headroom: float = 4.0  # how many times larger than on the samples a number may get
    floor_db: float = 50.0  # of each output against fp32; more nodes stay in fp32 until it is reached

    def __post_init__(self) -> None:
        _fp16_ranges.check(self.samples, self.headroom)


def promises(options: Options) -> Promise:
    """Half-precision weights, and operators that multiply them as such."""
    return _skipped_layers.promise("fp16", "fp16", options.skip)


def apply(request: Request) -> Artifact:
    """The program in half precision; inputs: "model", "samples" (the calibrate split); facts: those of `halved`."""
    batches = spread(request, request.options.samples)
    return _fp16_ranges.halved(request, _ProgramTrial(request, batches))


def kept(options: Mapping[str, Json], layers: Sequence[_skipped_layers.SensitiveLayer]) -> dict[str, Json]:
    """The options with these layers of a diagnosis left in fp32: by their modules, or else by their nodes."""
    return _skipped_layers.skipping(options, (glob.escape(layer["module"] or layer["node"]) for layer in layers))


def _save(net: torch.nn.Module, program: ExportedProgram, request: Request) -> None:
    import torch
    from torch.utils import _pytree as pytree

    arguments = tuple(pytree.tree_leaves(program.example_inputs))
    try:
        halved = torch.export.export(net, arguments, dynamic_shapes=_dynamic(request.model))
    except Exception as error:  # torch.export has no error of its own
        raise StageFailed(f"torch_fp16: torch.export: {first_line(error)}") from error
    torch.export.save(halved, request.out / FILE)


def _dynamic(model: Artifact) -> dict[str, tuple[dict[int, torch.export.Dim], ...]]:
    """torch.export's dynamic shapes of a forward(*inputs)."""
    import torch

    known: dict[str, torch.export.Dim] = {}

    def of(dim: Dim) -> torch.export.Dim:
        return known.setdefault(dim.name, torch.export.Dim(dim.name, min=dim.min, max=dim.max))

    return {"inputs": tuple({i: of(d) for i, d in enumerate(s.shape) if isinstance(d, Dim)} for s in model.inputs)}


# --------------------------------------------------------------------------- trials on samples


class _ProgramTrial:
    """The program on the samples, in fp32 and in half precision."""

    def __init__(self, request: Request, batches: Sequence[list[int]]) -> None:
        self.request, self.batches = request, batches
        self.program = torch_program.load(request.model.file(".pt2"))
        self.net = self.program.run_decompositions({}).module(check_guards=False)  # no operator works in place
        self.nodes = [node for node in self.net.graph.nodes if _computes(node.target)]
        self.names = [node.name for node in self.nodes]
        self.weights = {node.name for node in self.net.graph.nodes if node.op == "get_attr"}
        self.full: list[Sequence[torch.Tensor]] = []  # of fp32: the outputs of each batch

    def ranges(self) -> dict[str, _fp16_ranges.PrecisionTally]:
        """Every tensor of the fp32 program, and what rounding it would lose."""
        return _fp16_ranges.rounded(self._seen(inputs) for inputs in self._items())

    def _seen(self, inputs: Sequence[torch.Tensor]) -> dict[str, np.ndarray]:
        full = _mixed(self.net, None)
        self.full.append(_run(full, inputs))
        known = self.weights if len(self.full) > 1 else set()
        return {name: value.numpy() for name, value in full.seen.items() if name not in known}

    def fixed(self, ranges: _fp16_ranges.Tallies) -> set[str]:
        """The nodes that stay in fp32: by their type, by what they read or make, or for want of a kernel."""
        import torch

        options: Options = self.request.options
        unfit = _fp16_ranges.unfit(ranges, options.headroom)
        types = {f"aten.{name}" for name in options.keep_ops}
        skipped = _skipped_layers.matching(
            {w for node in self.nodes for w in _words(node)}, options.skip, "node and no module"
        )
        fixed = {
            node.name
            for node in self.nodes
            if isinstance(node.target, torch._ops.HigherOrderOperator)
            or str(node.target).rpartition(".")[0] in types
            or skipped & _words(node)
            or unfit & {node.name, *(source.name for source in node.all_input_nodes)}
        }
        half = _mixed(self.net, fixed)
        _run(half, next(self._items()))
        return set(half.kept)

    def loss(self, kept: Sequence[str], limit: int | None) -> dict[str, _fp16_ranges.PrecisionTally]:
        """What each output loses with only `kept` in fp32, on at most `limit` batches."""

        def pair(
            full: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]
        ) -> dict[str, tuple[np.ndarray, np.ndarray]]:
            half = _run(_mixed(self.net, set(kept)), inputs)
            each = zip(self.request.model.outputs, full, half, strict=True)
            return {spec.name: (a.numpy(), b.float().numpy()) for spec, a, b in each if _is_fp32(a)}

        return _fp16_ranges.tallied(map(pair, self.full, itertools.islice(self._items(), limit)))

    def write(self, kept: Sequence[str]) -> dict[str, Json]:
        """Writes the program with only `kept` in fp32; the share of the MACs in half precision, for the facts."""
        counts = macs.per_node(self.net, next(self._items()))  # before the weights are halved
        _save(_module(self.net, kept, [spec.dtype for spec in self.request.model.outputs]), self.program, self.request)
        return _fp16_ranges.share(sum(counts[name] for name in counts.keys() - {*kept}), sum(counts.values()))

    def _items(self) -> Iterator[list[torch.Tensor]]:
        import torch

        for batch in self.batches:
            arrays = inputs_of(self.request, batch)
            yield [torch.from_numpy(arrays[spec.name]) for spec in self.request.model.inputs]


def _words(node: torch.fx.Node) -> set[str]:
    """A node's name, and the module that computes it, by the name that the user's code gives it."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return {node.name, *(path.removeprefix(WRAPPER) for path in paths[-1:])}


def _is_fp32(value: object) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.dtype == torch.float32


def _computes(target: Target) -> bool:
    """Whether a node calls an operator, rather than Python's for sizes and the parts of a tuple."""
    import torch

    return isinstance(target, torch._ops.OperatorBase)


def _run(interpreter: torch.fx.Interpreter, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    import torch

    try:
        with torch.inference_mode():
            return list(interpreter.run(*inputs, enable_io_processing=False))
    except RuntimeError as error:
        raise StageFailed(f"torch_fp16: {first_line(error)}") from error


# --------------------------------------------------------------------------- a program in two precisions


def _mixed(net: torch.fx.GraphModule, kept: set[str] | None) -> torch.fx.Interpreter:
    """Runs `net` in half precision but for the nodes in `kept`; with None as it is, its fp32 tensors in `seen`.

    A node that PyTorch cannot compute in half precision (no kernel, a constant that does not fit) is added to `kept`.
    """
    import torch
    from torch.fx import Interpreter
    from torch.fx.node import map_aggregate

    floats = (torch.float16, torch.float32)

    def cast(value: object, to: torch.dtype) -> object:
        if isinstance(value, torch.dtype):
            return to if value == torch.float32 else value
        return value.to(to) if isinstance(value, torch.Tensor) and value.dtype in floats else value

    class Mixed(Interpreter):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(net)
            self.seen: dict[str, torch.Tensor] = {}
            self.kept, self.name = kept, ""

        def run_node(self, node: torch.fx.Node) -> object:
            self.name = node.name
            value = super().run_node(node)
            if kept is None and _is_fp32(value):
                self.seen[node.name] = value.detach()
            return value

        def call_function(self, target: Target, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
            if kept is None or not _computes(target):
                return super().call_function(target, args, kwargs)
            if self.name not in kept:
                try:
                    return self._cast(target, (args, kwargs), torch.float16)
                except RuntimeError as error:
                    if "half" not in str(error).lower():
                        raise
                    kept.add(self.name)
            return self._cast(target, (args, kwargs), torch.float32)

        def _cast(self, target: Target, call: tuple[tuple[object, ...], dict[str, object]], to: torch.dtype) -> object:
            args, kwargs = map_aggregate(call, lambda value: cast(value, to))
            return super().call_function(target, args, kwargs)

    return Mixed()


def _module(net: torch.fx.GraphModule, kept: Sequence[str], dtypes: Sequence[str]) -> torch.nn.Module:
    """The same as a module: flat inputs, outputs of `dtypes`, weights halved where all that reads them is."""
    import torch

    class Half(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            outputs = _mixed(self.net, set(kept)).run(*inputs, enable_io_processing=False)
            return tuple(a.to(getattr(torch, dtype)) for a, dtype in zip(outputs, dtypes, strict=True))

    for node in net.graph.nodes:
        if node.op == "get_attr" and all(_computes(u.target) and u.name not in kept for u in node.users):
            place, _, name = node.target.rpartition(".")
            owner = net.get_submodule(place)
            value = getattr(owner, name)
            if _is_fp32(value):
                half = value.detach().half()
                setattr(owner, name, torch.nn.Parameter(half, False) if isinstance(value, torch.nn.Parameter) else half)
    return Half()
