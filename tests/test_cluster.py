"""Weights of few values: the values, which weights, and the files that hold them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Request
from edgecompress.core.settings import Variant
from edgecompress.formats import packed_file, stored_tensors
from edgecompress.pipeline import conversion
from edgecompress.techniques import _clustering
from edgecompress.testing.conformance import nets

LLOYD_MAX = {2: 0.3634, 16: 0.009497, 32: 0.002499}  # MSE of a normal number of variance 1: Max 1960, table I


def moved(weight: Any, values: int) -> float:
    return float(np.square(_clustering.nearest(weight, values).astype(float) - weight).mean())


@pytest.mark.parametrize("values", LLOYD_MAX)
def test_the_values_are_the_best_ones_of_normal_numbers(values: int) -> None:
    weight = np.random.default_rng(0).standard_normal(200_000)
    assert moved(weight, values) == pytest.approx(LLOYD_MAX[values], rel=0.15)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-8, 8), min_size=1, max_size=12), st.integers(2, 5))
def test_each_value_is_the_mean_of_the_numbers_nearest_to_it_and_zeros_stay(numbers: list[int], values: int) -> None:
    weight = np.array(numbers, np.float64)
    few = _clustering.nearest(weight, values)
    assert len(np.unique(few)) <= values and not few[weight == 0].any()
    centres = np.unique(few[weight != 0])
    for centre in centres:
        group = weight[(few == centre) & (weight != 0)]
        assert group.mean() == pytest.approx(centre)
        assert np.abs(group - centre).max() <= np.abs(group[:, None] - centres).min(axis=1).max() + 1e-9


def test_int8_weights_stay_whole_numbers_and_other_shapes_stay() -> None:
    weight = np.random.default_rng(0).integers(-127, 128, (8, 3, 3, 4)).astype(np.int8)
    few = _clustering.nearest(weight, 16)
    assert few.dtype == np.int8 and few.shape == weight.shape and len(np.unique(few)) <= 16


def clustered(tmp_path: Path, kind: str, name: str, **options: Any) -> tuple[Any, Any]:
    technique = registry.load("techniques", name)
    model = nets.net(kind, tmp_path)
    (tmp_path / "out").mkdir()
    return model, technique.apply(Request({"model": model}, tmp_path / "out", technique.Options(**options)))


@pytest.mark.parametrize(("kind", "name"), [("onnx", "onnx_cluster"), ("tflite", "litert_cluster")])
def test_the_file_keeps_its_size_and_packs_smaller(kind: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx" if kind == "onnx" else "litert_torch")
    before, after = clustered(tmp_path, kind, name, values=8)
    old, new = (model.files()[0].read_bytes() for model in (before, after))
    assert len(old) == len(new) and old != new
    sizes = [len(packed_file.pack(data, stored_tensors.of(model))) for data, model in ((old, before), (new, after))]
    assert sizes[1] < sizes[0] / 2
    read = stored_tensors.reader(kind)
    assert read
    for (label, was), (_, now) in zip(read(before), read(after), strict=True):
        assert was is not None and now is not None
        assert len(np.unique(now)) <= 8 if was.size >= 1024 else np.array_equal(was, now), label
    assert after.facts["clustered"] == 1 and 0 < after.facts["distance"] < 0.3


def test_int8_weights_of_a_tflite_file_are_clustered_too(tmp_path: Path) -> None:
    pytest.importorskip("litert_torch")
    technique = registry.load("techniques", "litert_int8")
    inputs = {"model": nets.net("tflite", tmp_path), "samples": nets.image_samples(tmp_path)}
    for folder in ("int8", "out"):
        (tmp_path / folder).mkdir()
    int8 = technique.apply(Request(inputs, tmp_path / "int8", technique.Options()))
    read = stored_tensors.reader("tflite")
    assert read
    shapes = {array.shape: array.dtype.name for _, array in read(int8) if array is not None}
    assert shapes[(16, 3, 3, 16)] == "int8"
    made = registry.load("techniques", "litert_cluster")
    few = made.apply(Request({"model": int8}, tmp_path / "out", made.Options(values=8)))
    found = {array.shape: len(np.unique(array)) for _, array in read(few) if array is not None}
    assert found[(16, 3, 3, 16)] <= 8 and few.facts["clustered"] == 1


def test_weights_that_are_named_stay_and_a_name_that_there_is_not_is_told(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    _, made = clustered(tmp_path, "onnx", "onnx_cluster", skip=("w2",))
    assert "no weight of that size" in made.facts["lost"]
    with pytest.raises(InputError, match="no weight 'w9'"):
        clustered(tmp_path / "again", "onnx", "onnx_cluster", skip=("w9",))


def test_a_variant_has_the_precision_of_the_step_before() -> None:
    steps: Any = ({"use": "int8"}, {"use": "cluster", "values": 16})
    assert conversion.precision(Variant("a", "litert", steps)) == "int8"
    assert conversion.precision(Variant("a", "litert", steps[1:])) == "fp32"
