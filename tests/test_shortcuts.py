"""Slices and zeros of shortcuts as convolutions: which are folded, that the numbers stay, and who is told."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from edgecompress.core.model import REWRITES, Artifact
from edgecompress.formats import torch_shortcuts
from edgecompress.pipeline import worker


class Shortcut(torch.nn.Module):
    """A convolution with a stride of two, and what stands beside it."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.conv = way, torch.nn.Conv2d(4, 10, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        few = x[:, :, ::2, ::2]
        if self.way == "ones":
            beside = F.pad(few, (0, 0, 0, 0, 3, 3), value=1.0)
        elif self.way == "pixels":
            beside = F.pad(few, (1, 1, 0, 0, 3, 3))[:, :, :, 1:-1]
        elif self.way == "odd pixels":
            beside = F.pad(x[:, :, 1::2, ::2], (0, 0, 0, 0, 3, 3))
        elif self.way == "no slices":
            beside = F.pad(self.conv(x)[:, :4], (0, 0, 0, 0, 3, 3))
        elif self.way == "read twice":
            beside = F.pad(few, (0, 0, 0, 0, 3, 3)) + few.mean()
        else:
            beside = F.pad(few, (0, 0, 0, 0, 2, 4))
        return self.conv(x) + beside


class Net(torch.nn.Module):
    def __init__(self, way: str) -> None:
        super().__init__()
        self.block = Shortcut(way)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x.relu())


def exported(way: str) -> tuple[torch.export.ExportedProgram, torch.Tensor, torch.Tensor]:
    """The program of a net that takes any batch, an input, and what the net answers to it."""
    torch.manual_seed(0)
    net, x = Net(way).eval(), torch.randn(3, 4, 8, 6)
    batch = torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(net, (x,), dynamic_shapes=({0: batch},)), x, net(x).detach()


def test_a_shortcut_becomes_one_convolution_with_the_same_numbers() -> None:
    program, x, right = exported("zeros")
    assert torch_shortcuts.folded(program) == {REWRITES: {torch_shortcuts.SAYS: ["block"]}}
    saved = io.BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    read = torch.export.load(saved)
    operators = [str(node.target) for node in read.graph.nodes if node.op == "call_function"]
    assert operators.count("aten.conv2d.default") == 2 and not {"slice", "pad"} & {o.split(".")[1] for o in operators}
    assert torch.equal(read.module()(x), right)
    assert torch.allclose(read.module()(x[:1]), right[:1], atol=1e-6), "any batch, as before"
    assert "pad" in [node.name for node in read.graph.nodes], "a diagnosis goes on knowing the layer by its name"
    assert read.state_dict["block.pad.weight"].sum() == 4


@pytest.mark.parametrize("way", ["ones", "pixels", "odd pixels", "no slices"])
def test_what_is_no_such_shortcut_stays(way: str) -> None:
    program, x, right = exported(way)
    before = [node.name for node in program.graph.nodes]
    assert torch_shortcuts.folded(program) == {}
    assert [node.name for node in program.graph.nodes] == before and torch.equal(program.module()(x), right)


def test_slices_that_something_else_reads_too_stay_and_answer_the_same() -> None:
    program, x, right = exported("read twice")
    assert torch_shortcuts.folded(program) == {}
    assert torch.equal(program.module()(x), right)


def test_an_artifact_keeps_telling_what_its_model_was_rewritten_by(tmp_path: Path) -> None:
    def artifact(name: str, kind: str, **facts: object) -> Artifact:
        (tmp_path / name).mkdir()
        return Artifact(tmp_path / name, kind, facts=facts).write()

    program = artifact("a", "program", **{REWRITES: {torch_shortcuts.SAYS: ["block"]}})
    for name, kind, own in (("b", "onnx", {"no Reshape": ["fc"]}), ("c", "tflite", {})):
        worker._keep_facts(artifact(name, kind, **({REWRITES: own} if own else {})), program)
        assert Artifact.read(tmp_path / name).facts[REWRITES] == {torch_shortcuts.SAYS: ["block"], **own}
    worker._keep_facts(artifact("d", "golden"), program)
    assert REWRITES not in Artifact.read(tmp_path / "d").facts
