"""XNNPACK inside of ExecuTorch: operators that it does not take, put into the words of those that it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def partitioner() -> object:
    """What decides which operators XNNPACK takes."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

    return XnnpackPartitioner()


def passes() -> list[object]:
    """Rewrites before the partitioner looks: with them an LSTM of n steps is one delegate, without them it is 2 n."""
    from executorch.backends.transforms.replace_squeeze_unsqueeze_with_view import (
        ReplaceSqueezeAndUnsqueezeWithViewPass,
    )

    return [slices_for_splits, ReplaceSqueezeAndUnsqueezeWithViewPass()]


@contextmanager
def patterns_where_needed() -> Iterator[None]:
    """Inside, passes of XNNPACK that trace nets of their own, for seconds, do so where their operator occurs."""
    from executorch.backends.xnnpack._passes.convert_to_sdpa import ConvertToSDPAPass
    from executorch.backends.xnnpack._passes.convert_to_upsample_bilinear2d import ConvertToUpsampleBilinear2d

    needs: dict[Any, str] = {ConvertToSDPAPass: "_softmax", ConvertToUpsampleBilinear2d: "upsample_bilinear2d"}
    calls = {each: each.call for each in needs}
    for each, operator in needs.items():
        each.call = _where(operator, each.call)
    try:
        yield
    finally:
        for each, call in calls.items():
            each.call = call


def _where(operator: str, call: Callable[[Any, torch.fx.GraphModule], object]) -> Callable[..., object]:
    """The call of a pass, for nets that have the operator."""
    from torch.fx.passes.infra.pass_base import PassResult

    def called(self: Any, net: torch.fx.GraphModule) -> object:
        found = any(operator in str(node.target) for node in net.graph.nodes)
        return call(self, net) if found else PassResult(net, False)

    return called


def slices_for_splits(net: torch.fx.GraphModule) -> object:
    """Each part of a split as a slice."""
    from executorch.exir.dialects._ops import ops
    from torch.fx.passes.infra.pass_base import PassResult

    aten = ops.edge.aten
    splits = net.graph.find_nodes(op="call_function", target=aten.split_with_sizes_copy.default)
    for split in splits:
        tensor, sizes, *axis = split.args
        ends = list(accumulate(sizes))
        for part in list(split.users):
            index = part.args[1]
            with net.graph.inserting_before(part):
                args = (tensor, *(axis or [0]), ends[index] - sizes[index], ends[index])
                slice_ = net.graph.call_function(aten.slice_copy.Tensor, args)
            slice_.meta = part.meta
            part.replace_all_uses_with(slice_)
            net.graph.erase_node(part)
        net.graph.erase_node(split)
    net.recompile()
    return PassResult(net, bool(splits))
