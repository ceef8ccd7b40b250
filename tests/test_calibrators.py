"""Calibrators and widths of weights in the int8 of each runtime, what else each can try, and what it keeps in float."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vectors
from vectors import sqnr_db

from edgecompress.core import config, registry
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.litert import quantizer, weight_edits
from edgecompress.engines.litert.techniques import litert_int8
from edgecompress.engines.onnx import graph_edits
from edgecompress.engines.onnx.techniques import ptq_int8
from edgecompress.engines.openvino.techniques import nncf_int8
from edgecompress.techniques import _activation_ranges, pt2e_int8

pytestmark = pytest.mark.slow
onnx = pytest.importorskip("onnx")
ITEMS = 24


def samples(folder: Path) -> Artifact:
    """Normal images, a few of whose pixels are 60 times as bright."""
    seeded = np.random.default_rng(1)
    data = seeded.normal(size=(ITEMS, 3, 16, 16)).astype(np.float32)
    data[seeded.random(data.shape) < 1e-4] *= 60
    for split in ("calibrate", "test"):
        tensors.write_split(folder / split, {"image": data})
    spec = TensorSpec("image", (Dim("batch", 1, ITEMS), 3, 16, 16))
    return Artifact(folder, "samples", (spec,), (), {"splits": {"calibrate": ITEMS, "test": ITEMS}}).write()


def compressed(technique: Any, model: Artifact, folder: Path, **options: Any) -> Artifact:
    name = str(technique.__name__).split(".")[-1]
    out = folder / f"{name}-{len(list(folder.glob(name + '*')))}"
    out.mkdir()
    data = Artifact.read(folder / "samples") if (folder / "samples").exists() else samples(folder / "samples")
    made = config.build(technique.Options, options, name)
    return technique.apply(Request({"model": model, "samples": data}, out, made))  # type: ignore[no-any-return]


def answers(model: Artifact, folder: Path) -> np.ndarray:
    runtime = registry.load("runtimes", {"tflite": "litert"}.get(model.kind, model.kind))
    session, name = runtime.open(model, 1), model.outputs[0].name
    given = tensors.batches(Artifact.read(folder / "samples"), "test", 1, None, model)
    return np.concatenate([session.run(item)[name] for item in given])


# --------------------------------------------------------------------------- ONNX Runtime

WEIGHTS = {"first": (16, 3, 3, 3), "depthwise": (16, 1, 3, 3), "head": (10, 16)}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """image [1, 3, 16, 16] -> scores [1, 10]: a convolution, a depthwise one and a product without names."""
    from onnx import TensorProto, helper, numpy_helper

    seeded = np.random.default_rng(0)
    arrays = {n: seeded.normal(size=s) / math.prod(s[1:]) ** 0.5 for n, s in WEIGHTS.items()}
    arrays |= {"bias": seeded.normal(size=16), "offset": seeded.normal(size=10)}
    nodes = [
        helper.make_node("Conv", ["image", "first", "bias"], ["a"], "conv[1]", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "depthwise"], ["c"], pads=[1, 1, 1, 1], group=16),
        helper.make_node("GlobalAveragePool", ["c"], ["d"], "pool"),
        helper.make_node("Flatten", ["d"], ["e"], "flatten"),
        helper.make_node("Gemm", ["e", "head", "offset"], ["scores"], transB=1),
    ]
    ends = (TensorSpec("image", (1, 3, 16, 16)),), (TensorSpec("scores", (1, 10)),)
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for side in ends for s in side]
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    out = tmp_path_factory.mktemp("net")
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), out / "model.onnx"
    )
    return Artifact(out, "onnx", *ends).write()


def constants_of(model: Artifact) -> dict[str, np.ndarray]:
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load_model(model.file(".onnx")).graph.initializer}


def kernels(model: Artifact, folder: Path) -> list[str]:
    given = next(tensors.batches(Artifact.read(folder / "samples"), "test", 1))
    return [op["type"] for op in registry.load("runtimes", "onnx").open(model, 1, profile=True).ops(given, 2)["ops"]]


def test_four_bits_of_onnx_runtime_are_fifteen_levels_per_channel_of_its_int8_kernels(
    net: Artifact, tmp_path: Path
) -> None:
    """Scale of a channel: max|w| / 7 (Krishnamoorthi 2018, arXiv:1806.08342, section 3.1.2, of 4 bits)."""
    four, eight = (compressed(ptq_int8, net, tmp_path, weight_bits=bits) for bits in (4, 8))
    floats, found = constants_of(net), constants_of(four)
    for name in WEIGHTS:
        whole, scale = found[f"{name}_quantized"], found[f"{name}_scale"]
        channels = floats[name].reshape(len(scale), -1)
        assert (whole.dtype, whole.min(), whole.max()) == ("int8", -7, 7)
        assert scale == pytest.approx(np.abs(channels).max(1) / 7, rel=1e-6)
        assert np.abs(whole.reshape(channels.shape) * scale[:, None] - channels).max(1) == pytest.approx(0, abs=1)
        assert np.all(np.abs(whole.reshape(channels.shape) * scale[:, None] - channels) <= 0.501 * scale[:, None])
    assert kernels(four, tmp_path) == kernels(eight, tmp_path)
    assert kernels(four, tmp_path).count("QLinearConv") == 2
    wanted = answers(net, tmp_path)
    of_four, of_eight = (sqnr_db(wanted, answers(net, tmp_path)) for net in (four, eight))
    assert of_four > 8
    assert of_four < of_eight or vectors.adds_in_16_bits()  # eight bits saturate there, four do not


def test_eight_bits_of_onnx_runtime_have_a_scale_per_channel(net: Artifact, tmp_path: Path) -> None:
    """Scale of a channel: max|w| / 127 (Krishnamoorthi 2018, arXiv:1806.08342, section 3.1.2)."""
    floats, found = constants_of(net), constants_of(compressed(ptq_int8, net, tmp_path))
    for name in ("first", "depthwise"):
        channels = np.abs(floats[name].reshape(len(floats[name]), -1)).max(1)
        assert found[f"{name}_scale"] == pytest.approx(channels / 127, rel=1e-6)


def test_four_bits_for_a_whole_tensor_are_refused() -> None:
    with pytest.raises(ValueError, match="weight_bits = 4 needs per_channel"):
        ptq_int8.Options(weight_bits=4, per_channel=False)


def lost(folder: Path, scale: float, zero: int, lowest: int) -> float:
    """The mean squared error of the calibration images in 256 levels."""
    data = tensors.load(Artifact.read(folder / "samples"), "calibrate", "image")
    real = (np.clip(np.round(data / scale) + zero, lowest, lowest + 255) - zero) * scale
    return float(((real - data) ** 2).mean())


def test_the_calibrators_of_onnx_runtime_cut_outliers_and_mse_loses_least(net: Artifact, tmp_path: Path) -> None:
    made = {
        c: compressed(ptq_int8, net, tmp_path, calibrator=c, percentile=99.9) for c in _activation_ranges.CALIBRATORS
    }
    assert all(m.facts["calibrator"] == c for c, m in made.items())
    found = {c: constants_of(m) for c, m in made.items()}
    scales = {c: float(found[c]["image_scale"]) for c in made}
    assert max(scales, key=scales.__getitem__) == "minmax"
    assert len(set(scales.values())) == len(made)
    errors = {c: lost(tmp_path, scales[c], int(found[c]["image_zero_point"]), 0) for c in made}
    assert min(errors, key=errors.__getitem__) == "mse"


def test_layers_of_a_diagnosis_stay_in_float_of_onnx_runtime_named_or_not(net: Artifact, tmp_path: Path) -> None:
    int8 = compressed(ptq_int8, net, tmp_path)
    graph = onnx.load_model(int8.file(".onnx")).graph
    rows = [{"operator": node.name, "module": "", "node": ""} for node in graph.node if node.op_type == "Conv"]
    assert kept_kernels(net, tmp_path, rows).count("Conv") == 2
    assert kept_kernels(net, tmp_path, rows[1:]).count("QLinearConv") == 1


@pytest.fixture(params=[7, 9, 10, 11, 12])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Artifact:
    """image [1, 3, 16, 16] -> scores [1, 16], as exporters of old opsets wrote it: axes and scales as attributes."""
    from onnx import helper, numpy_helper

    opset, seeded = request.param, np.random.default_rng(0)
    shapes = {"first": (16, 3, 3, 3), "second": (16, 16, 3, 3), "head": (16, 16), **dict.fromkeys("abcd", (16,))}
    arrays = {n: seeded.normal(size=s) / math.prod(s[1:]) ** 0.5 for n, s in shapes.items()}
    arrays |= {n: 1 + np.abs(arrays[n]) for n in "abcd"}
    arrays["scales"] = np.array([1, 1, 2, 2])
    arrays["none"] = np.zeros(0)
    resized = ["Upsample", "p", "scales"] if opset < 10 else ["Resize", "p", *["none"] * (opset > 10), "scales"]
    nodes = [
        helper.make_node("Conv", ["image", "first"], ["n"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["n", *"abcd"], ["o"]),
        helper.make_node("Softmax", ["o"], ["p"], axis=1),  # of all axes from this one on
        helper.make_node(resized[0], resized[1:], ["q"], mode="linear")
        if opset > 8
        else helper.make_node("Identity", ["p"], ["q"]),  # the converter writes scales of 0
        helper.make_node("Conv", ["q", "second"], ["r"]),
        helper.make_node("ReduceMean", ["r"], ["s"], axes=[3], keepdims=0),
        helper.make_node("Unsqueeze", ["s"], ["t"], axes=[0]),
        helper.make_node("Squeeze", ["t"], ["u"], axes=[0]),
        helper.make_node("ReduceSum", ["u"], ["v"], axes=[2], keepdims=0),
        helper.make_node("Gemm", ["v", "head", "d"], ["scores"]),
    ]
    ends = (TensorSpec("image", (1, 3, 16, 16)),), (TensorSpec("scores", (1, 16)),)
    values = [helper.make_tensor_value_info(s.name, 1, s.shape) for side in ends for s in side]
    constants = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in arrays.items()]
    graph = helper.make_graph(nodes, "old", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    (tmp_path / "old").mkdir()
    onnx.save_model(model, tmp_path / "old/model.onnx")
    return Artifact(tmp_path / "old", "onnx", *ends).write()


def test_a_graph_of_an_old_opset_is_quantized_per_channel_and_answers_alike(old: Artifact, tmp_path: Path) -> None:
    int8 = compressed(ptq_int8, old, tmp_path)
    raised = Artifact(tmp_path / "raised", "onnx", old.inputs, old.outputs)
    raised.path.mkdir()
    graph_edits.prepare(old.file(".onnx"), raised.path / "model.onnx", 13)
    assert answers(raised, tmp_path) == pytest.approx(answers(old, tmp_path), abs=1e-5)
    assert sqnr_db(answers(old, tmp_path), answers(int8, tmp_path)) > 20
    nodes = onnx.load_model(int8.file(".onnx")).graph.node
    assert [a for n in nodes for a in n.attribute if n.op_type == "DequantizeLinear" and a.name == "axis"]


def test_a_graph_that_cannot_be_raised_is_told_in_one_line(tmp_path: Path) -> None:
    from onnx import helper

    x, y = (helper.make_tensor_value_info(name, 1, (1, 4)) for name in "xy")
    graph = helper.make_graph([helper.make_node("Affine", ["x"], ["y"])], "net", [x], [y])
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)]), tmp_path / "old.onnx")
    with pytest.raises(StageFailed, match=r"of opset 8 cannot be raised to opset 13, .*; export it with opset 13 or"):
        graph_edits.prepare(tmp_path / "old.onnx", tmp_path / "new.onnx", 13)


@pytest.mark.parametrize("technique", [ptq_int8, litert_int8, nncf_int8])
def test_a_source_that_is_int8_stays_as_it_is(technique: Any, net: Artifact, file: Artifact, tmp_path: Path) -> None:
    model = {"onnx": net, "tflite": file}.get(technique.READS[0]) or exported("openvino", net, tmp_path)
    once = compressed(technique, model, tmp_path)
    again = compressed(technique, once, tmp_path)
    assert [f.read_bytes() for f in again.files()] == [f.read_bytes() for f in once.files()]
    assert (again.inputs, again.outputs, again.facts) == (once.inputs, once.outputs, {"given": True})


def test_a_source_that_is_int8_in_part_ends_with_a_reason(net: Artifact, tmp_path: Path) -> None:
    file = compressed(ptq_int8, net, tmp_path).file(".onnx")
    model = onnx.load_model(file)
    model.graph.node.append(next(n for n in model.graph.node if n.op_type == "DequantizeLinear"))
    onnx.save_model(model, tmp_path / "twice.onnx")
    with pytest.raises(StageFailed, match=r"two nodes make the tensor '.*': the source is quantized in part"):
        graph_edits.order_as(tmp_path / "twice.onnx", file)


def kept_kernels(net: Artifact, folder: Path, rows: list[dict[str, str]]) -> list[str]:
    return kernels(compressed(ptq_int8, net, folder, **ptq_int8.kept({"samples": 8}, rows)), folder)


# --------------------------------------------------------------------------- rungs


@pytest.mark.parametrize(
    ("technique", "options", "labels"),
    [
        (ptq_int8, {}, ["percentile", "entropy", "mse"]),
        (ptq_int8, {"calibrator": "entropy", "per_channel": False}, ["minmax", "percentile", "mse", "per channel"]),
        (litert_int8, {"calibrator": "mse"}, ["minmax", "percentile", "entropy"]),
        (nncf_int8, {}, ["percentile", "mse", "bias correction"]),
        (nncf_int8, {"bias_correction": "fast", "calibrator": "mean"}, ["minmax", "percentile", "mse"]),
        (pt2e_int8, {}, ["minmax"]),
    ],
)
def test_rungs_are_options_that_the_technique_takes(technique: Any, options: dict[str, Any], labels: list[str]) -> None:
    found = technique.rungs(options)
    assert [label for label, _ in found] == labels
    for _, change in found:
        assert config.build(technique.Options, {**options, **change}, "rung") != config.build(
            technique.Options, options, "now"
        )


@pytest.mark.parametrize("technique", [ptq_int8, litert_int8, nncf_int8, pt2e_int8])
def test_kept_layers_are_added_once_to_those_skipped_already(technique: Any) -> None:
    rows = [{"operator": "a(1)", "module": "m", "node": "n", "type": "conv2d"}]
    once = technique.kept({"samples": 3, "skip": ["z"]}, rows)
    assert (once["samples"], once["skip"][0], len(once["skip"])) == (3, "z", 2)
    assert technique.kept(once, rows) == once


# --------------------------------------------------------------------------- nets of torch


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A convolution, a depthwise one with a shortcut around it, a head."""
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
            self.depthwise = torch.nn.Conv2d(16, 16, 3, padding=1, groups=16)
            self.head = torch.nn.Linear(16, 10)

        def forward(self, image: Any) -> Any:
            """[n, 3, 16, 16] -> [n, 10]."""
            x = self.first(image).relu()
            return self.head((x + self.depthwise(x).relu()).mean((2, 3)))

    torch.manual_seed(0)
    out = tmp_path_factory.mktemp("program")
    torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 3, 16, 16),)), out / "program.pt2")
    ends = (TensorSpec("image", (1, 3, 16, 16)),), (TensorSpec("scores", (1, 10)),)
    return Artifact(out, "program", *ends).write()


