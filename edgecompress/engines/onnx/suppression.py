"""Non-maximum suppression inside a file: how many boxes are left depends on the picture, so the net ends before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgecompress.core.json import Json
from edgecompress.engines.onnx.settling import drop_unread

if TYPE_CHECKING:
    import onnx

NMS = "NonMaxSuppression"
OPEN_ENDED = (NMS, "NonZero", "Unique", "Compress")  # as long as the data says
PYTORCH = "pytorch"  # its boxes are x, y; the standard's are y, x


def cut(proto: onnx.ModelProto) -> tuple[dict[str, Json] | None, list[str]]:
    """Ends the net at the boxes and scores that its NonMaxSuppression takes: they become "boxes" and "scores".

    Outputs behind it are left out. Returns how boxes are read (of settings.Detect), and what is told; None where there
    is none, where there are several, and where what it takes is as long as the data says already.
    """
    from onnx import TensorProto, helper

    graph = proto.graph
    found = [node for node in graph.node if node.op_type == NMS]
    if len(found) != 1:
        return None, []
    node = found[0]
    behind, open_ended = {*node.output}, set[str]()
    for each in graph.node:  # in the order of computing
        if behind.intersection(each.input):
            behind.update(each.output)
        if each.op_type in OPEN_ENDED or open_ended.intersection(each.input):
            open_ended.update(each.output)
    kept = [value for value in graph.output if value.name not in behind]
    if len(kept) == len(graph.output) or open_ended.intersection(node.input[:2]):
        return None, []
    taken = {name for each in graph.node for name in (*each.input, *each.output)}
    wanted = zip(("boxes", "scores"), node.input, strict=False)
    names = [name if name == given or name not in taken else f"{name}_before_nms" for name, given in wanted]
    left_out = [value.name for value in graph.output if value.name in behind]
    detect = _declared(proto, node, names)
    shapes = _shapes(proto)
    for name, given in zip(names, node.input, strict=False):
        if name != given:
            graph.node.append(helper.make_node("Identity", [given], [name]))
        kept.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes.get(given)))
    del graph.output[:]
    graph.output.extend(kept)
    drop_unread(graph)
    told = (
        f"the net ends before its {NMS}, which packages do instead: '{names[0]}' ({detect['format']}) and '{names[1]}' "
        f"are its outputs in place of {', '.join(left_out)}; detect in the source file says it where its boxes are "
        "written otherwise"
    )
    return detect, [told]


def _declared(proto: onnx.ModelProto, node: onnx.NodeProto, names: list[str]) -> dict[str, Json]:
    """By its attribute and its limits, where they are constants."""
    middle = any(a.name == "center_point_box" and a.i == 1 for a in node.attribute)
    corners = "xyxy" if proto.producer_name.lower() == PYTORCH else "yxyx"
    limits = {
        key: _number(proto.graph, node.input[i]) for key, i in (("overlap", 3), ("score", 4)) if len(node.input) > i
    }
    sound = {key: value for key, value in limits.items() if value is not None and 0 < value < 1}
    return {"boxes": names[0], "scores": names[1], "format": "cxcywh" if middle else corners, **sound}


def _number(graph: onnx.GraphProto, name: str) -> float | None:
    """A constant of one number."""
    from onnx import numpy_helper

    held = [tensor for tensor in graph.initializer if tensor.name == name]
    held += [a.t for node in graph.node if name in node.output for a in node.attribute if a.name == "value"]
    values = [numpy_helper.to_array(tensor).ravel() for tensor in held]
    return next((round(float(value[0]), 6) for value in values if value.size == 1), None)


def _shapes(proto: onnx.ModelProto) -> dict[str, list[int | str | None]]:
    """Of the tensors whose shape can be inferred."""
    from onnx import shape_inference

    inferred = shape_inference.infer_shapes(proto).graph if proto.ByteSize() < 2**31 else proto.graph
    return {
        value.name: [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in kind.shape.dim]
        for value in inferred.value_info
        if (kind := value.type.tensor_type).HasField("shape")
    }
