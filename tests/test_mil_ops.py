"""Each op over random shapes and attributes: what torch, NumPy and coremltools' own semantics say of it."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import mil_program
import numpy as np
import pytest
from mil_cases import CASES

from edgecompress.core.errors import StageFailed
from edgecompress.engines.coreml import mil
from edgecompress.engines.coreml.mil import ops

pytestmark = pytest.mark.slow
ROUNDS = 4
FIXED = {"weight_ih", "weight_hh", "weight_ih_back", "weight_hh_back", "scale", "zero_point", "resized_dims", "begins"}
ELSEWHERE = {"while_loop", "cond", *(name for name in ops.REGISTRY if name.startswith("constexpr_"))}  # below


def as_type(given: Any, dtype: Any) -> Any:
    """Its floats in another type."""
    if isinstance(given, list):
        return [as_type(one, dtype) for one in given]
    return given.astype(dtype) if isinstance(given, np.ndarray) and given.dtype.kind == "f" else given


def expected(wanted: Any, dtype: Any) -> list[np.ndarray]:
    """The reference's results in the types that the program declares: floats rounded once."""
    arrays = [np.asarray(one) for one in (wanted if isinstance(wanted, tuple) else (wanted,))]
    return [a.astype(dtype) if a.dtype.kind == "f" else a.astype("int32") if a.dtype == "int64" else a for a in arrays]


