"""TFLite files of strangers: their signatures, names, weights, state; and what is int8 already."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite_files as files
from vectors import sqnr_db

from edgecompress.core import registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.data import output_channels, tensors
from edgecompress.engines.litert import model_edits, model_file
from edgecompress.engines.litert.runtimes import litert
from edgecompress.formats.precision import facts
from edgecompress.testing import conformance

pytest.importorskip("ai_edge_quantizer")
TECHNIQUES = ("litert_int8", "litert_dynamic", "litert_fp16")


def compressed(name: str, model: Artifact, folder: Path, **options: Any) -> Artifact:
    """What a technique makes of it, from random samples."""
    module = registry.load("techniques", name)
    out = folder / f"{name}-out"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return module.apply(Request(inputs, out, module.Options(**options)))  # type: ignore[no-any-return]


def answers(model: Artifact, folder: Path) -> dict[str, np.ndarray]:
    """What each output means for the random test items."""
    session = litert.open(model, 1)
    given = tensors.batches(conformance.samples(model, folder), "test", 1, 8, model)
    found = [session.run(inputs) for inputs in given]
    return {spec.name: np.stack([tensors.real(each[spec.name], spec) for each in found]) for spec in model.outputs}


def names(model: Artifact) -> list[str]:
    return [spec.name for spec in (*model.inputs, *model.outputs)]


# --------------------------------------------------------------------------- signatures and names


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize("signatures", [{}, {"own": 0}, {"one": 0, "two": 0}], ids=["none", "one", "two"])
def test_a_net_with_any_number_of_signatures_is_compressed(
    technique: str, signatures: Mapping[str, int], tmp_path: Path
) -> None:
    model = files.source(files.packed(files.small(), signatures=signatures), tmp_path / "net")
    made = compressed(technique, model, tmp_path)
    assert "lost" not in made.facts
    assert names(made) == names(model) == ["image", "scores"]
    assert sqnr_db(answers(model, tmp_path)["scores"], answers(made, tmp_path)["scores"]) > 25


def test_a_file_with_several_nets_is_refused_and_its_signatures_are_named(tmp_path: Path) -> None:
    data = files.packed(files.small(), files.small(), signatures={"encode": 0, "decode": 1})
    with pytest.raises(InputError, match="it holds several nets, with the signatures encode, decode; convert one of"):
        files.source(data, tmp_path / "net")


ODD: dict[str, tuple[dict[str, str | None], list[str]]] = {
    "slashes": (
        {"image": "in/put:0", "scores": "Net/Predictions/Reshape_1"},
        ["in/put:0", "Net/Predictions/Reshape_1"],
    ),
    "none": ({"image": None, "scores": None, "kernel": None}, ["input_1", "output_1"]),
    "twice": ({"conv": "mean", "bias": "kernel", "head": "scores"}, ["image", "scores"]),
    "signs": ({"image": "a\nb\t\x1b[2J", "scores": "é…"}, ["a_b__[2J", "é…"]),
    "long": (
        {"scores": ";".join(["functional_1/dense/BiasAdd"] * 20)},
        ["image", "functional_1/dense/BiasAdd;functio"],
    ),
    "labels": ({"image": "labels", "scores": "labels"}, ["labels_1", "labels"]),
}


@pytest.mark.parametrize("odd", ODD)
def test_tensors_may_have_any_name_or_none(odd: str, tmp_path: Path) -> None:
    named, expected = ODD[odd]
    model = files.source(files.packed(files.small(), named=named), tmp_path / "net")
    made = compressed("litert_int8", model, tmp_path)
    assert names(made) == names(model)
    assert all(name.startswith(start) for name, start in zip(names(model), expected, strict=True))
    assert [len(name) <= tensors.LONGEST_NAME for name in names(model)] == [True, True]
    (before,), (after,) = (answers(each, tmp_path).values() for each in (model, made))
    assert sqnr_db(before, after) > 25


def test_inputs_of_one_name_are_told_apart(tmp_path: Path) -> None:
    net = files.Net(["a", "b"], ["less"], dict.fromkeys(("a", "b", "less"), ("float32", (1, 4))))
    net.add("SUB", "a b", "less", "SubOptions")
    model = files.source(files.packed(net, named={"a": "x", "b": "x"}), tmp_path / "net")
    assert names(model) == ["x", "x_1", "less"]
    found = litert.open(model, 1).run({"x": np.full((1, 4), 3, np.float32), "x_1": np.ones((1, 4), np.float32)})
    assert found["less"].tolist() == [[2.0] * 4]
    assert names(compressed("litert_int8", model, tmp_path)) == names(model)


@pytest.mark.slow
@pytest.mark.parametrize("operator", ["cumprod", "cumulative_logsumexp"])
def test_operators_of_tensorflow_in_a_file_are_named_as_the_reason(operator: str, tmp_path: Path) -> None:
    tf = pytest.importorskip("tensorflow")
    call = {
        "cumprod": lambda x: tf.math.cumprod(x, axis=1),
        "cumulative_logsumexp": lambda x: tf.math.cumulative_logsumexp(x, axis=1),
    }[operator]
    concrete = tf.function(call).get_concrete_function(tf.TensorSpec((1, 4), tf.float32))
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete])
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS, tf.lite.OpsSet.SELECT_TF_OPS]
    (tmp_path / "net.tflite").write_bytes(converter.convert())
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"holds operators of TensorFlow \(Flex\), .* without SELECT_TF_OPS"):
        litert.read(Request({}, tmp_path / "out", {"path": str(tmp_path / "net.tflite")}))


def test_a_file_is_completed_once(tmp_path: Path) -> None:
    new = model_edits.completed(files.packed(files.small(), named={"conv": "mean", "mean": None}))
    assert model_edits.completed(new) == new
    assert [t.name for t in model_file.graph(new).tensors] == [
        *("image", "mean", "tensor_1", "scores", "kernel", "bias", "plane", "head"),
    ]


# --------------------------------------------------------------------------- what is in a file


def test_state_that_operators_keep_starts_at_zero_for_each_item(tmp_path: Path) -> None:
    model = files.source(files.packed(files.recurrent()), tmp_path / "net")
    session, given = litert.open(model, 1), {"steps": np.ones((1, 6, 4), np.float32)}
    first, second = (session.run(given)["states"].copy() for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first[0, 0], first[0, 1])


def test_state_that_no_run_sets_back_is_refused(tmp_path: Path) -> None:
    net = files.small()
    net.tensors |= {"held": ("int32", ()), "sum": ("float32", (1, 5))}
    net.add("VAR_HANDLE", "", "held", "VarHandleOptions", sharedName="h")
    net.add("ASSIGN_VARIABLE", "held scores", "", "AssignVariableOptions")
    with pytest.raises(InputError, match=r"it keeps state from run to run \(ASSIGN_VARIABLE\); convert it with the"):
        files.source(files.packed(net), tmp_path / "net")


@pytest.mark.parametrize("technique", TECHNIQUES)
@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_weights_that_are_made_real_when_the_file_is_loaded_are_compressed(
    technique: str, dtype: str, tmp_path: Path
) -> None:
    model = files.source(files.packed(files.loaded_as_real(dtype)), tmp_path / "net")
    made = compressed(technique, model, tmp_path)
    (width,) = facts.of(made)["weights"] or ()
    assert width == ("fp16" if technique == "litert_fp16" else "int8")
    assert sqnr_db(answers(model, tmp_path)["scores"], answers(made, tmp_path)["scores"]) > 25


def test_the_graph_of_an_operator_may_have_names_of_the_first_graph_and_stays_in_float(tmp_path: Path) -> None:
    model = files.source(files.packed(*files.windowed()), tmp_path / "net")
    made = compressed("litert_int8", model, tmp_path)
    assert facts.of(made)["computes"] == {"int8": 2}
    assert sqnr_db(answers(model, tmp_path)["scores"], answers(made, tmp_path)["scores"]) > 12


def test_what_overflows_in_a_branch_that_is_not_taken_stays_in_float(tmp_path: Path) -> None:
    """Softplus as torch lowers it: where(x > 20, x, log(1 + exp(x)))."""
    net = files.small()
    shape = dict.fromkeys(("large", "power", "more", "log", "soft"), ("float32", (1, 5)))
    net.tensors |= {**shape, "over": ("bool", (1, 5))}
    net.constants |= {"gain": np.full((1, 5), 1000, np.float32), "one": np.ones((1, 5), np.float32)}
    net.constants["limit"] = np.full((1, 5), 20, np.float32)
    net.add("MUL", "scores gain", "large", "MulOptions")
    net.add("EXP", "large", "power", "ExpOptions")
    net.add("ADD", "power one", "more", "AddOptions")
    net.add("LOG", "more", "log")
    net.add("GREATER", "large limit", "over", "GreaterOptions")
    net.add("SELECT_V2", "over large log", "soft", "SelectV2Options")
    net.outputs = ["soft"]
    model = files.source(files.packed(net), tmp_path / "net")
    made = compressed("litert_int8", model, tmp_path)
    assert facts.of(made)["computes"] == {"int8": 2}
    assert sqnr_db(answers(model, tmp_path)["soft"], answers(made, tmp_path)["soft"]) > 20


# --------------------------------------------------------------------------- what is int8 already


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_a_file_of_whole_numbers_is_taken_as_it_is(dtype: str, tmp_path: Path) -> None:
    model = files.source(files.packed(files.whole(dtype)), tmp_path / "net")
    made = compressed("litert_int8", model, tmp_path, io="int8")
    assert made.facts == {"given": True}
    assert made.sha256 == model.sha256
    for technique in TECHNIQUES[1:]:
        assert compressed(technique, model, tmp_path).facts["lost"].startswith("changed nothing in this model: it has")


def test_int8_weights_between_real_numbers_become_static_int8(tmp_path: Path) -> None:
    model = files.source(files.packed(files.hybrid()), tmp_path / "net")
    made = compressed("litert_int8", model, tmp_path)
    assert facts.of(made)["computes"] == {"int8": 2}
    assert sqnr_db(answers(model, tmp_path)["scores"], answers(made, tmp_path)["scores"]) > 25
    assert "no weights in fp32" in compressed("litert_fp16", model, tmp_path).facts["lost"]


def test_a_net_without_real_numbers_ends_with_a_reason(tmp_path: Path) -> None:
    net = files.Net(["a"], ["b"], dict.fromkeys("ab", ("int8", (1, 4))), scales=dict.fromkeys("ab", (0.1, 0)))
    net.add("RELU", "a", "b", version=2)
    model = files.source(files.packed(net), tmp_path / "net")
    with pytest.raises(StageFailed, match="no operator of the file computes real numbers: there is nothing to"):
        compressed("litert_int8", model, tmp_path)


def test_a_channel_that_a_source_rounds_to_two_neighbours_is_not_judged() -> None:
    """Another kernel may round the other way."""
    step = 1 / 256
    golden = {"scores": np.random.default_rng(0).integers(0, 99, (40, 20)).astype(np.float32) * step}
    golden["scores"][:, 3] = 0
    golden["scores"][7, 3] = step
    moved = {"scores": golden["scores"].copy()}
    moved["scores"][7, 3] = 0
    assert output_channels.compare(golden, moved, {})["scores"]["dead"] == [3]
    found = output_channels.compare(golden, moved, {}, {"scores": step})["scores"]
    assert (found["dead"], found["constant"]) == ([], 1)


# --------------------------------------------------------------------------- real files

WILD = {
    "autoencoder_old_builtin_codes": {"int8": 10},
    "classifier_uint8_scoped_names": {"int8": 28},
    "keywords_int8_nosignature": {"int8": 10},
    "lstm_digits": {"fp32": 1, "int8": 1},
}


@pytest.mark.shared
@pytest.mark.parametrize("name", WILD)
def test_a_strangers_file_gets_its_int8(name: str, shared_data: Path, tmp_path: Path) -> None:
    model = files.source((shared_data / "wild" / f"{name}.tflite").read_bytes(), tmp_path / "net")
    made = compressed("litert_int8", model, tmp_path)
    assert facts.of(made)["computes"] == WILD[name]
    assert made.facts.get("given", False) is (model.inputs[0].dtype != "float32")
