"""Operators that an engine lacks, or computes otherwise, are spelled out before it converts a net."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from edgecompress.core import config, registry
from edgecompress.core.json import Json
from edgecompress.core.model import REWRITES, Artifact, Context, Dim, Request, TensorSpec
from edgecompress.core.operations import Foreseen
from edgecompress.formats import torch_decompositions, torch_faults, torch_foresight, torch_program

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


def by_mask(x: torch.Tensor) -> torch.Tensor:
    made = x.clone()
    made[x > 0] = 0
    made[x[:, 0] < 0] = 2
    return made


def into_slices(x: torch.Tensor) -> torch.Tensor:
    made = x.clone()
    made[..., ROWS] *= 2
    made[:, 1] = x[:, 0]
    made[..., ::2] += x[..., :4]
    return made


ROWS = torch.tensor([4, 0, 2])
SMALL, PLANE = (3, 5), (1, 3, 5, 7)
BAGS, VOXELS = torch.arange(12.0).reshape(4, 3).sin(), torch.arange(32.0).reshape(2, 2, 2, 2, 2).cos()
MASK, INDEX = torch.tensor([True, False, True, False, True]), torch.tensor([[0, 2, 1, 0, 2], [1, 1, 0, 2, 0]])
PLACES = torch.rand(1, 4, 4, 2, generator=torch.Generator().manual_seed(2)) * 3 - 1.5
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
    "a factor of a sum": (lambda x: torch.add(x, x.flip(0), alpha=3).sub(2, alpha=2), SMALL),
    "prod": (lambda x: torch.fmod(x, 2).prod(1), SMALL),
    "addbmm": (lambda x: torch.addbmm(x, x.expand(2, 3, 5), torch.ones(2, 5, 5), beta=2), SMALL),
    "bilinear": (lambda x: F.bilinear(x, x, torch.arange(50.0).reshape(2, 5, 5)), SMALL),
    "cdist": (lambda x: torch.cdist(x, x.flip(1)), SMALL),
    "median": (lambda x: x.median(1)[0], SMALL),
    "kthvalue": (lambda x: x.kthvalue(2, 0)[0], SMALL),
    "sort": (lambda x: x.sort(0, descending=True)[0], SMALL),
    "argsort": (lambda x: x.argsort(1), SMALL),
    "adaptive max pool": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), PLANE),
    "dilated max pool": (lambda x: F.max_pool2d(x, 2, 1, 1, 2, ceil_mode=True), PLANE),
    "a reflected grid": (grid(PLACES, "reflection", "bilinear", False), PLANE),
    "attention in three axes": (lambda x: F.scaled_dot_product_attention(x, x, x), PLANE[1:]),
    "as_strided": (lambda x: x.as_strided((2, 2), (1, 2)), SMALL),
    "take": (lambda x: torch.take(x, torch.tensor([0, 7, 5])), SMALL),
    "std of all": (torch.std, SMALL),
    "clamp by tensors": (lambda x: torch.clamp(x, x.flip(0), x.flip(1)), SMALL),
    "weighted loss": (lambda x: F.nll_loss(x, torch.tensor([1, 0, 2]), torch.arange(5.0)), SMALL),
    "written in place": (written, SMALL),
    "pool with places": (lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), (1, 3, 4, 6)),
    "pool to the ceiling": (lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True), (1, 2, 3, 6)),
    "bags": (lambda x: F.embedding_bag(BAGS, (x > 0).long() + 1, mode="mean", padding_idx=2), SMALL),
    "volumes": (lambda x: F.conv_transpose3d(F.conv3d(x, VOXELS), VOXELS, stride=2, output_padding=1), (1, 2, 4, 5, 5)),
    "a volume of one channel, padded": (lambda x: F.conv3d(x, VOXELS[:, :1], padding=1), (1, 1, 4, 5, 5)),
    "nearest by no whole factor": (lambda x: F.interpolate(x, size=(7, 9)), PLANE),
    "mean of all": (lambda x: x.permute(0, 3, 1, 2) + x.mean(), PLANE),
    "padded in a circle": (lambda x: F.pad(x, (1, 2, 0, 1), mode="circular"), PLANE),
    "padded in a mirror": (lambda x: F.pad(x[None], (1, 2, 0, 1, 2, 0), mode="reflect"), PLANE),
    "transposed, more at its end": (
        lambda x: F.conv_transpose2d(x, torch.arange(24.0).reshape(3, 2, 2, 2), stride=3, output_padding=(2, 1)),
        PLANE,
    ),
    "a constant without what was turned": (lambda x: 3 - (x.mT + 1) + 2 / x.mT.exp().add(1), PLANE),
    "one without a convolution": (
        lambda x: BAGS[0, :2, None, None] - F.conv2d(x, BAGS.reshape(2, 3, 1, 2)).relu(),
        PLANE,
    ),
    "windows of a picture": (
        lambda x: x.view(1, 2, 2, 3, 2, 3).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 2, 2, 3),
        (1, 4, 6, 3),
    ),
    "put": (lambda x: x.put(INDEX, x[:2], accumulate=True), SMALL),
    "rolled along two axes": (lambda x: x.roll((1, -2), (2, 3)), PLANE),
    "places in sorted rows": (lambda x: torch.searchsorted(x.sort(-1)[0], x, side="right"), SMALL),
    "one truth of two": (lambda x: ((x > 0).any(1) ^ (x > 0).all(1)) + 0.0, SMALL),
    "sizes of whole numbers": (lambda x: x.mul(4).long().abs() * x, SMALL),
    "one hot": (lambda x: F.one_hot(x.argmax(1), 6), SMALL),
    "sums at places": (lambda x: x.scatter_add(0, INDEX, x.flip(0)), (3, 5)),
    "rows added": (lambda x: x.index_add(0, torch.tensor([2, 0, 2]), x.flip(1)), SMALL),
    "folded": (lambda x: F.fold(x, (6, 5), (3, 2), dilation=(1, 2), padding=1, stride=2), (1, 12, 9)),
    "written by a mask": (by_mask, SMALL),
    "written into slices": (into_slices, PLANE),
    "squeezed where more than one is": (lambda x: x.squeeze((0, 1)) * 2, PLANE),
    "einsum of any axes": (lambda x: torch.einsum("i...,j...->ij...", x, x[:, :1]), PLANE),
    "transposed, more than its step": (
        lambda x: F.conv_transpose2d(x, torch.arange(24.0).reshape(3, 2, 2, 2), dilation=2, output_padding=1),
        PLANE,
    ),
    "power of five axes": (lambda x: (x[None].abs() + 1) ** 0.75, PLANE),
}


# A deviation by a detour over torch's primitives, in Core ML; writes, which any decomposition spells out
NOT_FORESEEN = ("std of all", "written in place", "written into slices")


def computed(
    runtime: str, call: Callable[..., torch.Tensor], shape: tuple[int, ...], tmp_path: Path
) -> tuple[Foreseen, dict[str, Json]]:
    """What was said of a net before its conversion, and what was rewritten in it; its numbers are compared."""
    engine = registry.load("runtimes", runtime)
    for package in registry.runtime(runtime).requires:
        pytest.importorskip(package.partition(">")[0].replace("-", "_"))
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
    return registry.runtime(runtime).foreseen(model), made.facts.get(REWRITES, {})


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("runtime", ["coreml", "executorch", "litert", "onnx"])
def test_each_engine_computes_what_it_has_no_operator_for(runtime: str, name: str, tmp_path: Path) -> None:
    told, rewrites = computed(runtime, *CALLS[name], tmp_path)
    assert not told.refused or name in NOT_FORESEEN
    assert told.rewritten or torch_decompositions.SAYS not in rewrites or name in NOT_FORESEEN


@pytest.mark.parametrize("how", ["amax", "amin", "prod", "mean"])
@pytest.mark.parametrize("runtime", ["coreml", "litert", "onnx"])
def test_numbers_for_one_place_are_reduced(runtime: str, how: str, tmp_path: Path) -> None:
    def call(x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.scatter_reduce(0, INDEX, x, how, include_self=own) for own in (True, False)])

    computed(runtime, call, SMALL, tmp_path)


@pytest.mark.parametrize("runtime", ["coreml", "executorch", "litert", "onnx"])
def test_a_program_of_any_batch_is_converted_for_one(runtime: str, tmp_path: Path) -> None:
    engine = registry.load("runtimes", runtime)
    for package in registry.runtime(runtime).requires:
        pytest.importorskip(package.partition(">")[0].replace("-", "_"))
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    net, batch = Net(lambda x: torch.asinh(x).view(-1, 5, 1) * 2), torch.export.Dim("batch", min=1, max=8)
    for folder in ("program", "file"):
        (tmp_path / folder).mkdir()
    torch.export.save(torch.export.export(net, (x,), dynamic_shapes=({0: batch},)), tmp_path / "program/program.pt2")
    first = Dim("batch", 1, 8)
    ends = (TensorSpec("x", (first, 5), "float32"),), (TensorSpec("y", (first, 5, 1), "float32"),)
    model = Artifact(tmp_path / "program", "program", *ends).write()
    options = config.build(engine.Options, {}, runtime) if hasattr(engine, "Options") else {}
    made = engine.export(Request({"model": model}, tmp_path / "file", options, Context(batch=3)))
    (answer,) = engine.open(made, 1).run({"x": x.numpy()}).values()
    np.testing.assert_allclose(np.reshape(answer, (3, 5, 1)), net(x).numpy(), rtol=1e-4, atol=1e-5)


def test_what_a_conversion_replaces_is_foreseen_with_its_layer() -> None:
    program = exported(lambda x: torch.asinh(x) + torch.cdist(x, x), torch.ones(3, 3))
    knows = lambda node: node.target._opname not in ("asinh", "_cdist_forward", "cdist")  # noqa: E731
    _, facts = torch_decompositions.simpler(program, knows)
    told = torch_foresight.foreseen(program, knows, {}, knows)
    assert not told.refused
    assert [*told.rewritten] == facts[REWRITES][torch_decompositions.SAYS][: len(told.rewritten)]  # type: ignore[index,call-overload]
    assert {each.partition(" of ")[0] for each in told.rewritten} == {"asinh", "cdist"}


def test_what_a_converter_decomposes_by_itself_is_no_rewrite() -> None:
    program = exported(lambda x: F.silu(x) + x, torch.ones(SMALL))
    own = torch.export.default_decompositions()
    told = torch_foresight.foreseen(program, lambda node: node.target._opname != "silu", own)
    assert (list(told.rewritten), told.refused) == ([], "")


def test_what_nothing_replaces_is_refused_by_its_name_and_by_what_it_is_made_of() -> None:
    lacks = lambda *names: lambda node: node.target._opname not in names  # noqa: E731
    alone = torch_foresight.foreseen(exported(torch.digamma, torch.ones(SMALL)), lacks("digamma"), {})
    assert alone.refused.startswith("it does not convert the operator aten.digamma: ")
    determinant = exported(torch.logdet, torch.eye(3))
    inside = torch_foresight.foreseen(determinant, lacks("logdet", "_linalg_slogdet"), {})
    assert "aten.logdet (of aten._linalg_slogdet)" in inside.refused


def test_an_operator_is_foreseen_by_its_arguments() -> None:
    small = lambda node: node.target._opname != "sum" or node.args[0].meta["val"].dim() < 3  # noqa: E731
    refused = [
        torch_foresight.foreseen(exported(lambda x: x.sum(), torch.ones(shape)), small, {}).refused
        for shape in (SMALL, PLANE)
    ]
    assert [bool(each) for each in refused] == [False, True]


REFUSED: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...], str]] = {
    "coreml": (torch.digamma, SMALL, "digamma"),
    "executorch": (lambda x: torch.fft.rfft(x).abs(), SMALL, "fft_rfft"),
    "litert": (torch.digamma, SMALL, "digamma"),
    "onnx": (torch.special.i0e, SMALL, "special_i0e"),
}


@pytest.mark.parametrize("runtime", REFUSED)
def test_each_engine_says_what_it_refuses(runtime: str, tmp_path: Path) -> None:
    call, shape, name = REFUSED[runtime]
    for package in registry.runtime(runtime).requires:
        pytest.importorskip(package.partition(">")[0].replace("-", "_"))
    torch.export.save(exported(call, torch.ones(shape)), tmp_path / "program.pt2")
    told = registry.runtime(runtime).foreseen(Artifact(tmp_path, "program", (), ()).write())
    assert f"the operator aten.{name}" in told.refused


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_grid_of_pixels_is_sampled_as_torch_does(padding: str, mode: str, corners: bool) -> None:
    x, call = torch.randn(1, 3, 5, 6, generator=torch.Generator().manual_seed(1)), grid(PLACES, padding, mode, corners)
    program, facts = torch_decompositions.simpler(exported(call, x), lambda node: "grid" not in str(node.target))
    torch.testing.assert_close(program.module()(x), call(x), rtol=1e-4, atol=1e-5)
    assert "grid_sampler" in str(facts[REWRITES])


REPLACED: dict[str, tuple[Callable[..., torch.Tensor], tuple[int, ...]]] = {
    "max_pool1d_with_indices": (lambda x: F.max_pool1d(x.round(), 3, 2, 1, return_indices=True)[1], PLANE[:3]),
    "max_pool2d_with_indices": (lambda x: F.max_pool2d(x.round(), 3, 1, 1, 2, True, return_indices=True)[1], PLANE),
    "max_pool3d_with_indices": (lambda x: F.max_pool3d(x.round(), 2, 1, return_indices=True)[1], (1, 2, 3, 4, 5)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), (2, 6, 8)),
    "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x.round(), (2, 3), return_indices=True)[1], PLANE),
    "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 1)), (1, 2, 3, 4, 5)),
    "conv3d": (lambda x: F.conv3d(x, VOXELS, BAGS[0, :2], 2, 1, 2), (1, 2, 5, 6, 7)),
    "conv3d of equal sizes": (lambda x: F.conv3d(x, VOXELS, padding="same", dilation=2), (2, 5, 6, 7)),
    "conv_transpose1d": (lambda x: F.conv_transpose1d(x, BAGS[:, None], None, 3, 1, 2, 2, 2), (1, 4, 5)),
    "conv_transpose3d": (lambda x: F.conv_transpose3d(x, VOXELS, None, 2, 1, 1, 1, 2), (2, 3, 4, 5)),
    "cummax": (lambda x: x.round().cummax(1)[1], SMALL),
    "cumprod": (lambda x: x.cumprod(0), SMALL),
    "logcumsumexp": (lambda x: x.logcumsumexp(1), SMALL),
    "diagonal": (lambda x: x.diagonal(-1, 3, 1), PLANE),
    "unfold": (lambda x: x.unfold(1, 3, 2), SMALL),
    "flip": (lambda x: x.flip([0, 2]), PLANE[1:]),
    "split": (lambda x: torch.stack([part.sum() for part in x.split(2, 1)]), SMALL),
    "bucketize": (lambda x: torch.bucketize(x, BAGS[0].sort()[0], right=True), SMALL),
    "masked_scatter": (lambda x: x.masked_scatter(MASK, x.flip(0)), SMALL),
    "scatter_add": (lambda x: x.scatter_add(0, INDEX, x.flip(0)), SMALL),
    "scatter_reduce": (lambda x: x.scatter_reduce(0, INDEX, x, "mean", include_self=False), SMALL),
    "index_put": (lambda x: into_slices(x[None])[0], (2, 3, 7)),
    "col2im": (lambda x: F.fold(x, 5, (2, 1), 2, 1, 2), (6, 12)),
    "squeeze": (lambda x: x.squeeze(1).squeeze((0, 2)), PLANE),
    "embedding_bag": (lambda x: F.embedding_bag(INDEX[0], x, torch.tensor([0, 2, 2]), mode="max"), (4, 3)),
    "var": (lambda x: x.var(), SMALL),
    "max": (lambda x: x.max(), SMALL),
    "floor_divide": (lambda x: x.floor_divide(0.3), SMALL),
    "div.Tensor_mode": (lambda x: torch.div(x, x.flip(0), rounding_mode="floor"), SMALL),
    "logical_xor": (lambda x: torch.logical_xor(x > 0, x.flip(0)), SMALL),
    "signbit": (lambda x: (x.round() * 0).signbit(), SMALL),
    "sum": (lambda x: x[0, 0].sum(0), SMALL),
}


@pytest.mark.parametrize("name", REPLACED)
def test_a_replacement_computes_what_torch_does(name: str) -> None:
    call, shape = REPLACED[name]
    x, word = torch.randn(shape, generator=torch.Generator().manual_seed(0)), name.partition(" ")[0]
    program, facts = torch_decompositions.simpler(
        exported(call, x), lambda node: word not in (node.target._opname.strip("_"), str(node.target)[5:])
    )
    torch.testing.assert_close(program.module()(x), call(x), rtol=1e-4, atol=1e-5)
    assert word.partition(".")[0] in str(facts[REWRITES])


def test_an_error_names_the_operator_in_front_of_a_reshape_that_broke() -> None:
    program = exported(
        lambda x: torch.linalg.cross(x.reshape(5, 3), x.reshape(5, 3).flip(0)).reshape(15), torch.ones(15)
    )

    def convert(node: torch.fx.Node) -> None:
        if node.name == "reshape_2":
            raise ValueError("shape")

    with pytest.raises(ValueError, match="shape") as raised:
        for node in program.graph.nodes:
            convert(node)
    broke = torch_faults.culprit(raised.value, program)
    assert broke is not None and broke.target._opname == "linalg_cross"
    assert "operator aten.linalg_cross" in torch_faults.told(raised.value, program)


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_a_grid_of_voxels_is_sampled_as_torch_does(padding: str, mode: str, corners: bool) -> None:
    drawn = torch.Generator().manual_seed(1)
    x, places = torch.randn(2, 3, 4, 5, 6, generator=drawn), torch.rand(2, 3, 3, 2, 3, generator=drawn) * 3 - 1.5
    call = grid(places, padding, mode, corners)
    program, facts = torch_decompositions.simpler(exported(call, x), lambda node: "grid" not in str(node.target))
    torch.testing.assert_close(program.module()(x), call(x), rtol=1e-4, atol=1e-5)
    assert "grid_sampler" in str(facts[REWRITES])


def test_a_program_of_operators_that_are_known_stays_as_it_is() -> None:
    program = exported(lambda x: F.relu_(x + 1), torch.zeros(SMALL))
    made, facts = torch_decompositions.simpler(program, lambda node: True)
    assert made is program and facts == {}


def test_a_converter_that_breaks_gets_the_simpler_program_and_its_last_error_where_that_helps_nothing() -> None:
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
    both = exported(lambda x: torch.digamma(torch.asinh(x)), x)
    with pytest.raises(torch_faults.Unconverted) as raised:
        torch_decompositions.retried(convert, both, knows)
    assert torch_faults.told(raised.value) == "ValueError: digamma"


def test_a_cast_that_changes_nothing_goes_when_a_program_is_loaded(tmp_path: Path) -> None:
    torch.export.save(exported(lambda x: F.relu(x.float()).double().float() + 1, torch.ones(SMALL)), tmp_path / "p.pt2")
    program = torch_program.load(tmp_path / "p.pt2")
    casts = [n.args[1] for n in program.graph.nodes if str(n.target) == "aten.to.dtype"]
    assert casts == [torch.float64, torch.float32]
    assert program.module()(torch.ones(SMALL)).tolist() == [[2.0] * 5] * 3
