"""Raw heads of detectors: boxes, scores and key points by the published formulas, in ONNX Runtime and in torch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from edgecompress.core.errors import InputError
from edgecompress.core.settings import Decode
from edgecompress.formats import box_heads

Array = np.ndarray[Any, np.dtype[Any]]
HEIGHT, WIDTH, CLASSES = 64, 96, 3
RANDOM = np.random.default_rng(4)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-np.asarray(x, np.float64)))


def run(how: Decode, raw: dict[str, Array]) -> dict[str, Array]:
    """What the operators make of outputs, by ONNX Runtime."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *a.shape[1:]]) for name, a in raw.items()]
    nodes = [helper.make_node("Identity", [f"{name}_in"], [name]) for name in raw]
    inputs = [
        helper.make_tensor_value_info(f"{name}_in", TensorProto.FLOAT, ["n", *a.shape[1:]]) for name, a in raw.items()
    ]
    model = helper.make_model(
        helper.make_graph(nodes, "raw", inputs, ends), opset_imports=[helper.make_opsetid("", 13)], ir_version=8
    )
    how, _ = box_heads.settled(how, raw)
    box_heads.onto(model, how, {name: a.shape for name, a in raw.items()}, (HEIGHT, WIDTH))
    onnx.checker.check_model(model, full_check=True)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {f"{name}_in": a.astype(np.float32) for name, a in raw.items()}
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, given), strict=True))


def drawn(*shape: int) -> Array:
    return RANDOM.normal(0, 1, shape)


def grid(stride: int) -> tuple[int, int]:
    return HEIGHT // stride, WIDTH // stride


def test_distances_as_distributions_are_those_of_the_formula() -> None:
    raw = {f"p{s}": drawn(2, 4 * 8 + CLASSES, *grid(s)) for s in (8, 16)}
    found = run(Decode("dfl", boxes=("p8", "p16"), bins=8), raw)
    row = 0
    for stride in (8, 16):
        high, wide = grid(stride)
        for y in range(high):
            for x in range(wide):
                cell = raw[f"p{stride}"][1, :, y, x]
                powers = np.exp(cell[:32].reshape(4, 8))
                left, top, right, bottom = (powers / powers.sum(1, keepdims=True)) @ np.arange(8) * stride
                cx, cy = (x + 0.5) * stride, (y + 0.5) * stride
                wanted = [cx - left, cy - top, cx + right, cy + bottom]
                assert found["boxes"][1, row] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
                assert found["scores"][1, row] == pytest.approx(sigmoid(cell[32:]), rel=1e-4)
                row += 1
    assert found["boxes"].shape == (2, row, 4)


@pytest.mark.parametrize("numbers_last", [False, True])
def test_anchors_of_yolov5_are_those_of_the_formula(numbers_last: bool) -> None:
    anchors = (((10.0, 13.0), (33.0, 23.0)), ((30.0, 61.0), (59.0, 119.0)))
    raw = {f"p{s}": drawn(1, 2 * (5 + CLASSES), *grid(s)) for s in (8, 16)}
    five = {name: a.reshape(1, 2, 8, *a.shape[2:]).transpose(0, 1, 3, 4, 2) for name, a in raw.items()}
    found = run(Decode("yolov5", boxes=("p8", "p16"), anchors=anchors), five if numbers_last else raw)
    row = 0
    for stride, own in zip((8, 16), anchors, strict=True):
        high, wide = grid(stride)
        for y in range(high):
            for x in range(wide):
                for number, (aw, ah) in enumerate(own):
                    cell = sigmoid(raw[f"p{stride}"][0, number * 8 : (number + 1) * 8, y, x])
                    cx, cy = (cell[0] * 2 - 0.5 + x) * stride, (cell[1] * 2 - 0.5 + y) * stride
                    w, h = (cell[2] * 2) ** 2 * aw, (cell[3] * 2) ** 2 * ah
                    wanted = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]
                    assert found["boxes"][0, row] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
                    assert found["scores"][0, row] == pytest.approx(cell[4] * cell[5:], rel=1e-4)
                    row += 1
    assert found["boxes"].shape[1] == row


