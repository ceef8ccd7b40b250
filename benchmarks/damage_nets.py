"""Twenty small nets with data of known truth, four of each kind of task: what benchmarks/damage.py damages.

`NETS[name]` says how to draw items with their truth, how to train, and what the task's own metric is. `net_NAME` is a
factory as a user's own would be: the trained net (its weights lie in the folder $DAMAGE_WEIGHTS).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

Array = Any  # numpy's
Outputs = Mapping[str, Array]
Draw = Callable[[np.random.Generator, int], tuple[Array, Array]]  # -> inputs, truth

SIZE, CELLS, STRIDE = 32, 8, 4  # of detection: the image, its grid, pixels of a cell
WORDS, STEPS = 20, 16  # of sequences


@dataclass(frozen=True)
class Net:
    """A net of a kind of task. `metric`: (outputs, truth) -> a number, None where the deploy alone has what to judge.

    `lower`: less is better (perplexity).
    """

    task: str
    build: Callable[[], nn.Module]
    draw: Draw
    loss: Callable[[Any, Any], Any]  # (what the net returns, truth as a tensor)
    metric: Callable[[Outputs, Array], float] | None
    steps: int = 300
    lower: bool = False
    items: int = 4000  # to train on


# --------------------------------------------------------------------------- parts


def conv(inputs: int, outputs: int, stride: int = 1, groups: int = 1) -> nn.Module:
    layer = nn.Conv2d(inputs, outputs, 3, stride, 1, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())


class Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


class Shortcut(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = conv(width, width), nn.Conv2d(width, width, 3, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.second(self.first(x)))


def separable(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    depth = nn.Sequential(nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False), nn.BatchNorm2d(inputs))
    return nn.Sequential(depth, nn.ReLU6(), nn.Conv2d(inputs, outputs, 1), nn.BatchNorm2d(outputs), nn.ReLU6())


class Named(nn.Module):
    """A body and a function of what it returns: a tensor, or a dictionary of them."""

    def __init__(self, body: nn.Module, end: Callable[[Any], Any]) -> None:
        super().__init__()
        self.body, self.end = body, end

    def forward(self, x: torch.Tensor) -> Any:
        return self.end(self.body(x))


# --------------------------------------------------------------------------- classification


@functools.cache
def patterns(classes: int, size: int, seed: int) -> Array:
    """A smooth picture for each class, [classes, 3, size, size]."""
    rough = np.random.default_rng(seed).normal(size=(classes, 3, size // 4, size // 4))
    return rough.repeat(4, axis=2).repeat(4, axis=3).astype(np.float32)


def textures(classes: int, noise: float, seed: int, size: int = 16) -> Draw:
    """Pictures of a class's pattern under noise, at another strength and place for each item."""

    def draw(random: np.random.Generator, n: int) -> tuple[Array, Array]:
        truth = random.integers(0, classes, n)
        images = patterns(classes, size, seed)[truth] * random.uniform(0.5, 1.5, (n, 1, 1, 1))
        moves = random.integers(0, 3, (n, 2))
        images = np.stack([np.roll(i, tuple(m), (1, 2)) for i, m in zip(images, moves, strict=True)])
        return (images + noise * random.normal(size=images.shape)).astype(np.float32), truth

    return draw


