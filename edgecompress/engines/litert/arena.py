"""The memory that LiteRT and its XNNPACK delegate plan for activations, from what the interpreter tells of a net.

LiteRT's arena holds the inputs and outputs of the net; XNNPACK's workspace holds what lies between them, after it has
fused padding into convolutions and lets element-wise operators write where they read. Both are planned greedy by size.
`benchmarks/arena.py` holds the sum against the memory that is really written.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgecompress.engines.litert.memory_plan import Lifetime, aligned, greedy_by_size, peak

if TYPE_CHECKING:
    from edgecompress.core.protocols import Arena

ARENA_ALIGNMENT, WORKSPACE_ALIGNMENT, WORKSPACE_SLACK = 64, 16, 32  # bytes, of LiteRT, and of XNNPACK
CONVOLUTIONS = ("CONV_2D", "DEPTHWISE_CONV_2D")  # a PAD before one becomes part of it
PRODUCTS = (*CONVOLUTIONS, "FULLY_CONNECTED", "TRANSPOSE_CONV", "BATCH_MATMUL", "CONV_3D")
IN_PLACE = frozenset(
    (
        *("ADD", "SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE"),
        *("ABS", "CEIL", "ELU", "EXP", "FLOOR", "GELU", "HARD_SWISH", "LEAKY_RELU", "LOGISTIC", "NEG", "RELU", "RELU6"),
        *("RELU_N1_TO_1", "ROUND", "RSQRT", "SQRT", "SQUARE", "TANH", "SOFTMAX"),
        *("EXPAND_DIMS", "RESHAPE", "SQUEEZE"),
    )
)
Operator = Mapping[str, Any]


def arena(interpreter: object, left: Sequence[str]) -> Arena:
    """The plan; `left`: the operators that no delegate took. None, with the reason, where it cannot be known."""
    net = _Net(interpreter)
    if left:
        return _none(
            f"{', '.join(left[:3])} {'runs' if len(left) == 1 else 'run'} outside of XNNPACK, in scratch memory of "
            "which LiteRT tells nothing"
        )
    if hybrid := next(net.hybrid(), ""):
        return _none(f"{hybrid} quantizes its activations as they come, in memory that XNNPACK does not report")
    ends = [aligned(net.size(t), ARENA_ALIGNMENT) for t in {*net.inputs, *net.outputs}]
    inner = net.workspace()
    workspace = greedy_by_size(inner, WORKSPACE_ALIGNMENT) + WORKSPACE_SLACK if inner else 0
    step, largest = peak(inner)
    at = f"{largest.name} ({largest.size:,} bytes) at {net.label(step)}" if largest else ""
    return {"arena_bytes": sum(ends) + ARENA_ALIGNMENT + workspace, "arena_reason": "", "arena_peak": at}


def _none(reason: str) -> Arena:
    return {"arena_bytes": None, "arena_reason": reason, "arena_peak": ""}


class _Net:
    """The operators of the file in their order, and who reads and writes each activation."""

    def __init__(self, interpreter: Any) -> None:
        self.tensors = {int(t["index"]): t for t in interpreter.get_tensor_details()}
        self.inputs, self.outputs = (
            [int(d["index"]) for d in side]
            for side in (interpreter.get_input_details(), interpreter.get_output_details())
        )
        listed = [op for op in interpreter._get_ops_details() if op["op_name"] != "DELEGATE"]
        known = set(self.inputs)
        self.operators: list[Operator] = []
        self.roots: dict[int, int] = {}  # of a tensor: the one in whose place it lies
        for op in listed:  # what reads constants alone is computed when the net is opened
            if known & {int(t) for t in op["inputs"]}:
                known |= {int(t) for t in op["outputs"]}
                self.operators.append(op)
        self.made = {int(t): i for i, op in enumerate(self.operators) for t in op["outputs"]}
        self.readers: dict[int, list[int]] = {}
        for i, op in enumerate(self.operators):
            for t in {int(t) for t in op["inputs"]}:
                self.readers.setdefault(t, []).append(i)

    def size(self, tensor: int) -> int:
        """Bytes of a tensor."""
        import numpy as np

        detail = self.tensors[tensor]
        return int(math.prod(int(d) for d in detail["shape"]) * np.dtype(detail["dtype"]).itemsize)

    def label(self, step: int) -> str:
        """An operator as the report calls it."""
        return f"{self.operators[step]['op_name']}:{self.operators[step]['index']}"

    def hybrid(self) -> Iterator[str]:
        """The operators between float activations and whole-number weights."""
        import numpy as np

        def kind(tensor: int) -> str:
            return str(np.dtype(self.tensors[tensor]["dtype"]).kind)

        for i, op in enumerate(self.operators):
            first, *others = (int(t) for t in op["inputs"])
            weights = [t for t in others if t in self.tensors and t not in self.made and t not in self.inputs]
            if op["op_name"] in PRODUCTS and kind(first) == "f" and any(kind(t) in "iu" for t in weights):
                yield self.label(i)

    def workspace(self) -> list[Lifetime]:
        """What lies between the inputs and the outputs, as XNNPACK holds it."""
        last = {t: max(self.readers.get(t, [i])) for t, i in self.made.items() if t not in self.outputs}
        for i, op in enumerate(self.operators):
            if op["op_name"] == "PAD" and (reader := self._convolution(int(op["outputs"][0]))) is not None:
                last.pop(int(op["outputs"][0]), None)
                if (padded := int(op["inputs"][0])) in last:
                    last[padded] = max(last[padded], reader)
            elif op["op_name"] in IN_PLACE and int(op["outputs"][0]) in last:
                self._write_in_place(i, last)
        return [
            Lifetime(str(self.tensors[t]["name"]).rsplit("/", 1)[-1], self.made[t], end, self.size(t))
            for t, end in last.items()
        ]

    def _convolution(self, padded: int) -> int | None:
        """The one reader of a padded tensor, where that is a convolution."""
        readers = self.readers.get(padded, [])
        alone = len(readers) == 1 and self.operators[readers[0]]["op_name"] in CONVOLUTIONS
        return readers[0] if alone else None

    def _write_in_place(self, step: int, last: dict[int, int]) -> None:
        """The output of an operator takes the place of the first input of its size that nobody else reads."""
        output = int(self.operators[step]["outputs"][0])
        for given in (int(t) for t in self.operators[step]["inputs"]):
            root = self.roots.get(given, given)
            if root in last and len(self.readers[given]) == 1 and self.size(given) == self.size(output):
                self.roots[output] = root
                last[root] = max(last[root], last.pop(output))
                return
