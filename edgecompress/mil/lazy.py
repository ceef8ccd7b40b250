"""The heavy libraries, each imported when it is first used: a cold command pays for none of them."""

from __future__ import annotations

import importlib
from typing import Any


class _Lazy:
    """A module, imported at the first attribute asked of it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(importlib.import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


torch: Any = _Lazy("torch")
functional: Any = _Lazy("torch.nn.functional")
numpy: Any = _Lazy("numpy")
