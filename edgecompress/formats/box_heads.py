"""Raw heads of detectors as ONNX operators: what the last layers say of each cell becomes boxes, scores and key points.

Rows are cells of the grids, the finest grid first, row by row, at each cell its anchors in their order. The formulas:
ssd: Liu et al., ECCV 2016, as RetinaFace's (Deng et al., CVPR 2020) for points; yolov5: Ultralytics' YOLOv5; yolox:
Ge et al., 2021; dfl: Li et al., NeurIPS 2020, as YOLOv8's; fcos: Tian et al., ICCV 2019, without centre-ness;
centernet: Zhou et al., 2019.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.json import Json
from edgecompress.core.settings import Decode

if TYPE_CHECKING:
    import numpy as np
    import onnx

BOXES, SCORES, POINTS = "boxes", "scores", "points"  # what the outputs are called then
SIDES, COORDINATES = 4, 2
BEGIN = {"yolov5": -0.5, "yolox": 0.0, "centernet": 0.0}  # of a cell, where its offsets begin; of others its middle
MIDDLE = 0.5
TWICE = (0.5, math.e / (1 + math.e))  # the logistic function of 0 and of 1
SOFTMAX = 1e-3  # how far the sum of probabilities that exclude each other is from 1, at most
Shapes = Mapping[str, Sequence[int]]


@dataclass
class Operators:
    """Nodes and constants, in the order of computing; names begin with `prefix`, which no tensor of the net has."""

    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def op(self, kind: str, *inputs: str | np.ndarray | Sequence[int], name: str = "", **attributes: Any) -> str:
        """Adds an operator; inputs are tensors' names, or constants: reals as float32, whole numbers as int64."""
        import numpy as np
        from onnx import helper, numpy_helper

        names = []
        for each in inputs:
            if not isinstance(each, str):
                array = np.asarray(each)
                kept = array.astype(np.int64 if array.dtype.kind == "i" else np.float32)
                each = f"{self.prefix}constant_{len(self.constants)}"
                self.constants.append(numpy_helper.from_array(kept, each))
            names.append(each)
        made = name or f"{self.prefix}{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, names, [made], name=f"{self.prefix}{len(self.nodes)}", **attributes))
        return made

    def columns(self, rows: str, first: int, end: int) -> str:
        """Some channels of rows [n, k, channels]."""
        return self.op("Slice", rows, [first], [end], [2])


@dataclass(frozen=True)
class _Cells:
    """Of all rows the middle [k, 2] (x, y) and the stride [k, 1], in pixels; the size of the anchor [k, 2]."""

    middle: np.ndarray
    stride: np.ndarray
    anchor: np.ndarray


def detect(how: Decode) -> dict[str, Json]:
    """How the outputs are read, of settings.Detect."""
    told: dict[str, Json] = {"boxes": BOXES, "scores": SCORES, "format": "xyxy", "unit": "pixels"}
    if how.background is not None:
        told["background"] = how.background
    if how.points:
        told |= {"points": POINTS, "keypoints": how.keypoints, "point": "xyc" if how.head == "dfl" else "xy"}
    return told