def table(random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Twenty numbers of eight overlapping clusters."""
    middles = np.random.default_rng(5).normal(size=(8, 20))
    truth = random.integers(0, 8, n)
    return (middles[truth] + 1.25 * random.normal(size=(n, 20))).astype(np.float32), truth


def first(outputs: Outputs) -> Array:
    return np.nan_to_num(np.asarray(next(iter(outputs.values())), np.float64), nan=-1e9, posinf=1e9, neginf=-1e9)


def top1(outputs: Outputs, truth: Array) -> float:
    return float((first(outputs).argmax(-1) == truth).mean())


def entropy(made: Any, truth: Any) -> Any:
    made = next(iter(made.values())) if isinstance(made, dict) else made
    return F.cross_entropy(made.flatten(0, -2), truth.flatten())


def nll(made: Any, truth: Any) -> Any:
    return F.nll_loss(torch.log(made.flatten(0, -2) + 1e-9), truth.flatten())


CLASSIFIERS = {
    "cnn": Net(
        "classification",
        lambda: nn.Sequential(conv(3, 12), conv(12, 24, 2), conv(24, 24, 2), Mean(), nn.Linear(24, 6)),
        textures(6, 4.5, 1), entropy, top1,
    ),
    "clusters": Net(
        "classification",
        lambda: nn.Sequential(nn.Linear(20, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 8)),
        table, entropy, top1, 600,
    ),
    "separable": Net(
        "classification",
        lambda: nn.Sequential(conv(3, 12, 2), separable(12, 24), separable(24, 32, 2), Mean(), nn.Linear(32, 12)),
        textures(12, 4.0, 2), entropy, top1,
    ),
    "residual": Net(
        "classification",
        lambda: nn.Sequential(
            conv(3, 16, 2), Shortcut(16), Shortcut(16), Mean(), nn.Linear(16, 10), nn.Softmax(dim=-1)
        ),
        textures(10, 4.0, 3), nll, top1,
    ),
}  # fmt: skip


# --------------------------------------------------------------------------- detection


def scenes(random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Up to two bright boxes under noise, with dim ones that are none; truth [n, 2, 5]: x, y, w, h, there; pixels."""
    images = random.normal(0, 0.5, (n, 3, SIZE, SIZE))
    truth = np.zeros((n, 2, 5), np.float32)
    for i in range(n):
        for k in range(3):
            w, h = random.uniform(6, 13, 2)
            x, y = random.uniform(w / 2, SIZE - w / 2), random.uniform(h / 2, SIZE - h / 2)
            rows, columns = (slice(round(c - s / 2), round(c + s / 2)) for c, s in ((y, h), (x, w)))
            if k < 2 and random.random() < 0.7 and not any(abs(x - t[0]) + abs(y - t[1]) < 16 for t in truth[i, :k]):
                images[i, :, rows, columns] += np.array([1.2, 0.9, 0.6])[:, None, None] * random.uniform(0.5, 1.3)
                truth[i, k] = x, y, w, h, 1
            elif k == 2 and random.random() < 0.5:
                images[i, :, rows, columns] += np.array([0.2, 0.6, 0.9])[:, None, None] * random.uniform(0.3, 1.0)
    return images.astype(np.float32), truth


def grid() -> Array:
    """The middle of each cell, [64, 2] as x, y in pixels."""
    at = (np.arange(CELLS) + 0.5) * STRIDE
    return np.stack(np.meshgrid(at, at), -1).reshape(-1, 2).astype(np.float32)


class Detector(nn.Module):
    """Per cell a box as x, y, w, h in pixels and the logit that something is there; `form` is what goes out."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.body = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 32), conv(32, 32))
        self.head = nn.Conv2d(32, 6, 1)
        self.register_buffer("grid", torch.from_numpy(grid()))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        made = self.head(self.body(x)).flatten(2).transpose(1, 2)  # [n, 64, 6]
        offsets, logits = made[..., :4], made[..., 4:]
        if self.form == "offsets":
            return {"boxes": offsets, "scores": logits[..., 1:] - logits[..., :1]}
        boxes = torch.cat([self.grid + STRIDE * offsets[..., :2], 8 * torch.exp(offsets[..., 2:])], -1)
        if self.form == "softmax":
            return {"classes": logits, "boxes": boxes / SIZE}
        scores = torch.sigmoid(logits[..., 1:] - logits[..., :1])
        if self.form == "joined":
            return {"found": torch.cat([boxes, scores], -1).transpose(1, 2)}
        return {"boxes": boxes / SIZE, "scores": scores}


def decoded(form: str, outputs: Outputs) -> tuple[Array, Array]:
    """Boxes [n, 64, 4] in pixels (x, y, w, h) and probabilities [n, 64]."""
    o = {k: np.nan_to_num(np.asarray(v, np.float64)) for k, v in outputs.items()}
    if form == "joined":
        return o["found"][:, :4].transpose(0, 2, 1), o["found"][:, 4]
    if form == "softmax":
        return o["boxes"] * SIZE, sigmoid(o["classes"][..., 1] - o["classes"][..., 0])
    if form == "offsets":
        xy, wh = grid() + STRIDE * o["boxes"][..., :2], 8 * np.exp(np.clip(o["boxes"][..., 2:], -9, 4))
        return np.concatenate([xy, wh], -1), sigmoid(o["scores"][..., 0])
    return o["boxes"] * SIZE, o["scores"][..., 0]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-np.clip(x, -60, 60)))


def detection_loss(form: str) -> Callable[[Any, Any], Any]:
    def loss(made: Any, truth: Any) -> Any:
        n, middle = len(truth), torch.from_numpy(grid())
        there, want = torch.zeros(n, CELLS**2), torch.zeros(n, CELLS**2, 4)
        for k in range(truth.shape[1]):
            x, y, w, h, on = truth[:, k].unbind(-1)
            cell = (y / STRIDE).long().clamp(0, 7) * CELLS + (x / STRIDE).long().clamp(0, 7)
            offsets = (torch.stack([x, y], -1) - middle[cell]) / STRIDE
            rows = torch.arange(n)[on > 0]
            there[rows, cell[on > 0]] = 1
            want[rows, cell[on > 0]] = torch.cat([offsets, torch.log(torch.stack([w, h], -1) / 8 + 1e-6)], -1)[on > 0]
        logits = made[..., 5] - made[..., 4]
        boxes = F.smooth_l1_loss(made[..., :4], want, reduction="none").sum(-1)
        return F.binary_cross_entropy_with_logits(logits, there) * 20 + (boxes * there).sum() / there.sum() * 2

    return loss


def overlap(box: Array, others: Array) -> Array:
    """IoU of one box (x, y, w, h) with others [k, 4]."""
    low = np.maximum(box[:2] - box[2:] / 2, others[:, :2] - others[:, 2:] / 2)
    high = np.minimum(box[:2] + box[2:] / 2, others[:, :2] + others[:, 2:] / 2)
    inside = np.clip(high - low, 0, None).prod(-1)
    return inside / np.maximum(box[2:].prod() + others[:, 2:].prod(-1) - inside, 1e-9)


def precision(form: str) -> Callable[[Outputs, Array], float]:
    """Average precision, the mean of those at an IoU of 0.5 and of 0.75."""

    def metric(outputs: Outputs, truth: Array) -> float:
        boxes, scores = decoded(form, outputs)
        found: list[tuple[float, float]] = []
        for item in range(len(truth)):
            real = truth[item][truth[item][:, 4] > 0][:, :4]
            free, order = np.ones((2, len(real)), bool), np.argsort(-scores[item])[:8]
            kept: list[int] = []
            for c in (int(c) for c in order if scores[item, c] > 0.02):
                if kept and overlap(boxes[item, c], boxes[item, kept]).max() > 0.45:
                    continue
                kept.append(c)
                found.append((float(scores[item, c]), *hits(overlap(boxes[item, c], real), free)))
        return average(found, float((truth[..., 4] > 0).sum()))

    return metric


def hits(near: Array, free: Array) -> tuple[bool, ...]:
    """Whether a box finds something that no better one did, at each of two thresholds."""
    right = []
    for level, threshold in enumerate((0.5, 0.75)):
        best = int(np.argmax(near * free[level])) if len(near) else -1
        good = best >= 0 and bool(free[level, best]) and near[best] >= threshold
        if good:
            free[level, best] = False
        right.append(good)
    return tuple(right)


def average(found: list[tuple[Any, ...]], positives: float) -> float:
    if not found:
        return 0.0
    order = sorted(found, key=lambda f: -f[0])
    values = []
    for level in (1, 2):
        right = np.cumsum([f[level] for f in order])
        exact = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
        values.append(float((exact * np.diff(right, prepend=0)).sum() / positives))
    return float(np.mean(values))


def detector(form: str) -> Net:
    return Net("detection", lambda: Detector(form), scenes, detection_loss(form), precision(form), 500)


DETECTORS = {
    "faces": detector("plain"),
    "joined": detector("joined"),
    "ssd": detector("softmax"),
    "offsets": detector("offsets"),
}


# --------------------------------------------------------------------------- segmentation


def regions(classes: int) -> Draw:
    """Discs of some classes over a background, under noise; truth [n, 24, 24]. The last class is rare."""
    colours = np.random.default_rng(classes).normal(size=(classes, 3))
    colours[0] = 0
    y, x = np.mgrid[:24, :24]

    def draw(random: np.random.Generator, n: int) -> tuple[Array, Array]:
        truth = np.zeros((n, 24, 24), np.int64)
        for i in range(n):
            for _ in range(3):
                kind = min(random.integers(1, classes), random.integers(1, classes))
                cy, cx, r = *random.uniform(3, 21, 2), random.uniform(2, 7)
                truth[i][(y - cy) ** 2 + (x - cx) ** 2 < r * r] = kind
        images = colours[truth] + 0.7 * random.normal(size=(n, 24, 24, 3))
        return images.transpose(0, 3, 1, 2).astype(np.float32), truth

    return draw


class Segmenter(nn.Module):
    def __init__(self, classes: int, end: Callable[[Any], Any] = lambda x: x, deep: bool = False) -> None:
        super().__init__()
        self.down, self.middle = conv(3, 16), nn.Sequential(conv(16, 24, 2), *[conv(24, 24)] * 1)
        self.deep = conv(24, 24) if deep else nn.Identity()
        self.up, self.head, self.end = conv(40, 16), nn.Conv2d(16, classes, 1), end

    def forward(self, x: torch.Tensor) -> Any:
        fine = self.down(x)
        coarse = F.interpolate(self.deep(self.middle(fine)), scale_factor=2.0, mode="nearest")
        return self.end(self.head(self.up(torch.cat([fine, coarse], 1))))


def pixels(made: Any, truth: Any) -> Any:
    return F.cross_entropy(made, truth)


def mask_loss(made: Any, truth: Any) -> Any:
    return F.binary_cross_entropy(made[:, 0], (truth > 0).float())


def last_axis(made: Any, truth: Any) -> Any:
    return F.nll_loss(torch.log(made.permute(0, 3, 1, 2).contiguous() + 1e-9), truth)


def mean_iou(axis: int) -> Callable[[Outputs, Array], float]:
    def metric(outputs: Outputs, truth: Array) -> float:
        made = first(outputs)
        chosen = made.argmax(axis) if made.shape[axis] > 1 else (made.take(0, axis) > 0.5).astype(int)
        truth = truth if made.shape[axis] > 1 else (truth > 0).astype(int)
        each = [((chosen == c) & (truth == c)).sum() / max(1, ((chosen == c) | (truth == c)).sum())
                for c in range(int(truth.max()) + 1)]  # fmt: skip
        return float(np.mean(each))

    return metric


SEGMENTERS = {
    "regions": Net("segmentation", lambda: Segmenter(5), regions(5), pixels, mean_iou(1), 200),
    "mask": Net("segmentation", lambda: Segmenter(1, torch.sigmoid), regions(3), mask_loss, mean_iou(1), 150),
    "two": Net("segmentation", lambda: Segmenter(3, deep=True), regions(3), pixels, mean_iou(1), 200),
    "lastaxis": Net(
        "segmentation",
        lambda: Segmenter(4, lambda x: torch.softmax(x.permute(0, 2, 3, 1), -1), deep=True),
        regions(4), last_axis, mean_iou(-1), 200,
    ),
}  # fmt: skip


# --------------------------------------------------------------------------- regression and embedding


def poses(random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """A smooth function of ten numbers, under noise: three values."""
    weights = np.random.default_rng(9).normal(size=(2, 10, 3))
    x = random.normal(size=(n, 10))
    y = np.sin(x @ weights[0] * 0.6) + 0.3 * (x @ weights[1]) + 0.2 * random.normal(size=(n, 3))
    return x.astype(np.float32), y.astype(np.float32)


def ages(random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """A picture whose frequency and contrast grow with a number of 0 to 100."""
    age = random.uniform(0, 100, n)
    y = np.linspace(0, 1, 16)
    waves = np.sin(2 * np.pi * (1 + age[:, None] / 25) * y + random.uniform(0, 6, (n, 1)))
    images = waves[:, None, :, None] * np.ones((1, 3, 1, 16)) + 0.8 * random.normal(size=(n, 3, 16, 16))
    return images.astype(np.float32), age[:, None].astype(np.float32)


def squares(scale: float) -> Callable[[Any, Any], Any]:
    return lambda made, truth: F.mse_loss(made / scale, truth / scale)


def explained(outputs: Outputs, truth: Array) -> float:
    """R2: the part of the truth's variance that is explained, the mean over channels."""
    error = np.square(first(outputs) - truth).mean(0)
    return float((1 - np.minimum(error / truth.var(0), 1e6)).mean())


def contrast(made: Any, truth: Any) -> Any:
    """Items of a class are to be near each other, as cosines."""
    unit = F.normalize(made, dim=-1)
    likeness = unit @ unit.T / 0.15 - 1e4 * torch.eye(len(unit))
    same = (truth[:, None] == truth[None]).float() - torch.eye(len(unit))
    return -(F.log_softmax(likeness, -1) * same).sum() / same.sum().clamp(min=1)


def retrieval(outputs: Outputs, truth: Array) -> float:
    """Of the ten nearest other items, by cosine, how many are of the same class."""
    e = first(outputs)
    e = e / np.maximum(np.linalg.norm(e, axis=-1, keepdims=True), 1e-9)
    near = np.argpartition(-(e @ e.T - 9 * np.eye(len(e))), 10, axis=-1)[:, :10]
    return float((truth[near] == truth[:, None]).mean())


REGRESSORS = {
    "poses": Net(
        "regression",
        lambda: nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3)),
        poses, squares(1), explained, 1200,
    ),
    "ages": Net(
        "regression",
        lambda: Named(
            nn.Sequential(conv(3, 12), conv(12, 24, 2), conv(24, 24, 2), Mean(), nn.Linear(24, 1)),
            lambda x: 50 + 30 * x,
        ),
        ages, squares(30), explained,
    ),
    "unit": Net(
        "regression",
        lambda: Named(
            nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), Mean(), nn.Linear(32, 24)),
            lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-9),
        ),
        textures(20, 3.5, 4), contrast, retrieval,
    ),
    "features": Net(
        "regression",
        lambda: nn.Sequential(conv(3, 16, 2), Shortcut(16), conv(16, 32, 2), Mean(), nn.Linear(32, 16)),
        textures(15, 3.5, 6), contrast, retrieval,
    ),
}  # fmt: skip


