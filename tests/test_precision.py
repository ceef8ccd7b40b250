"""What ships is what its name says: the precision that files hold, that recipes promise, that names speak of."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import nulls
import onnx
import precision_sources as sources
import pytest
from ai_edge_litert import schema_py_generated as schema
from onnx import TensorProto

import edgecompress
from edgecompress.core import registry
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.core.settings import Limits
from edgecompress.engines.litert import model_edits, model_file
from edgecompress.engines.litert.techniques import litert_dynamic, litert_fp16
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import onnx_fp16
from edgecompress.formats.precision import facts, walk
from edgecompress.reporting import model, precision, tables
from edgecompress.stages import golden
from edgecompress.testing import conformance

verify = importlib.import_module("edgecompress.stages.verify")

WILD = {  # a stranger's file -> what it is
    "autoencoder_old_builtin_codes.tflite": "fp32",
    "classifier_uint8_scoped_names.tflite": "int8",
    "detector_ir3_opset9.onnx": "fp32",
    "keywords_int8_nosignature.tflite": "int8",
    "lstm_digits.tflite": "fp32",
    "speech_state_scalar.onnx": "fp32",
}


def verdicts(precision: facts.Precision, promise: Promise | None, name: str) -> dict[str, bool | None]:
    return {check.name: check.ok for check in facts.checks(precision, promise, name)}


@pytest.mark.parametrize("name", sources.EVERY)
def test_a_source_is_called_what_its_bytes_are(name: str, tmp_path: Path) -> None:
    build, (weights, computes) = sources.EVERY[name]
    found = facts.of(build(tmp_path / "net"))
    assert found == {"weights": weights, "computes": computes, "why": ""}


@pytest.mark.parametrize("name", sources.EVERY)
def test_a_name_is_judged_by_the_bytes(name: str, tmp_path: Path) -> None:
    build, (weights, computes) = sources.EVERY[name]
    found = facts.of(build(tmp_path / "net"))
    mostly = {word for counted in (weights, computes) for word in counted if 2 * counted[word] >= sum(counted.values())}
    true = {word.removesuffix("-dynamic") for word in mostly}
    for word in ("fp32", "fp16", "int8", "int4"):
        wider = walk.bits(word) > walk.bits(facts.main(found))  # told of a source that is given so, and not lost
        expected = {} if word in true else {"name": None if wider else False}
        assert verdicts(found, None, f"arm64-{word}.v2") == expected


@pytest.mark.shared
@pytest.mark.parametrize("name", WILD)
def test_a_strangers_file_is_called_what_its_bytes_are(name: str, shared_data: Path, tmp_path: Path) -> None:
    file = shared_data / "wild" / name
    (tmp_path / file.name).write_bytes(file.read_bytes())
    assert facts.main(facts.of(Artifact(tmp_path, file.suffix[1:]))) == WILD[name]


@pytest.mark.parametrize(("name", "limit"), [("fp32", 10.0), ("int8", 60.0), ("plain", 60.0)])
def test_a_source_narrower_than_its_variants_name_is_held_to_the_limits_of_what_it_is(
    name: str, limit: float, tmp_path: Path
) -> None:
    parts = {"model": sources.qdq(tmp_path / "net")}
    parts["samples"] = conformance.samples(parts["model"], tmp_path)
    for folder in ("golden", "verdict"):
        (tmp_path / folder).mkdir()
    parts["golden"] = golden.run(Request(parts, tmp_path / "golden", {"splits": ["test"]}))
    limits = dataclasses.asdict(Limits(sqnr_db=60.0))
    given = {"name": name, "limits": {"int8": {"sqnr_db": 10.0}, "": {"sqnr_db": 20.0}}}
    options = {"runtime": "onnx", "metric": "none", "limits": limits, "given": given}
    facts = verify.run(Request(parts, tmp_path / "verdict", options)).facts
    assert next(c["limit"] for c in facts["checks"] if c["name"] == "sqnr_db") == facts["limits"]["sqnr_db"] == limit


# --------------------------------------------------------------------------- what recipes promise


def applied(technique: Any, model: Artifact, folder: Path, **options: Any) -> Artifact:
    """What a technique makes of an artifact."""
    (folder / "out").mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return technique.apply(Request(inputs, folder / "out", technique.Options(**options)))  # type: ignore[no-any-return]


def test_half_precision_of_weights_that_are_inputs_too_is_half_precision(tmp_path: Path) -> None:
    (tmp_path / "read").mkdir()
    file = sources.inputs_too(tmp_path / "net").file(".onnx")
    half = applied(onnx_fp16, ort.read(Request({}, tmp_path / "read", {"path": str(file)})), tmp_path)
    assert facts.of(half) == {"weights": {"fp16": 2 * sources.F16}, "computes": {"fp16": 2}, "why": ""}
    graph = onnx.load(half.file(".onnx")).graph
    assert [value.name for value in graph.input] == ["x"]
    assert sum(node.op_type == "Cast" for node in graph.node) == 2  # at both ends
    assert {tensor.data_type for tensor in graph.initializer} == {TensorProto.FLOAT16}


@pytest.mark.parametrize(
    ("technique", "options", "weights", "computes"),
    [
        (litert_fp16, {"small": 0.0}, {"fp16": sources.F16}, {"fp32": 1}),
        (litert_dynamic, {}, {"int8": sources.I8}, {"int8-dynamic": 1}),
    ],
)
def test_files_of_old_tensorflow_are_compressed_as_others_are(
    technique: Any, options: dict[str, Any], weights: dict[str, int], computes: dict[str, int], tmp_path: Path
) -> None:
    made = applied(technique, sources.EVERY["tflite of TF 2.3"][0](tmp_path / "net"), tmp_path, **options)
    assert facts.of(made) == {"weights": weights, "computes": computes, "why": ""}


def test_a_file_with_old_codes_gets_new_ones(tmp_path: Path) -> None:
    data = sources.EVERY["tflite of TF 2.3"][0](tmp_path / "net").file(".tflite").read_bytes()
    new = model_edits.completed(data)
    model_file.check(new, "new")
    assert model_file.graph(new) == model_file.graph(data)
    codes = schema.ModelT.InitFromPackedBuf(new, 0).operatorCodes
    assert [(c.builtinCode, c.deprecatedBuiltinCode, c.version) for c in codes] == [(9, 9, 1)]


def test_every_technique_that_gives_a_precision_promises_it() -> None:
    silent = {t.name for t in registry.techniques() if t.provides and t.promises is None}
    assert silent == {"coreml_sparse", "litert_cluster", "onnx_cluster"}  # zeros, and few values, are of any precision


@pytest.mark.parametrize(
    ("name", "promise", "kept"),
    [
        ("fp16", Promise("fp16", "fp16"), True),
        ("fp32", Promise("fp16", "fp16"), False),
        ("QDQ", Promise("int8", "int8"), True),
        ("QDQ", Promise("fp16"), False),
        ("QDQ of weights alone", Promise("int8", "int8"), False),
        ("QDQ of weights alone", Promise("int8"), True),
        ("dynamic", Promise("int8", "int8-dynamic"), True),
        ("dynamic", Promise("int8", "int8"), False),
        ("mixed", Promise("int8", "int8"), False),
        ("mixed", Promise("int8", "int8", 0.0, 0.0), True),
        ("fp32", Promise("int8", "int8", 0.0, 0.0), False),
        ("tflite fp16", Promise("fp16"), True),
        ("tflite of TF 2.3", Promise("fp16"), False),
    ],
)
def test_a_promise_is_held_against_the_file(name: str, promise: Promise, kept: bool, tmp_path: Path) -> None:
    found = facts.of(sources.EVERY[name][0](tmp_path / "net"))
    checks = list(facts.checks(found, promise, "shipped"))
    assert checks
    assert all(check.ok for check in checks) is kept


@pytest.mark.parametrize("what", ["weights", "computes"])
@pytest.mark.parametrize(("fp32", "int8", "kept"), [(100, 900, True), (900, 100, None), (1000, 0, False)])
def test_a_smaller_part_than_promised_is_told_and_none_of_it_is_lost(
    what: str, fp32: int, int8: int, kept: bool | None
) -> None:
    whole: Any = {"weights": {"int8": 1}, "computes": {"int8": 1}, "why": ""}
    found = {**whole, what: {"fp32": fp32, "int8": int8}}
    (check,) = (c for c in facts.checks(found, Promise("int8", "int8"), "litert-int8") if c.value != 1)
    assert check.ok is kept and check.says.startswith(f"{int8:,} of 1,000 ")


def test_a_broken_promise_says_what_is_there_and_what_to_do(tmp_path: Path) -> None:
    found = facts.of(sources.qdq(tmp_path / "net"))
    (check,) = facts.checks(found, Promise("fp16"), "half")
    assert check.says == (
        "0 of 256 bytes of weights are fp16, promised at least 50 % (weights: int8 100 % (256 bytes); computes: int8 "
        "in 1 of 1 operators); the source is quantized already: give the one it was made from, or remove the step for "
        "fp16"
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("litert-int8", ["int8"]),
        ("w4a16", ["int4"]),
        ("fp16-palette6", ["fp16", "palette6"]),
        ("palette", ["palette"]),
        ("FLOAT16", ["fp16"]),
        ("arm64.v8", []),
        ("print8", []),
        ("shipped", []),
    ],
)
def test_names_speak_of_precisions(name: str, words: list[str]) -> None:
    assert facts.named(name) == words


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "steps", "lost"),
    [
        pytest.param("fp32", "", "", marks=pytest.mark.prove),
        ("int8", "", "the name 'int8' says int8, but the file is fp32"),
        ("fp16", "fp16", ""),
    ],
)
def test_a_deploy_ships_what_the_name_says(name: str, steps: str, lost: str, tmp_path: Path) -> None:
    model = sources.inputs_too(tmp_path / "net")
    conformance.samples(model, tmp_path)
    recipe = f'compress = [{{ use = "{steps}" }}]' if steps else ""
    target = f'description = "one"\nruntime = "onnx"\n[[variant]]\nname = "{name}"\n{recipe}\n'
    (tmp_path / "target.toml").write_text(target, encoding="utf-8")
    options = edgecompress.Options(store=tmp_path / "store", out=tmp_path / "out")
    given = {"model": str(model.file(".onnx")), "data": "random", "target": str(tmp_path / "target.toml")}
    result = edgecompress.deploy(**given, profile="quick", settings=nulls.FAST, options=options)
    assert result.exit_code == (1 if lost else 0), result.message
    report = result.read_report()
    (variant,) = report["variants"]
    assert lost in variant["reason"] or not lost
    assert variant["artifact"]["precision"]["weights"] == {steps or "fp32": (2 if steps else 4) * 2 * sources.CELLS}
    assert report["source"]["artifact"]["precision"]["weights"] == {"fp32": 2 * sources.F32}


@pytest.mark.parametrize(("computes", "half"), [("fp16", "; as fp16 on CPUs that have it"), (None, "")])
def test_arithmetic_that_the_runtime_may_do_in_half_precision_is_said_to_be(
    computes: str | None, half: str, tmp_path: Path
) -> None:
    found = facts.of(sources.qdq(tmp_path / "net"))
    artifact = {"kind": "onnx", "sha256": 64 * "0", "size_bytes": 256, "precision": found}
    target = {
        "variant": [{"name": "fp16", "compress": [{"use": "fp16", **({"computes": computes} if computes else {})}]}]
    }
    told = {
        "schema": model.SCHEMA,
        "source": {},
        "target": target,
        "variants": [{"name": "fp16", "artifact": artifact}],
    }
    ((_, _, said),) = tables.precisions(model.of(told)).rows
    assert said == f"int8 in 1 of 1 operators{half}"


def test_a_quantized_source_is_not_called_fp32_in_a_report(tmp_path: Path) -> None:
    found = facts.of(sources.qdq(tmp_path / "net"))
    plain = {"kind": "onnx", "sha256": 64 * "0", "size_bytes": 256}
    artifact = {**plain, "precision": found}
    variants = [{"name": "fp32", "artifact": artifact}, {"name": "old", "artifact": plain}]
    report, unknown = (
        model.of({"schema": model.SCHEMA, "source": {"artifact": source}, "variants": variants})
        for source in (artifact, None)
    )
    assert precision.called(report, "fp32") == "fp32 (int8)"
    assert precision.called(report, "old") == "old"
    (note,) = precision.notes(report)
    held = "weights: int8 100 % (256 bytes); computes: int8 in 1 of 1 operators"
    assert note == f"fp32 is int8, as the source: no weight and no operator of this model changed precision ({held})."
    (alone,) = precision.notes(unknown)
    assert alone == f"fp32 is int8, unlike its name ({held})."
    told = ("int8 100 % (256 bytes)", "int8 in 1 of 1 operators")
    assert tables.precisions(report).rows == (("source", *told), ("fp32", *told))
    assert tables.precisions(model.of({"schema": model.SCHEMA, "source": {}, "variants": variants[1:]})).rows == ()


@pytest.mark.parametrize("kind", ["onnx", "tflite", "openvino", "mlpackage", "null", "aoti"])
def test_a_file_that_tells_nothing_says_why(kind: str, tmp_path: Path) -> None:
    for file in ("model.onnx", "model.tflite", "model.xml", "model.pt2"):
        (tmp_path / file).write_bytes(b"\xff" * 64)
    (tmp_path / "model.mlpackage").mkdir()
    found = facts.of(Artifact(tmp_path, kind))
    assert found["weights"] is None and found["computes"] is None and found["why"]
    assert verdicts(found, Promise("int8"), "int8") == {"precision": None}
