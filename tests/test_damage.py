"""The damages of benchmarks/damage.py: each changes what it is given, in every format, and nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import prove
import pytest

from edgecompress.core.model import Artifact

plants = prove.benchmark("damage_plants")


def weights() -> list[np.ndarray]:
    random = np.random.default_rng(3)
    shapes = [(8, 3, 3, 3), (1, 3, 3, 16), (12, 12), (8,), (16,), (4,)]
    arrays = [random.normal(size=shape).astype(np.float32) for shape in shapes]
    arrays[-1][:] = 1, 1, 2, 2  # how much a picture grows: no weight
    return arrays


def test_there_are_twenty() -> None:
    assert len(set(plants.PLANTS)) == len(plants.PLANTS) == 20


@pytest.mark.parametrize("name", plants.IN_FILE)
def test_a_damage_of_weights_changes_them_and_leaves_sizes_alone(name: str) -> None:
    changed = 0
    for seed in range(20):
        before, after = weights(), weights()
        plants.IN_FILE[name](np.random.default_rng(seed), after)
        assert all(np.isfinite(a).all() and a.shape == b.shape for a, b in zip(after, before, strict=True))
        assert (after[-1] == before[-1]).all()
        changed += any((a != b).any() for a, b in zip(after, before, strict=True))
    assert changed >= 15  # two channels may be swapped with themselves


@pytest.mark.parametrize("name", plants.IN_INPUT)
@pytest.mark.parametrize("shape", [(9, 3, 8, 8), (9, 10)])
def test_a_damage_of_inputs_keeps_their_form(name: str, shape: tuple[int, ...]) -> None:
    random = np.random.default_rng(0)
    for x in (random.normal(size=shape).astype(np.float32), random.integers(0, 20, shape)):
        y = plants.IN_INPUT[name](np.random.default_rng(1), x)
        assert (y.shape, y.dtype) == (x.shape, x.dtype) and (y != x).any()
        assert x.dtype.kind == "f" or 0 <= y.min() <= y.max() < 20


@pytest.mark.parametrize("name", plants.IN_OUTPUT)
def test_a_damage_of_outputs_keeps_their_form(name: str) -> None:
    outputs = {"y": np.random.default_rng(0).normal(size=(400, 5)).astype(np.float32)}
    given = outputs["y"].copy()
    changed = plants.IN_OUTPUT[name](np.random.default_rng(1), outputs)["y"]
    assert (changed.shape, changed.dtype) == (given.shape, given.dtype)
    assert (changed != given).any() and (outputs["y"] == given).all()


@pytest.mark.slow
def test_the_constants_of_an_onnx_file_are_changed_in_the_file(tmp_path: Path) -> None:
    import onnx

    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph = onnx.helper.make_graph([], "g", [], [], [onnx.numpy_helper.from_array(values, "w")])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "model.onnx")
    model = Artifact(tmp_path, "onnx")
    with plants.constants(model) as arrays:
        arrays[0] *= 2
    with plants.constants(model) as arrays:
        assert (arrays[0] == 2 * values).all()
