"""Quantization-aware training: what the student computes, what it gains over quantizing afterwards, and its grid."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from test_finetune import Case, digits, folder, imported, logits, one_thread, samples, weights, zoo_case
from vectors import sqnr_db

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import ptq_int8
from edgecompress.formats import torch_edits, torch_module, torch_outputs
from edgecompress.stages import trace
from edgecompress.techniques import _qat as rounding
from edgecompress.techniques import qat
from edgecompress.techniques._training.data import Items

pytestmark = pytest.mark.slow
__all__ = ["digits", "one_thread"]  # fixtures of fine-tuning's tests

QUICK = {"epochs": 2, "batch_size": 32}
counter: Iterator[int] = itertools.count()


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return zoo_case(tmp_path_factory.mktemp("residual"), "residual_cnn")


def request(case: Case, model: Artifact | None = None, **options: Any) -> Request:
    """By default for the dense net itself."""
    inputs = {"model": model or case.dense, "dense": case.dense, "samples": case.samples, "training": case.training}
    return Request(inputs, folder(case.root / f"qat{next(counter)}"), qat.Options(**{**QUICK, **options}))


def quantized(case: Case, model: Artifact, bits: Any) -> Artifact:
    """What ONNX Runtime is given: the module traced, exported, and quantized after training."""
    root = case.root / f"int8-{next(counter)}"
    program = trace.run(Request({"model": model, "samples": case.samples}, folder(root / "program"), {}))
    exported = ort.export(Request({"model": program}, folder(root / "onnx")))
    name = case.training.inputs[0].name
    shown = samples(root / "samples", {"calibrate": {name: tensors.load(case.training, "train", name)}}, "NCHW")
    given = {"model": exported, "samples": shown}
    return ptq_int8.apply(Request(given, folder(root / "int8"), ptq_int8.Options(weight_bits=bits, samples=64)))


def answers(case: Case, model: Artifact) -> Any:
    """Of ONNX Runtime, to the test split."""
    session, items = ort.open(model, 1), tensors.batches(case.samples, "test", 1, model=model)
    return np.concatenate([next(iter(session.run(item).values())) for item in items])


def student_of(case: Case, net: Any, bits: int = 8) -> Any:
    import torch

    return rounding.student(net, Items(case.dense, case.training, "train", torch.device("cpu")), bits, 32)


# --------------------------------------------------------------------------- the student


@pytest.mark.parametrize("name", ["residual_cnn", "depthwise_cnn", "transformer", "two_ends"])
def test_but_for_rounding_a_student_computes_what_the_net_computes(tmp_path: Path, name: str) -> None:
    import torch

    case = zoo_case(tmp_path, name)
    net = torch_module.rebuild(case.dense)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = 1e-3  # no default of anybody's
    student = student_of(case, net)
    for module in student.graph.modules():
        if hasattr(module, "disable_fake_quant"):
            module.disable_fake_quant()
    for count in (1, 5):
        inputs, _ = Items(case.dense, case.training, "train", torch.device("cpu")).take(np.arange(count))
        with torch.no_grad():
            wanted = list(torch_outputs.flatten(torch_module.call(net, inputs)).values())
            found = torch_module.call(student.train(), inputs)
        for a, b in zip(wanted, found, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_students_weights_are_the_nets_own(residual: Case) -> None:
    import torch

    net = torch_module.rebuild(residual.dense)
    student = student_of(residual, torch_module.rebuild(residual.dense))
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(1.0)
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    rounding.taken_back(net, student)
    for name, parameter in net.named_parameters():
        torch.testing.assert_close(parameter, before[name] + 1.0)


def test_ranges_of_activations_stay_when_they_are_not_watched(residual: Case) -> None:
    import torch

    student = student_of(residual, torch_module.rebuild(residual.dense))
    ranges = {name: module for name, module in student.named_modules() if hasattr(module, "observer_enabled")}
    inputs, _ = Items(residual.dense, residual.training, "train", torch.device("cpu")).take(np.arange(8))

    def moved(mode: bool) -> set[bool]:
        """Which kinds of ranges (per channel or not) follow weights and inputs that are twice as large."""
        before = {name: module.scale.clone() for name, module in ranges.items()}
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.mul_(2)
            torch_module.call(student.train(mode), {name: 2 * tensor for name, tensor in inputs.items()})
        return {module.is_per_channel for name, module in ranges.items() if not before[name].equal(module.scale)}

    assert moved(True) == {True, False}
    assert moved(False) == {True}
    student.watch(False)
    assert moved(True) == {True}


# --------------------------------------------------------------------------- what it gains


@pytest.mark.parametrize("bits", [8, 4])
def test_the_grid_it_trained_on_is_the_grid_that_onnx_runtime_has(residual: Case, bits: Any) -> None:
    """scale = max|w| / (2^(bits - 1) - 1) of each channel, batch norm folded in (Jacob et al. 2018, section 3)."""
    student = student_of(residual, torch_module.rebuild(residual.dense), bits)
    mine = [m.scale.numpy() for m in student.graph.modules() if getattr(m, "is_per_channel", False)]
    graph = onnx.load_model(quantized(residual, residual.dense, bits).file(".onnx")).graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    theirs = [
        (constants[node.input[1]], constants[node.input[0]])
        for node in graph.node
        if node.op_type == "DequantizeLinear" and constants.get(node.input[0], np.zeros(0)).dtype == np.int8
    ]
    assert len(mine) == len(theirs)
    for scale in mine:
        assert any(s.shape == scale.shape and np.allclose(s, scale, rtol=1e-5) for s, _ in theirs)
    assert max(int(abs(w).max()) for _, w in theirs) == 2 ** (bits - 1) - 1


def test_an_epoch_of_little_data_has_eight_steps(residual: Case) -> None:
    count = residual.training.facts["splits"]["train"]
    assert count < 8 * 128
    found = qat.apply(request(residual, epochs=1, batch_size=128)).facts
    assert found["batch_size"] == count // 8
    highest = qat.Options.RATES["adamw"] / qat.CAUTION  # its steps are small ones
    assert max(e["lr"] for e in found["epochs"]) <= highest


@pytest.mark.prove
def test_at_four_bits_it_is_nearer_to_the_net_than_quantizing_afterwards(digits: Case) -> None:
    trained = qat.apply(request(digits, weight_bits=4, epochs=3, batch_size=64, optimizer="sgd"))
    dense, labels = logits(digits, digits.dense), tensors.labels(digits.samples, "test")
    after, before = (answers(digits, quantized(digits, model, 4)) for model in (trained, digits.dense))
    assert sqnr_db(dense, after) > sqnr_db(dense, before) + 2
    assert (after.argmax(1) == labels).mean() >= (before.argmax(1) == labels).mean()
    facts = {key: trained.facts[key] for key in ("weight_bits", "layers", "split", "distill", "metric")}
    assert facts == {"weight_bits": 4, "layers": 8, "split": "train", "distill": 0.9, "metric": "top1"}


def test_what_was_trained_runs_in_int8_in_onnx_runtime(residual: Case) -> None:
    made = quantized(residual, qat.apply(request(residual)), 8)
    item = next(tensors.batches(residual.samples, "test", 1, model=made))
    types = [op["type"] for op in ort.open(made, 1, profile=True).ops(item, 2)["ops"]]
    assert "QLinearConv" in types
    assert not {"Conv", "Gemm", "MatMul"}.intersection(types)


@pytest.mark.prove
def test_an_imported_file_is_trained_for_int8(residual: Case) -> None:
    case = imported(residual)
    made = quantized(case, qat.apply(request(case)), 8)
    assert sqnr_db(logits(case, case.dense), answers(case, made)) > 20


# --------------------------------------------------------------------------- what stays, what is refused


def test_interrupted_and_started_again_it_ends_with_the_same_weights(residual: Case, tmp_path: Path) -> None:
    options: dict[str, Any] = {"epochs": 3, "augment": ("flip", "crop")}
    straight = qat.apply(request(residual, **options))
    keep = folder(tmp_path / "keep")
    ended = itertools.count()

    def stop(fraction: float, what: str) -> None:
        if "select" in what and next(ended) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        qat.apply(dataclasses.replace(request(residual, **options), keep=keep, progress=stop))
    said: list[str] = []
    again = dataclasses.replace(request(residual, **options), keep=keep, progress=lambda _, what: said.append(what))
    resumed = qat.apply(again)
    assert said[0].startswith("resuming after epoch ")
    assert (resumed.sha256, resumed.facts) == (straight.sha256, straight.facts)


def test_what_is_zero_stays_zero_and_edits_stay(tmp_path: Path) -> None:
    edits = [{"edit": "zeros", "parameters": ["body.0.0.weight"]}]
    case = zoo_case(tmp_path, "residual_cnn", edits=edits)
    trained = qat.apply(request(case, case.model))
    before, after = (weights(model)["body.0.0.weight"] for model in (case.model, trained))
    np.testing.assert_array_equal(before == 0, after == 0)
    assert not np.array_equal(before, after)
    assert torch_edits.zeros(torch_module.edits(trained)) == ["body.0.0.weight"]


def test_a_recurrent_net_is_given_back_as_it_is(tmp_path: Path) -> None:
    case = zoo_case(tmp_path, "lstm")
    made = qat.apply(request(case))
    assert made.facts["lost"].startswith("no quantization-aware training of a recurrent net")
    for name, weight in weights(case.dense).items():
        np.testing.assert_array_equal(weight, weights(made)[name])


@pytest.mark.parametrize("options", [{"epochs": 0}, {"watch": 1.5}, {"lr": 0.0}, {"distill": 2.0}])
def test_options_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"epochs|watch|lr|distill"):
        qat.Options(**options)


def test_a_net_that_cannot_be_traced_is_said_to_be_one(residual: Case) -> None:
    import torch

    class Branching(torch.nn.Module):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            return image.mean(dim=(2, 3)) if float(image.sum()) > 0 else image.amax(dim=(2, 3))

    with pytest.raises(InputError, match=r"torch\.export cannot trace it"):
        student_of(residual, Branching())
