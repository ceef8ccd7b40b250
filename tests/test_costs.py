"""MACs and bytes by count: the formulas against torch's own, formats against
each other; and the floor of energy that follows from them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_inputs
import msgspec
import numpy as np
import pytest

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Dim, TensorSpec
from edgecompress.formats import op_counts
from edgecompress.plugins.sensors import op_floor
from edgecompress.reporting import formatting, model_numbers
from edgecompress.stages import energy

onnx = pytest.importorskip("onnx")
from onnx import helper  # noqa: E402

KINDS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}


class Builder:
    """An ONNX graph made node by node; every weight is zero."""

    def __init__(self, folder: Path, shape: tuple[int | str, ...], dtype: str = "float32") -> None:
        self.folder, self.nodes, self.weights, self.names = folder, [], [], itertools.count()
        self.given = helper.make_tensor_value_info("x", KINDS[dtype], shape)
        self.spec = TensorSpec("x", tuple(Dim(d, 1, 64) if isinstance(d, str) else d for d in shape), dtype)

    def weight(self, shape: tuple[int, ...], dtype: str = "float32") -> str:
        name = f"w{next(self.names)}"
        self.weights.append(onnx.numpy_helper.from_array(np.zeros(shape, dtype), name))
        return name

    def node(self, kind: str, *reads: str, writes: int = 1, **attributes: Any) -> str:
        made = [f"t{next(self.names)}" for _ in range(writes)]
        self.nodes.append(helper.make_node(kind, reads, made, name=f"{kind}_{made[0]}", **attributes))
        return made[0]

    def artifact(self, last: str, dtype: str = "float32") -> Artifact:
        self.folder.mkdir(parents=True, exist_ok=True)
        end = helper.make_tensor_value_info(last, KINDS[dtype], None)
        graph = helper.make_graph(self.nodes, "g", [self.given], [end], self.weights)
        sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        onnx.save(helper.make_model(graph, opset_imports=sets), self.folder / "model.onnx")
        return Artifact(self.folder, "onnx", (self.spec,), (TensorSpec(last, (1,), dtype),)).write()


# --------------------------------------------------------------------------- against torch


def flops(call: Callable[[], Any]) -> int:
    """What torch counts: two for each MAC."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        call()
    return int(counter.get_total_flops())


