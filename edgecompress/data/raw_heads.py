"""Outputs that look like a detector's raw head, by their shapes: what to declare in the source, as a proposal."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence

GRIDS = (4, 8, 16, 32, 64, 128)  # strides
USUAL_BINS = (16, 8)  # of YOLOv8 and NanoDet
SIDES, POINTS = 4, 10  # numbers of a box; of five key points, as of a face
ANCHORS = 3  # of each cell of a YOLO
MOST_CLASSES = 100  # of a head whose classes nobody tells: COCO has 80, feature maps have more channels
OFFSETS = re.compile("reg|off", re.IGNORECASE)


def proposal(shapes: Mapping[str, Sequence[int]], picture: tuple[int, int]) -> str:
    """The table [decode] of TOML that would make boxes of outputs of these shapes, batch first; "" where none does.

    `picture`: height and width of the input. Anchors are left to fill in.
    """
    grids: dict[int, list[str]] = {}
    for name, shape in shapes.items():
        if len(shape) in (4, 5) and (stride := _stride(shape[2:4], picture)):
            grids.setdefault(stride, []).append(name)
    by_grid = [grids[stride] for stride in sorted(grids)]
    # of [n, anchors, h, w, numbers] as many as before the plane
    channels = [[s[1] * s[4] if len(s := shapes[name]) == 5 else s[1] for name in names] for names in by_grid]
    if len(by_grid) == 1:
        return _heat_map(by_grid[0], channels[0])
    if len(by_grid) > 1:
        return _grids(by_grid, channels) if all(each == channels[0] for each in channels) else ""
    return _anchors(shapes, picture)


def _stride(plane: Sequence[int], picture: tuple[int, int]) -> int:
    """0: it is no grid of the picture."""
    fits = (s for s in GRIDS if [*plane] == [math.ceil(picture[0] / s), math.ceil(picture[1] / s)])
    return next(fits, 0)


def _table(head: str, **names: Sequence[str]) -> str:
    lines = [f"{key} = {json.dumps(each)}" for key, each in names.items() if each]
    return "\n".join(["[decode]", f'head = "{head}"', *lines])


def _heat_map(names: Sequence[str], channels: Sequence[int]) -> str:
    """CenterNet's: classes, and beside them two numbers of the size, two of the offset."""
    pairs = [name for name, count in zip(names, channels, strict=True) if count == 2]
    heat = [name for name in names if name not in pairs][:1]
    if len(pairs) == 3 and not heat:  # two classes
        heat, pairs = pairs[:1], pairs[1:]
    if not heat or len(pairs) not in (1, 2):
        return ""
    offsets = [name for name in pairs if OFFSETS.search(name)][:1] or pairs[1:]
    sizes = [name for name in pairs if name not in offsets]
    return _table("centernet", boxes=sizes, scores=heat, offsets=offsets) if sizes else ""


def _grids(names: Sequence[Sequence[str]], channels: Sequence[Sequence[int]]) -> str:
    """One output of each grid, or one of boxes beside one of scores."""
    if len(names[0]) == 1:
        count = channels[0][0]
        boxes = [each[0] for each in names]
        bins = next((b for b in USUAL_BINS if count - SIDES * b in range(1, MOST_CLASSES)), 0)
        if bins:
            more = "" if bins == USUAL_BINS[0] else f"\nbins = {bins}"
            return _table("dfl", boxes=boxes) + more
        each = count // ANCHORS
        if count % ANCHORS == 0 and _after_box(each):
            return _table("yolov5", boxes=boxes) + "\nanchors = [[[10, 13], ...], ...] # of each grid, in pixels"
        return _table("yolox", boxes=boxes) if _after_box(count) else ""
    if len(names[0]) == 2:
        usual = (*(SIDES * bins for bins in USUAL_BINS), SIDES)
        first = next((i for i in (0, 1) if channels[0][i] in usual), None)
        if first is not None:
            boxes, scores = ([each[i] for each in names] for i in (first, 1 - first))
            bins = channels[0][first] // SIDES
            more = f"\nbins = {bins}" if bins == USUAL_BINS[1] else ""
            return _table("dfl" if bins > 1 else "fcos", boxes=boxes, scores=scores) + more
    return ""


def _after_box(count: int) -> bool:
    """Whether a box, a score of there being something, and one of each class are so many numbers."""
    return count - SIDES - 1 in range(1, MOST_CLASSES)


def _anchors(shapes: Mapping[str, Sequence[int]], picture: tuple[int, int]) -> str:
    """SSD's: one row for each anchor of each cell."""
    rows = {name: shape for name, shape in shapes.items() if len(shape) == 3}
    boxes = next((name for name, shape in rows.items() if shape[2] == SIDES), "")
    beside = {name: shape[2] for name, shape in rows.items() if boxes and shape[1] == rows[boxes][1] and name != boxes}
    scores = next((name for name, count in beside.items() if count != POINTS), "")
    if not scores:
        return ""
    strides, each = _fitting(rows[boxes][1], picture)
    if not each:
        return ""
    points = [name for name, count in beside.items() if count == POINTS]
    told = _table("ssd", boxes=[boxes], scores=[scores], points=points)
    told += f"\nkeypoints = {POINTS // 2}" if points else ""
    return told + f"\nstrides = {strides}\nanchors = [[[16, 16], ...], ...] # {each} of each grid, in pixels"


def _fitting(places: int, picture: tuple[int, int]) -> tuple[list[int], int]:
    """The strides of grids that have so many places together, and how many each of their cells has; 0: no grids do."""
    for first in range(2):
        for end in range(first + 2, len(GRIDS) + 1):
            cells = sum(math.ceil(picture[0] / s) * math.ceil(picture[1] / s) for s in GRIDS[first:end])
            if places % cells == 0 and places // cells <= SIDES:
                return list(GRIDS[first:end]), places // cells
    return [], 0


def joined(name: str, shape: Sequence[int], picture: tuple[int, int]) -> str:
    """The same of one output [n, k, numbers] that may hold YOLOX's, if it is not decoded."""
    strides, each = _fitting(shape[1], picture)
    fits = each == 1 and _after_box(shape[2])
    return _table("yolox", boxes=[name]) + f"\nstrides = {strides}" if fits else ""
