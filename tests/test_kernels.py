"""The tables of `check`: a net of each word is built, and what its runtime leaves outside is what they say."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import prove
import pytest

pytest.importorskip("torch")
pytest.importorskip("litert_torch")
pytest.importorskip("executorch")

import kernel_nets
import torch

from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.core.operations import MULTIPLYING, Operation
from edgecompress.engines.ethos_u import kernels as ethos_u_kernels
from edgecompress.engines.executorch.runtimes import executorch
from edgecompress.engines.litert.runtimes import litert
from edgecompress.engines.onnx import operations as onnx_operations
from edgecompress.formats import torch_operations

pytestmark = pytest.mark.slow

SHORT = (
    "conv_grouped",
    "layernorm",
    "gelu",
    "mish",
    "planemean",
    "maxpool_pad",
    "gather",
    "where",
    "add (whole numbers)",
)
# What engines add around an operator that they leave: shapes, copies and numbers of the graph
AROUND = {"reshape", "slice", "expand", "clone_dim_order", "to_dim_order", "view", "scalar_tensor", "full"}


def program(name: str, folder: Path) -> Artifact:
    net = kernel_nets.built(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exported = torch.export.export(net.net, net.inputs)
    torch.export.save(exported, folder / "program.pt2")
    specs = [TensorSpec(f"x{i}", tuple(x.shape), str(x.dtype)[6:]) for i, x in enumerate(net.inputs)]
    made = net.net(*net.inputs)
    return Artifact(folder, "program", specs, [TensorSpec("y", tuple(made.shape), str(made.dtype)[6:])]).write()


def built(runtime: object, name: str, tmp_path: Path) -> tuple[list[Operation], list[str]]:
    """The operators of a word's net, and those that the runtime reports outside of XNNPACK."""
    (tmp_path / "program").mkdir()
    (tmp_path / "out").mkdir()
    model = program(name, tmp_path / "program")
    options = runtime.Options() if hasattr(runtime, "Options") else None  # type: ignore[attr-defined]
    artifact = runtime.export(Request(inputs={"model": model}, out=tmp_path / "out", options=options))  # type: ignore[attr-defined]
    session = runtime.open(artifact, 1)  # type: ignore[attr-defined]
    try:
        left = session.ops({}, 0)["fallback"] or []
    finally:
        session.close()
    return torch_operations.operations(model), [plain(each) for each in left]


def plain(name: str) -> str:
    """aten::mean.out #1, MEAN:3 and mean.dim are one operator."""
    return (
        name.split("::")[-1]
        .split(" ")[0]
        .split(":")[0]
        .split(".")[0]
        .removesuffix("_copy")
        .lower()
        .lstrip("_")
        .removesuffix("_v2")
    )


def names(parts: Sequence[str]) -> set[str]:
    return {plain(part) for part in parts} - AROUND


@pytest.mark.parametrize("name", list(kernel_nets.NETS) if prove.WHOLE else SHORT)
@pytest.mark.parametrize("runtime", [litert, executorch], ids=["litert", "executorch"])
def test_what_a_runtime_leaves_outside_is_what_its_table_says(runtime, name, tmp_path):
    word = name.split(" ")[0]
    said = [runtime.kernels(op, "fp32") for op in torch_ops(name, tmp_path)]
    assert all(found.known for found in said), f"no table knows {word}"
    if any(found.unable for found in said):
        with pytest.raises((EdgeError, ValueError, RuntimeError)):
            built(runtime, name, tmp_path)
        return
    ops, left = built(runtime, name, tmp_path)
    assert word in {op.word for op in ops}
    assert names([part for found in said for part in found.outside]) == names(left)


def torch_ops(name: str, tmp_path: Path) -> list[Operation]:
    (tmp_path / "read").mkdir()
    return torch_operations.operations(program(name, tmp_path / "read"))


def test_words_of_multiplying_operators_are_words_of_readers():
    read = {*torch_operations.WORDS.values(), *torch_operations.REFINED, *onnx_operations.WORDS.values()}
    spelled = {"conv", "conv_grouped", "conv_depthwise", "conv3d", "convtranspose", "convtranspose3d", "lstm", "gru"}
    assert set(MULTIPLYING) <= read | spelled | {"linear", "einsum"}


def test_what_the_npu_takes_is_velas_own_list():
    vela = pytest.importorskip("ethosu.vela.tflite_supported_operators").TFLiteSupportedOperators
    mapping = pytest.importorskip("ethosu.vela.tflite_mapping")
    taken = {names[0] for code, names in mapping.builtin_operator_map.items() if names[0] in vela.supported_operators}
    spelled = {mapping.optype_to_builtintype(kind) for kind in taken}
    assert spelled == set(ethos_u_kernels.NPU)
