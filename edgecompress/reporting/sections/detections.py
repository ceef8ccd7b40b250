"""What a detector or a segmentation net finds: pictures with that of the source beside that of what ships."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from edgecompress.core import config
from edgecompress.core.errors import MissingDependency
from edgecompress.core.model import Artifact, Request
from edgecompress.core.settings import Preprocess
from edgecompress.data import detection_layout, preprocess, segments, tensors
from edgecompress.data.found_boxes import ONE_THING, Detections, overlaps
from edgecompress.data.shipped_items import ANSWERS
from edgecompress.reporting.figure_style import Figure, Panel
from edgecompress.reporting.model import Report
from edgecompress.reporting.model_numbers import Count, Part
from edgecompress.reporting.request import ReportRequest
from edgecompress.reporting.tables import TextTable
from edgecompress.reporting.vega import CONFIG, Spec, described, layer

if TYPE_CHECKING:
    import numpy as np

TITLE = "What it finds"
KEY = "detections"
ORDER = 15
SHOWN = 10  # items
SIDE = 220  # pixels of a picture in the report
SPANS = {
    "small": "things, up to 32 x 32",
    "medium": "things, up to 96 x 96",
    "large": "things",
}  # pixels, as COCO has them
BOTH, ALONE = "#17733f", "#c2321d"  # colours of boxes
_CAPTION = (
    "Of the first {count} test items those where the boxes differ most: the source's, and those of {variant}. Green: "
    "both have it (an IoU of 0.5 and more, the same class); red: one has it alone."
)
_REGIONS = (
    "Of the first {count} test items those where most pixels are of another class: as the source sees them, and as "
    "{variant} does. Class 0 has no colour."
)


class Box(Part):
    """A thing: corners and key points in pixels of the input; whether the other side has it, too."""

    index: int
    score: float
    corners: Annotated[list[float], Meta(min_length=4, max_length=4)]
    shared: bool
    points: Annotated[list[Annotated[list[float], Meta(min_length=2, max_length=2)]], Meta(max_length=1000)]


Picture: TypeAlias = Annotated[str, Meta(pattern="^[A-Za-z0-9+/]*={0,2}$", max_length=1 << 20)]


class Item(Part):
    """A test item, its picture as a JPEG in base64, and what both sides find in it.

    Of classes of pixels `differ` is the share that the sides see otherwise, and the pictures have them in colours.
    """

    item: Count
    width: Count
    height: Count
    picture: Picture
    source: list[Box]
    shipped: list[Box]
    differ: float = 0.0
    shipped_picture: Picture = ""


class Named(Part):
    """An output."""

    name: str


class Points(Named):
    """Its channels that are key points."""

    first: Count
    end: Count


class Read(Part):
    """How boxes are read, as data.detection_layout.Layout has it; `by`: who says so."""

    boxes: Named
    scores: Named
    classes: Named | None
    kind: str
    background: int | None
    listed: bool
    format: str
    unit: str
    least: float
    overlap: float
    by: str
    points: Points | None = None
    point: int = 2


class Data(Part):
    """How boxes are read, if there are any, and items of the first `count`, the worst first."""

    read: Read | None
    coco: dict[str, tuple[float | None, float | None]] | None = None  # precisions of source and shipped
    count: Count = 0
    items: list[Item] = msgspec.field(default_factory=list)
    regions: Named | None = None  # the output that tells the class of each pixel


def found(request: Request, job: ReportRequest, report: Report) -> Data | None:
    """Of the variant that ships; None where it is neither."""
    name = report.choice.variant
    verdict, artifact = (request.inputs.get(f"{name}/{role}") for role in ("verdict", "artifact"))
    if verdict is None or artifact is None or not {"detector", "segments"} & verdict.facts.keys():
        return None
    told, coco = verdict.facts.get("detector"), verdict.facts.get("coco")
    read = msgspec.convert(told, Read) if told else None
    golden, samples = request.inputs.get("golden"), request.inputs.get("samples")
    if golden is None or samples is None or not (verdict.path / ANSWERS).is_dir():
        return Data(read, coco)
    names = [spec.name for spec in artifact.outputs if not spec.feeds]
    theirs = {each: tensors.load(verdict, ANSWERS, each) for each in names}
    count = len(next(iter(theirs.values())))
    own = [spec.name for spec in golden.outputs]
    pairs = zip(names, names if {*names} <= {*own} else own, strict=False)
    ours = {each: tensors.load(golden, "test", source)[:count] for each, source in pairs}
    pictures = _pictures(samples, count)
    if pictures is None:
        return Data(read, coco, count)
    if not told:
        how = segments.Segments(**verdict.facts["segments"])
        return Data(None, None, count, _regions(how, ours, theirs, pictures), Named(how.output))
    layout = detection_layout.Layout.read({key: value for key, value in told.items() if key != "by"})
    size = pictures.shape[1:3]
    sides = [[*layout.found(arrays, slice(0, count), layout.least)] for arrays in (ours, theirs)]
    placed = [[detection_layout.in_picture(each, layout, size, None, None) for each in side] for side in sides]
    every = [_item(i, pictures[i], *both) for i, both in enumerate(zip(*placed, strict=True))]
    worst = sorted(every, key=lambda each: -sum(not box.shared for box in (*each.source, *each.shipped)))[:SHOWN]
    for each in worst:
        each.picture = _jpeg(pictures[each.item])
    return Data(read, coco, count, worst)


def _item(number: int, picture: np.ndarray, ours: Detections, theirs: Detections) -> Item:
    near = overlaps(ours.corners, theirs.corners) * (ours.classes[:, None] == theirs.classes)
    both = near.max(1, initial=0.0) >= ONE_THING, near.max(0, initial=0.0) >= ONE_THING
    boxes = [
        [
            Box(
                int(index),
                round(float(score), 4),
                [round(float(x), 2) for x in corners],
                bool(shared),
                [[round(float(x), 2) for x in point[:2]] for point in points],
            )
            for index, score, corners, shared, points in zip(
                side.classes, side.scores, side.corners, has, side.points, strict=True
            )
        ]
        for side, has in zip((ours, theirs), both, strict=True)
    ]
    return Item(number, picture.shape[1], picture.shape[0], "", boxes[0], boxes[1])


def _regions(
    how: segments.Segments, ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], pictures: np.ndarray
) -> list[Item]:
    """The items where most pixels are of another class."""
    import numpy as np

    items, masks = list[Item](), list[list[np.ndarray]]()
    high, wide = pictures.shape[1:3]
    for i in range(len(pictures)):
        cells = [segments.regions(a[i : i + 1], how.axis, how.single) for a in (ours[how.output], theirs[how.output])]
        masks.append([segments.in_picture(each, (high, wide), (high, wide), None) for each in cells])
        items.append(Item(i, wide, high, "", [], [], round(float((masks[-1][0] != masks[-1][1]).mean()), 4)))
    worst = sorted(items, key=lambda each: -each.differ)[:SHOWN]
    for each in worst:
        drawn = [_jpeg(segments.laid_over(pictures[each.item], mask)) for mask in masks[each.item]]
        each.picture, each.shipped_picture = drawn
    return worst


def _pictures(samples: Artifact, count: int) -> np.ndarray | None:
    """The first test items as they look, uint8 [n, height, width, 3]; None where no input is a picture."""
    import numpy as np

    told: Mapping[str, Any] | None = samples.facts.get("preprocess")
    how = config.build(Preprocess, told, "preprocess") if told else Preprocess()
    spec = next((s for s in samples.inputs if len(s.shape) == 4 and how.input in ("", s.name)), None)
    if spec is None:
        return None
    rows = tensors.load(samples, "test", spec.name)[:count].astype(np.float64)
    first = (how.layout or spec.layout or ("NCHW" if rows.shape[1] in (1, 3) else "NHWC")) == "NCHW"
    rows = rows.transpose(0, 2, 3, 1) if first else rows
    if rows.shape[-1] not in (1, 3):
        return None
    if how.mean or how.std or how.scale != 1:
        rows = (rows * np.array(how.std or (1.0,)) + np.array(how.mean or (0.0,))) / how.scale
    elif rows.max() <= 1 or rows.min() < 0:  # whose scale nobody told
        rows = (rows - rows.min()) / (np.ptp(rows) or 1.0) * 255
    rows = rows[..., ::-1] if how.colour == "BGR" else rows
    return np.clip(np.rint(rows), 0, 255).astype(np.uint8).repeat(3 // rows.shape[-1], -1)


def _jpeg(picture: np.ndarray) -> str:
    """In base64, so large as it is shown; "" without Pillow."""
    try:
        image = preprocess.pil().fromarray(picture)
    except MissingDependency:
        return ""
    image.thumbnail((2 * SIDE, 2 * SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=80)
    return base64.b64encode(file.getvalue()).decode()


# --------------------------------------------------------------------------- shown


def tables(report: Report) -> list[TextTable]:
    """How boxes are read; no row for what is no detector."""
    head = ("boxes and scores", "read as", "and")
    if (data := _data(report)) is None:
        return [TextTable(TITLE, head, ())]
    if (told := data.read) is None:
        rows = [(data.regions.name, "the class of each pixel", "by the metric")] if data.regions else []
        return [TextTable(TITLE, ("output", *head[1:]), tuple(rows))]
    how = told.by if told.by.startswith("declared") else f"{told.by}; detect in the source says otherwise"
    listed = "a list, nothing overlaps" if told.listed else f"one thing from an IoU of {told.overlap:g} on"
    background = "" if told.background is None else f", class {told.background} the background"
    rows = [
        (told.boxes.name, f"{told.format}, {told.unit} of the input", how),
        (told.scores.name, f"{told.kind}{background}", f"found from {told.least:g} on; {listed}"),
    ]
    if told.classes:
        rows.append((told.classes.name, "the number of the class", ""))
    if told.points:
        count = (told.points.end - told.points.first) // told.point
        rows.append((told.points.name, f"{count} key points of each box", "x, y" + ", certainty" * (told.point == 3)))
    both = [(name, *pair) for name, pair in (data.coco or {}).items()]
    known = [(name, a, b) for name, a, b in both if a is not None and b is not None]
    told_coco = tuple((f"{name} {SPANS.get(name, '')}".strip(), f"{a:.4f}", f"{b:.4f}") for name, a, b in known)
    coco = [TextTable("COCO's average precisions", ("at, or of", "the source", report.choice.variant), told_coco)]
    return [TextTable(TITLE, head, tuple(rows)), *(coco if len(known) > 1 else [])]


def figures(report: Report) -> list[Figure]:
    """Each item twice: with the source's boxes, and with those of what ships."""
    data, variant = _data(report), report.choice.variant
    if data is None or not data.items:
        return []
    labels = [str(label) for label in (report.data or {}).get("label_names") or report.source.get("labels") or ()]
    panels = [
        Panel(f"item {each.item}: {side}", _drawn(each, picture, boxes, labels))
        for each in data.items
        for side, picture, boxes in (
            ("the source", each.picture, each.source),
            (variant, each.shipped_picture or each.picture, each.shipped),
        )
    ]
    caption = (_CAPTION if data.read else _REGIONS).format(count=data.count, variant=variant)
    return [Figure("detections", "What the source finds, and what ships", caption, tuple(panels))]


