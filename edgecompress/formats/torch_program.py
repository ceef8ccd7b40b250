"""Loads a program of torch.export: in a process of its own the operators of quantized ones are to be registered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def load(file: Path) -> torch.export.ExportedProgram:
    """The program in a .pt2 file, quantized or not. Raises what torch raises: it has no error of its own."""
    import torch
    import torch.ao.quantization.fx._decomposed  # quantize_per_tensor and the like

    return torch.export.load(file)


def call(net: torch.nn.Module, leaves: Sequence[object]) -> Any:
    """What a program's module returns for its inputs in a flat list, however it takes them."""
    from torch.utils import _pytree as pytree

    args, kwargs = pytree.tree_unflatten(list(leaves), net._in_spec)
    return net(*args, **kwargs)
