"""Low rank: what replaces a layer computes what it did, costs what is told, and is found again in a fresh process."""

from __future__ import annotations

import dataclasses
import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Dim, Goal, Request, TensorSpec
from edgecompress.core.settings import SPLITS
from edgecompress.data import tensors
from edgecompress.demo import net as demo
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.techniques import low_rank
from edgecompress.techniques._low_rank import factors, layers
from edgecompress.techniques._low_rank import rank as _rank
from edgecompress.techniques._low_rank.layers import Dense, FactorizableLayer
from edgecompress.techniques._low_rank.rank import Ranks, Shape
from edgecompress.testing import zoo

pytestmark = pytest.mark.slow
CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_size": 3},
    "strided": {"kernel_size": 3, "stride": 2, "padding": 1},
    "oblong": {"kernel_size": (5, 3), "stride": (1, 2), "padding": (2, 0), "dilation": (1, 2), "bias": False},
    "even, same": {"kernel_size": (4, 3), "padding": "same", "dilation": 2},
    "valid": {"kernel_size": 2, "padding": "valid"},
    "reflected": {"kernel_size": 3, "padding": (2, 1), "padding_mode": "reflect", "stride": 2},
    "circular": {"kernel_size": (1, 5), "padding": (0, 2), "padding_mode": "circular"},
}


def convolution(options: Mapping[str, Any], weight: Any = None) -> nn.Conv2d:
    torch.manual_seed(0)
    layer = nn.Conv2d(6, 10, **options)
    if weight is not None:
        layer.weight.data.copy_(weight)
    return layer


def layer_of(module: nn.Module, method: _rank.Method) -> FactorizableLayer:
    outputs, inputs, *kernel = module.weight.shape
    height, width = kernel or (1, 1)
    return FactorizableLayer(
        "0", module, Shape(inputs, outputs, (height, width), (((9, 9), (9, 9), 1),), module.bias is not None), method
    )


def replaced(module: nn.Module, method: _rank.Method, ranks: Ranks) -> nn.Sequential:
    net = nn.Sequential(module)
    low_rank._replaced(net, layer_of(module, method), ranks, seed=0)
    return net


def planted(options: Mapping[str, Any], rank: int) -> torch.Tensor:
    """A kernel of `rank` random components."""
    seeded = np.random.default_rng(1)
    height, width = nn.modules.utils._pair(options["kernel_size"])
    parts = [seeded.normal(size=(n, rank)) for n in (10, 6, height, width)]
    return torch.from_numpy(np.einsum("or,ir,hr,wr->oihw", *parts))


