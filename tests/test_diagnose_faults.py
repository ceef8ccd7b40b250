"""A fault planted in an artifact of each format is named first by diagnose, and the tables have the same rows."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import diagnosed
import numpy as np
import pytest

from edgecompress.cli.main import main
from edgecompress.core import registry
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.stages import diagnose
from edgecompress.stages.diagnose import layer_outputs, layers, noise_passes

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")

RUNTIMES = {"onnx": "onnxruntime", "litert": "litert_torch", "executorch": "executorch", "coreml": "coremltools"}
LONG = ("executorch", "coreml")  # with `make prove`: what judges is the same
PARAMS = [pytest.param(name, marks=[pytest.mark.prove] if name in LONG else []) for name in RUNTIMES]
FAULTY = "depth"  # the layer whose channels are exchanged


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what the tests share is made."""
    return tmp_path_factory.mktemp("faults")


@pytest.fixture(scope="module")
def given(folder: Path) -> dict[str, Artifact]:
    """The source and its data."""
    return {
        "source": diagnosed.program(diagnosed.net(), folder / "source"),
        "samples": diagnosed.samples(folder / "data"),
    }


def turned_round(made: Any) -> Any:
    """The net with the channels of one layer in the reverse order."""
    layer = getattr(made, FAULTY)
    with torch.no_grad():
        layer.weight.copy_(layer.weight.flip(0))
    return made


def broken(artifact: Artifact, out: Path) -> Artifact:
    """The artifact with the bytes of one layer's weights exchanged for those of another one's, as it stores them."""
    shutil.copytree(artifact.path, out)
    orders = (lambda w: w, lambda w: w.transpose(1, 2, 3, 0))  # torch's and TFLite's
    weight = getattr(diagnosed.net(), FAULTY).weight.detach().numpy()
    for file in artifact.files():
        data = file.read_bytes()
        for order in orders:
            right, wrong = (np.ascontiguousarray(order(w)).tobytes() for w in (weight, weight[::-1]))
            data = data.replace(right, wrong)
        (out / file.relative_to(artifact.path)).write_bytes(data)
    made = Artifact(out, artifact.kind, artifact.inputs, artifact.outputs, artifact.facts).write()
    assert made.sha256 != artifact.sha256, "its weights are not there as they were"
    return made