def assert_close(got: np.ndarray, want: np.ndarray, exact: np.ndarray) -> None:
    """Integers alike; floats but for one rounding, and the error of a sum in fp32."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind != "f" or not want.size:
        np.testing.assert_array_equal(got, want)
        return
    scale = float(np.max(np.abs(exact), initial=0.0, where=np.isfinite(exact)))
    room = (np.spacing(np.abs(want)) if want.dtype == np.float16 else 0) + 4e-6 * (scale + np.abs(exact))
    same = (got == want) | (np.abs(got.astype(np.float64) - exact) <= room)
    assert same.all(), f"{got[~same][:3]} for {exact[~same][:3]}"


def test_every_op_has_a_case() -> None:
    assert ops.REGISTRY.keys() == CASES.keys() | ELSEWHERE


@pytest.mark.parametrize("dtype", [np.float32, np.float16], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", sorted(CASES))
def test_op_computes_what_its_reference_does(name: str, dtype: Any, tmp_path: Path) -> None:
    for index, (round_, make) in enumerate(itertools.product(range(ROUNDS), CASES[name])):
        rng = np.random.default_rng([round_, len(name), index])
        kind, given, reference = make(rng)
        given = {key: as_type(one, dtype) for key, one in given.items()}
        if dtype == np.float16 and given.get("dtype") == "fp32":
            continue  # the op says itself what it gives
        wanted = reference(**{key: as_type(one, np.float64) for key, one in given.items()})
        results = expected(wanted, dtype if name != "fill" else np.float32)
        if dtype == np.float16 and name == "one_hot":
            results = expected(wanted, np.float32)
        got = mil_program.single(tmp_path / str(index), kind, given, results, tuple(FIXED))
        exact = wanted if isinstance(wanted, tuple) else (wanted,)
        for value, want, true in zip(got.values(), results, exact, strict=True):
            assert_close(value, want, np.asarray(true))


# --------------------------------------------------------------------------- rounding


@pytest.mark.parametrize(("name", "function"), [("add", np.add), ("mul", np.multiply), ("real_div", np.divide)])
def test_an_fp16_result_is_the_fp32_one_rounded_to_nearest_even(name: str, function: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 2**15, 20000).astype(np.uint16).view(np.float16) for _ in range(2))
    x, y = np.nan_to_num(x, posinf=1.0), np.nan_to_num(y, posinf=1.0)
    with np.errstate(all="ignore"):
        want = function(x.astype(np.float32), y.astype(np.float32)).astype(np.float16)
    got = mil_program.single(tmp_path, name, {"x": x, "y": y}, [want])["out_0"]
    np.testing.assert_array_equal(got, want)
    assert np.isinf(want).any() and (np.abs(want) < 6e-5).any(), "overflow and subnormals are part of it"


def test_each_op_in_fp16_is_rounded_before_the_next(tmp_path: Path) -> None:
    """2048 + 1 is 2048 in fp16."""
    writer, x = mil_program.Writer(), np.array([1], np.float16)
    writer.input("x", x)
    writer.const("big", np.array([2048], np.float16))
    writer.op("add", {"x": "x", "y": "big"}, {"sum": x})
    writer.op("sub", {"x": "sum", "y": "big"}, {"rest": x})
    np.testing.assert_array_equal(mil.load(writer.save(tmp_path, ["rest"])).run({"x": x})["rest"], [0])


def test_a_sum_in_fp16_is_accumulated_in_fp32(tmp_path: Path) -> None:
    """Accumulated in fp16 it would stop at 2048, where adding 1 changes nothing."""
    ones = np.ones((1, 5000), np.float16)
    want = np.array([[5000]], np.float16)
    got = mil_program.single(tmp_path, "matmul", {"x": ones, "y": ones, "transpose_y": True}, [want])["out_0"]
    np.testing.assert_array_equal(got, want)


def test_whole_numbers_beyond_what_a_float_holds_are_exact(tmp_path: Path) -> None:
    x = np.array([2**24 + 1, -(2**30) - 7], np.int32)
    got = mil_program.single(tmp_path, "add", {"x": x, "y": np.array([2, 3], np.int32)}, [x])["out_0"]
    np.testing.assert_array_equal(got, [2**24 + 3, -(2**30) - 4])


# --------------------------------------------------------------------------- compressed weights, by hand


def test_each_block_has_its_table_of_vectors(tmp_path: Path) -> None:
    """As coremltools documents it, with blocks along two axes; its own tools make them along one."""
    rng = np.random.default_rng(0)
    indices, lut = rng.integers(0, 4, (4, 6)).astype(np.uint8), rng.standard_normal((2, 3, 4, 2)).astype(np.float32)
    want = np.empty((8, 6), np.float32)
    for i, j in np.ndindex(4, 6):
        want[2 * i : 2 * i + 2, j] = lut[i // 2, j // 2, indices[i, j]]
    given = {"indices": indices, "lut": lut, "vector_axis": 0}
    np.testing.assert_array_equal(mil_program.single(tmp_path, "constexpr_lut_to_dense", given, [want])["out_0"], want)


def test_an_index_beyond_its_table_is_refused(tmp_path: Path) -> None:
    given = {"indices": np.array([[4]], np.uint8), "lut": np.zeros((1, 1, 4, 1), np.float32)}
    with pytest.raises(StageFailed, match="index 4 is out of range for tables of 4"):
        mil_program.single(tmp_path, "constexpr_lut_to_dense", given, [np.zeros((1, 1), np.float32)])


# --------------------------------------------------------------------------- blocks


def test_a_loop_runs_its_body_while_its_condition_holds(tmp_path: Path) -> None:
    """n, total = 0, x; while n < limit: n, total = n + 1, total * 2."""
    writer, x = mil_program.Writer(), np.array([1.5, -2], np.float32)
    count = np.array([0], np.int32)
    writer.input("x", x)
    writer.input("limit", count)
    writer.const("zero", count)
    loop = writer.op("while_loop", {"loop_vars": ["zero", "x"]}, {"n": count, "total": x})
    outer = writer.block
    for inside in range(2):
        writer.block = loop.blocks.add()
        for name, array in (("i", count), ("t", x)):
            message = writer.block.inputs.add()
            message.name = name
            mil_program.describe(message.type, mil_program.NUMBERS[array.dtype.name], array.shape)
        if inside == 0:
            writer.op("less", {"x": "i", "y": "limit"}, {"more": count < 1})
            writer.block.outputs[:] = ["more"]
        else:
            writer.const("one", np.array([1], np.int32))
            writer.const("two", np.array(2, np.float32))
            writer.op("add", {"x": "i", "y": "one"}, {"next": count})
            writer.op("mul", {"x": "t", "y": "two"}, {"twice": x})
            writer.block.outputs[:] = ["next", "twice"]
    writer.block = outer
    program = mil.load(writer.save(tmp_path, ["total"]))
    for limit in (0, 1, 5):
        got = program.run({"x": x, "limit": np.array([limit], np.int32)})["total"]
        np.testing.assert_array_equal(got, x * 2**limit)


def test_a_branch_runs_one_of_its_blocks(tmp_path: Path) -> None:
    """The same name may stand for another constant in each block."""
    writer, x = mil_program.Writer(), np.array([1.5, -2], np.float32)
    writer.input("x", x)
    writer.input("choose", np.array(True))
    branch = writer.op("cond", {"pred": "choose"}, {"y": x})
    outer = writer.block
    for factor in (3, 5):
        writer.block = branch.blocks.add()
        writer.const("factor", np.array(factor, np.float32))
        writer.op("mul", {"x": "x", "y": "factor"}, {"scaled": x})
        writer.block.outputs[:] = ["scaled"]
    writer.block = outer
    program = mil.load(writer.save(tmp_path, ["y"]))
    for choose, factor in ((True, 3), (False, 5)):
        np.testing.assert_array_equal(program.run({"x": x, "choose": np.array(choose)})["y"], x * factor)
