"""Storage: every form gives back what it packed, and takes the bytes that its formula says; of whole models too."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgecompress.cli import main
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import weight_encodings
from edgecompress.stages import weight_storage
from edgecompress.stages.analyze import page

slow = pytest.mark.slow

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int16")
shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """Arrays of any dtype, many of their elements zero."""
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES))), draw(shapes)
    found = draw(arrays.arrays(dtype, shape, elements=arrays.from_dtype(dtype, allow_nan=False)))
    return np.where(draw(arrays.arrays(np.bool_, shape)), found, np.zeros_like(found))


@pytest.mark.parametrize("form", weight_encodings.FORMS)
@given(array=tensors())
def test_what_is_packed_comes_back(form: str, array: Any) -> None:
    found = weight_encodings.unpack(weight_encodings.pack(array, form), form, array.shape, array.dtype.name)
    assert found.dtype == array.dtype and found.shape == array.shape
    assert np.array_equal(found, array)


@given(array=tensors())
def test_sizes_are_those_of_the_formulas(array: Any) -> None:
    n, k, b = array.size, np.count_nonzero(array), array.dtype.itemsize
    rows = array.shape[0] if array.ndim > 1 else 1
    columns = n // max(rows, 1)
    p, i = (next(w for w in (1, 2, 4, 8) if most < 256**w) for most in (n, max(columns - 1, 0)))
    assert len(weight_encodings.pack(array, "dense")) == n * b
    assert len(weight_encodings.pack(array, "bitmask")) == math.ceil(n / 8) + k * b
    assert len(weight_encodings.pack(array, "csr")) == (rows + 1) * p + k * i + k * b
    d = len({element.tobytes() for element in array.reshape(-1)} - {bytes(b)})
    set_bits = sum(element.tobytes() != bytes(b) for element in array.reshape(-1))  # a negative zero is a value
    assert len(weight_encodings.pack(array, "codebook")) == p + d * b + math.ceil(n / 8) + set_bits


@given(array=tensors())
def test_the_best_form_is_the_smallest_of_them(array: Any) -> None:
    row = weight_encodings.row("w", array)
    assert row["bytes"] == {form: len(weight_encodings.pack(array, form)) for form in weight_encodings.FORMS}
    assert row["bytes"][row["best"]] == min(row["bytes"].values())
    assert row["zeros"] == (array == 0).sum()


def test_bytes_are_those_that_one_writes_by_hand() -> None:
    matrix = np.array([[5, 0, 0, 0, -1], [0, 0, 0, 0, 0], [0, 7, 0, 0, 0]], np.int8)
    assert weight_encodings.pack(matrix, "bitmask") == bytes([0b10001000, 0b00010000, 5, 255, 7])
    assert weight_encodings.pack(matrix, "csr") == bytes([0, 2, 2, 3, 0, 4, 1, 5, 255, 7])


def test_the_matrix_of_a_text_book_has_its_rows_columns_and_values() -> None:
    """Saad, Iterative Methods for Sparse Linear Systems (2nd edition), 3.4: his indices begin at 1."""
    matrix = np.array([[1, 0, 0, 2, 0], [3, 4, 0, 5, 0], [6, 0, 7, 8, 9], [0, 0, 10, 11, 0], [0, 0, 0, 0, 12]], np.int8)
    found = np.frombuffer(weight_encodings.pack(matrix, "csr"), np.uint8)
    assert (found[:6] + 1).tolist() == [1, 3, 6, 10, 12, 13]
    assert (found[6:18] + 1).tolist() == [1, 4, 1, 2, 4, 1, 3, 4, 5, 3, 4, 5]
    assert found[18:].tolist() == list(range(1, 13))


@pytest.mark.parametrize(("columns", "width"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_a_column_is_the_smallest_integer_that_reaches_the_last_one(columns: int, width: int) -> None:
    matrix = np.zeros((1, columns), np.float32)
    matrix[0, -1] = 1
    pointers = 2 * (2 if columns < 2**16 else 4)
    assert len(weight_encodings.pack(matrix, "csr")) == pointers + width + 4


def test_half_zeros_of_floats_are_best_as_a_bitmask_and_of_zeros_alone_nothing_is_left() -> None:
    """Half of 32 bits and one more: 17 of 32; random mantissas do not compress."""
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    assert weight_encodings.row("w", weight)["best"] in ("zstd", "packed")
    weight.reshape(-1)[::2] = 0
    row = weight_encodings.row("w", weight)
    assert row["bytes"]["bitmask"] == 64 * 64 * 4 * 17 // 32
    assert row["bytes"]["csr"] == 65 * 2 + 64 * 64 // 2 * 5
    assert row["best"] in ("bitmask+zstd", "packed")
    assert weight_encodings.row("w", np.zeros((64, 64)))["bytes"]["zstd"] < 40


def test_two_of_four_in_int8_take_five_eighths_as_a_bitmask() -> None:
    weight = np.random.default_rng(0).integers(1, 127, (32, 32)).astype(np.int8)
    weight.reshape(-1, 4)[:, :2] = 0
    assert weight_encodings.row("w", weight)["bytes"]["bitmask"] == 32 * 32 * 5 // 8


def test_a_codebook_of_two_values_and_its_zeros_written_by_hand() -> None:
    array = np.array([0, 7, 9, 0, 9, 9, 0, 0, 7], np.uint8)
    assert weight_encodings.pack(array, "codebook") == bytes([2, 7, 9, 0b01101100, 0b10000000, 0, 1, 1, 1, 0])


def test_more_values_than_a_byte_numbers_are_numbered_by_two() -> None:
    array = np.arange(1, 1001, dtype=np.float32)
    data = weight_encodings.pack(array, "codebook")
    assert len(data) == 2 + 1000 * 4 + 125 + 1000 * 2
    assert np.array_equal(weight_encodings.unpack(data, "codebook", array.shape, "float32"), array)


def test_nan_and_a_negative_zero() -> None:
    given = np.array([[np.nan, -0.0, np.inf]], np.float32)
    for form in ("bitmask", "csr", "bitmask+zstd"):
        found = weight_encodings.unpack(weight_encodings.pack(given, form), form, given.shape, "float32")
        assert np.isnan(found[0, 0]) and found[0, 2] == np.inf
        assert found[0, 1] == 0 and not np.signbit(found[0, 1])


def test_the_total_is_the_sum_of_the_rows_and_of_their_best() -> None:
    rows = [weight_encodings.row("a", np.eye(9, dtype=np.float32)), weight_encodings.row("b", np.ones((2, 3), np.int8))]
    found = weight_encodings.total(rows)
    assert (found["elements"], found["zeros"]) == (87, 72)
    assert found["bytes"]["dense"] == 81 * 4 + 6
    assert found["best_bytes"] == sum(r["bytes"][r["best"]] for r in rows) <= min(found["bytes"].values())
    assert weight_encodings.total([])["best_bytes"] == 0
    assert found["entropy_bytes"] == sum(r["entropy_bytes"] for r in rows)


@pytest.mark.parametrize(("values", "bits"), [([3], 0), ([0, 7], 1), ([0, 1, 2, 3], 2), ([0, 0, 0, 5], 0.811278)])
def test_the_entropy_bound_is_that_of_the_shares_of_its_values(values: list[int], bits: float) -> None:
    weight = np.array([values] * 4000, np.int8)
    assert weight_encodings.row("w", weight)["entropy_bytes"] == pytest.approx(weight.size * bits / 8, abs=1)


# --------------------------------------------------------------------------- of a model


def onnx_file(folder: Path, nodes: list[Any], weights: dict[str, Any], ends: Sequence[Any] = ()) -> Artifact:
    """A graph with these constants; without `ends`, its input and its output, nobody can run it."""
    import onnx

    made = [onnx.numpy_helper.from_array(a, n) if isinstance(a, np.ndarray) else a for n, a in weights.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], made)
    folder.mkdir()
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    return Artifact(folder, "onnx").write()


def facts(model: Artifact, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    return dict(weight_storage.run(Request({"model": model}, folder)).facts)


@slow
@pytest.mark.parametrize("op", ["DequantizeLinear", "MatMulInteger"])
def test_whole_numbers_of_an_onnx_file_are_zero_where_they_mean_it(op: str, tmp_path: Path) -> None:
    from onnx import helper

    meant = np.array([[0, 3, 0], [-2, 0, 0]])
    each = op == "DequantizeLinear"
    zero = np.array([128, 7, 200] if each else 128, np.uint8)
    inputs = ["w", "scale", "zero"] if each else ["x", "w", "", "zero"]
    node = helper.make_node(op, inputs, ["y"], **({"axis": 1} if each else {}))
    weights = {"w": (meant + zero).astype(np.uint8), "scale": np.ones(3, np.float32), "zero": zero}
    found = facts(onnx_file(tmp_path / "net", [node], weights), tmp_path / "out")
    (row,) = found["rows"]
    assert (row["zeros"], row["dtype"], row["bytes"]["dense"], row["bytes"]["bitmask"]) == (4, "uint8", 6, 1 + 2)


@slow
def test_what_is_packed_already_is_named_and_in_no_sum(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    weights = {
        "four": helper.make_tensor("four", TensorProto.INT4, [2, 3], [1, 2, 3, -1, 0, 1]),
        "brain": helper.make_tensor("brain", TensorProto.BFLOAT16, [2, 3], [1.0, 0.0, 2.0, 0.0, 0.0, 3.0]),
    }
    found = facts(onnx_file(tmp_path / "net", [], weights), tmp_path / "out")
    assert found["packed"] == ["four"]
    assert [(r["name"], r["zeros"], r["bytes"]["dense"]) for r in found["rows"]] == [("brain", 3, 12)]
    assert found["total"]["elements"] == 6


@slow
def test_the_rows_of_a_real_file_are_its_weights_once(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    weight[:, ::2] = 0
    model = onnx_file(tmp_path / "net", [], {"w": weight, "bias": np.ones(64, np.float32)})
    found = facts(model, tmp_path / "out")
    assert [row["name"] for row in found["rows"]] == ["w"]
    assert found["files"]["bytes"] == model.size_bytes > weight.nbytes > found["files"]["zstd"]
    assert found["files"]["zstd"] > found["files"]["packed"] > 2048 * 3
    table = page.stored(found)
    assert table.rows[0][:4] == ("w", "4,096", "50.0 %", "16 KiB") and table.rows[-1][0] == "All weights"
    forms = {row[0]: row[1:] for row in page.forms(found).rows}
    assert forms["bitmask"] == ("8.50 KiB", "0.531", "–") and forms["CSR"][0] == f"{(65 * 2 + 2048 * 5) / 1024:.1f} KiB"
    assert [name for name, row in forms.items() if row[2] != "–"] == ["dense", "zstd", "packed"]


@slow
def test_a_kind_whose_weights_are_not_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not kind 'pte'; export it first"):
        weight_storage.run(Request({"model": Artifact(tmp_path, "pte")}, tmp_path))


@slow
@pytest.mark.shared
def test_a_tflite_file_is_told_with_its_weights_in_their_own_bytes(shared_data: Path, tmp_path: Path) -> None:
    (tmp_path / "net").mkdir()
    shutil.copy(shared_data / "models" / "vww_96_float.tflite", tmp_path / "net")
    found = facts(Artifact(tmp_path / "net", "tflite").write(), tmp_path / "out")
    assert found["packed"] == []
    assert len({row["name"] for row in found["rows"]}) == len(found["rows"])
    assert 0.9 < found["total"]["bytes"]["dense"] / found["files"]["bytes"] < 1


@slow
def test_the_command_tells_the_storage_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from onnx import helper

    monkeypatch.chdir(tmp_path)
    ends = [helper.make_tensor_value_info(name, 1, ["batch", 8]) for name in "xy"]
    onnx_file(tmp_path / "net", [helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": np.eye(8, dtype="f")}, ends)
    assert main.main(["analyze", "net/model.onnx", "--storage", "--json", "--html", "a.html"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["storage"]["rows"]
    assert row["bytes"] == {"dense": 256, "bitmask": 40, "csr": 9 + 8 + 32, "zstd": ANY, "bitmask+zstd": ANY} | {
        "codebook": 1 + 4 + 8 + 8,
        "packed": ANY,
    }
    assert row["zeros"] == 56
    assert "<h2>Storage</h2>" in (tmp_path / "a.html").read_text()
    assert main.main(["analyze", "net/model.onnx", "--storage"]) == 0
    assert "All weights" in capsys.readouterr().out
    assert main.main(["analyze", "net/model.onnx", "--storage", "-q"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert main.main(["analyze", "net/model.onnx"]) == 0
    assert "All weights" not in capsys.readouterr().out


@slow
def test_a_tied_weight_of_a_torch_net_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from torch import nn

    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4).half())
    net[1].weight = net[0].weight
    net[2].weight = nn.Parameter(net[2].weight.detach().to(torch.bfloat16))
    monkeypatch.setattr(weight_storage.torch_module, "rebuild", lambda model: net)
    found = list(weight_storage.of(Artifact(tmp_path, "module")))
    assert [(name, array.nbytes) for name, array in found if array is not None] == [("0.weight", 64), ("2.weight", 32)]
