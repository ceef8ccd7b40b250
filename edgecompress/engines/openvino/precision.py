"""The precision of OpenVINO's IR: its XML says all; compressed weights and FakeQuantize as they are stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from edgecompress.formats.precision import walk
from edgecompress.formats.precision.walk import Does, Net, Node, Stored

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

FACTORS: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(("Convolution", "GroupConvolution", "MatMul"), (0, 1)),
    **dict.fromkeys(("ConvolutionBackpropData", "GroupConvolutionBackpropData", "DeformableConvolution"), (0, 1)),
    "ScaledDotProductAttention": (0, 1, 2),
    "LSTMSequence": (0, 4, 5),
    "LSTMCell": (0, 3, 4),
    **dict.fromkeys(("GRUSequence", "RNNSequence"), (0, 3, 4)),
    **dict.fromkeys(("GRUCell", "RNNCell"), (0, 2, 3)),
}
ROLES: Mapping[str, Does] = {
    **dict.fromkeys(FACTORS, "multiplies"),
    **dict.fromkeys(("Gather", "GatherND"), "picks"),
    **dict.fromkeys(("Reshape", "Transpose", "Squeeze", "Unsqueeze", "MaxPool", "Pad", "Split"), "hands on"),
    "FakeQuantize": "dequantizes",
    "Concat": "joins",
}
FLOATS = {"FP64": "fp64", "F64": "fp64", "FP32": "fp32", "F32": "fp32", "FP16": "fp16", "F16": "fp16", "BF16": "bf16"}
BITS = {"BOOL": 8, "BOOLEAN": 8, "STRING": 0}


def net(file: Path) -> Net:
    """The net in a model.xml."""
    made = Net()
    _layers(ElementTree.parse(file).getroot(), "", made)
    return made


def _layers(root: Element, prefix: str, made: Net) -> None:
    """Those of a net or of a body."""
    sources = {
        (edge.get("to-layer"), edge.get("to-port")): f"{prefix}{edge.get('from-layer')}:{edge.get('from-port')}"
        for edge in root.iterfind("edges/edge")
    }
    for layer in root.iterfind("layers/layer"):
        number = layer.get("id")
        reads = tuple(sources.get((number, port.get("id")), "") for port in layer.iterfind("input/port"))
        ports = layer.iterfind("output/port")
        writes = {f"{prefix}{number}:{port.get('id')}": _word(str(port.get("precision"))) for port in ports}
        kind = layer.attrib["type"]
        if kind == "Const":
            made.constants.update({name: _stored(layer) for name in writes})
        else:
            made.words.update({name: word for name, word in writes.items() if word})
            made.nodes.append(_node(layer, reads, tuple(writes)))
        for place, body in enumerate(each for each in layer if each.find("layers") is not None):
            _layers(body, f"{prefix}{number}.{place}/", made)


def _stored(layer: Element) -> Stored:
    data = layer.find("data")
    about = data.attrib if data is not None else {}
    shape = [int(size) for size in about.get("shape", "").replace(" ", "").split(",") if size]
    dtype = about.get("element_type", "").upper()
    size = int(about.get("size") or math.prod(shape) * BITS.get(dtype, walk.bits(dtype)) // 8)
    return Stored(_word(dtype), size, len(shape), about.get("offset", layer.get("id")))


def _node(layer: Element, reads: tuple[str, ...], writes: tuple[str, ...]) -> Node:
    kind, data = layer.attrib["type"], layer.find("data")
    levels = int(data.get("levels", "0")) if data is not None and kind == "FakeQuantize" else 0
    if levels:
        return Node(reads, writes, "dequantizes", word=next(w for most, w in LEVELS if levels <= most))
    return Node(reads, writes, ROLES.get(kind, ""), FACTORS.get(kind, (0,)))


LEVELS = ((16, "int4"), (256, "int8"), (math.inf, "int16"))


def _word(precision: str) -> str:
    """I8 is int8, and so is U8; NF4 is a table of 16 numbers."""
    name = precision.upper()
    if name.startswith("F8"):
        return "fp8"
    plain = {"NF4": "palette4", "BOOL": "bool", "BOOLEAN": "bool", "STRING": "text", "F4E2M1": "fp4"}
    return plain.get(name) or FLOATS.get(name) or (f"int{walk.bits(name)}" if walk.bits(name) else "")
