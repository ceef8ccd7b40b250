"""The nodes of an ONNX model that lose too much in integers: these stay in float."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from edgecompress.engines.onnx import explicit_pads
from edgecompress.engines.onnx.activation_ranges import Ranges, is_finite
from edgecompress.techniques import _int8, _tail

MASK = -1000.0  # what goes so far below, and not above, is a mask (-1e4, the least float): it leaves no scale to others
MASKING = {"Add", "Gemm", "Mul", "Sub", "Where"}  # what makes or lays on one
ADDING = ("Add", "Sub")
ROLES: dict[str, _tail.Role] = {
    **dict.fromkeys(("Conv", "ConvTranspose", "Gemm", "MatMul", "LSTM", "GRU", "RNN"), "layer"),
    **dict.fromkeys(("TopK", "NonMaxSuppression"), "choice"),
    **dict.fromkeys(("Sigmoid", "HardSigmoid"), "share"),
    **dict.fromkeys(("Reshape", "Transpose", "Slice", "Split", "Squeeze", "Unsqueeze", "Flatten", "Identity"), "move"),
    "Softmax": "softmax",
    "Concat": "join",
    "Mul": "scale",
    "ReduceSum": "sum",
    **dict.fromkeys(("Exp", "Softplus"), "grow"),
}


def masking(file: Path, ranges: Ranges) -> Iterator[str]:
    """The nodes that make an attention mask or lay it on, and those that overflow: these stay in float."""
    import onnx

    for node in onnx.load_model(file).graph.node:
        low, high = ranges.get(node.output[0], (0.0, 0.0))
        if (node.op_type in MASKING and low < MASK and -low > 100 * high) or not is_finite((low, high)):
            yield node.name


def coarse(file: Path, ranges: Ranges, levels: int = 255) -> Iterator[str]:
    """The nodes that join numbers of very different sizes, which would share one scale: these stay in float."""
    import onnx

    spans = {name: max(high, 0.0) - min(low, 0.0) for name, (low, high) in ranges.items() if is_finite((low, high))}
    for node in onnx.load_model(file).graph.node:
        least = min((spans[name] for name in node.input if spans.get(name)), default=0.0)
        whole = spans.get(node.output[0], 0.0)
        if node.op_type == "Concat" and _int8.LEVELS * whole > levels * least > 0:
            yield node.name


def pools(file: Path) -> Iterator[str]:
    """The average pools that ONNX Runtime's int8 kernel has not, or computes otherwise: these stay in float."""
    import onnx

    for node in onnx.load_model(file).graph.node:
        dilated = any(a.name == "dilations" and max(a.ints) > 1 for a in node.attribute)
        if explicit_pads.counts_behind(node) or (node.op_type == "AveragePool" and dilated):
            yield node.name


def behind(file: Path) -> list[str]:
    """The nodes that choose, and those around them, where no layer follows any more."""
    import onnx

    graph = onnx.load_model(file, load_external_data=False).graph
    known = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    steps = []
    for node in graph.node:
        if node.op_type == "Constant":
            known |= {node.output[0]: next((tuple(a.t.dims) for a in node.attribute if a.HasField("t")), ())}
        read = [name for name in node.input if name]
        inputs, role = [name for name in read if name not in known], ROLES.get(node.op_type, "")
        role = "" if role == "layer" and inputs == read else role  # it multiplies two tensors that are computed
        if node.op_type in ADDING and any(_tail.places(known[name]) for name in read if name in known):
            role = "place"
        steps.append(_tail.Step(node.name, role, inputs, node.output))
    return _tail.tail(steps)
