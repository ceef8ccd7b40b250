"""The weights of convolutions as the batch norm that follows makes them: what filters are then ranked by."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, first_line

if TYPE_CHECKING:
    from torch import Tensor, fx, nn


OPERATIONS = ("EltwiseAdd", "EltwiseSub", "EltwiseMult", "EltwiseDiv", "Concat", "Matmul", "BatchMatmul")  # Distiller's


def traced(model: nn.Module, where: str) -> fx.Graph:
    """What calls what, Distiller's modules of one operation as such.

    Raises InputError, which begins with `where`, for a model that cannot be traced.
    """
    from torch import fx

    class Tracer(fx.Tracer):  # type: ignore[misc]
        def is_leaf_module(self, module: nn.Module, name: str) -> bool:
            return type(module).__name__ in OPERATIONS or bool(super().is_leaf_module(module, name))

    try:
        return Tracer().trace(model)
    except Exception as error:  # whatever the code of a model does with a proxy
        raise InputError(f"{where}: the model cannot be traced: {first_line(error)}") from error


def following(graph: fx.Graph, model: nn.Module) -> dict[str, nn.BatchNorm2d]:
    """By the weight of each convolution of images: the batch norm that alone reads it."""
    from torch import nn

    modules = dict(model.named_modules())
    found = {}
    for node in graph.nodes:
        if node.op == "call_module" and isinstance(modules[node.target], nn.Conv2d):
            readers = [modules.get(user.target) if user.op == "call_module" else None for user in node.users]
            if len(readers) == 1 and isinstance(readers[0], nn.BatchNorm2d):
                found[f"{node.target}.weight"] = readers[0]
    return found


def folded(weight: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """The weight x gamma / sqrt(var + eps), by the running variance (Krishnamoorthi 2018, arXiv:1806.08342, eq. 20)."""
    assert norm.running_var is not None
    scale = (norm.running_var + norm.eps).rsqrt()
    if norm.affine:
        scale = scale * norm.weight
    return (weight * scale.reshape(-1, 1, 1, 1)).detach()
