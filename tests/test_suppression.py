"""An ONNX file with non-maximum suppression inside: the net ends before it, and finds what the file finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgecompress
from edgecompress.cli.main import main
from edgecompress.core.model import Artifact
from edgecompress.core.settings import Detect
from edgecompress.data import detections
from edgecompress.engines.onnx import suppression

pytestmark = pytest.mark.slow
PLACES, CLASSES, ITEMS = 40, 3, 24
Array = np.ndarray[Any, np.dtype[Any]]


def net(file: Path, middle: int = 0, score: float | None = 0.55, producer: str = "", twice: bool = False) -> Path:
    """image [1, 1, 8, 20] -> "found" [things, 6]: a place of the picture tells a box, others what it scores."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:5, :8].reshape(2, -1) * 30.0
    low, size = np.stack([x, y], -1), random.uniform(20, 60, (PLACES, 2))
    boxes = np.concatenate([low + size / 2, size] if middle else [low, low + size], -1)[None]
    weights: dict[str, Any] = {
        "cells": boxes.astype(np.float32), "w": random.normal(0, 3, (160, PLACES * CLASSES)).astype(np.float32),
        "most": np.array(20), "most_sure": np.array(0.99, np.float32), "iou": np.array(0.6, np.float32),
        "rows": np.array([1, CLASSES, PLACES]), "flat": np.array([1, 160]), "none": np.array(0.0, np.float32),
        "two": np.array([2]), "axes": np.array([1]), "begin": np.array([0]), "last": np.array([3]),
    }  # fmt: skip
    limits = ["most", "iou"]
    if score is not None:
        weights["least"] = np.array(score, np.float32)
        limits.append("least")
    nodes = [
        ("Reshape", ["image", "flat"], ["x"], {}),
        ("MatMul", ["x", "w"], ["h"], {}),
        ("Reshape", ["h", "rows"], ["r"], {}),
        ("Softmax", ["r"], ["s"], {"axis": 1}),
        ("Mul", ["s", "most_sure"], ["p"], {}),  # each for itself, no distribution; one class at most is found
        ("ReduceMean", ["x"], ["mean"], {"keepdims": 0}),
        ("Mul", ["mean", "none"], ["zero"], {}),
        ("Add", ["cells", "zero"], ["b"], {}),
        ("NonMaxSuppression", ["b", "p", *limits], ["chosen"], {"center_point_box": middle}),
        ("Slice", ["chosen", "two", "last", "axes"], ["place"], {}),
        ("Squeeze", ["place", "axes"], ["at"], {}),
        ("Gather", ["b", "at"], ["rows_of"], {"axis": 1}),
        ("Squeeze", ["rows_of", "begin"], ["found"], {}),
    ]
    if twice:
        nodes.append(("NonMaxSuppression", ["b", "p", *limits], ["again"], {}))
    made = [helper.make_node(op, ins, outs, **more) for op, ins, outs, more in nodes]
    given = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 1, 8, 20))
    gives = [helper.make_tensor_value_info("found", TensorProto.FLOAT, ("things", 4))]
    gives.append(helper.make_tensor_value_info("chosen", TensorProto.INT64, ("things", 3)))
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(made, "net", [given], gives, constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name=producer)
    onnx.save_model(proto, file)
    return file


def answers(proto: onnx.ModelProto, image: Array) -> dict[str, Array]:
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([v.name for v in session.get_outputs()], session.run(None, {"image": image}), strict=True))


def images() -> Array:
    return np.random.default_rng(1).normal(0, 0.5, (ITEMS, 1, 8, 20)).astype(np.float32)


@pytest.mark.parametrize(("middle", "producer", "form"), [(0, "", "yxyx"), (0, "pytorch", "xyxy"), (1, "x", "cxcywh")])
def test_what_is_cut_finds_what_the_file_found(tmp_path: Path, middle: int, producer: str, form: str) -> None:
    whole = onnx.load_model(net(tmp_path / "net.onnx", middle, producer=producer))
    proto = onnx.load_model(tmp_path / "net.onnx")
    told, said = suppression.cut(proto)
    onnx.checker.check_model(proto, full_check=True)
    assert told == {
        "boxes": "boxes",
        "scores": "scores",
        "format": form,
        "overlap": 0.6,
        "score": 0.55,
    }
    assert [v.name for v in proto.graph.output] == ["boxes", "scores"] and "in place of found, chosen" in said[0]
    assert "NonMaxSuppression" not in {node.op_type for node in proto.graph.node}
    for image in images():
        before, after = answers(whole, image[None]), answers(proto, image[None])
        layout = detections.layout_of(after, Detect(**told))  # type: ignore[arg-type]
        assert layout is not None
        (found,) = layout.found(after, slice(0, 1), layout.least)
        chosen = {(int(place), int(kind)) for _, kind, place in before["chosen"]}
        ours = {
            (int(np.abs(after["boxes"][0] - row).sum(-1).argmin()), int(kind))
            for row, kind in zip(_written(found.corners, form), found.classes, strict=True)
        }
        assert ours == chosen and len(ours) > 5


def _written(corners: Array, form: str) -> Array:
    size = corners[:, 2:] - corners[:, :2]
    return np.concatenate([corners[:, :2] + size / 2, size], -1) if form == "cxcywh" else corners


def test_a_limit_that_is_none_is_left_to_the_default(tmp_path: Path) -> None:
    told, _ = suppression.cut(onnx.load_model(net(tmp_path / "net.onnx", score=None)))
    assert told is not None and "score" not in told and Detect(**told).score == 0.5  # type: ignore[arg-type]


def test_a_file_with_two_of_them_stays_as_it_is(tmp_path: Path) -> None:
    proto = onnx.load_model(net(tmp_path / "net.onnx", twice=True))
    before = proto.SerializeToString()
    assert suppression.cut(proto) == (None, []) and proto.SerializeToString() == before


def test_such_a_file_ships_and_its_package_tells_boxes(tmp_path: Path) -> None:
    np.savez(tmp_path / "data.npz", image=images().repeat(4, 0))
    options = edgecompress.Options(store=tmp_path / "store", out=tmp_path / "dist")
    done = edgecompress.deploy(
        net(tmp_path / "net.onnx", producer="pytorch"), data=str(tmp_path / "data.npz"), target="x86", only=["fp32"],
        profile="quick", options=options,
    )  # fmt: skip
    report = done.read_report()
    assert done.exit_code == 0 and any("net ends before its NonMax" in note["text"] for note in report["notes"])
    detector = report["detections"]["read"]
    assert (detector["format"], detector["unit"], detector["by"]) == ("xyxy", "pixels", "by the graph of the source")
    verdict = Artifact.read(tmp_path / "dist" / "verdict")
    assert verdict.facts["detector"]["scores"]["axis"] == 1  # [n, classes, k], as the operator takes them
    assert "What it finds" in (tmp_path / "dist" / "report.md").read_text()


@pytest.mark.parametrize("joined", [False, True])
def test_init_proposes_what_to_declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, joined: bool) -> None:
    monkeypatch.chdir(tmp_path)
    if joined:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 7, 100))
        gives = helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 7, 100))
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [given], [gives])
        opset = [helper.make_opsetid("", 17)]
        onnx.save_model(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "net.onnx")
    else:
        net(tmp_path / "net.onnx")
    assert main(["init", "--source", "net.onnx"]) == 0
    boxes, scores, form = ("y", "y", "cxcywh") if joined else ("boxes", "scores", "xyxy")
    line = f'# detect = {{ boxes = "{boxes}", scores = "{scores}", format = "{form}" }}'
    assert line in Path("net.toml").read_text(encoding="utf-8").splitlines()
