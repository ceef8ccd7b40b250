"""MNN: what its converter takes, half precision, other batches, files that are none, and CPUs without fp16."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from edgecompress.core import catalog, foreign_model, registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import SETTINGS, Artifact, Dim, Request, TensorSpec
from edgecompress.device import machine
from edgecompress.engines.mnn import session
from edgecompress.engines.mnn.runtimes import mnn
from edgecompress.engines.mnn.techniques import mnn_fp16, mnn_sparse
from edgecompress.plugins.transports import qemu
from edgecompress.testing.conformance.nets import net, samples

pytestmark = pytest.mark.slow
pytest.importorskip("MNN")


def made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def exported(folder: Path) -> Artifact:
    return mnn.export(Request({"model": net("onnx", folder)}, made(folder / "exported")))


def halved(model: Artifact, folder: Path, **options: Any) -> Artifact:
    inputs = {"model": model, "samples": samples(model, folder)}
    return mnn_fp16.apply(Request(inputs, made(folder / "halved"), mnn_fp16.Options(**options)))


def answer(runtime: ModuleType, model: Artifact, items: np.ndarray) -> np.ndarray:
    opened = runtime.open(model, 1)
    answered: np.ndarray = opened.run({model.inputs[0].name: items})[model.outputs[0].name]
    opened.close()
    return answered


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).normal(size=shape).astype(np.float32)


def onnx_net(folder: Path, *operators: tuple[str, list[str], list[str]], shape: tuple[Any, ...]) -> Artifact:
    """A graph from x to y, of float32."""
    import onnx
    from onnx import TensorProto, helper

    sizes = [d if isinstance(d, int) else d.name for d in shape]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, sizes) for name in "xy"]
    constants = [helper.make_tensor("large", TensorProto.FLOAT, [1], [30000.0])]
    constants += [helper.make_tensor("zero", TensorProto.INT8, [1], [0])]
    nodes = [helper.make_node(*operator) for operator in operators]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(proto, made(folder) / "model.onnx")
    return Artifact(folder, "onnx", (TensorSpec("x", shape),), (TensorSpec("y", shape),)).write()


# --------------------------------------------------------------------------- half precision


def test_half_precision_is_half_the_size_and_opened_as_such(tmp_path: Path) -> None:
    full = exported(tmp_path)
    half = halved(full, tmp_path)
    assert half.facts[SETTINGS] == {"precision": "low"} and half.facts["samples"] == 8
    assert half.facts["largest"]["value"] > 0 and "lost" not in half.facts
    weights = 4 * (16 * 3 * 9 + 16 * 16 * 9 + 16 * 16)
    assert full.size_bytes - half.size_bytes == pytest.approx(weights / 2, rel=0.05)
    items = drawn(1, 3, 8, 8)
    assert np.allclose(answer(mnn, full, items), answer(mnn, half, items), atol=5e-3)


def test_zeros_are_not_stored_and_the_net_answers_as_before(tmp_path: Path) -> None:
    import onnx
    from onnx import numpy_helper

    dense = net("onnx", tmp_path)
    whole = mnn.export(Request({"model": dense}, made(tmp_path / "exported")))
    lost = mnn_sparse.apply(Request({"model": whole}, made(tmp_path / "lost"), mnn_sparse.Options()))
    assert lost.facts["lost"].startswith("no weight has zeros enough")
    proto = onnx.load(dense.file(".onnx"))
    for tensor in proto.graph.initializer:
        weight = numpy_helper.to_array(tensor).copy()
        if weight.ndim > 1:
            weight[np.abs(weight) <= np.quantile(np.abs(weight), 0.9)] = 0
            tensor.CopyFrom(numpy_helper.from_array(weight, tensor.name))
    onnx.save(proto, made(tmp_path / "pruned") / "model.onnx")
    pruned = Artifact(tmp_path / "pruned", "onnx", dense.inputs, dense.outputs).write()
    full = mnn.export(Request({"model": pruned}, made(tmp_path / "full")))
    sparse = mnn_sparse.apply(Request({"model": full}, made(tmp_path / "sparse"), mnn_sparse.Options()))
    assert "lost" not in sparse.facts
    assert sparse.facts["bytes"]["after"] == sparse.size_bytes < 0.5 * full.size_bytes
    items = drawn(1, 3, 8, 8)
    assert np.allclose(answer(mnn, sparse, items), answer(mnn, full, items), atol=1e-4)


def test_what_half_precision_cannot_hold_is_lost(tmp_path: Path) -> None:
    source = onnx_net(tmp_path / "net", ("Mul", ["x", "large"], ["m"]), ("Tanh", ["m"], ["y"]), shape=(1, 8))
    full = mnn.export(Request({"model": source}, made(tmp_path / "exported")))
    lost = halved(full, tmp_path).facts["lost"]
    assert re.fullmatch(r"operator '.+' answers \S+ on the calibration data; .* beyond half precision, 65504", lost)


@pytest.mark.parametrize(
    ("name", "refused"), [("cortex-a53", True), ("cortex-a72", True), ("cortex-a76", False), ("neoverse-v1", False)]
)
def test_half_precision_is_refused_on_an_arm_cpu_that_has_none(
    name: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edgecompress.device.emulation import cpus

    texts = {"system": "Linux", "machine": "aarch64", "proc/cpuinfo": cpus.files(cpus.CPUS[name])["proc/cpuinfo"]}
    monkeypatch.setattr(machine, "here", lambda: texts)
    session.check_cpu({"precision": "high"})
    if refused:
        with pytest.raises(
            StageFailed, match=r"Cortex-A\d\d has no half-precision arithmetic \(asimdhp\); take .* fp32"
        ):
            session.check_cpu(session.HALF)
    else:
        session.check_cpu(session.HALF)


@pytest.mark.qemu
def test_an_arm_cpu_computes_in_half_precision(tmp_path: Path) -> None:
    """On the emulated Cortex-A76 fp32 answers as here, and fp16 as halves do: further off than its weights alone."""
    full = exported(tmp_path)
    half, items = halved(full, tmp_path), drawn(1, 3, 8, 8)
    shell = qemu.connect({"options": catalog.device("qemu-cortex-a76").value.options})
    code = (
        "import sys, MNN, numpy as np\n"
        "net = MNN.Interpreter(sys.argv[1])\n"
        "opened = net.createSession({'backend': 'CPU', 'numThread': 1, 'precision': sys.argv[2]})\n"
        "x = np.load(sys.argv[3])\n"
        "own = MNN.Tensor(x.shape, MNN.Halide_Type_Float, x, MNN.Tensor_DimensionType_Caffe)\n"
        "net.getSessionInput(opened).copyFrom(own)\n"
        "net.runSession(opened)\n"
        "y = net.getSessionOutput(opened)\n"
        "own = MNN.Tensor(y.getShape(), y.getDataType(), np.zeros(y.getShape(), 'f'), MNN.Tensor_DimensionType_Caffe)\n"
        "y.copyToHostTensor(own)\n"
        "np.save(sys.argv[4], own.getNumpyData())\n"
    )
    np.save(tmp_path / "x.npy", items)
    off = {}
    for model, precision in ((full, "high"), (half, "low")):
        words = [str(model.file(".mnn")), precision, str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
        assert shell.run([shell.facts()["python"], "-c", code, *words], 60, tmp_path / "log") == 0
        off[precision] = np.abs(np.load(tmp_path / "y.npy") - answer(mnn, model, items)).max()
    assert off["high"] < 1e-5 < 1e-4 < off["low"] < 1e-2


# --------------------------------------------------------------------------- what it takes


def test_a_session_takes_another_batch_at_the_next_call(tmp_path: Path) -> None:
    source = onnx_net(tmp_path / "net", ("Softmax", ["x"], ["y"]), shape=(Dim("batch", 1, 8), 4))
    model = mnn.export(Request({"model": source}, made(tmp_path / "exported")))
    assert model.inputs == source.inputs
    opened, right = mnn.open(model, 1), registry.load("runtimes", "onnx").open(source, 1)
    for batch in (1, 3, 3, 1):
        given = {"x": drawn(batch, 4)}
        assert np.allclose(opened.run(given)["y"], right.run(given)["y"], atol=1e-6)
    opened.close()
    right.close()


def test_operators_are_timed(tmp_path: Path) -> None:
    opened = mnn.open(exported(tmp_path), 1, profile=True)
    ops = opened.ops({"image": drawn(1, 3, 8, 8)}, 3)["ops"]
    assert [op["type"] for op in ops].count("Convolution") == 3 and all(op["ms"] > 0 for op in ops)
    opened.close()


def test_a_quantized_model_is_refused_by_name(tmp_path: Path) -> None:
    quantized = ("QuantizeLinear", ["x", "large", "zero"], ["q"]), ("DequantizeLinear", ["q", "large", "zero"], ["y"])
    source = onnx_net(tmp_path / "net", *quantized, shape=(1, 8))
    with pytest.raises(StageFailed, match=r"takes no quantized ONNX model \(DequantizeLinear, QuantizeLinear\); use"):
        mnn.export(Request({"model": source}, made(tmp_path / "exported")))


def test_what_the_converter_says_of_a_model_is_told_in_a_line(tmp_path: Path) -> None:
    source = onnx_net(tmp_path / "net", ("Nonsense", ["x"], ["y"]), shape=(1, 8))
    with pytest.raises(StageFailed, match=r"^MNN's converter: ") as caught:
        mnn.export(Request({"model": source}, made(tmp_path / "exported")))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["cut", "noise", "empty"])
def test_a_damaged_file_is_one_line(content: str, tmp_path: Path) -> None:
    model = exported(tmp_path)
    data = model.file(".mnn").read_bytes()
    shutil.copytree(model.path, tmp_path / "damaged")
    damaged = {"cut": data[: len(data) // 2], "noise": bytes(range(256)) * 8, "empty": b""}[content]
    (tmp_path / "damaged" / "model.mnn").write_bytes(damaged)
    with pytest.raises(StageFailed, match=r"^runtime mnn: model\.mnn: not an MNN model, or truncated or damaged"):
        mnn.open(Artifact.read(tmp_path / "damaged"), 1)


def test_an_mnn_file_is_no_source() -> None:
    error = foreign_model.refused(Path("net.mnn"))
    assert isinstance(error, InputError) and "made for one engine" in str(error)
