"""A factory of a Keras net on the torch backend: it becomes layers of torch, which are pruned and exported."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import edgecompress
from edgecompress.core.errors import InputError
from edgecompress.formats import torch_module
from edgecompress.stages import keras_net

NET = """
import os

os.environ["KERAS_BACKEND"] = "torch"
import keras
from keras import layers


def build():
    keras.utils.set_random_seed(0)
    facts, image = keras.Input((4,), name="facts"), keras.Input((8, 8, 3), name="image")
    x = layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same", use_bias=False)(image))
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(8, 3, 2, padding="same")(layers.ReLU()(x)))
    return keras.Model([image, facts], layers.Dense(5)(layers.Concatenate()([x, facts])))
"""
TARGET = """
description = "pruned"
runtime = "litert"
[[variant]]
name = "pruned"
compress = [{ use = "prune_channels", ratio = 0.5, align = 1 }]
"""


@pytest.mark.slow
@pytest.mark.prove
def test_a_keras_net_on_torch_has_layers_that_are_pruned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(NET)
    Path("t.toml").write_text(TARGET)
    rng = np.random.default_rng(0)
    shapes = {"facts": (40, 4), "image": (40, 8, 8, 3)}
    np.savez("data.npz", **{name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()})
    options = edgecompress.Options(store="store", until="pruned/prune_channels")
    result = edgecompress.deploy("nets:build", "t.toml", data="data.npz", metric="none", options=options)
    assert isinstance(result, edgecompress.Result), result
    source, pruned = (result.outcomes[stage] for stage in ("source", "pruned/prune_channels"))
    assert source.artifact is not None and [spec.name for spec in source.artifact.inputs] == ["image", "facts"]
    assert json.loads((source.artifact.path / torch_module.MODULE).read_text())["factory"] == torch_module.GRAPH
    assert pruned.facts["macs"]["after"] < 0.7 * pruned.facts["macs"]["before"]


def test_it_is_called_by_the_names_of_its_inputs() -> None:
    ends = [SimpleNamespace(name="one"), SimpleNamespace(name="two")]

    class Net(torch.nn.Module):
        inputs = ends

        def forward(self, given: list[torch.Tensor], training: bool) -> torch.Tensor:
            assert not training, "layers of augmentation train unless they are told otherwise"
            return given[0] - given[1]

    called = keras_net.called(Net(), "nets:build")
    assert list(inspect.signature(called.forward).parameters) == ["one", "two"]
    assert called(two=torch.tensor(1.0), one=torch.tensor(3.0)) == 2


@pytest.mark.parametrize("inputs", [None, [], [SimpleNamespace(name="a b")]])
def test_one_without_named_inputs_is_told_how_it_is_made(inputs: object) -> None:
    with pytest.raises(InputError, match=r"nets:build: its Keras model has no named inputs; make it of keras\.Input"):
        keras_net.called(SimpleNamespace(inputs=inputs), "nets:build")
