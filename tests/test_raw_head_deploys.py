"""A net that ends at its last layers ships boxes and key points, from torch and from ONNX; one of regions a mask."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import nulls
import numpy as np
import pytest
from PIL import Image

import edgecompress
from edgecompress.core.errors import InputError
from edgecompress.extras.apps import archive, package

torch = pytest.importorskip("torch")
import raw_head_sources as sources  # noqa: E402 (it needs torch)

pytestmark = pytest.mark.slow
HERE = Path(__file__).resolve().parent
COMMON = '[preprocess]\nresize = 32\nfit = "letterbox"\nscale = 0.00392156862745098\nlayout = "NCHW"\n'
DECODE = f"""[decode]
head = "ssd"
boxes = ["loc"]
scores = ["conf"]
points = ["landms"]
keypoints = 3
strides = [{sources.STRIDE}]
anchors = [{[list(anchor) for anchor in sources.ANCHORS]}]
"""


def deployed(folder: Path, model: str, text: str, only: list[str]) -> edgecompress.Result:
    (folder / "source.toml").write_text(f'model = "{model}"\n{text}{COMMON}', encoding="utf-8")
    (folder / "raw_head_sources.py").write_bytes((HERE / "raw_head_sources.py").read_bytes())
    options = edgecompress.Options(store=folder / "store", out=folder / "dist")
    return edgecompress.deploy(
        folder / "source.toml", "x86", only=only, profile="quick", settings=nulls.FAST, options=options
    )


def predicted(result: edgecompress.Result, folder: Path, picture: np.ndarray[Any, Any], *words: str) -> dict[str, Any]:
    """What the package of a board answers to a picture."""
    assert result.out
    file = package.package(result.out, "tar", folder / "package.tar.gz", {"wheels": False})
    (folder / "opened").mkdir()
    archive.unpack(file, folder / "opened")
    Image.fromarray(picture).save(folder / "picture.png")
    root = archive.top(folder / "opened", file)
    command = [sys.executable, "-I", "-B", str(root / "run.pyz"), "predict", str(folder / "picture.png"), *words]
    answer: dict[str, Any] = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)
    return answer


def by_hand(picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """[k, 11]: score, corners and points of all that scores 0.5 and more, in pixels of a picture of 24 x 32."""
    whole = np.full((32, 32, 3), 114, np.uint8)
    whole[4:28] = picture
    with torch.no_grad():
        made = sources.raw()(torch.from_numpy(whole.transpose(2, 0, 1)[None] / 255).float())
    loc, conf, points = (each[0].double().numpy() for each in made.values())
    y, x = np.mgrid[:4, :4].reshape(2, -1).repeat(2, 1) * 8.0 + 4
    size = np.tile(sources.ANCHORS, (16, 1))
    middle = np.stack([x, y], -1) + 0.1 * loc[:, :2] * size
    half = size * np.exp(0.2 * loc[:, 2:]) / 2
    places = np.stack([x, y], -1)[:, None] + 0.1 * points.reshape(-1, 3, 2) * size[:, None]
    p = np.exp(conf[:, 1]) / np.exp(conf).sum(1)
    rows = np.concatenate([p[:, None], middle - half, middle + half, places.reshape(-1, 6)], 1)
    rows[:, 2::2] -= 4  # y, of the bar above
    rows[:, 1:5] = np.clip(rows[:, 1:5], 0, [32, 24, 32, 24])
    return rows[p >= 0.5]


@pytest.mark.parametrize("kind", ["torch", "onnx"])
def test_a_raw_head_ships_boxes_and_points(kind: str, tmp_path: Path) -> None:
    model = "raw_head_sources:raw"
    if kind == "onnx":
        model = "raw.onnx"
        torch.onnx.export(
            sources.raw(), (torch.zeros(1, 3, 32, 32),), tmp_path / model, dynamo=True, input_names=["image"],
            output_names=["loc", "conf", "landms"], verbose=False,
        )  # fmt: skip
    text = f'data = "raw_head_sources:data"\nmetric = "none"\nlabels = ["thing"]\n{DECODE}'
    result = deployed(tmp_path, model, text, ["litert-fp32", "litert-int8"] if kind == "torch" else ["fp32", "int8"])
    assert result.exit_code in (0, 4)
    read = result.read_report()["detections"]["read"]
    assert (read["boxes"]["name"], read["unit"], read["format"]) == ("boxes", "pixels", "xyxy")
    picture = sources.pictures("test")[3]
    found = predicted(result, tmp_path, picture, "--draw", str(tmp_path / "drawn.png"))["detections"]
    wanted = by_hand(picture)
    assert found and len(wanted)
    for each in found:
        row = np.array([each["probability"], *each["box"], *np.ravel(each["points"])])
        assert np.abs(wanted - row).max(1).min() < (1e-3 if "fp32" in str(result) else 2), each
    assert Image.open(tmp_path / "drawn.png").size == (32, 24)


def test_regions_ship_as_a_mask_and_stand_in_the_report(tmp_path: Path) -> None:
    text = 'data = "raw_head_sources:labelled"\nmetric = "miou"\nlabels = ["red", "green", "blue"]\n'
    result = deployed(tmp_path, "raw_head_sources:regions", text, ["litert-fp32"])
    assert result.exit_code in (0, 4) and result.out
    told = result.read_report()["detections"]
    assert told["read"] is None and len(told["items"]) == 10
    assert all(item["picture"].startswith("/9j/") and item["differ"] == 0 for item in told["items"])
    assert "where most pixels are of another class" in (result.out / "report.html").read_text(encoding="utf-8")
    picture = sources.pictures("test")[0]
    seen = predicted(result, tmp_path, picture)["regions"]
    shares = np.bincount(picture.argmax(-1).ravel(), minlength=3) / picture[..., 0].size
    assert {each["label"]: each["share"] for each in seen} == pytest.approx(
        dict(zip(("red", "green", "blue"), shares, strict=True)), abs=1e-6
    )


def test_what_decode_cannot_do_is_told(tmp_path: Path) -> None:
    text = f'data = "raw_head_sources:data"\nmetric = "none"\n{DECODE.replace("[8]", "[16]")}'
    with pytest.raises(InputError, match="grids of 2 x 2 cells have 8 boxes; check strides and anchors"):
        deployed(tmp_path, "raw_head_sources:raw", text, ["litert-fp32"])


def test_formats_that_no_head_is_decoded_behind_are_told(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(b"TFL3")
    text = f'data = "raw_head_sources:data"\nmetric = "none"\n{DECODE}'
    with pytest.raises(InputError, match=r"net.tflite: decode is for torch factories and .onnx files"):
        deployed(tmp_path, "net.tflite", text, ["fp32"])
