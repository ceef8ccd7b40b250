"""A torch net whose raw head becomes boxes: the operators of box_heads behind its outputs, as a part of the net."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgecompress.core import extras
from edgecompress.core.settings import Decode
from edgecompress.formats import box_heads, torch_outputs

if TYPE_CHECKING:
    import torch

PART, OPSET = "decoded_boxes", 17  # what it is called in the net


def attach(net: torch.nn.Module, how: Decode, shapes: box_heads.Shapes, size: tuple[int, int] | None) -> None:
    """Behind outputs of these shapes, of a picture of that height and width; they keep no name of theirs.

    Raises InputError for outputs that do not fit the head.
    """
    import onnx
    from onnx import TensorProto, helper

    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape[1:]]) for name, shape in shapes.items()
    ]
    graph = helper.make_graph([], PART, ends, ends)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    box_heads.onto(proto, how, shapes, size)
    graphs, nets = (extras.part("onnx_nets", module, "decode") for module in ("graph", "net"))
    part = nets.OnnxNet(graphs.of(onnx.shape_inference.infer_shapes(proto))).eval().requires_grad_(False)
    inputs = dict(zip(shapes, part.inputs, strict=True))

    def behind(net: torch.nn.Module, _given: Any, returned: Any) -> dict[str, torch.Tensor]:
        raw = torch_outputs.flatten(returned)
        made: dict[str, torch.Tensor] = net.get_submodule(PART)(**{inputs[name]: raw[name] for name in shapes})
        return made

    net.add_module(PART, part)
    net.register_forward_hook(behind)
