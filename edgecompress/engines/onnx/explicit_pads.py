"""Pads written out where runtimes differ on what `auto_pad`, `output_shape` and `ceil_mode` mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from edgecompress.engines.onnx.settling import bodies

if TYPE_CHECKING:
    import onnx

PADS_ARE_INPUTS = 11  # the opset since which


def transposed(proto: onnx.ModelProto) -> None:
    """Gives transposed convolutions the pads that ONNX Runtime takes for `auto_pad` and `output_shape`: others differ.

    An `output_shape` for an input of an open size stays.
    """
    from onnx import helper

    nodes = list(_transposed(proto.graph.node))
    shapes = _shapes(proto) if nodes else {}
    for node in nodes:
        had = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        kernel = had.get("kernel_shape") or shapes.get(node.input[1], [])[2:]
        auto, wanted, rank = had.get("auto_pad", b"NOTSET").decode(), had.get("output_shape"), len(kernel)
        if not kernel or not (wanted or auto != "NOTSET"):
            continue
        sizes = shapes.get(node.input[0], [])[2:]
        if wanted and not (sizes and all(sizes)):
            continue
        usual = {"strides": 1, "dilations": 1, "output_padding": 0}
        steps = (had.get(name) or [default] * rank for name, default in usual.items())
        axes = [(s, (k - 1) * d + 1 + more) for k, s, d, more in zip(kernel, *steps, strict=False)]
        if wanted:
            whole = [(n - 1) * s + k - w for n, (s, k), w in zip(sizes, axes, wanted[-rank:], strict=False)]
        else:
            whole = [max(0, k - s) if auto.startswith("SAME") else 0 for s, k in axes]
        if min(whole) < 0:
            continue  # ONNX Runtime refuses it
        small, large = [n // 2 for n in whole], [n - n // 2 for n in whole]
        for attribute in [a for a in node.attribute if a.name in ("auto_pad", "output_shape", "pads")]:
            node.attribute.remove(attribute)
        pads = [*small, *large] if auto == "SAME_UPPER" else [*large, *small]
        node.attribute.append(helper.make_attribute("pads", pads))


def _transposed(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        if node.op_type == "ConvTranspose":
            yield node
        for body in bodies(node):
            yield from _transposed(body)


def average_pools(proto: onnx.ModelProto) -> None:
    """Gives average pools of `ceil_mode` that count their pads a Pad of their own.

    OpenVINO, and ONNX Runtime in int8, count what lies behind the pads as well. A pool whose last window would begin
    in the pads stays, and one of open sizes.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    graph = proto.graph
    opset = next((entry.version for entry in proto.opset_import if entry.domain in ("", "ai.onnx")), 1)
    pools = [node for node in graph.node if counts_behind(node)]
    shapes = _shapes(proto) if pools else {}
    for node in pools:
        had = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        rank, sizes = len(had["kernel_shape"]), shapes.get(node.input[0], [])[2:]
        pads = had.get("pads") or [0] * 2 * rank
        if any(pads):
            steps = (had.get(name) or [1] * rank for name in ("strides", "dilations"))
            axes = zip(sizes, pads[:rank], pads[rank:], had["kernel_shape"], *steps, strict=False)
            starts = [(n + a, n + a + b, -(-(n + a + b - (k - 1) * d - 1) // s) * s) for n, a, b, k, s, d in axes]
            if not (sizes and all(sizes)) or any(inside <= last < end for inside, end, last in starts):
                continue
            padded, made = f"{node.output[0]}_padded", {name for other in graph.node for name in other.output}
            while padded in made or padded in shapes:
                padded += "_"
            whole = [0, 0, *pads[:rank], 0, 0, *pads[rank:]]
            if opset < PADS_ARE_INPUTS:
                pad = helper.make_node("Pad", [node.input[0]], [padded], padded, pads=whole)
            else:
                graph.initializer.append(numpy_helper.from_array(np.array(whole), f"{padded}_by"))
                pad = helper.make_node("Pad", [node.input[0], f"{padded}_by"], [padded], padded)
            graph.node.insert(list(graph.node).index(node), pad)
            node.input[0] = padded
        for attribute in [a for a in node.attribute if a.name in ("auto_pad", "pads", "count_include_pad")]:
            node.attribute.remove(attribute)


def counts_behind(node: onnx.NodeProto) -> bool:
    """Whether it is an average pool whose windows may end behind the pads that it counts."""
    had = {attribute.name: attribute for attribute in node.attribute}
    counted = all(name in had and had[name].i for name in ("ceil_mode", "count_include_pad"))
    return node.op_type == "AveragePool" and counted and not ("auto_pad" in had and had["auto_pad"].s[:4] == b"SAME")


def _shapes(proto: onnx.ModelProto) -> dict[str, list[int]]:
    """The sizes of each tensor, 0 where one is open."""
    import onnx

    shaped = onnx.shape_inference.infer_shapes(proto).graph
    values = (*shaped.input, *shaped.value_info)
    found = {value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in values}
    return found | {tensor.name: list(tensor.dims) for tensor in proto.graph.initializer}
