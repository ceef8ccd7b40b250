"""Snapdragon's NPU: what Qualcomm's compiler places, what its emulator answers, in each precision and on each chip."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import prove
import pytest

import edgecompress
from edgecompress.commands import deploy
from edgecompress.commands.check import check
from edgecompress.core import catalog, environments, registry
from edgecompress.core.errors import EdgeError, MissingDependency, StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.core.operations import Operation
from edgecompress.data import compiler_estimates, tensors
from edgecompress.engines.qnn import htp, kernels, placed, static_graph
from edgecompress.engines.qnn.runtimes import qnn
from edgecompress.engines.qnn.techniques import htp_fp16, htp_int8, htp_int8_a16
from edgecompress.formats.precision import facts
from edgecompress.pipeline import job, plan
from edgecompress.pipeline.job_request import Options

pytestmark = [pytest.mark.slow, pytest.mark.qnn]

ITEMS = 16
Make = Callable[..., Artifact]


def net(folder: Path, tail: str = "Relu") -> Artifact:
    """Two convolutions, a norm, an operator of the type `tail`, a matrix product: x [1, 3, 8, 8] -> y [1, 4]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(1)
    shapes = {"w1": (16, 3, 3, 3), "w2": (16, 16, 3, 3), "w3": (16, 4), "scale": (16,), "bias": (16,)}
    weights = {n: (rng.normal(size=s) * 2 / np.prod(s[1:]) ** 0.5).astype(np.float32) for n, s in shapes.items()}
    nodes = [
        helper.make_node("Conv", ["x", "w1"], ["a"], "conv1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"], "relu"),
        helper.make_node("Conv", ["b", "w2"], ["c"], "conv2", pads=[1, 1, 1, 1]),
        helper.make_node(tail, ["c"], ["d"], "tail"),
        helper.make_node("GlobalAveragePool", ["d"], ["e"], "pool"),
        helper.make_node("Flatten", ["e"], ["f"], "flatten"),
        helper.make_node("LayerNormalization", ["f", "scale", "bias"], ["g"], "norm"),
        helper.make_node("MatMul", ["g", "w3"], ["y"], "product"),
    ]
    ends = [TensorSpec("x", (1, 3, 8, 8)), TensorSpec("y", (1, 4))]
    values = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, s.shape) for s in ends]
    graph = helper.make_graph(
        nodes, "net", values[:1], values[1:], [numpy_helper.from_array(w, n) for n, w in weights.items()]
    )
    folder.mkdir(parents=True)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "model.onnx"
    )
    return Artifact(folder, "onnx", tuple(ends[:1]), tuple(ends[1:])).write()


def items(seed: int) -> np.ndarray:
    drawn: np.ndarray = np.random.default_rng(seed).normal(size=(ITEMS, 3, 8, 8)).astype(np.float32)
    return drawn


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """`made(technique, soc=..., tail=..., fallback=..., options)`: the net compiled for a chip, each once."""
    folder, known = tmp_path_factory.mktemp("qnn"), dict[str, Artifact]()

    def make(
        technique: Any, soc: str = "SM8650", tail: str = "Relu", fallback: bool = False, **options: Any
    ) -> Artifact:
        key = f"{technique.__name__} {soc} {tail} {fallback} {options}"
        if key not in known:
            place = Path(tempfile.mkdtemp(dir=folder))
            source = net(place / "source", tail)
            tensors.write_split(place / "samples/calibrate", {"x": items(0)})
            samples = Artifact(place / "samples", "samples", source.inputs).write()
            for name in ("small", "out"):
                (place / name).mkdir()
            inputs = {"model": source, "samples": samples}
            small = technique.apply(Request(inputs, place / "small", technique.Options(**options)))
            how = qnn.Options(soc=soc, fallback=fallback)  # type: ignore[arg-type]
            known[key] = qnn.export(Request({"model": small}, place / "out", how))
        return known[key]

    return make


def answers(artifact: Artifact, seed: int = 5) -> np.ndarray:
    session = qnn.open(artifact, 1)
    try:
        return np.concatenate([session.run({"x": x[None]})["y"] for x in items(seed)])
    finally:
        session.close()


