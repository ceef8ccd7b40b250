"""Samples on disk: chunks, padding, names by position, what does not fit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgecompress.core import config
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Dim, Quantization, TensorSpec
from edgecompress.core.settings import Preprocess
from edgecompress.data import preprocess, tensors


def spec(name: str, *shape: int, dtype: str = "float32", feeds: str = "") -> TensorSpec:
    return TensorSpec(name, (Dim("batch", 1, 8), *shape), dtype, feeds=feeds)


def samples(folder: Path, **arrays: np.ndarray) -> Artifact:
    tensors.write_split(folder / "test", arrays)
    specs = tuple(spec(n, *a.shape[1:], dtype=str(a.dtype)) for n, a in arrays.items() if n != tensors.LABELS)
    return Artifact(folder, "samples", specs)


def model(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = ()) -> Artifact:
    return Artifact(Path("nowhere"), "onnx", inputs, outputs)


@given(st.lists(st.text("/%.2F x\\", min_size=1, max_size=20), min_size=2, max_size=2, unique=True))
def test_any_two_names_have_two_files_in_the_folder_and_come_back(names: list[str]) -> None:
    files = [tensors.file_of(Path("folder"), name) for name in names]
    assert len({*files}) == 2 and {file.parent for file in files} == {Path("folder")}
    assert [tensors.name_of(file) for file in files] == names


def test_the_last_batch_is_padded_with_its_last_item(tmp_path: Path) -> None:
    data = samples(tmp_path, x=np.arange(5, dtype=np.float32)[:, None])
    got = [b["x"][:, 0].tolist() for b in tensors.batches(data, "test", 2)]
    assert got == [[0, 1], [2, 3], [4, 4]]


def test_a_limit_pads_within_itself(tmp_path: Path) -> None:
    data = samples(tmp_path, x=np.arange(5, dtype=np.float32)[:, None])
    assert [b["x"][:, 0].tolist() for b in tensors.batches(data, "test", 2, 3)] == [[0, 1], [2, 2]]


def test_a_single_input_matches_by_position(tmp_path: Path) -> None:
    data = samples(tmp_path, input=np.ones((3, 4), np.float32))
    names = tensors.check_inputs(model(spec("image", 4)), data)
    assert names == {"image": "input"}
    assert [sorted(b) for b in tensors.batches(data, "test", 2, model=model(spec("image", 4)))] == [
        ["image"],
        ["image"],
    ]


def test_nameless_inputs_match_in_order_and_named_ones_do_not(tmp_path: Path) -> None:
    wanted = model(spec("ids", 4), spec("mask", 4))
    data = samples(tmp_path / "a", input_0=np.ones((3, 4), np.float32), input_1=np.ones((3, 4), np.float32))
    assert tensors.check_inputs(wanted, data) == {"ids": "input_0", "mask": "input_1"}
    named = samples(tmp_path / "b", tokens=np.ones((3, 4), np.float32), mask=np.ones((3, 4), np.float32))
    with pytest.raises(InputError, match="takes ids, mask, the data has: tokens, mask; rename"):
        tensors.check_inputs(wanted, named)


def test_an_input_that_an_output_feeds_needs_no_data(tmp_path: Path) -> None:
    data = samples(tmp_path, input=np.ones((3, 4), np.float32))
    stateful = model(spec("x", 4), spec("h", 7), outputs=(spec("y", 2), spec("h_next", 7, feeds="h")))
    assert tensors.check_inputs(stateful, data) == {"x": "input"}


@pytest.mark.parametrize(
    ("dtype", "width", "says"),
    [
        (np.float32, 5, "takes batch x 5, the data gives batch x 4; give each item as many values"),
        (np.uint8, 4, "takes float32, the data gives uint8"),
    ],
)
def test_a_wrong_shape_or_dtype_says_both(tmp_path: Path, dtype: type, width: int, says: str) -> None:
    with pytest.raises(InputError, match=says):
        tensors.check_inputs(model(spec("x", width)), samples(tmp_path, input=np.ones((3, 4), dtype)))


def test_ids_of_64_bits_become_the_32_bits_of_a_file(tmp_path: Path) -> None:
    data = samples(tmp_path, input=np.array([[5, -7]], np.int64))
    (found,) = tensors.batches(data, "test", 1, model=model(spec("ids", 2, dtype="int32")))
    assert found["ids"].dtype == np.int32 and found["ids"].tolist() == [[5, -7]]


def test_an_id_beyond_32_bits_is_refused_not_wrapped(tmp_path: Path) -> None:
    data = samples(tmp_path, input=np.array([[2**31, 0]], np.int64))
    with pytest.raises(InputError, match="input 'ids': a value of the data is out of range for int32"):
        list(tensors.batches(data, "test", 1, model=model(spec("ids", 2, dtype="int32"))))


def test_a_quantized_input_takes_real_data_and_a_quantized_output_means_real_numbers(tmp_path: Path) -> None:
    data = samples(tmp_path, input=np.array([[-1.0, 0.26, 99.0]], np.float32))
    how = replace(spec("x", 3, dtype="int8"), quantization=Quantization((0.5,), (3,)))
    (found,) = tensors.batches(data, "test", 1, model=model(how))
    assert found["x"].tolist() == [[1, 4, 127]]
    assert tensors.real(found["x"], how).tolist() == [[-1.0, 0.5, 62.0]]


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_real_numbers_become_float32(dtype: type, tmp_path: Path) -> None:
    tensors.check_inputs(model(spec("x", 4)), samples(tmp_path, input=np.ones((3, 4), dtype)))
    made = tensors.fitted(np.array([0.1, 2.0], dtype), spec("x", 2))
    assert made.dtype == np.float32 and np.allclose(made, [0.1, 2.0], atol=1e-3)


def test_a_real_number_beyond_float32_is_refused() -> None:
    with pytest.raises(InputError, match="input 'x': a value of the data is out of range for float32"):
        tensors.fitted(np.array([1e300]), spec("x", 1))


def test_a_missing_array_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"absent\.npy: cannot be read"):
        tensors.load(Artifact(tmp_path, "samples"), "test", "absent")


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    np.save(tmp_path / "test" / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="must be plain numbers"):
        tensors.load(Artifact(tmp_path, "samples"), "test", "x")


@given(st.lists(st.integers(0, 7), max_size=6), st.sampled_from(["uint8", "int64", "float32", "bool"]))
def test_chunks_written_one_by_one_read_back_as_one_array(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], dtype: str
) -> None:
    folder = tmp_path_factory.mktemp("split")
    chunks = [np.full((n, 3), i).astype(dtype) for i, n in enumerate([1, *sizes])]
    writer = tensors.Appender(folder)
    for chunk in chunks:
        writer.append({"x": chunk})
    writer.close()
    read = np.load(folder / "x.npy", allow_pickle=False)
    assert read.dtype == dtype
    assert np.array_equal(read, np.concatenate(chunks))
    assert writer.count == len(read)


def test_an_item_of_another_shape_is_named(tmp_path: Path) -> None:
    writer = tensors.Appender(tmp_path / "calibrate")
    writer.append({"x": np.zeros((4, 3), np.float32)})
    with pytest.raises(InputError, match=r"split 'calibrate', item 4: 'x' is float32 \[2\], in the items before it"):
        writer.append({"x": np.zeros((1, 2), np.float32)})


@pytest.mark.parametrize(
    ("data", "model", "says"),
    [
        ((1, 3, 8, 8), (3, 8, 8), "an item has no batch axis"),
        ((8, 8, 3), (3, 8, 8), "the channels come last"),
        ((3, 9, 9), (3, 8, 8), "resize, crop"),
        ((7,), (5,), r"\[pad\]"),
        ((1, 8, 8, 3), (3, 8, 8), "an item has no batch axis: .*; then the channels come last"),
        ((16, 3, 8, 8), (3, 8, 8), "not a batch of 16: give each by itself"),
        ((), (3, 8, 8), r"items are \(inputs, label\), in this order"),
        ((40, 16), (16, 40), r"the other way round: .*numpy.swapaxes\(data, 1, 2\)"),
        ((1, 8, 8), (3, 8, 8), r"numpy.repeat\(data, 3, 1\)"),
        ((8, 8, 1), (8, 8, 3), r"numpy.repeat\(data, 3, 3\)"),
        ((192,), (3, 8, 8), r"reshape each item to \[3, 8, 8\]"),
        ((8, 8), (64,), r"reshape each item to \[64\]"),
        ((8, 8), (8, 8, 1), r"reshape each item to \[8, 8, 1\]"),
        ((6, 4, 8), (3, 8, 8), "resize, crop"),  # as many, but of another order
        ((3, 8, 8), (1, 8, 8), 'as .height, width, 3., and set layout = "NCHW", colour = "GRAY" in .preprocess.'),
        ((4, 8, 8), (3, 8, 8), r"leave the last one, alpha, out: data\[:, :3\]$"),
        ((4, 8, 8), (1, 8, 8), r"leave the last one, alpha, out: data\[:, :3\]$"),
        ((2, 8, 8), (1, 8, 8), "check the preprocessing"),
    ],
)
def test_items_of_another_shape_are_told_what_to_change(
    data: tuple[int, ...], model: tuple[int, ...], says: str
) -> None:
    assert re.search(says, tensors.remedy(data, model))


@pytest.mark.parametrize("size", [24, 40])
@pytest.mark.parametrize("has", [1, 3, 4])
@pytest.mark.parametrize("model", [(1, 24, 24), (3, 24, 24), (24, 24, 1), (24, 24, 3)])
def test_what_is_told_of_pictures_is_all_that_the_net_needs(has: int, size: int, model: tuple[int, ...]) -> None:
    """What is told is done, once: then [preprocess] makes items of the model's shape."""
    raw = np.zeros((size, size, has), np.uint8)
    if raw.shape == model:
        return
    said = tensors.remedy(raw.shape, model)
    raw = raw[..., :3] if "data[..., :3]" in said else raw
    raw = np.repeat(raw, 3, 2) if "numpy.repeat(data, 3, 3)" in said else raw
    told = dict(pair.split("=") for pair in re.findall(r"--set preprocess\.(\S+=\w+)", said))
    declared = config.build(Preprocess, {key: int(v) if v.isdigit() else v for key, v in told.items()}, "preprocess")
    assert preprocess.numbers(preprocess.geometry(raw, declared)[None], declared).shape[1:] == model, said


