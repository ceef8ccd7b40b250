"""Storage: every form gives back what it packed, and takes the bytes that its formula says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgecompress import storage

DTYPES = ("float32", "float16", "float64", "int8", "uint8", "int16")
shapes = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9)


@st.composite
def tensors(draw: st.DrawFn) -> Any:
    """Arrays of any dtype, many of their elements zero."""
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES))), draw(shapes)
    found = draw(arrays.arrays(dtype, shape, elements=arrays.from_dtype(dtype, allow_nan=False)))
    return np.where(draw(arrays.arrays(np.bool_, shape)), found, np.zeros_like(found))


@pytest.mark.parametrize("form", storage.FORMS)
@given(array=tensors())
def test_what_is_packed_comes_back(form: str, array: Any) -> None:
    found = storage.unpack(storage.pack(array, form), form, array.shape, array.dtype.name)
    assert found.dtype == array.dtype and found.shape == array.shape
    assert np.array_equal(found, array)


@given(array=tensors())
def test_sizes_are_those_of_the_formulas(array: Any) -> None:
    n, k, b = array.size, np.count_nonzero(array), array.dtype.itemsize
    rows = array.shape[0] if array.ndim > 1 else 1
    columns = n // max(rows, 1)
    p, i = (next(w for w in (1, 2, 4, 8) if most < 256**w) for most in (n, max(columns - 1, 0)))
    assert len(storage.pack(array, "dense")) == n * b
    assert len(storage.pack(array, "bitmask")) == math.ceil(n / 8) + k * b
    assert len(storage.pack(array, "csr")) == (rows + 1) * p + k * i + k * b


@given(array=tensors())
def test_the_best_form_is_the_smallest_of_them(array: Any) -> None:
    row = storage.row("w", array)
    assert row["bytes"] == {form: len(storage.pack(array, form)) for form in storage.FORMS}
    assert row["bytes"][row["best"]] == min(row["bytes"].values())
    assert row["zeros"] == (array == 0).sum()


def test_bytes_are_those_that_one_writes_by_hand() -> None:
    matrix = np.array([[5, 0, 0, 0, -1], [0, 0, 0, 0, 0], [0, 7, 0, 0, 0]], np.int8)
    assert storage.pack(matrix, "bitmask") == bytes([0b10001000, 0b00010000, 5, 255, 7])
    assert storage.pack(matrix, "csr") == bytes([0, 2, 2, 3, 0, 4, 1, 5, 255, 7])


def test_the_matrix_of_a_text_book_has_its_rows_columns_and_values() -> None:
    """Saad, Iterative Methods for Sparse Linear Systems (2nd edition), 3.4: his indices begin at 1."""
    matrix = np.array([[1, 0, 0, 2, 0], [3, 4, 0, 5, 0], [6, 0, 7, 8, 9], [0, 0, 10, 11, 0], [0, 0, 0, 0, 12]], np.int8)
    found = np.frombuffer(storage.pack(matrix, "csr"), np.uint8)
    assert (found[:6] + 1).tolist() == [1, 3, 6, 10, 12, 13]
    assert (found[6:18] + 1).tolist() == [1, 4, 1, 2, 4, 1, 3, 4, 5, 3, 4, 5]
    assert found[18:].tolist() == list(range(1, 13))


@pytest.mark.parametrize(("columns", "width"), [(256, 1), (257, 2), (65_536, 2), (65_537, 4)])
def test_a_column_is_the_smallest_integer_that_reaches_the_last_one(columns: int, width: int) -> None:
    matrix = np.zeros((1, columns), np.float32)
    matrix[0, -1] = 1
    pointers = 2 * (2 if columns < 2**16 else 4)
    assert len(storage.pack(matrix, "csr")) == pointers + width + 4


def test_half_zeros_of_floats_are_best_as_a_bitmask_and_of_zeros_alone_nothing_is_left() -> None:
    """Half of 32 bits and one more: 17 of 32; random mantissas do not compress."""
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    assert storage.row("w", weight)["best"] in ("dense", "zstd")
    weight.reshape(-1)[::2] = 0
    row = storage.row("w", weight)
    assert row["bytes"]["bitmask"] == 64 * 64 * 4 * 17 // 32
    assert row["bytes"]["csr"] == 65 * 2 + 64 * 64 // 2 * 5
    assert row["best"].startswith("bitmask")
    assert storage.row("w", np.zeros((64, 64)))["bytes"]["zstd"] < 40


def test_two_of_four_in_int8_take_five_eighths_as_a_bitmask() -> None:
    weight = np.random.default_rng(0).integers(1, 127, (32, 32)).astype(np.int8)
    weight.reshape(-1, 4)[:, :2] = 0
    assert storage.row("w", weight)["bytes"]["bitmask"] == 32 * 32 * 5 // 8


def test_nan_and_a_negative_zero() -> None:
    given = np.array([[np.nan, -0.0, np.inf]], np.float32)
    for form in ("bitmask", "csr", "bitmask+zstd"):
        found = storage.unpack(storage.pack(given, form), form, given.shape, "float32")
        assert np.isnan(found[0, 0]) and found[0, 2] == np.inf
        assert found[0, 1] == 0 and not np.signbit(found[0, 1])


def test_the_total_is_the_sum_of_the_rows_and_of_their_best() -> None:
    rows = [storage.row("a", np.eye(9, dtype=np.float32)), storage.row("b", np.ones((2, 3), np.int8))]
    found = storage.total(rows)
    assert (found["elements"], found["zeros"]) == (87, 72)
    assert found["bytes"]["dense"] == 81 * 4 + 6
    assert found["best_bytes"] == sum(r["bytes"][r["best"]] for r in rows) <= min(found["bytes"].values())
    assert storage.total([])["best_bytes"] == 0
