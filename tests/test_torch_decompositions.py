"""Operators that an engine lacks, or computes otherwise, are spelled out before it converts a net."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgecompress.core import config, registry
from edgecompress.core.model import REWRITES, Artifact, Context, Request, TensorSpec
from edgecompress.formats import torch_decompositions, torch_program

torch = pytest.importorskip("torch")
F = torch.nn.functional

pytestmark = pytest.mark.slow


class Net(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.call = call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(x)


def exported(call: Callable[..., torch.Tensor], x: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(Net(call), (x,))


def written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 0] = 1
    return y.mul_(2)


def grid(places: torch.Tensor, padding: str, mode: str, corners: bool) -> Callable[..., torch.Tensor]:
    return lambda x: F.grid_sample(x, places, mode=mode, padding_mode=padding, align_corners=corners)


SMALL, PLANE = (3, 5), (1, 3, 5, 7)
CALLS: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "asinh": (torch.asinh, SMALL),
    "acosh": (lambda x: torch.acosh(x.abs() + 1.5), SMALL),
    "atanh": (lambda x: torch.atanh(x.clamp(-0.9, 0.9)), SMALL),
    "fmax": (lambda x: torch.fmax(x, x.flip(0)), SMALL),
    "softplus": (lambda x: F.softplus(x, beta=3, threshold=0.2), SMALL),
    "round": (lambda x: torch.round(x, decimals=1), SMALL),
    "a number over": (lambda x: 2 / x, SMALL),
    "whole numbers": (lambda x: torch.where(x.clamp_min(0) > 0, x, 0) ** 2, SMALL),
    "divide": (lambda x: torch.divide(x, torch.tensor([[1], [2], [3]])), SMALL),
    "prod": (lambda x: torch.fmod(x, 2).prod(1), SMALL),
    "addbmm": (lambda x: torch.addbmm(x, x.expand(2, 3, 5), torch.ones(2, 5, 5), beta=2), SMALL),
    "bilinear": (lambda x: F.bilinear(x, x, torch.arange(50.0).reshape(2, 5, 5)), SMALL),
    "cdist": (lambda x: torch.cdist(x, x.flip(1)), SMALL),
    "median": (lambda x: x.median(1)[0], SMALL),
    "kthvalue": (lambda x: x.kthvalue(2, 0)[0], SMALL),
    "sort": (lambda x: x.sort(0, descending=True)[0], SMALL),
    "argsort": (lambda x: x.argsort(1), SMALL),
    "adaptive max pool": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), PLANE),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2)), SMALL),
    "take": (lambda x: torch.take(x, torch.tensor([0, 7, 5])), SMALL),
    "std of all": (torch.std, SMALL),
    "clamp by tensors": (lambda x: torch.clamp(x, x.flip(0), x.flip(1)), SMALL),
    "weighted loss": (lambda x: F.nll_loss(x, torch.tensor([1, 0, 2]), torch.arange(5.0)), SMALL),
    "written in place": (written, SMALL),
    "nearest by no whole factor": (lambda x: F.interpolate(x, size=(7, 9)), PLANE),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("runtime", ["coreml", "executorch", "litert", "onnx"])
def test_each_engine_computes_what_it_has_no_operator_for(runtime: str, name: str, tmp_path: Path) -> None:
    engine = registry.load("runtimes", runtime)
    for package in registry.runtime(runtime).requires:
        pytest.importorskip(package.partition(">")[0].replace("-", "_"))
    call, shape = CALLS[name]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    expected, program = call(x), exported(call, x)
    for folder in ("program", "file"):
        (tmp_path / folder).mkdir()
    torch.export.save(program, tmp_path / "program" / "program.pt2")
    ends = (TensorSpec("x", shape, "float32"),), (TensorSpec("y", tuple(expected.shape), str(expected.dtype)[6:]),)
    model = Artifact(tmp_path / "program", "program", *ends).write()
    options = config.build(engine.Options, {}, runtime) if hasattr(engine, "Options") else {}
    made = engine.export(Request({"model": model}, tmp_path / "file", options, Context(batch=shape[0])))
    (answer,) = engine.open(made, 1).run({"x": x.numpy()}).values()
    np.testing.assert_allclose(np.reshape(answer, expected.shape), expected.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_grid_of_voxels_is_sampled_as_torch_does(padding: str, mode: str, corners: bool) -> None:
    drawn = torch.Generator().manual_seed(1)
    x, places = torch.randn(2, 3, 4, 5, 6, generator=drawn), torch.rand(2, 3, 3, 2, 3, generator=drawn) * 3 - 1.5
    call = grid(places, padding, mode, corners)
    program, facts = torch_decompositions.simpler(exported(call, x), lambda node: "grid" not in str(node.target))
    torch.testing.assert_close(program.module()(x), call(x), rtol=1e-4, atol=1e-5)
    assert "grid_sampler_3d" in str(facts[REWRITES])


def test_a_program_of_operators_that_are_known_stays_as_it_is() -> None:
    program = exported(lambda x: F.relu_(x + 1), torch.zeros(SMALL))
    made, facts = torch_decompositions.simpler(program, lambda node: True)
    assert made is program and facts == {}


def test_a_converter_that_breaks_gets_the_simpler_program_and_its_own_error_where_that_helps_nothing() -> None:
    def convert(program: torch.export.ExportedProgram) -> str:
        text = str(program.graph)
        if "asinh" in text or "digamma" in text:
            raise ValueError("asinh" if "asinh" in text else "digamma")
        return "made"

    def knows(node: torch.fx.Node) -> bool:
        return node.target._opname not in ("asinh", "digamma")

    x = torch.ones(SMALL)
    made, facts = torch_decompositions.retried(convert, exported(torch.asinh, x), knows)
    assert made == "made" and "asinh" in str(facts)
    with pytest.raises(ValueError, match="digamma"):
        torch_decompositions.retried(convert, exported(torch.digamma, x), knows)


def test_a_cast_that_changes_nothing_goes_when_a_program_is_loaded(tmp_path: Path) -> None:
    torch.export.save(exported(lambda x: F.relu(x.float()).double().float() + 1, torch.ones(SMALL)), tmp_path / "p.pt2")
    program = torch_program.load(tmp_path / "p.pt2")
    casts = [n.args[1] for n in program.graph.nodes if str(n.target) == "aten.to.dtype"]
    assert casts == [torch.float64, torch.float32]
    assert program.module()(torch.ones(SMALL)).tolist() == [[2.0] * 5] * 3