def draw_conv(draw: random.Random) -> tuple[dict[str, int], tuple[int, ...]]:
    groups = draw.choice([1, 2, 4, 8])
    how = {"kernel_size": draw.randint(1, 5), "stride": draw.randint(1, 3), "groups": groups}
    how |= {"padding": draw.randint(0, 2), "dilation": draw.randint(1, 2)}
    side = draw.randint(12, 20)
    return how, (draw.randint(1, 3), 8 * draw.randint(1, 3), side, side + 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_has_the_macs_that_torch_counts(seed: int, transposed: bool, tmp_path: Path) -> None:
    import torch
    from torch import nn

    how, shape = draw_conv(random.Random(seed))
    outputs, kernel, groups = 16, how["kernel_size"], how["groups"]
    with torch.device("meta"):
        layer = (nn.ConvTranspose2d if transposed else nn.Conv2d)(shape[1], outputs, **how)
        counted = flops(lambda: layer(torch.zeros(shape)))
    net = Builder(tmp_path, shape)
    wide = net.weight(tuple(layer.weight.shape))
    said = {"group": groups, "strides": [how["stride"]] * 2, "dilations": [how["dilation"]] * 2}
    kind = "ConvTranspose" if transposed else "Conv"
    pads = [how["padding"]] * 4
    found = net.artifact(net.node(kind, "x", wide, pads=pads, kernel_shape=[kernel] * 2, **said))
    assert 2 * op_counts.total(found)["macs"] == counted > 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_products_have_the_macs_that_torch_counts(seed: int, tmp_path: Path) -> None:
    import torch

    draw = random.Random(seed)
    batch, m, k, n = (draw.randint(1, 40) for _ in range(4))
    a, b = torch.zeros(batch, m, k), torch.zeros(batch, k, n)
    net = Builder(tmp_path / "matmul", (batch, m, k))
    found = net.artifact(net.node("MatMul", "x", net.weight((batch, k, n))))
    assert 2 * op_counts.total(found)["macs"] == flops(lambda: a @ b)
    net = Builder(tmp_path / "gemm", (k, m))
    found = net.artifact(net.node("Gemm", "x", net.weight((n, k)), net.weight((n,)), transA=1, transB=1))
    assert 2 * op_counts.total(found)["macs"] == flops(lambda: a[0] @ b[0])
    net = Builder(tmp_path / "einsum", (batch, m, k))
    found = net.artifact(net.node("Einsum", "x", net.weight((k, n)), equation="bmk,kn->bmn"))
    assert 2 * op_counts.total(found)["macs"] == flops(lambda: a @ b)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_recurrent_cells_have_the_macs_that_torch_counts(seed: int, tmp_path: Path) -> None:
    import torch
    from torch import nn

    draw = random.Random(seed)
    steps, batch, features, hidden = (draw.randint(1, 12) for _ in range(4))
    kind, gates = draw.choice([("LSTM", 4), ("GRU", 3), ("RNN", 1)])
    both = draw.random() < 0.5
    with torch.device("meta"):
        layer = getattr(nn, kind)(features, hidden, bidirectional=both)
        counted = flops(lambda: layer(torch.zeros(steps, batch, features)))
    net = Builder(tmp_path, (steps, batch, features))
    weights = [net.weight((1 + both, gates * hidden, wide)) for wide in (features, hidden)]
    way = "bidirectional" if both else "forward"
    found = net.artifact(net.node(kind, "x", *weights, writes=2, hidden_size=hidden, direction=way))
    assert 2 * op_counts.total(found)["macs"] == counted > 0


# --------------------------------------------------------------------------- bytes, precisions, what is not known


def quantized(folder: Path, relu: bool = False) -> Artifact:
    """x -> Q -> DQ -> Conv(DQ(w)) -> [Relu] -> Q -> DQ."""
    net = Builder(folder, ("batch", 4, 8, 8))
    ends = net.weight(()), net.weight((), "uint8")
    inner = net.node("DequantizeLinear", net.node("QuantizeLinear", "x", *ends), *ends)
    kernel = net.node("DequantizeLinear", net.weight((6, 4, 3, 3), "int8"), net.weight((6,)), axis=0)
    y = net.node("Conv", inner, kernel, pads=[1] * 4)
    y = net.node("Relu", y) if relu else y
    return net.artifact(net.node("DequantizeLinear", net.node("QuantizeLinear", y, *ends), *ends))


@pytest.mark.parametrize("relu", [False, True])
def test_what_lies_between_quantize_and_dequantize_counts_as_integers(relu: bool, tmp_path: Path) -> None:
    found = {op["type"]: op for op in op_counts.of(quantized(tmp_path, relu))}
    assert set(found) == {"QuantizeLinear", "Conv", "DequantizeLinear"}
    conv = found["Conv"]
    assert (conv["dtype"], conv["macs"]) == ("int8", 6 * 64 * 36)
    assert conv["bytes"] == 4 * 64 + 6 * 36 + 6 * 64  # in, weights, out: one byte each
    assert found["QuantizeLinear"]["bytes"] == pytest.approx(5 * 4 * 64, abs=8)  # four bytes read, one written


def test_the_operator_form_counts_as_the_other(tmp_path: Path) -> None:
    net = Builder(tmp_path, (1, 4, 8, 8), "uint8")
    scale, zero, w_zero = net.weight(()), net.weight((), "uint8"), net.weight((), "int8")
    reads = ("x", scale, zero, net.weight((6, 4, 3, 3), "int8"), scale, w_zero, scale, zero)
    (conv,) = op_counts.of(net.artifact(net.node("QLinearConv", *reads, pads=[1] * 4), "uint8"))
    assert (conv["dtype"], conv["macs"]) == ("int8", 6 * 64 * 36)
    assert conv["bytes"] == pytest.approx(4 * 64 + 6 * 36 + 6 * 64, abs=20)


def test_a_batch_multiplies_the_work_but_not_the_weights(tmp_path: Path) -> None:
    artifact = quantized(tmp_path)
    one, eight = op_counts.total(artifact), op_counts.total(artifact, 8)
    assert eight["macs"] == 8 * one["macs"] and eight["batch"] == 8
    assert eight["once_bytes"] - 6 * 36 - 5 * 7 < 8 * one["once_bytes"] - 8 * 6 * 36


def test_a_table_is_read_by_rows_and_a_view_moves_nothing(tmp_path: Path) -> None:
    net = Builder(tmp_path, (1, 8), "int64")
    rows = net.node("Gather", net.weight((50000, 16)), "x")
    (op,) = op_counts.of(net.artifact(net.node("Flatten", rows)))
    assert op["bytes"] == 8 * 8 + 2 * 4 * 8 * 16


def test_an_lstm_of_the_runtimes_own_is_counted_as_the_standard_one(tmp_path: Path) -> None:
    net = Builder(tmp_path, (5, 1, 16))
    weights = net.weight((1, 16, 32), "int8"), net.weight((1, 8, 32), "int8")
    scale, zero = net.weight((1,)), net.weight((1,), "int8")
    reads = ("x", *weights, "", "", "", "", "", scale, zero, scale, zero)
    lstm = net.node("DynamicQuantizeLSTM", *reads, domain="com.microsoft", hidden_size=8)
    found = op_counts.total(net.artifact(net.node("Flatten", lstm)))
    assert found["macs_of"] == {"int8": 5 * (16 * 32 + 8 * 32)}


def test_what_cannot_be_counted_is_none_with_the_reason(tmp_path: Path) -> None:
    net = Builder(tmp_path / "unknown", (1, 4))
    widened = net.node("MatMulNBits", "x", net.weight((4, 1, 2), "uint8"), domain="com.microsoft")
    unknown = op_counts.total(net.artifact(net.node("Add", "x", widened)))
    assert unknown["macs"] is None and unknown["bytes"] is None and "known only at run time" in unknown["why"]
    net = Builder(tmp_path / "elsewhere", (1, 4))
    assert "elsewhere" in op_counts.total(net.artifact(net.node("Mine", "x", domain="elsewhere")))["why"]
    net = Builder(tmp_path / "data", (4, 4))
    depends = op_counts.total(net.artifact(net.node("NonZero", "x"), "int64"))
    assert depends["macs"] is None and "known only at run time" in depends["why"]
    null = bench_inputs.net(tmp_path / "null")
    assert op_counts.total(null)["why"].endswith("not in kind 'null'")
    with pytest.raises(StageFailed, match="not in kind 'null'"):
        op_counts.of(null)


# --------------------------------------------------------------------------- other formats


@pytest.mark.slow
def test_a_tflite_file_counts_by_its_own_layouts(tmp_path: Path) -> None:
    flatbuffers = pytest.importorskip("flatbuffers")
    schema = pytest.importorskip("ai_edge_litert.schema_py_generated")
    shapes = {"x": (1, 8, 8, 4), "w": (6, 3, 3, 4), "y": (1, 8, 8, 6), "d": (1, 3, 3, 6), "z": (1, 8, 8, 6)}
    shapes |= {"flat": (1, 384), "f": (10, 384), "out": (1, 10)}
    names = list(shapes)
    model = schema.ModelT()
    model.version, model.buffers, model.operatorCodes = 3, [schema.BufferT()], []
    graph = schema.SubGraphT()
    graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [0], [names.index("out")]
    for name, shape in shapes.items():
        tensor = schema.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), 9, 0  # int8
        if name in "wdf":
            buffer = schema.BufferT()
            buffer.data = np.zeros(int(np.prod(shape)), np.uint8)
            model.buffers.append(buffer)
            tensor.buffer = len(model.buffers) - 1
        graph.tensors.append(tensor)
    calls = (("CONV_2D", "x w", "y"), ("DEPTHWISE_CONV_2D", "y d", "z"), ("RESHAPE", "z", "flat"))
    for kind, reads, writes in (*calls, ("FULLY_CONNECTED", "flat f", "out")):
        code, op = schema.OperatorCodeT(), schema.OperatorT()
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, kind)
        op.opcodeIndex = len(model.operatorCodes)
        op.inputs, op.outputs = [names.index(n) for n in reads.split()], [names.index(writes)]
        model.operatorCodes.append(code)
        graph.operators.append(op)
    model.subgraphs = [graph]
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    (tmp_path / "model.tflite").write_bytes(builder.Output())
    artifact = Artifact(tmp_path, "tflite", (TensorSpec("x", shapes["x"], "int8"),), ()).write()
    found = [(op["name"], op["macs"], op["bytes"]) for op in op_counts.of(artifact)]
    assert found == [
        ("y", 64 * 6 * 36, 256 + 216 + 384),
        ("z", 64 * 6 * 9, 384 + 54 + 384),
        ("out", 3840, 384 + 3840 + 10),
    ]
    assert op_counts.total(artifact)["once_bytes"] == 256 + 216 + 54 + 3840 + 10


