"""Layers of Keras whose operators an engine lacks: LiteRT and ONNX Runtime compute them by others, and say so right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

keras = pytest.importorskip("keras")
pytest.importorskip("tensorflow")
pytest.importorskip("tf2onnx")

from edgecompress.core.errors import InputError  # noqa: E402
from edgecompress.core.model import Artifact, Context, Request  # noqa: E402
from edgecompress.engines.litert.runtimes import litert  # noqa: E402
from edgecompress.engines.onnx.runtimes import onnx  # noqa: E402
from edgecompress.engines.tensorflow.runtimes import tensorflow  # noqa: E402

kl = keras.layers
LAYERS: dict[str, tuple[tuple[int, ...], Callable[[], Any]]] = {
    "a convolution in groups": ((8, 8, 4), lambda: kl.Conv2D(6, 3, groups=2, activation="relu")),
    "the largest over three axes": ((6, 6, 6, 2), lambda: kl.MaxPooling3D(3, strides=2, padding="same")),
    "the mean over three axes": ((6, 5, 6, 2), lambda: kl.AveragePooling3D(3, strides=2, padding="same")),
    "a longer transposed convolution": ((8, 4), lambda: kl.Conv1DTranspose(3, 3, strides=2, output_padding=1)),
    "a spectrum": ((96, 1), lambda: kl.STFTSpectrogram(mode="magnitude", frame_length=16, frame_step=8, fft_length=32)),
    "a picture without aliasing": ((9, 7, 2), lambda: kl.Resizing(4, 6, antialias=True, crop_to_aspect_ratio=True)),
    "counts": ((6,), lambda: kl.CategoryEncoding(5, output_mode="count")),
    "gelu in a loop": ((7, 3), lambda: kl.SimpleRNN(4, activation="gelu")),
    "a constant without what was turned": (
        (5, 3),
        lambda: lambda x: 3 - keras.ops.relu(kl.Permute((2, 1))(x)) + 2 / (1 + kl.Permute((2, 1))(x)),
    ),
    "a state that is an output, too": ((7, 3), lambda: kl.LSTM(4, return_state=True)),
}


def read(layer: Callable[[], Any], shape: tuple[int, ...], kind: str, folder: Path) -> tuple[Any, Artifact]:
    """The net of one layer, and its file as a source."""
    keras.utils.set_random_seed(0)
    x = keras.Input(shape, name="x", dtype=kind)
    net = keras.Model(x, {f"y{i}": each for i, each in enumerate(keras.tree.flatten(layer()(x)))})
    net.save(folder / "net.keras")
    (folder / "source").mkdir()
    return net, tensorflow.read(Request({}, folder / "source", {"path": str(folder / "net.keras")}))


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_whose_operators_an_engine_lacks_is_computed_by_others(name: str, tmp_path: Path) -> None:
    shape, layer = LAYERS[name]
    kind, drawn = "int32" if name == "counts" else "float32", np.random.default_rng(0)
    net, source = read(layer, shape, kind, tmp_path)
    x = (drawn.integers(0, 5, (1, *shape)) if kind == "int32" else drawn.normal(size=(1, *shape))).astype(kind)
    for engine in (litert, onnx):
        (tmp_path / engine.FORMAT).mkdir()
        made = engine.export(Request({"model": source}, tmp_path / engine.FORMAT, {}, Context(batch=1)))
        found = engine.open(made, 1).run({"x": x})
        for end, right in net(x, training=False).items():
            np.testing.assert_allclose(found[end], right, rtol=1e-4, atol=1e-5)


def test_a_layer_that_keeps_a_table_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"integer_lookup.*' reads a lookup table"):
        read(lambda: kl.IntegerLookup(vocabulary=[1, 3]), (6,), "int32", tmp_path)
