"""A detector made by hand: it finds red, green and blue squares. Nothing is deployed, nothing is learned.

image [1, 3, 32, 32] of a letterboxed picture -> boxes [1, 16, 4], the cells of 8 x 8 pixels as shares, and scores
[1, 16, 3]: how red, green and blue a cell is; grey is none of them.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress.core.model import Artifact, TensorSpec
from edgecompress.core.settings import Detect, Preprocess
from edgecompress.data import detections, preprocess
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
    """A folder as a deploy writes it, with the verdict that tells how boxes are read."""
    (folder / "artifact").mkdir(parents=True)
    _net(folder / "artifact" / "model.onnx")
    image = TensorSpec("image", (1, 3, SIDE, SIDE), layout="NCHW")
    outputs = TensorSpec("boxes", (1, 16, 4)), TensorSpec("scores", (1, 16, 3))
    artifact = Artifact(folder / "artifact", "onnx", (image,), outputs).write()
    raw = np.stack([picture(), picture({1: (0, 8, 16, 24)})])
    inputs = preprocess.numbers(np.stack([preprocess.geometry(item, DECLARED) for item in raw]), DECLARED)
    answers = _answers(artifact, inputs)
    source: dict[str, Any] = {"name": "Squares", "model": "squares.nets:build", "labels": list(labels)}
    source |= {"metric": "none", "licence": "CC0-1.0", "preprocess": dataclasses.asdict(DECLARED)}
    shipped_sample.write(artifact, "onnx", {"input": inputs}, answers, source)
    shipped_sample.keep_raw(folder, "input", raw[0])
    layout = detections.layout_of(answers, Detect("boxes", "scores", "yxyx"))
    assert layout and layout.unit == "shares" and layout.kind == "shares"
    told = layout.told({name: name for name in answers})
    verdict = Artifact.read(folder / "verdict")
    dataclasses.replace(verdict, facts={**verdict.facts, "detector": told}).write()
    return folder


def _net(file: Path) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    y, x = np.mgrid[: SIDE // CELL, : SIDE // CELL].reshape(2, -1) * (CELL / SIDE)
    cells = np.stack([y, x, y + CELL / SIDE, x + CELL / SIDE], -1)[None]
    weights = {
        "colours": (1.5 * np.eye(3) - 0.5)[:, :, None, None], "cells": cells, "none": np.zeros(()),
        "low": np.zeros(()), "high": np.ones(()), "rows": np.array([1, 3, 16]), "mean": np.array([1, 2]),
    }  # fmt: skip
    nodes = [
        helper.make_node("AveragePool", ["image"], ["a"], kernel_shape=[CELL, CELL], strides=[CELL, CELL]),
        helper.make_node("Conv", ["a", "colours"], ["b"]),
        helper.make_node("Clip", ["b", "low", "high"], ["c"]),
        helper.make_node("Reshape", ["c", "rows"], ["d"]),
        helper.make_node("Transpose", ["d"], ["scores"], perm=[0, 2, 1]),
        helper.make_node("ReduceMean", ["d", "mean"], ["e"], keepdims=1, noop_with_empty_axes=0),
        helper.make_node("Mul", ["e", "none"], ["f"]),
        helper.make_node("Add", ["cells", "f"], ["boxes"]),
    ]
    ends = [("image", (1, 3, SIDE, SIDE)), ("boxes", (1, 16, 4)), ("scores", (1, 16, 3))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    whole = {"rows", "mean"}
    constants = [
        numpy_helper.from_array(w.astype(np.int64 if n in whole else np.float32), n) for n, w in weights.items()
    ]
    graph = helper.make_graph(nodes, "squares", values[:1], values[1:], constants)
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), file)


def _answers(artifact: Artifact, inputs: Array) -> dict[str, Array]:
    from edgecompress.engines.onnx.runtimes import onnx

    session = onnx.open(artifact, 1)
    each = [session.run({"image": item[None]}) for item in inputs]
    session.close()
    return {name: np.concatenate([np.asarray(one[name]) for one in each]) for name in ("boxes", "scores")}