def settled(how: Decode, raw: Mapping[str, np.ndarray]) -> tuple[Decode, list[str]]:
    """With the activation and the background that outputs `raw` of a run on data, or noise, call for; what is told.

    Raises InputError for "none" where they are no probabilities, and for names that are no outputs.
    """

    _check_names(how, raw)
    values = [_scores_in(how, raw[name], i) for i, name in enumerate(how.boxes if how.joined else how.scores)]
    low, high = min(float(v.min()) for v in values), max(float(v.max()) for v in values)
    probable, name = low >= 0 and high <= 1 and high > low, (how.scores or how.boxes)[0]
    softened = probable and all(len(v) > 1 and bool((abs(v.sum(0) - 1) < SOFTMAX).all()) for v in values)
    if how.activation == "none" and not probable and (low < 0 or high > 1):
        raise InputError(
            f"decode.activation: '{name}' holds logits ({low:.3g} to {high:.3g}), no probabilities; leave it out"
        )
    usual: Literal["softmax", "sigmoid"] = "softmax" if how.head == "ssd" else "sigmoid"
    activation = how.activation or ("none" if probable else usual)
    softmax = softened if activation == "none" else activation == "softmax"
    background = 0 if softmax and how.background is None else how.background
    told = []
    if probable and not how.activation:
        told.append(f"decode: '{name}' holds probabilities already, so nothing makes it probable: activation is none")
    elif probable and how.activation != "none":
        told.append(
            f"decode.activation: '{name}' holds probabilities already ({low:.3g} to {high:.3g}), of which "
            f'{how.activation} makes others; leave activation out, or give "none"'
        )
    if TWICE[0] - SOFTMAX <= low < high <= TWICE[1] + SOFTMAX:
        told.append(f"decode: '{name}' lies in {low:.3f} to {high:.3f}, as what a sigmoid makes of probabilities does")
    used = {*how.boxes, *how.scores, *how.points, *how.offsets}
    like = [n for n in raw if n not in used and raw[n].ndim > 3 and raw[n].shape[1] == raw[how.boxes[0]].shape[1]]
    if like and raw[how.boxes[0]].ndim > 3:
        told.append(f"decode.boxes does not name '{like[0]}', which has as many numbers: is it a grid, too?")
    return replace(how, activation=activation, background=background), told


def _scores_in(how: Decode, array: np.ndarray, grid: int) -> np.ndarray:
    """The scores of an output, [classes, the rest]."""
    first, anchors = how.numbers if how.joined else 0, len(how.anchors[grid]) if grid < len(how.anchors) else 1
    if array.ndim == 4 and array.shape[1] % anchors == 0:
        array = array.reshape(len(array) * anchors, -1, *array.shape[2:])
    elif array.ndim == 5 or (array.ndim == 3 and array.shape[2] <= array.shape[1]):
        array = array.swapaxes(1, -1)
    moved = array.swapaxes(0, 1)
    return moved.reshape(len(moved), -1)[first:] if len(moved) > first else moved.reshape(len(moved), -1)


def _check_names(how: Decode, known: Collection[str]) -> None:
    for key, names in (("boxes", how.boxes), ("scores", how.scores), ("points", how.points), ("offsets", how.offsets)):
        for name in names:
            if name not in known:
                raise InputError(f"decode.{key}: the source has no output '{name}'{did_you_mean(name, list(known))}")


def onto(proto: onnx.ModelProto, how: Decode, shapes: Shapes, size: tuple[int, int] | None) -> None:
    """Puts the operators behind the outputs of a net, of these shapes in a run; its other outputs stay.

    `size`: height and width of its picture. Raises InputError without one, and as `operators`.
    """
    from onnx import TensorProto, helper

    if size is None:
        raise InputError("decode: the source takes no picture [n, channels, h, w], so its head has no grid")
    graph = proto.graph
    own = {BOXES, SCORES, POINTS}
    taken = {name for node in graph.node for name in (*node.input, *node.output)} | {v.name for v in graph.input}
    prefix = "decode_"
    while any(name.startswith(prefix) for name in taken):
        prefix = f"_{prefix}"
    renamed = {name: f"{prefix}{name}" for name in own & taken}
    used = {*how.boxes, *how.scores, *how.points, *how.offsets}
    if lost := own & {value.name for value in graph.output} - used:
        raise InputError(
            f"decode: the source has another output '{min(lost)}', which is no part of the head; rename it"
        )
    made = operators(how, shapes, size, prefix)
    for node in (*graph.node, *made.nodes):
        _rename(node.input, renamed)
    for node in graph.node:
        _rename(node.output, renamed)
    for value in (*graph.input, *graph.value_info):
        value.name = renamed.get(value.name, value.name)
    kept = [value for value in graph.output if value.name not in used]
    del graph.output[:]
    graph.output.extend(kept)
    for name in (BOXES, SCORES, *([POINTS] if how.points else [])):
        graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * 3))
    graph.node.extend(made.nodes)
    graph.initializer.extend(made.constants)


