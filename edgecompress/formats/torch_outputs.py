"""What a torch net returns, whatever it is nested in, as tensors by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    import torch

Nested: TypeAlias = "torch.Tensor | Mapping[str, Nested] | Sequence[Nested] | None"  # what a net takes and returns


def flatten(returned: Nested, names: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """Nested dictionaries, tuples, lists and objects of tensors as {dotted name: tensor}; `names` replace the names.

    One bare tensor is "output"; the parts of a tuple are "output.0", "output.1", ...; what is no tensor is left out.
    """
    leaves = dict(_leaves(returned, ""))
    if not leaves:
        raise InputError("the model returned no tensor; its forward must return tensors, in tuples or dictionaries")
    if names and len(names) != len(leaves):
        raise InputError(f"the model returned {len(leaves)} tensors this time, not {len(names)}: {', '.join(names)}")
    return dict(zip(names or leaves, leaves.values(), strict=True))


def _leaves(returned: Nested, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    import torch

    if isinstance(returned, torch.Tensor):
        yield name or "output", returned
    elif isinstance(returned, Mapping):
        for key, part in returned.items():
            word = re.sub(r"[^\w.-]", "_", str(key))  # names become file names
            yield from _leaves(part, f"{name}.{word}" if name else word)
    elif isinstance(returned, (tuple, list)):
        fields = getattr(returned, "_fields", None)  # a named tuple is as good as a dictionary
        if fields:
            yield from _leaves(dict(zip(fields, returned, strict=True)), name)
        else:
            for index, part in enumerate(returned):
                yield from _leaves(part, f"{name or 'output'}.{index}")
    else:  # a dataclass, a cache of keys and values: what it holds by names of its own
        own = {key: part for key, part in getattr(returned, "__dict__", {}).items() if not key.startswith("_")}
        yield from _leaves(own, name)