def test_a_picture_for_a_net_of_any_size_is_not_resized() -> None:
    side = Dim("side", 8, 64)
    said = tensors.remedy((24, 40, 3), (1, side, side))
    assert 'set layout = "NCHW", colour = "GRAY" in' in said and "resize" not in said
    assert "check the preprocessing" in tensors.remedy((99, 99, 3), (1, side, side))


@pytest.mark.parametrize(
    ("layout", "data", "model", "says"),
    [
        ("NCHW", (3, 24, 24), (1, 24, 24), 'set colour = "GRAY" in [preprocess] (--set preprocess.colour=GRAY)'),
        ("NHWC", (24, 24, 3), (24, 24, 1), 'set colour = "GRAY" in [preprocess] (--set preprocess.colour=GRAY)'),
        ("NCHW", (3, 40, 40), (1, 24, 24), 'set resize = 24, crop = 24, colour = "GRAY" in [preprocess]'),
        ("NCHW", (3, 24, 24), (24, 24, 1), 'set layout = "NHWC", colour = "GRAY" in [preprocess]'),
        ("NCHW", (1, 24, 24), (3, 24, 24), 'or set colour = "RGB" in [preprocess] if that made it gray'),
        ("NCHW", (1, 99, 40), (1, 64, 64), "check the preprocessing"),  # a spectrogram has no size to set
    ],
)
def test_pictures_that_preprocess_laid_out_are_told_what_it_lacks(
    layout: str, data: tuple[int, ...], model: tuple[int, ...], says: str
) -> None:
    assert says in tensors.remedy(data, model, layout)