def _rename(names: Any, renamed: Mapping[str, str]) -> None:
    for i, name in enumerate(names):
        names[i] = renamed.get(name, name)


def operators(how: Decode, shapes: Shapes, size: tuple[int, int], prefix: str) -> Operators:
    """What turns outputs of these shapes into BOXES [n, k, 4] (x1, y1, x2, y2 in pixels), SCORES and POINTS.

    `size`: height and width of the net's picture. Raises InputError for outputs that do not fit the head.
    """
    _check_names(how, shapes)
    graph = Operators(prefix)
    grids, cells = _cells(how, shapes, size)
    rows = _Rows(graph, how, shapes, len(cells.stride))
    anything = 0  # scores, of which the first is that of there being something at all
    if how.joined:
        code, logits, classes = rows.parted()
        anything = classes if how.head in ("yolov5", "yolox") else 0
    else:
        code, logits = rows.of("boxes", how.boxes, how.numbers)[0], rows.of("scores", how.scores)[0]
    offsets = rows.of("offsets", how.offsets, COORDINATES)[0] if how.offsets else ""
    _boxes(graph, how, cells, code, offsets)
    _scores(graph, how, logits, anything, grids)
    if how.points:
        _points(graph, how, cells, rows.of("points", how.points, how.keypoints * (3 if how.head == "dfl" else 2))[0])
    return graph


@dataclass(frozen=True)
class _Rows:
    """Makes [n, k, numbers] of outputs; `count`: k."""

    graph: Operators
    how: Decode
    shapes: Shapes
    count: int

    def of(self, key: str, names: Sequence[str], wanted: int = 0) -> tuple[str, int]:
        """Outputs, one of each grid or one of all, as rows, and their numbers: `wanted`, or whatever they have."""
        made = []
        for i, name in enumerate(names):
            shape = self.shapes[name]
            anchors = len(self.how.anchors[i]) if i < len(self.how.anchors) else 1
            rows, numbers = self._of_grid(name, anchors) if len(shape) > 3 else self._of_all(name)
            if (wanted and numbers != wanted) or (len(shape) > 3 and shape[1] % anchors):
                of_all = f" {wanted}" if wanted else ""
                check = "keypoints" if key == "points" else "anchors" if self.how.anchors else "head"
                raise InputError(
                    f"decode.{key}: '{name}' is {list(shape)}; the head {self.how.head} has{of_all} numbers for each "
                    f"of {anchors} boxes of a cell; check {check}"
                )
            made.append(rows)
        return self.graph.op("Concat", *made, axis=1) if len(made) > 1 else made[0], numbers

    def parted(self) -> tuple[str, str, int]:
        """Of joined outputs what is of the boxes, and the scores, and how many these are."""
        whole, channels = self.of("boxes", self.how.boxes)
        numbers, name = self.how.numbers, self.how.boxes[0]
        if channels <= numbers + (self.how.head in ("yolov5", "yolox")):
            raise InputError(
                f"decode.boxes: '{name}' is {list(self.shapes[name])}: no scores stand behind the {numbers} numbers of "
                "a box; name their outputs as scores"
            )
        parts = self.graph.columns(whole, 0, numbers), self.graph.columns(whole, numbers, channels)
        return *parts, channels - numbers

    def _of_grid(self, name: str, anchors: int) -> tuple[str, int]:
        """Of [n, anchors * numbers, h, w], or [n, anchors, h, w, numbers]."""
        shape, last = self.shapes[name], len(self.shapes[name]) == 5
        cells, numbers = shape[2] * shape[3], shape[4] if last else shape[1] // anchors
        sizes = [0, anchors, cells, numbers] if last else [0, anchors, numbers, cells]
        turned = self.graph.op(
            "Transpose", self.graph.op("Reshape", name, sizes), perm=[0, 2, 1, 3] if last else [0, 3, 1, 2]
        )
        return self.graph.op("Reshape", turned, [0, cells * anchors, numbers]), numbers

    def _of_all(self, name: str) -> tuple[str, int]:
        """Of [n, k, numbers], or [n, numbers, k]."""
        _, first, last = self.shapes[name]
        turned = first != self.count and last == self.count
        return (self.graph.op("Transpose", name, perm=[0, 2, 1]), first) if turned else (name, last)


