"""The ten nets of benchmarks/ptq.py, all with real data: those of the examples, and a Keras net trained here once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
sys.path.append(str(EXAMPLES))
import shared_data  # noqa: E402


@dataclass(frozen=True)
class Net:
    """A source as `edgecompress.core.catalog.source` takes it, and the folder of its modules."""

    folder: Path
    model: str | None = "source.toml"
    flags: Mapping[str, Any] = field(default_factory=dict)


NETS = {
    "resnet20": Net(EXAMPLES / "resnet20", flags={"samples": None}),
    "resnet32": Net(EXAMPLES / "resnet20", flags={"samples": None, "model": "net:build32"}),
    "mobilenetv2": Net(EXAMPLES / "mobilenetv2"),
    "squeezenet": Net(EXAMPLES / "squeezenet"),
    "fsdd": Net(EXAMPLES / "fsdd"),
    "textgenrnn": Net(EXAMPLES / "textgenrnn", flags={"samples": 1000}),  # of 70,000 positions that overlap
    "digits": Net(EXAMPLES, None),
    "depthwise": Net(EXAMPLES / "depthwise", None, {"model": "net:sound", "data": "net:data"}),
    "keras-digits": Net(EXAMPLES / "keras"),
    "keras-fashion": Net(Path(__file__).parent, "fashion.keras", {"data": "ptq_nets:fashion"}),
}


def fashion(split: str) -> Iterator[tuple[np.ndarray, int]] | None:
    """(float32 [28, 28, 1] in 0..1, class) of Fashion-MNIST: 1,000 images that also train, and the test."""
    parts = {"train": ("train", slice(0, None)), "calibrate": ("train", slice(0, 1000)), "test": ("test", slice(None))}
    if split not in parts:
        return None
    part, chosen = parts[split]
    with np.load(shared_data.find("data/fashion_mnist_dev.npz"), allow_pickle=False) as file:
        images, labels = file[f"{part}_x"][chosen], file[f"{part}_y"][chosen]
    return zip((images[..., None] / 255).astype(np.float32), labels.tolist(), strict=True)


def train_fashion(file: Path) -> None:
    """Two stages of convolution, batch norm, ReLU and pool, as Keras' tutorials have them, in `file`; seeded."""
    if file.exists():
        return
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import keras

    keras.utils.set_random_seed(0)
    layers = keras.layers
    image = x = keras.Input((28, 28, 1), name="image")
    for width in (32, 64):
        x = layers.Conv2D(width, 3, padding="same", use_bias=False)(x)
        x = layers.MaxPooling2D()(layers.ReLU()(layers.BatchNormalization()(x)))
    x = layers.Dense(64, activation="relu")(layers.Flatten()(x))
    net = keras.Model(image, layers.Dense(10, activation="softmax", name="probabilities")(x))
    net.compile("adam", "sparse_categorical_crossentropy")
    images, labels = zip(*fashion("train") or (), strict=True)
    net.fit(np.stack(images), np.array(labels), epochs=3, batch_size=64, verbose=0)
    file.parent.mkdir(parents=True, exist_ok=True)
    net.save(file)
