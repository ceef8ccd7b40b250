"""A shipped folder made by hand in a second: what the tests of packages pack. Nothing is deployed.

`shipped(folder)`: a classifier of images as ONNX, with [preprocess], raw golden and labels; `null(folder)`: no library
at all. Whatever a test wants otherwise it gives by name, or changes in the folder's files.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress import tensors
from edgecompress.model import Artifact, Dim, Measured, TensorSpec
from edgecompress.settings import Preprocess
from edgecompress.stages import preprocess

CLASSES, SIDE, ITEMS = 4, 8, 3
DATE = "2026-11-22T03:00:40Z"
LABELS = ("cat", "dog", "fox", "owl")
PREPROCESS = Preprocess(
    resize=9, crop=SIDE, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), layout="NCHW"
)


def shipped(
    folder: Path,
    name: str = "Small pets",
    labels: Sequence[str] = LABELS,
    declared: Preprocess | None = PREPROCESS,
    **source: Any,
) -> Path:
    """A folder as a deploy of a small ONNX net writes it: image [1, 3, 8, 8] -> scores [1, 4]."""
    image = TensorSpec("image", (1, 3, SIDE, SIDE), layout="NCHW" if declared else "")
    (folder / "artifact").mkdir(parents=True)
    _net(folder / "artifact" / "model.onnx")
    scores = TensorSpec("scores", (1, CLASSES))
    artifact = Artifact(
        folder / "artifact", "onnx", (image,), (scores,), {"calibrator": "minmax", "weight_bits": 8}
    ).write()
    raw = np.random.default_rng(7).integers(0, 256, (ITEMS, 12, 10, 3)).astype(np.uint8)
    taken = (
        preprocess.numbers(np.stack([preprocess.geometry(item, declared) for item in raw]), declared)
        if declared
        else None
    )
    inputs = np.random.default_rng(3).normal(size=(ITEMS, 3, SIDE, SIDE)).astype(np.float32) if taken is None else taken
    answers = _answers(artifact, inputs)
    _write_around(folder, artifact, {"input": inputs}, answers)
    if declared:
        _write_raw(folder / "excerpt", raw[0])
    said = {"name": name, "model": "pets.nets:build", "labels": list(labels), "metric": "top1", "licence": "CC0-1.0"}
    write_report(folder, artifact, "onnx", {**said, **source}, dataclasses.asdict(declared) if declared else None)
    return folder


def null(folder: Path, name: str = "Null net", **source: Any) -> Path:
    """A folder as a deploy of a net of the runtime `null` writes it: x [1, 4] -> y [1, 3]."""
    from edgecompress.runtimes import null as runtime

    specs = (TensorSpec("x", (1, 4)),), (TensorSpec("y", (1, 3)),)
    (folder / "artifact").mkdir(parents=True)
    runtime.write(folder / "artifact" / "model.null", runtime.Net(*specs, 1.5))
    artifact = Artifact(folder / "artifact", "null", *specs).write()
    inputs = np.random.default_rng(3).normal(size=(ITEMS, 4)).astype(np.float32)
    session = runtime.open(artifact, 1)
    answers = np.concatenate([np.asarray(session.run({"x": x[None]})["y"]) for x in inputs])
    _write_around(folder, artifact, {"x": inputs}, answers)
    said = {"name": name, "model": "nets:build", "labels": [], "metric": "none", "licence": ""}
    write_report(folder, artifact, "null", {**said, **source}, None)
    return folder


def report(folder: Path, **changes: Any) -> None:
    """Changes keys of report.json."""
    file = folder / "report.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}), encoding="utf-8")


# --------------------------------------------------------------------------- the parts


def _net(file: Path) -> None:
    """A convolution, a pool and a product, of fixed weights."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    seeded = np.random.default_rng(0)
    weights = {"w1": seeded.normal(size=(8, 3, 3, 3)) / 5, "w2": seeded.normal(size=(8, CLASSES))}
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("GlobalAveragePool", ["b"], ["c"], "pool"),
        helper.make_node("Flatten", ["c"], ["d"], "flatten"),
        helper.make_node("MatMul", ["d", "w2"], ["scores"], "product"),
    ]
    ends = [("image", (1, 3, SIDE, SIDE)), ("scores", (1, CLASSES))]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in ends]
    constants = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(model, file)


