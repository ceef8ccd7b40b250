"""The drawing of a net: what it holds, what it folds, what it escapes; and what the report tells of a graph."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
from report_inputs import request

from edgecompress.core.operator_graph import Graph, Op, Tensor
from edgecompress.formats import op_counts
from edgecompress.reporting import graph_view, html, model, net_graph, report_json
from edgecompress.reporting.graph_view import GraphNode, Spread, view


def chain(count: int, prefix: str = "n", **rest: object) -> list[GraphNode]:
    names = [f"{prefix}{i}" for i in range(count)]
    reads = ["x", *names]
    return [GraphNode(name, "Conv", (reads[i],), **rest) for i, name in enumerate(names)]  # type: ignore[arg-type]


def boxes(page: str) -> int:
    return page.count('<details class="op ')


def test_every_operator_has_a_box_and_every_link_a_place() -> None:
    page = view([*chain(3), GraphNode("alone", "Const", ()), GraphNode("join", "Add", ("n1", "n2", "n1"), mark="odd")])
    assert boxes(page) == 5 and page.count('<span class="end"') == 1
    assert page.count("m-4-6l4 6 4-6") == 5  # heads of lines: a repeated read is one line
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#([^"]+)"', page)) <= set(ids)


def test_a_thousand_operators_are_folded_and_each_is_there_once() -> None:
    page = view(chain(1_000))
    assert boxes(page) == 1_000
    assert page.count('class="fold ') == page.count('class="op group ') == 40
    assert len(page) < 1_000_000


def test_folds_follow_modules_and_the_largest_is_opened_for_the_first_drawing() -> None:
    names = [f"bert.layer.{i // 20}" for i in range(240)]
    nodes = [GraphNode(f"n{i}", "Add", (f"n{i - 1}",), name) for i, name in enumerate(names)]
    page = view([GraphNode("first", "Gather", ("x",), "bert.embeddings"), *nodes])
    assert page.count('class="fold ') == 12
    assert "<bdi>bert.layer.11</bdi> (20 operators)" in page and "<bdi>first</bdi>" in page
    deep = [GraphNode(f"n{i}", "Add", (), ".".join("a" * 5_000)) for i in range(100)]
    assert boxes(view(deep)) == 100


def test_an_input_that_many_read_is_named_and_stretches_nothing() -> None:
    nodes = [GraphNode(f"n{i}", "Add", (f"n{i - 1}" if i else "x", "mask")) for i in range(9)]
    page = view(nodes)
    assert "<bdi>mask</bdi> (read by 9 boxes)" in page and page.count('<span class="end"') == 1
    assert 'style="width:172px;' in page


def test_names_of_strangers_are_escaped_and_cut() -> None:
    evil = "</style><script>alert(1)</script>\"'&" + "x" * 5_000
    node = GraphNode(evil, evil, (evil, "y" + evil), evil, evil, facts=((evil, evil),), other=evil, mark=evil)
    page = view([node], [node], (evil, evil))
    assert "<script" not in page and "</style>" not in page
    assert "x" * 161 not in page


def test_equal_nets_give_equal_pages_in_every_process() -> None:
    code = (
        "from edgecompress.reporting.graph_view import *\n"
        "print(hash('x'), view([GraphNode(f'n{i}', 'Add', (f'n{i // 2 - 1}', f'n{i - 1}')) for i in range(40)]))"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(2)]
    hashes, pages = zip(*(run.stdout.split(" ", 1) for run in runs), strict=True)
    assert hashes[0] != hashes[1] and pages[0] == pages[1]


def test_any_graph_is_drawn() -> None:
    """Cycles, reads of itself, loose ends: files of strangers have them."""
    for seed in range(60):
        rng = random.Random(seed)
        count = rng.randint(1, 90)
        names = [f"n{rng.randint(0, 2)}.{i}" for i in range(count)]
        known = [*names, "x", "y"]
        nodes = [GraphNode(n, "Add", tuple(rng.choices(known, k=rng.randint(0, 4))), n[:2]) for n in names]
        assert boxes(view(nodes)) == count


def test_colours_and_filters_are_those_that_tell_operators_apart() -> None:
    plain = view(chain(2))
    assert "by-error" not in plain and "by-time" not in plain and 'class="only"' not in plain
    exact = view(chain(2, exact=True, dtype="int8", ms=1.0))
    assert all(f"by-{name}" in exact for name in ("error", "time", "dtype")) and 'class="only"' not in exact
    assert 'class="only"' in view(chain(2, error_db=20.0))
    assert 'class="op k0 e3 t5 i8 dev"' in view(chain(2, error_db=20.0, ms=1.0, dtype="uint8"))
    kinds = [GraphNode(f"n{i}", f"Type{i}", ()) for i in range(30)]
    assert view(kinds).count("<option") == 1 + graph_view.KINDS
    style = graph_view.style()
    assert all(f"option.k{i}:checked) .op:not(.k{i})" in style for i in range(graph_view.KINDS))


def test_aligned_operators_carry_one_number_and_lead_to_each_other() -> None:
    first = [
        GraphNode("a", "Conv", ("x",), other="q"),
        GraphNode("b", "Relu", ("a",)),
        GraphNode("c", "Add", ("b",), other="r"),
    ]
    page = view(first, [GraphNode("q", "CONV_2D", ("x",)), GraphNode("r", "ADD", ("q",))], ("one", "two"))
    assert re.findall(r'class="number">(\d+)<', page) == ["1", "2", "1", "2"]
    assert page.count("aligned as 1 with") == page.count("aligned as 2 with") == 2


def test_a_histogram_says_what_it_shows() -> None:
    spread = Spread((0.0, 1.0, 2.0), (3, 9), (4, 8))
    page = view([GraphNode("a", "Conv", (), values=spread)])
    assert "Histogram of 12 values from 0 to 2, most of them from 1 to 2" in page and 'class="line"' in page
    assert "Histogram" not in view([GraphNode("a", "Conv", (), values=Spread((0.0,), (3, 9)))])


def test_what_cannot_be_drawn_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    assert graph_view.NOTHING in view([])
    assert "more than 5,000 operators" in view(chain(5_001))
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    assert graph_view.NO_LAYOUT in view(chain(2))


# ------------------------------------------------------------------ in the report


def tensor(name: str, *shape: int, dtype: str = "float32", constant: bool = False) -> Tensor:
    return Tensor(name, shape, dtype, constant)


GRAPH = Graph(
    (
        Op("/a/conv/Conv", "Conv", 9, (tensor("x", 4), tensor("w", 9, constant=True)), (tensor("y", 2, 2),)),
        Op("/a/add/Add", "Add", 0, (tensor("rows of y", 2, 2), tensor("x", 4)), (tensor("z", 2, 2, dtype="int8"),)),
        Op("/fc/Gemm", "Gemm", 8, (tensor("reshaped", 4),), (tensor("out", 2),)),
    ),
    (tensor("x", 4), tensor("out", 2)),
    views={"reshaped": "z"},
)


def test_the_report_tells_what_ships_and_draws_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(op_counts, "graph", lambda *args, **rest: GRAPH)
    report = report_json.report(request(tmp_path))
    assert report.graph and report.graph.variant == report.subject
    assert [op.reads for op in report.graph.ops] == [[3], [0, 3], [1]]  # the last across a reshape
    assert report.graph.inputs == ["x"] and [op.dtype for op in report.graph.ops] == ["float32", "int8", "float32"]
    page = html.page(report)
    assert boxes(page) == 3 and "<h2>Graph</h2>" in page and "<dd><bdi>fc</bdi></dd>" in page
    again = model.of(model.to_json(report))
    assert net_graph.drawn(again) == net_graph.drawn(report) and str(net_graph.drawn(again)) in page


def test_the_report_says_why_there_is_no_graph(tmp_path: Path) -> None:
    report = report_json.report(request(tmp_path))
    assert report.graph and not report.graph.ops and report.graph.why in html.page(report)


def test_too_many_operators_are_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = Graph(GRAPH.ops * 2_000, GRAPH.ends)
    monkeypatch.setattr(op_counts, "graph", lambda *args, **rest: many)
    report = report_json.report(request(tmp_path))
    assert report.graph and report.graph.ops == [] and "6,000 operators" in report.graph.why


def test_modules_are_read_from_names() -> None:
    assert net_graph._module("/layer1/layer1.0/conv1/Conv") == "layer1.0.conv1"
    assert net_graph._module("__module.fc.1/aten::linear/MatMul") == "__module.fc.1.aten::linear"
    assert (
        net_graph._module("a.Net_net;;a.Net_net/nn.Sequential_blocks/nn.Conv2d_conv1;2")
        == "Net_net.Sequential_blocks.Conv2d_conv1"
    )
    assert net_graph._module("conv2d_3") == ""


def test_modules_that_read_each_other_and_circles_are_drawn() -> None:
    """The library never ends on a circle of folds, or of a file's operators."""
    rng = random.Random(0)
    for _ in range(20):
        shared = [
            GraphNode(f"n{i}", "Add", (f"n{rng.randrange(i)}",) if i else ("x",), rng.choice("abc")) for i in range(90)
        ]
        assert boxes(view(shared)) == 90
    circle = [GraphNode(f"n{i}", "Add", tuple(f"n{rng.randrange(20)}" for _ in range(2))) for i in range(20)]
    assert boxes(view(circle)) == 20
