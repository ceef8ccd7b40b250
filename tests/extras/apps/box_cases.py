"""Outputs of detectors and of segmentation nets, random, however they are written, and what Python reads in them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgecompress.core.settings import Preprocess
from edgecompress.data import detection_layout, segments, source_probabilities

Array = np.ndarray[Any, np.dtype[Any]]
FORMATS = ("xyxy", "yxyx", "xywh", "cxcywh")
KINDS = ("shares", "logit", "logits", "probabilities", "log-probabilities")


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Outputs, one behind the other as float32, and of each box of them, flat: class, score, x1, y1, x2, y2, points."""

    how: dict[str, Any]  # of a card's postprocess
    outputs: list[dict[str, Any]]  # name and shape of each
    given: bytes
    picture: tuple[int, int] | None
    declared: dict[str, Any]
    wanted: Array

    @property
    def count(self) -> int:
        """How many boxes are wanted."""
        points = self.how["points"]
        return len(self.wanted) // (6 + (points["end"] - points["first"] if points else 0))


@dataclasses.dataclass(frozen=True)
class Regions:
    """An output, float32, and the class of each pixel of the picture; without a picture that of each cell."""

    how: dict[str, Any]  # of a card's postprocess
    shape: list[int]
    given: bytes
    picture: tuple[int, int] | None
    declared: dict[str, Any]
    wanted: Array


def cases() -> Iterator[tuple[str, Outputs]]:
    """Ties, nothing, one class, all overlapping, 10,000 candidates."""
    random = np.random.default_rng(8)
    for i in range(1000):
        yield f"boxes-{i}", outputs(random, int(random.choice([1, 2, 20, 200])), whole=i % 7 == 0)
    for i in range(3):
        yield f"boxes-many-{i}", outputs(random, 10_000, whole=False)


def outputs(random: np.random.Generator, places: int, whole: bool) -> Outputs:
    """`whole`: boxes are in pixels of the input."""
    kind = str(random.choice(KINDS))
    chosen = kind in source_probabilities.CLASSES
    classes = int(random.integers(2 if chosen else 1, 9))
    logits = random.normal(0, 4, (places, classes))
    if random.random() < 0.3:
        logits = np.round(logits)  # ties
    if random.random() < 0.1 and not chosen:
        logits -= 100.0  # nothing is found
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    each = powers / powers.sum(-1, keepdims=True)
    told = {"shares": 1 / (1 + np.exp(-logits)), "probabilities": each, "log-probabilities": np.log(each)}
    side, written = float(random.choice([1.0, 320.0])), str(random.choice(FORMATS))
    low = random.uniform(0, side * random.choice([0.01, 0.8]), (places, 2))  # of those nearly all overlap
    high = low + random.uniform(0, side * 0.3, (places, 2)) * (random.random((places, 1)) > 0.05)  # some are empty
    forms = {"xywh": (low, high - low), "cxcywh": ((low + high) / 2, high - low)}
    parts = {"boxes": np.concatenate(forms.get(written, (low, high)), -1), "scores": told.get(kind, logits)}
    own, first = ("boxes", "scores"), 0
    if random.integers(2):
        parts, own, first = {"y": np.concatenate([*parts.values()], -1)}, ("y", "y"), 4
    axes = {name: int(random.integers(1, 3)) for name in parts}
    given = {name: np.float32(x[None] if axes[name] == 2 else x.T[None]) for name, x in parts.items()}
    kinds = {"name": "kinds", "axis": 2, "first": 0, "end": 1} if random.random() < 0.2 else None
    if kinds:
        given["kinds"] = random.integers(0, 9, (1, places)).astype(np.float32)
    marks, point = None, int(random.choice([2, 3]))
    if random.random() < 0.4:
        given, marks = with_points(random, given, random.uniform(-0.2 * side, 1.2 * side, (places, 5 * point)), axes)
    how = {
        "boxes": {"name": own[0], "axis": axes[own[0]], "first": 0, "end": 4},
        "scores": {"name": own[1], "axis": axes[own[1]], "first": first, "end": first + classes},
        "classes": kinds,
        "points": marks,
        "point": point,
        "kind": kind,
        "background": int(random.choice([0, classes - 1])) if chosen else None,
        "anything": kind == "shares" and classes > 1 and bool(random.random() < 0.3),
        "listed": bool(random.random() < 0.2),
        "format": written,
        "unit": "shares" if side == 1 else "pixels",
        "least": float(random.choice([0.05, 0.5])),
        "overlap": float(random.choice([0.3, 0.5, 0.7])),
    }
    fit = str(random.choice(["shorter", "stretch", "letterbox"]))
    crop = 300 if fit == "shorter" and random.integers(2) else None
    declared = Preprocess(resize=320, fit=fit, crop=crop, layout="NCHW")  # type: ignore[arg-type]
    height, width = (int(n) for n in random.integers(40, 900, 2))
    picture, size = None if whole else (height, width), [crop or 320] * 2
    layout = detection_layout.Layout.read(how)
    found = next(layout.found(given, slice(0, 1), layout.least))
    placed = detection_layout.in_picture(found, layout, size, picture, declared)
    points = placed.points.reshape(len(placed.scores), math.prod(placed.points.shape[1:]))
    each_box = (placed.classes[:, None], placed.scores[:, None], placed.corners, points)
    return Outputs(
        how={**how, "size": size},
        outputs=[{"name": name, "shape": list(x.shape)} for name, x in given.items()],
        given=b"".join(x.astype("<f4").tobytes() for x in given.values()),
        picture=picture,
        declared=dataclasses.asdict(declared),
        wanted=np.concatenate(each_box, -1).reshape(-1),
    )


