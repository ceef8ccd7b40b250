"""A detector made by hand: it finds red, green and blue squares. Nothing is deployed, nothing is learned.

image [1, 3, 32, 32] of a letterboxed picture -> boxes [1, 16, 4], the cells of 8 x 8 pixels as shares, scores
[1, 16, 3]: how red, green and blue a cell is; grey is none of them, and points [1, 16, 6]: two corners of the cell, as
y, x and 0.5. The same as a segmentation net: scores [1, 4, 4, 4] of cells, the first that of grey.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress.core.model import Artifact, TensorSpec
from edgecompress.core.settings import Detect, Preprocess
from edgecompress.data import detections, preprocess, segments
from edgecompress.extras.apps import shipped_sample

Array = np.ndarray[Any, np.dtype[Any]]
SIDE, CELL, LABELS = 32, 8, ("red", "green", "blue")
DECLARED = Preprocess(resize=SIDE, fit="letterbox", scale=1 / 255, layout="NCHW")
HEIGHT, WIDTH = 48, 64  # of a picture: two of its pixels are one of the input, with bars of 4 pixels above and below
# By class, in pixels of the picture: each is a cell of the input.
THINGS = {0: (16, 8, 32, 24), 2: (48, 24, 64, 40)}


def picture(things: dict[int, tuple[int, int, int, int]] = THINGS) -> Array:
    """[48, 64, 3], grey, with squares in the colours of their classes."""
    found = np.full((HEIGHT, WIDTH, 3), 128, np.uint8)
    for kind, (x1, y1, x2, y2) in things.items():
        found[y1:y2, x1:x2] = np.eye(3, dtype=np.uint8)[kind] * 255
    return found


def shipped(folder: Path, labels: tuple[str, ...] = LABELS) -> Path:
    """A folder as a deploy writes it, with the verdict that tells how boxes and points are read."""
    ends = {"boxes": (1, 16, 4), "scores": (1, 16, 3), "points": (1, 16, 6)}
    answers = _shipped(folder, *_detector(), ends, "none", labels)
    layout = detections.layout_of(answers, Detect("boxes", "scores", "yxyx", points="points", keypoints=2, point="xyc"))
    assert layout and layout.unit == "shares" and layout.kind == "shares"
    _judged(folder, {"detector": layout.told({name: name for name in answers})})
    return folder


def segmenter(folder: Path, labels: tuple[str, ...] = ("grey", *LABELS)) -> Path:
    """The same of the segmentation net."""
    weights = {"colours": _colours(), "grey": np.full((1, 1, 1, 1), 0.5), "pads": np.array([0, 1, 0, 0, 0, 0, 0, 0])}
    nodes = [*POOLED, ("Sub", ["b", "grey"], ["c"]), ("Pad", ["c", "pads"], ["scores"])]  # grey: 0 of each cell
    answers = _shipped(folder, nodes, weights, {"scores": (1, 4, 4, 4)}, "miou", labels)
    found = segments.find(answers, (SIDE, SIDE))
    assert found
    _judged(folder, {"segments": dataclasses.asdict(found)})
    return folder


def _judged(folder: Path, facts: dict[str, Any]) -> None:
    """Writes what the verdict tells besides."""
    verdict = Artifact.read(folder / "verdict")
    dataclasses.replace(verdict, facts={**verdict.facts, **facts}).write()


Nodes = list[tuple[str, list[str], list[str]]]
POOLED: Nodes = [("AveragePool", ["image"], ["a"]), ("Conv", ["a", "colours"], ["b"])]


def _colours() -> Array:
    return np.asarray(1.5 * np.eye(3) - 0.5)[:, :, None, None]


def _detector() -> tuple[Nodes, dict[str, Array]]:
    y, x = np.mgrid[: SIDE // CELL, : SIDE // CELL].reshape(2, -1) * (CELL / SIDE)
    far, sure = CELL / SIDE, np.full_like(x, 0.5)
    cells = np.stack([y, x, y + far, x + far], -1)[None]
    corners = np.stack([y, x, sure, y + far, x + far, sure], -1)[None]
    weights = {
        "colours": _colours(), "cells": cells, "corners": corners, "none": np.zeros(()),
        "low": np.zeros(()), "high": np.ones(()), "rows": np.array([1, 3, 16]), "mean": np.array([1, 2]),
    }  # fmt: skip
    nodes: Nodes = [
        *POOLED,
        ("Clip", ["b", "low", "high"], ["c"]),
        ("Reshape", ["c", "rows"], ["d"]),
        ("Transpose", ["d"], ["scores"]),
        ("ReduceMean", ["d", "mean"], ["e"]),
        ("Mul", ["e", "none"], ["f"]),
        ("Add", ["cells", "f"], ["boxes"]),
        ("Add", ["corners", "f"], ["points"]),
    ]
    return nodes, weights


ATTRIBUTES: dict[str, dict[str, Any]] = {
    "AveragePool": {"kernel_shape": [CELL, CELL], "strides": [CELL, CELL]},
    "Transpose": {"perm": [0, 2, 1]},
    "ReduceMean": {"keepdims": 1, "noop_with_empty_axes": 0},
}


def _shipped(
    folder: Path,
    nodes: Nodes,
    weights: dict[str, Array],
    outputs: dict[str, tuple[int, ...]],
    metric: str,
    labels: tuple[str, ...],
) -> dict[str, Array]:
    """A folder as a deploy writes it; what the net answers to its test items."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    (folder / "artifact").mkdir(parents=True)
    ends = {"image": (1, 3, SIDE, SIDE), **outputs}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends.items()]
    whole = {"rows", "mean", "pads"}
    constants = [
        numpy_helper.from_array(w.astype(np.int64 if n in whole else np.float32), n) for n, w in weights.items()
    ]
    made = [helper.make_node(kind, *sides, **ATTRIBUTES.get(kind, {})) for kind, *sides in nodes]
    graph = helper.make_graph(made, "squares", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(model, folder / "artifact" / "model.onnx")
    image = TensorSpec("image", ends["image"], layout="NCHW")
    specs = tuple(TensorSpec(name, shape) for name, shape in outputs.items())
    artifact = Artifact(folder / "artifact", "onnx", (image,), specs).write()
    raw = np.stack([picture(), picture({1: (0, 8, 16, 24)})])
    inputs = preprocess.numbers(np.stack([preprocess.geometry(item, DECLARED) for item in raw]), DECLARED)
    answers = _answers(artifact, inputs)
    source: dict[str, Any] = {"name": "Squares", "model": "squares.nets:build", "labels": list(labels)}
    source |= {"metric": metric, "licence": "CC0-1.0", "preprocess": dataclasses.asdict(DECLARED)}
    shipped_sample.write(artifact, "onnx", {"input": inputs}, answers, source)
    shipped_sample.keep_raw(folder, "input", raw[0])
    return answers


def _answers(artifact: Artifact, inputs: Array) -> dict[str, Array]:
    from edgecompress.engines.onnx.runtimes import onnx

    session = onnx.open(artifact, 1)
    each = [session.run({"image": item[None]}) for item in inputs]
    session.close()
    return {name: np.concatenate([np.asarray(one[name]) for one in each]) for name in each[0]}
