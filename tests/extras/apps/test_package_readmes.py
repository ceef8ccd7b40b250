"""What a package's README says of inputs, processing and outputs, and that its call can be pasted."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ios_contents import contents, detector, segmenter

from edgecompress.core import registry
from edgecompress.core.package_contents import Contents
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.extras.apps.packagers import _android_engines, _android_java, _web_ort, android

SOUND = Preprocess(input="image", spectrogram=Spectrogram(rate=8000, length=900, frame=256, hop=128, fft=512, bins=20))
SAYS = {
    "picture": ["| input | image | 1 x 3 x 8 x 8 | float32 | NCHW |", "shorter side to 9 pixels", "0.485, 0.456"],
    "numbers": ["| output | scores | 1 x 4 | float32 |", "scores of 4 classes", "No preprocessing is declared"],
    "quantized": ["real = (stored - (-3)) x 0.02"],
    "sound": ["8000 samples a second, cut or filled with zeros to 900", "Hann window of 256", "20 mel bands"],
    "boxes": ["boxes, xyxy in pixels of the input, and their scores"],
    "regions": ["the class of each pixel, named in `labels.json`"],
    "states": ["| output | kept | 1 x 5 | float32 |", "state: the input h", "| input | b", "| 1 x 3 | float32"],
}


def made(case: str, folder: Path) -> Contents:
    """What a packager is given; "states": two inputs and a state, with hostile names, and no classes."""
    if case in ("boxes", "regions"):
        return detector(folder) if case == "boxes" else segmenter(folder)
    declares = case in ("picture", "quantized")
    given = contents(folder, quantized=case == "quantized", **({} if declares else {"declared": None}))
    card: Any = {**given.card, **({"preprocess": dataclasses.asdict(SOUND)} if case == "sound" else {})}
    if case == "states":
        first, item = card["inputs"][0], card["golden"]["inputs"][0]
        more = [{**first, "name": f"{name}'\"`|$(x)", "shape": [1, size]} for name, size in (("b", 3), ("h", 5))]
        kept = {**card["outputs"][0], "name": "kept", "shape": [1, 5], "feeds": more[1]["name"]}
        items = [item, *({**item, "name": spec["name"]} for spec in more)]
        golden = {**card["golden"], "inputs": items}
        card |= {"inputs": [first, *more], "outputs": [*card["outputs"], kept], "golden": golden}
        card |= {"postprocess": {"task": "raw", "output": "", "probabilities": False, "top_k": 5}}
    return dataclasses.replace(given, card=card)


def readme(given: Contents, packager: str, folder: Path) -> str:
    """The README of a package."""
    module = registry.load("packagers", packager)
    options = module.Options(platform="linux-x86_64", wheels=False) if packager == "tar" else module.Options()
    (folder / "ort").mkdir(parents=True)
    for name in _web_ort.FILES:
        (folder / "ort" / name).write_bytes(b"")
    module.code(dataclasses.replace(given, options=options), folder, folder)
    return (folder / "README.md").read_text(encoding="utf-8")


def call(case: str, packager: str, language: str, folder: Path) -> str:
    """The one block of a language in a README."""
    text = readme(made(case, folder), packager, folder / "package")
    (found,) = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", text, re.M | re.S)
    return "".join(line.removeprefix(found[0]) for line in found[1].splitlines(keepends=True))


@pytest.mark.parametrize("packager", ["android", "ios", "tar", "web"])
@pytest.mark.parametrize("case", SAYS)
def test_a_readme_names_inputs_processing_and_outputs(case: str, packager: str, tmp_path: Path) -> None:
    text = readme(made(case, tmp_path), packager, tmp_path / "package")
    assert [words for words in SAYS[case] if words not in text] == []


@pytest.mark.slow
@pytest.mark.jdk
@pytest.mark.parametrize("case", SAYS)
def test_the_call_in_an_android_readme_compiles(case: str, tmp_path: Path) -> None:
    given = dataclasses.replace(made(case, tmp_path / "given"), options=android.Options())
    engine = _android_engines.engine(given.card)
    values = android._values(given, engine)
    _android_java.write(tmp_path / "java", str(values["namespace"]), engine, values)
    context = "android.content.Context getApplicationContext() { return null; }"
    app = f"final class App {{ {context} void ask() {{\n{call(case, 'android', 'java', tmp_path)}}} }}\n"
    (tmp_path / "java" / "App.java").write_text(app, encoding="utf-8")
    _android_java.compile(sorted((tmp_path / "java").rglob("*.java")), tmp_path / "classes")


@pytest.mark.skipif(not shutil.which("node"), reason="no node here")
@pytest.mark.parametrize("case", SAYS)
def test_the_call_in_a_web_readme_is_javascript(case: str, tmp_path: Path) -> None:
    (tmp_path / "call.mjs").write_text(call(case, "web", "js", tmp_path), encoding="utf-8")
    done = subprocess.run(["node", "--check", tmp_path / "call.mjs"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_call_in_a_boards_readme_makes_an_item_of_several_inputs(tmp_path: Path) -> None:
    script = call("states", "tar", "sh", tmp_path).split("<<'END'\n")[1].split("\nEND\n")[0]
    subprocess.run([sys.executable, "-"], input=script, text=True, cwd=tmp_path, check=True)
    with np.load(tmp_path / "item.npz") as items:
        assert {name[0]: items[name].shape for name in items} == {"i": (1, 3, 8, 8), "b": (1, 3)}
