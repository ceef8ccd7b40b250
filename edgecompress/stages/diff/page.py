"""A comparison of two models as one HTML file: the answer, and both graphs side by side; no script, no request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import graph_view, html
from edgecompress.reporting.formatting import DASH, cleaned
from edgecompress.reporting.graph_view import GraphNode, Spread
from edgecompress.reporting.html_tags import Raw, bdi, tag
from edgecompress.reporting.tables import TextTable

FILE = "diff.html"
HEAD = ("output of A", "of B", "SQNR", "largest difference", "range of A", "worst items")


def draw(request: Request) -> Artifact:
    """The stage: options are the facts of `diff`, with their graphs -> "page": diff.html."""
    (request.out / FILE).write_text(page(request.options), encoding="utf-8")
    return Artifact(request.out, "page").write()


def page(facts: Mapping[str, Any]) -> str:
    """The whole of the page."""
    facts = cleaned(facts)
    title = f"{facts['a']} and {facts['b']}"
    top = tag("header", tag("p", "edgecompress diff", class_="kicker"), tag("h1", bdi(title)))
    graph = facts["graph"]
    aligned = facts["aligned"]
    told = [("note", f"assumed: {each}") for each in facts["assumed"]]
    share = f"{aligned['operators']} of A's {aligned['of']} operators are aligned; of its {aligned['compute_of']} "
    share += f"convolutions, products and cells {aligned['compute']}."
    nodes = [_nodes(graph[side], facts["first"] if side == "a" else None, facts["kind"]) for side in ("a", "b")]
    parts = (
        html.section("Outputs", html.as_table(html.NO_VARIANT, _outputs(facts["outputs"])), html.notes(told)),
        html.section("Graphs", tag("p", share), graph_view.view(nodes[0], nodes[1], (facts["a"], facts["b"]))),
    )
    return html.document(title, tag("main", top, _verdict(facts), *parts), style=graph_view.style())


def _verdict(facts: Mapping[str, Any]) -> Raw:
    equal = facts["verdict"] == "equal"
    sign = tag("span", "\N{CHECK MARK}" if equal else "\N{RIGHTWARDS ARROW}", class_="sign", aria_hidden="true")
    lines = str(facts["told"]).splitlines()
    words = [tag("p", facts["kind"] or facts["verdict"], class_="kicker"), tag("p", bdi(lines[0]), class_="sentence")]
    words += [tag("p", bdi(line), class_="how") for line in lines[1:]]
    section = {"class_": f"verdict {'ok' if equal else 'bad'}", "aria_label": "Verdict"}
    return tag("section", tag("div", sign, tag("div", words), class_="says"), **section)


def _outputs(rows: Sequence[Mapping[str, Any]]) -> TextTable:
    cells = tuple(
        (
            str(row["a"]),
            str(row["b"]),
            "equal" if row["sqnr_db"] is None else f"{row['sqnr_db']:.1f} dB",
            f"{row['largest']:.3g}",
            f"{row['range']:.3g}",
            ", ".join(map(str, row["worst"])) or DASH,
        )
        for row in rows
    )
    return TextTable("Outputs", HEAD, cells)


def _nodes(rows: Sequence[Mapping[str, Any]], first: Mapping[str, Any] | None, kind: str) -> list[GraphNode]:
    marked = first["a"] if first else ""
    nodes = []
    for row in rows:
        error, spread = row["error_db"], row["spread"]
        exact = bool(row["exact"])
        nodes.append(
            GraphNode(
                row["name"],
                row["type"],
                tuple(row["reads"]),
                module=row["module"],
                dtype=row["dtype"],
                error_db=None if exact else error,
                exact=exact,
                ms=row["ms"],
                facts=(("SQNR", "equal to the bit" if error is None else f"{error:.1f} dB"),) if row["other"] else (),
                values=Spread(tuple(spread["edges"]), tuple(spread["a"]), tuple(spread["b"])) if spread else None,
                other=row["other"],
                mark=f"departs first{f': {kind}' if kind else ''}" if row["name"] == marked else "",
            )
        )
    return nodes
