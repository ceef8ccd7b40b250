"""How a picture fits the model's input, and where its boxes lie in the picture again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edgecompress.core.settings import Preprocess
from edgecompress.data import detection_layout, detections, found_boxes, preprocess
from edgecompress.data.detection_layout import Columns, Layout

BOXES, SCORES = Columns("boxes", 2, 0, 4), Columns("scores", 2, 0, 1)


def test_a_letterbox_holds_the_whole_picture_between_bars() -> None:
    picture = np.full((50, 100, 3), 200, np.uint8)
    found = preprocess.geometry(picture, Preprocess(resize=64, fit="letterbox", bars=7))
    assert found.shape == (64, 64, 3)
    assert (found[:16] == 7).all() and (found[16:48] == 200).all() and (found[48:] == 7).all()
    assert preprocess.geometry(picture[:, :1], Preprocess(resize=64, fit="letterbox")).shape == (64, 64, 3)


def test_stretching_makes_a_square_of_any_picture() -> None:
    assert preprocess.geometry(
        np.zeros((50, 100, 1), np.uint8), Preprocess(resize=9, fit="stretch", colour="GRAY")
    ).shape == (9, 9, 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"fit": "letterbox"}, "give resize, leave crop out"),
        ({"fit": "stretch", "resize": 8, "crop": 4}, "give resize, leave crop out"),
        ({"resize": 8, "bars": 256}, "bars is a colour"),
    ],
)
def test_what_does_not_go_together_is_told(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Preprocess(**given)


DECLARED = [
    Preprocess(),
    Preprocess(resize=32),
    Preprocess(resize=32, crop=30),
    Preprocess(resize=32, fit="stretch"),
    Preprocess(resize=32, fit="letterbox"),
    Preprocess(crop=21),
]


@pytest.mark.parametrize("declared", DECLARED, ids=str)
@pytest.mark.parametrize("size", [(40, 60), (61, 33), (32, 32)])
def test_a_mark_lies_again_where_it_was(declared: Preprocess, size: tuple[int, int]) -> None:
    """A bright square, found in the input by its pixels, is told where it is in the picture."""
    picture = np.zeros((*size, 3), np.uint8)
    top, left = size[0] // 2 - 6, size[1] // 2 - 4
    picture[top : top + 8, left : left + 10] = 255
    whole = preprocess.geometry(picture, declared)
    rows, columns = (np.flatnonzero((whole[..., 0] > 127).any(axis)) for axis in (1, 0))
    box = np.array([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]], float)
    found = found_boxes.Detections(box, np.ones(1), np.zeros(1, int), np.zeros((1, 0, 2)))
    layout = Layout(BOXES, SCORES, None, "shares", None, anything=False)
    back = detection_layout.in_picture(found, layout, whole.shape[:2], size, declared)
    near = max(size) / min(whole.shape[:2])  # pixels of the picture for one of the input
    assert np.abs(back.corners[0] - [left, top, left + 10, top + 8]).max() <= max(1.0, near)


@pytest.mark.parametrize("shares", [True, False])
@pytest.mark.parametrize("form", ["xyxy", "yxyx"])
def test_boxes_end_at_the_sides_of_the_picture(shares: bool, form: Any) -> None:
    corners = np.array([[-0.5, 0.25, 0.5, 2.0]]) * (1 if shares else 20)
    layout = Layout(
        BOXES, SCORES, None, "shares", None, anything=False, format=form, unit="shares" if shares else "pixels"
    )
    found = found_boxes.Detections(corners, np.ones(1), np.zeros(1, int), np.zeros((1, 0, 2)))
    told = detection_layout.in_picture(found, layout, (20, 20), (10, 40), Preprocess(resize=20, fit="stretch"))
    wanted = [0, 2.5, 20, 10] if form == "xyxy" else [10, 0, 40, 5]
    assert told.corners[0].tolist() == wanted


def test_what_is_found_is_a_list_for_an_average_precision() -> None:
    random = np.random.default_rng(0)
    low = random.uniform(0, 200, (3, 30, 2))
    outputs = {"boxes": np.concatenate([low, low + 20], -1), "scores": random.uniform(0, 1, (3, 30, 2))}
    outputs["scores"][1] = 0.001  # nothing is found there
    layout = Layout(BOXES, Columns("scores", 2, 0, 2), None, "shares", None, anything=False, format="yxyx")
    told = detections.as_list(outputs, layout)
    counts = (told["scores"] > 0).sum(1)
    assert counts[1] == 0 and counts[0] > 5 and (np.diff(told["scores"], axis=1) <= 0).all()
    first = outputs["scores"][0].max(-1).argmax()
    assert told["boxes"][0, 0].tolist() == outputs["boxes"][0, first][[1, 0, 3, 2]].tolist()
    assert told["classes"][0, 0] == outputs["scores"][0, first].argmax()
