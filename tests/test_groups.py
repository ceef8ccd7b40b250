"""Channels that go together: a narrow net computes what the dense one does when nothing reads what went."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from edgecompress.formats import torch_outputs
from edgecompress.techniques._pruning import dependency_groups
from edgecompress.techniques._pruning.channels import CoupledChannels, narrowed, without
from edgecompress.testing import zoo

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).resolve().parent.parent / "examples"

Run = Callable[[Any], list[torch.Tensor]]


def runner(*inputs: torch.Tensor) -> Run:
    return lambda net: list(torch_outputs.flatten(net(*inputs)).values())


def found(net: nn.Module, run: Run) -> tuple[dict[str, CoupledChannels], dict[str, str]]:
    torch.manual_seed(0)
    answer = dependency_groups.find(net.eval(), run)
    return {group.name: group for group in answer.groups}, dict(answer.refused)


def check_exact(net: nn.Module, run: Run, groups: dict[str, CoupledChannels]) -> None:
    """All groups narrowed at once, each to units of no pattern."""
    seeded = torch.Generator().manual_seed(1)
    order = {name: torch.randperm(group.units, generator=seeded).tolist() for name, group in groups.items()}
    kept = {name: sorted(units[: (len(units) + 1) // 2]) for name, units in order.items()}
    wanted = net
    for name, group in groups.items():
        wanted = without(wanted, group, sorted(set(order[name]) - set(kept[name])))
    with torch.no_grad():
        for a, b in zip(run(narrowed(net, groups.values(), kept)), run(wanted), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
            assert a.std() > 0


class Fn(nn.Module):
    """Layers by name, and a forward that is given them."""

    def __init__(self, forward: Callable[..., Any], **layers: Any) -> None:
        super().__init__()
        self.computes = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, *inputs: torch.Tensor) -> Any:
        return self.computes(self, *inputs)


# --------------------------------------------------------------------------- nets that can be narrowed

IMAGE = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
STEPS = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(0))


def grouped() -> nn.Module:
    first, second = nn.Conv2d(3, 12, 3, padding=1), nn.Conv2d(12, 24, 3, groups=4)
    return nn.Sequential(first, nn.BatchNorm2d(12), nn.ReLU(), second, nn.ReLU(), nn.Conv2d(24, 5, 1))


def parted(number: int, order: tuple[int, ...], twice: bool = False) -> nn.Module:
    """Channels in equal parts, each through a layer of its own, joined in another order."""

    def forward(net: Any, x: Any) -> Any:
        x = net.first(x).relu()
        parts = x.chunk(number, 1)
        x = torch.cat([getattr(net, f"part{i}")(parts[i]) for i in order], 1)
        return net.last(torch.cat([x, x], 1) if twice else x)

    layers = {f"part{i}": nn.Conv2d(24 // number, 4 + 2 * i, 3, padding=1) for i in range(number)}
    width = sum(4 + 2 * i for i in order) * (1 + twice)
    return Fn(forward, first=nn.Conv2d(3, 24, 3), last=nn.Conv2d(width, 2, 1), **layers)


def transposed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.PReLU(8), nn.ConvTranspose2d(8, 12, 2, 2, groups=2), nn.ReLU(), nn.Conv2d(12, 2, 1)
    )


def normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.Conv2d(8, 2, 1))


def joined() -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([net.a(x).relu(), net.b(x).relu()], 1)
        return net.head(torch.cat([y, net.c(y).relu()], 1).mean((2, 3)))

    a, b, c = nn.Conv2d(3, 6, 1), nn.Conv2d(3, 10, 1), nn.Conv2d(16, 4, 1)
    return Fn(forward, a=a, b=b, c=c, head=nn.Linear(20, 3))


def flattened() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 12), nn.ReLU(), nn.Linear(12, 3)
    )


def recurrent(kind: Any, **options: Any) -> nn.Module:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        return net.head(net.second(net.first(x)[0])[0][:, -1])

    both = 2 if options.get("bidirectional") else 1
    first = kind(6, 8, batch_first=True, **options)
    return Fn(forward, first=first, second=kind(8 * both, 6, batch_first=True), head=nn.Linear(6, 3))


def last_state() -> nn.Module:
    """Of the LSTM only its last state is used."""
    return Fn(lambda net, x: net.head(net.rnn(x)[1][0][-1]), rnn=nn.LSTM(6, 8, batch_first=True), head=nn.Linear(8, 3))


EXACT: dict[str, tuple[Callable[[], nn.Module], torch.Tensor, dict[str, int]]] = {
    "grouped": (grouped, IMAGE, {"0": 3, "3": 6}),
    "chunk of two, joined": (lambda: parted(2, (1, 0)), IMAGE, {"first": 12, "part0": 4, "part1": 6}),
    "chunk of three, joined twice": (
        lambda: parted(3, (2, 0, 1), twice=True),
        IMAGE,
        {"first": 8, "part0": 4, "part1": 6, "part2": 8},
    ),
    "chunk, one part read": (lambda: parted(2, (1,)), IMAGE, {"first": 12, "part1": 6}),
    "transposed": (transposed, IMAGE, {"0": 4, "2": 6}),
    "instance norm": (normed, IMAGE, {"0": 8}),
    "concat": (joined, IMAGE, {"a": 6, "b": 10, "c": 4}),
    "flatten": (flattened, IMAGE, {"0": 8, "3": 12}),
    "lstm": (lambda: recurrent(nn.LSTM), STEPS, {"first": 8, "second": 6}),
    "lstm of two layers": (lambda: recurrent(nn.LSTM, num_layers=2), STEPS, {"first": 8, "second": 6}),
    "lstm both ways": (lambda: recurrent(nn.LSTM, bidirectional=True), STEPS, {"first": 8, "second": 6}),
    "gru": (lambda: recurrent(nn.GRU), STEPS, {"first": 8, "second": 6}),
    "rnn": (lambda: recurrent(nn.RNN), STEPS, {"first": 8, "second": 6}),
    "last state": (last_state, STEPS, {"rnn": 8}),
}


@pytest.mark.parametrize("name", EXACT)
def test_a_narrow_net_computes_what_nothing_reads(name: str) -> None:
    build, x, units = EXACT[name]
    torch.manual_seed(0)
    net, run = build().eval(), runner(x)
    groups, _ = found(net, run)
    assert {group.name: group.units for group in groups.values()} == units
    check_exact(net, run, groups)


ZOO = {
    "residual_cnn": {"body.0.0", "body.1.first.0", "body.2.first.0", "body.2.second.0"},
    "depthwise_cnn": {"body.0.0", "body.1.expand", "body.2.expand", "body.2.project"},
    "lstm": {"rnn"},
    "transformer": {"mlp.0"},
    "int64": {"table"},
}


@pytest.mark.parametrize("name", ZOO)
def test_nets_of_the_zoo_are_narrowed_exactly(name: str) -> None:
    data = zoo.draw(zoo.NETS[name], 4, 0)
    net, run = getattr(zoo, name)(), runner(*map(torch.from_numpy, data.values()))
    groups, refused = found(net, run)
    assert set(groups) == ZOO[name]
    assert all(why for why in refused.values())
    check_exact(net, run, groups)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "net.py")
    assert spec is not None and spec.loader is not None
    sys.path.append(str(EXAMPLES))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.shared
def test_resnet20_is_pruned_inside_its_blocks_and_its_stream_is_refused() -> None:
    net, run = example("resnet20").build(), runner(torch.randn(4, 3, 32, 32))
    groups, refused = found(net, run)
    assert set(groups) == {f"layer{i}.{j}.conv1" for i in (1, 2, 3) for j in (0, 1, 2)}
    assert "outputs differ" in refused["conv1"]
    assert refused["layer3.2.conv2"] == "it is coupled to conv1"
    assert {g.block for g in groups.values() if g.leads} == {
        f"layer{i}.{j}" for i, j in ((1, 0), (1, 1), (1, 2), (2, 1), (2, 2), (3, 1), (3, 2))
    }
    check_exact(net, run, groups)


@pytest.mark.shared
def test_textgenrnn_is_narrowed_through_its_attention() -> None:
    net = example("textgenrnn").build()
    run = runner(torch.randint(0, 465, (4, 40), generator=torch.Generator().manual_seed(0)))
    groups, refused = found(net, run)
    assert {name: group.units for name, group in groups.items()} == {"embedding": 100, "rnn_1": 128, "rnn_2": 128}
    assert "attention.weight" in {slot.tensor for slot in groups["rnn_1"].slots}
    assert set(refused) == {"output"}
    check_exact(net, run, groups)


@pytest.mark.parametrize("cut", [lambda x: x.split([8, 16], 1), lambda x: (x[:, :8], x[:, 8:])])
def test_parts_of_fixed_widths_stay_and_are_named(cut: Callable[[Any], Any]) -> None:
    def forward(net: Any, x: Any) -> Any:
        a, b = cut(net.first(x).relu())
        return net.a(a).mean((2, 3)) + net.b(b).mean((2, 3))

    net = Fn(forward, first=nn.Conv2d(3, 24, 3), a=nn.Conv2d(8, 5, 1), b=nn.Conv2d(16, 5, 1))
    groups, refused = found(net, runner(IMAGE))
    assert "first" not in groups and refused["first"]


# --------------------------------------------------------------------------- attention


def attention(heads: Callable[[Any, torch.Tensor], torch.Tensor]) -> Callable[..., torch.Tensor]:
    def forward(net: Any, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (heads(net, part(x)) for part in (net.q, net.k, net.v))
        seen = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return x + net.out(seen)

    return forward


def attentive(heads: Callable[[Any, torch.Tensor], torch.Tensor]) -> nn.Module:
    layers = {"q": nn.Linear(6, 12), "k": nn.Linear(6, 12), "v": nn.Linear(6, 12), "out": nn.Linear(12, 6)}
    net = Fn(attention(heads), **layers)
    net.num_heads, net.head_dim, net.all_head_size = 4, 3, 12
    return net


@pytest.mark.parametrize(
    "split",
    [
        lambda net, x: x.reshape(len(x), -1, net.num_heads, net.head_dim).transpose(1, 2),
        lambda net, x: x.reshape(len(x), -1, net.num_heads, net.all_head_size // net.num_heads).transpose(1, 2),
    ],
    ids=["by heads", "by heads and their width together"],
)
def test_heads_go_whole_where_the_net_says_how_many_it_has(split: Any) -> None:
    torch.manual_seed(0)
    net, run = attentive(split).eval(), runner(STEPS)
    groups, _ = found(net, run)
    assert groups["q"].units == 4 and groups["q"].per_unit == 3
    assert set(groups["q"].layers) == {"q", "k", "v"}
    check_exact(net, run, groups)
    assert narrowed(net, groups.values(), {"q": [0, 3]}).num_heads == 2


def test_heads_that_are_a_constant_of_the_forward_are_refused_by_name() -> None:
    net = attentive(lambda net, x: x.reshape(len(x), -1, 4, 3).transpose(1, 2))
    groups, refused = found(net, runner(STEPS))
    assert not groups
    assert "with channels removed, the net raises RuntimeError: shape" in refused["q"]


def encoder() -> nn.Module:
    layer = nn.TransformerEncoderLayer(12, 3, 16, batch_first=True)
    return nn.Sequential(nn.Linear(6, 12), layer, nn.Linear(12, 3))


def group_normed() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 12, 3), nn.GroupNorm(4, 12), nn.ReLU(), nn.Conv2d(12, 2, 1))


def test_a_norm_of_groups_loses_as_many_channels_in_each() -> None:
    groups, _ = found(group_normed(), runner(IMAGE))
    assert (groups["0"].units, groups["0"].per_unit, groups["0"].norms) == (3, 4, ("1",))
    narrow = narrowed(group_normed(), groups.values(), {"0": [1]})
    assert narrow[1].num_channels == narrow[1].num_groups == 4


def test_a_net_that_answers_without_gradients_has_no_groups() -> None:
    groups, refused = found(Fn(lambda net, x: net.a(x).detach(), a=nn.Linear(6, 8)), runner(STEPS))
    assert not groups and not refused


def test_an_encoder_loses_whole_heads_with_its_stream() -> None:
    torch.manual_seed(0)
    net, run = encoder().eval(), runner(STEPS)
    groups, _ = found(net, run)
    assert {name: group.units for name, group in groups.items()} == {"0": 3, "1.linear1": 16}
    assert groups["0"].norms == ("1.norm1", "1.norm2")
    narrow = narrowed(net, groups.values(), {"0": [0, 2], "1.linear1": range(8)})
    assert (narrow[1].self_attn.num_heads, narrow[1].self_attn.embed_dim, narrow[1].norm1.normalized_shape) == (
        2,
        8,
        (8,),
    )
    with torch.no_grad():
        assert run(narrow)[0].shape == run(net)[0].shape


# --------------------------------------------------------------------------- refusals


def shared_matrix() -> nn.Module:
    net = Fn(lambda net, x: net.head(net.b(net.a(x).relu()).relu()), a=nn.Linear(6, 6), b=nn.Linear(6, 6))
    net.head, net.b.weight = nn.Linear(6, 2), net.a.weight
    return net


def test_a_matrix_with_two_names_is_refused() -> None:
    _, refused = found(shared_matrix(), runner(STEPS))
    assert "is shared by two layers" in refused["a"]


def test_a_mean_over_channels_is_refused() -> None:
    net = Fn(lambda net, x: net.b(net.a(x).relu().mean(2)), a=nn.Linear(6, 8), b=nn.Linear(5, 3))
    groups, refused = found(net, runner(STEPS))
    assert not groups
    assert refused["a"]


def test_a_state_that_comes_from_outside_is_refused() -> None:
    net = Fn(lambda net, x, h: net.head(net.rnn(x, h)[0]), rnn=nn.GRU(6, 8, batch_first=True), head=nn.Linear(8, 3))
    groups, refused = found(net, runner(STEPS, torch.zeros(1, 4, 8)))
    assert not groups
    assert "rnn" in refused and "head" in refused


def test_a_projected_state_is_refused() -> None:
    rnn = nn.LSTM(6, 8, proj_size=4, batch_first=True)
    _, refused = found(Fn(lambda net, x: net.head(net.rnn(x)[0]), rnn=rnn, head=nn.Linear(4, 3)), runner(STEPS))
    assert refused["rnn"]


def test_the_classes_of_a_net_are_never_pruned() -> None:
    _, refused = found(flattened(), runner(IMAGE))
    assert refused["5"] == "with channels removed, an output has shape [4, 2] instead of [4, 3]"


# --------------------------------------------------------------------------- residual blocks


def block(norm: bool) -> nn.Module:
    layers = [nn.Conv2d(8, 16, 1), nn.ReLU(), nn.Conv2d(16, 8, 1), *([nn.BatchNorm2d(8)] if norm else [])]
    return Fn(lambda net, x: torch.relu(x + net.branch(x)), branch=nn.Sequential(*layers))


@pytest.mark.parametrize("norm", [True, False])
def test_a_block_goes_whole_where_that_is_what_its_silent_branch_computes(norm: bool) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU(), block(norm), block(norm), nn.Conv2d(8, 2, 1)).eval()
    run = runner(IMAGE)
    groups, _ = found(net, run)
    assert groups["2.branch.0"].leads and groups["2.branch.0"].block == "2"
    silent = narrowed(net, (), {})
    last = silent[2].branch[-1]
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    gone = narrowed(net, groups.values(), {"2.branch.0": ()})
    assert isinstance(gone[2], nn.Identity)
    with torch.no_grad():
        assert torch.equal(run(gone)[0], run(silent)[0])


def test_a_block_behind_something_negative_stays() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 1), block(False), nn.Conv2d(8, 2, 1))  # relu(x) is not x there
    groups, _ = found(net, runner(IMAGE))
    assert not any(group.block for group in groups.values())


def test_a_block_of_two_groups_is_led_by_the_first() -> None:
    layers = nn.Sequential(nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, 1), nn.ReLU(), nn.Conv2d(6, 8, 1))
    bottleneck = Fn(lambda net, x: x + net.branch(x), branch=layers)
    net, run = nn.Sequential(nn.Conv2d(3, 8, 1), bottleneck, nn.Conv2d(8, 2, 1)), runner(IMAGE)
    groups, _ = found(net, run)
    assert [g.name for g in groups.values() if g.block == "1"] == ["1.branch.0", "1.branch.2"]
    assert [g.name for g in groups.values() if g.leads] == ["1.branch.0"]
    with torch.no_grad():
        assert len(run(narrowed(net, groups.values(), {"1.branch.0": ()}))) == 1
