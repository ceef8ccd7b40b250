"""What a package's README says of inputs, processing and outputs, and that its call can be pasted."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ios_contents import contents

from edgecompress.core import registry
from edgecompress.core.package_contents import Contents
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.extras.apps import model_card as cards
from edgecompress.extras.apps.packagers import _android_engines, _android_java, _web_ort, android

PACKAGERS = ("android", "ios", "tar", "web")
SOUND = dataclasses.asdict(
    Preprocess(input="image", spectrogram=Spectrogram(rate=8000, length=900, frame=256, hop=128, fft=512, bins=20))
)


def picture(folder: Path) -> Contents:
    return contents(folder)


def numbers(folder: Path) -> Contents:
    return contents(folder, declared=None)


def quantized(folder: Path) -> Contents:
    return contents(folder, quantized=True)


def sound(folder: Path) -> Contents:
    return contents(folder, declared=None, preprocess={**SOUND, "mean": [], "std": []})


def states(folder: Path) -> Contents:
    """Two inputs whose names are hostile, one of them a state; no classes."""
    task = {"task": "raw", "output": "", "probabilities": False, "top_k": 5}
    given = contents(folder, declared=None, postprocess=task)
    card: Any = given.card
    first = card["inputs"][0]
    more = [{**first, "name": f"{name}'\"`|$(x)", "shape": [1, size]} for name, size in (("b", 3), ("h", 5))]
    item = card["golden"]["inputs"][0]
    golden = {**card["golden"], "inputs": [item, *({**item, "name": spec["name"]} for spec in more)]}
    kept = {**card["outputs"][0], "name": "kept", "shape": [1, 5], "feeds": more[1]["name"]}
    told = {**card, "inputs": [first, *more], "outputs": [*card["outputs"], kept], "golden": golden}
    return dataclasses.replace(given, card=cards.check(told, "the card"))


def written(given: Contents, packager: str, folder: Path) -> str:
    """The README of a package."""
    module = registry.load("packagers", packager)
    options = module.Options(platform="linux-x86_64", wheels=False) if packager == "tar" else module.Options()
    (folder / "ort").mkdir(parents=True)
    for name in _web_ort.FILES:
        (folder / "ort" / name).write_bytes(b"")
    module.code(dataclasses.replace(given, options=options), folder, folder)
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("packager", PACKAGERS)
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (picture, ["| input | image | 1 x 3 x 8 x 8 | float32 | NCHW |", "shorter side to 9 pixels", "0.485, 0.456"]),
        (numbers, ["| output | scores | 1 x 4 | float32 |", "scores of 4 classes", "No preprocessing is declared"]),
        (sound, ["8000 samples a second, cut or filled with zeros to 900", "Hann window of 256", "20 mel bands"]),
        (states, ["| output | kept | 1 x 5 | float32 |", "state: the input h", "| input | b", "| 1 x 3 | float32"]),
    ],
)
def test_a_readme_names_inputs_processing_and_outputs(
    make: Callable[[Path], Contents], says: list[str], packager: str, tmp_path: Path
) -> None:
    readme = written(make(tmp_path), packager, tmp_path / "package")
    assert [text for text in says if text not in readme] == []


def test_a_readme_names_scale_and_zero_point(tmp_path: Path) -> None:
    assert "real = (stored - (-3)) x 0.02" in written(quantized(tmp_path), "web", tmp_path / "package")


def block(readme: str, language: str) -> str:
    """The one block of a language, without the indent that it has in a list."""
    (found,) = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", readme, re.M | re.S)
    return "".join(line.removeprefix(found[0]) for line in found[1].splitlines(keepends=True))


CASES: Mapping[str, Callable[[Path], Contents]] = {
    "picture": picture, "numbers": numbers, "sound": sound, "states": states
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.jdk
@pytest.mark.parametrize("case", CASES)
def test_the_call_in_an_android_readme_compiles(case: str, tmp_path: Path) -> None:
    given = dataclasses.replace(CASES[case](tmp_path), options=android.Options())
    engine = _android_engines.engine(given.card)
    values = android._values(given, engine)
    _android_java.write(tmp_path / "java", str(values["namespace"]), engine, values)
    call = block(written(given, "android", tmp_path / "package"), "java")
    context = "android.content.Context getApplicationContext() { return null; }"
    app = f"final class App {{ {context} void ask() {{\n{call}}} }}\n"
    (tmp_path / "java" / "App.java").write_text(app, encoding="utf-8")
    _android_java.compile(sorted((tmp_path / "java").rglob("*.java")), tmp_path / "classes")
    assert (tmp_path / "classes" / "App.class").is_file()


@pytest.mark.skipif(not shutil.which("node"), reason="no node here")
@pytest.mark.parametrize("case", CASES)
def test_the_call_in_a_web_readme_is_javascript(case: str, tmp_path: Path) -> None:
    call = block(written(CASES[case](tmp_path), "web", tmp_path / "package"), "js")
    (tmp_path / "call.mjs").write_text(call, encoding="utf-8")
    done = subprocess.run(["node", "--check", tmp_path / "call.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_call_in_a_boards_readme_makes_an_item_of_several_inputs(tmp_path: Path) -> None:
    call = block(written(states(tmp_path), "tar", tmp_path / "package"), "sh")
    assert call.splitlines()[-1] == "/opt/small-pets/run predict item.npz"
    script = call.split("<<'END'\n")[1].split("\nEND\n")[0]
    subprocess.run([sys.executable, "-"], input=script, text=True, cwd=tmp_path, check=True)
    with np.load(tmp_path / "item.npz") as items:
        assert {name[0]: items[name].shape for name in items} == {"i": (1, 3, 8, 8), "b": (1, 3)}
