"""Operators that an engine lacks, in a program of torch.export, as the simpler ones that torch computes them by.

An engine says which operators it knows, and computes rightly. Others are replaced by `torch_replacements`, or by
torch's own decompositions (`torch.export`'s table of core operators, then the whole of `torch._decomp`), again and
again until it knows all of them, or nothing replaces one. A program of operators that it knows stays as it is.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from edgecompress.core.errors import EdgeError
from edgecompress.core.json import Json
from edgecompress.core.model import REWRITES
from edgecompress.formats import torch_faults
from edgecompress.formats.torch_program import module_of
from edgecompress.formats.torch_replacements.table import table

if TYPE_CHECKING:
    import torch

T = TypeVar("T")
SAYS = "operators as the simpler ones that they are made of"
ROUNDS = 6  # a decomposition may have operators that have one


def simpler(
    program: torch.export.ExportedProgram, knows: Callable[[torch.fx.Node], bool]
) -> tuple[torch.export.ExportedProgram, dict[str, Json]]:
    """The program, and the facts that tell what was replaced: {"rewrites": {SAYS: [operator of layer]}}, or nothing."""
    told, kept = dict[str, None](), set[object]()
    own = {(node.name, node.target) for node in program.graph.nodes}
    for _ in range(ROUNDS):
        nodes = [node for node in program.graph.nodes if node.op == "call_function" and hasattr(node.target, "_schema")]
        written = [node for node in nodes if _writes_for_others(node)]
        lacking = {n.target for n in nodes if n.target not in kept and not knows(n)}
        chosen = {op: how for op, how in ((op, _found(op)) for op in lacking) if how}
        if not chosen and not written:
            break
        try:
            made = program.run_decompositions(chosen)  # what is written in place is written anew, too
            targets = {node.target for node in made.graph.nodes if node.op == "call_function"}
            if prims := {op: op.impl_aten for op in targets if getattr(op, "namespace", "") == "prims"}:
                made = made.run_decompositions(prims)  # no engine has them
        except Exception:  # torch has no error of its own: the converter says what it lacks
            break
        if made.graph_signature.buffers_to_mutate:
            break  # what it writes to itself would become outputs
        if circle := prims and {node.target for node in made.graph.nodes} & chosen.keys():
            kept |= circle
            continue
        replaced = [n for n in nodes if (n.target in chosen or n in written) and (n.name, n.target) in own]
        told |= {f"{n.target._opname} of {module_of(n)}": None for n in replaced}
        program = made
    return program, {REWRITES: {SAYS: [*told]}} if told else {}


def _found(op: Any) -> Callable[..., object] | None:
    """What computes an operator by others: of the first table that has it, or its own definition by others."""
    own = op.decompose if op._can_decompose() else None
    return next((table[op] for table in tables() if op in table), own)


@cache
def tables() -> tuple[Mapping[object, Callable[..., object]], ...]:
    """Where decompositions are looked for, the first one first."""
    import torch
    from torch._decomp import decomposition_table

    return table(), torch.export.default_decompositions(), decomposition_table


def places_are_read(node: torch.fx.Node) -> bool:
    """Whether a net reads not only the values of an operator's first output, but also the second: where they are."""
    return any(user.target is operator.getitem and user.args[1] == 1 and user.users for user in node.users)


def projects(weights: Any) -> bool:
    """Whether an LSTM of these weights projects its answer, which most converters overlook."""
    inputs, states = (each.meta["val"].shape for each in weights[:2])
    return int(states[1]) * 4 != int(inputs[0])


def _writes_for_others(node: torch.fx.Node) -> bool:
    """Whether an operator writes into what is a view, or what others read: converters follow no such write."""
    written: Any = node.args[0] if node.args else None
    if not node.target._schema.is_mutable or node.target._opname == "detach_" or not hasattr(written, "users"):
        return False
    made = getattr(written.target, "_schema", None)
    view = made is not None and not made.is_mutable and any(each.alias_info for each in made.returns)
    return view or len(written.users) > 1


def retried(
    convert: Callable[[torch.export.ExportedProgram], T],
    program: torch.export.ExportedProgram,
    knows: Callable[[torch.fx.Node], bool],
    broken: Callable[[T], bool] = lambda made: False,
) -> tuple[T, dict[str, Json]]:
    """What a converter makes of a program; where it breaks, or that is `broken`, of the simpler one, with its facts.

    Raises Unconverted, of what the converter raised last, and of which program; or that itself, where it is ours.
    """
    lost, facts = set[object](), dict[str, Json]()
    last: Exception | None = None
    made: T | None = None
    for _ in range(ROUNDS):
        try:
            made = convert(program)
            last = None
            if not broken(made):
                return made, facts
        except Exception as error:
            last, tried = error, program
            if node := torch_faults.culprit(error, program):
                lost.add(node.target)
        program, more = simpler(program, lambda node: knows(node) and node.target not in lost)
        if not more and lost:  # what it broke at has no simpler ones
            program, more = simpler(program, knows)
        if not more:
            break
        facts = together(facts, more)
    if isinstance(last, EdgeError):
        raise last
    if last:
        raise torch_faults.Unconverted(tried) from last
    assert made is not None
    return made, {}


def together(*facts: Mapping[str, Json]) -> dict[str, Json]:
    """Facts, and the rewrites of all of them."""
    rewrites = dict[str, list[Json]]()
    for each in facts:
        told = each.get(REWRITES)
        for says, names in told.items() if isinstance(told, Mapping) else ():
            rewrites.setdefault(says, []).extend(names if isinstance(names, list) else [names])
    merged = {key: value for each in facts for key, value in each.items()}
    return {**merged, REWRITES: rewrites} if rewrites else merged
