"""Runtimes: what ONNX Runtime refuses to read, how exports name things, what the profiles say."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.openvino.runtimes import openvino
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow


def proto(shape: tuple[Any, ...] = ("n", 4), weight: Any = None, kind: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """x -> x @ w + x: a model that is small enough to break byte by byte."""
    w = np.eye(4, dtype=np.float32) if weight is None else weight
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "x"], ["y"], "sum"),
    ]
    ends = [helper.make_tensor_value_info(name, kind, shape) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def saved(folder: Path, model: onnx.ModelProto) -> Path:
    onnx.save_model(model, folder / "user.onnx")
    return folder / "user.onnx"


def read(file: Path) -> Artifact:
    out = file.parent / "read"
    out.mkdir(exist_ok=True)
    return ort.read(Request({}, out, {"path": str(file)}))


# --------------------------------------------------------------------------- what a stranger's file may be


def test_a_dynamic_first_axis_is_the_batch_and_others_keep_their_names(tmp_path: Path) -> None:
    model = proto()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = "N"
    found = read(saved(tmp_path, model))
    assert [s.shape for s in found.inputs] == [(Dim("batch", 1, 2**31 - 1), 4)]
    assert found.inputs[0].dtype == "float32"
    session = ort.open(found, 1)
    assert session.run({"x": np.ones((3, 4), np.float32)})["y"].tolist() == [[2.0] * 4] * 3


def test_weights_beside_the_model_come_along(tmp_path: Path) -> None:
    file = tmp_path / "user.onnx"
    onnx.save_model(proto(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    found = read(file)
    assert [p.name for p in found.files()] == ["model.onnx"]
    (tmp_path / "w.bin").unlink()
    assert ort.open(found, 1).run({"x": np.ones((1, 4), np.float32)})["y"].tolist() == [[2.0] * 4]


@pytest.mark.parametrize("location", ["../w.bin", "/etc/hostname", "link/w.bin", "sub/../../w.bin"])
def test_weights_outside_the_models_folder_are_not_read(location: str, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "w.bin").write_bytes(np.eye(4, dtype=np.float32).tobytes())
    (home / "link").symlink_to(tmp_path)
    (home / "sub").mkdir()
    model = proto()
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "64")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    (home / "user.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match=r"user\.onnx: its external data cannot be read"):
        read(home / "user.onnx")


def test_weights_that_are_not_there_are_named(tmp_path: Path) -> None:
    file = tmp_path / "user.onnx"
    onnx.save_model(proto(), file, save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InputError, match=r"w\.bin"):
        read(file)


@pytest.mark.parametrize(("value", "says"), [(np.nan, "1 NaN and 0"), (np.inf, "0 NaN and 1")])
def test_broken_weights_are_named(value: float, says: str, tmp_path: Path) -> None:
    weight = np.eye(4, dtype=np.float32)
    weight[2, 1] = value
    with pytest.raises(InputError, match=f"weight 'w' holds {says}"):
        read(saved(tmp_path, proto(weight=weight)))


def test_minus_infinity_is_a_mask_and_stays(tmp_path: Path) -> None:
    weight = np.zeros((4, 4), np.float32)
    weight[0, 1] = -np.inf
    model = proto((1, 4), weight)
    model.graph.node[0].op_type = "Add"
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_value = 4
    assert read(saved(tmp_path, model)).inputs[0].shape == (4, 4)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.graph.node[0].input.__setitem__(1, "nowhere"), "not a valid ONNX model"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Nonsense"), "not a valid ONNX model"),
        (lambda m: setattr(m.graph.node[0], "domain", "com.stranger"), "No opset import for domain 'com.stranger'"),
        (lambda m: setattr(m.opset_import[0], "version", 999), "ONNX Runtime only *guarantees* support"),
        (lambda m: m.graph.initializer[0].dims.__setitem__(0, 3), "user.onnx"),
    ],
)
def test_an_unsound_model_is_refused_in_one_line(change: Any, says: str, tmp_path: Path) -> None:
    model = proto()
    change(model)
    (tmp_path / "user.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(InputError) as caught:
        read(tmp_path / "user.onnx")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_only_tensors_of_numbers_are_taken(tmp_path: Path) -> None:
    node = helper.make_node("Identity", ["x"], ["y"], "same")
    ends = [helper.make_tensor_value_info(name, TensorProto.STRING, [1]) for name in "xy"]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    with pytest.raises(InputError, match="only tensors of numbers"):
        read(saved(tmp_path, model))


FUZZ = """
import sys
from pathlib import Path
from edgecompress.core.errors import InputError
from edgecompress.core.model import Request
from edgecompress.engines.onnx.runtimes import onnx
refused = 0
for file in sorted(Path(sys.argv[1]).glob("*.onnx")):
    out = file.with_suffix("")
    out.mkdir()
    try:
        onnx.read(Request({}, out, {"path": str(file)}))
    except InputError as error:
        assert "\\n" not in str(error) and file.name in str(error), error
        refused += 1
