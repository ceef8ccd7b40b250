"""Techniques: ranges that do not depend on the chunks, int8 graphs that fuse, and what stays in float."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgecompress.core import registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.onnx import activation_ranges
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import int8_dynamic, onnx_fp16, ptq_int8
from edgecompress.engines.openvino.techniques import nncf_int8
from edgecompress.techniques import _activation_ranges
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

# --------------------------------------------------------------------------- ranges


def scaled(folder: Path) -> Path:
    """x [n] -> 3 x - 1 and its ReLU: ranges that can be worked out by hand."""
    file = folder / "scaled.onnx"
    if not file.exists():
        nodes = [
            helper.make_node("Mul", ["x", "three"], ["m"], "m"),
            helper.make_node("Sub", ["m", "one"], ["s"], "s"),
            helper.make_node("Relu", ["s"], ["y"], "r"),
        ]
        weights = [numpy_helper.from_array(np.float32(v), n) for n, v in (("three", 3), ("one", 1))]
        ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in ("x", "y")]
        graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        onnx.save_model(onnx.shape_inference.infer_shapes(model), file)
    return file


def ranges(file: Path, batches: Sequence[Any], options: ptq_int8.Options) -> activation_ranges.Ranges:
    def items() -> Iterator[Mapping[str, Any]]:
        return ({"x": batch} for batch in batches)

    return activation_ranges.calibrate(file, items, options, lambda done: None)


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return scaled(tmp_path_factory.mktemp("scaled"))


values = st.lists(st.floats(-100, 100, width=32), min_size=40, max_size=200)
cuts = st.lists(st.integers(1, 199), max_size=5)


@pytest.mark.parametrize("calibrator", _activation_ranges.CALIBRATORS)
@settings(max_examples=25, deadline=None)
@given(values=values, cuts=cuts)
def test_chunks_give_the_ranges_of_one_shot_within_a_bin(
    net: Path, calibrator: Any, values: list[float], cuts: list[int]
) -> None:
    data = np.array(values, np.float32)
    options = ptq_int8.Options(calibrator=calibrator, percentile=99)
    whole = ranges(net, [data], options)
    chunks = [part for part in np.split(data, sorted({c for c in cuts if c < len(data)})) if len(part)]
    parts = ranges(net, chunks, options)
    assert whole.keys() == parts.keys() >= {"x", "m", "s", "y"}
    for name, (low, high) in whole.items():
        reach = max(abs(low), abs(high), *np.abs(3 * data - 1).tolist())
        bin_width = 2 * reach / _activation_ranges.BINS
        assert parts[name][0] == pytest.approx(low, abs=bin_width)
        assert parts[name][1] == pytest.approx(high, abs=bin_width)


def test_more_items_than_a_chunk_are_all_seen(net: Path) -> None:
    items = [np.array([i], np.float32) for i in range(3 * activation_ranges.CHUNK + 1)]
    found = ranges(net, items, ptq_int8.Options())
    assert found["s"] == (-1.0, 3.0 * (len(items) - 1) - 1.0)
    assert found["y"] == (0.0, 3.0 * (len(items) - 1) - 1.0)


def test_inputs_that_are_not_finite_stop_the_calibration(net: Path) -> None:
    with pytest.raises(StageFailed, match=r"input 'x' takes values from 1.0 to inf"):
        ranges(net, [np.array([1.0, np.inf], np.float32)], ptq_int8.Options())


# --------------------------------------------------------------------------- the int8 graph


def conv_net(folder: Path, asymmetric: bool) -> Artifact:
    """What is hard in our nets: a shortcut without weights (slice, pad channels), asymmetric padding."""
    seeded = np.random.default_rng(0)
    shapes = {"w1": (16, 3, 3, 3), "w2": (32, 16, 3, 3), "w3": (32, 32, 3, 3)}
    weights = {n: (seeded.normal(size=s) / math.prod(s[1:]) ** 0.5).astype(np.float32) for n, s in shapes.items()}
    whole: dict[str, Any] = {"starts": [0, 0], "ends": [99, 99], "axes": [2, 3], "steps": [2, 2]}
    whole |= {"channels": [0, 8, 0, 0, 0, 8, 0, 0], "corner": [0, 0, 0, 0, 0, 0, 1, 1]}
    constants = [numpy_helper.from_array(np.array(v, np.int64), n) for n, v in whole.items()]
    pads = [0, 0, 1, 1] if asymmetric else [1, 1, 1, 1]
    nodes = [
        helper.make_node("Conv", ["image", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu1"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "conv2", pads=pads, strides=[2, 2]),
        helper.make_node("Slice", ["b", "starts", "ends", "axes", "steps"], ["d"], "slice"),
        helper.make_node("Pad", ["d", "channels"], ["e"], "pad"),
        helper.make_node("Add", ["c", "e"], ["f"], "add"),
        helper.make_node("Relu", ["f"], ["g"], "relu2"),
        helper.make_node("Conv", ["g", "w3"], ["h"], "conv3", pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["h"], ["i"], "pool"),
        helper.make_node("Flatten", ["i"], ["scores"], "flatten"),
    ]
    ends = (TensorSpec("image", (1, 3, 16, 16)),), (TensorSpec("scores", (1, 32)),)
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for side in ends for s in side]
    weights_ = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants + weights_)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    out = folder / "conv"
    out.mkdir()
    onnx.save_model(model, out / "model.onnx")
    return Artifact(out, "onnx", *ends).write()


def quantized(model: Artifact, folder: Path, name: str = "int8", **options: Any) -> Artifact:
    out = folder / name
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return ptq_int8.apply(Request(inputs, out, ptq_int8.Options(**options)))


def types(artifact: Artifact, folder: Path) -> list[str]:
    item = next(tensors.batches(conformance.samples(artifact, folder), "test", 1))
    return [op["type"] for op in ort.open(artifact, 1, profile=True).ops(item, 2)["ops"]]


@pytest.mark.parametrize("asymmetric", [True, False])
def test_every_convolution_runs_in_int8_and_nothing_goes_back_and_forth(asymmetric: bool, tmp_path: Path) -> None:
    model = conv_net(tmp_path, asymmetric)
    found = types(quantized(model, tmp_path), tmp_path)
    assert found.count("QLinearConv") == 3
    assert "Conv" not in found
    assert "QLinearAdd" in found
    assert found.count("QuantizeLinear") <= 2  # the input, and after the pad
    assert found.count("DequantizeLinear") <= 2  # the output, and before the pad


@pytest.mark.parametrize("calibrator", _activation_ranges.CALIBRATORS)
def test_the_int8_net_computes_what_the_float_net_computes(calibrator: str, tmp_path: Path) -> None:
    model = conv_net(tmp_path, True)
    int8 = quantized(model, tmp_path, calibrator=calibrator, percentile=99.9)
    assert sqnr_db(model, int8, tmp_path) > 15
    assert int8.size_bytes < 0.5 * model.size_bytes


def sqnr_db(model: Artifact, other: Artifact, folder: Path, runtime: Any = ort) -> float:
    data = conformance.samples(model, folder)
    sessions = [runtime.open(a, 1) for a in (model, other)]
    items = list(tensors.batches(data, "test", 1))
    a, b = (np.concatenate([s.run(i)[model.outputs[0].name] for i in items]) for s in sessions)
    return float(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))


@pytest.mark.parametrize("calibrator", _activation_ranges.CALIBRATORS)
def test_what_overflows_on_its_way_stays_in_float(calibrator: str, tmp_path: Path) -> None:
    """A mask of the least float, as in every encoder of Hugging Face, and a softplus whose other branch overflows."""
    model = conv_net(tmp_path, True)
    net = onnx.load(model.file(".onnx"))
    least = np.float32(np.finfo(np.float32).min)
    graph = net.graph
    graph.initializer.extend(numpy_helper.from_array(np.float32(v), n) for n, v in (("low", least), ("far", 99.0)))
    graph.node[-1].output[0] = "flat"
    graph.node.extend(
        [
            helper.make_node("Sign", ["flat"], ["sign"], "sign"),
            helper.make_node("Relu", ["sign"], ["on"], "on"),
            helper.make_node("Mul", ["on", "low"], ["mask"], "mask"),
            helper.make_node("Add", ["flat", "mask"], ["masked"], "masked"),
            helper.make_node("Abs", ["flat"], ["size"], "size"),
            helper.make_node("Mul", ["size", "far"], ["large"], "large"),
            helper.make_node("Mul", ["large", "far"], ["larger"], "larger"),
            helper.make_node("Exp", ["larger"], ["inf"], "exp"),
            helper.make_node("Log", ["inf"], ["log"], "log"),
            helper.make_node("Min", ["log", "size"], ["least"], "least"),
            helper.make_node("Max", ["masked", "least"], ["scores"], "scores"),
        ]
    )
    onnx.save(net, model.path / "model.onnx")
    wide = Artifact(model.path, "onnx", model.inputs, model.outputs).write()
    int8 = quantized(wide, tmp_path, calibrator=calibrator, percentile=99.9)
    assert {"mask", "masked", "exp", "log"} <= {*int8.facts["skipped"]}
    assert types(int8, tmp_path).count("QLinearConv") == 3
    assert sqnr_db(wide, int8, tmp_path) > 15


def test_nodes_kept_in_float_stay_in_float(tmp_path: Path) -> None:
    model = conv_net(tmp_path, True)
    kept = quantized(model, tmp_path, skip=("conv3",))
    assert types(kept, tmp_path).count("QLinearConv") == 2
    assert kept.facts["skipped"] == ["conv3"]
    with pytest.raises(InputError, match=r"no node is called 'conv9\*'"):
        quantized(model, tmp_path, "other", skip=("conv9*",))


def test_signed_activations_are_a_choice(tmp_path: Path) -> None:
    int8 = quantized(conv_net(tmp_path, True), tmp_path, activation="int8", symmetric=True)
    graph = onnx.load_model(int8.file(".onnx")).graph
    zeros = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    activations = [n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in zeros]
    assert activations
    assert all(zeros[n.input[2]].dtype == np.int8 and zeros[n.input[2]] == 0 for n in activations)


def test_few_samples_are_spread_over_the_split(tmp_path: Path) -> None:
    int8 = quantized(conv_net(tmp_path, True), tmp_path, samples=3)
    assert int8.facts["samples"] == 3


def test_no_calibration_data_is_the_users_to_mend(tmp_path: Path) -> None:
    model = conv_net(tmp_path, True)
    out = tmp_path / "out"
    out.mkdir()
    empty = tmp_path / "empty"
    tensors.write_split(empty / "calibrate", {"image": np.zeros((0, 3, 16, 16), np.float32)})
    spec = TensorSpec("image", (Dim("batch", 1, 1), 3, 16, 16))
    data = Artifact(empty, "samples", (spec,), (), {"splits": {"calibrate": 0}}).write()
    with pytest.raises(InputError, match="no calibration data: the split 'calibrate' is empty"):
        ptq_int8.apply(Request({"model": model, "samples": data}, out, ptq_int8.Options()))


@pytest.mark.parametrize("wrong", [{"percentile": 20.0}, {"percentile": 101.0}, {"samples": 0}])
def test_options_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ptq_int8.Options(**wrong)


# --------------------------------------------------------------------------- an LSTM


def lstm_net(folder: Path) -> Artifact:
    """ids [1, 12] -> an embedding, an LSTM of 64, a product with one column, a product with 32."""
    seeded = np.random.default_rng(0)
    shapes = {"table": (20, 32), "w": (1, 256, 32), "r": (1, 256, 64), "narrow": (64, 1), "wide": (64, 32)}
    weights = {n: (seeded.normal(size=s) / s[-1] ** 0.5).astype(np.float32) for n, s in shapes.items()}
    constants = [numpy_helper.from_array(w, n) for n, w in weights.items()]
    constants.append(numpy_helper.from_array(np.array([1], np.int64), "one"))
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embedding"),
        helper.make_node("Transpose", ["e"], ["t"], "transpose", perm=[1, 0, 2]),
        helper.make_node("LSTM", ["t", "w", "r"], ["all", "", ""], "lstm", hidden_size=64),
        helper.make_node("Squeeze", ["all", "one"], ["s"], "squeeze"),
        helper.make_node("MatMul", ["s", "narrow"], ["score"], "attention"),
        helper.make_node("Softmax", ["score"], ["share"], "softmax", axis=0),
        helper.make_node("Mul", ["s", "share"], ["p"], "weigh"),
        helper.make_node("ReduceSum", ["p", "zero"], ["q"], "sum", keepdims=0),
        helper.make_node("MatMul", ["q", "wide"], ["logits"], "output"),
    ]
    constants.append(numpy_helper.from_array(np.array([0], np.int64), "zero"))
    ends = (TensorSpec("ids", (1, 12), "int64"),), (TensorSpec("logits", (1, 32)),)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 12])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, 32])
    graph = helper.make_graph(nodes, "net", [ids], [logits], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    out = folder / "lstm"
    out.mkdir()
    onnx.save_model(model, out / "model.onnx")
    return Artifact(out, "onnx", *ends).write()


def applied(technique: Any, model: Artifact, folder: Path, **options: Any) -> Artifact:
    out = folder / f"{technique.__name__.split('.')[-1]}-{len(options)}"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return technique.apply(Request(inputs, out, technique.Options(**options)))


def test_dynamic_int8_takes_the_lstm_and_the_wide_product_only(tmp_path: Path) -> None:
    model = lstm_net(tmp_path)
    int8 = applied(int8_dynamic, model, tmp_path)
    found = types(int8, tmp_path)
    assert int8.facts["quantized"] == ["lstm", "output"]
    assert "DynamicQuantizeLSTM" in found
    assert "MatMul" in found  # the attention's single column
    assert "LSTM" not in found
    assert sqnr_db(model, int8, tmp_path) > vectors.least_db(25)


def test_dynamic_int8_shrinks_the_embedding_when_asked(tmp_path: Path) -> None:
    model = lstm_net(tmp_path)
    plain = applied(int8_dynamic, model, tmp_path)
    small = applied(int8_dynamic, model, tmp_path, embeddings=True)
    assert small.size_bytes < plain.size_bytes


def test_dynamic_int8_of_convolutions_is_lost_not_slow(tmp_path: Path) -> None:
    lost = applied(int8_dynamic, conv_net(tmp_path, True), tmp_path)
    assert "no matrix product with at least 16 output columns" in lost.facts["lost"]


def test_static_int8_leaves_an_lstm_in_float(tmp_path: Path) -> None:
    model = lstm_net(tmp_path)
    int8 = quantized(model, tmp_path)
    assert "LSTM" in types(int8, tmp_path)
    assert sqnr_db(model, int8, tmp_path) > 20


# --------------------------------------------------------------------------- half precision


def test_half_precision_halves_the_file_and_keeps_the_ends(tmp_path: Path) -> None:
    model = conv_net(tmp_path, True)
    half = applied(onnx_fp16, model, tmp_path)
    assert half.facts["kept"] == []
    assert half.size_bytes < 0.65 * model.size_bytes
    assert sqnr_db(model, half, tmp_path) > 45
    assert half.inputs == model.inputs


def test_half_precision_leaves_an_lstm_in_fp32_for_it_would_crash(tmp_path: Path) -> None:
    model = lstm_net(tmp_path)
    half = applied(onnx_fp16, model, tmp_path)
    assert half.facts["kept"] == ["lstm"]
    assert half.size_bytes < model.size_bytes
    assert sqnr_db(model, half, tmp_path) > 45


# --------------------------------------------------------------------------- OpenVINO


def openvino_net(folder: Path) -> Artifact:
    out = folder / "openvino"
    out.mkdir()
    return registry.load("runtimes", "openvino").export(Request({"model": conv_net(folder, True)}, out))


def test_nncf_quantizes_every_convolution(tmp_path: Path) -> None:
    model = openvino_net(tmp_path)
    out = tmp_path / "int8"
    out.mkdir()
    data = conformance.samples(model, tmp_path)
    int8 = nncf_int8.apply(Request({"model": model, "samples": data}, out, nncf_int8.Options()))
    session = registry.load("runtimes", "openvino").open(int8, 1, profile=True)
    item = next(tensors.batches(data, "test", 1))
    table = session.ops(item, 2)["ops"]
    kernels = [op["where"] for op in table if op["type"] == "Convolution"]
    assert len(kernels) == 3
    assert sum(k.endswith(("I8", "i8")) for k in kernels) == 3, kernels
    assert int8.facts == {"samples": conformance.ITEMS, "float": []}


def products_net(folder: Path) -> Artifact:
    """x [1, 16] through two matrices without a bias, as a Linear of low rank is."""
    seeded = np.random.default_rng(0)
    weights = [seeded.normal(size=shape).astype(np.float32) for shape in ((16, 4), (4, 10))]
    nodes = [helper.make_node("MatMul", [a, b], [c], c) for a, b, c in (("x", "w0", "first"), ("first", "w1", "y"))]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, k]) for n, k in (("x", 16), ("y", 10))]
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    out = folder / "products"
    out.mkdir()
    onnx.save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)]), out / "model.onnx")
    return Artifact(out, "onnx", (TensorSpec("x", (1, 16)),), (TensorSpec("y", (1, 10)),)).write()


def test_nncf_keeps_the_first_of_two_products_in_float_for_openvino_would_answer_garbage(tmp_path: Path) -> None:
    model = products_net(tmp_path)
    out, openvino = tmp_path / "openvino", registry.load("runtimes", "openvino")
    out.mkdir()
    exported = openvino.export(Request({"model": model}, out))
    int8 = applied(nncf_int8, exported, tmp_path)
    assert int8.facts["float"] == ["first"]
    assert sqnr_db(exported, int8, tmp_path, openvino) > vectors.least_db(20)


def test_nncf_keeps_a_node_in_float_or_says_that_there_is_none(tmp_path: Path) -> None:
    model = openvino_net(tmp_path)
    out = tmp_path / "int8"
    out.mkdir()
    data = conformance.samples(model, tmp_path)
    with pytest.raises(StageFailed, match=r"nncf_int8: .*\['nothing'\] were not found"):
        nncf_int8.apply(Request({"model": model, "samples": data}, out, nncf_int8.Options(skip=("nothing",))))
