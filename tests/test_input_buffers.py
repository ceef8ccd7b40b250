"""Bound sessions: the answers of an engine's own unbound call, for fresh inputs, other shapes, many ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core.model import Artifact, Dim, TensorSpec
from edgecompress.device import input_buffers
from edgecompress.engines.executorch.runtimes import executorch
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.openvino.runtimes import openvino
from edgecompress.engines.torchinductor.runtimes import torchinductor
from edgecompress.testing.conformance.nets import net

Arrays = Mapping[str, np.ndarray]


def drawn(specs: tuple[TensorSpec, ...], seed: int, batch: int = 1) -> dict[str, np.ndarray]:
    seeded = np.random.default_rng(seed)
    return {s.name: seeded.normal(size=s.concrete(batch)).astype(s.dtype) for s in specs}


# --------------------------------------------------------------------------- the buffers


def test_buffers_hold_copies_and_are_new_only_for_another_shape_or_type() -> None:
    buffers = input_buffers.InputBuffers(["a", "b"])
    given = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(7, np.int64)}
    assert buffers.fill(given)
    first = dict(buffers.arrays)
    assert not buffers.fill({"a": given["a"][:, ::-1], "b": np.array(8), "more": given["a"]})
    assert buffers.arrays["a"] is first["a"] and buffers.arrays["b"] is first["b"]
    assert (first["a"].tolist(), first["b"].item()) == ([[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]], 8)
    assert buffers.fill({**given, "a": given["a"][:1]}) and buffers.arrays["a"].shape == (1, 3)
    assert buffers.fill({**given, "a": given["a"][:1].astype(np.float16)}) and buffers.arrays["a"].dtype == np.float16
    assert given["a"].tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5, 7), (1000, 1000)])
def test_buffers_are_aligned_for_vectors(shape: tuple[int, ...]) -> None:
    buffers = input_buffers.InputBuffers(["x"])
    buffers.fill({"x": np.ones(shape, np.int8)})
    assert buffers.arrays["x"].ctypes.data % input_buffers.ALIGNMENT == 0 or not buffers.arrays["x"].size


def test_a_missing_input_is_named() -> None:
    with pytest.raises(KeyError, match="b"):
        input_buffers.InputBuffers(["a", "b"]).fill({"a": np.ones(1)})


# --------------------------------------------------------------------------- engines


def unbound_onnx(session: Any) -> Callable[[Arrays], Arrays]:
    return lambda inputs: dict(zip(session.names, session.session.run(session.names, dict(inputs)), strict=True))


def unbound_openvino(session: Any) -> Callable[[Arrays], Arrays]:
    request = session.request.get_compiled_model().create_infer_request()
    return lambda inputs: {name: request.infer(dict(inputs))[name] for name in session.names}


def unbound_executorch(session: Any) -> Callable[[Arrays], Arrays]:
    import torch

    def run(inputs: Arrays) -> Arrays:
        answers = session.method([torch.from_numpy(inputs[n]) for n in session.inputs.names], clone_outputs=True)
        return {name: answer.numpy() for name, answer in zip(session.outputs, answers, strict=True)}

    return run


def unbound_inductor(session: Any) -> Callable[[Arrays], Arrays]:
    import torch

    def run(inputs: Arrays) -> Arrays:
        answers = session.loader.boxed_run([torch.from_numpy(inputs[n].copy()) for n in session.inputs.names])
        return {name: answer.numpy() for name, answer in zip(session.outputs, answers, strict=True)}

    return run


UNBOUND = {
    "onnx": (ort, unbound_onnx),
    "openvino": (openvino, unbound_openvino),
    "executorch": (executorch, unbound_executorch),
    "torchinductor": (torchinductor, unbound_inductor),
}


def agrees(session: Any, unbound: Callable[[Arrays], Arrays], calls: list[dict[str, np.ndarray]]) -> None:
    """Each call's answers are the unbound ones bit for bit, and are still so after all the others."""
    answers = [session.run(inputs) for inputs in calls]
    for inputs, answer in zip(calls, answers, strict=True):
        right = unbound(inputs)
        assert set(answer) == set(right)
        for name, array in right.items():
            assert (answer[name].shape, answer[name].dtype) == (array.shape, array.dtype)
            assert answer[name].tobytes() == array.tobytes()
    assert len({answer[name].tobytes() for answer in answers for name in answer}) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.prove] if name == "torchinductor" else []) for name in UNBOUND]
)
def test_a_bound_session_answers_what_the_engine_does_bit_for_bit(name: str, tmp_path: Path) -> None:
    module, unbound = UNBOUND[name]
    artifact = net(module.FORMAT, tmp_path)
    session = module.open(artifact, 1)
    agrees(session, unbound(session), [drawn(artifact.inputs, seed) for seed in (0, 1, 2, 0)])
    session.close()


