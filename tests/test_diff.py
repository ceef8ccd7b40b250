"""`diff`: which operator departs first, why, and what is equal; pairs of formats, ends by name and shape, bad pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgecompress
from edgecompress.cli import main
from edgecompress.core.errors import InputError
from edgecompress.core.watched_graph import WatchedOperator
from edgecompress.stages.diff import departure, kinds, match
from edgecompress.stages.diff.departure import Departure
from edgecompress.stages.diff.kinds import constants
from edgecompress.stages.diff.match import Pair
from edgecompress.stages.diff.sides import Side, Value
from edgecompress.stages.diff.words import family

RNG = np.random.default_rng(0)
FLOAT = departure.LEVELS["float32"]


def side(values: dict[str, np.ndarray], operators: list[WatchedOperator], **constants: np.ndarray) -> Side:
    held = {name: Value(name, lambda array=array: array) for name, array in values.items()}
    last = [*values][-1]
    return Side(held, operators, {"y": values[last]}, {"y": last}, constants.get)


def op(kind: str, reads: str, writes: str, *constants: str, **attributes: Any) -> WatchedOperator:
    return WatchedOperator(f"{kind}_{writes}", kind, (reads,), (writes,), constants, attributes)


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("conv2d", "convolution"),
        ("DEPTHWISE_CONV_2D", "convolution"),
        ("ConvTranspose", "convolution"),
        ("addmm", "product"),
        ("FULLY_CONNECTED", "product"),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM", "recurrent"),
        ("_native_batch_norm_legit_no_training", "batch norm"),
        ("FusedBatchNormV3", "batch norm"),
        ("native_layer_norm", "norm"),
        ("relu6", "activation"),
        ("LEAKY_RELU", "activation"),
        ("AveragePool", "pool"),
        ("upsample_bilinear2d.vec", "resize"),
        ("STRIDED_SLICE", "part"),
        ("BiasAdd", "arithmetic"),
        ("FakeQuantize", "rounding"),
        ("Frobnicate", "frobnicate"),
    ],
)
def test_operators_of_all_formats_have_one_word(kind: str, word: str) -> None:
    assert family(kind) == word


def test_a_multiple_of_a_value_is_not_that_value() -> None:
    """Cosines cannot tell q and q / sqrt(d) apart."""
    x, q = (RNG.normal(size=(2, 1, 6, 8)) for _ in range(2))
    a = side({"q": q, "scaled": q / 8, "x": x}, [])
    b = side({"one": q / 8, "two": x.transpose(0, 1, 3, 2), "three": q}, [])
    found = match.pairs(a, b).of_a
    assert {name: pair.b for name, pair in found.items()} == {"q": "three", "scaled": "one", "x": "two"}
    assert found["x"].axes == (0, 2, 1)
    assert all(pair.near_db == 200 for pair in found.values())


def test_a_value_that_is_not_finite_is_not_near() -> None:
    x = RNG.normal(size=(2, 1, 50))
    z = x.copy()
    z[0, 0, 3] = np.inf
    assert match.pairs(side({"x": x}, []), side({"z": z}, [])).of_a["x"].near_db == -200


def test_the_departure_is_the_first_with_equal_inputs() -> None:
    """Of a chain: what follows from the fault is not at fault; a value that B fused away is no departure either."""
    x, fused, good, bad, end = (RNG.normal(size=(2, 1, 8)) for _ in range(5))
    chain = [
        op("conv", "x", "fused"),
        op("relu", "fused", "good"),
        op("linear", "good", "bad"),
        op("relu", "bad", "end"),
    ]
    a = side({"x": x, "fused": fused, "good": good, "bad": bad, "end": end}, chain)
    near = {"x": 200.0, "fused": 3.0, "good": 130.0, "bad": 20.0, "end": 15.0}
    equal = departure.equal_values(a, near, FLOAT, 100.0)
    assert equal == {"x", "good"}
    assert departure.origins(a, equal, ["end"]) == ["bad"]


def test_noise_that_grows_slowly_is_no_departure() -> None:
    values = {f"v{i}": RNG.normal(size=(2, 1, 4)) for i in range(6)}
    chain = [op("linear", f"v{i}", f"v{i + 1}") for i in range(5)]
    near = {f"v{i}": 130.0 - 9 * i for i in range(6)}
    assert departure.equal_values(side(values, chain), near, FLOAT, 96.0) == {*values}


Change = Callable[[np.ndarray], np.ndarray]


def scaled(channel: int, factor: float) -> Change:
    def change(x: np.ndarray) -> np.ndarray:
        z = x.copy()
        z[:, :, channel] *= factor
        return z

    return change


def padded(x: np.ndarray) -> np.ndarray:
    z = x.copy()
    z[..., 0, :] += 1
    return z


@pytest.mark.parametrize(
    ("operator", "change", "word"),
    [
        ("conv2d", scaled(3, 2.0), "channel scale"),
        ("conv2d", lambda x: x + RNG.normal(size=(1, 1, 8, 1, 1)), "bias"),
        ("conv2d", lambda x: x * RNG.uniform(0.5, 2, (1, 1, 8, 1, 1)) + RNG.normal(size=(1, 1, 8, 1, 1)), "batch norm"),
        ("conv2d", padded, "padding"),
        ("conv2d", lambda x: np.clip(x, -1, 1), "saturated range"),
        ("conv2d", lambda x: x * 1.5, "scale"),
        ("conv2d", lambda x: np.where(x > 2, np.nan, x), "not finite"),
        ("reshape", lambda x: x.transpose(0, 1, 2, 4, 3), "layout"),
        ("gelu", lambda x: x * (x > 0), "activation"),
        ("upsample_nearest2d", lambda x: np.roll(x, 1, -1), "resize mode"),
        ("avg_pool2d", lambda x: x + 0.1 * np.roll(x, 1, -1), "padding"),
    ],
)
def test_the_values_decide_the_kind(operator: str, change: Change, word: str) -> None:
    x = RNG.normal(size=(2, 2, 8, 6, 6))
    sides = [side({"y": array}, [op(operator, "x", "y")]) for array in (x, change(x))]
    chain = [op(operator, "x", "y")]
    found = Departure(Pair("y", "y", None, 0.9, 10.0), chain, chain, 200.0, ("x",))
    assert kinds.kind(sides[0], sides[1], found, "float32").kind == word


def test_weights_are_compared_in_every_order_of_axes() -> None:
    w, other = RNG.normal(size=(5, 7)).astype("f4"), RNG.normal(size=(5, 7)).astype("f4")
    assert constants.is_same(w, w.T, 1e-3)
    assert not constants.is_same(w, other, 1e-3)
    assert constants.is_proportional(w, w * np.arange(1, 8, dtype="f4"), 1e-3)
    assert not constants.is_proportional(w, other, 1e-3)


# --------------------------------------------------------------------------- real files


torch = pytest.importorskip("torch")


class Net(torch.nn.Module):  # type: ignore[misc]
    """Two heads of one size behind convolutions."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        nn = torch.nn
        self.stem, self.bn = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.bn.running_var.uniform_(0.5, 2)
        self.mid, self.one, self.two = nn.Conv2d(8, 8, 3, 1, 1), nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.mid(torch.relu(self.bn(self.stem(x))))).mean((2, 3))
        return self.one(x), self.two(x)