@pytest.fixture(scope="module")
def truth(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], np.ndarray]:
    import onnxruntime

    def run(tail: str = "Relu") -> np.ndarray:
        file = net(tmp_path_factory.mktemp("truth") / "net", tail).file(".onnx")
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        return np.concatenate([session.run(None, {"x": x[None]})[0] for x in items(5)])

    return run


def sqnr(right: np.ndarray, ours: np.ndarray) -> float:
    return float(10 * np.log10((right**2).sum() / ((right - ours) ** 2).sum()))


# --------------------------------------------------------------------------- precisions


def test_sixteen_bits_are_nearer_than_eight_in_all_layers_and_in_some(made: Make, truth: Any) -> None:
    near = {
        "int8": sqnr(truth(), answers(made(htp_int8))),
        "mixed": sqnr(truth(), answers(made(htp_int8, wide=("conv2", "norm", "product")))),
        "a16": sqnr(truth(), answers(made(htp_int8_a16))),
        "fp16": sqnr(truth(), answers(made(htp_fp16))),
    }
    assert 25 < near["int8"] < min(near["mixed"], near["a16"]) - 1 and near["fp16"] > 50  # int8 weights end before that


def test_the_file_says_what_it_is_computed_in(made: Make) -> None:
    told = {name: facts.of(made(t)) for name, t in (("int8", htp_int8), ("a16", htp_int8_a16), ("fp16", htp_fp16))}
    assert {name: facts.main(each) for name, each in told.items()} == {"int8": "int8", "a16": "int8", "fp16": "fp16"}
    assert {name: set(each["computes"] or ()) for name, each in told.items()} == {
        "int8": {"int8"},
        "a16": {"int16"},
        "fp16": {"fp16"},
    }


def test_a_node_that_is_skipped_is_computed_in_half_precision_on_the_npu(made: Make, truth: Any) -> None:
    artifact = made(htp_int8, skip=("conv2",))
    assert artifact.facts["fallback"] == []
    assert facts.of(artifact)["computes"]["fp16"] >= 1  # type: ignore[index]
    assert sqnr(truth(), answers(artifact)) > 25