def _data(report: Report) -> Data | None:
    return report.rest.get(KEY)


def _drawn(item: Item, picture: str, boxes: list[Box], labels: list[str]) -> Spec:
    wide, high = SIDE, max(1, round(SIDE * item.height / max(1, item.width)))
    scales = {"x": {"domain": [0, item.width]}, "y": {"domain": [0, item.height], "reverse": True}}
    axes = {
        name: {"field": name, "type": "quantitative", "axis": None, "scale": scale} for name, scale in scales.items()
    }
    values = [
        {"x": b.corners[0], "y": b.corners[1], "x2": b.corners[2], "y2": b.corners[3]}
        | {"colour": BOTH if b.shared else ALONE}
        | {"says": f"{labels[b.index] if 0 <= b.index < len(labels) else b.index} {100 * b.score:.0f} %"}
        for b in boxes
    ]
    colour = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
    outline = {"type": "rect", "fillOpacity": 0, "strokeWidth": 2}
    layers = [described(values, outline, "box", stroke=colour, **axes, **ends)]
    words = {"type": "text", "align": "left", "baseline": "bottom", "dx": 1, "dy": -1, "fontSize": 11, "clip": True}
    halo = {**words, "stroke": "white", "strokeWidth": 3, "strokeOpacity": 0.85}
    layers.append(layer(values, halo, text={"field": "says"}, **axes))
    layers.append(layer(values, words, text={"field": "says"}, color=colour, **axes))
    dots = [
        {"x": x, "y": y, "colour": BOTH if b.shared else ALONE, "says": f"point {i + 1}"}
        for b in boxes
        for i, (x, y) in enumerate(b.points)
    ]
    if dots:
        layers.append(described(dots, {"type": "circle", "size": 24, "stroke": "white"}, "point", color=colour, **axes))
    if picture:
        image = {"type": "image", "url": f"data:image/jpeg;base64,{picture}", "aspect": False}
        image |= {"width": wide, "height": high, "align": "left", "baseline": "top"}
        layers.insert(0, layer([{}], image, x={"value": 0}, y={"value": 0}))
    return {"width": wide, "height": high, "padding": 0, "config": CONFIG, "layer": layers}
