"""The operators of what ships, and who reads whom: for the report's drawing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import Graph, Tensor
from edgecompress.reporting import before_after, graph_view
from edgecompress.reporting.formatting import plural
from edgecompress.reporting.html_tags import Raw
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_variant import GraphOperator, NetGraph

MOST_EDGES = 20_000
ROWS = "rows of "  # what a tensor is called of which an operator picks some rows


def of_report(report: Report, inputs: Mapping[str, Artifact]) -> NetGraph | None:
    """The graph of the variant that ships; None where none does, or its file is not here."""
    from edgecompress.formats import op_counts

    name = before_after.subject(report)
    if (artifact := inputs.get(f"{name}/artifact")) is None:
        return None
    try:
        graph = op_counts.graph(artifact, report.run.batch, partly=True)
    except (EdgeError, ImportError) as error:
        told = str(error).removeprefix(str(artifact.path)).lstrip("/: ")
        return NetGraph(name, f"The file gives no graph: {told}.")
    edges = sum(len(op.reads) for op in graph.ops)
    if len(graph.ops) > graph_view.MOST or edges > MOST_EDGES:
        return NetGraph(
            name, f"The graph is not drawn: it has {plural(len(graph.ops), 'operator')} and {edges:,} edges."
        )
    return _told(name, graph) if graph.ops else NetGraph(name, graph_view.NOTHING)


def _told(variant: str, graph: Graph) -> NetGraph:
    """Operators with what they read, through what moves nothing."""
    makers = {tensor.name: place for place, op in enumerate(graph.ops) for tensor in op.writes}
    entries: dict[str, int] = {}
    ops = []
    for place, op in enumerate(graph.ops):
        named = [tensor.name.removeprefix(ROWS) for tensor in op.reads if not tensor.constant]
        told = dict.fromkeys(graph.views.get(name, name) for name in named)
        reads = [
            makers[name] if name in makers else entries.setdefault(name, len(graph.ops) + len(entries))
            for name in told
            if makers.get(name) != place
        ]
        left = op.writes[0] if op.writes else Tensor("", (), "")
        ops.append(GraphOperator(op.name, op.type, reads, op.dtype or left.dtype, list(left.shape), op.macs))
    return NetGraph(variant, "", ops, list(entries))


def words(graph: NetGraph) -> str:
    """What the drawing shows, or why there is none."""
    if not graph.ops:
        return f"{graph.variant}: {graph.why}"
    count = plural(len(graph.ops), "operator")
    return f"{graph.variant}: {count}; reshapes and other views, which move nothing, are left out."


def drawn(report: Report) -> Raw:
    """The drawing, with the times that were measured of operators of the same names."""
    graph = report.graph
    assert graph
    variant = report.variant(graph.variant)
    times: dict[str, float] = {}
    for timed in variant.ops.ops if variant and variant.ops else ():
        times[timed.name] = times.get(timed.name, 0.0) + timed.ms
    seen: Counter[str] = Counter()
    names = []
    for op in graph.ops:
        seen[op.name] += 1
        names.append(f"{op.name or op.type} ({seen[op.name]})" if seen[op.name] > 1 or not op.name else op.name)
    ends = [*names, *(f"input {name}" if name in names else name for name in graph.inputs)]
    nodes = []
    for op, name in zip(graph.ops, names, strict=True):
        facts = [("writes", " × ".join(map(str, op.shape))), ("MACs", f"{op.macs:,}" if op.macs else "")]
        reads = tuple(ends[i] for i in op.reads if i < len(ends))
        ms = times.get(op.name) if seen[op.name] == 1 else None
        node = graph_view.GraphNode(name, op.type, reads, _module(op.name), op.dtype, ms=ms, facts=tuple(facts))
        nodes.append(node)
    return graph_view.view(nodes, titles=(graph.variant, ""))


def _module(name: str) -> str:
    """The module in a name: "/layer1/layer1.0/conv1/Conv", "__module.fc/MatMul" or "Net_net/nn.Conv2d_stem;1"."""
    traced = ";" in name  # LiteRT: the modules that were fused, each with the class of every module on its path
    parts = name.split(";;")[-1].split(";")[0].split("/")
    parts = parts if traced else parts[:-1]
    path = [part if part.startswith("__module.") else part.rsplit(".", 1)[-1] for part in parts]
    return ".".join(filter(None, path))