@pytest.mark.parametrize("least", [-1e4, -1e9, float(np.finfo(np.float32).min)])
@pytest.mark.parametrize("technique", [htp_int8, htp_int8_a16, htp_fp16])
def test_a_mask_leaves_the_other_numbers_their_scale(technique: Any, least: float, tmp_path: Path) -> None:
    """Attention with a mask far below its scores: by one scale for both all scores would be one number."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"], "scores"),
        helper.make_node("Mul", ["m", "least"], ["low"], "mask"),
        helper.make_node("Add", ["s", "low"], ["masked"], "laid"),
        helper.make_node("Softmax", ["masked"], ["p"], "softmax"),
        helper.make_node("MatMul", ["p", "w"], ["y"], "product"),
    ]
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.normal(size=(8, 8)).astype(np.float32), "w")]
    weights += [numpy_helper.from_array(np.float32(least), "least")]
    x, m, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2, 8]) for n in "xmy")
    model = helper.make_model(helper.make_graph(nodes, "net", [x, m], [y], weights), ir_version=10)
    model.opset_import[0].version = 20
    for name in ("net", "small", "out"):
        (tmp_path / name).mkdir()
    onnx.save(model, tmp_path / "net/model.onnx")
    specs = tuple(TensorSpec(n, (1, 2, 8)) for n in "xmy")
    source = Artifact(tmp_path / "net", "onnx", specs[:2], specs[2:]).write()
    drawn = {"x": rng.normal(size=(32, 2, 8)), "m": rng.integers(0, 2, (32, 2, 8))}
    drawn = {name: array.astype(np.float32) for name, array in drawn.items()}
    tensors.write_split(tmp_path / "samples/calibrate", drawn)
    samples = Artifact(tmp_path / "samples", "samples", specs[:2]).write()
    small = technique.apply(Request({"model": source, "samples": samples}, tmp_path / "small", technique.Options()))
    session = qnn.open(qnn.export(Request({"model": small}, tmp_path / "out", qnn.Options())), 1)
    right = onnxruntime.InferenceSession(tmp_path / "net/model.onnx", providers=["CPUExecutionProvider"])
    feeds = [{name: array[i : i + 1] for name, array in drawn.items()} for i in range(32)]
    ours = np.concatenate([session.run(feed)["y"] for feed in feeds])
    assert sqnr(np.concatenate([right.run(None, feed)[0] for feed in feeds]), ours) > 25


def test_a_file_that_came_quantized_is_compiled_as_it_is(made: Make, tmp_path: Path) -> None:
    before = made(htp_int8)
    (tmp_path / "given").mkdir()
    (tmp_path / "given/model.onnx").write_bytes(before.file(qnn.FILE).read_bytes())
    given = Artifact(tmp_path / "given", "onnx", before.inputs, before.outputs).write()
    for name in ("small", "out"):
        (tmp_path / name).mkdir()
    small = htp_int8.apply(Request({"model": given, "samples": given}, tmp_path / "small", htp_int8.Options()))
    artifact = qnn.export(Request({"model": small}, tmp_path / "out", qnn.Options()))
    assert artifact.facts["given"] is True
    assert (answers(artifact) == answers(before)).all()


# --------------------------------------------------------------------------- where the operators run


def test_an_operator_that_the_npu_lacks_is_named_and_refuses_the_file(made: Make) -> None:
    with pytest.raises(StageFailed, match=r"does not take tail \(Celu: .*Celu.*fallback=true the CPU runs them"):
        made(htp_int8, tail="Celu")


def test_where_the_cpu_may_take_it_the_operator_is_told_and_the_answers_are_right(made: Make, truth: Any) -> None:
    artifact = made(htp_int8, tail="Celu", fallback=True)
    estimate = artifact.facts["estimate"]
    assert [op["type"] for op in estimate["fallback"]] == ["Celu"] and estimate["npu_operators"] > 3
    session = qnn.open(artifact, 1)
    assert session.ops({}, 0)["fallback"] == artifact.facts["fallback"]
    session.close()
    assert sqnr(truth("Celu"), answers(artifact)) > 25


def test_of_equal_variants_the_one_with_fewer_operators_on_the_cpu_is_first(made: Make) -> None:
    left, whole = (made(htp_int8, **how).facts["estimate"] for how in ({"tail": "Celu", "fallback": True}, {}))
    assert compiler_estimates.best({"left": left, "whole": whole}) == "whole"
    assert compiler_estimates.behind({"left": left, "whole": whole}, "left").startswith("leaves 1 more operator")
    assert "fewest operators" in compiler_estimates.why({"left": left, "whole": whole})
    assert compiler_estimates.best({"one": whole, "other": whole}) == "one"


def pooled(file: Path) -> Path:
    """Convolution, a max pool with gaps, a cumulative sum: x [1, 3, 8, 8] -> y [1, 4, 4, 4]."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    weights = np.random.default_rng(3).normal(size=(4, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv"),
        helper.make_node("MaxPool", ["a"], ["b"], "gaps", kernel_shape=[2, 2], dilations=[2, 2]),
        helper.make_node("CumSum", ["b", "axis"], ["y"], "sums"),
    ]
    x, y = (
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [1, 3, 8, 8]), ("y", [1, 4, 4, 4]))
    )
    constants = [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(np.int64(3), "axis")]
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], constants), ir_version=10)
    model.opset_import[0].version = 20
    onnx.save(model, file)
    return file


@pytest.mark.parametrize("technique", [htp_int8, htp_int8_a16])
@pytest.mark.parametrize(("kind", "axis"), [("CumSum", 3), ("ReduceLogSumExp", [3])])
def test_what_is_of_half_precision_alone_stays_so_between_layers_of_whole_numbers(
    technique: Any, kind: str, axis: Any, tmp_path: Path
) -> None:
    """Between two scales the compiler takes an operator of one input in whole numbers, or refuses it."""
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {"w": rng.normal(size=(8, 3, 3, 3)) * 0.3, "v": rng.normal(size=(8, 8, 3, 3)) * 0.1}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    constants.append(numpy_helper.from_array(np.array(axis, np.int64), "axis"))
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node(kind, ["a", "axis"], ["b"], "alone"),
        helper.make_node("Conv", ["b", "v"], ["y"], "last", pads=[1, 1, 1, 1]),
    ]
    ends = [TensorSpec("x", (1, 3, 8, 8)), TensorSpec("y", (1, 8, 8, 8 if kind == "CumSum" else 1))]
    x, y = (helper.make_tensor_value_info(spec.name, TensorProto.FLOAT, spec.shape) for spec in ends)
    model = helper.make_model(helper.make_graph(nodes, "net", [x], [y], constants), ir_version=10)
    model.opset_import[0].version = 20
    for name in ("net", "small", "out"):
        (tmp_path / name).mkdir()
    onnx.save(model, tmp_path / "net/model.onnx")
    tensors.write_split(tmp_path / "samples/calibrate", {"x": items(0)})
    samples = Artifact(tmp_path / "samples", "samples", tuple(ends[:1])).write()
    source = Artifact(tmp_path / "net", "onnx", tuple(ends[:1]), tuple(ends[1:])).write()
    small = technique.apply(Request({"model": source, "samples": samples}, tmp_path / "small", technique.Options()))
    artifact = qnn.export(Request({"model": small}, tmp_path / "out", qnn.Options()))
    right = onnxruntime.InferenceSession(tmp_path / "net/model.onnx", providers=["CPUExecutionProvider"])
    wanted = np.concatenate([right.run(None, {"x": item[None]})[0] for item in items(5)])
    assert sqnr(wanted, answers(artifact)) > 33
    bits = 8 if technique is htp_int8 else 16
    assert (kind in {op.type for op, found in qnn.compiled(artifact) if found.floats}) == (kind in htp.HALF[bits])


