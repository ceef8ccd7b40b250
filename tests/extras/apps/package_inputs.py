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

from edgecompress.core.model import SETTINGS, Artifact, TensorSpec
from edgecompress.core.settings import Preprocess
from edgecompress.data import preprocess
from edgecompress.extras.apps import shipped_sample

CLASSES, SIDE, ITEMS = 4, 8, 3
DATE = shipped_sample.DATE
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
    if declared:
        inputs = preprocess.numbers(np.stack([preprocess.geometry(item, declared) for item in raw]), declared)
    else:
        inputs = np.random.default_rng(3).normal(size=(ITEMS, 3, SIDE, SIDE)).astype(np.float32)
    said = {"name": name, "model": "pets.nets:build", "labels": list(labels), "metric": "top1", "licence": "CC0-1.0"}
    plain = {"preprocess": dataclasses.asdict(declared) if declared else None}
    shipped_sample.write(
        artifact, "onnx", {"input": inputs}, {"scores": _answers(artifact, inputs)}, {**said, **plain, **source}
    )
    if declared:
        shipped_sample.keep_raw(folder, "input", raw[0])
    return folder


def set_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """A shipped artifact's session settings."""
    artifact = Artifact.read(folder / "artifact")
    dataclasses.replace(artifact, facts={**artifact.facts, SETTINGS: dict(settings)}).write()


def null(folder: Path, name: str = "Null net", **source: Any) -> Path:
    """A folder as a deploy of a net of the runtime `null` writes it: x [1, 4] -> y [1, 3]."""
    from edgecompress.engines.null.runtimes import null as runtime

    specs = (TensorSpec("x", (1, 4)),), (TensorSpec("y", (1, 3)),)
    (folder / "artifact").mkdir(parents=True)
    runtime.write(folder / "artifact" / "model.null", runtime.NullNet(*specs, 1.5))
    artifact = Artifact(folder / "artifact", "null", *specs).write()
    inputs = np.random.default_rng(3).normal(size=(ITEMS, 4)).astype(np.float32)
    session = runtime.open(artifact, 1)
    answers = np.concatenate([np.asarray(session.run({"x": x[None]})["y"]) for x in inputs])
    said = {"name": name, "model": "nets:build", "metric": "none", **source}
    return shipped_sample.write(artifact, "null", {"x": inputs}, {"y": answers}, said)


def flip(file: Path, where: float = 0.5) -> None:
    """Changes one byte, `where` (0..1) of the file."""
    data = bytearray(file.read_bytes())
    data[int(where * (len(data) - 1))] ^= 1
    file.write_bytes(data)


def report(folder: Path, **changes: Any) -> None:
    """Changes keys of report.json."""
    file = folder / "report.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}), encoding="utf-8")


def write_report(
    folder: Path, artifact: Artifact, runtime: str, source: Mapping[str, Any], declared: Mapping[str, Any] | None
) -> None:
    """Writes deploy.json and report.json for another artifact in the folder."""
    shipped_sample.report(folder, artifact, runtime, {**source, "preprocess": declared})


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
    from edgecompress.engines.onnx.runtimes import onnx

    session = onnx.open(artifact, 1)
    found = np.concatenate([np.asarray(session.run({"image": x[None]})["scores"]) for x in inputs])
    session.close()
    return found
