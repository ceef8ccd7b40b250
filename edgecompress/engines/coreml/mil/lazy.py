"""The heavy libraries, each imported when it is first used, so that a command without them starts fast."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy
    import torch
    from torch.nn import functional

__all__ = ["functional", "numpy", "torch"]


class _Lazy:
    """A module, imported when an attribute of it is first read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> object:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


if not TYPE_CHECKING:
    torch, functional, numpy = _Lazy("torch"), _Lazy("torch.nn.functional"), _Lazy("numpy")