def test_scales_beside_an_operator_that_left_are_not_counted(made: Make) -> None:
    artifact = made(htp_int8, tail="Celu", fallback=True)
    after = {op["type"] for op in artifact.facts["estimate"]["fallback"]}
    assert after == {"Celu"} and artifact.facts["estimate"]["cpu_operators"] == 1
    outside = [op.type for op, found in qnn.compiled(artifact) if found.outside]
    assert outside == ["Celu"]


def test_a_quantized_file_is_not_one_of_other_bits_under_another_name(made: Make, tmp_path: Path) -> None:
    before = made(htp_int8)
    (tmp_path / "given").mkdir()
    (tmp_path / "given/model.onnx").write_bytes(before.file(qnn.FILE).read_bytes())
    given = Artifact(tmp_path / "given", "onnx", before.inputs, before.outputs).write()
    (tmp_path / "small").mkdir()
    with pytest.raises(StageFailed, match="of 8 bits between its operators: 16 would add nothing"):
        htp_int8_a16.apply(Request({"model": given, "samples": given}, tmp_path / "small", htp_int8_a16.Options()))


@pytest.mark.parametrize("asked", [True, False])
def test_check_asks_the_compiler_where_it_is_and_goes_by_the_table_elsewhere(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table knows that max pools are taken, and not that those with gaps are left."""
    if not asked:
        monkeypatch.setattr(environments, "missing", lambda _: ["onnxruntime-qnn"])
    options = {"options": Options(store=tmp_path / "store", progress=False), "data": "random"}
    file = pooled(tmp_path / "net.onnx")
    strict = check(file, "snapdragon", **options).targets["snapdragon"]["variants"]
    assert {name for name, row in strict.items() if row["reached"]} == (
        set() if asked else {"int8", "int8-a16", "fp16"}
    )
    if asked:
        assert "does not take gaps (MaxPool" in strict["int8"]["why"]
        assert "--set variant.int8.export.fallback=true" in strict["int8"]["why"]
        older = check(file, "snapdragon", device="snapdragon-888", **options).targets["snapdragon"]["variants"]
        assert "SM8350" in older["int8"]["why"]
    free = check(file, "snapdragon", settings={"variant.int8.export.fallback": True}, **options)
    row = free.targets["snapdragon"]["variants"]["int8"]
    assert row["reached"] and [each["type"] for each in row["outside"]] == (["MaxPool"] if asked else [])
    assert [each["type"] for each in row["floats"]] == ["CumSum"]
    assert row["chip"] == ("SM8650" if asked else "") and bool(row["table"]) != asked
    assert ("by a table: the compiler" in str(free)) != asked


def test_check_asks_no_compiler_of_sizes_that_nobody_knows(tmp_path: Path) -> None:
    """A convolution without padding of an image of any size: at the smallest there is nothing to compute."""
    import onnx

    model = onnx.load_model(pooled(tmp_path / "net.onnx"))
    for value in (*model.graph.input, *model.graph.output):
        for axis, dim in enumerate(value.type.tensor_type.shape.dim[2:]):
            dim.dim_param = f"{value.name}{axis}"
    onnx.save(model, tmp_path / "net.onnx")
    options = Options(store=tmp_path / "store", progress=False)
    found = check(tmp_path / "net.onnx", "snapdragon", data="random", options=options)
    rows = found.targets["snapdragon"]["variants"]
    assert rows["int8"]["reached"] and rows["int8"]["open"] == ["x"] and not rows["int8"]["chip"]
    assert "give --data for the sizes of x, and the compiler is asked" in " ".join(str(found).split())
    np.savez(tmp_path / "data.npz", x=np.zeros((24, 3, 8, 8), np.float32))
    known = check(tmp_path / "net.onnx", "snapdragon", data=str(tmp_path / "data.npz"), options=options)
    rows = known.targets["snapdragon"]["variants"]
    assert "gaps (MaxPool" in rows["int8"]["why"] and rows["int8"]["open"] == []


def test_a_chip_without_half_precision_says_so_first(made: Make) -> None:
    with pytest.raises(StageFailed, match="QCM6490 has no half precision, which all of this is to be computed in"):
        made(htp_fp16, soc="QCM6490")


SHORT = ("conv", "layernorm", "logsumexp", "prelu", "celu", "reduceprod", "softmax", "add (whole numbers)")


@pytest.mark.parametrize("name", ["all"] if prove.WHOLE else SHORT)
def test_the_table_is_what_the_compiler_does(name: str) -> None:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("htp_table", Path(__file__).parent.parent / "scripts/htp_table.py")
    assert spec and spec.loader
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    for each in table.kernel_nets.NETS if name == "all" else [name]:
        words, _, found = table.ask(each)
        word = each.split(" ")[0]
        assert word in words & placed.WORDS
        for precision, left in found.items():
            said = kernels.kernels(Operation(word, word), precision)
            assert bool(said.outside) == bool(left), f"{each} in {precision}: {left}"


def test_the_table_was_made_by_the_compiler_that_is_here() -> None:
    assert htp.compiler() == placed.COMPILER, "python scripts/htp_table.py"


# --------------------------------------------------------------------------- chips


def test_answers_are_equal_from_session_to_session_and_generations_that_differ_are_seen(made: Make) -> None:
    by_chip = {soc: answers(made(htp_int8, soc=soc)) for soc in ("SM8350", "SM8650", "SM8750")}
    again = {soc: answers(made(htp_int8, soc=soc)) for soc in by_chip}
    assert all((by_chip[soc] == again[soc]).all() for soc in by_chip)
    assert not (by_chip["SM8350"] == by_chip["SM8650"]).all()  # v68 and v75 round otherwise
    assert (by_chip["SM8650"] == by_chip["SM8750"]).all()


def test_a_file_is_bound_to_its_chip_and_says_so(made: Make) -> None:
    told = {soc: made(htp_int8, soc=soc).facts["estimate"] for soc in ("SM8350", "SM8750")}
    assert {e["accelerator"] for e in told.values()} == {"HTP v68", "HTP v79"}
    assert {e["system"] for e in told.values()} == {"SM8350", "SM8750"}
    assert compiler_estimates.best(dict(told)) == ""  # not made under equal settings
    stranger = dataclasses.replace(made(htp_int8), facts={**made(htp_int8).facts, "soc": "SM1"})
    with pytest.raises(StageFailed, match="its chip 'SM1' is unknown"):
        qnn.open(stranger, 1)


@pytest.mark.parametrize("name", [n for n in catalog.names("devices") if n.startswith("snapdragon")])
def test_a_device_names_a_chip_whose_generation_is_its_platform_s(name: str) -> None:
    device = catalog.device(name).value
    chip = htp.CHIPS[device.export["qnn"]["soc"]]
    assert device.platform == f"snapdragon-v{chip.htp}"


# --------------------------------------------------------------------------- a whole deploy


@pytest.mark.prove
def test_the_demo_ships_for_a_chip_with_nothing_measured_and_all_on_the_npu(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    wanted = job.job(None, "snapdragon", device="snapdragon-8-elite", profile="quick", samples=60)
    options = edgecompress.Options(store=tmp_path / "store", out=tmp_path / "dist")
    deployed = deploy.run_all([(wanted, plan.deploy(wanted))], options)["snapdragon"]
    assert deployed.exit_code in (0, 4), deployed.message
    told = deployed.read_report()
    assert told["choice"]["unmeasured"] == "Qualcomm's HTP emulator stands in for snapdragon-8-elite"
    rows = {row["name"]: row for row in told["variants"]}
    assert {*rows} == {"int8", "mixed", "int8-a16", "fp16"}
    assert all(row["estimate"]["system"] == "SM8750" and row["verify"]["fallback"] == [] for row in rows.values())
    near = {name: row["verify"]["outputs"][0]["sqnr_db"] for name, row in rows.items()}
    assert near["int8"] < near["mixed"] < near["fp16"]
    assert all(row["numbers"]["latency"]["value"] is None for row in rows.values())


# --------------------------------------------------------------------------- layers, faults, what is missing


def test_layers_are_told_with_their_answers_and_the_outputs_stay(made: Make, tmp_path: Path) -> None:
    tapped = qnn.tapped(Request({"model": made(htp_int8)}, tmp_path))
    rows = tapped.facts["taps"]
    assert [row["operator"] for row in rows if row["type"] == "Conv"] == ["conv1", "conv2"]
    assert {row["dtype"] for row in rows} == {"uint8"}
    session = qnn.open(tapped, 1)
    found = session.run({"x": items(5)[:1]})
    assert all(np.isfinite(found[row["output"]]).all() for row in rows)
    assert (found["y"] == answers(made(htp_int8))[:1]).all()


def test_a_damaged_context_is_told_in_one_line(made: Make, tmp_path: Path) -> None:
    artifact = made(htp_int8)
    for file in artifact.files():
        data = bytearray(file.read_bytes())
        if file.suffix == ".bin":
            data[len(data) // 3 : len(data) // 2] = b"\xff" * (len(data) // 2 - len(data) // 3)
        (tmp_path / file.name).write_bytes(data)
    with pytest.raises(EdgeError) as caught:
        answers(dataclasses.replace(artifact, path=tmp_path))
    assert "\n" not in str(caught.value)


def test_where_the_emulator_does_not_start_one_line_says_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, made: Make
) -> None:
    artifact = made(htp_int8)
    htp._devices.cache_clear()
    monkeypatch.setattr("onnxruntime_qnn.get_library_path", lambda: "/nowhere/libqnn.so")
    monkeypatch.setattr("onnxruntime.get_ep_devices", list)
    with pytest.raises(StageFailed, match="emulator") as caught:
        qnn.open(artifact, 1)
    assert "\n" not in str(caught.value)
    monkeypatch.undo()
    htp._devices.cache_clear()


def test_without_the_extra_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known: Mapping[str, str | None] = {"onnxruntime-qnn": None}
    real = environments.version
    monkeypatch.setattr(environments, "version", lambda name: known.get(name, real(name)))
    with pytest.raises(MissingDependency, match=r"needs onnxruntime-qnn>=2.7, not installed; run: .*\[qnn\]"):
        environments.require(registry.load("runtimes", "qnn"), "runtime 'qnn'")


# --------------------------------------------------------------------------- what is made ready for the compiler


def small(folder: Path, nodes: list[Any], shape: list[Any], weights: Mapping[str, Any]) -> Artifact:
    """An ONNX net x -> y, with samples of [8, 8, 12, 12] beside it."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    constants = [numpy_helper.from_array(np.asarray(w, np.float32), n) for n, w in weights.items()]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n in "xy"]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    folder.mkdir()
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    onnx.save(model, folder / "model.onnx")
    spec = tuple(Dim(d, 1, 2**31 - 1) if isinstance(d, str) else d for d in shape)
    drawn = np.random.default_rng(2).normal(size=(8, 8, 12, 12)).astype(np.float32)
    tensors.write_split(folder.parent / "samples/calibrate", {"x": drawn})
    given = TensorSpec("x", (Dim("batch", 1, 8), 8, 12, 12))
    Artifact(folder.parent / "samples", "samples", (given,)).write()
    return Artifact(folder, "onnx", (TensorSpec("x", spec),), (TensorSpec("y", spec),)).write()


def of(technique: Any, source: Artifact, **options: Any) -> Artifact:
    place = source.path.parent
    for name in ("small", "out"):
        (place / name).mkdir()
    inputs = {"model": source, "samples": Artifact.read(place / "samples")}
    made = technique.apply(Request(inputs, place / "small", technique.Options(**options)))
    return qnn.export(Request({"model": made}, place / "out", qnn.Options()))


GELUS = {
    "x first": ["Mul x c a", "Erf a b", "Add b one d", "Mul x d e", "Mul e half y"],
    "half first": ["Mul x c a", "Erf a b", "Add one b d", "Mul half x e", "Mul e d y"],
    "by erfc": ["Neg x n", "Mul n c a", "Erf a b", "Sub one b d", "Mul half x e", "Mul e d y"],
    "divided": ["Div x root a", "Erf a b", "Add b one d", "Mul d half e", "Mul e x y"],
}


@pytest.mark.parametrize("spelling", GELUS)
@pytest.mark.parametrize("technique", [htp_int8, htp_int8_a16, htp_fp16])
def test_a_gelu_is_one_operator_however_it_is_written(technique: Any, spelling: str, tmp_path: Path) -> None:
    from onnx import helper

    words = [each.split() for each in GELUS[spelling]]
    nodes = [helper.make_node(kind, ins, [out], f"n{i}") for i, (kind, *ins, out) in enumerate(words)]
    weights = {"c": 0.70710678, "root": 1.41421356, "one": 1.0, "half": 0.5}
    artifact = of(technique, small(tmp_path / "net", nodes, [1, 8, 12, 12], weights))
    x = np.random.default_rng(4).normal(size=(1, 8, 12, 12)).astype(np.float32)
    session = qnn.open(artifact, 1)
    right = x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))
    assert sqnr(right, session.run({"x": x})["y"]) > 30 and artifact.facts["estimate"]["npu_operators"] <= 5


