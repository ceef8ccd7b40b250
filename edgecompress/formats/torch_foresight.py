"""What a conversion of a torch program will replace, and what it will lack, by the tables that the conversion goes by.

Nothing is converted: an operator that the converter does not know runs once on tensors without numbers, as its
decomposition computes it, and each operator that this calls is looked up in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from edgecompress.core.operations import Foreseen
from edgecompress.formats import torch_decompositions, torch_faults
from edgecompress.formats.torch_program import module_of

if TYPE_CHECKING:
    import torch

Knows = Callable[[Any], bool]
# What checks a program or marks it, and goes before a conversion
STILL = (
    *("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range", "sym_constrain_range_for_size"),
    *("detach_", "lift_fresh_copy", "copy_", "copy"),  # what is written in place is written anew
)


def foreseen(
    program: torch.export.ExportedProgram,
    known: Knows,
    own: Mapping[Any, Callable[..., Any]],
    right: Knows = lambda node: True,
) -> Foreseen:
    """As `torch_decompositions.simpler` with `right`, then `retried` with `known` would have it.

    `own`: the decompositions that the converter does by itself.
    """
    import torch

    nodes = [n for n in program.graph.nodes if n.op == "call_function" and hasattr(n.target, "_schema")]
    nodes = [n for n in nodes if n.target._opname not in STILL and n.target.namespace != "quantized_decomposed"]
    values = [node.meta.get("val") for node in program.graph.nodes]
    fake = next(value.fake_mode for value in values if hasattr(value, "fake_mode"))
    lacking: list[tuple[Any, Any]] = []
    for stays in (right, lambda node: right(node) and known(node)):
        rewritten, lacking = [], []
        for node in nodes:
            if stays(node) and known(node):
                continue
            with torch.no_grad(), fake:
                replaced, lacks = _looked_up(node, known, own, stays)
            rewritten += [f"{node.target._opname} of {module_of(node)}"] if replaced else []
            lacking += [(node, each) for each in lacks]
        if not lacking:
            return Foreseen(rewritten)
    return Foreseen(refused=torch_faults.lacks(*lacking[0]))


def _looked_up(node: Any, known: Knows, own: Mapping[Any, Callable[..., Any]], stays: Knows) -> tuple[bool, list[Any]]:
    """Whether a node is replaced before the conversion, and the operators that are lacking then."""
    import torch
    from torch.utils import _pytree as pytree
    from torch.utils._python_dispatch import TorchDispatchMode

    lacking, within = list[Any](), list[str]()

    class Lookup(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            value, kwargs = func(*args, **(kwargs or {})), kwargs or {}
            plain, more = pytree.tree_map_only(torch.Tensor, _as_node, (args, kwargs))
            called = SimpleNamespace(target=_not_in_place(func), args=plain, kwargs=more, meta={"val": value}, users={})
            fine = func.namespace == "prim" or func._opname in STILL or (stays(called) and known(called))
            return value if fine else self.spelled_out(called, func, args, kwargs)

        def spelled_out(self, called: Any, func: Any, args: Any, kwargs: Any) -> Any:
            tables = torch_decompositions.tables() if not stays(called) else (own,)
            ways = [table[called.target] for table in tables if called.target in table]
            ways += [func.impl_aten] if func.namespace == "prims" else [func.decompose] * func._can_decompose()
            given = pytree.tree_map_only(torch.Tensor, lambda each: each.shape, (args, kwargs))
            if (call := f"{called.target} {given}") not in within:  # which it would come back to
                within.append(call)
                for way in ways:
                    before = len(lacking)
                    with self:
                        value = way(*args, **kwargs)
                    circle = called.target in lacking[before:]
                    if value is not NotImplemented and not circle:
                        within.pop()
                        return value
                    del lacking[before:]
                within.pop()
            lacking.append(called.target)
            return func(*args, **kwargs)

    args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda each: each.meta["val"])
    Lookup().spelled_out(node, node.target, args, kwargs)
    return not stays(node), lacking


def _as_node(tensor: Any) -> Any:
    """A tensor as tables take a node."""
    return SimpleNamespace(meta={"val": tensor}, users={})


def _not_in_place(func: Any) -> Any:
    """The operator that computes what one writes in place: a conversion begins with that."""
    import torch

    name = func._opname.removesuffix("_")
    plain = getattr(getattr(torch.ops.aten, name, None), func._overloadname, None)
    return plain if func._schema.is_mutable and plain is not None else func
