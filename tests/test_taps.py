"""Taps: a runtime that has `tapped` hands out what each layer of an artifact answers, and computes what it did before.

Every runtime is held to it on one small net, in fp32 and in int8 as the planner makes them: one that gets a `tapped`
is tested the day it does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core import environments, registry
from edgecompress.core.errors import EdgeError, StageFailed
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

NET = "residual_cnn"  # three convolutions with batch norms and ReLUs, two shortcuts (one of them computes), a head
LAYERS = ("convolution", "linear", "addmm")  # of the source: each ends somewhere in the artifact
ITEMS = 6
SMALLER = {"coreml": "fp16"}  # than fp32, where it is not int8: coremltools takes none of PyTorch's
SAME = {
    "fp32": 1e-5,
    "fp16": 1e-3,
    "int8": 0.02,
}  # own outputs with taps and without, relative RMS: OpenVINO fuses one sum less
NEAR_DB = {"fp32": 90.0, "fp16": 50.0, "int8": 18.0}  # of a tap against what the source computes there
DTYPES = {"fp32": {"float32"}, "fp16": {"float16", "float32"}, "int8": {"float32", "int8", "uint8"}}
ROW = {"output", "operator", "type", "dtype", "layout", "module", "tensor"}


def cells() -> Iterator[tuple[str, str]]:
    """Each runtime that has `tapped` and runs in this Python, with each precision that it can be reached in."""
    for runtime, module in registry.every("runtimes"):
        here = hasattr(module, "tapped") and not environments.environment(module)
        for precision in ("fp32", SMALLER.get(runtime, "int8")) if here else ():
            try:
                conformance.zoo_road(runtime, precision)
            except EdgeError:
                continue
            yield runtime, precision


@dataclass(frozen=True)
class Case:
    """An artifact, what its export read, and its tapped twin."""

    runtime: str
    precision: str
    source: conformance.ZooSource
    road: list[Artifact] = field(default_factory=list)

    @property
    def model(self) -> Artifact:
        return self.road[-1]

    @property
    def module(self) -> Any:
        return registry.load("runtimes", self.runtime)

    @cached_property
    def twin(self) -> Artifact:
        before = next(a for a in reversed(self.road) if a.kind in ("program", "module"))
        out = self.model.path.parent / f"tapped-{self.runtime}"
        out.mkdir()
        return self.module.tapped(Request({"model": self.model, "before": before}, out))  # type: ignore[no-any-return]

    @cached_property
    def found(self) -> dict[str, Any]:
        return self._run(self.twin)

    @cached_property
    def plain(self) -> dict[str, Any]:
        return self._run(self.model)

    def _run(self, artifact: Artifact) -> dict[str, Any]:
        """What it answers to the first test items, by output, as it comes and then as real numbers."""
        session = self.module.open(artifact, 1)
        answers = [
            {spec.name: np.array(answer[spec.name]) for spec in artifact.outputs}
            for answer in map(session.run, tensors.batches(self.source.samples, "test", 1, ITEMS, artifact))
        ]
        session.close()
        for spec in artifact.outputs:
            for answer in answers:
                assert answer[spec.name].shape == spec.concrete(1), spec
                assert str(answer[spec.name].dtype) == spec.dtype, spec
        return {s.name: np.concatenate([tensors.real(a[s.name], s) for a in answers]) for s in artifact.outputs}

    def tap(self, row: dict[str, Any]) -> Any:
        """A tap's answers with their channels where torch has them."""
        found = self.found[row["output"]]
        return np.moveaxis(found, -1, 1) if row["layout"] == "NHWC" else found


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> conformance.ZooSource:
    return conformance.zoo_source(NET, (), tmp_path_factory.mktemp("taps"))


@pytest.fixture(scope="module")
def computed(source: conformance.ZooSource) -> list[tuple[str, Any]]:
    """(operator, its answers) of each node of the traced net, in the order of computing."""
    import torch

    (trace, *_) = conformance.zoo_road("onnx", "fp32")
    program = torch.export.load(_made(source, [trace])[-1].file(".pt2")).run_decompositions({})
    net = program.module(check_guards=False)
    seen: list[tuple[str, Any]] = []

    class Recorder(torch.fx.Interpreter):  # type: ignore[misc]
        def run_node(self, node: Any) -> Any:
            value = super().run_node(node)
            if node.op == "call_function" and isinstance(value, torch.Tensor):
                seen.append((str(node.target), value.detach().numpy().copy()))
            return value

    items = list(tensors.batches(source.samples, "test", 1, ITEMS))
    with torch.no_grad():
        for item in items:
            Recorder(net).run(*(torch.from_numpy(item[name]) for name in item), enable_io_processing=False)
    count = len(seen) // len(items)
    return [(seen[i][0], np.concatenate([value for _, value in seen[i::count]])) for i in range(count)]


def _made(source: conformance.ZooSource, calls: list[Any]) -> list[Artifact]:
    """The artifacts on a road."""
    return [conformance.zoo_cells.travelled(source, calls[: n + 1], 1) for n in range(len(calls))]


LONG = "executorch"  # a quarter of a minute: with `make prove`
PARAMS = [pytest.param(cell, marks=[pytest.mark.prove] if cell[0] == LONG else []) for cell in cells()]


@pytest.fixture(scope="module", params=PARAMS, ids="-".join)
def case(request: pytest.FixtureRequest, source: conformance.ZooSource) -> Case:
    runtime, precision = request.param
    if missing := environments.missing(registry.load("runtimes", runtime)):
        pytest.skip(f"{runtime} needs {', '.join(missing)}")
    return Case(runtime, precision, source, _made(source, conformance.zoo_road(runtime, precision)))


