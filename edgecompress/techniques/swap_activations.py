"""Swaps smooth activations for one that kernels compute with the layer before it: hard-swish, SiLU, GELU as ReLU6.

The net then computes something else: it is to be trained afterwards, best by distillation from what it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

from edgecompress.core.errors import InputError
from edgecompress.core.model import REWRITES, Artifact, Request
from edgecompress.formats import torch_edits, torch_module

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ()

BY = {"relu6": "ReLU6", "relu": "ReLU", "hardswish": "Hardswish"}


@dataclass(frozen=True)
class Options:
    """Which activations go, and what takes their place."""

    to: Literal["relu6", "relu", "hardswish"] = "relu6"
    of: tuple[str, ...] = ("hardswish", "silu*", "swish*", "mish*", "*gelu*")  # classes, in any case; patterns too
    skip: tuple[str, ...] = ()  # modules, or patterns of their names, that stay

    def __post_init__(self) -> None:
        if not self.of:
            raise ValueError("of must name a class")


def apply(request: Request) -> Artifact:
    """The module with other activations; input: "model".

    facts: {"rewrites": {"Hardswish as ReLU6": [module]}}; or "lost" where it has none. Raises InputError where nothing
    is called as `skip` says.
    """
    options: Options = request.options
    net, new = torch_module.rebuild(request.model), BY[options.to]
    modules = dict(net.named_modules(remove_duplicate=False))
    for pattern in options.skip:
        if not any(fnmatchcase(name, pattern) for name in modules):
            raise InputError(f"swap_activations: skip: no module '{pattern}'")
    swapped: dict[str, list[str]] = {}
    for name, module in modules.items():
        old = type(module).__name__
        named = any(fnmatchcase(old.lower(), pattern.lower()) for pattern in options.of)
        leaf = name and not [*module.children()] and not [*module.parameters()]
        if named and leaf and old != new and not any(fnmatchcase(name, pattern) for pattern in options.skip):
            swapped.setdefault(f"{old} as {new}", []).append(name)
    if not swapped:
        why = (
            f"the net has no module of a class {' or '.join(options.of)}: functions that it calls, and files, cannot "
            "be changed so; give a torch factory whose net has modules for them"
        )
        return torch_module.save(net, request, [], {"lost": why})
    edits: list[torch_edits.Edit] = [
        {"edit": "replace", "module": name, "by": [[new, {}]]} for names in swapped.values() for name in names
    ]
    torch_edits.apply(net, edits)
    return torch_module.save(net, request, edits, {REWRITES: swapped})