def exported(runtime: str, model: Artifact, folder: Path) -> Artifact:
    module, out = registry.load("runtimes", runtime), folder / runtime
    out.mkdir()
    return module.export(Request({"model": model}, out))  # type: ignore[no-any-return]


# --------------------------------------------------------------------------- LiteRT


@pytest.fixture(scope="module")
def file(program: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    pytest.importorskip("ai_edge_quantizer")
    pytest.importorskip("litert_torch")
    return exported("litert", program, tmp_path_factory.mktemp("file"))


def weighted(model: Artifact) -> dict[str, tuple[np.ndarray, Mapping[str, Any]]]:
    """The weights of each operator that has them, outputs first, and how they are quantized, by its type."""
    from ai_edge_litert.interpreter import Interpreter

    opened = Interpreter(str(model.file(".tflite")), experimental_preserve_all_tensors=True)
    opened.allocate_tensors()
    details, found = {d["index"]: d for d in opened.get_tensor_details()}, {}
    for op in opened._get_ops_details():
        if op["op_name"] in weight_edits.OUTPUTS:
            index = op["inputs"][1]
            weights = np.moveaxis(opened.get_tensor(index), weight_edits.OUTPUTS[op["op_name"]], 0)
            found[op["op_name"]] = weights, details[index]["quantization_parameters"]
    return found


def test_four_bits_of_litert_are_fifteen_levels_per_channel_of_its_int8_kernels(file: Artifact, tmp_path: Path) -> None:
    four, eight = (compressed(litert_int8, file, tmp_path, weight_bits=bits) for bits in (4, 8))
    floats, found = weighted(file), weighted(four)
    assert found.keys() == {"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"}
    for kind, (whole, how) in found.items():
        channels = floats[kind][0].reshape(len(whole), -1)
        scale = how["scales"][:, None]
        assert (whole.dtype, np.abs(whole).max()) == ("int8", 7)
        assert scale[:, 0] == pytest.approx(np.abs(channels).max(1) / 7, rel=1e-5)
        assert np.all(np.abs(whole.reshape(channels.shape) * scale - channels) <= 0.501 * scale)
    wanted = answers(file, tmp_path)
    of_four, of_eight = (sqnr_db(wanted, answers(net, tmp_path)) for net in (four, eight))
    assert of_four > 8
    assert of_four < of_eight or vectors.adds_in_16_bits()  # eight bits saturate there, four do not


def test_in_a_large_file_whose_weights_lie_behind_its_tables_they_are_of_few_levels_too(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(3, 128, 3), torch.nn.ReLU(), torch.nn.Conv2d(128, 256, 3)).eval()
    (tmp_path / "large").mkdir()
    torch.export.save(torch.export.export(net, (torch.zeros(1, 3, 16, 16),)), tmp_path / "large" / "program.pt2")
    ends = (TensorSpec("image", (1, 3, 16, 16)),), (TensorSpec("scores", (1, 256, 12, 12)),)
    large = exported("litert", Artifact(tmp_path / "large", "program", *ends).write(), tmp_path)
    whole, how = weighted(compressed(litert_int8, large, tmp_path, weight_bits=4))["CONV_2D"]
    floats, scale = weighted(large)["CONV_2D"][0].reshape(256, -1), how["scales"][:, None]
    assert whole.nbytes > 256 * 1024 and np.abs(whole).max() == 7
    assert np.all(np.abs(whole.reshape(floats.shape) * scale - floats) <= 0.501 * scale)


def test_the_calibrators_of_litert_cut_outliers_and_mse_loses_least(file: Artifact, tmp_path: Path) -> None:
    how = {"io": "int8", "percentile": 99.9}
    made = {c: compressed(litert_int8, file, tmp_path, calibrator=c, **how) for c in _activation_ranges.CALIBRATORS}
    found = {c: m.inputs[0].quantization for c, m in made.items()}
    scales = {c: q.scale[0] for c, q in found.items() if q is not None}
    assert max(scales, key=scales.__getitem__) == "minmax"
    assert len(set(scales.values())) == len(made)
    errors = {c: lost(tmp_path, q.scale[0], q.zero_point[0], -128) for c, q in found.items() if q is not None}
    assert min(errors, key=errors.__getitem__) == "mse"


def test_layers_of_a_diagnosis_stay_in_float_of_litert_with_what_reads_them(file: Artifact, tmp_path: Path) -> None:
    int8 = compressed(litert_int8, file, tmp_path)
    found = quantizer.operators(int8.file(".tflite").read_bytes())
    rows = [{"operator": op.scope} for op in found if op.type == "DEPTHWISE_CONV_2D"]
    kept = compressed(litert_int8, file, tmp_path, **litert_int8.kept({}, rows), weight_bits=4)
    floats = quantizer.operators(file.file(".tflite").read_bytes())
    assert [op.type for op in floats if op.scope in kept.facts["skipped"]] == ["DEPTHWISE_CONV_2D", "ADD"]
    assert {kind: str(w.dtype) for kind, (w, _) in weighted(kept).items()} == {
        "CONV_2D": "int8",
        "DEPTHWISE_CONV_2D": "float32",
        "FULLY_CONNECTED": "int8",
    }


# --------------------------------------------------------------------------- OpenVINO


def test_nncf_s_estimators_differ_and_keep_the_answers(net: Artifact, tmp_path: Path) -> None:
    pytest.importorskip("nncf")
    model = exported("openvino", net, tmp_path)
    made = {c: compressed(nncf_int8, model, tmp_path, calibrator=c) for c in ("minmax", "mean", "percentile", "mse")}
    assert len({m.sha256 for m in made.values()}) == len(made)
    wanted = answers(model, tmp_path)
    assert all(np.median(np.abs(wanted - answers(m, tmp_path))) < 0.1 * np.abs(wanted).max() for m in made.values())
    text = made["minmax"].file(".xml").read_text()
    names = re.findall(r'name="([^"]+)" type="(?:Group)?Convolution"', text)
    rows = [{"operator": name} for name in names]
    kept = compressed(nncf_int8, model, tmp_path, **nncf_int8.kept({}, rows))
    assert text.count('type="FakeQuantize"') > kept.file(".xml").read_text().count('type="FakeQuantize"')


# --------------------------------------------------------------------------- PT2E


@pytest.mark.prove
def test_pt2e_keeps_a_module_or_what_is_computed_between_modules(program: Artifact, tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    rows = [
        {"operator": "", "module": "first", "node": "conv2d", "type": "conv2d"},
        {"operator": "", "module": "", "node": "add", "type": "add"},
    ]
    whole = compressed(pt2e_int8, program, tmp_path, calibrator="minmax")
    kept = compressed(pt2e_int8, program, tmp_path, **pt2e_int8.kept({"calibrator": "minmax"}, rows))
    assert quantized(whole) == {"conv2d": 2, "add": 1, "linear": 1}
    assert quantized(kept) == {"conv2d": 0, "add": 0, "linear": 1}  # the second reads what the first answers


def quantized(model: Artifact) -> dict[str, int]:
    """How many operators of a type read quantized numbers, and have quantized what they answer."""
    import torch
    import torch.ao.quantization.fx._decomposed

    found: dict[str, int] = {}
    for node in torch.export.load(model.file(".pt2")).graph.nodes:
        kind = str(node.target).split(".")[1] if node.op == "call_function" and "aten." in str(node.target) else ""
        if kind in ("conv2d", "linear"):
            found[kind] = found.get(kind, 0) + ("dequantize" in str(node.args[0].target))
        elif kind == "add":
            found[kind] = sum("quantize" in str(reader.target) for reader in node.users)
    return found