print("REFUSED", refused)
"""


def test_damaged_models_are_refused_or_run_and_never_crash(tmp_path: Path) -> None:
    """100 files, each with one bit flipped or the end cut off: none ends the process, none raises anything else."""
    whole = proto().SerializeToString()
    seeded = random.Random(int(os.environ.get("EDGECOMPRESS_SEED", "0")))
    for index in range(100):
        broken = bytearray(whole)
        at = seeded.randrange(len(whole))
        if index % 5:
            broken[at] ^= 1 << seeded.randrange(8)
        else:
            del broken[at:]
        (tmp_path / f"{index:03}.onnx").write_bytes(broken)
    argv = [sys.executable, "-c", FUZZ, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout.split("REFUSED")[1]) > 30


# --------------------------------------------------------------------------- exports


def dynamic_program(tmp_path: Path) -> Artifact:
    """The conformance net with a batch of 1 to 8."""
    model = conformance.net("module", tmp_path)
    inputs = {"model": model, "samples": conformance.nets.image_samples(tmp_path)}
    out = tmp_path / "dynamic"
    out.mkdir()
    return trace.run(Request(inputs, out, {"dynamic": {"input": {"0": "batch:1..8"}}}))


def test_an_export_names_its_dimensions_and_keeps_no_trace_of_this_machine(tmp_path: Path) -> None:
    program = dynamic_program(tmp_path)
    out = tmp_path / "onnx"
    out.mkdir()
    exported = ort.export(Request({"model": program}, out))
    model = onnx.load_model(exported.file(".onnx"))
    assert [d.dim_param for d in model.graph.input[0].type.tensor_type.shape.dim][:1] == ["batch"]
    assert [d.dim_param for d in model.graph.output[0].type.tensor_type.shape.dim][:1] == ["batch"]
    assert exported.inputs[0].shape == (Dim("batch", 1, 8), 3, 8, 8)
    text = exported.file(".onnx").read_bytes()
    assert b"site-packages" not in text
    assert str(Path(conformance.__file__).parent).encode() not in text
    image = np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)
    found = ort.open(exported, 1).run({"input": image})["output"]
    import torch

    wanted = torch_module.outputs(torch_module.rebuild(program), program, {"input": torch.from_numpy(image)})["output"]
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_openvino_fixes_the_batch_it_is_asked_for(tmp_path: Path) -> None:
    onnx_out, out = tmp_path / "onnx", tmp_path / "openvino"
    onnx_out.mkdir(), out.mkdir()
    model = ort.export(Request({"model": dynamic_program(tmp_path)}, onnx_out))
    exported = openvino.export(Request({"model": model}, out, None, Context(batch=3)))
    assert exported.inputs[0].shape == (3, 3, 8, 8)
    image = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
    found = openvino.open(exported, 1).run({"input": image})["output"]
    np.testing.assert_allclose(found, ort.open(model, 1).run({"input": image})["output"], atol=1e-4)


def test_openvino_says_what_it_cannot_convert(tmp_path: Path) -> None:
    model = proto()
    model.graph.node[0].domain, model.graph.node[0].op_type = "com.stranger", "Nonsense"
    folder, out = tmp_path / "model", tmp_path / "out"
    folder.mkdir(), out.mkdir()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    ends = (TensorSpec("x", (1, 4)),), (TensorSpec("y", (1, 4)),)
    with pytest.raises(StageFailed, match="runtime openvino: it cannot read the ONNX model") as caught:
        openvino.export(Request({"model": Artifact(folder, "onnx", *ends)}, out))
    assert "\n" not in str(caught.value)


# --------------------------------------------------------------------------- sessions


@pytest.mark.parametrize("runtime", [ort, openvino], ids=["onnx", "openvino"])
def test_the_operators_add_up_to_no_more_than_the_whole(runtime: Any, tmp_path: Path) -> None:
    import time

    artifact = conformance.net(runtime.FORMAT, tmp_path)
    item = next(tensors.batches(conformance.samples(artifact, tmp_path), "test", 1))
    session = runtime.open(artifact, 1, profile=True)
    table = session.ops(item, 50)
    assert any("Conv" in op["type"] for op in table["ops"])
    assert table["fallback"] == []
    begin = time.perf_counter()
    for _ in range(50):
        session.run(item)
    whole_ms = (time.perf_counter() - begin) * 1000 / 50
    assert sum(op["ms"] for op in table["ops"]) < 3 * whole_ms + 0.2


def test_a_session_without_profile_says_so(tmp_path: Path) -> None:
    artifact = conformance.net("onnx", tmp_path)
    table = ort.open(artifact, 1).ops({}, 1)
    assert table["ops"] == []
    assert "without its profile" in table["why"]


def test_openvino_sends_nothing_anywhere() -> None:
    code = (
        "import sys\n"
        "def hear(event, arguments):\n"
        "    if event in ('socket.connect', 'socket.getaddrinfo'): print('CALLED', event, arguments)\n"
        "sys.addaudithook(hear)\n"
        "from edgecompress.engines.openvino.runtimes import openvino\n"
        "from edgecompress.engines.openvino.techniques import nncf_int8\n"
        "openvino._openvino()\n"
        "nncf_int8._nncf.library()\n"
        "print([m for m in sys.modules if m.startswith('openvino_telemetry.')])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split() == ["[]"]


def test_specs_survive_a_copy_of_the_artifact(tmp_path: Path) -> None:
    artifact = conformance.net("onnx", tmp_path)
    assert Artifact.read(artifact.path) == dataclasses.replace(artifact)
