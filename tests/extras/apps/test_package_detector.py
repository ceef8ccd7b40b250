"""Packages of a detector and of a segmentation net: what they find lies in pixels of the user's picture.

In a board's Python, in Java and in a browser; test_package_ios_swift.py has Swift.
"""

from __future__ import annotations

import base64
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import android_packages
import numpy as np
import package_detector
import package_web
import pytest
from package_detector import HEIGHT, LABELS, THINGS, WIDTH
from PIL import Image

from edgecompress.core.errors import InputError
from edgecompress.core.json import read_json
from edgecompress.data import segments
from edgecompress.extras.apps import archive, package, render, verify
from edgecompress.extras.apps.packagers import _android_java

pytestmark = pytest.mark.slow
Found = list[tuple[str, float, list[float], list[list[float]]]]
REGIONS = ("grey", *LABELS)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_detector.shipped(tmp_path_factory.mktemp("squares") / "dist")


@pytest.fixture(scope="module")
def segmenter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return package_detector.segmenter(tmp_path_factory.mktemp("regions") / "dist")


@pytest.fixture(scope="module")
def board(shipped: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return on_board(shipped, tmp_path_factory.mktemp("board"))


def on_board(shipped: Path, folder: Path) -> Path:
    """The tree of a board's package."""
    file = package.package(shipped, "tar", folder / "package.tar.gz", {"wheels": False})
    assert [check for check in verify.verify(file) if check.status == "fail"] == []
    (folder / "opened").mkdir()
    archive.unpack(file, folder / "opened")
    return archive.top(folder / "opened", file)


def run(root: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-B", str(root / "run.pyz"), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def drawn(folder: Path, name: str = "picture.png", picture: np.ndarray[Any, Any] | None = None) -> Path:
    Image.fromarray(package_detector.picture() if picture is None else picture).save(folder / name)
    return folder / name


def right(found: Found) -> None:
    """The two squares where they are, each with its name, and two of its corners as key points."""
    assert sorted(label for label, *_ in found) == ["blue", "red"]
    for label, score, box, points in found:
        assert score > 0.9
        assert np.abs(np.array(box) - (wanted := THINGS[LABELS.index(label)])).max() < 0.01, (label, box)
        assert np.abs(np.array(points) - [[*wanted[:2], 0.5], [*wanted[2:], 0.5]]).max() < 0.01, (label, points)


def mask() -> np.ndarray[Any, Any]:
    """The class of each pixel of the picture."""
    found = np.zeros((HEIGHT, WIDTH), np.uint8)
    for kind, (x1, y1, x2, y2) in THINGS.items():
        found[y1:y2, x1:x2] = kind + 1
    return found


# --------------------------------------------------------------------------- the card


def test_the_card_tells_how_boxes_are_read(board: Path) -> None:
    card = read_json(board / "model_card.json", 1 << 20)
    told = card["postprocess"]
    assert (told["task"], told["output"], told["detect"]["format"], told["detect"]["unit"]) == (
        *("detect", "scores", "yxyx", "shares"),
    )
    assert told["detect"]["size"] == [32, 32] and card["preprocess"]["fit"] == "letterbox"
    assert json.loads((board / "payload" / "labels.json").read_text()) == list(LABELS)


def test_labels_are_those_of_the_boxes_classes(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="2 labels for the 3 classes of 'scores'"):
        package.package(
            package_detector.shipped(tmp_path / "dist", ("a", "b")), "tar", tmp_path / "x", {"wheels": False}
        )


# --------------------------------------------------------------------------- a board


def test_a_board_finds_things_in_pixels_of_the_picture_and_draws_them(board: Path, tmp_path: Path) -> None:
    done = run(board, "predict", drawn(tmp_path), "--draw", tmp_path / "found.png")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["detections"]
    right([(each["label"], each["probability"], each["box"], each["points"]) for each in found])
    before, after = (np.asarray(Image.open(tmp_path / name)).astype(int) for name in ("picture.png", "found.png"))
    changed = np.argwhere((before != after).any(-1))
    assert after.shape == before.shape and len(changed) > 60  # two frames at least
    x1, y1, x2, y2 = THINGS[0]
    assert (before != after)[y1, x1 : x2 - 1].any(-1).all() and (before != after)[y1 : y2 - 1, x1].any(-1).all()


def test_a_board_says_what_cannot_be_drawn(board: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "ready.npy", np.zeros((1, 3, 32, 32), np.float32))
    done = run(board, "predict", "--ready", tmp_path / "ready.npy", "--draw", tmp_path / "x.png")
    assert done.returncode == 2 and "--draw: it takes a picture, and a model that finds boxes or regions" in done.stderr
    assert done.stderr.count("\n") == 1
    done = run(board, "predict", drawn(tmp_path), "--draw", tmp_path / "nowhere" / "x.png")
    assert done.returncode == 2 and "No such file" in done.stderr and done.stderr.count("\n") == 1


def test_nothing_is_found_in_grey(board: Path, tmp_path: Path) -> None:
    done = run(board, "predict", drawn(tmp_path, picture=package_detector.picture({})))
    assert json.loads(done.stdout) == {"detections": []}
    steps = json.loads(run(board, "self-test").stdout)
    assert all(step["ok"] for step in steps) and "the best class is '" in steps[-1]["detail"]


def test_a_board_tells_the_class_of_each_pixel_and_colours_them(segmenter: Path, tmp_path: Path) -> None:
    root = on_board(segmenter, tmp_path)
    told = read_json(root / "model_card.json", 1 << 20)["postprocess"]
    assert told["task"] == "segment" and told["segment"] == {"axis": 1, "single": "", "size": [32, 32]}
    done = run(root, "predict", drawn(tmp_path), "--draw", tmp_path / "found.png")
    shares = {each["label"]: each["share"] for each in json.loads(done.stdout)["regions"]}
    assert shares == {label: float((mask() == i).mean()) for i, label in enumerate(REGIONS) if (mask() == i).any()}
    before, after = (np.asarray(Image.open(tmp_path / name)) for name in ("picture.png", "found.png"))
    assert ((before != after).any(-1) == (mask() > 0)).all()
    steps = json.loads(run(root, "self-test").stdout)
    assert all(step["ok"] for step in steps) and "'grey'" in steps[-1]["detail"]


# --------------------------------------------------------------------------- Android, on a JVM


@pytest.mark.jdk
def test_android_finds_them_also_in_a_picture_that_is_turned(shipped: Path, tmp_path: Path) -> None:
    opened = android_packages.packed(shipped, tmp_path)
    jvm = android_packages.jvm(opened, tmp_path / "jvm", "onnx")
    assert android_packages.steps(jvm("selftest", [opened.assets])[0]) == android_packages.PASSES
    for degrees, line in zip((0, 90, 180, 270), jvm("detect", [opened.assets])[0].split("; "), strict=True):
        found = re.findall(r"(\w+) ([0-9.E-]+) (\[[0-9., E-]+\]) (\[\[.*?\]\])", line)
        boxes = [(label, *map(json.loads, rest)) for label, *rest in found]
        right([(label, score, upright(box, degrees), marks(points, degrees)) for label, score, box, points in boxes])
    compiles_sample(opened, tmp_path / "app")


@pytest.mark.jdk
def test_android_tells_the_class_of_each_pixel_also_of_a_picture_that_is_turned(
    segmenter: Path, tmp_path: Path
) -> None:
    opened = android_packages.packed(segmenter, tmp_path)
    jvm = android_packages.jvm(opened, tmp_path / "jvm", "onnx")
    assert android_packages.steps(jvm("selftest", [opened.assets])[0]) == android_packages.PASSES
    turned = jvm("segment", [opened.assets])[0].split("; ")
    for quarters, line in enumerate(turned):
        told, width, height, *classes = line.split("|")
        found = np.array(json.loads(classes[0])).reshape(int(height), int(width))
        assert (np.rot90(found, -quarters) == mask()).all(), quarters
        assert told.startswith("grey 0.8") and "red 0.08" in told and "green" not in told
    compiles_sample(opened, tmp_path / "app")


def compiles_sample(opened: android_packages.Opened, out: Path) -> None:
    sources = sorted((opened.root / "sample").rglob("*.java"))
    _android_java.compile(sources, out, [str(opened.aar / "classes.jar")])


def upright(box: list[float], degrees: int) -> list[float]:
    """A box of a picture that must be turned clockwise by so much, as it is in the upright one."""
    x1, y1, x2, y2 = box
    if degrees == 90:  # the picture given is the upright one turned counterclockwise
        return [HEIGHT_OF[90] - y2, x1, HEIGHT_OF[90] - y1, x2]
    if degrees == 180:
        return [WIDTH - x2, HEIGHT - y2, WIDTH - x1, HEIGHT - y1]
    return [y1, WIDTH_OF[270] - x2, y2, WIDTH_OF[270] - x1] if degrees == 270 else box


def marks(points: list[list[float]], degrees: int) -> list[list[float]]:
    """The same of key points."""
    return [[*upright([x, y, x, y], degrees)[:2], *certain] for x, y, *certain in points]


HEIGHT_OF, WIDTH_OF = {90: WIDTH}, {270: HEIGHT}  # of the pictures that are given turned


# --------------------------------------------------------------------------- a browser


@pytest.mark.ortweb
@pytest.mark.browser
def test_the_page_draws_boxes_over_a_picture(browser: Any, shipped: Path, tmp_path: Path) -> None:
    root = package_web.packed(shipped, tmp_path)
    with package_web.serving() as served:
        page = package_web.opened(browser, served.add("squares", root))
        assert page.texts("#steps .mark") == ["✓"] * 4 and page.console == []
        assert sorted(page.texts("#classes .name")) == ["blue", "red"]
        large = package_detector.picture().repeat(3, 0).repeat(3, 1)
        package_web.drop(page, "mine.png", drawn(tmp_path, picture=large).read_bytes())
        package_web.wait(browser, "return document.getElementById('caption').textContent.startsWith('mine.png')")
        package_web.wait(browser, "return document.getElementById('timing').textContent.includes('2 things')")
        seen = canvas(browser)
        assert seen.shape[:2] == (3 * HEIGHT, 3 * WIDTH)
        for _, _, x2, y2 in THINGS.values():  # dots at two corners of each, of which a quarter lies inside
            assert (seen[3 * y2 - 2, 3 * x2 - 2] != large[3 * y2 - 2, 3 * x2 - 2]).any()
        for x1, _, x2, y2 in (np.array(box) * 3 for box in THINGS.values()):
            edge = seen[y2 - 1, x1 + 4 : x2 - 4, :3].astype(int)  # below it no word is written
            assert np.ptp(edge, axis=0).max() < 30 and not (edge == [128] * 3).any()
        browser.find_element("id", "camera").click()  # Chromium's own, which films a test picture
        package_web.wait(browser, "return document.getElementById('caption').textContent.startsWith('The camera')")
        package_web.wait(browser, "return /things/.test(document.getElementById('timing').textContent)")
        assert page.text("#camera") == "Stop the camera"
        browser.find_element("id", "camera").click()
        package_web.wait(browser, "return document.getElementById('camera').textContent === 'Camera'")
        browser.find_element("id", "golden").click()
        package_web.wait(browser, "return document.getElementById('caption').textContent.startsWith('The golden')")
        found = page.asked(
            "const model = await wrapper.default.load();"
            "const rgb = Uint8Array.from(atob(given[0]), c => c.charCodeAt(0));"
            "const found = await model.detect({data: rgb, width: given[2], height: given[1], channels: 3});"
            "return found.map(({label, score, box, points}) => [label, score, box, points]);",
            *(base64.b64encode(package_detector.picture().tobytes()).decode(), HEIGHT, WIDTH),
        )
        right([(label, score, box, points) for label, score, box, points in found])


@pytest.mark.ortweb
@pytest.mark.browser
def test_the_page_colours_a_picture_by_the_class_of_each_pixel(browser: Any, segmenter: Path, tmp_path: Path) -> None:
    root = package_web.packed(segmenter, tmp_path)
    with package_web.serving() as served:
        page = package_web.opened(browser, served.add("regions", root))
        assert page.texts("#steps .mark") == ["✓"] * 4 and page.console == []
        assert page.texts("#classes .name")[0] == "grey" and sorted(page.texts("#classes .name")[1:]) == ["blue", "red"]
        large = package_detector.picture().repeat(3, 0).repeat(3, 1)
        package_web.drop(page, "mine.png", drawn(tmp_path, picture=large).read_bytes())
        package_web.wait(browser, "return document.getElementById('caption').textContent.startsWith('mine.png')")
        package_web.wait(browser, "return document.getElementById('timing').textContent.includes('3 regions')")
        seen = canvas(browser).astype(int)
        changed = np.abs(seen - large).max(-1) > 20
        assert (changed == (mask().repeat(3, 0).repeat(3, 1) > 0)).all()
        found = page.asked(
            "const model = await wrapper.default.load();"
            "const rgb = Uint8Array.from(atob(given[0]), c => c.charCodeAt(0));"
            "const picture = {data: rgb, width: given[2], height: given[1], channels: 3};"
            "const found = await model.segment(picture);"
            "const refused = await model.detect(picture).catch(error => error.message);"
            "return [found.width, found.height, [...found.classes], refused];",
            *(base64.b64encode(package_detector.picture().tobytes()).decode(), HEIGHT, WIDTH),
        )
        assert found[3] == "this model finds no boxes; use run()"
        assert found[:2] == [WIDTH, HEIGHT] and (np.reshape(found[2], (HEIGHT, WIDTH)) == mask()).all()


BEFORE = """
import {regions} from "./pictures.js";
const answers = {y: Float32Array.from({length: 48}, (_, i) => Number(i >= 16 && i % 3 === 1))};
const spec = {
  inputs: [{name: "x", shape: [1, 3, 32, 32], dtype: "float32"}],
  outputs: [{name: "y", shape: [1, 3, 4, 4], dtype: "float32"}],
  preprocess: {input: "x", resize: null, crop: null, layout: "NCHW"},
  postprocess: {task: "segment", output: "y", segment: {axis: 1, single: "", size: [32, 32]}},
};
console.log(JSON.stringify([...regions(answers, spec, {height: 48, width: 64}).classes]));
"""


@pytest.mark.node
def test_a_page_tells_pixels_also_of_a_picture_that_it_scales_and_cuts_before(tmp_path: Path) -> None:
    for name in ("pictures", "processing", "tensors"):
        shutil.copy(render.FOLDER / "web" / f"{name}.js", tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "ask.js").write_text(BEFORE)
    done = subprocess.run(["node", tmp_path / "ask.js"], capture_output=True, text=True, check=True)
    scores = np.array([float(i >= 16 and i % 3 == 1) for i in range(48)], np.float32).reshape(1, 3, 4, 4)
    cells = segments.regions(scores, 1, "")
    columns = np.floor(((np.arange(64) + 0.5) * 43 / 64 - 5) * 4 / 32).astype(int)  # 43 x 32 of which 32 are taken
    rows = np.floor((np.arange(48) + 0.5) * 32 / 48 * 4 / 32).astype(int)
    seen = (columns >= 0) & (columns < 4)
    wanted = np.where(seen, cells[rows][:, columns.clip(0, 3)], segments.UNSEEN)
    assert (np.reshape(json.loads(done.stdout), (48, 64)) == wanted).all() and 0 < seen.sum() < 64


def canvas(browser: Any) -> np.ndarray[Any, Any]:
    """What the page has drawn."""
    shot = "return document.getElementById('canvas').toDataURL('image/png')"
    data = base64.b64decode(browser.execute_script(shot).partition(",")[2])
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
