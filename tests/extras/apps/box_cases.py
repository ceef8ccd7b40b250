"""Outputs of detectors, random, however they are written, and the boxes that Python reads in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from edgecompress.core.settings import Preprocess
from edgecompress.data import detection_layout, source_probabilities

Array = np.ndarray[Any, np.dtype[Any]]
FORMATS = ("xyxy", "yxyx", "xywh", "cxcywh")
KINDS = ("shares", "logit", "logits", "probabilities", "log-probabilities")


@dataclasses.dataclass(frozen=True)
class Outputs:
    """Outputs, one behind the other as float32, and [boxes, 6] of them, flat: class, score, x1, y1, x2, y2."""

    how: dict[str, Any]  # of a card's postprocess
    outputs: list[dict[str, Any]]  # name and shape of each
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
    how = {
        "boxes": {"name": own[0], "axis": axes[own[0]], "first": 0, "end": 4},
        "scores": {"name": own[1], "axis": axes[own[1]], "first": first, "end": first + classes},
        "classes": kinds,
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
    return Outputs(
        how={**how, "size": size},
        outputs=[{"name": name, "shape": list(x.shape)} for name, x in given.items()],
        given=b"".join(x.astype("<f4").tobytes() for x in given.values()),
        picture=picture,
        declared=dataclasses.asdict(declared),
        wanted=np.concatenate([placed.classes[:, None], placed.scores[:, None], placed.corners], -1).reshape(-1),
    )