def with_points(
    random: np.random.Generator, given: dict[str, Array], points: Array, axes: dict[str, int]
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Key points [places, numbers], as an output of their own, or at the end of that of boxes and scores."""
    name = "y" if "y" in given and random.integers(2) else "points"
    axis = axes.get(name, int(random.integers(1, 3)))
    told = np.float32(points[None] if axis == 2 else points.T[None])
    joined = np.concatenate([given[name], told], axis) if name in given else told
    end = joined.shape[axis]
    return {**given, name: joined}, {"name": name, "axis": axis, "first": end - points.shape[1], "end": end}


# --------------------------------------------------------------------------- the class of each pixel


def region_cases() -> Iterator[tuple[str, Regions]]:
    """Of each way to tell it: ties, cells larger and smaller than pixels, and what the model did not see."""
    random = np.random.default_rng(9)
    for i in range(200):
        yield f"regions-{i}", regions(random, whole=i % 9 == 0)


def regions(random: np.random.Generator, whole: bool) -> Regions:
    """`whole`: no picture is given."""
    fit = str(random.choice(["shorter", "stretch", "letterbox"]))
    crop = int(random.choice([41, 64])) if fit == "shorter" else None
    declared = Preprocess(resize=64, fit=fit, crop=crop, layout="NCHW")  # type: ignore[arg-type]
    size = crop or 64
    high, wide = (int(n) for n in random.choice([1, 5, size // 4, size, 2 * size], 2))
    axis, classes = random.choice([1, 3, None]), int(random.choice([1, 2, 5, 300], p=[0.4, 0.2, 0.35, 0.05]))
    single: segments.Single = ""
    if axis is None:
        output = random.choice([-1.0, 0.0, 0.5, 1.5, 2.0, 7.0, 254.0, 255.0, 1e9, np.nan], (1, high, wide))
    else:
        output = random.normal(0, 2, (1, classes, high, wide))
        if random.integers(2):
            output = np.round(output)  # ties
        if classes == 1:
            single = "probability" if random.integers(2) else "logit"
            output = output / 4 + 0.5 if single == "probability" else output
        output = output if axis == 1 else np.moveaxis(output, 1, 3)
    given = output.astype("<f4")
    picture = None if whole else (int(random.integers(20, 200)), int(random.integers(20, 200)))
    cells = segments.regions(given, axis, single)
    return Regions(
        how={"axis": axis, "single": single, "size": [size, size]},
        shape=list(given.shape),
        given=given.tobytes(),
        picture=picture,
        declared=dataclasses.asdict(declared),
        wanted=segments.in_picture(cells, (size, size), picture, declared) if picture else cells,
    )
