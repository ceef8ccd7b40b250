"""Core ML programs run as their nets do; damaged and unknown ones are errors in one line."""

from __future__ import annotations

import logging
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mil_program
import numpy as np
import pytest
from mil_program import MODEL, Writer
from vectors import sqnr_db

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.engines.coreml import mil, package
from edgecompress.engines.coreml import precision as coreml_precision
from edgecompress.formats import mlpackage

pytestmark = pytest.mark.slow
HALF_DB, SINGLE_DB = 50.0, 100.0


# --------------------------------------------------------------------------- a small program, written by hand


@pytest.fixture
def small(tmp_path: Path) -> tuple[Writer, Path]:
    """y = relu(x · W + b), z = softmax(y): W and b are in weight.bin."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(3).astype(np.float32)]
    data, offsets = mil_program.weights([("fp32", a) for a in arrays])
    writer, y = Writer(), np.zeros((2, 3), np.float32)
    writer.input("x", np.zeros((2, 4), np.float32))
    for name, array, offset in zip(("weight", "bias"), arrays, offsets, strict=True):
        writer.const(name, mil_program.stored(array, offset))
    writer.const("axis", np.array(-1, np.int32))
    writer.op("linear", {"x": "x", "weight": "weight", "bias": "bias"}, {"product": y})
    writer.op("relu", {"x": "product"}, {"y": y})
    writer.op("softmax", {"x": "y", "axis": "axis"}, {"z": y})
    (tmp_path / MODEL / "weights").mkdir(parents=True)
    (tmp_path / MODEL / "weights" / "weight.bin").write_bytes(data)
    writer.save(tmp_path, ["y", "z"])
    return writer, tmp_path


def weight_file(package: Path) -> Path:
    return package / MODEL / "weights" / "weight.bin"


def test_a_program_says_what_it_takes_and_gives(small: tuple[Writer, Path]) -> None:
    program = mil.load(small[1])
    assert program.inputs == {"x": ((2, 4), "float32")}
    assert program.outputs == {"y": ((2, 3), "float32"), "z": ((2, 3), "float32")}


def test_a_trace_has_each_op_and_ends_with_what_run_gives(small: tuple[Writer, Path]) -> None:
    program = mil.load(small[1])
    feeds = {"x": np.ones((2, 4), np.float32)}
    steps = list(program.trace(feeds))
    assert [(name, kind) for name, kind, _ in steps] == [("product", "linear"), ("y", "relu"), ("z", "softmax")]
    for name, array in program.run(feeds).items():
        np.testing.assert_array_equal(array, next(a for n, _, a in steps if n == name))


@pytest.mark.parametrize(
    ("feeds", "says"),
    [
        ({}, "the model's inputs are ['x'], but [] were given"),
        ({"x": np.zeros((2, 4), np.float64)}, "input 'x' is float32 of [2, 4], given: float64 of [2, 4]"),
        ({"x": np.zeros((2, 5), np.float32)}, "input 'x' is float32 of [2, 4], given: float32 of [2, 5]"),
    ],
)
def test_wrong_inputs_are_refused(small: tuple[Writer, Path], feeds: Any, says: str) -> None:
    with pytest.raises(InputError) as error:
        mil.load(small[1]).run(feeds)
    assert says in str(error.value)


# --------------------------------------------------------------------------- what is not known is named


def one(tmp_path: Path, kind: str, opset: str = "CoreML8", **inputs: Any) -> Path:
    """A package of one op on x: `inputs` are its constants."""
    writer, x = Writer(opset), np.zeros((1, 2, 4), np.float32)
    writer.input("x", x)
    for name, given in inputs.items():
        writer.const(name, given)
    writer.op(kind, {"x": "x", **{name: name for name in inputs}}, {"out": x})
    return writer.save(tmp_path, ["out"])


@pytest.mark.parametrize(
    ("kind", "inputs", "says"),
    [
        ("tanhh", {}, "op 'tanhh' ('out') is not supported by the interpreter, 'tanh' is"),
        ("classify", {}, "op 'classify' ('out') is not supported by the interpreter; the artifact cannot be verified"),
        ("relu", {"slope": np.float32(1)}, "op 'relu' ('out') is not supported by the interpreter: its input 'slope'"),
        ("gelu", {"mode": "QUICK"}, "op 'gelu' ('out') is not supported by the interpreter: mode = 'QUICK'"),
        ("cast", {"dtype": "fp8"}, "op 'cast' ('out') is not supported by the interpreter: dtype = 'fp8'"),
        (
            "softmax",
            {"axis": np.float32(1)},
            "op 'softmax' ('out') is not supported by the interpreter: axis of type fp32",
        ),
        ("logical_not", {}, "op 'logical_not' ('out') is not supported by the interpreter: x of type fp32"),
        ("while_loop", {}, "op 'while_loop' ('out') is not supported by the interpreter: its input 'x'"),
    ],
)
def test_what_the_interpreter_does_not_know_is_named(tmp_path: Path, kind: str, inputs: Any, says: str) -> None:
    with pytest.raises(StageFailed) as error:
        mil.load(one(tmp_path, kind, **inputs))
    assert f"Core ML: {says}" in str(error.value)


@pytest.mark.parametrize(("number", "what"), [(12, "float64"), (13, "bfloat16"), (24, "int64")])
def test_a_type_that_the_interpreter_does_not_know_is_named(tmp_path: Path, number: int, what: str) -> None:
    writer = Writer()
    writer.input("x", np.zeros(2, np.float32))
    writer.function.inputs[0].type.tensorType.dataType = number
    with pytest.raises(StageFailed, match=f"'x' has data type {number}, which the interpreter does not support"):
        mil.load(writer.save(tmp_path, ["x"]))


def test_a_state_is_named(tmp_path: Path) -> None:
    writer = Writer()
    writer.input("cache", np.zeros(2, np.float32))
    kind = writer.function.inputs[0].type
    kind.ClearField("tensorType")
    mil_program.describe(kind.stateType.wrappedType, 11, (2,))
    with pytest.raises(StageFailed, match="'cache' is a stateType, which the interpreter does not support"):
        mil.load(writer.save(tmp_path, ["cache"]))


def test_a_shape_that_is_not_what_the_op_computes_names_the_op(tmp_path: Path) -> None:
    writer = Writer()
    writer.input("x", np.zeros((2, 3), np.float32))
    writer.op("relu", {"x": "x"}, {"out": np.zeros((3, 2), np.float32)})
    program = mil.load(writer.save(tmp_path, ["out"]))
    with pytest.raises(StageFailed, match=r"op 'relu' \('out'\): 'out' is fp32 of \[3, 2\] in the program"):
        program.run({"x": np.zeros((2, 3), np.float32)})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda w: w.op("relu", {}, {"v": np.zeros(2, np.float32)}), "has no input 'x'"),
        (
            lambda w: w.op("relu", {"x": "w"}, {"v": np.zeros(2, np.float32)}),
            "'w', which no earlier operation computes",
        ),
        (lambda w: w.op("relu", {"x": "y"}, {"y": np.zeros((2, 3), np.float32)}), "two values are named 'y'"),
    ],
)
def test_a_program_that_does_not_hang_together_is_refused(small: Any, change: Callable[..., Any], says: str) -> None:
    writer, folder = small
    change(writer)
    with pytest.raises(InputError) as error:
        mil.load(writer.save(folder, ["y"]))
    assert says in str(error.value)


# --------------------------------------------------------------------------- damaged files, and strangers'


def damage(package: Path, offset: int, new: bytes) -> None:
    file = weight_file(package)
    data = bytearray(file.read_bytes())
    data[offset : offset + len(new)] = new
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("offset", "new", "says"),
    [
        (64, b"\0\0\0\0", "there is no header"),
        (68, struct.pack("<I", 1), "it has type 1, but the program declares fp32"),
        (72, struct.pack("<Q", 44), "it has 44 bytes, fp32 of [3, 4] has another size"),
        (80, struct.pack("<Q", 2**62), "its data is outside the file"),
    ],
)
def test_a_damaged_weight_file_says_where(small: tuple[Writer, Path], offset: int, new: bytes, says: str) -> None:
    damage(small[1], offset, new)
    with pytest.raises(InputError) as error:
        mil.load(small[1])
    assert f"the tensor at 64 is damaged: {says}" in str(error.value)


def test_a_weight_file_cut_anywhere_is_refused(small: tuple[Writer, Path]) -> None:
    whole = weight_file(small[1]).read_bytes()
    for size in range(0, whole.rfind(whole.rstrip(b"\0")[-1:]) - 8, 7):
        weight_file(small[1]).write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"weight\.bin: the "):
            mil.load(small[1])


def test_a_weight_file_that_is_missing_is_refused(small: tuple[Writer, Path]) -> None:
    weight_file(small[1]).unlink()
    with pytest.raises(InputError, match=r"weight\.bin: the weights cannot be read"):
        mil.load(small[1])


@pytest.mark.parametrize("name", ["@model_path/../secret.bin", "/etc/passwd", "@model_path/weights/other.bin", ""])
def test_weights_elsewhere_are_not_read(small: tuple[Writer, Path], name: str) -> None:
    writer, folder = small
    writer.block.operations[0].attributes["val"].blobFileValue.fileName = name
    with pytest.raises(InputError, match=r"only @model_path/weights/weight\.bin is read"):
        mil.load(writer.save(folder, ["y"]))


@pytest.mark.parametrize("part", ["model.mlmodel", "weights/weight.bin", "weights"])
def test_a_link_out_of_the_package_is_not_followed(small: tuple[Writer, Path], part: str, tmp_path: Path) -> None:
    inside = small[1] / MODEL / part
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    inside.rename(outside)
    inside.symlink_to(outside)
    with pytest.raises(InputError, match="points outside the package"):
        mil.load(small[1])


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model\.mlmodel: cannot be read: No such file"):
        mil.load(tmp_path)


def test_a_model_that_is_no_program_is_refused(tmp_path: Path) -> None:
    writer = Writer()
    writer.model.ClearField("mlProgram")
    writer.model.neuralNetwork.SetInParent()
    with pytest.raises(InputError, match="a Core ML neuralNetwork, not a program"):
        mil.load(writer.save(tmp_path, []))


# --------------------------------------------------------------------------- what is imported

IMPORTS = """
import sys
from pathlib import Path
from edgecompress.engines.coreml import mil
print([m for m in ("torch", "numpy", "coremltools") if m in sys.modules])
import numpy
mil.load(Path(sys.argv[1])).run({"x": numpy.ones((2, 4), "float32")})
print([m for m in ("tensorflow", "coremltools") if m in sys.modules])
"""


def test_reading_a_package_imports_neither_coremltools_nor_tensorflow(small: tuple[Writer, Path]) -> None:
    argv = [sys.executable, "-c", IMPORTS, str(small[1])]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:2] == ["[]", "[]"]


# --------------------------------------------------------------------------- nets, converted by coremltools


@pytest.fixture(scope="module")
def ct() -> Iterator[Any]:
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]
    logging.disable(logging.WARNING)
    yield pytest.importorskip("coremltools")
    logging.disable(logging.NOTSET)


def listener() -> tuple[Any, list[Any]]:
    """A GRU, which coremltools writes as a loop, then an RNN and an LSTM of both directions."""
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gru, self.rnn = nn.GRU(6, 8, batch_first=True), nn.RNN(8, 5, batch_first=True, nonlinearity="relu")
            self.lstm = nn.LSTM(5, 4, batch_first=True, bidirectional=True)

        def forward(self, x: Any) -> Any:
            return self.lstm(self.rnn(self.gru(x)[0])[0])[0]

    return Net(), [torch.randn(2, 6, 6)]


def converted(ct: Any, net: Any, samples: list[Any], half: bool = True, **options: Any) -> Any:
    """A Core ML model of a torch net; its inputs are called x0, x1, ..."""
    import torch

    kinds = {torch.int32: np.int32, torch.float32: np.float32}
    inputs = [ct.TensorType(f"x{i}", tuple(x.shape), kinds[x.dtype]) for i, x in enumerate(samples)]
    with torch.no_grad():
        traced = torch.jit.trace(net.eval(), tuple(samples))
    given: dict[str, Any] = {"inputs": inputs, "minimum_deployment_target": ct.target.iOS17, **options}
    precision = ct.precision.FLOAT16 if half else ct.precision.FLOAT32
    return ct.convert(traced, convert_to="mlprogram", compute_precision=precision, skip_model_load=True, **given)


def saved(model: Any, folder: Path) -> mil.Program:
    model.save(str(folder / "m.mlpackage"))
    return mil.load(folder / "m.mlpackage")


def answers(net: Any, samples: list[Any]) -> list[Any]:
    import torch

    with torch.no_grad():
        result = net(*samples)
    return [r.numpy() for r in (result if isinstance(result, tuple) else (result,))]


def run(program: mil.Program, samples: list[Any]) -> list[Any]:
    feeds = {
        name: x.numpy().astype(program.inputs[name].dtype) for name, x in zip(program.inputs, samples, strict=True)
    }
    return list(program.run(feeds).values())


def test_a_program_of_flexible_shape_runs_at_any_size(ct: Any, tmp_path: Path) -> None:
    import torch

    net, samples = listener()
    flexible = ct.TensorType("x0", (ct.RangeDim(1, 8, 2), ct.RangeDim(1, 9, 6), 6), np.float32)
    program = saved(converted(ct, net, samples, False, inputs=[flexible]), tmp_path)
    assert program.inputs["x0"].shape == (None, None, 6)
    for batch, length in ((1, 1), (3, 9)):
        x = torch.randn(batch, length, 6)
        assert sqnr_db(answers(net, [x])[0], run(program, [x])[0]) > SINGLE_DB


def compress(ct: Any, way: str, model: Any) -> Any:
    """A compressed model, as coremltools makes it."""
    import coremltools.optimize.coreml as cto

    def do(function: Any, config: Any, given: Any, joint: dict[str, bool] | None = None, **options: Any) -> Any:
        settings = cto.OptimizationConfig(config(weight_threshold=100, **options))
        return function(given, settings, **joint or {})

    linear = partial(do, cto.linear_quantize_weights, cto.OpLinearQuantizerConfig)
    palette = partial(do, cto.palettize_weights, cto.OpPalettizerConfig)
    prune = partial(do, cto.prune_weights, cto.OpMagnitudePrunerConfig)
    both = {"joint_compression": True}
    ways: dict[str, Callable[[], Any]] = {
        "int8": lambda: linear(model, mode="linear_symmetric"),
        "uint8": lambda: linear(model, mode="linear", dtype="uint8"),
        "palette1": lambda: palette(model, nbits=1, mode="uniform"),
        "palette2": lambda: palette(model, nbits=2, mode="uniform"),
        "palette4": lambda: palette(model, nbits=4, mode="uniform"),
        "palette6": lambda: palette(model, nbits=6, mode="uniform"),
        "palette8": lambda: palette(model, nbits=8, mode="uniform"),
        "sparse": lambda: prune(model, target_sparsity=0.5),
        "18 int8": lambda: linear(model, mode="linear_symmetric"),
        "18 int4 blocks": lambda: linear(
            model, mode="linear_symmetric", dtype="int4", granularity="per_block", block_size=16
        ),
        "18 uint4 blocks": lambda: linear(model, mode="linear", dtype="uint4", granularity="per_block", block_size=16),
        "18 palette3": lambda: palette(
            model, nbits=3, mode="uniform", granularity="per_grouped_channel", group_size=16
        ),
        "18 vectors": lambda: palette(model, nbits=2, mode="kmeans", cluster_dim=2),
        "18 sparse": lambda: prune(model, target_sparsity=0.5),
        "18 sparse palette": lambda: palette(prune(model, target_sparsity=0.5), both, nbits=4, mode="uniform"),
        "18 sparse int8": lambda: linear(prune(model, target_sparsity=0.5), both, mode="linear_symmetric"),
    }
    return ways[way]()


COMPRESSED = {  # the way to the ops that it must bring
    "int8": "affine_dequantize",
    "uint8": "affine_dequantize",
    **{f"palette{bits}": "lut_to_dense" for bits in (1, 2, 4, 6, 8)},
    "sparse": "sparse_to_dense",
    "18 int8": "blockwise_shift_scale",
    "18 int4 blocks": "blockwise_shift_scale",
    "18 uint4 blocks": "blockwise_shift_scale",
    "18 palette3": "lut_to_dense",
    "18 vectors": "lut_to_dense",
    "18 sparse": "sparse_to_dense",
    "18 sparse palette": "lut_to_sparse",
    "18 sparse int8": "sparse_blockwise_shift_scale",
}


@pytest.fixture(scope="module")
def plain(ct: Any) -> dict[tuple[str, bool], Any]:
    """Two layers, converted once for each target and precision; compressing one leaves it as it is."""
    from torch import nn

    net, x = _mixer(nn)
    targets = [(t, h) for t in ("iOS17", "iOS18") for h in (False, True)]
    return {(t, h): converted(ct, net, [x], h, minimum_deployment_target=ct.target[t]) for t, h in targets}


def _mixer(nn: Any) -> tuple[Any, Any]:
    import torch

    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(4, 32, 3), nn.ReLU(), nn.Conv2d(32, 16, 1), nn.Flatten(), nn.Linear(576, 16))
    return net, torch.randn(1, 4, 8, 8)


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
@pytest.mark.parametrize("way", COMPRESSED)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compressed_weights_are_those_that_coremltools_unpacks(
    ct: Any, plain: Any, way: str, half: bool, tmp_path: Path
) -> None:
    import coremltools.optimize.coreml as cto

    from edgecompress.engines.coreml import package

    model = compress(ct, way, plain["iOS18" if way.startswith("18") else "iOS17", half])
    compressed = saved(model, tmp_path / "compressed")
    message, _ = package.read(tmp_path / "compressed" / "m.mlpackage")
    kinds = {
        op.type for f in message.mlProgram.functions.values() for op in f.block_specializations[f.opset].operations
    }
    assert f"constexpr_{COMPRESSED[way]}" in kinds
    unpacked = saved(cto.decompress_weights(model), tmp_path / "unpacked")
    feeds = {"x0": np.random.default_rng(0).standard_normal((1, 4, 8, 8)).astype(np.float32)}
    for got, want in zip(compressed.run(feeds).values(), unpacked.run(feeds).values(), strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_constant_stored_in_half_is_cast_when_loaded(tmp_path: Path) -> None:
    writer, x = Writer(), np.array([1.5, 2.5], np.float32)
    writer.input("x", x)
    writer.const("half", np.array([0.1, 0.2], np.float16))
    cast = writer.op("constexpr_cast", {}, {"full": x})
    cast.attributes["source_val"].CopyFrom(mil_program.value(np.array([0.1, 0.2], np.float16)))
    cast.attributes["output_dtype"].CopyFrom(mil_program.value("fp32"))
    writer.op("add", {"x": "x", "y": "full"}, {"out": x})
    got = mil.load(writer.save(tmp_path, ["out"])).run({"x": x})["out"]
    np.testing.assert_array_equal(got, x + np.array([0.1, 0.2], np.float16).astype(np.float32))


# --------------------------------------------------------------------------- the nets of the examples


def example(name: str) -> Any:
    from test_examples import net

    return net(name).build().eval()


EXAMPLES = {"resnet20": (3, 32, 32), "textgenrnn": (40,)}


@pytest.mark.shared
@pytest.mark.parametrize("half", [False, True], ids=["fp32", "fp16"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_as_in_torch(ct: Any, name: str, half: bool, tmp_path: Path) -> None:
    import torch

    torch.manual_seed(0)
    shape = (1, *EXAMPLES[name])
    x = torch.randint(1, 90, shape, dtype=torch.int32) if len(shape) == 2 else torch.randn(shape)
    net = example(name)
    program = saved(converted(ct, net, [x], half), tmp_path)
    assert sqnr_db(answers(net, [x])[0], run(program, [x])[0]) > (HALF_DB if half else SINGLE_DB)


@pytest.mark.shared
@pytest.mark.prove
def test_mobilenetv2_loses_in_fp16_what_its_weights_lose(ct: Any, tmp_path: Path) -> None:
    """The first depthwise convolution has weights of 56 that cancel: rounding them alone costs as much as all of it."""
    import torch

    torch.manual_seed(0)
    net, rounded, x = example("mobilenetv2"), example("mobilenetv2"), torch.randn(1, 3, 224, 224)
    want = answers(net, [x])[0]
    assert sqnr_db(want, run(saved(converted(ct, net, [x], False), tmp_path / "full"), [x])[0]) > SINGLE_DB
    got = run(saved(converted(ct, net, [x], True), tmp_path / "half"), [x])[0]
    for parameter in rounded.parameters():
        parameter.data = parameter.data.half().float()
    assert abs(sqnr_db(want, got) - sqnr_db(want, answers(rounded, [x])[0])) < 3


@pytest.mark.parametrize("field", ["function", "opset"])
def test_a_program_that_names_no_function_of_its_own_is_refused_by_each_reader(field: str, tmp_path: Path) -> None:
    pytest.importorskip("coremltools")
    model = package.messages("Model_pb2").Model()
    model.mlProgram.functions["other" if field == "function" else "main"].opset = "CoreML9"
    file = tmp_path / "net.mlpackage" / mlpackage.MODEL
    file.parent.mkdir(parents=True)
    file.write_bytes(model.SerializeToString())
    readers = (mil.load, coreml_precision.net, lambda folder: mil.write_with_layer_outputs(folder, tmp_path / "more"))
    for read in readers:
        with pytest.raises(InputError, match=r"has no function 'main'|has no block for its opset 'CoreML9'"):
            read(tmp_path / "net.mlpackage")
    assert not (tmp_path / "more").exists()