def exported(net: Any, file: Path, names: tuple[str, ...] = ("one", "two"), x: str = "x") -> Path:
    arguments: dict[str, Any] = {"input_names": [x], "output_names": [*names], "dynamo": False}
    torch.onnx.export(net.eval(), (torch.zeros(1, 3, 16, 16),), file, **arguments)
    return file


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    pytest.importorskip("onnxruntime")
    folder = tmp_path_factory.mktemp("pair")
    wrong = Net()
    wrong.mid.weight.data[2] *= 3
    np.savez(folder / "x.npz", x=RNG.normal(size=(12, 3, 16, 16)).astype("f4"))
    return {
        "good": exported(Net(), folder / "good.onnx"),
        "wrong": exported(wrong, folder / "wrong.onnx", x="input_1"),
        "swapped": exported(Net(), folder / "swapped.onnx", names=("two", "one")),
        "data": folder / "x.npz",
        "store": folder / "store",
    }


def asked(pair: dict[str, Path], a: str, b: str, **how: Any) -> edgecompress.Diff:
    options = edgecompress.Options(store=pair["store"])
    return edgecompress.diff(pair[a], pair[b], data=pair["data"], options=options, **how)


def test_a_wrong_channel_is_named_and_the_page_shows_it(pair: dict[str, Path]) -> None:
    found = asked(pair, "good", "wrong")
    assert (found.exit_code, found.facts["kind"]) == (1, "channel scale")
    assert found.facts["first"]["a"] == "/mid/Conv"
    assert "channel 2 of 8" in str(found)
    assert any("input_1" in each for each in found.facts["assumed"])
    aligned = found.facts["aligned"]
    assert aligned["compute"] == aligned["compute_of"] == 4


