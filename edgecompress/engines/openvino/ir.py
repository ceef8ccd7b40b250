"""Writes OpenVINO's IR compactly: in a small int8 net, the XML would be a third of the artifact."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

if TYPE_CHECKING:
    import openvino

FILE = "model.xml"


def save(net: openvino.Model, folder: Path) -> None:
    """The openvino.Model `net` as model.xml and model.bin in `folder`, in the precision it has.

    Equal constants are shared and named c1, c2, ..., but for names that other nodes have; the notes of the tools that
    made it and the indentation are left out, and so is the precision of input ports: it is that of the output port they
    are connected to.
    """
    import openvino

    _share_constants(net)
    _steady_names(net)
    openvino.save_model(net, folder / FILE, compress_to_fp16=False)
    _shorten(folder / FILE)


def _share_constants(net: openvino.Model) -> None:
    seen: dict[tuple[str, tuple[int, ...], bytes], openvino.Node] = {}
    nodes = net.get_ordered_ops()
    taken = {node.get_friendly_name() for node in nodes if node.get_type_name() != "Constant"}
    names = (name for number in itertools.count(1) if (name := f"c{number}") not in taken)
    for node in nodes:
        if node.get_type_name() != "Constant":
            continue
        port = node.output(0)
        same = (str(port.get_element_type()), tuple(port.get_shape()), node.get_data().tobytes())
        first = seen.setdefault(same, node)
        if first is node:
            node.set_friendly_name(next(names))
        else:
            for reader in list(port.get_target_inputs()):
                reader.replace_source_output(first.output(0))


def _steady_names(net: openvino.Model) -> None:
    """Names that OpenVINO makes up count on from whatever ran before; counted from 0, equal nets have equal bytes."""
    nodes = net.get_ordered_ops()
    made_up = [
        (index, node)
        for index, node in enumerate(nodes)
        if re.fullmatch(rf"{node.get_type_name()}_\d+", node.get_friendly_name())
    ]
    others = {node.get_friendly_name() for node in nodes} - {node.get_friendly_name() for _, node in made_up}
    for index, node in made_up:
        name = f"{node.get_type_name()}_{index}"
        while name in others:
            name += "_"
        node.set_friendly_name(name)


def _shorten(file: Path) -> None:
    tree = ElementTree.parse(file)
    root = tree.getroot()
    for notes in root.findall("rt_info"):
        root.remove(notes)
    for port in root.iterfind("layers/layer/input/port"):
        port.attrib.pop("precision", None)
    for element in root.iter():
        element.tail = None
        if element.text and not element.text.strip():
            element.text = None
    text = ElementTree.tostring(root, encoding="unicode", xml_declaration=True)
    file.write_text(text.replace(" />", "/>"), encoding="utf-8")
