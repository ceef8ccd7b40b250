"""The example detector: judged by COCO's average precision, shown in the report, its boxes told by a package."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import edgecompress
from edgecompress.core.package_files import PACKAGE
from edgecompress.extras.apps import archive, package

pytestmark = pytest.mark.slow
SOURCE = PACKAGE.parent / "examples" / "detector" / "source.toml"


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> edgecompress.Result:
    folder = tmp_path_factory.mktemp("detector")
    options = edgecompress.Options(store=folder / "store", out=folder / "dist")
    return edgecompress.deploy(SOURCE, target="x86", only=["fp32", "int8"], profile="quick", options=options)


@pytest.fixture(scope="module")
def report(shipped: edgecompress.Result) -> dict[str, Any]:
    return shipped.read_report()


def test_it_ships_with_its_average_precision(shipped: edgecompress.Result, report: dict[str, Any]) -> None:
    assert shipped.exit_code in (0, 4)
    metrics = {v["name"]: v["verify"]["metric"] for v in report["variants"] if v["verify"]}
    assert metrics["fp32"]["before"] > 0.6 and metrics["fp32"]["after"] == pytest.approx(
        metrics["fp32"]["before"], abs=1e-3
    )


def test_the_report_shows_the_items_that_differ_most_with_their_boxes(
    report: dict[str, Any], shipped: edgecompress.Result
) -> None:
    told = report["detections"]
    assert told["read"]["by"] == "declared by the source" and told["read"]["format"] == "xyxy"
    assert 5 <= len(told["items"]) <= 10
    alone = [sum(not box["shared"] for box in (*item["source"], *item["shipped"])) for item in told["items"]]
    assert alone == sorted(alone, reverse=True)
    for item in told["items"]:
        assert (item["width"], item["height"]) == (128, 128) and item["picture"].startswith("/9j/")
        for box in (*item["source"], *item["shipped"]):
            x1, y1, x2, y2 = box["corners"]
            assert 0 <= x1 < x2 <= 128 and 0 <= y1 < y2 <= 128
    assert shipped.out
    page = (shipped.out / "report.html").read_text(encoding="utf-8")
    assert page.count('href="data:image/jpeg;base64,') == 2 * len(told["items"])
    assert "What the source finds, and what ships" in page and "xlink" not in page


def test_its_package_finds_what_is_there_in_pixels_of_the_scene(shipped: edgecompress.Result, tmp_path: Path) -> None:
    assert shipped.out
    file = package.package(shipped.out, "tar", tmp_path / "package.tar.gz", {"wheels": False})
    (tmp_path / "opened").mkdir()
    archive.unpack(file, tmp_path / "opened")
    root = archive.top(tmp_path / "opened", file)
    spec = importlib.util.spec_from_file_location("example_detector", SOURCE.with_name("net.py"))
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    picture, things = example.scene(np.random.default_rng(123))
    Image.fromarray(picture).save(tmp_path / "scene.png")
    command = [sys.executable, "-I", "-B", str(root / "run.pyz"), "predict", str(tmp_path / "scene.png")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)[
        "detections"
    ]
    there = [(int(kind), np.array(box) - [0, example.BAR, 0, example.BAR]) for kind, *box in things if kind >= 0]
    assert there
    for kind, box in there:
        assert any(each["index"] == kind and np.abs(np.array(each["box"]) - box).max() < 5 for each in found), (
            kind,
            box,
            found,
        )
    assert {each["label"] for each in found} <= {"circle", "square", "triangle"}
