"""Multiply-accumulates of a torch net, by torch's own formulas (torch.utils.flop_counter)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def count(net: Any, run: Callable[[Any], Any]) -> int:
    """The MACs of `run(net)`: products in convolutions, matrices and attention, as `analyze` counts them."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

    def attention(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> int:
        return int(sdpa_flop_count(query, key, value))

    def vector(matrix: Any, *_: Any, **__: Any) -> int:
        rows, columns = matrix
        return int(2 * rows * columns)

    aten = torch.ops.aten
    more = {aten.mv: vector, aten._scaled_dot_product_flash_attention_for_cpu: attention}
    counter = FlopCounterMode(display=False, custom_mapping=more)
    plain = not any(isinstance(module, torch.nn.RNNBase) for module in net.modules())
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # fused kernels hide their products
    try:
        with torch.backends.mkldnn.flags(enabled=plain), torch.no_grad(), counter:
            run(net)
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
    return int(counter.get_total_flops()) // 2
