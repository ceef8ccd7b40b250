"""Multiply-accumulates of a torch net, by torch's own formulas (torch.utils.flop_counter)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from edgecompress.formats import torch_module

if TYPE_CHECKING:
    import torch

    Extents = tuple[int, ...]


def count(net: torch.nn.Module, run: Callable[[torch.nn.Module], object]) -> int:
    """The MACs of `run(net)`: products in convolutions, matrices and attention, as `analyze` counts them."""
    import torch

    recurrent = any(isinstance(module, torch.nn.RNNBase) for module in net.modules())
    with counting(recurrent) as counted:
        run(net)
    return counted()


def per_node(graph: torch.fx.GraphModule, inputs: Sequence[torch.Tensor]) -> dict[str, int]:
    """The MACs of each node of a torch.fx.GraphModule that has any, for one batch of `inputs`."""
    import torch

    recurrent = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
    products: dict[str, int] = {}

    class Counting(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: torch.fx.Node) -> torch.Tensor | tuple[torch.Tensor, ...]:
            before = counted()
            value = super().run_node(node)
            products[node.name] = counted() - before
            return value

    names = {getattr(node.target, "_opname", "") for node in graph.graph.nodes}
    with counting(bool(names & recurrent)) as counted:
        Counting(graph).run(*inputs, enable_io_processing=False)
    return {name: macs for name, macs in products.items() if macs}


@contextmanager
def counting(recurrent: bool) -> Iterator[Callable[[], int]]:
    """Counts what torch computes inside: the MACs so far. `recurrent`: there are cells, whose kernels hide theirs."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    def attention(query: Extents, key: Extents, value: Extents, *_: object, **__: object) -> int:
        return int(sdpa_flop_count(query, key, value))

    def vector(matrix: Extents, *_: object, **__: object) -> int:
        rows, columns = matrix
        return int(2 * rows * columns)

    aten = torch.ops.aten
    more = {aten.mv: vector, aten._scaled_dot_product_flash_attention_for_cpu: attention}
    counter = FlopCounterMode(display=False, custom_mapping=more)
    own_kernels = torch.backends.mkldnn.flags(enabled=not recurrent)
    with torch_module.plain_attention(), own_kernels, torch.no_grad(), counter:
        yield lambda: int(counter.get_total_flops()) // 2
