"""The cost of each layer: parameters, MACs, activation bytes, and operations per byte that it moves.

A torch net is run once while each of its operators is seen: MACs by torch's own formulas (torch.utils.flop_counter),
bytes by the tensors that it reads and writes. It belongs to the innermost module that is running: what a forward does
itself is that module's own row. Views move nothing. In a file operators are counted by formats.op_counts, where what
follows an operator and changes value by value is part of it; torch runs such steps one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from edgecompress.core.model import Artifact
from edgecompress.formats import op_counts, torch_module

if TYPE_CHECKING:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

MAC = 2  # operations
NO_PRODUCTS = ("aten", "prim", "prims", "quantized_decomposed")  # but for what has a formula


class Costs(TypedDict):
    """Of a layer or of all; `macs` is None where they are not known, `flops_per_byte` also where there are none."""

    parameters: int
    macs: int | None
    activation_bytes: int
    bytes: int
    flops_per_byte: float | None


class LayerCosts(Costs):
    """One layer."""

    name: str
    type: str


class CostTotals(Costs):
    """All layers, and those whose MACs are not known."""

    unknown: list[str]
    unsized: list[str]


def of_file(model: Artifact, batch: int) -> tuple[list[LayerCosts], int, tuple[str, ...]]:
    """The operators of a graph file, the number of its parameters, and the tensors of unknown size.

    Raises StageFailed where the operators cannot be counted.
    """
    graph = op_counts.graph(model, batch, partly=True)
    whole = {tensor.name: math.prod(tensor.shape) for tensor in graph.weights}
    rows = []
    for op in graph.ops:
        parameters = sum({t.name: whole.get(t.name.removeprefix("rows of "), 0) for t in op.reads}.values())
        costs = _costs(parameters, op.macs, sum(t.bytes for t in op.writes), op.bytes)
        rows.append(_row((op.name, op.type), costs))
    return rows, sum(whole.values()), graph.unsized


def _row(named: tuple[str, str], costs: Costs) -> LayerCosts:
    return {"name": named[0], "type": named[1], **costs}


def _costs(parameters: int, macs: int | None, written: int, moved: int) -> Costs:
    return {
        "parameters": parameters,
        "macs": macs,
        "activation_bytes": written,
        "bytes": moved,
        "flops_per_byte": MAC * macs / moved if macs and moved else None,
    }


def total(rows: Sequence[LayerCosts], parameters: int, unsized: Sequence[str] = ()) -> CostTotals:
    """The sums; `macs` is None where those of a layer are not known, with the layers in `unknown`.

    `unsized`: tensors whose sizes are known only at run time, whose bytes are in no sum.
    """
    unknown = [row["name"] or row["type"] for row in rows if row["macs"] is None]
    macs = None if unknown else sum(row["macs"] or 0 for row in rows)
    written, moved = sum(row["activation_bytes"] for row in rows), sum(row["bytes"] for row in rows)
    return {**_costs(parameters, macs, written, moved), "unknown": unknown, "unsized": list(unsized)}


# --------------------------------------------------------------------------- torch


@dataclass
class _Layer:
    """The sums of one module while the net runs."""

    type: str
    macs: int | None = 0
    read: int = 0
    written: int = 0
    weights: dict[int, int] = field(default_factory=dict)  # where a parameter is stored -> its elements


class _Ledger:
    """Who is running, and what each has done so far; `parameters`: where each is stored -> its elements."""

    def __init__(self, parameters: Mapping[int, int], whole: tuple[str, str]) -> None:
        self.parameters, self.running = parameters, [whole]
        self.layers: dict[str, _Layer] = {}

    def note(self, macs: int | None, reads: Iterable[torch.Tensor], writes: Iterable[torch.Tensor]) -> None:
        """One operator of the layer that is running."""
        name, kind = self.running[-1]
        layer = self.layers.setdefault(name, _Layer(kind))
        layer.macs = None if macs is None or layer.macs is None else layer.macs + macs
        for tensor in reads:
            place = _place(tensor)
            if place in self.parameters:
                layer.weights[place] = self.parameters[place]
            layer.read += tensor.nbytes
        layer.written += sum(tensor.nbytes for tensor in writes)

    def rows(self) -> list[LayerCosts]:
        """In the order in which they first ran."""
        return [
            _row((name, it.type), _costs(sum(it.weights.values()), it.macs, it.written, it.read + it.written))
            for name, it in self.layers.items()
        ]


def _place(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def of_torch(model: Artifact, samples: Artifact, batch: int) -> tuple[list[LayerCosts], int]:
    """The layers of a "module" or "program" run on items of the data, and the number of its parameters, each once."""
    net = torch_module.rebuild(model)
    named = torch_module.example(model, samples, batch)
    own = {_place(p): p.numel() for p in net.parameters()}
    ledger = _Ledger(own, ("", type(net).__name__))
    with _plain_kernels(), _watched(net, ledger), _counter(ledger):
        if model.kind == "program":
            _interpreted(net, ledger, [named[spec.name] for spec in model.inputs])
        else:
            torch_module.outputs(net, model, named)
    return ledger.rows(), sum(own.values())


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Layers as the operators they are made of: the fused kernels of some processors hide their products."""
    import torch

    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.backends.mkldnn.flags(enabled=False):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


