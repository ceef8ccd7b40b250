"""What a converter, or torch.export, raised of a torch net, in one line: the operator, its layer, what to do."""

from __future__ import annotations

import itertools
import re
import traceback
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from operator import getitem, is_not
from typing import TYPE_CHECKING, Any, NamedTuple

from edgecompress.core.errors import first_line
from edgecompress.formats.torch_program import module_of

if TYPE_CHECKING:
    import torch


class Fault(NamedTuple):
    """A thing that converters lack."""

    says: re.Pattern[str]  # in what was raised, or what it came through
    what: str
    advice: str
    has: Callable[[Any], bool] = lambda value: False  # whether it is about a node with such a value


FAULTS = (
    Fault(
        re.compile(r"pack_padded_sequence|pad_packed_sequence|pack_sequence|PackedSequence"),
        "a packed sequence, whose size depends on the data",
        "give the LSTM or GRU the padded tensor, and take the answer at each item's last step by gather, or by a mask",
    ),
    Fault(
        re.compile(r"UnbackedSymbol|GuardOnDataDependent|DataDependentOutput"),
        "a size, or a choice, that depends on the data",
        "give a mask, or as many places as there can be, by topk or padding; choose by torch.where",
    ),
    Fault(
        re.compile(r"complex|_fft_|fft_[a-z]", re.IGNORECASE),
        "complex numbers",
        "compute with the real and the imaginary part as two tensors; an FFT of a fixed length is a matrix product "
        "with its cosines and one with its sines",
        lambda value: value.is_complex(),
    ),
    Fault(
        re.compile(r"rank <= 5|rank 6|6 dim|5 dim", re.IGNORECASE),
        "a tensor of more than 5 axes",
        "join axes that stay together before it, by flatten or reshape",
        lambda value: value.dim() > 5,
    ),
)
OPERATOR = (
    r"No ONNX function found for <OpOverload\(op='(?P<onnx>[\w.]+)'|Lowering not found: (?P<litert>[\w.]+)"
    r"|convert function for op '(?P<coreml>\w+)' not implemented"
    r"|Operator (?:torch\._ops\.)?(?P<executorch>[\w.]+) is not in Core ATen"
    r"|legalize operation '(?P<mlir>[\w.]+)'|Missing out variants: \{'(?P<portable>[\w:.]+)'"
)
NO_OPERATOR = "compute it by other operators, or outside of the net"


class Unconverted(Exception):
    """A converter broke on a program, the last of those that were tried; its own error is the cause."""

    def __init__(self, program: torch.export.ExportedProgram) -> None:
        self.program = program


def told(
    error: BaseException,
    program: torch.export.ExportedProgram | None = None,
    says: str = "",
    refused: Callable[[], str] = str,
) -> str:
    """The line; `says`: what to tell of the error itself where `first_line` is not it; `refused`: what the converter's
    tables say of the program, for errors that name no operator."""
    if isinstance(error, Unconverted) and error.__cause__:
        program, error = error.program, error.__cause__
    says = says or first_line(error)
    came = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    kinds = {type(value).__name__ for frame in came for value in frame.f_locals.values()}
    through = " ".join([*(frame.f_code.co_name for frame in came), *({"PackedSequence"} & kinds)])
    for fault in FAULTS:
        if fault.says.search(f"{says} {through}"):
            return f"{fault.what}{_of(program, fault.has)}: {fault.advice} ({says})"
    if found := re.search(OPERATOR, says):
        operator = next(filter(None, found.groups())).replace("::", ".").removesuffix(".default")
        name = operator.rpartition("aten.")[2].split(".")[0].strip("_")
        within = _layer(program, lambda node: name in str(node.target))
        return f"it does not convert the operator {operator}{within}: {NO_OPERATOR} ({says})"
    if program is not None and (node := culprit(error, program)):
        return f"{lacks(node, node.target)} ({says})"
    return f"{refusal} ({says})" if (refusal := refused()) else says


def culprit(error: BaseException, program: torch.export.ExportedProgram) -> torch.fx.Node | None:
    """The operator of a program that a converter was at when it broke, by what its innermost functions held.

    Before a reshape it is the operator in front: that one's shape came out wrong.
    """
    named = defaultdict[str, list[Any]](list)
    for node in program.graph.nodes:
        if node.op == "call_function" and hasattr(node.target, "_schema"):
            named[node.target._opname.strip("_")].append(node)
            named[str(node.target)].append(node)
    cause: BaseException | None = error
    while cause:
        for frame, _ in reversed([*traceback.walk_tb(cause.__traceback__)]):
            for value in frame.f_locals.values():
                alike = named[_word(value)] if type(value).__name__.endswith("Node") else []
                if not alike:
                    continue
                within = getattr(value, "parent", None) or value.graph
                count = sum(
                    _word(each) == _word(value) for each in itertools.takewhile(partial(is_not, value), within.nodes)
                )
                node = alike[min(count, len(alike) - 1)]
                while node is not None and node.target._opname in ("reshape", "view", "_unsafe_view", "clone"):
                    before = node.args[0]
                    while before.target is getitem:
                        before = before.args[0]
                    node = before if hasattr(before.target, "_schema") else None
                if node is not None:
                    return node
        cause = cause.__cause__ or cause.__context__
    return None


def _word(node: Any) -> str:
    """What operator a node is of: coremltools' say it as their kind, torch's as their target."""
    return str(getattr(node, "kind", None) or getattr(node, "target", None)).strip("_")


def lacks(node: torch.fx.Node, target: Any) -> str:
    """The line of an operator that a converter has not, which a node is or is made of."""
    name, part = (each._schema.name.replace("::", ".") for each in (node.target, target))
    if sources := node.meta.get("from_node"):  # a rewrite made it of another
        while sources[-1].from_node:
            sources = sources[-1].from_node
        name = str(sources[-1].target).rpartition(".")[0] or name
    made = f" (of {part})" if part.partition(".")[2].strip("_") != name.partition(".")[2].strip("_") else ""
    return f"it does not convert the operator {name}{made}{layer(node)}: {NO_OPERATOR}"


def is_complex(node: Any) -> bool:
    """Whether an operator takes or makes complex numbers."""
    values = [node.meta.get("val"), *(each.meta.get("val") for each in node.args if hasattr(each, "meta"))]
    return any(getattr(value, "is_complex", bool)() for value in values)


def _of(program: torch.export.ExportedProgram | None, has: Callable[[Any], bool]) -> str:
    """`, of aten.fft_rfft in layer 'a.b'`: the first node of a program with such a value."""
    import torch

    def has_it(node: torch.fx.Node) -> bool:
        value = node.meta.get("val")
        return node.op == "call_function" and isinstance(value, torch.Tensor) and has(value)

    node = next(filter(has_it, program.graph.nodes), None) if program is not None else None
    return (
        ""
        if node is None
        else f", of {str(node.target).rpartition('.')[0]}{_layer(program, lambda each: each is node)}"
    )


def _layer(program: torch.export.ExportedProgram | None, wanted: Callable[[Any], bool]) -> str:
    """As `layer`, of the first such node."""
    nodes = program.graph.nodes if program is not None else ()
    node = next((node for node in nodes if node.op == "call_function" and wanted(node)), None)
    return layer(node) if node is not None else ""


def layer(node: torch.fx.Node) -> str:
    """` in layer 'a.b'`, where a node is inside of one."""
    name = module_of(node)
    return f" in layer '{name.removeprefix('net.')}'" if name not in ("net", node.name) else ""
