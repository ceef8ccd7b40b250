"""What each layer gives on real items: its zeros, its range, its percentiles and the histogram of what is not zero."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from typing import TYPE_CHECKING, Any, TypedDict

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Request
from edgecompress.core.source import TORCH
from edgecompress.data import tensors
from edgecompress.formats import torch_module
from edgecompress.stages import golden
from edgecompress.stages.analyze.sensitivity import SPLIT

if TYPE_CHECKING:
    import torch

BINS, SHOWN = 2048, 64  # of a histogram: that percentiles are read from, and that is told
PERCENTILES = (1, 50, 99)
CUTS = ("relu", "relu6", "hardtanh", "clamp_min", "clamp", "threshold", "hardswish")  # what gives zeros


class LayerActivations(TypedDict):
    """The numbers that a layer gave; `zeros`: 0..1. None where it gave none that is finite.

    `apoz`: the average percentage of zeros of its worst channel, as a share (Hu et al. 2016, arXiv:1607.03250, eq. 1);
    `dead`: channels (axis 1; of three axes the last, in a net without 1-D convolutions) that are zero on all items.
    `percentiles`: exact to 1/2048 of the range.
    """

    name: str
    type: str
    elements: int
    not_finite: int
    zeros: float
    channels: int
    dead: int
    apoz: float
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    percentiles: list[float]
    histogram: list[int]  # of what is not zero, SHOWN bins from min to max


class ActivationFacts(TypedDict):
    """The facts of "activations": the layers in the order of computing."""

    split: str
    items: int
    layers: list[LayerActivations]


def statistics(request: Request) -> ActivationFacts:
    """Of the first "items" of the split "select"; options: "items", "layers" (patterns; empty: all).

    The layers are the modules without modules inside, and what a forward cuts off by itself, `blocks.0: relu`; one that
    runs several times has the numbers of all its runs. Raises InputError for a model that has none.
    """
    import torch

    model, samples, patterns = request.model, request.inputs["samples"], request.options["layers"]
    net = torch_module.rebuild(model) if model.kind in TORCH else None
    if net is None or isinstance(net, torch.fx.GraphModule):
        raise InputError("--activations needs a torch net made of modules: give its factory, pkg.mod:fn")
    items = min(request.options["items"], tensors.count(samples, SPLIT))
    seen = dict[str, _Seen]()
    torch.set_num_threads(request.context.threads)
    for look in (_Seen.first, _Seen.again):
        with _watched(net, seen, look):
            for batch in tensors.batches(samples, SPLIT, golden.batch(model), items, model):
                torch_module.outputs(net, model, {name: torch.from_numpy(array) for name, array in batch.items()})
    for pattern in patterns:
        if not any(fnmatch(name, pattern) for name in seen):
            raise InputError(f"--layers {pattern}: no such layer{did_you_mean(pattern, seen)}")
    chosen = {n: each for n, each in seen.items() if not patterns or any(fnmatch(n, pattern) for pattern in patterns)}
    return {"split": SPLIT, "items": items, "layers": [each.told(name) for name, each in chosen.items()]}


@contextmanager
def _watched(
    net: torch.nn.Module, seen: dict[str, _Seen], look: Callable[[_Seen, torch.Tensor], None]
) -> Iterator[None]:
    """What layers give goes to `seen`, in the order in which they end; of several outputs the first."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    rows = not any(isinstance(m, (torch.nn.Conv1d, torch.nn.ConvTranspose1d)) for m in net.modules())
    running: list[tuple[str, bool]] = []  # the modules that run, and whether they have modules inside
    calls = Counter[str]()

    def note(name: str, kind: str, output: object) -> None:
        given = output[0] if isinstance(output, (tuple, list)) and output else output
        if isinstance(given, torch.Tensor) and given.is_floating_point():
            look(seen.setdefault(name, _Seen(kind, rows)), given.detach())

    def begin(name: str, inside: bool) -> Callable[..., None]:
        def hook(module: object, inputs: object) -> None:
            running.append((name, inside))
            for call in [each for each in calls if each.startswith(f"{name}: ")]:
                del calls[call]

        return hook

    def end(name: str, inside: bool) -> Callable[..., None]:
        def hook(module: torch.nn.Module, inputs: object, output: object) -> None:
            running.pop()
            if not inside:
                note(name, type(module).__name__, output)

        return hook

    class Functions(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            made, (name, inside) = func(*args, **(kwargs or {})), running[-1] if running else ("", False)
            word = func._opname.rstrip("_")
            if inside and word in CUTS:
                calls[call := f"{name}: {word}"] += 1
                note(call if calls[call] == 1 else f"{call} {calls[call]}", word, made)
            return made

    with ExitStack() as hooks:
        for name, module in net.named_modules():
            named = name or type(module).__name__
            inside = bool([*module.children()])
            hooks.callback(module.register_forward_pre_hook(begin(named, inside)).remove)
            hooks.callback(module.register_forward_hook(end(named, inside)).remove)
        hooks.enter_context(Functions())
        yield


class _Seen:
    """The numbers of a layer, in two passes: the second one knows the range."""

    def __init__(self, kind: str, rows: bool) -> None:
        import torch

        self.rows = rows  # whether three axes are items, places, features
        self.kind, self.elements, self.not_finite = kind, 0, 0
        self.sums, self.low, self.high = [0.0, 0.0], math.inf, -math.inf
        self.channel: torch.Tensor | None = None  # of each channel: how many are zero, and how many there are
        self.bins = torch.zeros(BINS, dtype=torch.float64)
        self.zeros = 0

    def first(self, given: torch.Tensor) -> None:
        """Counts, sums and the range."""
        import torch

        axis = -1 if given.dim() == 3 and self.rows else 1
        rows = given.movedim(axis, 0).flatten(1) if given.dim() > 1 else given.reshape(1, -1)
        counted = torch.stack([(rows == 0).sum(1), torch.full((len(rows),), rows.shape[1])])
        alike = self.channel is None or self.channel.shape == counted.shape
        self.channel = counted if self.channel is None or not alike else self.channel + counted
        self.elements += given.numel()
        self.zeros += int(counted[0].sum())
        finite = given[given.isfinite()].double()
        self.not_finite += given.numel() - finite.numel()
        if finite.numel():
            self.sums = [self.sums[0] + float(finite.sum()), self.sums[1] + float(finite.square().sum())]
            self.low, self.high = min(self.low, float(finite.min())), max(self.high, float(finite.max()))

    def again(self, given: torch.Tensor) -> None:
        """The histogram."""
        if self.low < self.high:
            some = given[given.isfinite() & (given != 0)].double()
            self.bins += some.histc(BINS, self.low, self.high)

    def told(self, name: str) -> LayerActivations:
        """In figures."""
        assert self.channel is not None
        count = self.elements - self.not_finite
        mean = self.sums[0] / count if count else None
        shares = self.channel[0] / self.channel[1]
        return {
            "name": name,
            "type": self.kind,
            "elements": self.elements,
            "not_finite": self.not_finite,
            "zeros": self.zeros / self.elements,
            "channels": len(shares),
            "dead": int((shares == 1).sum()),
            "apoz": float(shares.max()),
            "mean": mean,
            "std": None if mean is None else math.sqrt(max(self.sums[1] / count - mean**2, 0.0)),
            "min": self.low if count else None,
            "max": self.high if count else None,
            "percentiles": [self._percentile(share / 100) for share in PERCENTILES] if count else [],
            "histogram": [int(n) for n in self.bins.reshape(SHOWN, -1).sum(1)],
        }

    def _percentile(self, share: float) -> float:
        """The middle of the bin that it lies in, or zero."""
        import torch

        if self.low == self.high:
            return self.low
        width = (self.high - self.low) / BINS
        whole = self.bins.clone()
        zero = min(max(int(-self.low / width), 0), BINS - 1)
        whole[zero] += self.zeros
        at = int(torch.searchsorted(whole.cumsum(0), share * float(whole.sum())))
        middle = self.low + (min(at, BINS - 1) + 0.5) * width
        return 0.0 if at == zero and self.zeros > self.bins[zero] else middle