# --------------------------------------------------------------------------- what replaces a layer


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
@pytest.mark.parametrize("method", ["svd", "tucker", "tt"])
def test_full_ranks_compute_the_same(method: _rank.Method, options: Mapping[str, Any]) -> None:
    module = convolution(options)
    net = replaced(module, method, _rank.full(layer_of(module, method).shape, method))
    x = torch.randn(2, 6, 13, 11)
    torch.testing.assert_close(net(x), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("options", CONVOLUTIONS.values(), ids=CONVOLUTIONS)
def test_components_that_are_there_are_found_by_cp(options: Mapping[str, Any]) -> None:
    module = convolution(options, planted(options, 3))
    x = torch.randn(2, 6, 13, 11)
    expected = module(x).detach()
    found = replaced(module, "cp", (3,))(x).detach()
    assert float((found - expected).norm() / expected.norm()) < 0.05  # of a least-squares fit that is held back


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_of_full_rank_computes_the_same_on_rows_of_any_number(bias: bool) -> None:
    module = nn.Linear(12, 7, bias=bias)
    net = replaced(module, "svd", (7,))
    for x in (torch.randn(12), torch.randn(3, 12), torch.randn(2, 5, 12)):
        torch.testing.assert_close(net(x), module(x), rtol=1e-4, atol=1e-5)
    assert [type(each) for each in net[0]] == [nn.Linear, nn.Linear]


@pytest.mark.parametrize("bias", [True, False])
def test_a_linear_is_a_tensor_train_on_rows_of_any_number(bias: bool) -> None:
    module = nn.Linear(12, 15, bias=bias)  # 3 x 4, 3 x 5
    layer = layer_of(module, "ttm")
    full = _rank.full(layer.shape, "ttm")
    assert full == (9,)
    net = replaced(module, "ttm", full)
    for x in (torch.randn(12), torch.randn(3, 12), torch.randn(2, 5, 12)):
        torch.testing.assert_close(net(x), module(x), rtol=1e-4, atol=1e-5)
    part = replaced(module, "ttm", (2,))[0]
    chain = _rank.chain(layer.shape, "ttm", (2,))
    assert _rank.parameters(layer.shape, chain) == sum(p.numel() for p in part.parameters()) == 2 * (9 + 20) + 15 * bias
    with FlopCounterMode(display=False) as counter:
        part(torch.randn(1, 12))
    alone = dataclasses.replace(layer.shape, calls=(((1, 1), (1, 1), 1),))
    assert _rank.macs(alone, chain) == counter.get_total_flops() // 2
    weights = factors.factorized(factors.kernel(module), "ttm", (2,))
    dense = torch.from_numpy(factors.composed(weights)[:, :, 0, 0]).float()
    x = torch.randn(4, 12)
    torch.testing.assert_close(part(x), nn.functional.linear(x, dense, module.bias), rtol=1e-4, atol=1e-5)


def test_a_linear_is_a_train_where_its_sizes_have_factors(tmp_path: Path) -> None:
    inputs = source(f"{__name__}:mixed", tmp_path)
    made = called(low_rank.apply, inputs, tmp_path / "made", ratio=0.6, linear="tt", layers=("head",))
    assert [layer["method"] for layer in made.facts["layers"]] == ["ttm"]
    torch.testing.assert_close(
        answers(made, inputs["samples"]), answers(Artifact.read(made.path), inputs["samples"]), rtol=0, atol=0
    )
    assert _rank.halves(7) == (1, 7) and _rank.halves(1024) == (32, 32)


@pytest.mark.parametrize("method", ["svd", "tucker", "tt", "cp"])
def test_the_error_falls_as_the_rank_grows_and_is_what_is_computed(method: _rank.Method) -> None:
    layer = layer_of(convolution(CONVOLUTIONS["strided"]), method)
    weight, full = factors.kernel(layer.module), _rank.full(layer.shape, method)
    ranks = [tuple(max(1, r * part // 5) for r in full) for part in range(6)]
    errors = [factors.error(weight, factors.factorized(weight, method, each)) for each in ranks]
    assert all(b < a or a < 0.05 for a, b in itertools.pairwise(errors))
    assert errors[0] < 1
    assert errors[-1] < (0.05 if method == "cp" else 1e-9)


@given(st.sampled_from(["svd", "tucker", "tt"]), st.tuples(*[st.integers(1, 60)] * 3), st.sampled_from([1, 3, (3, 1)]))
@settings(max_examples=60, deadline=None)
def test_any_ranks_are_clipped_to_those_that_the_decomposition_has(
    method: _rank.Method, ranks: Ranks, kernel: Any
) -> None:
    layer = layer_of(nn.Conv2d(5, 12, kernel), method)
    full = _rank.full(layer.shape, method)
    wanted = tuple(min(r, limit) for r, limit in zip(ranks, full, strict=False))
    found = _rank.clipped(layer.shape, method, wanted)
    weights = factors.factorized(factors.kernel(layer.module), method, found)
    pieces = _rank.chain(layer.shape, method, found)
    assert [w.shape for w in weights] == [(p.outputs, p.inputs, *p.kernel(layer.shape)) for p in pieces]
    assert found == wanted or method != "svd"
    assert _rank.clipped(layer.shape, method, full) == full


@pytest.mark.parametrize("method", ["svd", "tucker", "tt"])
def test_the_error_stays_below_the_bound_by_which_ranks_are_weighed(method: _rank.Method) -> None:
    weight = factors.kernel(convolution(CONVOLUTIONS["plain"]))
    ranks = {"svd": (4,), "tucker": (4, 5), "tt": (4, 9, 5)}[method]
    left_out = sum(s * s for each, r in zip(factors.spectra(weight, method), ranks, strict=True) for s in each[r:])
    error = factors.error(weight, factors.factorized(weight, method, ranks)) ** 2 * float((weight**2).sum())
    assert left_out / len(ranks) * 0.999 <= error <= left_out * 1.001


@pytest.mark.parametrize("method", ["tucker", "tt"])
def test_planted_ranks_are_found_by_energy_and_by_evbmf(method: _rank.Method) -> None:
    seeded = np.random.default_rng(0)
    core = np.einsum(
        "oihw,po,qi->pqhw", seeded.normal(size=(4, 3, 3, 3)), *(seeded.normal(size=(48, n)) for n in (4, 3))
    )
    noisy = core / core.std() + 0.1 * seeded.normal(size=core.shape)
    module = nn.Conv2d(48, 48, 3)
    module.weight.data.copy_(torch.from_numpy(noisy))
    layer = layer_of(module, method)
    found = {layers.by_evbmf(layer, 1), layers.by_energy(layer, 0.98, 1, 0)}
    assert {(ranks[0], ranks[-1]) for ranks in found} == {(3, 4)}
    assert layers.by_evbmf(layer, 8)[0] == 8


def test_a_layer_of_noise_stays_and_so_does_one_that_would_cost_more() -> None:
    noise = layer_of(nn.Conv2d(32, 32, 3), "tucker")
    with pytest.raises(Dense, match="noise"):
        layers.by_evbmf(noise, 1)
    with pytest.raises(Dense, match="MACs instead of"):
        layers.by_energy(noise, 0.999, 1, 0)
    with pytest.raises(Dense, match="no rank that is a multiple of 16"):
        layers.by_ratio(noise, 0.05, 16)


def test_cp_keeps_the_energy_asked_for_with_the_least_rank_that_does() -> None:
    options = {"kernel_size": 3}
    layer = layer_of(convolution(options, planted(options, 4)), "cp")
    (rank,) = layers.by_energy(layer, 0.97, 1, 0)
    weight = factors.kernel(layer.module)
    kept = [1 - factors.error(weight, factors.factorized(weight, "cp", (r,))) ** 2 for r in (rank - 1, rank)]
    assert kept[0] < 0.97 <= kept[1]


def test_cp_that_diverges_leaves_the_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    import tensorly.decomposition

    def singular(*args: Any, **options: Any) -> Any:
        raise np.linalg.LinAlgError("Singular matrix")

    monkeypatch.setattr(tensorly.decomposition, "parafac", singular)
    with pytest.raises(Dense, match="diverges: Singular matrix"):
        low_rank._replaced(nn.Sequential(), layer_of(nn.Conv2d(4, 4, 3), "cp"), (2,), 0)


# --------------------------------------------------------------------------- whole nets


class Mixed(nn.Module):  # type: ignore[misc]
    """A layer of each sort: what can be factorized, and what cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.Conv2d(3, 16, 3, padding=1)
        self.often = nn.Conv2d(16, 16, 3, padding=1)
        self.grouped = nn.Conv2d(16, 16, 3, padding=1, groups=4)
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.tied, self.twin = nn.Linear(16, 16), nn.Linear(16, 16)
        self.twin.weight = self.tied.weight
        self.unused, self.head = nn.Linear(16, 16), nn.Linear(16, 10)

    def forward(self, image: Any) -> Any:
        x = self.often(self.often(self.plain(image))[:, :, ::2])
        x = self.up(self.grouped(x)).mean(dim=(2, 3))
        return self.head(torch.relu(self.twin(self.tied(x))) @ self.unused.weight)


class Reads(nn.Module):  # type: ignore[misc]
    """It calls its layer, and reads its weight besides."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(192, 40)

    def forward(self, image: Any) -> Any:
        return self.layer(image.flatten(1)) + self.layer.bias


def mixed() -> nn.Module:
    torch.manual_seed(0)
    return Mixed().eval()


def reads() -> nn.Module:
    return Reads().eval()


def source(factory: str, folder: Path, arrays: Mapping[str, Any] | None = None) -> dict[str, Artifact]:
    """The net of a factory as a "module", and items to try it with."""
    arrays = arrays or {"image": np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)}
    items = len(next(iter(arrays.values())))
    for split in SPLITS:
        tensors.write_split(folder / "samples" / split, arrays)
    specs = tuple(TensorSpec(n, (Dim("batch", 1, items), *a.shape[1:]), str(a.dtype)) for n, a in arrays.items())
    facts = {"splits": dict.fromkeys(SPLITS, items)}
    samples = Artifact(folder / "samples", "samples", specs, facts=facts).write()
    (folder / "source").mkdir()
    return {
        "model": trace.load(Request({"samples": samples}, folder / "source", {"source": {"model": factory}})),
        "samples": samples,
    }


def called(stage: Callable[[Request], Artifact], inputs: Mapping[str, Artifact], out: Path, **options: Any) -> Artifact:
    out.mkdir()
    return stage(Request(inputs, out, low_rank.Options(**options)))


def answers(artifact: Artifact, samples: Artifact) -> dict[str, torch.Tensor]:
    items = torch_module.example(artifact, samples, 1)
    return torch_module.outputs(torch_module.rebuild(artifact), artifact, items)


def digits() -> dict[str, Any]:
    images = [image for image, _ in demo.data("calibrate") or ()]
    return {"image": ((np.stack(images)[:, None] / 16 - 0.3) / 0.37).astype(np.float32)}


@pytest.fixture(scope="module")
def demo_net(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return source("edgecompress.demo.net:build", tmp_path_factory.mktemp("demo"), digits())


@pytest.mark.parametrize(
    "options",
    [
        {"ratio": 0.4},
        {"ratio": 0.4, "linear": "tt"},
        {"method": "cp", "ratio": 0.3, "layers": ("blocks.0.*",)},
        {"method": "tt", "energy": 0.8},
    ],
)
@pytest.mark.prove
def test_the_demo_net_costs_what_is_told_and_exports(
    demo_net: Mapping[str, Artifact], tmp_path: Path, options: Mapping[str, Any]
) -> None:
    made = called(low_rank.apply, demo_net, tmp_path / "made", **options)
    net, facts = torch_module.rebuild(made), made.facts
    assert facts["parameters"]["after"] == sum(p.numel() for p in net.parameters()) < facts["parameters"]["before"]
    with FlopCounterMode(display=False) as counter:
        torch_module.outputs(net, made, torch_module.example(made, demo_net["samples"], 1))
    assert facts["macs"]["after"] == counter.get_total_flops() // 2 < facts["macs"]["before"]
    for layer in facts["layers"]:
        assert layer["macs"][1] <= options.get("ratio", 1) * layer["macs"][0]
        assert layer["parameters"][1] == sum(p.numel() for p in net.get_submodule(layer["name"]).parameters())
    assert "blocks.0.conv1" in {layer["name"] for layer in facts["layers"]}
    (tmp_path / "program").mkdir()
    program = trace.run(Request({**demo_net, "model": made}, tmp_path / "program", {}))
    for name, expected in answers(made, demo_net["samples"]).items():
        torch.testing.assert_close(answers(program, demo_net["samples"])[name], expected, rtol=1e-4, atol=1e-4)


def test_a_digit_is_told_as_before_when_most_of_the_energy_stays(
    demo_net: Mapping[str, Artifact], tmp_path: Path
) -> None:
    made = called(low_rank.apply, demo_net, tmp_path / "made", energy=0.95)
    before, after = (answers_of(each, demo_net) for each in (demo_net["model"], made))
    assert int((before == after).sum()) >= 147


def test_saved_and_rebuilt_in_a_fresh_process_it_computes_the_same(
    demo_net: Mapping[str, Artifact], tmp_path: Path
) -> None:
    made = called(low_rank.apply, demo_net, tmp_path / "made", evbmf=True)
    expected = answers(made, demo_net["samples"])["output"]
    code = (
        "import sys, json, pathlib\nfrom edgecompress.formats import torch_module\n"
        "from edgecompress.core.model import Artifact\n"
        "made, samples = (Artifact.read(pathlib.Path(p)) for p in sys.argv[1:])\n"
        "net = torch_module.rebuild(made)\n"
        "print(json.dumps(torch_module.outputs(net, made, torch_module.example(made, samples, 1))['output'].tolist()))"
    )
    argv = [sys.executable, "-c", code, str(made.path), str(demo_net["samples"].path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), expected, rtol=1e-6, atol=1e-6)
    again = called(low_rank.apply, {**demo_net, "model": made}, tmp_path / "again", ratio=0.5)  # on what it made itself
    assert torch_module.edits(again)[: len(torch_module.edits(made))] == torch_module.edits(made)


def test_what_cannot_be_factorized_is_left_alone_and_told(tmp_path: Path) -> None:
    inputs = source(f"{__name__}:mixed", tmp_path)
    made = called(low_rank.apply, inputs, tmp_path / "made", ratio=0.5)
    assert {layer["name"] for layer in made.facts["layers"]} == {"plain", "often", "head"}
    says = {name: why.split(":")[0] for name, why in made.facts["kept"].items()}
    assert says == {
        "grouped": "a convolution in 4 groups",
        "up": "a ConvTranspose2d",
        "tied": "its weight is shared with twin.weight",
        "twin": "its weight is shared with tied.weight",
        "unused": "the net does not call it",
    }
    often = next(layer for layer in made.facts["layers"] if layer["name"] == "often")
    assert often["macs"][0] == 16 * 16 * 9 * (8 * 8 + 4 * 8)  # called at two sizes
    total = 64 * 27 * 16 + often["macs"][0] + 32 * 16 * 4 * 9 + 32 * 16 * 16 * 4 + 2 * 256 + 160
    assert made.facts["macs"]["before"] == total


def test_only_the_layers_named_are_factorized(tmp_path: Path) -> None:
    inputs = source(f"{__name__}:mixed", tmp_path)
    made = called(low_rank.apply, inputs, tmp_path / "made", layers=("pl*", "head"))
    assert [layer["name"] for layer in made.facts["layers"]] == ["plain", "head"]
    with pytest.raises(InputError, match="'hed', did you mean 'head'"):
        called(low_rank.apply, inputs, tmp_path / "other", layers=("hed",))


def test_code_that_reads_a_layer_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"has no attribute 'bias'.*its code reads a layer.*option layers"):
        called(low_rank.apply, source(f"{__name__}:reads", tmp_path), tmp_path / "made")


def test_a_net_with_nothing_to_factorize_is_lost(tmp_path: Path) -> None:
    inputs = source(f"{__name__}:mixed", tmp_path)
    made = called(low_rank.apply, inputs, tmp_path / "made", energy=1.0)
    assert made.facts["lost"].startswith("nothing to factorize: grouped: a convolution in 4 groups")
    assert torch_module.edits(made) == []
    assert called(low_rank.cells, inputs, tmp_path / "cells", layers=("grouped",), speedup=2.0).facts["lost"]


@pytest.mark.parametrize("name", [*zoo.NETS])
def test_every_net_of_the_zoo_is_factorized_or_says_why_not(name: str, tmp_path: Path) -> None:
    inputs = source(f"edgecompress.testing.zoo:{name}", tmp_path, zoo.draw(zoo.NETS[name], 4, 0))
    made = called(low_rank.apply, inputs, tmp_path / "made", ratio=0.7)
    assert made.facts["layers"]
    (tmp_path / "program").mkdir()
    trace.run(Request({**inputs, "model": made}, tmp_path / "program", {"dynamic": zoo.NETS[name].dynamic}))


# --------------------------------------------------------------------------- by what is measured


def test_cells_are_classes_of_equal_layers_at_a_few_shares(demo_net: Mapping[str, Artifact], tmp_path: Path) -> None:
    cells = called(low_rank.cells, demo_net, tmp_path / "cells", latency_ratio=0.6, align=16).facts["cells"]
    assert {label.split("@")[0] for label in cells} == {"blocks.0.conv1 +5"}  # stem and head have no rank of 16
    assert cells["blocks.0.conv1 +5@25%"]["ratio"] == 0.25
    assert len(cells["blocks.0.conv1 +5@25%"]["layers"]) == 6
    for cell in cells.values():
        low_rank.Options(align=16, **cell)


def test_by_what_was_measured_the_layers_that_gain_most_for_their_harm_go_first(tmp_path: Path) -> None:
    inputs = source(f"{__name__}:mixed", tmp_path)
    labels = [*called(low_rank.cells, inputs, tmp_path / "cells", speedup=1.5).facts["cells"]]
    assert {label.split("@")[0] for label in labels} == {"plain", "often", "head"}
    saved = {label: {"p": -0.1, "o": 0.3, "h": 0.001}[label[0]] * (2 - 0.02 * int(label[-3:-1])) for label in labels}
    for keep, factorized in ((0.9, {"often"}), (0.5, {"often"}), (0.471, {"often", "head"})):
        made = called(low_rank.apply, inputs, tmp_path / str(keep), saved=saved, keep=keep)
        assert {layer["name"] for layer in made.facts["layers"]} == factorized
        assert (
            made.facts["kept"]["plain"] == "factorizing it saves no measured time, or is not needed to reach the goal"
        )
        kept = {group["name"]: group["kept"] for group in made.facts["groups"]}
        assert 1 - sum(saved[f"{n}@{k}%"] for n, k in kept.items() if k < 100) <= keep
    lost = called(low_rank.apply, inputs, tmp_path / "lost", saved=saved, keep=0.1).facts["lost"]
    assert lost == "low rank leaves at least 0.471 of the latency, 0.100 may stay"


@pytest.mark.prove
def test_of_equal_layers_those_go_that_move_the_outputs_least(demo_net: Mapping[str, Artifact], tmp_path: Path) -> None:
    labels = called(low_rank.cells, demo_net, tmp_path / "cells", layers=("blocks.*",), speedup=1.5).facts["cells"]
    saved = {label: 0.6 * (1 - cell["ratio"]) for label, cell in labels.items()}  # 0.1 each if they went whole
    chosen = []
    for keep in (0.95, 0.8, 0.6):
        made = called(low_rank.apply, demo_net, tmp_path / str(keep), layers=("blocks.*",), saved=saved, keep=keep)
        chosen.append([layer["name"] for layer in made.facts["layers"]])
        kept = sum(group["kept"] / 100 for group in made.facts["groups"])
        assert keep - 0.05 < 1 - 0.1 * (6 - kept) <= keep + 1e-9
    assert len(chosen[0]) == 1 < len(chosen[1]) < len(chosen[2])
    items = torch_module.example(demo_net["model"], demo_net["samples"], 150)
    moved = {}
    for name in chosen[2]:
        alone = called(low_rank.apply, demo_net, tmp_path / name, layers=(name,), ratio=0.5)
        nets = (torch_module.outputs(torch_module.rebuild(a), a, items) for a in (demo_net["model"], alone))
        moved[name] = low_rank._distance(*([each] for each in nets))
    assert min(moved, key=lambda name: moved[name]) == chosen[0][0]


def answers_of(artifact: Artifact, inputs: Mapping[str, Artifact]) -> torch.Tensor:
    """The digits told of 150 images."""
    items = torch_module.example(artifact, inputs["samples"], 150)
    return torch_module.outputs(torch_module.rebuild(artifact), artifact, items)["output"].argmax(1)


def test_trying_out_leaves_the_weights_as_they_were(demo_net: Mapping[str, Artifact], tmp_path: Path) -> None:
    net = torch_module.rebuild(demo_net["model"])
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    request = Request(demo_net, tmp_path, low_rank.Options())
    first, *_ = layers.scan(net, request, ("blocks.*",), "tucker").layers
    with low_rank._approximated(first, (8, 8), 0):
        assert not torch.equal(net.blocks[0].conv1.weight, before["blocks.0.conv1.weight"])
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


def test_a_goal_is_told_to_the_search_and_never_guessed(demo_net: Mapping[str, Artifact], tmp_path: Path) -> None:
    goals = {"latency_ratio": Goal("ratio", 0.5), "speedup": Goal("ratio", 0.5), "latency_ms": Goal("latency_ms", 2.0)}
    for (name, expected), value in zip(goals.items(), (0.5, 2.0, 2.0), strict=True):
        assert low_rank.goal(low_rank.Options(**{name: value})) == expected  # type: ignore[arg-type]
    assert low_rank.goal(low_rank.Options(ratio=0.5)) is None
    with pytest.raises(InputError, match="speedup needs the search"):
        called(low_rank.apply, demo_net, tmp_path / "made", speedup=2.0)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"energy": 0.0}, "energy must be above 0, at most 1"),
        ({"ratio": 1.5}, "ratio must be above 0, at most 1"),
        ({"latency_ms": -1.0}, "latency_ms must be above 0"),
        ({"speedup": 0.5}, "speedup must be at least 1"),
        ({"align": 0}, "align must be at least 1"),
        ({"keep": 0.5}, "saved and keep must be given together"),
        ({"energy": 0.9, "evbmf": True}, "give one rule for the ranks, not energy and evbmf"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        low_rank.Options(**options)