def test_offsets_to_anchors_of_ssd_and_points_are_those_of_the_formula() -> None:
    anchors = (((8.0, 8.0), (16.0, 16.0)), ((24.0, 48.0),))
    places = [(s, x, y, a) for s, own in zip((8, 16), anchors, strict=True)
              for y in range(grid(s)[0]) for x in range(grid(s)[1]) for a in own]  # fmt: skip
    raw = {
        "loc": drawn(1, len(places), 4),
        "conf": drawn(1, len(places), 1 + CLASSES),
        "boxes": drawn(1, len(places), 10),
    }
    how = Decode("ssd", ("loc",), ("conf",), ("boxes",), 5, strides=(8, 16), anchors=anchors)
    found = run(how, raw)
    for row, (stride, x, y, (aw, ah)) in enumerate(places):
        dx, dy, dw, dh = raw["loc"][0, row]
        ax, ay = (x + 0.5) * stride, (y + 0.5) * stride
        cx, cy, w, h = ax + 0.1 * dx * aw, ay + 0.1 * dy * ah, aw * math.exp(0.2 * dw), ah * math.exp(0.2 * dh)
        wanted = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]
        assert found["boxes"][0, row] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
        points = raw["boxes"][0, row].reshape(5, 2) * 0.1 * [aw, ah] + [ax, ay]
        assert found["points"][0, row] == pytest.approx(points.reshape(-1), rel=1e-4, abs=1e-3)
        powers = np.exp(raw["conf"][0, row])
        assert found["scores"][0, row] == pytest.approx(powers / powers.sum(), rel=1e-4)


def test_of_centernet_the_highest_cells_are_left() -> None:
    high, wide = grid(4)
    raw = {"hm": drawn(1, CLASSES, high, wide), "wh": abs(drawn(1, 2, high, wide)), "reg": drawn(1, 2, high, wide)}
    found = run(Decode("centernet", ("wh",), ("hm",), offsets=("reg",)), raw)
    heat = sigmoid(raw["hm"][0])
    padded = np.pad(heat, ((0, 0), (1, 1), (1, 1)))
    for y in range(high):
        for x in range(wide):
            row = y * wide + x
            (dx, dy), (w, h) = raw["reg"][0, :, y, x], raw["wh"][0, :, y, x] * 4
            cx, cy = (x + dx) * 4, (y + dy) * 4
            wanted = [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]
            assert found["boxes"][0, row] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
            best = padded[:, y : y + 3, x : x + 3].max((1, 2))
            assert found["scores"][0, row] == pytest.approx(np.where(heat[:, y, x] >= best, heat[:, y, x], 0), rel=1e-4)


def test_one_output_of_all_grids_is_read_either_way_round() -> None:
    numbers = drawn(1, 120, 5 + CLASSES)
    either = [
        run(Decode("yolox", ("y",), strides=(8, 16)), {"y": each}) for each in (numbers, numbers.transpose(0, 2, 1))
    ]
    for name in ("boxes", "scores"):
        assert either[0][name].shape[1] == 120
        np.testing.assert_allclose(either[0][name], either[1][name], rtol=1e-5)


@pytest.mark.parametrize("joined", [True, False])
def test_yolox_and_fcos_are_those_of_their_formulas(joined: bool) -> None:
    high, wide = grid(8)
    box, rest = drawn(1, 4, high, wide), drawn(1, 1 + CLASSES, high, wide)
    raw = {"p": np.concatenate([box, rest], 1)} if joined else {"b": box, "s": rest[:, 1:]}
    names = (("p",), ()) if joined else (("b",), ("s",))
    found = run(Decode("yolox", *names), raw)
    y, x = np.mgrid[:high, :wide].reshape(2, -1)
    dx, dy, dw, dh = box.reshape(4, -1)
    cx, cy, w, h = (dx + x) * 8, (dy + y) * 8, np.exp(dw) * 8, np.exp(dh) * 8
    wanted = np.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)
    assert found["boxes"][0] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
    sure = sigmoid(rest[0, 1:]) * (sigmoid(rest[0, :1]) if joined else 1)
    assert found["scores"][0] == pytest.approx(sure.reshape(CLASSES, -1).T, rel=1e-4)
    if not joined:
        shares = {"b": box, "s": sigmoid(raw["s"])}
        found = run(Decode("fcos", *names), shares)
        cx, cy = (x + 0.5) * 8, (y + 0.5) * 8
        wanted = np.stack([cx - dx * 8, cy - dy * 8, cx + dw * 8, cy + dh * 8], -1)
        assert found["boxes"][0] == pytest.approx(wanted, rel=1e-4, abs=1e-3)
        assert found["scores"][0] == pytest.approx(shares["s"][0].reshape(CLASSES, -1).T, rel=1e-5)


