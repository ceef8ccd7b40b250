"""Tapped TFLite files: the same answers, what each layer gave as in the source; strangers' files in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vectors import sqnr_db

from edgecompress.core import config, environments, registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest
from edgecompress.engines.litert import layer_outputs, model_edits, quantizer
from edgecompress.engines.litert import model_file as tflite_file
from edgecompress.engines.litert.runtimes import litert, tflite
from edgecompress.plugins.transports import host
from edgecompress.testing import zoo

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("ai_edge_quantizer")

ITEMS = 8
TAP = TensorSpec("tap", ())
COMPRESSED = ("", "litert_int8", "litert_dynamic", "litert_fp16")
LEAST_DB = {"": 100.0, "litert_int8": 20.0, "litert_dynamic": 20.0, "litert_fp16": 50.0}
elder = pytest.mark.skipif(bool(environments.missing(tflite)), reason=f"run `{environments.install_command(tflite)}`")


class Small(torch.nn.Module):
    """Convolutions of both kinds, a shortcut, a pool, a layer behind them; it keeps what each gave."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
        self.depthwise = torch.nn.Conv2d(8, 8, 3, 1, 1, groups=8)
        self.project = torch.nn.Conv2d(8, 8, 1)
        self.head = torch.nn.Linear(8, 5)
        self.kept: dict[str, Any] = {}

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """image [n, 3, 12, 12] -> logits [n, 5]."""
        stem = self.stem(image)
        depthwise = torch.nn.functional.relu6(self.depthwise(stem))
        project = self.project(depthwise)
        added = project + stem
        pooled = torch.nn.functional.adaptive_avg_pool2d(added, 1).flatten(1)
        logits = self.head(pooled)
        if not torch.compiler.is_compiling():
            self.kept = {"stem.0": stem, "depthwise": depthwise, "project": project, "": added, "pool": pooled}
        return logits


# --------------------------------------------------------------------------- files to tap


def exported(net: Any, inputs: dict[str, np.ndarray], folder: Path) -> Artifact:
    """A net as a file for one item; `inputs`: items of each."""
    given = {name: torch.from_numpy(array[:1]) for name, array in inputs.items()}
    program = torch.export.export(net, tuple(given.values()))
    (folder / "program").mkdir(parents=True)
    (folder / "file").mkdir()
    torch.export.save(program, folder / "program" / "program.pt2")
    specs = tuple(TensorSpec(n, tuple(t.shape), str(t.dtype).removeprefix("torch.")) for n, t in given.items())
    answer = net(*given.values())
    outputs = (TensorSpec("output", tuple(answer.shape)),)
    model = Artifact(folder / "program", "program", specs, outputs).write()
    return litert.export(Request({"model": model}, folder / "file"))


def samples_of(inputs: dict[str, np.ndarray], folder: Path) -> Artifact:
    """The same items in each split."""
    for split in ("calibrate", "select", "test"):
        tensors.write_split(folder / split, inputs)
    specs = tuple(TensorSpec(n, (Dim("batch", 1, 64), *a.shape[1:]), str(a.dtype)) for n, a in inputs.items())
    return Artifact(folder, "samples", specs, (), {"splits": dict.fromkeys(("calibrate", "test"), ITEMS)}).write()


def compressed(name: str, model: Artifact, samples: Artifact, out: Path, **options: Any) -> Artifact:
    if not name:
        return model
    module = registry.load("techniques", name)
    out.mkdir(parents=True)
    asked = config.build(module.Options, options, name)
    return module.apply(Request({"model": model, "samples": samples}, out, asked))  # type: ignore[no-any-return]


def tapped(model: Artifact, out: Path) -> Artifact:
    out.mkdir(parents=True)
    found = litert.tapped(Request({"model": model}, out))
    assert Artifact.read(out) == found
    assert found.outputs[: len(model.outputs)] == model.outputs
    return found


def answers(model: Artifact, samples: Artifact) -> dict[str, np.ndarray]:
    """What each output means: [items, *shape]."""
    session = litert.open(model, 1)
    found = [session.run(inputs) for inputs in tensors.batches(samples, "test", 1, None, model)]
    return {s.name: np.stack([tensors.real(each[s.name], s) for each in found]) for s in model.outputs}


