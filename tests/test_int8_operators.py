"""Each operator that ai-edge-quantizer knows, alone in a file: what is made of it runs in LiteRT and in its elder."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite_files as files

from edgecompress.core import environments, registry
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.litert import quantizer
from edgecompress.engines.litert.runtimes import litert, tflite

pytest.importorskip("ai_edge_quantizer")
elder = pytest.mark.skipif(bool(environments.missing(tflite)), reason=f"run `{environments.install_command(tflite)}`")
SCRIPT = Path(__file__).with_name("answer_files.py")
ITEMS = 4
MOST = 0.12  # of the largest number of an answer: int8 of a few numbers

Read = tuple[int, ...] | tuple[tuple[int, ...], str] | np.ndarray  # a shape, one with its dtype, a constant


def case(kind: str, reads: Sequence[Read], writes: Sequence[Any], options: str = "", **fields: Any) -> files.Net:
    """A net of one operator; inputs are called a, b, ..., constants 0, 1, ..., outputs y0, y1, ..."""
    net, names = files.Net([], [], {}, {}), list[str]()
    for place, each in enumerate(reads):
        names.append(str(place) if isinstance(each, np.ndarray) else "abcd"[place])
        if isinstance(each, np.ndarray):
            net.constants[names[-1]] = each
        else:
            net.tensors[names[-1]] = typed(each)
    made = [f"y{place}" for place in range(len(writes))]
    net.tensors |= {name: typed(each) for name, each in zip(made, writes, strict=True)}
    net.inputs, net.outputs = [name for name in names if name in net.tensors], made
    net.add(kind, " ".join(names), " ".join(made), options, **fields)
    return net


def typed(each: Any) -> tuple[str, tuple[int, ...]]:
    return (each[1], each[0]) if each and isinstance(each[0], tuple) else ("float32", each)


def ints(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int32)


ROW, IMAGE, POOLED = (1, 16), (1, 8, 8, 4), (1, 4, 4, 4)
AXES, PLANE = np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32), ints(1, 2)
ROWS, SCALAR = files.seeded(1, 16), np.array(0.3, np.float32)
POOL = {"strideW": 2, "strideH": 2, "filterWidth": 2, "filterHeight": 2}
CONV, SAME = {"strideW": 1, "strideH": 1}, (IMAGE, IMAGE)
KERNEL = files.seeded(8, 3, 3, 4)

CASES = {
    "ADD": case("ADD", SAME, [IMAGE], "AddOptions"),
    "AVERAGE_POOL_2D": case("AVERAGE_POOL_2D", [IMAGE], [POOLED], "Pool2DOptions", **POOL),
    "BATCH_MATMUL": case("BATCH_MATMUL", [(1, 4, 8), (1, 8, 4)], [(1, 4, 4)], "BatchMatMulOptions"),
    "BROADCAST_TO": case("BROADCAST_TO", [(1, 1, 16), ints(1, 4, 16)], [(1, 4, 16)], "BroadcastToOptions", version=3),
    "CONCATENATION": case("CONCATENATION", SAME, [(1, 8, 8, 8)], "ConcatenationOptions", axis=3),
    "CONV_2D": case("CONV_2D", [IMAGE, KERNEL, files.seeded(8)], [(1, 8, 8, 8)], "Conv2DOptions", **CONV),
    "CONV_2D_TRANSPOSE": case(
        "TRANSPOSE_CONV", [ints(1, 16, 16, 8), files.seeded(8, 2, 2, 4), IMAGE], [(1, 16, 16, 8)],
        "TransposeConvOptions", strideW=2, strideH=2,
    ),
    "DEPTHWISE_CONV_2D": case(
        "DEPTHWISE_CONV_2D", [IMAGE, files.seeded(1, 3, 3, 4), files.seeded(4)], [IMAGE],
        "DepthwiseConv2DOptions", depthMultiplier=1, **CONV,
    ),
    "DIV": case("DIV", SAME, [IMAGE], "DivOptions"),
    "DYNAMIC_UPDATE_SLICE": case("DYNAMIC_UPDATE_SLICE", [ROW, (1, 4), ints(0, 2)], [ROW]),
    "EMBEDDING_LOOKUP": case("EMBEDDING_LOOKUP", [((4,), "int32"), files.seeded(8, 16)], [(4, 16)]),
    "EQUAL": case("EQUAL", (ROW, ROW), [(ROW, "bool")], "EqualOptions"),
    "FULLY_CONNECTED": case(
        "FULLY_CONNECTED", [ROW, files.seeded(8, 16), files.seeded(8)], [(1, 8)], "FullyConnectedOptions"
    ),
    "GATHER": case("GATHER", [(4, 16), ints(1, 2)], [(2, 16)], "GatherOptions"),
    "GATHER_ND": case("GATHER_ND", [(4, 16), ints(1, 2).reshape(2, 1)], [(2, 16)], "GatherNdOptions"),
    "GELU": case("GELU", [ROW], [ROW], "GeluOptions"),
    "HARD_SWISH": case("HARD_SWISH", [ROW], [ROW], "HardSwishOptions"),
    "LOGISTIC": case("LOGISTIC", [ROW], [ROW]),
    "MAXIMUM": case("MAXIMUM", SAME, [IMAGE], "MaximumMinimumOptions"),
    "MAX_POOL_2D": case("MAX_POOL_2D", [IMAGE], [POOLED], "Pool2DOptions", **POOL),
    "MEAN": case("MEAN", [IMAGE, PLANE], [(1, 4)], "ReducerOptions"),
    "MIRROR_PAD": case("MIRROR_PAD", [IMAGE, AXES], [(1, 10, 10, 4)], "MirrorPadOptions"),
    "MUL": case("MUL", SAME, [IMAGE], "MulOptions"),
    "NOT_EQUAL": case("NOT_EQUAL", (ROW, ROW), [(ROW, "bool")], "NotEqualOptions"),
    "PACK": case("PACK", (ROW, ROW), [(1, 2, 16)], "PackOptions", valuesCount=2, axis=1),
    "PAD": case("PAD", [IMAGE, AXES], [(1, 10, 10, 4)], "PadOptions"),
    "PADV2": case("PADV2", [IMAGE, AXES, np.array([-1], np.float32)], [(1, 10, 10, 4)], "PadV2Options"),
    "REDUCE_MIN": case("REDUCE_MIN", [IMAGE, PLANE], [(1, 4)], "ReducerOptions"),
    "RELU": case("RELU", [ROW], [ROW]),
    "RESHAPE": case("RESHAPE", [IMAGE, ints(1, 256)], [(1, 256)], "ReshapeOptions", newShape=[1, 256]),
    "RESIZE_BILINEAR": case("RESIZE_BILINEAR", [IMAGE, ints(16, 16)], [(1, 16, 16, 4)], "ResizeBilinearOptions"),
    "RESIZE_NEAREST_NEIGHBOR": case(
        "RESIZE_NEAREST_NEIGHBOR", [IMAGE, ints(16, 16)], [(1, 16, 16, 4)], "ResizeNearestNeighborOptions"
    ),
    "RSQRT": case("RSQRT", [ROW], [ROW]),
    "SELECT": case("SELECT", [(ROW, "bool"), ROW, ROW], [ROW], "SelectOptions"),
    "SELECT_V2": case("SELECT_V2", [(ROW, "bool"), ROW, ROW], [ROW], "SelectV2Options"),
    "SLICE": case("SLICE", [IMAGE, ints(0, 0, 0, 0), ints(1, 4, 4, 4)], [POOLED], "SliceOptions"),
    "SOFTMAX": case("SOFTMAX", [ROW], [ROW], "SoftmaxOptions", beta=1.0),
    "SPACE_TO_DEPTH": case("SPACE_TO_DEPTH", [IMAGE], [(1, 4, 4, 16)], "SpaceToDepthOptions", blockSize=2),
    "SPLIT": case("SPLIT", [np.array(3, np.int32), IMAGE], [(1, 8, 8, 2)] * 2, "SplitOptions", numSplits=2),
    "SQRT": case("SQRT", [ROW], [ROW]),
    "SQUARED_DIFFERENCE": case("SQUARED_DIFFERENCE", SAME, [IMAGE], "SquaredDifferenceOptions"),
    "STRIDED_SLICE": case(
        "STRIDED_SLICE", [IMAGE, ints(0, 0, 0, 0), ints(1, 4, 4, 4), ints(1, 1, 1, 1)], [POOLED], "StridedSliceOptions"
    ),
    "SUB": case("SUB", SAME, [IMAGE], "SubOptions"),
    "SUM": case("SUM", [IMAGE, PLANE], [(1, 4)], "ReducerOptions"),
    "TANH": case("TANH", [ROW], [ROW]),
    "TRANSPOSE": case("TRANSPOSE", [IMAGE, ints(0, 3, 1, 2)], [(1, 4, 8, 8)], "TransposeOptions"),
    "UNPACK": case("UNPACK", [(1, 2, 16)], [ROW, ROW], "UnpackOptions", num=2, axis=1),
}  # fmt: skip
CONSTANTS = {  # the same with one of the numbers given
    "ADD 1": case("ADD", [IMAGE, files.seeded(4)], [IMAGE], "AddOptions"),
    "BATCH_MATMUL left": case(
        "BATCH_MATMUL", [files.seeded(1, 4, 8), (1, 8, 4)], [(1, 4, 4)], "BatchMatMulOptions"
    ),
    "BATCH_MATMUL right": case(
        "BATCH_MATMUL", [(1, 4, 8), files.seeded(1, 8, 4)], [(1, 4, 4)], "BatchMatMulOptions"
    ),
    "CONCATENATION 4": case(
        "CONCATENATION", [IMAGE, files.seeded(*IMAGE)], [(1, 8, 8, 8)], "ConcatenationOptions", axis=3
    ),
    "DYNAMIC_UPDATE_SLICE 2": case("DYNAMIC_UPDATE_SLICE", [ROWS, (1, 4), ints(0, 2)], [ROW]),
    "MAXIMUM 0": case("MAXIMUM", [IMAGE, SCALAR], [IMAGE], "MaximumMinimumOptions"),
    "MAXIMUM 2": case("MAXIMUM", [IMAGE, SCALAR.reshape(1, 1)], [IMAGE], "MaximumMinimumOptions"),
    "MUL 0": case("MUL", [SCALAR, IMAGE], [IMAGE], "MulOptions"),
    "PACK 2": case("PACK", [ROW, ROWS], [(1, 2, 16)], "PackOptions", valuesCount=2, axis=1),
    "SELECT_V2 0": case("SELECT_V2", [(ROW, "bool"), ROW, SCALAR], [ROW], "SelectV2Options"),
    "SELECT_V2 2": case("SELECT_V2", [(ROW, "bool"), ROW, ROWS], [ROW], "SelectV2Options"),
}  # fmt: skip


def numbers(name: str, model: Artifact) -> dict[str, np.ndarray]:
    """A few items of each input, on which an operator is defined, and int8 is hard put to it."""
    seeded = np.random.default_rng(0)
    given: dict[str, np.ndarray] = {}
    for spec in model.inputs:
        shape = (ITEMS, *spec.shape[1:])
        drawn = seeded.normal(size=shape) if spec.dtype == "float32" else seeded.integers(0, 2, shape)
        given[spec.name] = drawn.astype(spec.dtype)
    if name in ("DIV", "SQRT", "RSQRT"):  # of all sizes
        last = list(given)[-1]
        given[last] = 10 ** -np.abs(given[last])
    if name in ("EQUAL", "NOT_EQUAL"):
        given["b"] = given["a"] * np.float32(1 + 1e-6)
    return given


def written(technique: str, nets: dict[str, files.Net], folder: Path, **options: Any) -> Path:
    """What a technique makes of each net, with an item and what the net itself answers to it."""
    out = folder / technique
    out.mkdir()
    module = registry.load("techniques", technique)
    for name, net in nets.items():
        work = folder / f"{technique}-{name}"
        model = files.source(files.packed(net), work)
        given = numbers(name, model)
        for split in ("calibrate", "test"):
            tensors.write_split(work / "samples" / split, given)
        specs = tuple(TensorSpec(s.name, (Dim("batch", 1, ITEMS), *s.shape[1:]), s.dtype) for s in model.inputs)
        facts = {"splits": {"calibrate": ITEMS, "test": ITEMS}}
        samples = Artifact(work / "samples", "samples", specs, (), facts).write()
        (work / "out").mkdir()
        made = module.apply(Request({"model": model, "samples": samples}, work / "out", module.Options(**options)))
        (out / f"{name}.tflite").write_bytes(made.file(".tflite").read_bytes())
        item = {spec.name: given[spec.name][: spec.shape[0]] for spec in model.inputs}
        answers = litert.open(model, 1).run(item)
        np.savez(out / f"{name}.npz", **item, **{f"want_{i}": a for i, a in enumerate(answers.values())})
    return out


def told(folder: Path, python: str = sys.executable) -> dict[str, Any]:
    """What a runtime makes of the files."""
    heard = subprocess.run([python, str(SCRIPT), str(folder)], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(heard.stdout)  # type: ignore[no-any-return]


def broken(found: dict[str, Any]) -> dict[str, Any]:
    return {name: off for name, off in found.items() if not isinstance(off, float) or not off < MOST}


@pytest.fixture(scope="module")
def int8(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written("litert_int8", CASES | CONSTANTS, tmp_path_factory.mktemp("int8"))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What would become of the operators that stay in float."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quantizer, "FLOATS", ())
        return written("litert_int8", {name: CASES[name] for name in FLOATS}, tmp_path_factory.mktemp("bare"))


FLOATS = quantizer.FLOATS


def test_each_operator_that_the_quantizer_knows_is_tried() -> None:
    from ai_edge_quantizer.utils import tfl_flatbuffer_utils

    known = {name.value for name in tfl_flatbuffer_utils.TFL_OP_NAME_TO_CODE}
    assert known - CASES.keys() == {"STABLEHLO_COMPOSITE"}  # a graph of others


def test_each_operator_runs_in_litert(int8: Path) -> None:
    assert broken(told(int8)) == {}


@elder
def test_each_operator_runs_in_tflite_runtime(int8: Path) -> None:
    assert broken(told(int8, environments.python(tflite))) == {}


@elder
def test_no_operator_stays_in_float_without_need(bare: Path) -> None:
    assert {**broken(told(bare)), **broken(told(bare, environments.python(tflite)))}.keys() == set(FLOATS)


@pytest.mark.parametrize("technique", ["litert_dynamic", "litert_fp16"])
def test_constants_that_are_made_smaller_run_too(technique: str, tmp_path: Path) -> None:
    weighted = ("CONV_2D", "CONV_2D_TRANSPOSE", "DEPTHWISE_CONV_2D", "EMBEDDING_LOOKUP", "FULLY_CONNECTED")
    nets = CONSTANTS | {name: CASES[name] for name in weighted}
    assert broken(told(written(technique, nets, tmp_path))) == {}


def uneven(axis: int, *shape: int) -> np.ndarray:
    """Weights whose channels differ in magnitude by up to 128."""
    along = [-1 if place == axis else 1 for place in range(len(shape))]
    return files.seeded(*shape) * np.resize(np.float32([128, 64, 1, 32, 16, 2, 8, 4]) / 64, shape[axis]).reshape(along)


def fully(activation: int, *bias: np.ndarray) -> files.Net:
    reads = [ROW, uneven(0, 8, 16), *bias]
    return case("FULLY_CONNECTED", reads, [(1, 8)], "FullyConnectedOptions", fusedActivationFunction=activation)


UNEVEN = {
    "BATCH_MATMUL": case("BATCH_MATMUL", [(1, 4, 8), uneven(2, 1, 8, 4)], [(1, 4, 4)], "BatchMatMulOptions"),
    "EMBEDDING_LOOKUP": case("EMBEDDING_LOOKUP", [((4,), "int32"), uneven(0, 8, 16)], [(4, 16)]),
    "FULLY_CONNECTED": fully(0, files.seeded(8)),
    "FULLY_CONNECTED relu": fully(1),
    "FULLY_CONNECTED relu6": fully(3, files.seeded(8)),
}
OTHERS = {
    "CONV_2D": case(
        "CONV_2D", [IMAGE, uneven(0, 8, 3, 3, 4), files.seeded(8)], [(1, 8, 8, 8)], "Conv2DOptions", **CONV
    ),
    "CONV_2D_TRANSPOSE": CASES["CONV_2D_TRANSPOSE"],
}


@elder
def test_dynamic_int8_of_one_scale_per_tensor_answers_right_in_both_runtimes(tmp_path: Path) -> None:
    folder = written("litert_dynamic", UNEVEN | OTHERS, tmp_path, scales="tensor")
    for python in (sys.executable, environments.python(tflite)):
        assert broken(told(folder, python)) == {}
    sizes = {name: len((folder / f"{name}.tflite").read_bytes()) for name in UNEVEN}
    assert all(size < 4000 for size in sizes.values())


@elder
def test_each_operator_of_which_tflite_runtime_takes_one_scale_for_all_is_refused_by_name(tmp_path: Path) -> None:
    folder = written("litert_dynamic", UNEVEN | {"CONV_2D": OTHERS["CONV_2D"]}, tmp_path)
    wrong = {name.split()[0] for name in broken(told(folder, environments.python(tflite)))}
    assert wrong == {name.split()[0] for name in UNEVEN}
    script = (
        "import sys; from pathlib import Path; from tflite_runtime.interpreter import Interpreter\n"
        "from edgecompress.engines.litert.runtimes import tflite\n"
        "for file in sorted(Path(sys.argv[1]).glob('*.tflite')):\n"
        "    opened = Interpreter(str(file)); opened.allocate_tensors()\n"
        "    print(file.stem, tflite._one_scale(opened), sep='|')"
    )
    command = [environments.python(tflite), "-c", script, str(folder)]
    heard = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    found = dict(line.split("|") for line in heard.splitlines())
    assert found == {name: name.split()[0] if name in UNEVEN else "" for name in found}
