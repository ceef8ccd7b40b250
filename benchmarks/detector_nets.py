"""Small detectors of things in noise: with anchors and without, of one class and of several, of faces and their points.

`NETS[name]`, `train` and `net_NAME` are as in damage_nets.py. Items are pictures of 64 x 64 pixels with up to four
things on them, 7 to 26 pixels wide, of a class that shape and colour tell, and clutter that is none.
"""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from damage_nets import Net, Outputs, conv, trained
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from torch import nn
from torch.nn import functional as F

Array = Any  # numpy's

SIZE, MOST, MOST_FOUND = 64, 4, 30
COLOURS = np.array([[1.3, 0.5, 0.2], [0.2, 1.2, 0.6], [0.5, 0.3, 1.3]])
EITHER = 255  # a label of places that may be background or a thing


# --------------------------------------------------------------------------- pictures


def shape(kind: int, box: Array) -> Array:
    """Where a thing is, [64, 64]: a rectangle, an ellipse, or a frame."""
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    u, v = (2 * x - box[0] - box[2]) / (box[2] - box[0]), (2 * y - box[1] - box[3]) / (box[3] - box[1])
    inside = np.maximum(abs(u), abs(v)) <= 1
    return [inside, u * u + v * v <= 1, inside & (np.maximum(abs(u), abs(v)) > 0.5)][kind]


