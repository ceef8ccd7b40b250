"""Loads a program of torch.export: in a process of its own the operators of quantized ones are to be registered."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def load(file: Path) -> torch.export.ExportedProgram:
    """The program in a .pt2 file, quantized or not. Raises what torch raises: it has no error of its own."""
    import torch
    import torch.ao.quantization.fx._decomposed  # quantize_per_tensor and the like

    return torch.export.load(file)
