"""Branches that are added up as one convolution: which are, that the numbers stay, and what is left alone."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgecompress.core.model import REWRITES, Artifact, Context, Dim, Request, TensorSpec
from edgecompress.techniques import merge_branches
from edgecompress.techniques._torch_graph import operator

torch = pytest.importorskip("torch")
nn = torch.nn
C = 6  # channels


class Sum(nn.Module):  # type: ignore[misc]
    """A block: what `forward` makes of an input and of its parts."""

    def __init__(self, forward: Callable[..., Any], *parts: Any) -> None:
        super().__init__()
        self.parts, self.made_of = nn.ModuleList(parts), forward
        self.gamma = nn.Parameter(torch.randn(C, 1, 1))

    def forward(self, x: Any) -> Any:
        return self.made_of(self, x, *self.parts).relu()


class Net(nn.Module):  # type: ignore[misc]
    def __init__(self, block: Sum) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Any) -> Any:
        return self.block(torch.tanh(x))


def conv(size: Any = 3, **how: Any) -> Any:
    padding = [n // 2 for n in size] if isinstance(size, tuple) else size // 2
    return nn.Sequential(nn.Conv2d(C, C, size, **{"padding": padding, "bias": False, **how}), norm())


def norm() -> Any:
    return nn.BatchNorm2d(C)


def added(block: Sum, x: Any, *parts: Any) -> Any:
    return sum(part(x) for part in parts)


def in_place(block: Sum, x: Any, first: Any, *parts: Any) -> Any:
    total = first(x)
    for part in parts:
        total += part(x)
    return total


def mixer(block: Sum, x: Any, first: Any, other: Any) -> Any:
    """FastViT's (Vasu et al. 2023, arXiv:2303.14189): x + gamma * (mixer(x) - norm(x))."""
    return x + block.gamma * nn.functional.dropout(first(x) - other(x) * 0.5, 0.1, block.training)


def of_two(block: Sum, x: Any, first: Any, other: Any) -> Any:
    return first(x) + other(x.abs())


def between(block: Sum, x: Any, first: Any, other: Any) -> Any:
    return first(x).relu() + other(x)


def read_twice(block: Sum, x: Any, first: Any, other: Any) -> Any:
    found = first(x)
    return (found + other(x)) * found.mean()


def changed(block: Sum, x: Any, first: Any, other: Any) -> Any:
    return first(x) + other(x.relu_())


def repeated(block: Sum, x: Any, first: Any, other: Any) -> Any:
    return first(x) + other(x)[:, :, :1]


MERGED: dict[str, Callable[[], Sum]] = {
    "RepVGG": lambda: Sum(added, conv(3), conv(1), norm()),
    "RepVGG in groups": lambda: Sum(added, conv(3, groups=2), conv(1, groups=2), norm()),
    "depthwise, MobileOne": lambda: Sum(added, norm(), *[conv(3, groups=C) for _ in range(3)], conv(1, groups=C)),
    "with a stride": lambda: Sum(added, conv(5, stride=2), conv(3, stride=2, bias=True), conv(1, stride=2)),
    "ACNet": lambda: Sum(added, conv((3, 3)), conv((1, 3)), conv((3, 1))),
    "dilated": lambda: Sum(added, conv(3, dilation=2, padding=2), conv(1), norm()),
    "no padding": lambda: Sum(added, conv(3, padding=0), conv(3, padding=0, bias=True)),
    "in place": lambda: Sum(in_place, conv(3), conv(1), norm()),
    "the tensor itself": lambda: Sum(lambda block, x, part: x + part(x), conv(3, groups=C)),
    "FastViT": lambda: Sum(mixer, Sum_(added, norm(), conv(3, groups=C), conv(1, groups=C)), norm()),
}
LEFT: dict[str, Callable[[], Sum]] = {
    "of two tensors": lambda: Sum(of_two, conv(3), conv(1)),
    "an activation between": lambda: Sum(between, conv(3), conv(1)),
    "read elsewhere": lambda: Sum(read_twice, conv(3), conv(1)),
    "changed in place": lambda: Sum(changed, conv(3), conv(1)),
    "repeated along an axis": lambda: Sum(repeated, conv(3), conv(1)),
    "other groups": lambda: Sum(added, conv(3), conv(1, groups=2)),
    "other pixels": lambda: Sum(added, conv(3, dilation=2, padding=2), conv(3)),
    "no window holds both": lambda: Sum(added, conv((1, 3)), conv((3, 1))),
    "no convolution": lambda: Sum(added, norm(), norm()),
    "without a batch": lambda: Sum(lambda block, x, part: x[0] + part(x[0]), nn.Conv2d(C, C, 3, padding=1)),
    "a convolution alone": lambda: Sum(added, conv(3)),
}


