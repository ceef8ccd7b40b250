"""Weights of 4 and 8 bits in groups: what is in the file, what it answers, what is left in float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from edgecompress.core import config
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.core.settings import Target, Variant
from edgecompress.engines.executorch.runtimes import executorch
from edgecompress.engines.litert.runtimes import litert
from edgecompress.engines.litert.techniques import litert_int4
from edgecompress.engines.onnx import external
from edgecompress.engines.onnx.runtimes import onnx as onnx_runtime
from edgecompress.engines.onnx.techniques import int8_dynamic, onnx_int4, onnx_int8_weights
from edgecompress.engines.openvino.techniques import nncf_int4, nncf_int8_weights
from edgecompress.formats.precision import facts
from edgecompress.pipeline import conversion
from edgecompress.techniques import torchao_int4
from edgecompress.testing import conformance

IDS, WIDTH, MIDDLE, CLASSES = 50, 64, 160, 24


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """ids [batch, 6] -> a table, a product, a product with a turned weight and a bias, one of 8 columns."""
    rng = np.random.default_rng(0)
    shapes = {"table": (IDS, WIDTH), "first": (WIDTH, MIDDLE), "turned": (CLASSES, MIDDLE), "narrow": (CLASSES, 8)}
    arrays = {n: (rng.normal(size=s) / s[-1] ** 0.5).astype(np.float32) for n, s in shapes.items()}
    arrays |= {"bias": rng.normal(size=CLASSES).astype(np.float32), "flat": np.array([-1, MIDDLE], np.int64)}
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["e"], "embedding"),
        helper.make_node("MatMul", ["e", "first"], ["m"], "first"),
        helper.make_node("Relu", ["m"], ["r"], "relu"),
        helper.make_node("Reshape", ["r", "flat"], ["f"], "flatten"),
        helper.make_node("Gemm", ["f", "turned", "bias"], ["g"], "second", transB=1),
        helper.make_node("MatMul", ["g", "narrow"], ["scores"], "third"),
    ]
    ends = [
        helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", 6]),
        helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["rows", 8]),
    ]
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    folder = tmp_path_factory.mktemp("net")
    onnx.save_model(model, folder / "model.onnx")
    batch = Dim("batch", 1, 4)
    return Artifact(
        folder, "onnx", (TensorSpec("ids", (batch, 6), "int64"),), (TensorSpec("scores", (batch, 8)),)
    ).write()


def applied(technique: Any, model: Artifact, folder: Path, **options: Any) -> Artifact:
    out = folder / f"out{len(list(folder.iterdir()))}"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    made: Artifact = technique.apply(Request(inputs, out, technique.Options(**options)))
    return made


def answer(model: Artifact) -> np.ndarray:
    ids = np.random.default_rng(1).integers(0, IDS, (4, 6))
    session = onnxruntime.InferenceSession(model.file(".onnx"), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"ids": ids})[0])


def off(model: Artifact, other: Artifact) -> float:
    """The error of what it answers, against the size of the answer."""
    expected = answer(model)
    return float(np.linalg.norm(answer(other) - expected) / np.linalg.norm(expected))


def types(model: Artifact) -> list[str]:
    return [node.op_type for node in onnx.load(model.file(".onnx")).graph.node]


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("embeddings", [False, True])
def test_products_are_computed_by_the_kernel_for_few_bits(
    net: Artifact, tmp_path: Path, symmetric: bool, embeddings: bool
) -> None:
    small = applied(onnx_int4, net, tmp_path, symmetric=symmetric, embeddings=embeddings)
    assert types(small).count("MatMulNBits") == 2  # the third has too few columns
    assert types(small).count("GatherBlockQuantized") == embeddings
    assert small.facts["quantized"] == ["first", "second"] + ["embedding"] * embeddings
    assert off(net, small) < 0.2
    weights = facts.of(small)["weights"]
    assert weights is not None
    assert weights["int4"] >= (WIDTH * MIDDLE + MIDDLE * CLASSES) / 2
    assert ("fp32" in weights) and (weights["fp32"] < IDS * WIDTH * 4) == embeddings


def test_a_layer_is_called_by_its_product_whose_bias_is_added_behind_it(net: Artifact, tmp_path: Path) -> None:
    small = applied(onnx_int4, net, tmp_path)
    (tmp_path / "tapped").mkdir()
    taps = onnx_runtime.tapped(Request({"model": small}, tmp_path / "tapped")).facts["taps"]
    assert {"first", "second"} <= {row["operator"] for row in taps} and small.facts["numbers"] == {
        "first": WIDTH * MIDDLE,
        "second": MIDDLE * CLASSES,
    }


def test_eight_bits_are_nearer(net: Artifact, tmp_path: Path) -> None:
    four, eight = (applied(technique, net, tmp_path) for technique in (onnx_int4, onnx_int8_weights))
    assert off(net, eight) < off(net, four) / 5
    assert facts.of(eight)["weights"].get("int8")  # type: ignore[union-attr]


def test_layers_may_have_eight_bits_or_none(net: Artifact, tmp_path: Path) -> None:
    mixed = applied(onnx_int4, net, tmp_path, int8=("sec*",), skip=("first",))
    assert mixed.facts["quantized"] == mixed.facts["int8"] == ["second"]
    assert off(net, mixed) < 0.01
    assert onnx_int4.kept({"group": 32}, [{"operator": "first", "type": "", "module": "", "node": ""}]) == {
        "group": 32,
        "int8": ["first"],
    }


@pytest.mark.parametrize(("method", "symmetric"), [("gptq", False), ("gptq", True), ("awq", False)])
def test_weights_are_fitted_to_calibration_items(net: Artifact, tmp_path: Path, method: str, symmetric: bool) -> None:
    fitted = applied(onnx_int4, net, tmp_path, method=method, symmetric=symmetric)
    assert types(fitted).count("MatMulNBits") == 2
    assert off(net, fitted) < 0.25


def test_groups_that_no_weight_fills_are_told(net: Artifact, tmp_path: Path) -> None:
    lost = applied(onnx_int4, net, tmp_path, skip=("first", "second"))
    assert (
        lost.facts["lost"]
        == "changed nothing in this model: it has no matrix product with a weight that is large enough"
    )


# --------------------------------------------------------------------------- OpenVINO


@pytest.fixture(scope="module")
def ir(net: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    import openvino

    folder = tmp_path_factory.mktemp("ir")
    openvino.save_model(openvino.Core().read_model(net.file(".onnx")), folder / "model.xml", compress_to_fp16=False)
    return Artifact(folder, "openvino", net.inputs, net.outputs).write()


def ir_answer(model: Artifact) -> np.ndarray:
    import openvino

    ids = np.random.default_rng(1).integers(0, IDS, (4, 6))
    net = openvino.Core().compile_model(model.file(".xml"), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(net({"ids": ids})[0])


def ir_off(model: Artifact, other: Artifact) -> float:
    expected = ir_answer(model)
    return float(np.linalg.norm(ir_answer(other) - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize(
    "options",
    [{}, {"symmetric": True}, *({"method": m} for m in ("gptq", "awq", "scale_estimation")), {"embeddings": True}],
)
def test_openvino_has_four_bits(ir: Artifact, tmp_path: Path, options: dict[str, Any]) -> None:
    small = applied(nncf_int4, ir, tmp_path, **options)
    table = "embeddings" in options
    assert sorted(small.facts["quantized"]) == sorted(["first_1", "second/WithoutBiases"] + ["embedding"] * table)
    assert ir_off(ir, small) < 0.25
    weights = facts.of(small)["weights"]
    assert weights is not None
    assert weights["int4"] >= (WIDTH * MIDDLE + MIDDLE * CLASSES) / 2
    assert (weights["fp32"] < IDS * WIDTH * 4) == table


def test_openvino_takes_a_smaller_group_where_rows_are_no_multiple(ir: Artifact, tmp_path: Path) -> None:
    small = applied(nncf_int4, ir, tmp_path, group=128)  # rows of 64 and 160
    assert small.facts["quantized"] == ["first_1", "second/WithoutBiases"] and not small.facts["int8"]
    assert (facts.of(small)["weights"] or {})["int4"] >= (WIDTH * MIDDLE + MIDDLE * CLASSES) / 2


def test_openvino_mixes_four_and_eight_bits_and_float(ir: Artifact, tmp_path: Path) -> None:
    mixed = applied(nncf_int4, ir, tmp_path, int8=("^sec",), skip=("^emb",))
    assert mixed.facts["int8"] == ["second/WithoutBiases"]
    assert set(facts.of(mixed)["weights"] or ()) == {"int4", "int8", "fp32"}
    eight = applied(nncf_int8_weights, ir, tmp_path)
    assert ir_off(ir, eight) < 0.02


# --------------------------------------------------------------------------- ExecuTorch


class Encoder(torch.nn.Module):
    """ids [batch, 6] -> scores [batch, 6, 24]; the head is the turned table."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(CLASSES, WIDTH)
        self.first = torch.nn.Linear(WIDTH, MIDDLE)
        self.second = torch.nn.Linear(MIDDLE, WIDTH)
        self.head = torch.nn.Linear(WIDTH, CLASSES, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scores: torch.Tensor = self.head(self.second(self.first(self.table(ids)).relu()))
        return scores


def encoder(folder: Path) -> Artifact:
    torch.manual_seed(0)
    net, ids = Encoder().eval(), torch.zeros((2, 6), dtype=torch.long)
    dynamic = {"ids": {0: torch.export.Dim("batch", min=1, max=8)}}
    folder.mkdir()
    torch.export.save(torch.export.export(net, (ids,), dynamic_shapes=dynamic), folder / "program.pt2")
    batch = Dim("batch", 1, 8)
    ends = (TensorSpec("ids", (batch, 6), "int64"),), (TensorSpec("scores", (batch, 6, CLASSES)),)
    return Artifact(folder, "program", *ends).write()


def pte_off(model: Artifact, other: Artifact, folder: Path) -> float:
    """The error of what the file answers, against the program."""
    ids = np.random.default_rng(1).integers(0, CLASSES, (4, 6))
    folder.mkdir()
    options = config.build(executorch.Options, {}, "")
    session = executorch.open(executorch.export(Request({"model": other}, folder, options)), 1)
    expected = torch.export.load(model.file(".pt2")).module()(torch.from_numpy(ids)).detach().numpy()
    found = session.run({"ids": ids})["scores"]
    session.close()
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


@pytest.mark.prove
def test_executorch_has_four_bits_in_its_delegate(tmp_path: Path) -> None:
    model = encoder(tmp_path / "net")
    small = applied(torchao_int4, model, tmp_path)
    assert small.facts["quantized"] == ["first", "second", "head"]
    assert pte_off(model, small, tmp_path / "pte") < 0.25
    lowered = Artifact(tmp_path / "pte", "pte")
    assert executorch.open(lowered, 1) is not None


@pytest.mark.prove
def test_executorch_mixes_four_and_eight_bits_and_float(tmp_path: Path) -> None:
    model = encoder(tmp_path / "net")
    mixed = applied(torchao_int4, model, tmp_path, int8=("second",), skip=("first",))
    assert (mixed.facts["quantized"], mixed.facts["int8"]) == (["second", "head"], ["second"])
    assert pte_off(model, mixed, tmp_path / "pte") < 0.15


# --------------------------------------------------------------------------- LiteRT


@pytest.fixture(scope="module")
def tflite(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("tflite")
    (folder / "out").mkdir()
    return litert.export(Request({"model": encoder(folder / "net")}, folder / "out"))


def tflite_answer(model: Artifact) -> np.ndarray:
    ids = np.random.default_rng(1).integers(0, CLASSES, (4, 6))
    session = litert.open(model, 1)
    answers = [session.run({"ids": row[None].astype(model.inputs[0].dtype)})["scores"] for row in ids]
    session.close()
    return np.concatenate(answers)


@pytest.mark.parametrize("options", [{}, {"method": "gptq"}, {"int8": (".*",)}])
def test_litert_has_four_bits(tflite: Artifact, tmp_path: Path, options: dict[str, Any]) -> None:
    small = applied(litert_int4, tflite, tmp_path, **options)
    expected = tflite_answer(tflite)
    off = np.linalg.norm(tflite_answer(small) - expected) / np.linalg.norm(expected)
    assert len(small.facts["quantized"]) == 3
    assert off < (0.03 if "int8" in options else 0.25)
    weights = facts.of(small)["weights"]
    assert weights is not None
    assert ("int4" in weights) != ("int8" in options)


@pytest.mark.parametrize("runtime", ["onnx", "openvino", "litert", "executorch", "coreml"])
@pytest.mark.parametrize("word", ["int4", "int8-weights"])
def test_each_runtime_of_a_torch_net_has_it_by_that_name(runtime: str, word: str) -> None:
    small = Variant("small", compress=({"use": word},))
    assert conversion.steps(Target("a", runtime, (small,)), small, "module", "a target")


# --------------------------------------------------------------------------- files of more than protobuf takes


@pytest.fixture
def large(net: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """The net as a user's file with its weights beside it, which are called many."""
    monkeypatch.setattr(external, "MOST", 10_000)
    monkeypatch.setattr(external, "SMALL", 200)
    (tmp_path / "user").mkdir()
    model = onnx.load(net.file(".onnx"))
    onnx.save(
        model, tmp_path / "user" / "net.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0
    )
    (tmp_path / "read").mkdir()
    return onnx_runtime.read(Request({}, tmp_path / "read", {"path": str(tmp_path / "user" / "net.onnx")}))


def test_weights_of_a_large_file_stay_beside_it(net: Artifact, large: Artifact, tmp_path: Path) -> None:
    assert sorted(file.name for file in large.files()) == ["model.onnx", "model.onnx.data"]
    assert large.file(".onnx").stat().st_size < 2000
    assert off(net, large) == 0
    small = applied(onnx_int4, large, tmp_path, embeddings=True)
    assert small.facts["quantized"] == ["first", "second", "embedding"]
    assert sorted(file.name for file in small.files()) == ["model.onnx", "model.onnx.data"]
    assert 0 < off(net, small) < 0.2
    assert (facts.of(small)["weights"] or {})["int4"] >= (WIDTH * MIDDLE + MIDDLE * CLASSES) / 2


def test_a_step_that_holds_a_large_file_whole_says_what_to_do(large: Artifact, tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"use int4 or int8-weights for ONNX Runtime, which take it in parts"):
        applied(int8_dynamic, large, tmp_path)
    with pytest.raises(InputError, match="method = 'gptq' holds the whole model in memory"):
        applied(onnx_int4, large, tmp_path, method="gptq")


def test_a_large_file_whose_weights_are_cut_off_or_not_a_number_is_refused(large: Artifact, tmp_path: Path) -> None:
    user = tmp_path / "user"
    beside, whole = user / "weights.bin", (user / "weights.bin").read_bytes()
    for data, says in ((whole[:-100], "exceeds available data"), (b"\xff" * 8 + whole[8:], "NaN")):
        beside.write_bytes(data)
        out = tmp_path / f"again{len(data)}{says[:1]}"
        out.mkdir()
        with pytest.raises(InputError, match=says):
            onnx_runtime.read(Request({}, out, {"path": str(user / "net.onnx")}))


@pytest.mark.parametrize("technique", [onnx_int4, nncf_int4, litert_int4])
@pytest.mark.parametrize("options", [{}, {"group": 128}, {"method": "gptq"}])
def test_what_the_guard_tries_next_is_an_option_of_the_technique(technique: Any, options: dict[str, Any]) -> None:
    for _, more in technique.rungs(options):
        assert technique.Options(**{**options, **more}) != technique.Options(**options)


def test_what_exports_for_a_technique_on_the_runtimes_own_file_has_the_variants_options() -> None:
    """Core ML's int4 needs a package for iOS 18: the export comes before the technique."""
    small = Variant("small", "coreml", ({"use": "int4"},), export={"minimum_os": "iOS18"})
    calls = conversion.steps(Target("a", "coreml", (small,)), small, "module", "a target")
    assert [options for call, options in calls if call == "runtimes.coreml:export"] == [{"minimum_os": "iOS18"}]
    assert calls[-1][0] == "techniques.coreml_int4:apply"