def edge(source: str, to: str) -> str:
    (layer, port), (next_layer, next_port) = source.split(":"), to.split(":")
    return f'<edge from-layer="{layer}" from-port="{port}" to-layer="{next_layer}" to-port="{next_port}"/>'


IR = """<net name="n" version="11"><layers>
<layer id="0" name="x" type="Parameter"><output><port id="0" precision="FP32">
  <dim>-1</dim><dim>4</dim><dim>8</dim><dim>8</dim></port></output></layer>
<layer id="1" name="fq" type="FakeQuantize"><input><port id="0"/></input><output><port id="1" precision="FP32">
  <dim>-1</dim><dim>4</dim><dim>8</dim><dim>8</dim></port></output></layer>
<layer id="2" name="w" type="Const"><output><port id="0" precision="I8">
  <dim>2</dim><dim>3</dim><dim>2</dim><dim>3</dim><dim>3</dim></port></output></layer>
<layer id="3" name="wide" type="Convert"><input><port id="0"/></input><output><port id="1" precision="FP32">
  <dim>2</dim><dim>3</dim><dim>2</dim><dim>3</dim><dim>3</dim></port></output></layer>
<layer id="4" name="conv" type="GroupConvolution"><input><port id="0"/><port id="1"/></input>
  <output><port id="2" precision="FP32"><dim>-1</dim><dim>6</dim><dim>8</dim><dim>8</dim></port></output></layer>
<layer id="5" name="relu" type="ReLU"><input><port id="0"/></input><output><port id="1" precision="FP32">
  <dim>-1</dim><dim>6</dim><dim>8</dim><dim>8</dim></port></output></layer>
<layer id="6" name="y" type="Result"><input><port id="0"/></input></layer>
</layers><edges>
%s
</edges></net>"""


