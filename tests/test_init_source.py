"""`init --source MODEL`: a source file and a function for its data that name each input, and run as they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgecompress.cli.main import main


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A net of a picture as bytes, [n, 8, 8, 3], and of ids, [n, 5]."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    weights = np.random.default_rng(0).normal(size=(197, 2)).astype("float32")
    nodes = [
        helper.make_node("Cast", ["picture"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["ids"], ["places"], to=TensorProto.FLOAT),
        helper.make_node("Flatten", ["real"], ["row"]),
        helper.make_node("Concat", ["row", "places"], ["all"], axis=1),
        helper.make_node("MatMul", ["all", "w"], ["y"]),
    ]
    sides = [("picture", TensorProto.UINT8, ["n", 8, 8, 3]), ("ids", TensorProto.INT64, ["n", 5])]
    inputs = [helper.make_tensor_value_info(*side) for side in sides]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])]
    constants = [onnx.numpy_helper.from_array(weights, "w")]
    graph = helper.make_graph(nodes, "two inputs", inputs, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), "two-inputs.onnx")
    return tmp_path / "two-inputs.onnx"


@pytest.mark.slow
def test_what_is_written_names_each_input_and_deploys_as_it_is(net: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", "--source", net.name]) == 0
    assert "fill in two_inputs_data.py, then edgecompress plan two_inputs.toml" in capsys.readouterr().out
    told, code = Path("two_inputs.toml").read_text(), Path("two_inputs_data.py").read_text()
    assert (
        "# picture: uint8 [batch, 8, 8, 3], pictures as NHWC\n# ids: int64 [batch, 5]\n" in told
        and "# y: float32" in told
    )
    assert '"picture": rng.integers(0, 256, (8, 8, 3)).astype("uint8")' in code and '"ids": rng' in code
    assert main(["deploy", "two_inputs.toml", "--only", "fp32", "--target", "x86", "--until", "golden"]) == 0
    assert main(["init", "given", "--source", net.name, "--data", "items.npz"]) == 0
    assert 'data = "items.npz"' in Path("given.toml").read_text() and not Path("given_data.py").exists()
    assert main(["init", "--source", net.name]) == 2
    assert "two_inputs.toml: already exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give the NAME of the new file, or the model file with --source"),
        (["--source", "none.onnx"], "--source none.onnx: no such file"),
        (["--source", "net.pt2"], "init NAME --kind source --model net.pt2"),
    ],
)
def test_a_source_that_cannot_be_described_is_one_line(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.pt2").write_bytes(b"")
    assert main(["init", *words]) == 2
    assert says in capsys.readouterr().err and not Path("net.toml").exists()
