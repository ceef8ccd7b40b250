"""Paddings that not every engine has: the same numbers as slices and a concatenation, in each engine's file."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edgecompress.core import config, registry
from edgecompress.core.model import Artifact, Context, Request, TensorSpec
from edgecompress.formats import torch_paddings, torch_program

pytestmark = pytest.mark.slow
WIDTHS = {1: [(1, 2), (0, 3), (-1, 2)], 2: [(1, 2, 2, 0), (-1, 3, 1, -2)], 3: [(1, 2, 0, 1, 1, 0), (2, -1, 1, 1, 0, 0)]}


class Padded(nn.Module):
    """Paddings of 1 to 3 axes, of convolutions and by themselves."""

    def __init__(self, *modes: str) -> None:
        super().__init__()
        self.modes = modes
        self.convs = nn.ModuleList(
            getattr(nn, f"Conv{axes}d")(2, 2, 3, padding=1, padding_mode=mode) for axes in (1, 2) for mode in modes
        )

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """[n, 2, 5, 6, 7]"""
        by_axes = {1: x[:, :, 0, 0], 2: x[:, :, 0], 3: x}
        found = [conv(by_axes[int(type(conv).__name__[4])]) for conv in self.convs]
        for axes, mode in itertools.product(WIDTHS, self.modes):
            given = [w for w in WIDTHS[axes] if mode == "circular" or min(w) >= 0]
            found += [nn.functional.pad(by_axes[axes], widths, mode=mode) for widths in given]
        return tuple(found)


def saved(net: nn.Module, folder: Path) -> tuple[Artifact, torch.Tensor]:
    torch.manual_seed(0)
    x = torch.randn(1, 2, 5, 6, 7)
    folder.mkdir()
    torch.export.save(torch.export.export(net.eval(), (x,)), folder / "model.pt2")
    outputs = tuple(TensorSpec(f"y{i}", tuple(y.shape), "float32") for i, y in enumerate(net(x)))
    return Artifact(folder, "program", (TensorSpec("x", tuple(x.shape), "float32"),), outputs).write(), x


def test_a_program_is_loaded_without_circular_paddings(tmp_path: Path) -> None:
    net = Padded("circular", "reflect", "replicate")
    program, x = saved(net, tmp_path / "program")
    loaded = torch_program.load(program.file(".pt2"))
    assert "circular" not in str(loaded.graph)
    torch_paddings.spelled_out(loaded, ("reflect", "replicate"), (1, 2, 3))
    assert "pad.default" not in str(loaded.graph)
    for got, want in zip(loaded.module()(x), net(x), strict=True):
        torch.testing.assert_close(got, want)
    torch.export.save(loaded.run_decompositions(), tmp_path / "again.pt2")


@pytest.mark.parametrize("runtime", ["coreml", "executorch", "litert", "onnx"])
def test_each_engine_wraps_around(runtime: str, tmp_path: Path) -> None:
    net = Padded("circular", "reflect", "replicate") if runtime == "coreml" else Padded("circular")
    program, x = saved(net, tmp_path / "program")
    module = registry.load("runtimes", runtime)
    options = config.build(module.Options, {}, "test") if hasattr(module, "Options") else None
    (tmp_path / "out").mkdir()
    made = module.export(Request({"model": program}, tmp_path / "out", options, Context()))
    answers = module.open(made, 1).run({"x": x.numpy()})
    for index, want in enumerate(net(x)):
        np.testing.assert_allclose(answers[f"y{index}"], want.detach().numpy(), atol=1e-5)