class Sum_(Sum):
    """A block in a block, without an activation."""

    def forward(self, x: Any) -> Any:
        return self.made_of(self, x, *self.parts)


def exported(make: Callable[[], Sum]) -> tuple[Any, Any, Any]:
    """The program of a net that takes any batch, an input, and what the net answers to it."""
    torch.manual_seed(0)
    net = Net(make()).eval()
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low, high in ((module.running_mean, -1, 1), (module.running_var, 0.5, 2), (module.bias, -1, 1)):
                nn.init.uniform_(value, low, high)
            nn.init.uniform_(module.weight, -2, 2)
    x, batch = torch.randn(3, C, 9, 8), torch.export.Dim("batch", min=1, max=64)
    return torch.export.export(net, (x,), dynamic_shapes=({0: batch},)), x, net(x).detach()


def operators(program: Any) -> list[str]:
    return [str(node.target).split(".")[1] for node in program.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("name", MERGED)
def test_a_sum_becomes_one_convolution_with_the_same_numbers(name: str) -> None:
    program, x, right = exported(MERGED[name])
    total = [node.name for node in program.graph.nodes if operator(node) in merge_branches.SUMS][-1]
    assert merge_branches.merged(program) == ["block"]
    saved = io.BytesIO()
    torch.export.save(program, saved)
    saved.seek(0)
    read = torch.export.load(saved)
    assert operators(read) == ["tanh", "conv2d", "relu"]
    assert len(read.state_dict) == 2, "the weights of the branches are gone"
    torch.testing.assert_close(read.module()(x), right, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(read.module()(x[:1]), right[:1], atol=1e-5, rtol=1e-4)
    assert total in [node.name for node in read.graph.nodes], "a diagnosis goes on knowing the layer by its name"


@pytest.mark.parametrize("name", LEFT)
def test_what_is_no_such_sum_stays(name: str) -> None:
    program, x, right = exported(LEFT[name])
    before = [node.name for node in program.graph.nodes]
    assert merge_branches.merged(program) == []
    assert [node.name for node in program.graph.nodes] == before
    torch.testing.assert_close(program.module()(x), right)


def test_of_a_sum_that_stays_the_sums_in_it_are_merged() -> None:
    def block() -> Sum:
        inner = Sum_(added, conv(3), conv(1))
        return Sum(lambda block, x, part, other: other(x.abs()) + part(x), inner, conv(1))

    program, x, right = exported(block)
    assert merge_branches.merged(program) == ["block.parts.0"]
    assert operators(program).count("conv2d") == 2 and operators(program).count("add") == 1
    torch.testing.assert_close(program.module()(x), right, atol=1e-5, rtol=1e-4)


def test_a_tensor_that_is_an_output_too_stays_one() -> None:
    class Twice(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv2d(C, C, 3, padding=1), nn.Conv2d(C, C, 1)

        def forward(self, x: Any) -> Any:
            x, rest = torch.split(x, C, 1)
            return x, self.a(x) + self.b(x) + x, rest

    net, x = Twice().eval(), torch.randn(2, 2 * C, 5, 5)
    program = torch.export.export(net, (x,))
    assert merge_branches.merged(program) == ["add_1"]
    torch.testing.assert_close(program.module()(x), net(x), atol=1e-5, rtol=1e-4)


def test_branches_along_one_axis_are_merged_too() -> None:
    class Line(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Conv1d(C, C, 5, padding=2), nn.Conv1d(C, C, 1)

        def forward(self, x: Any) -> Any:
            return self.a(x) - self.b(x) - 1.0

    net, x = Line().eval(), torch.randn(2, C, 11)
    program = torch.export.export(net, (x,))
    assert merge_branches.merged(program) == ["sub_1"]
    assert operators(program) == ["conv1d"]
    torch.testing.assert_close(program.module()(x), net(x), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(("name", "told"), [("RepVGG", REWRITES), ("a convolution alone", "lost")])
def test_the_technique_says_what_it_merged_or_that_nothing_is_to_merge(tmp_path: Path, name: str, told: str) -> None:
    program, x, right = exported({**MERGED, **LEFT}[name])
    for folder in ("model", "out"):
        (tmp_path / folder).mkdir()
    torch.export.save(program, tmp_path / "model" / merge_branches.FILE)
    spec = (TensorSpec("x", (Dim("batch", 1, 64), C, 9, 8)),)
    model = Artifact(tmp_path / "model", "program", spec, spec).write()
    request = Request({"model": model}, tmp_path / "out", merge_branches.Options(), Context())
    made = merge_branches.apply(request)
    assert [*made.facts] == [told]
    assert made.facts[told] in ({merge_branches.SAYS: ["block"]}, "no sum of convolutions of one tensor in the net")
    torch.testing.assert_close(torch.export.load(made.file(".pt2")).module()(x), right, atol=1e-5, rtol=1e-4)
