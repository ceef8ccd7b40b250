"""ONNX Runtime for GPUs: the same file and the same answers, and never silent about where it ran."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.runtimes import onnx_gpu
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow
HERE = [name for name in onnx_gpu.GPU if name in onnxruntime.get_available_providers()]


def test_it_answers_as_the_cpu_does(tmp_path: Path) -> None:
    artifact = conformance.net("onnx", tmp_path)
    item = next(tensors.batches(conformance.samples(artifact, tmp_path), "test", 1))
    ours, theirs = (runtime.open(artifact, 1).run(item)["scores"] for runtime in (onnx_gpu, ort))
    np.testing.assert_allclose(ours, theirs, rtol=1e-3 if HERE else 0)


@pytest.mark.skipif(bool(HERE), reason="this onnxruntime has a GPU provider")
def test_without_a_gpu_the_operators_say_that_the_cpu_ran_them(tmp_path: Path) -> None:
    artifact = conformance.net("onnx", tmp_path)
    item = next(tensors.batches(conformance.samples(artifact, tmp_path), "test", 1))
    table = onnx_gpu.open(artifact, 1, profile=True).ops(item, 2)
    assert table["why"] == "no GPU here: this onnxruntime is built for CPUs"
    assert {op["where"] for op in table["ops"]} == {"CPUExecutionProvider"}
    assert onnx_gpu.open(artifact, 1).ops(item, 2)["why"].startswith("no GPU here")


@pytest.mark.skipif(not HERE, reason="this onnxruntime has no GPU provider")
def test_on_a_gpu_what_the_cpu_ran_is_named(tmp_path: Path) -> None:
    artifact = conformance.net("onnx", tmp_path)
    item = next(tensors.batches(conformance.samples(artifact, tmp_path), "test", 1))
    table = onnx_gpu.open(artifact, 1, profile=True).ops(item, 2)
    assert any(op["where"] in onnx_gpu.GPU for op in table["ops"]) or table["why"]
    assert table["fallback"] == [op["name"] for op in table["ops"] if "CPU" in op["where"]]


def test_the_nodes_that_the_cpu_ran_beside_a_gpu_are_the_fallback() -> None:
    places = {
        "conv": "CUDAExecutionProvider",
        "nms": "CPUExecutionProvider",
        "qconv": "CPUExecutionProvider uint8×int8",
    }
    ops = [{"name": name, "type": "", "ms": 0.1, "where": where} for name, where in places.items()]
    assert onnx_gpu.left_to_the_cpu(ops) == ["nms", "qconv"]


def test_the_default_runtime_of_onnx_files_is_the_one_for_cpus() -> None:
    assert next(name for name, module in registry.every("runtimes") if module.FORMAT == "onnx") == "onnx"


def test_it_exports_nothing_and_reads_no_source(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="use runtime onnx to export ONNX"):
        onnx_gpu.export(Request({"model": Artifact(tmp_path, "program")}, tmp_path))
    assert next(runtime for runtime in registry.runtimes() if runtime.name == "onnx_gpu").read is None