def layers(model: Artifact, samples: Artifact) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Each tap and what it gave, channels first."""
    found = answers(model, samples)
    turned = {tap["output"]: np.moveaxis(found[tap["output"]], -1, 2) for tap in taps(model) if tap["layout"]}
    return [(tap, turned.get(tap["output"], found[tap["output"]])) for tap in taps(model)]


def taps(model: Artifact) -> list[dict[str, Any]]:
    return list(model.facts["taps"])


def same_ends(model: Artifact, twin: Artifact, samples: Artifact) -> None:
    """The tapped file answers bit for bit what the file does, and each output as its spec says."""
    wanted, found = answers(model, samples), answers(twin, samples)
    assert all((wanted[name] == found[name]).all() for name in wanted)
    for spec in twin.outputs:
        assert found[spec.name].shape == (ITEMS, *spec.shape), spec.name
        assert np.isfinite(found[spec.name]).all()
    names = [spec.name for spec in twin.outputs]
    assert len(set(names)) == len(names) and all(Path(name).name == name for name in names)
    assert [tap["output"] for tap in taps(twin)] == names[len(model.outputs) :]
    assert [tap["dtype"] for tap in taps(twin)] == [spec.dtype for spec in twin.outputs[len(model.outputs) :]]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Small, Artifact, Artifact]]:
    """The net, its file, and items."""
    folder = tmp_path_factory.mktemp("small")
    torch.manual_seed(0)
    net = Small().eval()
    inputs = {"image": np.random.default_rng(0).normal(size=(ITEMS, 3, 12, 12)).astype(np.float32)}
    yield net, exported(net, inputs, folder), samples_of(inputs, folder / "samples")


# --------------------------------------------------------------------------- what is tapped


@pytest.mark.parametrize("technique", COMPRESSED)
def test_each_layer_gives_what_the_source_s_gave_and_the_ends_stay_the_same(
    small: tuple[Small, Artifact, Artifact], technique: str, tmp_path: Path
) -> None:
    net, model, samples = small
    model = compressed(technique, model, samples, tmp_path / "made")
    twin = tapped(model, tmp_path / "tapped")
    same_ends(model, twin, samples)
    with torch.no_grad():
        logits = net(torch.from_numpy(np.array(tensors.load(samples, "test", "image"))))
    wanted = [*net.kept.values(), logits]
    found = layers(twin, samples)
    assert [tap["type"] for tap, _ in found] == [
        "CONV_2D",
        "DEPTHWISE_CONV_2D",
        "CONV_2D",
        "ADD",
        "MEAN",
        "FULLY_CONNECTED",
    ]
    for (tap, ours), theirs in zip(found, wanted, strict=True):
        assert sqnr_db(theirs.numpy(), ours.reshape(theirs.shape)) > LEAST_DB[technique], tap
    assert {tap["dtype"] for tap, _ in found} == {"int8" if technique == "litert_int8" else "float32"}


def test_a_tap_names_the_module_where_the_file_knows_it(
    small: tuple[Small, Artifact, Artifact], tmp_path: Path
) -> None:
    found = [tap["module"] for tap in taps(tapped(small[1], tmp_path / "tapped"))]
    assert found[:3] == ["stem.0", "depthwise", "project"]


def test_the_operator_of_a_tap_of_an_int8_file_is_one_that_the_option_skip_takes(
    small: tuple[Small, Artifact, Artifact], tmp_path: Path
) -> None:
    _, model, samples = small
    found = taps(tapped(compressed("litert_int8", model, samples, tmp_path / "int8"), tmp_path / "tapped"))
    known = quantizer.operators(model.file(".tflite").read_bytes())
    for tap in found:
        assert quantizer.matching(known, [f"^{re.escape(tap['operator'])}$"]) == [tap["operator"]]
    named = f"^{re.escape(found[1]['operator'])}$"
    mixed = compressed("litert_int8", model, samples, tmp_path / "mixed", skip=(named,))
    twin = tapped(mixed, tmp_path / "again")
    kept = [tap for tap in taps(twin) if tap["dtype"] == "float32"]
    assert kept[0]["operator"] == found[1]["operator"] and len(kept) < len(found)
    same_ends(mixed, twin, samples)


@pytest.mark.parametrize("name", ["transformer", "lstm"])
def test_nets_whose_layers_have_no_axis_of_the_batch_are_tapped_too(name: str, tmp_path: Path) -> None:
    inputs = zoo.draw(zoo.NETS[name], ITEMS, 0)
    model, samples = exported(getattr(zoo, name)(), inputs, tmp_path), samples_of(inputs, tmp_path / "samples")
    for technique in ("", "litert_int8"):
        made = compressed(technique, model, samples, tmp_path / "made")
        twin = tapped(made, tmp_path / f"tapped{technique}")
        same_ends(made, twin, samples)
        assert {"FULLY_CONNECTED", "ADD"} < {tap["type"] for tap in taps(twin)}
        assert not {"RESHAPE", "TRANSPOSE", "SLICE", "QUANTIZE"} & {tap["type"] for tap in taps(twin)}


# --------------------------------------------------------------------------- who else reads the file


def test_the_file_s_signature_has_the_taps(small: tuple[Small, Artifact, Artifact], tmp_path: Path) -> None:
    from ai_edge_litert.interpreter import Interpreter

    twin = tapped(small[1], tmp_path / "tapped")
    run = Interpreter(str(twin.file(".tflite"))).get_signature_runner()
    found = run(image=np.ones((1, 3, 12, 12), np.float32))
    assert set(found) == {spec.name for spec in twin.outputs}
    ends = tflite_file.inputs_and_outputs(twin.file(".tflite").read_bytes(), "it")
    assert [spec.name for spec in ends[1]] == [spec.name for spec in twin.outputs]


def test_a_tapped_file_can_be_tapped_again(small: tuple[Small, Artifact, Artifact], tmp_path: Path) -> None:
    once = tapped(small[1], tmp_path / "once")
    same_ends(once, tapped(once, tmp_path / "twice"), small[2])


@elder
def test_tflite_runtime_runs_it_too(small: tuple[Small, Artifact, Artifact], tmp_path: Path) -> None:
    _, model, samples = small
    made = compressed("litert_int8", model, samples, tmp_path / "int8")
    (tmp_path / "tapped").mkdir()
    twin = tflite.tapped(Request({"model": made}, tmp_path / "tapped"))
    plugin = {"name": "tflite", "module": tflite.__name__}
    asked = {"mode": "outputs", "runtime": plugin, "artifact": str(twin.path), "samples": str(samples.path)}
    agent_client.ask(host.connect({}), AgentRequest.from_json(json.dumps(asked)), tmp_path, 120)
    for name, wanted in answers(twin, samples).items():
        assert sqnr_db(wanted, np.load(tmp_path / "test" / f"{name}.npy").reshape(wanted.shape)) > 25, name


# --------------------------------------------------------------------------- strangers' files


def changed(model: Artifact, change: Any) -> bytes:
    """The file with something else in its tables."""
    from ai_edge_litert.tools import flatbuffer_utils

    whole = flatbuffer_utils.read_model(model.file(".tflite"))
    change(whole)
    return bytes(flatbuffer_utils.convert_object_to_bytearray(whole))


def no_outputs(whole: Any) -> None:
    whole.subgraphs[0].outputs = whole.signatureDefs = None


def other_tensor(whole: Any) -> None:
    whole.signatureDefs[0].outputs[0].tensorIndex = 999


def other_graph(whole: Any) -> None:
    whole.signatureDefs[0].subgraphIndex = 7


def no_zero_points(whole: Any) -> None:
    from ai_edge_litert.schema_py_generated import QuantizationParametersT

    whole.subgraphs[0].tensors[0].quantization = QuantizationParametersT(scale=[0.5], zeroPoint=None)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (other_tensor, "a signature refers to a tensor that does not exist"),
        (other_graph, "a signature refers to a subgraph that does not exist"),
        (no_zero_points, "different numbers of zero points and scales"),
    ],
)
def test_a_file_whose_tables_contradict_each_other_is_refused_in_one_line(
    small: tuple[Small, Artifact, Artifact], change: Any, says: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.tflite").write_bytes(changed(small[1], change))
    with pytest.raises(InputError, match=says) as error:
        litert.read(Request({}, tmp_path, {"path": str(tmp_path / "bad.tflite")}))
    assert str(error.value).startswith(f"{tmp_path / 'bad.tflite'}: ") and "\n" not in str(error.value)


def test_each_cut_of_a_file_is_refused(small: tuple[Small, Artifact, Artifact], tmp_path: Path) -> None:
    """Names stand at its end, which a reader of flatbuffers would shorten without a word."""
    for model in (small[1], tapped(small[1], tmp_path / "tapped")):
        whole = model.file(".tflite").read_bytes()
        for length in (*range(len(whole) - 200, len(whole)), *range(0, len(whole), 1009)):
            with pytest.raises(InputError):
                tflite_file.check(whole[:length], "cut.tflite")


def test_noise_in_a_file_is_refused_in_one_line_or_harmless_to_every_edit(
    small: tuple[Small, Artifact, Artifact],
) -> None:
    whole, seeded, edited = small[1].file(".tflite").read_bytes(), np.random.default_rng(0), 0
    for _ in range(200):
        torn = bytearray(whole)
        for place in seeded.integers(len(whole), size=3):
            torn[place] = seeded.integers(256)
        try:
            tflite_file.check(bytes(torn), "torn.tflite")
            inputs, outputs = tflite_file.inputs_and_outputs(bytes(torn), "torn.tflite")
            twin = model_edits.with_layer_outputs(
                bytes(torn), {"tap": tflite_file.graph(bytes(torn)).nodes[0].writes[0]}
            )
            model_edits.renamed(twin, {s.name: s.name for s in inputs}, {s.name: s.name for s in (*outputs, TAP)})
            edited += 1
        except (InputError, StageFailed) as error:
            assert "\n" not in str(error)
    assert 20 < edited < 200


def test_a_damaged_file_cannot_be_tapped_and_says_so(small: tuple[Small, Artifact, Artifact], tmp_path: Path) -> None:
    torn = Artifact(tmp_path / "torn", "tflite", small[1].inputs, small[1].outputs)
    torn.path.mkdir()
    for data in (small[1].file(".tflite").read_bytes()[:5000], changed(small[1], no_outputs)):
        (torn.path / "model.tflite").write_bytes(data)
        with pytest.raises(StageFailed) as error:
            tapped(torn, tmp_path / f"tapped{len(data)}")
        assert "\n" not in str(error.value)


def test_a_file_without_a_signature_is_tapped_and_renamed_by_its_tensors_names(
    small: tuple[Small, Artifact, Artifact], tmp_path: Path
) -> None:
    _, model, samples = small
    (tmp_path / "own").mkdir()
    (tmp_path / "x.tflite").write_bytes(changed(model, lambda whole: setattr(whole, "signatureDefs", None)))
    own = litert.read(Request({}, tmp_path / "own", {"path": str(tmp_path / "x.tflite")}))
    same_ends(own, tapped(own, tmp_path / "tapped"), samples)
    data = model_edits.renamed(own.file(".tflite").read_bytes(), {"image": "x"}, {"output": "y"})
    assert [[spec.name for spec in specs] for specs in tflite_file.inputs_and_outputs(data, "it")] == [["x"], ["y"]]
    with pytest.raises(StageFailed, match="has the inputs or outputs image, expected x"):
        model_edits.renamed(own.file(".tflite").read_bytes(), {"x": "x"}, {"output": "output"})


@pytest.mark.parametrize(
    ("name", "kind", "module"),
    [
        ("a.Flat/b.Net_net/b.Block_layer1/torch.nn.modules.conv.Conv2d_conv1;2", "CONV_2D", "layer1.conv1"),
        ("a.Flat/b.Net_net/b.R_relu;;a.Flat/b.Net_net/torch.nn.modules.conv.Conv2d_c_1;2", "CONV_2D", "c_1"),
        ("a.Flat/b.Net_net/b.Block_1;;a.Flat/b.Net_net/torch.nn.modules.linear.Linear_fc;", "ADD", "1"),
        ("a.Flat/b.Net_net;3", "MUL", ""),
        ("a.Net/a.f.<locals>._Block_subnet;", "MUL", "subnet"),
        ("model/conv2d/Relu;model/conv2d/BiasAdd", "CONV_2D", ""),
        ("output", "FULLY_CONNECTED", ""),
    ],
)
def test_the_module_is_read_from_litert_torch_s_names_and_from_no_others(name: str, kind: str, module: str) -> None:
    assert layer_outputs.module_of(name, kind) == module
