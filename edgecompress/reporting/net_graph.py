"""The operators of what ships, and who reads whom: for the report's drawing."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact
from edgecompress.core.operator_graph import Graph, Op, Tensor
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
    """Operators with what they read. Views are no operators: see `_behind_view`."""
    ends = {tensor.name for tensor in graph.ends}
    read = {tensor.name.removeprefix(ROWS) for op in graph.ops for tensor in op.reads}
    makers = {tensor.name: place for place, op in enumerate(graph.ops) for tensor in op.writes}
    entries: dict[str, int] = {}
    ops = []
    for place, op in enumerate(graph.ops):
        reads = []
        for tensor in op.reads:
            name = tensor.name.removeprefix(ROWS)
            if tensor.constant:
                continue
            maker = makers.get(name)
            if maker is None and name not in ends:
                maker = _behind_view(tensor, graph.ops[:place], read)
                if maker is not None:
                    makers[name] = maker
            reads.append(entries.setdefault(name, len(graph.ops) + len(entries)) if maker is None else maker)
        left = op.writes[0] if op.writes else Tensor("", (), "")
        told = dict.fromkeys(read for read in reads if read != place)
        ops.append(GraphOperator(op.name, op.type, list(told), op.dtype or left.dtype, list(left.shape), op.macs))
    return NetGraph(variant, "", ops, list(entries))


def _behind_view(tensor: Tensor, before: tuple[Op, ...], read: set[str]) -> int | None:
    """Who wrote what a view turned into `tensor`: the last with as many values, first of those that nobody reads."""
    count = math.prod(tensor.shape)
    same = [(i, t.name in read) for i, op in enumerate(before) for t in op.writes if math.prod(t.shape) == count]
    unread = [i for i, is_read in same if not is_read]
    return unread[-1] if unread else same[-1][0] if same else None


def words(report: Report) -> str:
    """What the drawing shows."""
    assert report.graph
    about = f"{report.graph.variant}: {plural(len(report.graph.ops), 'operator')}. " if report.graph.ops else ""
    behind = "Reshapes move nothing and are left out: a line across one goes to the last operator of as many values."
    return f"{about}{behind}" if about else f"{report.graph.variant}."


def drawn(report: Report) -> Raw:
    """The drawing, with the times that were measured of operators of the same names."""
    graph = report.graph
    assert graph
    variant = report.variant(graph.variant)
    times: Counter[str] = Counter()
    for timed in variant.ops.ops if variant and variant.ops else ():
        times[timed.name] += timed.ms  # type: ignore[assignment] # a Counter adds any numbers
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
        ms = times[op.name] if seen[op.name] == 1 and op.name in times else None
        node = graph_view.GraphNode(name, op.type, reads, _module(op.name), op.dtype, ms=ms, facts=tuple(facts))
        nodes.append(node)
    return graph_view.view(nodes, titles=(graph.variant, ""))


def _module(name: str) -> str:
    """The module in a name such as "/layer1/layer1.0/conv1/Conv"."""
    path: list[str] = []
    for part in name.split(";")[0].split("/")[:-1]:
        path.append(part.removeprefix(f"{path[-1]}.") if path else part)
    return ".".join(filter(None, path))