def test_a_gelu_stays_as_written_where_a_part_of_it_is_an_output(tmp_path: Path) -> None:
    import onnx
    from onnx import helper

    words = [each.split() for each in GELUS["x first"]]
    nodes = [helper.make_node(kind, ins, [out], f"n{i}") for i, (kind, *ins, out) in enumerate(words)]
    file = small(tmp_path / "net", nodes, [1, 8, 12, 12], {"c": 0.70710678, "one": 1.0, "half": 0.5}).file(".onnx")
    model = onnx.load(file)
    model.graph.output.append(helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, [1, 8, 12, 12]))
    onnx.save(model, file)
    kinds = [node.op_type for node in onnx.load(static_graph.prepared(file, tmp_path / "out.onnx")).graph.node]
    assert kinds == ["Mul", "Erf", "Add", "Mul", "Mul"]


@pytest.mark.parametrize(("technique", "options"), [(htp_int8_a16, {}), (htp_int8, {"wide": ("gate", "times")})])
def test_x_times_its_sigmoid_is_right_in_16_bits(technique: Any, options: Any, tmp_path: Path) -> None:
    import onnxruntime
    from onnx import helper

    rng = np.random.default_rng(0)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["a"], ["b"], "gate"),
        helper.make_node("Mul", ["a", "b"], ["c"], "times"),
        helper.make_node("Conv", ["c", "v"], ["y"], "end"),
    ]
    weights = {"w": rng.normal(size=(24, 8, 3, 3)) / 8, "v": rng.normal(size=(8, 24, 1, 1)) / 5}
    artifact = of(technique, small(tmp_path / "net", nodes, ["batch", 8, "height", "width"], weights), **options)
    assert artifact.inputs[0].shape == (1, 8, 12, 12)  # the data's sizes
    x = rng.normal(size=(1, 8, 12, 12)).astype(np.float32)
    right = onnxruntime.InferenceSession(tmp_path / "net/model.onnx").run(None, {"x": x})[0]
    assert sqnr(right, qnn.open(artifact, 1).run({"x": x})["y"]) > 30


def test_a_body_is_refused_by_its_name(tmp_path: Path) -> None:
    from onnx import TensorProto, helper

    end = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 8, 12, 12])]
    bodies = [helper.make_graph([helper.make_node(kind, ["x"], ["z"])], "g", [], end) for kind in ("Relu", "Neg")]
    true = helper.make_tensor("t", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("Constant", [], ["c"], value=true),
        helper.make_node("If", ["c"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
    ]
    with pytest.raises(StageFailed, match="the HTP has no If: write out what it repeats or chooses"):
        of(htp_int8, small(tmp_path / "net", nodes, [1, 8, 12, 12], {}))
