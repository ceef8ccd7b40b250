"""All of the tables, by torch's own operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

from edgecompress.formats.torch_replacements import convolutions, elementwise, places, pools, samples, sums


@cache
def table() -> dict[Any, Callable[..., Any]]:
    """What a replacement makes lies in memory as what it replaces: views of it follow."""
    from torch.ops import aten
    from torch.utils import _pytree as pytree

    def straight(replacement: Callable[..., Any], *given: Any, **named: Any) -> Any:
        made = replacement(*given, **named)
        return pytree.tree_map(lambda x: x.contiguous() if hasattr(x, "contiguous") else x, made)

    found = dict[Any, Callable[..., Any]]()
    for each in (elementwise, sums, places, pools, convolutions, samples):
        for key, replacement in each.TABLE.items():
            name, _, kind = key.partition(".")
            found[getattr(getattr(aten, name), kind or "default")] = partial(straight, replacement)
    return found
