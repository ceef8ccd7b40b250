"""Why slow variants are slow: the silent disasters of ONNX Runtime and ExecuTorch are named while they last."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edgecompress.core import config, registry
from edgecompress.core.model import Artifact, Request
from edgecompress.reporting import model_variant, slowdown
from edgecompress.reporting.formatting import missing, number
from edgecompress.testing import conformance

Table = Mapping[str, Any]


def variant(name: str, ms: float | None, ops: Table | None = None, reference: bool = False) -> model_variant.Variant:
    """A variant of report.json, as far as the evidence looks at it."""
    latency = number("latency", ms) if ms is not None else missing("latency", "lost")
    timed = msgspec.convert(ops, model_variant.Operators | None)
    return model_variant.Variant(name, reference=reference, numbers={"latency": latency}, ops=timed)


def table(**ms: float) -> Table:
    """Operators of one type each."""
    ops = [{"name": f"{kind}_0", "type": kind, "ms": each, "where": "CPU"} for kind, each in ms.items()]
    return {"ops": ops, "total_ms": sum(ms.values()), "why": "", "fallback": []}


# --------------------------------------------------------------------------- the sentence


def test_only_what_is_slower_than_the_fastest_reference_is_explained() -> None:
    ops = table(Conv=3.0, Relu=1.0)  # which add up to the latency of the slow one
    shown = [variant("slow", 4.0, ops), variant("near", 1.01, ops), variant("fast", 0.5, ops), variant("lost", None)]
    references = [variant("fp32", 1.0, ops, True), variant("slow-fp32", 3.0, ops, True)]
    took = "Conv takes 75 % of its time (CPU); Relu takes 25 % of its time (CPU)"
    assert slowdown.sentences([*shown, *references]) == {"slow": f"slow takes 4.0x the time of fp32: {took}."}
    assert slowdown.sentences(shown) == {}


def test_without_a_table_the_sentence_says_why_there_is_no_evidence() -> None:
    silent = {"ops": [], "total_ms": None, "why": "its runtime tells no times", "fallback": []}
    said = [slowdown.sentence(variant("v", 2.0, ops), 2.0, "fp32") for ops in (silent, None)]
    assert said[0] == "v takes 2.0x the time of fp32: no evidence: its runtime tells no times."
    assert said[1] == "v takes 2.0x the time of fp32: no evidence: no per-operator pass was run."


def test_operators_off_the_accelerator_are_counted_with_their_time_or_named() -> None:
    timed = {**table(conv=9.0, relu=1.0), "fallback": ["conv_0"]}
    assert "1 of 2 operators left the accelerator, 90 % of its time" in slowdown.sentence(
        variant("v", 9.5, timed), 2, "r"
    )
    untimed = {"ops": [], "why": "no times", "fallback": ["conv_0", "relu_0"]}
    assert "2 operators left the accelerator (conv_0, relu_0)" in slowdown.sentence(variant("v", 2, untimed), 2, "r")


@pytest.mark.parametrize(("latency_ms", "said"), [(0.3, "14"), (40.0, "0.10")])
def test_operators_that_do_not_add_up_to_the_latency_are_blamed_for_nothing(latency_ms: float, said: str) -> None:
    ops = table(QuantizeLinear=3.64, Conv=0.54) if latency_ms < 1 else table(Conv=4.0)
    sentence = slowdown.sentence(variant("v", latency_ms, {**ops, "fallback": ["Conv_0"]}), 2.0, "fp32")
    assert f"operator times do not add up to the latency ({said} of it)" in sentence and "takes" not in sentence[10:]
    assert "%" not in sentence and "operators left the accelerator (Conv_0)" in sentence


# --------------------------------------------------------------------------- real tables


def made(folder: Path, call: tuple[str, str], model: Artifact, **options: Any) -> Artifact:
    """What a technique or an export makes of a net of the conformance suite."""
    module = registry.load(*call)
    out = folder / f"{call[1]}-{len(list(folder.iterdir()))}"
    out.mkdir()
    request = Request(
        {"model": model, "samples": conformance.samples(model, folder)},
        out,
        config.build(module.Options, options, call[1]),
    )
    found: Artifact = (module.apply if call[0] == "techniques" else module.export)(request)
    return found


def said(runtime: str, artifact: Artifact, folder: Path) -> str:
    """The sentence on an artifact that is taken to be slow: its table is real, no speed is judged."""
    session = registry.load("runtimes", runtime).open(artifact, 1, True)
    ops = session.ops(conformance.common.item(conformance.samples(artifact, folder)), 30)
    session.close()
    ops = {**ops, "total_ms": sum(op["ms"] for op in ops["ops"]) or None}
    return slowdown.sentence(variant("it", ops["total_ms"], ops), 2.0, "fp32")


@pytest.mark.slow
@pytest.mark.alone
def test_signed_activations_in_onnx_runtime_are_named_until_they_are_unsigned(tmp_path: Path) -> None:
    net = conformance.net("onnx", tmp_path)
    signed, unsigned = (
        said("onnx", made(tmp_path, ("techniques", "ptq_int8"), net, activation=kind), tmp_path)
        for kind in ("int8", "uint8")
    )
    assert "on signed (int8) activations" in signed and "activation = 'uint8'" in signed
    assert "signed" not in unsigned and "QLinearConv takes" in unsigned


@pytest.mark.slow
@pytest.mark.alone
def test_dynamic_int8_of_convolutions_is_named_until_they_are_left_out(tmp_path: Path) -> None:
    net = conformance.net("onnx", tmp_path)
    convolutions, products = (
        said("onnx", made(tmp_path, ("techniques", "int8_dynamic"), net, operators=kinds), tmp_path)
        for kinds in (["Conv"], ["MatMul"])
    )
    assert "ConvInteger takes" in convolutions and "ranges found at run time" in convolutions
    assert "ConvInteger" not in products and "ranges found at run time" not in products


@pytest.mark.slow
@pytest.mark.alone
def test_executorch_without_its_delegate_is_named_until_it_has_one(tmp_path: Path) -> None:
    net = conformance.net("program", tmp_path)
    portable, xnnpack = (
        said("executorch", made(tmp_path, ("runtimes", "executorch"), net, backend=backend), tmp_path)
        for backend in ("portable", "xnnpack")
    )
    assert "operators left the accelerator, 100 % of its time" in portable
    assert "convolution takes" in portable and "(portable)" in portable
    assert "left the accelerator" not in xnnpack and "(portable)" not in xnnpack
