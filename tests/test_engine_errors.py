"""What engines raise becomes a line of ours: what broke, then what the engine says, without places in its source."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.engines.openvino.runtimes import openvino

OPENVINO = """Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- Conv-16 with a message:
[ONNX Frontend] Conversion failed for Conv-16
While validating ONNX node '<Node(Conv): /decoder/Conv_output_0>': Check 'is_static()' failed at src/conv.cpp:38:
FrontEnd API failed with GeneralFailure:
The input data tensor's rank has to be known (static)
"""


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        ("", "RuntimeError: no message"),
        ("\n one\n two", "RuntimeError: one"),
        ("Traceback:\n  it broke.", "RuntimeError: Traceback: it broke"),
        (
            "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : in node 'r': /src/core/r.h:47 onnx::R(const S&) not equal.",
            "RuntimeError: in node 'r': not equal",
        ),
        ("Exception from src/inference/src/core.cpp:84:\nno such file", "RuntimeError: no such file"),
        (
            OPENVINO,
            "RuntimeError: While validating ONNX node '<Node(Conv): /decoder/Conv_output_0>': "
            "The input data tensor's rank has to be known (static)",
        ),
    ],
)
def test_the_first_line_that_says_something_is_told(raised: str, line: str) -> None:
    assert first_line(RuntimeError(raised)) == line


@pytest.mark.slow
def test_an_operator_that_openvino_does_not_import_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"], "the_convolution")
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", ["n", "m"]), ("y", None))]
    model = helper.make_model(helper.make_graph([node], "net", ends[:1], ends[1:]), ir_version=8)
    model.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [1, 1, 3], [1, 1, 1]))
    onnx.save_model(model, tmp_path / "model.onnx")
    source = Artifact(tmp_path, "onnx", (TensorSpec("x", (Dim("batch"), 4)),), (TensorSpec("y", (1, 2)),))
    (tmp_path / "out").mkdir()
    with pytest.raises(StageFailed, match=r"^runtime openvino: it cannot read the ONNX model: .*Conv.*$"):
        openvino.export(Request({"model": source}, tmp_path / "out"))