# --------------------------------------------------------------------------- sequences


@functools.cache
def chain(seed: int) -> Array:
    """Chances of the next word by the last two, [WORDS, WORDS, WORDS], cumulated."""
    chances = np.random.default_rng(seed).dirichlet(np.full(WORDS, 0.12), (WORDS, WORDS))
    return chances.cumsum(-1)


def text(seed: int, whole: bool) -> Draw:
    """Words of a second-order Markov chain [n, STEPS], and the words after them ([n] of the last, unless `whole`)."""

    def draw(random: np.random.Generator, n: int) -> tuple[Array, Array]:
        words = random.integers(0, WORDS, (n, STEPS + 1))
        u = random.random((n, STEPS + 1))
        for t in range(2, STEPS + 1):
            words[:, t] = (chain(seed)[words[:, t - 2], words[:, t - 1]] < u[:, t, None]).sum(-1).clip(0, WORDS - 1)
        return words[:, :-1], words[:, 1:] if whole else words[:, -1]

    return draw


def tags(random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Signals [n, 8, 32] of a state that changes now and then; truth: the state at each step, of 6."""
    shapes = np.random.default_rng(11).normal(size=(6, 8))
    moves = (random.random((n, 32)) < 0.15).cumsum(1)
    states = random.integers(0, 6, (n, 40))
    truth = np.take_along_axis(states, moves, 1)
    x = shapes[truth].transpose(0, 2, 1) + 1.1 * random.normal(size=(n, 8, 32))
    return x.astype(np.float32), truth


class Lstm(nn.Module):
    def __init__(self, whole: bool, width: int = 48) -> None:
        super().__init__()
        self.table, self.rnn = nn.Embedding(WORDS, 24), nn.LSTM(24, width, batch_first=True)
        self.head, self.whole = nn.Linear(width, WORDS), whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.rnn(self.table(x))[0]
        return self.head(seen if self.whole else seen[:, -1])


class Attention(nn.Module):
    """One layer of causal attention with two heads."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.width = width
        self.table, self.places = nn.Embedding(WORDS, width), nn.Parameter(torch.randn(STEPS, width) * 0.3)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))
        self.head = nn.Linear(width, WORDS)
        self.register_buffer("mask", torch.triu(torch.full((STEPS, STEPS), -1e4), 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.table(x) + self.places
        q, k, v = (
            p.reshape(-1, STEPS, 2, self.width // 2).transpose(1, 2) for p in self.qkv(self.norm1(x)).chunk(3, 2)
        )
        chances = torch.softmax(q @ k.transpose(2, 3) * (self.width // 2) ** -0.5 + self.mask, -1)
        x = x + self.out((chances @ v).transpose(1, 2).reshape(-1, STEPS, self.width))
        return self.head(x + self.mlp(self.norm2(x)))


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv1d(8, 24, 5, 1, 2), nn.ReLU(), nn.Conv1d(24, 24, 5, 1, 2), nn.ReLU())
        self.head = nn.Conv1d(24, 6, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)).transpose(1, 2).contiguous()


def perplexity(outputs: Outputs, truth: Array) -> float:
    x = np.asarray(next(iter(outputs.values())), np.float64)
    if not np.isfinite(x).all():
        return float("inf")
    x = x - x.max(-1, keepdims=True)
    own = np.take_along_axis(x, truth[..., None], -1)[..., 0]
    return float(np.exp((np.log(np.exp(x).sum(-1)) - own).mean()))


SEQUENCES = {
    "lstm": Net("sequence", lambda: Lstm(True), text(1, True), entropy, perplexity, 900, True, 20_000),
    "attention": Net("sequence", Attention, text(2, True), entropy, perplexity, 800, True, 20_000),
    "lastword": Net("sequence", lambda: Lstm(False), text(3, False), entropy, top1, 1500, items=60_000),
    "tags": Net("sequence", Tagger, tags, entropy, top1, 400),
}

NETS: dict[str, Net] = {**CLASSIFIERS, **DETECTORS, **SEGMENTERS, **REGRESSORS, **SEQUENCES}


# --------------------------------------------------------------------------- training


def train(name: str, folder: Path, nets: Mapping[str, Net] = NETS) -> None:
    """Trains a net, seeded, and keeps its weights; what is there already stays."""
    file = folder / f"{name}.pt"
    if file.exists():
        return
    net = nets[name]
    torch.manual_seed(sum(map(ord, name)))
    module, random = net.build(), np.random.default_rng(0)
    body = Grid(module) if isinstance(module, Detector) else module
    optimizer = torch.optim.Adam(module.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 6e-3, net.steps)
    inputs, truth = (torch.from_numpy(a) for a in net.draw(random, net.items))
    for _ in range(net.steps):
        some = torch.from_numpy(random.integers(0, len(inputs), 96))
        optimizer.zero_grad()
        net.loss(body(inputs[some]), truth[some]).backward()
        optimizer.step()
        schedule.step()
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(module.state_dict(), file)


class Grid(nn.Module):
    """A detector before its form: what it learns from."""

    def __init__(self, whole: Detector) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.whole.head(self.whole.body(x)).flatten(2).transpose(1, 2)


def trained(name: str, nets: Mapping[str, Net] = NETS) -> nn.Module:
    """The net with its weights."""
    module = nets[name].build()
    module.load_state_dict(torch.load(Path(os.environ["DAMAGE_WEIGHTS"]) / f"{name}.pt", weights_only=True))
    return module.eval()


for _name in NETS:  # a factory each, as sources name them: damage_nets:net_cnn
    globals()[f"net_{_name}"] = functools.partial(trained, _name)