def many_ends(folder: Path) -> Artifact:
    """a [n, 4] + b (a scalar), their sum over items, a's values above zero, and a itself."""
    import onnx
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("ReduceSum", ["sum"], ["all"], keepdims=0),
        helper.make_node("NonZero", ["mask"], ["where"]),
        helper.make_node("Cast", ["relu"], ["mask"], to=TensorProto.BOOL),
        helper.make_node("Relu", ["a"], ["relu"]),
        helper.make_node("Identity", ["a"], ["same"]),
    ]
    nodes = [nodes[i] for i in (0, 1, 4, 3, 2, 5)]
    batch = Dim("batch", 1, 8)
    kinds = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
    inputs = (TensorSpec("a", (batch, 4)), TensorSpec("b", ()))
    outputs = (
        TensorSpec("sum", (batch, 4)),
        TensorSpec("all", ()),
        TensorSpec("where", (2, Dim("found", 0, 32)), "int64"),
        TensorSpec("same", (batch, 4)),
    )
    sides = [
        [
            helper.make_tensor_value_info(
                s.name, kinds[s.dtype], [d if isinstance(d, int) else d.name for d in s.shape]
            )
            for s in side
        ]
        for side in (inputs, outputs)
    ]
    graph = helper.make_graph(nodes, "ends", *sides)
    onnx.save_model(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "model.onnx"
    )
    return Artifact(folder, "onnx", inputs, outputs).write()


@pytest.mark.slow
def test_scalars_several_ends_and_sizes_that_change_by_call_or_by_value(tmp_path: Path) -> None:
    artifact = many_ends(tmp_path)
    session = ort.open(artifact, 1)
    calls = [drawn(artifact.inputs, seed, batch) for seed, batch in enumerate((1, 3, 3, 3, 8, 1))]
    calls = [{**call, "b": np.array(call["b"], np.float32)} for call in calls]
    agrees(session, unbound_onnx(session), calls)
    assert len({session.run(call)["where"].shape for call in calls}) > 2


@pytest.mark.slow
def test_openvino_takes_another_size_at_the_next_call(tmp_path: Path) -> None:
    import openvino as engine

    file = many_ends(tmp_path).file(".onnx")
    out = tmp_path / "openvino"
    out.mkdir()
    engine.save_model(engine.convert_model(file), out / "model.xml", compress_to_fp16=False)
    onnx_model = Artifact.read(tmp_path)
    artifact = Artifact(out, "openvino", onnx_model.inputs, onnx_model.outputs).write()
    session = openvino.open(artifact, 1)
    calls = [drawn(artifact.inputs, seed, batch) for seed, batch in enumerate((1, 3, 3, 8, 1))]
    calls = [{**call, "b": np.array(call["b"], np.float32)} for call in calls]
    agrees(session, unbound_openvino(session), calls)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["onnx", "openvino"])
def test_an_input_of_another_type_is_refused(name: str, tmp_path: Path) -> None:
    module, _ = UNBOUND[name]
    artifact = net(module.FORMAT, tmp_path)
    session = module.open(artifact, 1)
    with pytest.raises(Exception, match=r"(?i)type|precision|f64"):
        session.run({k: v.astype(np.float64) for k, v in drawn(artifact.inputs, 0).items()})
