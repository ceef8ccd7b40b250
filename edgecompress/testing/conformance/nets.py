"""Small nets of each kind, and random data for them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import config, registry
from edgecompress.core.model import CARD, Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.testing.conformance.common import stage

if TYPE_CHECKING:
    import torch

ITEMS = 8  # in each split
SPLITS = ("calibrate", "select", "test")


def net(kind: str, folder: Path) -> Artifact:
    """A small net of a kind: built here, exported by the runtime whose format it is, or made by a technique alone."""
    out = folder / f"net-{kind}"
    if out.exists():
        return Artifact.read(out)
    makers: dict[str, Callable[[Path], Artifact]] = {
        "null": _null_net,
        "onnx": _onnx_net,
        "module": _module_net,
        "program": lambda out: _program_net(folder, out),
        "savedmodel": _savedmodel_net,
    }
    if kind in makers:
        out.mkdir(parents=True)
        return makers[kind](out)
    runtimes = [(m, m.export) for _, m in registry.every("runtimes") if kind == m.FORMAT and m.READS]
    techniques = [(m, m.apply) for _, m in registry.every("techniques") if kind == m.WRITES]
    assert runtimes or techniques, f"the conformance suite has no net of kind '{kind}', and nothing makes one"
    maker, make = (*runtimes, *techniques)[0]
    options = config.build(maker.Options, {}, kind) if hasattr(maker, "Options") else {}
    model = net(maker.READS[0], folder)
    more = {"samples": samples(model, folder)} if "samples" in getattr(maker, "NEEDS", ()) else {}
    return stage(make, {"model": model, **more}, out, options)


def _null_net(out: Path) -> Artifact:
    batch = Dim("batch", 1, 64)
    inputs, outputs = (TensorSpec("x", (batch, 4)),), (TensorSpec("y", (batch, 3)),)
    specs = {"inputs": [dataclasses.asdict(s) for s in inputs], "outputs": [dataclasses.asdict(s) for s in outputs]}
    (out / "model.null").write_text(json.dumps({**specs, "scale": 1.234}), encoding="utf-8")
    return Artifact(out, "null", inputs, outputs).write()


def _onnx_net(out: Path) -> Artifact:
    """Two convolutions, a shortcut, a pool and a matrix product: image [1, 3, 8, 8] -> scores [1, 16]."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    seeded = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 16)}
    weights = {n: (seeded.normal(size=s) / math.prod(s[1:]) ** 0.5).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["b", "c"], ["d"], "add"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "pool"),
        helper.make_node("Flatten", ["e"], ["f"], "flatten"),
        helper.make_node("MatMul", ["f", "w3"], ["scores"], "product"),
    ]
    ends = [TensorSpec("image", (1, 3, 8, 8)), TensorSpec("scores", (1, 16))]
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for s in ends]
    constants = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(proto, out / "model.onnx")
    return Artifact(out, "onnx", tuple(ends[:1]), tuple(ends[1:])).write()


def torch_net() -> torch.nn.Module:
    """The factory of the torch net: image [n, 3, 8, 8] -> scores [n, 16]."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1)]
    return nn.Sequential(*layers, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 16)).eval()


def image_samples(folder: Path) -> Artifact:
    image = (TensorSpec("input", (Dim("batch", 1, ITEMS), 3, 8, 8)),)
    return samples(Artifact(folder, "module", image), folder)


def _module_net(out: Path) -> Artifact:
    load, _ = registry.call("stages.trace:load")
    inputs = {"samples": image_samples(out.parent)}
    return load.load(Request(inputs, out, {"source": {"model": f"{__name__}:torch_net"}}))  # type: ignore[no-any-return]


def _program_net(folder: Path, out: Path) -> Artifact:
    trace, _ = registry.call("stages.trace:run")
    inputs = {"model": net("module", folder), "samples": image_samples(folder)}
    return trace.run(Request(inputs, out, {"dynamic": {}}))  # type: ignore[no-any-return]


def _savedmodel_net(out: Path) -> Artifact:
    """The same in Keras: image [n, 8, 8, 3] -> scores [n, 16], read from a file as a user's is."""
    import keras

    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 3), name="image")
    features = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(image)
    features = keras.layers.BatchNormalization()(keras.layers.Conv2D(16, 3, padding="same")(features))
    pooled = keras.layers.GlobalAveragePooling2D()(keras.layers.ReLU()(features))
    file = out.parent / "net.keras"
    keras.Model(image, {"scores": keras.layers.Dense(16)(pooled)}).save(file)
    return registry.load("runtimes", "tensorflow").read(Request({}, out, {"path": str(file)}))  # type: ignore[no-any-return]


def samples(model: Artifact, folder: Path) -> Artifact:
    """Random data for a model's inputs, in every split: normal numbers, or whole ones of 0 and 1."""
    import numpy as np

    out = folder / f"samples-{model.kind}"
    if (out / CARD).exists():
        return Artifact.read(out)
    seeded = np.random.default_rng(1)
    for split in SPLITS:
        arrays = {}
        for spec in model.inputs:
            shape = (ITEMS, *spec.concrete()[1:])
            drawn = seeded.normal(size=shape) if spec.dtype.startswith("float") else seeded.integers(0, 2, shape)
            arrays[spec.name] = drawn.astype(spec.dtype)
        tensors.write_split(out / split, arrays)
    specs = tuple(dataclasses.replace(s, shape=(Dim("batch", 1, ITEMS), *s.concrete()[1:])) for s in model.inputs)
    facts = {"splits": dict.fromkeys(SPLITS, ITEMS), "random": True}
    return Artifact(out, "samples", specs, (), facts).write()
