"""The ops by name: each function of these modules is the MIL op it is named after, its parameters the op's inputs."""

from __future__ import annotations

import inspect
from types import ModuleType

from edgecompress.engines.coreml.mil.ops import (
    activation,
    attention,
    constexpr,
    control,
    convolution,
    elementwise,
    gather,
    linear,
    normalisation,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    shape,
    tensor,
)
from edgecompress.engines.coreml.mil.signature import Op

FAMILIES = (
    activation,
    attention,
    constexpr,
    control,
    convolution,
    elementwise,
    gather,
    linear,
    normalisation,
    pooling,
    quantization,
    recurrent,
    reduction,
    resizing,
    shape,
    tensor,
)


def _ops(module: ModuleType) -> dict[str, Op]:
    own = {name: f for name, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__}
    return {name: function for name, function in own.items() if not name.startswith("_")}


REGISTRY: dict[str, Op] = {name: op for module in FAMILIES for name, op in _ops(module).items()}