def _cells(how: Decode, shapes: Shapes, size: tuple[int, int]) -> tuple[list[tuple[int, int]], _Cells]:
    """The grids' heights and widths, by the outputs or by the strides; and their rows."""
    import numpy as np

    first = [shapes[name] for name in how.boxes]
    planes = [(shape[2], shape[3]) for shape in first if len(shape) in (4, 5)]
    strides = how.strides or [size[0] // high for high, _ in planes]
    grids = [(math.ceil(size[0] / s), math.ceil(size[1] / s)) for s in strides if s]
    if not grids or not {3, 4, 5}.issuperset(map(len, first)):
        told = ", ".join(f"'{name}' {list(shape)}" for name, shape in zip(how.boxes, first, strict=True))
        raise InputError(
            f"decode.boxes: {told}: it takes [n, numbers, h, w], [n, anchors, h, w, numbers], or [n, k, numbers] with "
            "strides = [8, 16, ...] of its grids"
        )
    if planes and planes != grids:
        raise InputError(
            f"decode: outputs of {', '.join(f'{h} x {w}' for h, w in planes)} cells are no grids of a picture of "
            f"{size[0]} x {size[1]} at the strides {', '.join(map(str, strides))}; they must be [n, numbers, h, w], "
            "not numbers last, and strides as many"
        )
    if how.anchors and len(how.anchors) != len(grids):
        raise InputError(f"decode.anchors: they are of {len(how.anchors)} grids, but there are {len(grids)}")
    small = [max(map(max, own)) < stride / 2 for own, stride in zip(how.anchors, strides, strict=bool(how.anchors))]
    if small and all(small):
        raise InputError(
            "decode.anchors: all are smaller than half a cell of their grid; they are widths and heights in pixels: "
            "multiply those in cells by the strides, shares by the picture's size"
        )
    middles, each_stride, anchors = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    for i, (high, wide) in enumerate(grids):
        own = np.array(how.anchors[i] if how.anchors else [(1.0, 1.0)], np.float64)
        at = np.stack(np.meshgrid(np.arange(wide), np.arange(high)), -1).reshape(-1, 1, 2) + BEGIN.get(how.head, MIDDLE)
        middles.append(np.repeat(at * strides[i], len(own), 1).reshape(-1, 2))
        each_stride.append(np.full((len(middles[-1]), 1), float(strides[i])))
        anchors.append(np.tile(own, (high * wide, 1)))
    found = _Cells(*map(np.concatenate, (middles, each_stride, anchors)))
    for name, shape in zip(how.boxes, first, strict=True):
        if len(shape) == 3 and len(found.stride) not in shape[1:]:
            grid = ", ".join(f"{h} x {w}" for h, w in grids)
            raise InputError(
                f"decode: '{name}' is {list(shape)}, but grids of {grid} cells have {len(found.stride)} boxes; check "
                "strides and anchors"
            )
    return grids, found


def _boxes(graph: Operators, how: Decode, cells: _Cells, code: str, offsets: str) -> None:
    import numpy as np

    op, (centre, spread) = graph.op, how.variances
    if how.head in ("dfl", "fcos"):  # the distances to the sides
        if how.head == "dfl":
            bins = op("Reshape", code, [0, len(cells.stride), SIDES, how.bins])
            expected = op("MatMul", op("Softmax", bins, axis=-1), np.arange(how.bins, dtype=float)[:, None])
            code = op("Reshape", expected, [0, len(cells.stride), SIDES])
        away = op("Mul", code, cells.stride * [-1.0, -1.0, 1.0, 1.0])
        op("Add", away, np.tile(cells.middle, 2), name=BOXES)
        return
    if how.head == "centernet":  # its size is in cells
        middle = op("Mul", offsets, cells.stride) if offsets else ""
        begin = cells.middle + (0.0 if offsets else MIDDLE * cells.stride)
        half = op("Mul", code, cells.stride / 2)
    elif how.head == "yolov5":
        both = op("Sigmoid", code)
        middle, begin = op("Mul", graph.columns(both, 0, 2), 2 * cells.stride), cells.middle
        size = graph.columns(both, 2, 4)
        half = op("Mul", op("Mul", size, size), 2 * cells.anchor)  # (2 x)^2 / 2
    else:
        scale = centre * cells.anchor if how.head == "ssd" else cells.stride
        middle, begin = op("Mul", graph.columns(code, 0, 2), scale), cells.middle
        grown = graph.columns(code, 2, 4)
        grown = op("Exp", op("Mul", grown, np.array(spread)) if how.head == "ssd" else grown)
        half = op("Mul", grown, (cells.anchor if how.head == "ssd" else cells.stride) / 2)
    if middle:
        middle = op("Add", middle, begin)
        low, high = op("Sub", middle, half), op("Add", middle, half)
    else:
        low, high = op("Sub", begin[None], half), op("Add", half, begin)
    op("Concat", low, high, axis=2, name=BOXES)


def _scores(graph: Operators, how: Decode, logits: str, anything: int, grids: Sequence[tuple[int, int]]) -> None:
    """`anything`: the number of scores of which the first is that of there being something; 0: it is none of them."""
    kind = how.activation or ("softmax" if how.head == "ssd" else "sigmoid")
    active = {"sigmoid": "Sigmoid", "softmax": "Softmax", "none": "Identity"}[kind]
    axis: dict[str, Any] = {"axis": -1} if kind == "softmax" else {}
    if not anything and how.head != "centernet":
        graph.op(active, logits, name=SCORES, **axis)
        return
    probable = graph.op(active, logits, **axis)
    if anything:
        graph.op("Mul", graph.columns(probable, 0, 1), graph.columns(probable, 1, anything), name=SCORES)
        return
    high, wide = grids[0]  # the highest of nine cells is left
    plane = graph.op("Reshape", graph.op("Transpose", probable, perm=[0, 2, 1]), [0, -1, high, wide])
    best = graph.op("MaxPool", plane, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
    peak = graph.op("Cast", graph.op("Not", graph.op("Less", plane, best)), to=1)
    left = graph.op("Reshape", graph.op("Mul", plane, peak), [0, -1, high * wide])
    graph.op("Transpose", left, perm=[0, 2, 1], name=SCORES)


def _points(graph: Operators, how: Decode, cells: _Cells, code: str) -> None:
    import numpy as np

    op, count = graph.op, how.keypoints
    if how.head != "dfl":
        scale = how.variances[0] * cells.anchor if how.head == "ssd" else cells.stride * [1.0, 1.0]
        moved = op("Mul", code, np.tile(scale, count))
        op("Add", moved, np.tile(cells.middle, count), name=POINTS)
        return
    each = op("Reshape", code, [0, len(cells.stride), count, 3])
    places, sure = op("Slice", each, [0], [2], [3]), op("Sigmoid", op("Slice", each, [2], [3], [3]))
    begin = (cells.middle - MIDDLE * cells.stride)[:, None]
    placed = op("Add", op("Mul", places, 2 * cells.stride[:, None]), begin)
    op("Reshape", op("Concat", placed, sure, axis=3), [0, len(cells.stride), 3 * count], name=POINTS)