@contextmanager
def _watched(net: torch.nn.Module, ledger: _Ledger) -> Iterator[None]:
    """Hooks that tell the ledger which module is running."""
    import torch

    def begin(name: str) -> Callable[..., None]:
        return lambda module, inputs: ledger.running.append((name, type(module).__name__))

    def end(*_: object) -> None:
        ledger.running.pop()

    with ExitStack() as stack:
        for name, module in net.named_modules():
            if name and not isinstance(module, torch.jit.ScriptModule):  # which takes none: it counts as what calls it
                stack.callback(module.register_forward_pre_hook(begin(name)).remove)
                stack.callback(module.register_forward_hook(end).remove)
        yield


def _interpreted(net: torch.fx.GraphModule, ledger: _Ledger, leaves: list[torch.Tensor]) -> None:
    """Runs a program node by node, each as the module that it came from."""
    import torch

    class Walk(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, n: torch.fx.Node) -> torch.Tensor | tuple[torch.Tensor, ...]:
            ledger.running.append(_origin(n))
            try:
                return super().run_node(n)
            finally:
                ledger.running.pop()

    with torch.no_grad():
        Walk(net).run(*leaves, enable_io_processing=False)


def _origin(node: torch.fx.Node) -> tuple[str, str]:
    """The module that a node was traced in, where the program still knows; else the node itself."""
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return node.name, str(node.target)
    path, kind = list(stack.values())[-1]
    return path, str(kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def _counter(ledger: _Ledger) -> TorchDispatchMode:
    """A mode in which the ledger notes each operator of torch that computes something."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    def seen(tree: object) -> list[torch.Tensor]:
        return [leaf for leaf in pytree.tree_leaves(tree) if isinstance(leaf, torch.Tensor)]

    class CostCounter(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: torch._ops.OpOverload, types: object, args: Any = (), kwargs: Any = None
        ) -> object:
            kwargs = kwargs or {}
            formula = formulas.get(func._overloadpacket)
            if not formula:
                with self:
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            out = func(*args, **kwargs)
            reads = seen((args, kwargs))
            before = {_place(t) for t in reads}
            writes = [t for t in seen(out) if func._schema.is_mutable or _place(t) not in before]
            if writes:
                # without a formula: torch's own operators have no products, of another library's nobody knows
                guess = 0 if func.namespace in NO_PRODUCTS else None
                flops = formula(*args, **kwargs, out_val=out) if formula else guess
                ledger.note(None if flops is None else flops // MAC, reads, writes)
            return out

    formulas = _formulas()
    return CostCounter()


def _formulas() -> Mapping[torch._ops.OpOverloadPacket, Callable[..., int]]:
    """torch's own formulas of operations, and those of the few products that it has none of."""
    import torch
    from torch.utils import flop_counter

    aten = torch.ops.aten

    def attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: object, **__: object) -> int:
        return int(flop_counter.sdpa_flop_count(query.shape, key.shape, value.shape))

    def vector(matrix: torch.Tensor, *_: object, **__: object) -> int:
        return MAC * int(matrix.numel())

    more: dict[torch._ops.OpOverloadPacket, Callable[..., int]] = {
        aten.mv: vector,
        aten.dot: vector,
        aten.addmv: lambda added, *rest, **_: vector(*rest),
    }
    return {**flop_counter.flop_registry, **more, aten._scaled_dot_product_flash_attention_for_cpu: attention}