def relative(wanted: Any, found: Any) -> float:
    """The RMS of the difference over that of what is wanted."""
    return float(np.sqrt(((wanted - found) ** 2).mean() / (wanted**2).mean()))


def test_every_runtime_of_the_four_formats_can_be_tapped() -> None:
    assert {"onnx", "openvino", "litert", "executorch", "coreml"} <= {runtime for runtime, _ in cells()}


def test_a_tapped_artifact_tells_of_its_taps(case: Case) -> None:
    twin, taps = case.twin, case.twin.facts["taps"]
    own, further = twin.outputs[: len(case.model.outputs)], twin.outputs[len(case.model.outputs) :]
    assert (twin.kind, twin.inputs, own) == (case.model.kind, case.model.inputs, case.model.outputs)
    assert [spec.name for spec in further] == [row["output"] for row in taps]
    names = [spec.name for spec in twin.outputs]
    assert len(set(names)) == len(names)
    assert all(Path(name).name == name for name in names)
    assert all(set(row) | {"tensor"} == ROW for row in taps)  # not all formats name what a layer answers
    assert all(row["operator"] and row["type"] for row in taps)
    assert {row["dtype"] for row in taps} <= DTYPES[case.precision]
    assert case.precision == "fp32" or any(row["dtype"] != "float32" for row in taps)
    assert Artifact.read(twin.path) == twin
    assert twin.sha256 == twin.digest()


def test_taps_leave_what_the_model_answers_alone(case: Case) -> None:
    for name, wanted in case.plain.items():
        assert relative(wanted, case.found[name]) <= SAME[case.precision]


def test_every_layer_is_tapped_near_what_the_source_computes_there(case: Case, computed: list[tuple[str, Any]]) -> None:
    places, distances = [], []
    for row in case.twin.facts["taps"]:
        found = case.tap(row).reshape(ITEMS, -1)
        nearness = [
            relative(value.reshape(ITEMS, -1), found) if value.size == found.size else math.inf for _, value in computed
        ]
        places.append(int(np.argmin(nearness)))
        distances.append((min(nearness), row))
    far = [(d, row["operator"]) for d, row in distances if d > 10 ** (-NEAR_DB[case.precision] / 20)]
    assert not far
    layers = sum(any(word in operator for word in LAYERS) for operator, _ in computed)
    assert len(set(places)) >= layers
    assert places == sorted(places), "taps come in the order of computing"


def test_an_operator_is_called_what_skip_calls_it(source: conformance.ZooSource, tmp_path: Path) -> None:
    """Left in float by the name that its tap has, a layer is no longer held as integers."""
    technique = registry.load("techniques", "ptq_int8")
    plain = _made(source, conformance.zoo_road("onnx", "fp32"))[-1]
    held = []
    for step, skip in enumerate([(), ("node_conv2d_5",)]):
        for name in ("int8", "tapped"):
            (tmp_path / f"{name}-{step}").mkdir()
        inputs = {"model": plain, "samples": source.samples}
        int8 = technique.apply(Request(inputs, tmp_path / f"int8-{step}", technique.Options(skip=skip)))
        taps = ort.tapped(Request({"model": int8}, tmp_path / f"tapped-{step}")).facts["taps"]
        held.append({row["operator"]: row["dtype"] for row in taps})
    assert held[0]["node_conv2d_5"] == "uint8"
    assert held[1]["node_conv2d_5"] == "float32"


# --------------------------------------------------------------------------- ONNX: rows that are no items


def onnx_net(folder: Path, nodes: list[Any], weights: dict[str, Any], shapes: tuple[Any, Any]) -> Artifact:
    """x -> y."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in zip("xy", shapes, strict=True)]
    constants = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], constants)
    folder.mkdir()
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(proto, folder / "model.onnx")
    specs = [TensorSpec(n, s) for n, s in zip("xy", shapes, strict=True)]
    return Artifact(folder, "onnx", tuple(specs[:1]), tuple(specs[1:])).write()


def test_an_answer_whose_batch_is_elsewhere_is_handed_out_by_item(tmp_path: Path) -> None:
    from onnx import helper

    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], "turn", perm=[1, 0, 2]),
        helper.make_node("Tanh", ["t"], ["a"], "time/first"),  # [3, 2, 4]
        helper.make_node("Transpose", ["a"], ["b"], "back", perm=[1, 0, 2]),
        helper.make_node("Reshape", ["b", "rows"], ["c"], "rows"),
        helper.make_node("MatMul", ["c", "w"], ["d"], "product"),  # [6, 4]
        helper.make_node("Reshape", ["d", "items"], ["y"], "items"),
    ]
    weights = {"rows": np.array([6, 4]), "items": np.array([2, 3, 4]), "w": np.eye(4, dtype=np.float32)}
    model = onnx_net(tmp_path / "net", nodes, weights, ((2, 3, 4), (2, 3, 4)))
    (tmp_path / "twin").mkdir()
    twin = ort.tapped(Request({"model": model}, tmp_path / "twin"))
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    found = ort.open(twin, 1).run({"x": x})
    assert [row["operator"] for row in twin.facts["taps"]] == ["time/first", "product"]
    for row in twin.facts["taps"]:
        assert np.allclose(found[row["output"]].reshape(2, 12), np.tanh(x).reshape(2, 12), atol=1e-6)


def test_a_model_without_a_layer_cannot_be_tapped(tmp_path: Path) -> None:
    from onnx import helper

    model = onnx_net(tmp_path / "net", [helper.make_node("Identity", ["x"], ["y"], "same")], {}, ((1, 4), (1, 4)))
    (tmp_path / "twin").mkdir()
    with pytest.raises(StageFailed, match="no layer"):
        ort.tapped(Request({"model": model}, tmp_path / "twin"))