EDGES = ("0:0 1:0", "1:1 4:0", "2:0 3:0", "3:1 4:1", "4:2 5:0", "5:1 6:0")


def test_an_openvino_file_counts_as_its_kernels_see_it(tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_text(IR % "".join(edge(*pair.split()) for pair in EDGES))
    artifact = Artifact(tmp_path, "openvino", (TensorSpec("x", (Dim("batch", 1, 8), 4, 8, 8)),), ()).write()
    found = {op["type"]: op for op in op_counts.of(artifact, 2)}
    assert set(found) == {"FakeQuantize", "GroupConvolution"}
    conv = found["GroupConvolution"]
    assert (conv["macs"], conv["dtype"]) == (2 * 6 * 64 * 18, "int8")
    assert conv["bytes"] == 2 * 4 * 64 + 6 * 18 + 2 * 6 * 64 * 4


# --------------------------------------------------------------------------- the floor

WORK = {"macs": 10**6, "macs_of": {"int8": 10**6}, "once_bytes": 10**4, "batch": 1, "why": ""}


@pytest.mark.parametrize(("options", "picojoules"), [({"node_nm": 45}, 0.3e6 + 12500), ({}, 0.1e6 + 9375)])
def test_the_floor_is_that_of_the_published_tables(options: dict[str, Any], picojoules: float) -> None:
    device = {"options": {"op_floor": options}, "work": WORK}
    assert op_floor.unavailable(device, Path("/")) == ""
    found = op_floor.open(device, Path("/")).energy(0.0, 1.0)
    assert found.value == found.low == pytest.approx(picojoules * 1e-12) and found.high is None
    assert found.status == "estimated" and "lower bound" in found.reason
    assert ("45 nm" if options else "7 nm") in found.source


def test_a_floor_holds_for_older_processes_and_for_no_finer_one() -> None:
    def value(node_nm: float) -> Any:
        device = {"options": {"op_floor": {"node_nm": node_nm}}, "work": WORK}
        return op_floor.open(device, Path("/")).energy(0.0, 1.0).value

    assert value(7) == value(16) < value(45) == value(90)
    assert "3 nm" in op_floor.unavailable({"options": {"op_floor": {"node_nm": 3}}}, Path("/"))
    nothing = op_floor.open({}, Path("/")).energy(0.0, 1.0)
    assert nothing.value is None and "counted" in nothing.reason


def test_a_stage_gives_the_floor_as_bounds(tmp_path: Path) -> None:
    variants = {"a": quantized(tmp_path / "a")}
    device = {"sensors": ("power_model", "op_floor"), "power": None}
    request = bench_inputs.request(tmp_path, variants, device, latency_ms={"a": 2.0})
    found = energy.energy(request).facts
    gross, net, per_joule, power = found["variants"]["a"]
    assert found["sensor"] == "op_floor" and "power_model" in found["why_not"]
    work = op_counts.total(variants["a"])
    picojoules = 0.1 * work["macs"] + 7.5 / 8 * work["once_bytes"]
    assert gross["value"] == gross["low"] == net["low"] == pytest.approx(1e-9 * picojoules) and gross["high"] is None
    assert per_joule["value"] == per_joule["high"] == pytest.approx(1e12 / picojoules) and per_joule["low"] is None
    assert power["value"] == pytest.approx(1e-12 * picojoules / 2e-3)
    words = [formatting.text(msgspec.convert(number, model_numbers.Number)) for number in (gross, per_joule)]
    assert [word[:2] for word in words] == ["≥ ", "≤ "]


def test_where_nothing_can_be_counted_there_is_no_floor(tmp_path: Path) -> None:
    variants = {"a": bench_inputs.net(tmp_path / "a")}
    request = bench_inputs.request(tmp_path, variants, {"sensors": ("op_floor",)}, latency_ms={"a": 2.0})
    found = energy.energy(request).facts
    assert found["sensor"] == "" and "kind 'null'" in found["variants"]["a"][0]["reason"]