def test_diagnose_tells_the_kind_of_a_file_from_outside(pair: dict[str, Path]) -> None:
    options = edgecompress.Options(store=pair["store"])
    found = edgecompress.diagnose(pair["good"], artifact=pair["wrong"], data=pair["data"], options=options).facts
    assert found["kind"] == "channel scale"
    assert "channel 2 of 8" in found["says"]


def test_equal_files_are_equal(pair: dict[str, Path]) -> None:
    found = asked(pair, "good", "good")
    assert (found.exit_code, found.facts["first"]) == (0, None)


def test_swapped_outputs_accuse_no_operator(pair: dict[str, Path]) -> None:
    found = asked(pair, "good", "swapped")
    assert (found.exit_code, found.facts["kind"], found.facts["first"]) == (1, "swapped outputs", None)


def test_map_says_what_is_what(pair: dict[str, Path]) -> None:
    assert asked(pair, "good", "swapped", map={"one": "two", "two": "one"}).exit_code == 0
    with pytest.raises(InputError, match="--map three=one: A has no 'three'"):
        asked(pair, "good", "swapped", map={"three": "one"})


def test_the_command_has_the_exit_code_and_json(pair: dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["diff", str(pair["good"]), str(pair["wrong"]), "--data", str(pair["data"]), "--store", str(pair["store"])]
    assert main.main([*words, "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["verdict"], told["kind"]) == ("differ", "channel scale")


class Other(torch.nn.Module):  # type: ignore[misc]
    """Another task: no output of the same size."""

    def forward(self, x: Any) -> Any:
        return x.mean((2, 3))


def test_models_of_other_tasks_are_one_clear_line(pair: dict[str, Path], tmp_path: Path) -> None:
    other = exported(Other(), tmp_path / "other.onnx", names=("y",))
    with pytest.raises(InputError, match=r"no output in common: A gives one .*; B gives y"):
        asked({**pair, "other": other}, "good", "other")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("empty.onnx", b"", "empty.onnx"),
        ("x.pte", b"no program", "x.pte"),
        ("x.xml", b"<net", "OpenVINO cannot read it"),
    ],
)
def test_damaged_files_are_one_clear_line(
    pair: dict[str, Path], tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(edgecompress.EdgeError, match=says) as caught:
        asked({**pair, "bad": tmp_path / name}, "good", "bad")
    assert "\n" not in str(caught.value)


FORMATS = ["litert", "openvino", "coremltools", "executorch", "pt2"]


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_stands_beside_onnx(pair: dict[str, Path], tmp_path: Path, form: str) -> None:
    net, x = Net().eval(), torch.zeros(1, 3, 16, 16)
    program = torch.export.export(net, (x,))
    if form == "litert":
        other = tmp_path / "net.tflite"
        pytest.importorskip("litert_torch").convert(net, (x,)).export(str(other))
    elif form == "openvino":
        openvino, other = pytest.importorskip("openvino"), tmp_path / "net.xml"
        openvino.save_model(openvino.convert_model(pair["good"]), other, compress_to_fp16=False)
    elif form == "coremltools":
        ct, other = pytest.importorskip("coremltools"), tmp_path / "net.mlpackage"
        takes = [ct.TensorType(name="x", shape=(1, 3, 16, 16))]
        precision = ct.precision.FLOAT32
        made = ct.convert(torch.jit.trace(net, x), inputs=takes, compute_precision=precision, skip_model_load=True)
        made.save(str(other))
    elif form == "executorch":
        exir, other = pytest.importorskip("executorch.exir"), tmp_path / "net.pte"
        other.write_bytes(exir.to_edge(program).to_executorch().buffer)
    else:
        other = tmp_path / "net.pt2"
        torch.export.save(program, other)
    found = asked({**pair, "other": other}, "good", "other")
    assert (found.exit_code, found.facts["first"]) == (0, None)
    alone = form == "executorch"
    assert found.facts["aligned"]["compute"] == (0 if alone else 4)