def test_points_of_a_pose_net_have_how_certain_they_are() -> None:
    high, wide = grid(8)
    raw = {"box": drawn(1, 4 * 16, high, wide), "conf": drawn(1, 1, high, wide), "kpt": drawn(1, 6, high, wide)}
    found = run(Decode("dfl", ("box",), ("conf",), ("kpt",), 2), raw)
    y, x = np.mgrid[:high, :wide].reshape(2, -1)
    each = raw["kpt"].reshape(2, 3, -1)
    wanted = np.stack([(each[:, 0] * 2 + x) * 8, (each[:, 1] * 2 + y) * 8, sigmoid(each[:, 2])], -1)
    assert found["points"][0].reshape(-1, 2, 3) == pytest.approx(wanted.transpose(1, 0, 2), rel=1e-4, abs=1e-3)


@pytest.mark.parametrize(
    ("how", "says"),
    [
        (Decode("dfl", ("p9",)), "decode.boxes: the source has no output 'p9'"),
        (Decode("dfl", ("p8",)), "no scores stand behind the 64 numbers of a box"),
        (Decode("dfl", ("rows",), ("rows2",)), "with strides = "),
        (Decode("fcos", ("rows",), ("rows2",), strides=(8, 16)), "grids of 8 x 12, 4 x 6 cells have 120 boxes"),
        (Decode("fcos", ("p8",), ("rows2",)), "the head fcos has 4 numbers for each of 1 boxes of a cell"),
        (Decode("dfl", ("last",)), r"outputs of 12 x 35 cells are no grids of a picture of 64 x 96 at the strides 5"),
        (Decode("dfl", ("p8",), strides=(8, 16)), "strides as many"),
        (Decode("ssd", ("p8",), anchors=(((1.0, 2.0), (2.0, 1.5)),)), "multiply those in cells by the strides"),
        (Decode("dfl", ("flat",)), r"'flat' \[1, 96\]: it takes \[n, numbers, h, w\]"),
    ],
)  # fmt: skip
def test_a_head_that_does_not_fit_is_told(how: Decode, says: str) -> None:
    raw = {"p8": drawn(1, 35, 8, 12), "rows": drawn(1, 96, 4), "rows2": drawn(1, 96, 3)}
    raw |= {"last": drawn(1, 8, 12, 35), "flat": drawn(1, 96)}
    with pytest.raises(InputError, match=says):
        run(how, raw)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"head": "ssd", "boxes": ("a",)}, "anchors are those of ssd and yolov5"),
        ({"head": "dfl", "boxes": ()}, "boxes must name outputs"),
        ({"head": "centernet", "boxes": ("a",)}, "centernet needs scores"),
        ({"head": "fcos", "boxes": ("a",), "points": ("b",), "keypoints": 5}, "points of the head fcos"),
        ({"head": "dfl", "boxes": ("a",), "points": ("b",)}, "go together"),
    ],
)
def test_a_declaration_that_is_none_is_told(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Decode(**options)


def test_scores_that_are_probabilities_already_stay_what_they_are() -> None:
    raw = {"b": drawn(1, 4, 8, 12), "s": drawn(1, 3, 8, 12)}
    powers = np.exp(raw["s"])
    for probable, background in ((sigmoid(raw["s"]), None), (powers / powers.sum(1, keepdims=True), 0)):
        how, (told,) = box_heads.settled(Decode("fcos", ("b",), ("s",)), {**raw, "s": probable})
        assert (how.activation, how.background) == ("none", background)
        assert "'s' holds probabilities already" in told
    how, (told,) = box_heads.settled(Decode("fcos", ("b",), ("s",), activation="sigmoid"), {**raw, "s": probable})
    assert how.activation == "sigmoid" and "of which sigmoid makes others" in told
    _, told = box_heads.settled(Decode("fcos", ("b",), ("s",)), {**raw, "s": sigmoid(sigmoid(3 * raw["s"]))})
    assert "as what a sigmoid makes of probabilities does" in told[-1]
    joined = np.concatenate([raw["b"], sigmoid(drawn(1, 4, 8, 12))], 1)
    assert box_heads.settled(Decode("yolox", ("p",)), {"p": joined})[0].activation == "none"
    assert box_heads.settled(Decode("ssd", ("b",), ("s",), anchors=(((8.0, 8.0),),)), raw)[0].background == 0
    with pytest.raises(InputError, match=r"decode.activation: 's' holds logits \(.*\), no probabilities"):
        box_heads.settled(Decode("fcos", ("b",), ("s",), activation="none"), raw)
