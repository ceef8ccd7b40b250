"""A small convolutional net as an ONNX file, and images for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def conv_net(file: Path, weight: float = 0.1, image: str = "image", scores: str = "scores") -> None:
    """A small convolutional net, image [batch, 3, 8, 8] -> scores [batch, 10], written with onnx alone."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    seeded = np.random.default_rng(0)
    weights = {
        "w": seeded.normal(size=(8, 3, 3, 3)).astype("float32"),
        "v": seeded.normal(size=(8, 10)).astype("float32") * weight,
    }
    nodes = [
        helper.make_node("Conv", [image, "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], [scores]),
    ]
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *shape])
        for name, shape in ((image, [3, 8, 8]), (scores, [10]))
    ]
    constants = [numpy_helper.from_array(w, name) for name, w in weights.items()]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), file)


def images(file: Path, classes: int = 10, size: int = 8, image: str = "image") -> None:
    """An .npz with three splits of random images."""
    seeded = np.random.default_rng(1)
    arrays = {}
    for split in ("calibrate", "select", "test"):
        arrays[f"{split}.{image}"] = seeded.normal(size=(16, 3, size, size)).astype("float32")
        arrays[f"{split}.labels"] = seeded.integers(0, classes, size=16)
    np.savez(file, **arrays)