@pytest.fixture(scope="module", params=PARAMS)
def pair(request: Any, folder: Path, given: dict[str, Artifact]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """A runtime, the diagnosis of its sound artifact, and that of the broken one."""
    runtime = request.param
    pytest.importorskip(RUNTIMES[runtime])
    place = folder / runtime
    source = {**given, "before": given["source"]}
    sound = diagnosed.stage(f"runtimes.{runtime}:export", {"model": given["source"]}, place / "sound")
    if runtime == "executorch":  # its files are packed for the processor: the fault goes in before
        before = diagnosed.program(turned_round(diagnosed.net()), place / "before")
        faulty = diagnosed.stage(f"runtimes.{runtime}:export", {"model": before}, place / "faulty")
    else:
        before, faulty = given["source"], broken(sound, place / "faulty")
    found = diagnosed.diagnosed(runtime, {**source, "model": sound}, place / "of-sound")
    wrong = diagnosed.diagnosed(runtime, {**source, "before": before, "model": faulty}, place / "of-faulty")
    return runtime, found, wrong


def rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    return [(row["name"], row["type"]) for row in facts["layers"]]


def test_the_fault_is_named_first_and_a_sound_artifact_has_none(pair: Any) -> None:
    _, sound, wrong = pair
    assert (sound["advice"], sound["first"]) == ("", None), diagnosed.told(sound)
    assert (wrong["advice"], wrong["first"]) == ("fault", FAULTY), diagnosed.told(wrong)
    assert wrong["same"] == pytest.approx(0, abs=1e-5)


def test_the_table_is_that_of_every_other_format(pair: Any) -> None:
    _, sound, wrong = pair
    expected = [
        ("stem", "conv2d"),
        ("depth", "conv2d"),
        ("point", "conv2d"),
        ("add", "add"),
        ("mean", "mean"),
        ("head", "linear"),
    ]
    assert rows(sound) == rows(wrong) == expected
    with_taps = [row["name"] for row in sound["layers"] if row["output"]]
    assert {*diagnosed.LAYERS} <= {*with_taps}, diagnosed.told(sound)
    assert not sound["unmatched"]
    for row in sound["layers"]:
        numbers = [row["sqnr_db"], row["own_sqnr_db"], row["growth_db"]]
        assert row["reason"] or None not in numbers


def test_a_channel_blown_up_and_made_up_for_is_named_under_plain_int8(folder: Path, given: dict[str, Artifact]) -> None:
    pytest.importorskip("onnxruntime")
    place = folder / "disaster"
    source = diagnosed.program(diagnosed.Chain(100.0), place / "source")
    plain = diagnosed.stage("runtimes.onnx:export", {"model": source}, place / "onnx")
    inputs = {"model": plain, "samples": given["samples"]}
    int8 = diagnosed.stage("techniques.ptq_int8:apply", inputs, place / "int8")
    found = diagnosed.diagnosed("onnx", {**given, "source": source, "model": int8}, place / "diagnosed")
    assert (found["advice"], found["first"]) == ("equalize", "depth"), diagnosed.told(found)
    row = next(row for row in found["layers"] if row["name"] == "depth")
    assert row["channel"] == 3 and row["outlier"] > 30 and row["dtype"] == "uint8"


def test_a_file_from_outside_is_held_against_a_file(
    folder: Path, given: dict[str, Artifact], capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither is a torch net: own errors are not known, the fault is found all the same."""
    pytest.importorskip("onnxruntime")
    place = folder / "outside"
    plain = diagnosed.stage("runtimes.onnx:export", {"model": given["source"]}, place / "plain")
    files = [str(artifact.file(".onnx")) for artifact in (plain, broken(plain, place / "theirs"))]
    asked = ["--data", "random", "--items", "4", "--json", "--store", str(place / "store"), "--out", str(place / "out")]
    assert main(["diagnose", files[0], "--artifact", files[1], *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    row = next(row for row in found["layers"] if row["name"] == found["first"])
    assert (found["advice"], row["module"]) == ("fault", FAULTY), diagnosed.told(found)
    assert row["own_sqnr_db"] is None and "torch source" in row["reason"]
    assert json.loads((place / "out" / "diagnosis.json").read_text())["says"] == found["says"]
    for page in ("diagnosis.html", "diagnosis.md"):
        assert str(found["source"]) in (place / "out" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("activation", ["Tanh", "LeakyRelu"])
def test_a_layer_before_an_activation_is_not_taken_for_the_broken_one_behind_it(
    activation: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The quantized file has a layer before the activation, which the source computes as one with it."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, floats, seeded = onnx.helper, onnx.TensorProto.FLOAT, np.random.default_rng(0)
    weights = [(seeded.normal(size=(4, 4, 3, 3)) / 12).astype(np.float32) for _ in range(2)]
    more = {"alpha": 0.5} if activation == "LeakyRelu" else {}
    for file in ("source.onnx", "theirs.onnx"):
        nodes, at = [], "x"
        constants = [onnx.numpy_helper.from_array(weight, f"w{i}") for i, weight in enumerate(weights)]
        constants.append(onnx.numpy_helper.from_array(np.array(128, np.uint8), "zero"))
        for i in range(2):
            for kind, name, also in (("Conv", f"c{i}", [f"w{i}"]), (activation, f"a{i}", [])):
                given = {"pads": [1] * 4} if also else more
                nodes.append(helper.make_node(kind, [at, *also], [name], f"{kind}{i}", **given))
                at = name
                if file == "theirs.onnx":
                    scale = np.array(1e-4 if name == "a0" else 2 / 128, np.float32)  # a0 is cut off
                    constants.append(onnx.numpy_helper.from_array(scale, f"s_{name}"))
                    nodes.append(helper.make_node("QuantizeLinear", [name, f"s_{name}", "zero"], [f"q_{name}"]))
                    nodes.append(
                        helper.make_node("DequantizeLinear", [f"q_{name}", f"s_{name}", "zero"], [f"d_{name}"])
                    )
                    at = f"d_{name}"
        ports = [helper.make_tensor_value_info(name, floats, ["n", 4, 8, 8]) for name in ("x", at)]
        graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], constants)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / file)
    files = [str(tmp_path / file) for file in ("source.onnx", "theirs.onnx")]
    asked = ["--data", "random", "--items", "4", "--json", "--store", str(tmp_path / "store")]
    assert main(["diagnose", files[0], "--artifact", files[1], *asked]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["operator"] for row in found["layers"]} == {f"Conv{i}": f"{activation}{i}" for i in (0, 1)}
    assert found["first"] == "Conv0" and f"{activation}0 in the file" in found["says"], found["says"]


def test_an_overflow_of_half_precision_is_named_in_the_runtime(folder: Path, given: dict[str, Artifact]) -> None:
    onnx = pytest.importorskip("onnx")
    place = folder / "overflow"
    source = diagnosed.program(diagnosed.Chain(1e5), place / "source")
    plain = diagnosed.stage("runtimes.onnx:export", {"model": source}, place / "onnx")
    (place / "half").mkdir()
    half = registry.load("techniques", "onnx_fp16").converted(onnx.load(plain.file(".onnx")), ())  # without islands
    onnx.save(half, place / "half" / "model.onnx")
    model = Artifact(place / "half", "onnx", plain.inputs, plain.outputs).write()
    found = diagnosed.diagnosed("onnx", {**given, "source": source, "model": model}, place / "diagnosed")
    assert (found["advice"], found["first"]) == ("overflow", "depth"), diagnosed.told(found)


# --------------------------------------------------------------------------- the passes alone


def test_an_overflow_is_named_where_it_begins(given: dict[str, Artifact], tmp_path: Path) -> None:
    """Layer outputs as a half-precision file would have them: from one layer on nothing is finite."""
    source = layers.load(given["source"])
    items = [torch.from_numpy(batch["x"]) for batch in tensors.batches(given["samples"], "calibrate")]
    with torch.no_grad():
        runs = [source.values([item]) for item in items]
    found = []
    for layer in source.layers:
        values = np.stack([run[layer.nodes[-1]].numpy() for run in runs])
        if layer.name == "point":
            values[2:, 0, 3, 0, 0] = np.inf
        elif found and not np.isfinite(found[-1].values).all():
            values[2:] = np.nan
        row = {"output": layer.name, "operator": f"op_{layer.name}", "type": "Conv", "dtype": "float16"}
        found.append(layer_outputs.LayerValues(row, values.astype(np.float16)))
    options = {"split": "calibrate", "items": diagnosed.ITEMS}
    asked = Request({**given, "tapped": given["source"]}, tmp_path, options)
    told = diagnose.facts(
        noise_passes.over(asked, layer_outputs.NetOutputs({"output": found[-1].values}, tuple(found)))
    )
    assert (told["advice"], told["first"]) == ("overflow", "point"), diagnosed.told(told)
    assert [row["not_finite"] for row in told["layers"]] == [0, 0, 6, 6, 6, 6]
    assert min(row["own_sqnr_db"] for row in told["layers"]) > 50


class InPlace(torch.nn.Module):
    """An activation and a sum that overwrite what they read."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.relu = torch.nn.Conv2d(3, 4, 1), torch.nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 3, 8, 8] -> [n, 4, 8, 8]."""
        y = self.relu(self.conv(x))
        y += 1.0
        return y * self.conv(x)


def test_operators_in_place_leave_the_values_before_them(tmp_path: Path) -> None:
    net, x = InPlace().eval(), torch.randn(1, 3, 8, 8)
    source = layers.load(diagnosed.program(net, tmp_path / "net"))
    with torch.no_grad():
        values = source.values([x])
        assert torch.equal(source.float_outputs(values)[0], net(x))
    assert [layer.type for layer in source.layers] == ["conv2d", "conv2d", "mul"]
    first = source.layers[0]
    assert values[first.nodes[0]].min() < 0 <= values[first.nodes[1]].min()
    assert len({layer.name for layer in source.layers}) == 3