def _answers(artifact: Artifact, inputs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from edgecompress.runtimes import onnx

    session = onnx.open(artifact, 1)
    found = np.concatenate([np.asarray(session.run({"image": x[None]})["scores"]) for x in inputs])
    session.close()
    return found


def _write_around(
    folder: Path, artifact: Artifact, inputs: Mapping[str, np.ndarray[Any, Any]], answers: np.ndarray[Any, Any]
) -> None:
    """excerpt and verdict: the test items, what the source answered (the same here), what the artifact did."""
    output = artifact.outputs[0]
    batch = Dim("batch", 1, ITEMS)
    specs = tuple(
        TensorSpec(n, (batch, *a.shape[1:]), str(a.dtype), artifact.inputs[0].layout) for n, a in inputs.items()
    )
    ends = (TensorSpec(output.name, (batch, *output.concrete()[1:])),)
    tensors.write_split(folder / "excerpt" / "test", inputs)
    tensors.write_split(folder / "excerpt" / "golden", {output.name: answers})
    Artifact(folder / "excerpt", "excerpt", specs, ends, {"splits": {"test": ITEMS}}).write()
    tensors.write_split(folder / "verdict" / "answers", {output.name: answers})
    Artifact(folder / "verdict", "verdict", facts={"n": ITEMS}).write()


def _write_raw(excerpt: Path, item: np.ndarray[Any, Any]) -> None:
    tensors.write_split(excerpt / "raw", {"input": item})
    Artifact.read(excerpt).write()  # sealed again


def write_report(
    folder: Path, artifact: Artifact, runtime: str, source: Mapping[str, Any], declared: Mapping[str, Any] | None
) -> None:
    """deploy.json, and of a report.json what packages read."""
    metric = {
        "name": "top1", "unit": "fraction", "before": 1.0, "after": 1.0, "n": ITEMS, "low": -0.1, "high": 0.1,
        "items_lost": 0, "items_gained": 0, "net_lost": 0,
    }
    numbers = {
        "latency": Measured("latency", None, "ms", "unavailable", reason="no round measured it"),
        "size": Measured("size", float(artifact.size_bytes), "bytes", n=1, source="the artifact's files"),
    }
    variant = {
        "name": "int8",
        "runtime": runtime,
        "artifact": {"kind": artifact.kind, "sha256": artifact.sha256},
        "verify": {"n": ITEMS, "metric": metric if source["metric"] == "top1" else None},
        "numbers": {name: dataclasses.asdict(number) for name, number in numbers.items()},
    }
    recipe = {"name": "int8", "runtime": "", "compress": [{"use": "int8", "calibrator": "minmax"}]}
    told = {
        "schema": "edgecompress/stages/report/1",
        "title": f"{source['name']} on x86",
        "date": DATE,
        "source": {"description": "", **source},
        "target": {"name": "x86", "runtime": runtime, "variant": [recipe], "package": "tar"},
        "device": {"name": "host"},
        "data": {"label_names": source["labels"], "labelled": source["metric"] == "top1", "preprocess": declared},
        "versions": {"edgecompress": "0.1.0", "onnxruntime": "1.31.1", "numpy": "2.3.5"},
        "variants": [variant],
    }
    (folder / "report.json").write_text(json.dumps(told), encoding="utf-8")
    said = {"name": source["name"], "model": source["model"]}
    origin = {"variant": "int8", "runtime": runtime, "model": source["model"], "target": "x86", "source": said}
    (folder / "deploy.json").write_text(json.dumps(origin), encoding="utf-8")
