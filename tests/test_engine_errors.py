"""What engines raise becomes a line of ours: what broke, then what the engine says, without places in its source."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import nn

from edgecompress.core import config, package_files, registry, user_code
from edgecompress.core.errors import StageFailed, brief, first_line
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.engines.litert import saved_model
from edgecompress.engines.openvino.runtimes import openvino

ENGINES = ("onnx", "executorch", "coreml", "litert")
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
        (
            "Failed to run converter passes: /a/linear.py:134:0: error: failed to legalize operation 'tfl.mul' that "
            'was explicitly marked illegal: %7 = "tfl.mul"(%6) : f64\n/a/b.py:1:2: note: called from',
            "RuntimeError: Failed to run converter passes: failed to legalize operation 'tfl.mul' that was explicitly "
            'marked illegal: %7 = "tfl.mul"(%6) : f64',
        ),
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


def test_a_long_text_is_cut_between_words_and_says_that_it_is() -> None:
    says = " ".join(["for help troubleshooting"] * 20)
    for most in range(40, 490):
        cut = brief(says, most)
        assert len(cut) <= most and (cut == says or (cut.endswith("...") and f"{says} ".startswith(f"{cut[:-3]} ")))
        assert len(cut) > most - len(" troubleshooting...") or cut == says
    assert first_line(RuntimeError(says)) == user_code.error_line(RuntimeError(says)) == f"RuntimeError: {brief(says)}"
    assert brief("a\n b ") == "a b" and brief(f"y {'x' * 400}") == f"y {'x' * 295}..."


def test_no_other_place_cuts_what_an_error_or_a_program_says() -> None:
    sliced = re.compile(r"(error\)|(split|strip)\(\)\)?|\b(says|said|message)|errors\[-?\d\])\[: ?(\d\d|[A-Z])")
    files = package_files.PACKAGE.rglob("*.py")
    assert [
        f"{file}: {line}" for file in files for line in file.read_text("utf-8").splitlines() if sliced.search(line)
    ] == []


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


class Unknown(nn.Module):
    """An operator that few converters know, in a layer."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what = what

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 4, 4]"""
        if self.what == "operator":
            return torch.linalg.svd(x).S
        if self.what == "complex":
            z = torch.view_as_complex(x.reshape(-1, 8, 2))
            return torch.view_as_real(z * z)
        wide = x.reshape(-1, 2, 2, 1, 2, 2)
        return (wide + wide.amax(1, keepdim=True) * torch.arange(2.0)[:, None]).sum((1, 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "what", "says"),
    [
        *((each, "operator", r"does not convert the operator .*linalg_svd in layer '0'") for each in ENGINES),
        *((each, "complex", r"complex numbers, of aten.view_as_complex in layer '0': compute") for each in ENGINES[1:]),
        ("coreml", "rank", "a tensor of more than 5 axes, of aten.reshape in layer '0': join axes"),
    ],
)
def test_what_a_converter_lacks_is_named_with_its_layer_and_what_to_do(
    runtime: str, what: str, says: str, tmp_path: Path
) -> None:
    x = torch.zeros(1, 4, 4)
    program = torch.export.export(nn.Sequential(Unknown(what)).eval(), (x,))
    torch.export.save(program, tmp_path / "model.pt2")
    outputs = (TensorSpec("y", (1, 4)),)
    source = Artifact(tmp_path, "program", (TensorSpec("x", (1, 4, 4)),), outputs)
    (tmp_path / "out").mkdir()
    module = registry.load("runtimes", runtime)
    options = config.build(module.Options, {}, "test") if hasattr(module, "Options") else None
    with pytest.raises(StageFailed, match=says) as raised:
        module.export(Request({"model": source}, tmp_path / "out", options))
    assert "\n" not in str(raised.value)


def test_operators_of_tensorflow_without_a_kernel_are_named() -> None:
    lines = (
        "Could not translate MLIR to FlatBuffer./a/b.py:310:1: error: 'tf.Svd' op is neither a custom op nor a flex op"
    )
    both = f"{lines}\n  call(|\n^\n/a.py:1:1: error: 'tf.Betainc' op is neither a custom op nor a flex op\n"
    assert saved_model.fault(RuntimeError(both)).startswith(
        "LiteRT has no kernel for TensorFlow's Svd, Betainc; compute"
    )
    assert "TensorFlow's RFFT; " in saved_model.fault(
        RuntimeError("Some ops\nTF Select ops: RFFT\nDetails:\n\ttf.RFFT()")
    )