def scenes(classes: int, random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Pictures [n, 3, 64, 64]; truth [n, 4, 5]: class, x1, y1, x2, y2, padded with the class -1."""
    images = random.normal(0, 0.35, (n, 3, SIZE, SIZE))
    truth = np.full((n, MOST, 5), -1, np.float32)
    for i in range(n):
        for k in range(random.integers(0, MOST + 1)):
            side = np.exp(random.uniform(np.log(7), np.log(26))) * np.exp([0.25, -0.25] * random.uniform(-1, 1, 2))
            low = random.uniform(0, SIZE - side)
            box = np.concatenate([low, low + side])
            if all(overlaps(box, truth[i, :k, 1:]) < 0.05):
                kind = int(random.integers(classes))
                truth[i, k] = kind, *box
                images[i] += shape(kind, box) * COLOURS[kind][:, None, None] * random.uniform(0.6, 1.4)
        at = random.uniform(0, SIZE, 2)
        low = random.uniform(3, 9, 2)
        images[i] += shape(1, np.concatenate([at - low, at + low])) * random.uniform(0, 0.5)
    return images.astype(np.float32), truth


def overlaps(box: Array, others: Array) -> Array:
    """IoU of one box with others [k, 4], as corners."""
    inside = np.clip(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0, None).prod(-1)
    areas = np.clip(others[:, 2:] - others[:, :2], 0, None).prod(-1)
    return inside / ((box[2:] - box[:2]).prod() + areas - inside)


# --------------------------------------------------------------------------- places


def squares(stride: int, sides: tuple[float, ...]) -> Array:
    """Anchors of a grid, [cells * sides, 4] as corners: a square of each side at each cell's middle."""
    at = (np.arange(SIZE // stride) + 0.5) * stride
    middles = np.stack(np.meshgrid(at, at), -1).reshape(-1, 1, 2)
    half = np.array(sides).reshape(1, -1, 1) / 2
    return np.concatenate([middles - half, middles + half], -1).reshape(-1, 4).astype(np.float32)


def near_things(anchors: Array, truth: Array) -> tuple[Array, Array]:
    """By anchor the class and the box to learn: IoU of 0.5 and more, and the best of each thing; from 0.35 nothing."""
    classes, boxes = np.zeros((len(truth), len(anchors)), np.int64), np.zeros((len(truth), len(anchors), 4), np.float32)
    for i, item in enumerate(truth):
        things = item[item[:, 0] >= 0]
        near = np.stack([overlaps(t[1:], anchors) for t in things]) if len(things) else np.zeros((1, len(anchors)))
        near[np.arange(len(near)), near.argmax(1)] += len(things) > 0
        best, most = near.argmax(0), near.max(0)
        found = most >= 0.5
        classes[i] = np.where(found, 1, np.where(most >= 0.35, EITHER, 0))
        if len(things):
            classes[i][found] = 1 + things[best[found], 0]
            boxes[i][found] = things[best[found], 1:]
    return classes, boxes


def in_the_middle(places: Array, truth: Array) -> tuple[Array, Array]:
    """By place the class and the box to learn: of the smallest thing in whose inner half it is; near that nothing."""
    middles = (places[:, :2] + places[:, 2:]) / 2
    classes, boxes = np.zeros((len(truth), len(places)), np.int64), np.zeros((len(truth), len(places), 4), np.float32)
    for i, item in enumerate(truth):
        things = sorted(item[item[:, 0] >= 0].tolist(), key=lambda t: -(t[3] - t[1]) * (t[4] - t[2]))
        for kind, *box in things:
            low, high = np.array(box[:2]), np.array(box[2:])
            far = (np.abs(2 * middles - low - high) / (high - low)).max(-1)
            inner = far <= max(0.4, far.min())
            classes[i][(far <= 0.7) & (classes[i] == 0)] = EITHER
            classes[i][inner], boxes[i][inner] = 1 + kind, box
    return classes, boxes


# --------------------------------------------------------------------------- nets


def head(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(conv(inputs, 32), nn.Conv2d(32, outputs, 1))


class Detector(nn.Module):
    """Features at strides of 4, 8 and 16. In training what it learns from: logits of classes, and corners in pixels."""

    def __init__(self, classes: int, anchors: Array) -> None:
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(conv(3, 16, 2), conv(16, 24, 2), conv(24, 24))
        self.deep = nn.Sequential(conv(24, 32, 2), conv(32, 32))
        self.register_buffer("anchors", torch.from_numpy(anchors))

    def rows(self, made: torch.Tensor) -> torch.Tensor:
        """[n, anchors of a grid, classes + 4]"""
        return made.permute(0, 2, 3, 1).reshape(len(made), -1, self.classes + 4)


class Anchors(Detector):
    """Anchors of three sizes at two strides; a softmax over background and three classes; corners from 0 to 1."""

    def __init__(self) -> None:
        grids = squares(8, (8.0, 13.0)), squares(16, (21.0,))
        super().__init__(4, np.concatenate(grids))
        self.near = head(32, 2 * 8)
        self.deeper = conv(32, 32, 2)
        self.far = head(32, 8)

    def forward(self, x: torch.Tensor) -> Any:
        x = self.deep(self.stem(x))
        made = torch.cat([self.rows(self.near(x)), self.rows(self.far(self.deeper(x)))], 1)
        logits, code = made[..., :4], made[..., 4:]
        size = self.anchors[:, 2:] - self.anchors[:, :2]
        middle = (self.anchors[:, 2:] + self.anchors[:, :2]) / 2 + 0.1 * code[..., :2] * size
        half = torch.exp(0.2 * code[..., 2:]) * size / 2
        boxes = torch.cat([middle - half, middle + half], -1)
        return (logits, boxes) if self.training else {"scores": torch.softmax(logits, -1), "boxes": boxes / SIZE}


class Distances(Detector):
    """Per place of a grid the distances to four sides, of one class; corners in pixels and a probability."""

    def __init__(self) -> None:
        super().__init__(1, squares(4, (4.0,)))
        self.up, self.head = conv(56, 32), head(32, 5)

    def forward(self, x: torch.Tensor) -> Any:
        fine = self.stem(x)
        coarse = F.interpolate(self.deep(fine), scale_factor=2.0, mode="nearest")
        made = self.rows(self.head(self.up(torch.cat([fine, coarse], 1))))
        middle, sides = (self.anchors[:, :2] + self.anchors[:, 2:]) / 2, F.softplus(made[..., 1:]) * 8
        boxes = torch.cat([middle - sides[..., :2], middle + sides[..., 2:]], -1)
        return (made[..., :1], boxes) if self.training else {"boxes": boxes, "scores": torch.sigmoid(made[..., 0])}


class Joined(Detector):
    """Per place middle and size in pixels with a probability of each of three classes, in one output [n, 7, places]."""

    def __init__(self) -> None:
        super().__init__(3, squares(4, (8.0,)))
        self.up, self.head = conv(56, 32), head(32, 7)

    def forward(self, x: torch.Tensor) -> Any:
        fine = self.stem(x)
        coarse = F.interpolate(self.deep(fine), scale_factor=2.0, mode="nearest")
        made = self.rows(self.head(self.up(torch.cat([fine, coarse], 1))))
        middle = (self.anchors[:, :2] + self.anchors[:, 2:]) / 2 + 4 * made[..., 3:5]
        size = 12 * torch.exp(made[..., 5:])
        if self.training:
            return made[..., :3], torch.cat([middle - size / 2, middle + size / 2], -1)
        return {"found": torch.cat([middle, size, torch.sigmoid(made[..., :3])], -1).transpose(1, 2)}


class Raw(Anchors):
    """The same without decoding: offsets to anchors, and logits of background and three classes."""

    def forward(self, x: torch.Tensor) -> Any:
        x = self.deep(self.stem(x))
        made = torch.cat([self.rows(self.near(x)), self.rows(self.far(self.deeper(x)))], 1)
        return {"loc": made[..., 4:], "conf": made[..., :4]}


class Heat(Detector):
    """Heat maps of three classes with a peak at each middle; sizes in cells of 4 pixels, offsets in them."""

    def __init__(self) -> None:
        super().__init__(3, squares(4, (4.0,)))
        self.up, self.heat, self.size, self.offset = conv(56, 48), head(48, 3), head(48, 2), head(48, 2)
        nn.init.constant_(self.heat[1].bias, -3.0)

    def forward(self, x: torch.Tensor) -> Any:
        fine = self.stem(x)
        coarse = F.interpolate(self.deep(fine), scale_factor=2.0, mode="nearest")
        x = self.up(torch.cat([fine, coarse], 1))
        return {"hm": self.heat(x), "wh": F.relu(self.size(x)), "reg": self.offset(x)}


class Faces(Detector):
    """Anchors of three sizes as SSD's, undecoded, of faces and their five points (as RetinaFace's)."""

    def __init__(self) -> None:
        grids = squares(4, (10.0, 15.0)), squares(8, (22.0,))
        super().__init__(12, np.concatenate(grids))  # 2 classes, 4 numbers of a box, 10 of points
        self.up = conv(56, 32)
        self.near, self.far = head(32, 2 * 16), head(32, 16)

    def forward(self, x: torch.Tensor) -> Any:
        fine = self.stem(x)
        deep = self.deep(fine)
        x = self.up(torch.cat([fine, F.interpolate(deep, scale_factor=2.0, mode="nearest")], 1))
        made = torch.cat([self.rows(self.near(x)), self.rows(self.far(deep))], 1)
        return {"loc": made[..., 2:6], "conf": made[..., :2], "landms": made[..., 6:]}


POINTS = np.array([[0.3, 0.35], [0.7, 0.35], [0.5, 0.55], [0.35, 0.78], [0.65, 0.78]])  # of a face, in its box


def faces(random: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Pictures [n, 3, 64, 64]; truth [n, 4, 20]: class 0, the box, and x, y, visible of five points."""
    images = random.normal(0, 0.25, (n, 3, SIZE, SIZE))
    truth = np.full((n, MOST, 20), -1, np.float32)
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5
    for i in range(n):
        for k in range(random.integers(0, MOST)):
            side = np.exp(random.uniform(np.log(10), np.log(26))) * np.array([1.0, random.uniform(1.0, 1.3)])
            low = random.uniform(0, SIZE - side)
            box = np.concatenate([low, low + side])
            if not all(overlaps(box, truth[i, :k, 1:5]) < 0.05):
                continue
            places = low + side * (POINTS + random.normal(0, 0.03, POINTS.shape))
            visible = np.concatenate([places, np.full((5, 1), 2.0)], -1)
            truth[i, k] = 0, *box, *visible.reshape(-1)
            images[i] += shape(1, box) * np.array([1.4, 1.0, 0.7])[:, None, None] * random.uniform(0.7, 1.3)
            for px, py in places:
                images[i] -= 1.6 * np.exp(-((x - px) ** 2 + (y - py) ** 2) / (0.004 * side[0] ** 2 + 0.5))
        at, low = random.uniform(0, SIZE, 2), random.uniform(3, 9, 2)
        images[i] += shape(0, np.concatenate([at - low, at + low])) * random.uniform(0, 0.8)
    return images.astype(np.float32), truth


def face_loss(anchors: Array) -> Callable[[Any, Any], Any]:
    """Cross entropy of the anchors that are certain, and the smooth L1 distance of boxes and points to their code."""
    size, middle = anchors[:, 2:] - anchors[:, :2], (anchors[:, :2] + anchors[:, 2:]) / 2

    def loss(made: Any, truth: Any) -> Any:
        truth = truth.numpy()
        classes, boxes = near_things(anchors, truth[..., :5])
        points = np.zeros((*classes.shape, 10), np.float32)
        for i, item in enumerate(truth):
            for thing in item[item[:, 0] >= 0]:
                own = (boxes[i] == thing[1:5]).all(-1)
                places = thing[5:].reshape(5, 3)[:, :2]
                points[i, own] = ((places - middle[own][:, None]) / (0.1 * size[own][:, None])).reshape(-1, 10)
        there, certain = (classes > 0) & (classes != EITHER), classes != EITHER
        log = np.log(np.maximum(boxes[..., 2:] - boxes[..., :2], 1e-3) / size) / 0.2
        code = np.concatenate([((boxes[..., :2] + boxes[..., 2:]) / 2 - middle) / (0.1 * size), log], -1)
        wanted = [torch.from_numpy(a[there].astype(np.float32)) for a in (code, points)]
        at, kept = torch.from_numpy(there), torch.from_numpy(certain)
        count = at.sum().clamp(min=1)
        scores = F.cross_entropy(made["conf"][kept], torch.from_numpy(classes)[kept], reduction="sum")
        boxes_off, points_off = (
            F.smooth_l1_loss(made[name][at], w, reduction="sum")
            for name, w in zip(("loc", "landms"), wanted, strict=True)
        )
        return (scores + boxes_off + 0.4 * points_off) / count

    return loss


def heat_loss(made: Any, truth: Any) -> Any:
    """The focal loss of the heat maps, and the distances of sizes and offsets at the middles (Zhou et al., 2019)."""
    things, cells = truth.numpy(), SIZE // 4
    heat = np.zeros((len(things), 3, cells, cells), np.float32)
    at = []
    y, x = np.mgrid[:cells, :cells]
    for i, item in enumerate(things):
        for kind, x1, y1, x2, y2 in item[item[:, 0] >= 0]:
            cx, cy, w, h = (x1 + x2) / 8, (y1 + y2) / 8, (x2 - x1) / 4, (y2 - y1) / 4
            spread = max(0.4, min(w, h) / 6)
            px, py = min(cells - 1, int(cx)), min(cells - 1, int(cy))
            bump = np.exp(-((x - px) ** 2 + (y - py) ** 2) / (2 * spread**2))
            heat[i, int(kind)] = np.maximum(heat[i, int(kind)], bump)
            at.append((i, py, px, w, h, cx - px, cy - py))
    target, p = torch.from_numpy(heat), made["hm"].sigmoid().clamp(1e-5, 1 - 1e-5)
    peak = target == 1
    positive = ((1 - p) ** 2 * p.log())[peak].sum()
    negative = ((1 - target) ** 4 * p**2 * (1 - p).log())[~peak].sum()
    count = max(1, len(at))
    if not at:
        return -negative
    told = torch.tensor(at, dtype=torch.float32)
    i, py, px = told[:, :3].long().unbind(1)
    size = (made["wh"][i, :, py, px] - told[:, 3:5]).abs().sum()
    offset = (made["reg"][i, :, py, px] - told[:, 5:]).abs().sum()
    return (-positive - negative + 0.3 * size + offset) / count


# --------------------------------------------------------------------------- what they learn, and what they find


def learned(targets: Callable[[Array, Array], tuple[Array, Array]], anchors: Array) -> Callable[[Any, Any], Any]:
    """Cross entropy at all places that are certain, and 1 - IoU where things are."""

    def loss(made: Any, truth: Any) -> Any:
        logits, boxes = made
        classes, corners = (torch.from_numpy(a) for a in targets(anchors, truth.numpy()))
        there, certain = (classes > 0) & (classes != EITHER), classes != EITHER
        count = there.sum().clamp(min=1)
        if logits.shape[-1] == 4:
            scores = F.cross_entropy(logits[certain], classes[certain], reduction="sum")
        else:
            each = F.one_hot(classes.clamp(max=logits.shape[-1]), logits.shape[-1] + 1)[..., 1:].float()
            scores = F.binary_cross_entropy_with_logits(logits[certain], each[certain], reduction="sum")
        return scores / count + 2 * (1 - shared(boxes[there], corners[there])).sum() / count

    return loss


def shared(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """The IoU of each pair of boxes, as corners."""
    low, high = torch.maximum(ours[:, :2], theirs[:, :2]), torch.minimum(ours[:, 2:], theirs[:, 2:])
    inside = (high - low).clamp(min=0).prod(-1)
    areas = sum((each[:, 2:] - each[:, :2]).clamp(min=0).prod(-1) for each in (ours, theirs))
    return inside / (areas - inside)


def corners(name: str, outputs: Outputs) -> tuple[Array, Array]:
    """Boxes [n, places, 4] as corners in pixels, and what each class scores, [n, places, classes]."""
    o = {k: np.nan_to_num(np.asarray(v, np.float64)) for k, v in outputs.items()}
    if name == "anchors":
        return o["boxes"] * SIZE, o["scores"][..., 1:]
    if name == "distances":
        return o["boxes"], o["scores"][..., None]
    middle, half = o["found"][:, :2], o["found"][:, 2:4] / 2
    return np.concatenate([middle - half, middle + half], 1).transpose(0, 2, 1), o["found"][:, 4:].transpose(0, 2, 1)


def found(name: str, outputs: Outputs, least: float) -> Array:
    """[n, MOST_FOUND, 6]: corners, score, class of what scores `least` or more, after suppression; padded with 0."""
    rows = np.zeros((len(next(iter(outputs.values()))), MOST_FOUND, 6))
    for i, (boxes, scores) in enumerate(zip(*corners(name, outputs), strict=True)):
        best, kind, kept = scores.max(-1), scores.argmax(-1), list[int]()
        for place in (int(p) for p in np.argsort(-best, kind="stable") if best[p] >= least):
            same = [k for k in kept if kind[k] == kind[place]]
            if not same or overlaps(boxes[place], boxes[same]).max() <= 0.5:
                kept.append(place)
        kept = kept[:MOST_FOUND]
        rows[i, : len(kept)] = np.concatenate([boxes[kept], best[kept][:, None], kind[kept][:, None]], -1)
    return rows


def as_truth(name: str, outputs: Outputs) -> Array:
    """What is found with a score of 0.5 or more, as labels: [n, MOST_FOUND, 5]."""
    rows = found(name, outputs, 0.5)
    return np.concatenate([np.where(rows[..., 4:5] > 0, rows[..., 5:], -1), rows[..., :4]], -1)


def precision(name: str) -> Callable[[Outputs, Array], float]:
    """COCO's mean average precision over IoU 0.5 to 0.95, by pycocotools; truth [n, most, 5]."""

    def metric(outputs: Outputs, truth: Array) -> float:
        images, things = np.nonzero(truth[..., 0] >= 0)
        boxes = [
            (i + 1, int(c) + 1, x, y, u - x, v - y)
            for i, (c, x, y, u, v) in zip(images, truth[images, things], strict=True)
        ]
        real, rows = COCO(), found(name, outputs, 0.05)
        real.dataset = {
            "images": [{"id": i + 1} for i in range(len(truth))],
            "categories": [{"id": c} for c in sorted({c for _, c, *_ in boxes})],
            "annotations": [
                {"id": k + 1, "image_id": i, "category_id": c, "iscrowd": 0, "bbox": box, "area": box[2] * box[3]}
                for k, (i, c, *box) in enumerate(boxes)
            ],
        }
        at, best = np.nonzero(rows[..., 4])
        if not len(at):
            return 0.0
        x, y, u, v, score, kind = rows[at, best].T
        with contextlib.redirect_stdout(io.StringIO()):
            real.createIndex()
            judge = COCOeval(real, real.loadRes(np.stack([at + 1, x, y, u - x, v - y, score, kind + 1], 1)), "bbox")
            judge.evaluate()
            judge.accumulate()
            judge.summarize()
        return float(judge.stats[0])

    return metric


def detector(name: str, build: type[Detector], classes: int, targets: Any) -> Net:
    loss = learned(targets, build().anchors.numpy())
    return Net("detection", build, functools.partial(scenes, classes), loss, precision(name), 1200)


NETS: dict[str, Net] = {
    "anchors": detector("anchors", Anchors, 3, near_things),
    "distances": detector("distances", Distances, 1, in_the_middle),
    "joined": detector("joined", Joined, 3, in_the_middle),
}


class SetOfBoxes(nn.Module):
    """As DETR: a transformer over the cells of a picture and 20 queries, each a box or nothing. Untrained."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(conv(3, 16, 2), conv(16, 32, 2), conv(32, 32, 2))
        self.places = nn.Parameter(torch.randn(1, 64, 32))
        self.queries = nn.Parameter(torch.randn(1, 20, 32))
        self.encoder = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.decoder = nn.TransformerDecoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
        self.classes, self.boxes = nn.Linear(32, 4), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        cells = self.encoder(self.body(x).flatten(2).transpose(1, 2) + self.places)
        found = self.decoder(self.queries.expand(x.shape[0], -1, -1), cells)
        return {"logits": self.classes(found), "boxes": self.boxes(found).sigmoid()}


class Instances(Joined):
    """Boxes, and of each the weights of eight masks [n, 8, 16, 16], of which its own is made (YOLACT). Untrained."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__()
        self.masks, self.weights = head(32, 8), head(32, 8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        fine = self.stem(x)
        coarse = F.interpolate(self.deep(fine), scale_factor=2.0, mode="nearest")
        up = self.up(torch.cat([fine, coarse], 1))
        found = super().forward(x)["found"].transpose(1, 2)
        weights = torch.tanh(self.weights(up)).flatten(2).transpose(1, 2)
        parts = {"boxes": found[..., :4], "scores": found[..., 4:], "weights": weights}
        return {**parts, "masks": torch.relu(self.masks(up))}


UNTRAINED: dict[str, type[nn.Module]] = {"set": SetOfBoxes, "instances": Instances}

# Their boxes are made by the deploy, which judges them: benchmarks/detector_cells.py.
HEADS: dict[str, Net] = {
    "heat": Net("detection", Heat, functools.partial(scenes, 3), heat_loss, None, 1600),
    "faces": Net("detection", Faces, faces, face_loss(Faces().anchors.numpy()), None, 1200),
}

for _name in NETS:
    globals()[f"net_{_name}"] = functools.partial(trained, _name, NETS)
