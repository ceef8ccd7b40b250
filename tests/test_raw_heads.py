"""Raw heads by their shapes: what `init` and a deploy propose to declare."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping

import pytest

from edgecompress.core import config
from edgecompress.core.settings import Decode
from edgecompress.data import raw_heads

PICTURE = (320, 640)
GRIDS = {8: (40, 80), 16: (20, 40), 32: (10, 20)}


def of_grids(*channels: int) -> dict[str, tuple[int, ...]]:
    """An output of each number of channels for each grid."""
    return {f"p{s}_{i}": (1, c, *plane) for s, plane in GRIDS.items() for i, c in enumerate(channels)}


@pytest.mark.parametrize(
    ("shapes", "head", "told"),
    [
        (of_grids(4 * 16 + 80), "dfl", {"boxes": ("p8_0", "p16_0", "p32_0"), "scores": ()}),
        (of_grids(64, 80), "dfl", {"boxes": ("p8_0", "p16_0", "p32_0"), "scores": ("p8_1", "p16_1", "p32_1")}),
        (of_grids(80, 32), "dfl", {"bins": 8, "boxes": ("p8_1", "p16_1", "p32_1")}),
        (of_grids(3 * 85), "yolov5", {}),
        ({f"p{s}": (1, 3, *plane, 85) for s, plane in GRIDS.items()}, "yolov5", {"boxes": ("p8", "p16", "p32")}),
        (of_grids(85), "dfl", {}),  # 16 bins and 21 classes as well as YOLOX's 80
        (of_grids(25), "yolox", {}),
        (of_grids(4, 20), "fcos", {"scores": ("p8_1", "p16_1", "p32_1")}),
        ({"hm": (1, 80, 80, 160), "wh": (1, 2, 80, 160), "reg": (1, 2, 80, 160)}, "centernet", {"offsets": ("reg",)}),
        ({"reg": (1, 2, 80, 160), "heat": (1, 1, 80, 160), "wh": (1, 2, 80, 160)}, "centernet", {"boxes": ("wh",)}),
        ({"loc": (1, 8400, 4), "conf": (1, 8400, 2), "lms": (1, 8400, 10)}, "ssd", {"keypoints": 5}),
        ({"loc": (1, 4200, 4), "conf": (1, 4200, 21)}, "ssd", {"strides": (8, 16, 32)}),
    ],
)  # fmt: skip
def test_a_head_is_known_by_its_shapes(
    shapes: Mapping[str, tuple[int, ...]], head: str, told: dict[str, object]
) -> None:
    table = raw_heads.proposal(shapes, PICTURE).replace("[[[10, 13], ...], ...]", "[[[1, 1]], [[1, 1]], [[1, 1]]]")
    how = config.build(Decode, tomllib.loads(table.replace("[[[16, 16], ...], ...]", "[[[1, 1]]]"))["decode"], "decode")
    assert how.head == head
    assert {key: getattr(how, key) for key in told} == told


@pytest.mark.parametrize(
    "shapes",
    [
        {"logits": (1, 1000)},
        {"mask": (1, 21, 320, 640)},
        {"a": (1, 256, 40, 80), "b": (1, 512, 20, 40)},
        of_grids(256),
        {"boxes": (1, 100, 4), "scores": (1, 100, 80)},
        {"depth": (1, 1, 80, 160)},
    ],
    ids=["classes", "regions", "features", "a pyramid", "a list", "depth"],
)
def test_what_is_no_head_is_taken_for_none(shapes: Mapping[str, tuple[int, ...]]) -> None:
    assert raw_heads.proposal(shapes, PICTURE) == ""


def test_one_output_of_all_cells_may_be_yoloxs() -> None:
    table = raw_heads.joined("y", (1, 4200, 85), PICTURE)
    assert config.build(Decode, tomllib.loads(table)["decode"], "decode") == Decode(
        "yolox", ("y",), strides=(8, 16, 32)
    )
    assert raw_heads.joined("y", (1, 12600, 85), PICTURE) == raw_heads.joined("y", (1, 100, 6), PICTURE) == ""
