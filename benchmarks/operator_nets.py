"""Tiny nets of one operator each, from PyTorch's own test databases: op_db (functions) and module_db (modules).

`samples(word)` are at most MOST of an operator, of different argument classes. Each is a net of static shape: its
float tensors are inputs, what else it takes is constant. An attribute of this module that is the name of a sample is
the factory of its net: `operator_nets:relu_0` is a source.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

MOST = 4  # samples of an operator
LARGEST = 200_000  # numbers in a tensor
# Functions whose tensors but the first are weights: constant in any net
WEIGHTS = re.compile(r"nn\.functional\.(conv|linear|bilinear|.*_norm$|prelu|embedding|multi_head)|native_.*norm")
# A view in front of the operator: what it takes is not contiguous
TURNED = "turned"


@dataclass(frozen=True)
class Sample:
    """One call of an operator: `inputs` are the float tensors, `call` takes them in that order."""

    name: str
    operator: str
    argument_class: str
    inputs: tuple[torch.Tensor, ...]
    make: Callable[[], nn.Module] = field(compare=False)
    turned: bool = False


class Net(nn.Module):
    """One operator: each input comes as [1, numbers], each output leaves as [1, 1, numbers]. No rank is added."""

    def __init__(self, sample: Sample) -> None:
        super().__init__()
        self.body, self.turned = sample.make().eval(), sample.turned
        self.shapes = [tuple(x.shape) for x in sample.inputs]

    def forward(self, x0, x1=None, x2=None, x3=None, x4=None, x5=None, x6=None, x7=None):  # type: ignore[no-untyped-def]
        given = [x for x in (x0, x1, x2, x3, x4, x5, x6, x7) if x is not None]
        plain = [self.straight(x, shape) for x, shape in zip(given, self.shapes, strict=True)]
        outputs = [o for o in pytree.tree_leaves(self.body(*plain)) if isinstance(o, torch.Tensor)]
        return {f"y{i}": o.reshape(1, 1, o.numel()) for i, o in enumerate(outputs)}

    def straight(self, x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        """An input as the operator takes it; where it is turned its data are, and a view turns them back."""
        if x.shape[0] != 1:
            raise ValueError("one item at a time")
        if not self.turned or len(shape) < 2:
            return x.reshape(shape)
        return x.reshape(*shape[:-2], shape[-1], shape[-2]).transpose(-1, -2)


class Function(nn.Module):
    """A function with its constants."""

    def __init__(self, call: Callable[..., Any], leaves: list[Any], spec: Any, free: list[int]) -> None:
        super().__init__()
        self.call, self.spec, self.free, self.leaves = call, spec, free, leaves
        for i, leaf in enumerate(leaves):
            if isinstance(leaf, torch.Tensor) and i not in free:
                self.register_buffer(f"c{i}", leaf.detach().clone())

    def forward(self, *given: torch.Tensor) -> Any:
        held = [getattr(self, f"c{i}", leaf) for i, leaf in enumerate(self.leaves)]
        for i, x in zip(self.free, given, strict=True):
            held[i] = x
        value, args, kwargs = pytree.tree_unflatten(held, self.spec)
        return self.call(value, *args, **kwargs)


class Call(nn.Module):
    """A module called with its inputs, and what else its forward takes."""

    def __init__(self, module: nn.Module, leaves: list[Any], spec: Any, free: list[int]) -> None:
        super().__init__()
        self.module, self.inner = module, Function(self._called, leaves, spec, free)

    def _called(self, _: None, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def forward(self, *given: torch.Tensor) -> Any:
        return self.inner(*given)


def argument_class(tree: Any) -> str:
    """What of the arguments decides which way an operator goes: ranks, empty ones, kinds, flags and words."""

    def told(leaf: Any) -> str:
        if isinstance(leaf, torch.Tensor):
            kind = str(leaf.dtype).removeprefix("torch.")
            return f"{kind}[{leaf.ndim}]" + ("0" if not leaf.numel() else "")
        if isinstance(leaf, (bool, str)) or leaf is None:
            return repr(leaf)
        if isinstance(leaf, (int, float)):
            return f"{type(leaf).__name__}{'-' if leaf < 0 else '0' if not leaf else '1' if leaf == 1 else '+'}"
        return str(leaf)

    leaves, _ = pytree.tree_flatten_with_path(tree)
    return ", ".join(f"{pytree.keystr(path)}={told(leaf)}" for path, leaf in leaves)


@cache
def operators() -> dict[str, Callable[[], Iterator[Sample]]]:
    """What makes the samples of each operator, by the operator's name as a word."""
    found = {**_functions(), **_modules()}
    return {re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_"): make for name, make in found.items()}


@cache
def samples(word: str) -> dict[str, Sample]:
    """The chosen samples of an operator by their names."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = _chosen(operators()[word]())
    return {f"{word}_{i}": dataclasses.replace(s, name=f"{word}_{i}") for i, s in enumerate(chosen)}


def sample(name: str) -> Sample:
    """A sample by its name."""
    return samples(name.rpartition("_")[0])[name]


def _chosen(found: Iterator[Sample]) -> list[Sample]:
    """At most MOST, each of another class; where there is room, the first once more behind a view."""
    kept: dict[str, Sample] = {}
    with contextlib.suppress(Exception):  # a database's sample that this build cannot make
        for each in found:
            if len(kept) < MOST and 0 < len(each.inputs) <= 8:
                kept.setdefault(each.argument_class, each)
    chosen = list(kept.values())
    first = next((s for s in chosen if any(x.ndim > 1 and x.numel() for x in s.inputs)), None)
    if first and len(chosen) < MOST:
        chosen.append(dataclasses.replace(first, argument_class=f"{TURNED} {first.argument_class}", turned=True))
    return chosen


def _parts(tree: Any, weights: bool) -> tuple[list[Any], Any, list[int]]:
    leaves, spec = pytree.tree_flatten(tree)
    free = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    return leaves, spec, free[:1] if weights else free


def _functions() -> dict[str, Callable[[], Iterator[Sample]]]:
    from torch.testing._internal.common_methods_invocations import op_db

    made: dict[str, Callable[[], Iterator[Sample]]] = {}
    for op in op_db:
        if torch.float32 not in op.dtypes:
            continue
        operator = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name

        def found(op: Any = op, operator: str = operator) -> Iterator[Sample]:
            torch.manual_seed(0)
            for each in op.sample_inputs("cpu", torch.float32, requires_grad=False):
                tree = (each.input, tuple(each.args), dict(each.kwargs))
                leaves, spec, free = _parts(tree, bool(WEIGHTS.match(op.name)))
                inputs = tuple(leaves[i].detach().contiguous() for i in free)
                if all(x.numel() <= LARGEST for x in leaves if isinstance(x, torch.Tensor)):
                    make = lambda leaves=leaves, spec=spec, free=free: Function(op.op, leaves, spec, free)  # noqa: E731
                    yield Sample("", operator, argument_class(tree), inputs, make)

        made[operator] = found
    return made


def _modules() -> dict[str, Callable[[], Iterator[Sample]]]:
    from torch.testing._internal.common_modules import module_db

    made: dict[str, Callable[[], Iterator[Sample]]] = {}
    for info in module_db:
        if torch.float32 not in info.dtypes:
            continue
        operator = f"nn.{info.name.removeprefix('nn.')}"

        def found(info: Any = info, operator: str = operator) -> Iterator[Sample]:
            torch.manual_seed(0)
            given = info.module_inputs_func(info, "cpu", torch.float32, False, False)
            for each in given:
                if each.forward_input is None:
                    continue
                built = (each.constructor_input.args, each.constructor_input.kwargs)
                tree = (None, tuple(each.forward_input.args), dict(each.forward_input.kwargs))
                leaves, spec, free = _parts(tree, False)

                def make(built: Any = built, parts: Any = (leaves, spec, free)) -> nn.Module:
                    torch.manual_seed(0)
                    return Call(info.module_cls(*built[0], **built[1]), *parts)

                inputs = tuple(leaves[i].detach().contiguous() for i in free)
                yield Sample("", operator, argument_class((built, tree)), inputs, make)

        made[operator] = found
    return made


def items(sample: Sample) -> dict[str, torch.Tensor]:
    """What goes into the net of a sample, [1, numbers] each."""
    turned = [x.transpose(-1, -2) if sample.turned and x.ndim > 1 else x for x in sample.inputs]
    return {f"x{i}": x.reshape(1, x.numel()) for i, x in enumerate(turned)}


def __getattr__(name: str) -> Callable[[], nn.Module]:
    word = name.rpartition("_")[0]
    if name.startswith("_") or word not in operators() or name not in samples(word):
        raise AttributeError(name)
    return lambda: Net(sample(name))
