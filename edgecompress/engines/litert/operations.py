"""The operators of a .tflite file for `edgecompress check`: their words are TFLite's own names."""

from __future__ import annotations

from edgecompress.core.model import Artifact
from edgecompress.core.operations import Operation
from edgecompress.engines.litert import model_file


def operations(artifact: Artifact) -> list[Operation]:
    """Those of the first graph, in the order of computing."""
    graph = model_file.graph(artifact.file(".tflite").read_bytes())
    makers = {number: node.type for node in graph.nodes for number in node.writes}
    return [
        Operation(
            node.type,
            node.type,
            graph.tensors[node.writes[0]].dtype if node.writes else "",
            makers.get(node.reads[0], "") if node.reads else "",
        )
        for node in graph.nodes
    ]
