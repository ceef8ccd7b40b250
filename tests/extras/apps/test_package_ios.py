"""Swift packages: what is in them, what `package verify` finds, and that no stranger's text becomes code."""

from __future__ import annotations

import json
import plistlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import prove
import pytest
from ios_contents import MANIFEST, PICTURE, built, contents

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import CARD, PAYLOAD
from edgecompress.core.package_names import names
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.extras.apps.packagers import _ios_spec, ios
from edgecompress.pipeline.job_request import Options

KINDS = tuple(ios.FORMATS)
HOSTILE = (
    'quote " and \\" and \\',
    "line\nbreak\r\n}\nlet injected = 1\n",
    "\\(injected())",
    '"""\nlet injected = 1\n"""',
    '#"raw \\#(injected())"#',
    "right \u202e to left \u2066 isolated",
    "*/ let injected = 1 /*",
    "nul \0 and \u2028 separators \u0085",
    "\ud800 half of a pair",
    "`injected` $(injected) ${injected}",
)


def texts(root: Path) -> Iterator[tuple[Path, str]]:
    """The sources of a package."""
    for file in sorted(root.rglob("*.swift")):
        yield file, file.read_text(encoding="utf-8")


def verdicts(root: Path, card: Any) -> dict[str, tuple[str, str]]:
    """{check: (status, reason)}"""
    return {c.name: (c.status, c.reason) for c in ios.checks(root, card, root)}


def failing(root: Path, card: Any) -> str:
    """The one check that fails, and why."""
    wrong = [f"{name}: {reason}" for name, (status, reason) in verdicts(root, card).items() if status == "fail"]
    assert len(wrong) == 1
    return wrong[0]


# --------------------------------------------------------------------------- what is in it


@pytest.mark.parametrize("kind", KINDS)
def test_a_package_passes_its_own_checks(tmp_path: Path, kind: str) -> None:
    root, given = built(tmp_path, kind=kind)
    found = verdicts(root, given.card)
    assert found == ({"mlpackage items": ("pass", "")} if kind == "mlpackage" else {})


def test_a_packed_model_is_carried_packed_alone_beside_what_unpacks_it(tmp_path: Path) -> None:
    root, given = built(tmp_path, kind="mlpackage", packed=True)
    assert verdicts(root, given.card) == {"mlpackage items": ("pass", "")}
    files = [p.name for p in (root / "Sources/SmallPets/Resources/model").rglob("*") if p.is_file()]
    assert sorted(files) == ["Manifest.json.packed", "model.mlmodel.packed"]
    assert 'link "z"' in (root / "Sources/SmallPetsZlib/module.modulemap").read_text()
    assert '"SmallPetsZlib",' in (root / "Package.swift").read_text()
    assert "Unpack.folder" in (root / "Sources/SmallPets/SmallPetsModel.swift").read_text()
    damaged = next(root.rglob("Manifest.json.packed"))
    damaged.write_bytes(damaged.read_bytes()[:-2])
    (tmp_path / "work").mkdir()
    with pytest.raises(InputError, match="is damaged"):
        ios.checks(root, given.card, tmp_path / "work")


@pytest.mark.parametrize("declared", [PICTURE, None], ids=["picture", "numbers"])
def test_a_detector_answers_boxes(tmp_path: Path, declared: Preprocess | None) -> None:
    root, _ = built(tmp_path, kind="onnx", task="detect", declared=declared)
    spec = (root / "Sources/SmallPets/ModelSpec.swift").read_text()
    assert (
        "scores: Boxes.Columns(\n            output: 0, axis: 2, first: 4, end: 7)," in spec and "classes: nil," in spec
    )
    wrapper = (root / "Sources/SmallPets/SmallPetsModel.swift").read_text()
    assert "public struct Detection" in wrapper and "func classify" not in wrapper
    assert ("func detect(_ frame: CVPixelBuffer)" in wrapper) is (declared is not None)
    assert ("func detect(_ input: [Float])" in wrapper) is (declared is None)
    assert "points: nil," in spec and "let segments: Segments? = nil" in spec and "func segment" not in wrapper


@pytest.mark.parametrize("declared", [PICTURE, None], ids=["picture", "numbers"])
def test_a_segmentation_net_answers_a_mask(tmp_path: Path, declared: Preprocess | None) -> None:
    root, _ = built(tmp_path, kind="onnx", task="segment", declared=declared)
    spec = (root / "Sources/SmallPets/ModelSpec.swift").read_text()
    assert 'output: 0, axis: 1, single: "",\n        size: [8, 8])' in spec and "let boxes: Boxes? = nil" in spec
    wrapper = (root / "Sources/SmallPets/SmallPetsModel.swift").read_text()
    assert "public struct Mask" in wrapper and "func classify" not in wrapper and "func detect" not in wrapper
    assert ("func segment(_ frame: CVPixelBuffer)" in wrapper) is (declared is not None)
    assert ("func segment(_ input: [Float])" in wrapper) is (declared is None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_payload_lies_in_it_byte_for_byte(tmp_path: Path, kind: str) -> None:
    root, given = built(tmp_path, kind=kind)
    place = ios.payload(root, tmp_path)
    wanted = {p.relative_to(given.payload): p.read_bytes() for p in given.payload.rglob("*") if p.is_file()}
    assert {p.relative_to(place): p.read_bytes() for p in place.rglob("*") if p.is_file()} == wanted
    assert {p.name for p in place.iterdir()} == {p.name for p in given.payload.iterdir()} <= {*PAYLOAD}


@pytest.mark.parametrize(
    ("kind", "depends", "systems"),
    [
        ("mlpackage", "", '.iOS("17.0"), .macOS("14.0")'),
        (
            "tflite",
            '.package(url: "https://github.com/google-ai-edge/LiteRT", branch: "release/2.3.0")',
            '.iOS("16.0")',
        ),
        ("pte", '.package(url: "https://github.com/pytorch/executorch", branch: "swiftpm-1.5.1")', '.iOS("17.0")'),
        ("onnx", 'exact: "1.24.2"', '.iOS("16.0"), .macOS("14.0")'),
    ],
)
def test_the_manifest_asks_for_the_runtime_and_the_systems_it_needs(
    tmp_path: Path, kind: str, depends: str, systems: str
) -> None:
    root, _ = built(tmp_path, kind=kind)
    text = (root / "Package.swift").read_text()
    assert depends in text and systems in text
    assert (".package(" in text) is bool(depends)


def test_the_oldest_ios_is_that_of_the_file_format(tmp_path: Path) -> None:
    given = contents(tmp_path, kind="mlpackage")
    model = given.payload / "model/model.mlpackage/Data/com.apple.CoreML/model.mlmodel"
    model.write_bytes(b"\x08\x09" + model.read_bytes()[2:])
    (tmp_path / "root").mkdir()
    ios.build(given, tmp_path / "root")
    assert '.iOS("18.0"), .macOS("15.0")' in (tmp_path / "root" / "Package.swift").read_text()
    model.write_bytes(b"\x08\x63")
    with pytest.raises(InputError, match="file format 99 is not supported"):
        ios.build(given, tmp_path / "other")


def test_executorch_keeps_its_linker_flags_and_links_the_backend_that_the_program_names(tmp_path: Path) -> None:
    root, _ = built(tmp_path / "a", kind="pte")
    text = (root / "Package.swift").read_text()
    assert '.unsafeFlags(["-Xlinker", "-all_load"])' in text
    assert "backend_coreml" not in text and "backend_xnnpack" in text
    assert "-all_load" in (root / "README.md").read_text()
    given = contents(tmp_path / "b", kind="pte")
    (given.payload / "model/model.pte").write_bytes(b"..CoreMLBackend..")
    (tmp_path / "c").mkdir()
    ios.build(given, tmp_path / "c")
    assert "backend_coreml" in (tmp_path / "c" / "Package.swift").read_text()


def test_a_version_of_the_runtimes_package_is_an_option(tmp_path: Path) -> None:
    given = contents(tmp_path)
    values = _ios_spec.values(given, {"onnxruntime": "1.20.0"})
    assert values["engine"]["version"] == "1.20.0"
    assert _ios_spec.values(given, {"onnxruntime": ""})["engine"]["version"] == "1.24.2"


def test_the_privacy_manifest_is_a_property_list_that_collects_nothing(tmp_path: Path) -> None:
    root, _ = built(tmp_path)
    file = root / "Sources/SmallPets/PrivacyInfo.xcprivacy"
    empty = {f"NSPrivacy{key}": [] for key in ("TrackingDomains", "CollectedDataTypes", "AccessedAPITypes")}
    assert plistlib.loads(file.read_bytes()) == {"NSPrivacyTracking": False, **empty}


@pytest.mark.parametrize("name", ["Vision", "core ml", "Foundation", "SwiftUI"])
def test_a_module_is_not_called_as_one_that_an_app_imports_beside_it(name: str) -> None:
    assert _ios_spec.module(names(name).camel).endswith("Package")
    assert _ios_spec.module("SmallPets") == "SmallPets"


# --------------------------------------------------------------------------- what it offers


def test_a_classifier_of_pictures_takes_pictures(tmp_path: Path) -> None:
    root, _ = built(tmp_path)
    text = (root / "Sources/SmallPets/SmallPetsModel.swift").read_text()
    assert "classify(_ picture: CGImage)" in text and "classify(pixels: [UInt8]" in text


def test_a_classifier_of_sounds_takes_samples(tmp_path: Path) -> None:
    sound = Spectrogram(rate=8000, length=800, frame=64, hop=32, fft=64)
    given = contents(tmp_path, declared=None)
    told = Preprocess(spectrogram=sound, mean=(0.5,), std=(2.0,))
    import dataclasses

    declared = {**dataclasses.asdict(told), "mean": [0.5], "std": [2.0], "input": "image"}
    given = dataclasses.replace(given, card={**given.card, "preprocess": declared})
    (tmp_path / "root").mkdir()
    ios.build(given, tmp_path / "root")
    assert "classify(samples: [Float])" in (tmp_path / "root/Sources/SmallPets/SmallPetsModel.swift").read_text()
    spec = (tmp_path / "root/Sources/SmallPets/ModelSpec.swift").read_text()
    assert "rate: 8000, window: 64,\n            hop: 32, fft: 64," in spec


def test_a_model_that_names_no_classes_is_only_run(tmp_path: Path) -> None:
    task = {"task": "raw", "output": "", "probabilities": False, "top_k": 5}
    root, _ = built(tmp_path, postprocess=task, declared=None)
    text = (root / "Sources/SmallPets/SmallPetsModel.swift").read_text()
    assert "classify" not in text and "func run(_ input: [Float])" in text


def test_an_input_of_half_precision_is_refused_in_words(tmp_path: Path) -> None:
    given = contents(tmp_path)
    given.card["inputs"][0]["dtype"] = "float16"
    with pytest.raises(InputError, match=r"input 'image' is float16; a Swift package of ONNX Runtime takes float32"):
        ios.build(given, tmp_path / "root")


# --------------------------------------------------------------------------- no stranger's text becomes code


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_texts_stay_inside_of_literals_and_comments(tmp_path: Path, text: str) -> None:
    pytest.importorskip("tree_sitter_swift")
    given = contents(tmp_path, name=f"Pets {text}", labels=(text, "b"))
    for side in ("inputs", "outputs"):
        given.card[side][0]["name"] = text
    _renamed(given.card, text)
    root = tmp_path / "root"
    root.mkdir()
    ios.build(given, root)
    assert _shape(root) == _shape(built(tmp_path / "plain", labels=("a", "b"))[0])
    for _, source in texts(root):
        assert all(char.isprintable() or char == "\n" for char in source)
    assert not [line for line in (root / "README.md").read_text().splitlines() if line.startswith("let injected")]


def _renamed(card: Any, name: str) -> None:
    """The input and the output are called so wherever the card names them."""
    for item in (card["golden"]["raw"], *card["golden"]["inputs"], *card["golden"]["outputs"]):
        item["name"] = name
    card["preprocess"]["input"] = card["postprocess"]["output"] = name


def _syntax(file: Path) -> list[str]:
    """The types of a source's nodes, without the plain insides of literals: what a text may not change."""
    import tree_sitter
    import tree_sitter_swift

    parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_swift.language()))
    root = parser.parse(file.read_bytes()).root_node
    assert not root.has_error, file
    found, todo = [], [root]
    while todo:
        node = todo.pop()
        if node.type not in ("line_str_text", "str_escaped_char"):
            found.append(node.type)
            todo.extend(reversed(node.children))
    return found


def _shape(root: Path) -> dict[str, list[str]]:
    """The syntax of each source."""
    module = next(p.name for p in (root / "Sources").iterdir() if p.name != "benchmark")
    return {file.relative_to(root).as_posix().replace(module, "MODULE"): _syntax(file) for file, _ in texts(root)}


def test_ten_megabytes_of_name_and_labels_are_cut_or_stay_data(tmp_path: Path) -> None:
    root, _ = built(tmp_path, name='x"' * (5 << 20), labels=('y"' * (5 << 20), "b"))
    assert max(file.stat().st_size for file, _ in texts(root)) < 64 << 10
    assert (root / "README.md").stat().st_size < 64 << 10


# --------------------------------------------------------------------------- what verify finds


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rootModelIdentifier": "B"}, "its root model is not among its items"),
        ({"itemInfoEntries": {"A": {"path": "../../x"}}}, "which points outside the package"),
        ({"itemInfoEntries": {"A": {"path": "com.apple.CoreML/other"}}}, "which is not there"),
        ({"itemInfoEntries": 7}, "damaged"),
    ],
)
def test_the_items_of_an_mlpackage_are_there(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    root, given = built(tmp_path, kind="mlpackage")
    file = root / "Sources/SmallPets/Resources/model/model.mlpackage/Manifest.json"
    file.write_text(json.dumps({**MANIFEST, **change}))
    assert says in failing(root, given.card)


def test_a_package_with_two_payloads_has_none(tmp_path: Path) -> None:
    root, _ = built(tmp_path)
    (root / "Sources/benchmark/Resources").mkdir()
    with pytest.raises(InputError, match=r"has 2 folders Sources/\*/Resources"):
        ios.payload(root, tmp_path)
    assert CARD in PAYLOAD and PICTURE.resize == 9


# --------------------------------------------------------------------------- what deploys ship


SHIPPED = {"fp16": ({"use": "fp16"},), "int8-weights": ({"use": "fp16"}, {"use": "int8-weights"})}
TARGET = """
description = "Core ML"
runtime = "coreml"
platforms = ["ios-*"]
package = "ios"
[limits]
items_lost = 5
[[variant]]
name = "{name}"
compress = [{steps}]
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", prove.some(list(SHIPPED), 1))
@pytest.mark.prove
def test_the_demo_ships_packs_and_verifies_as_core_ml(tmp_path: Path, shared_store: Path, name: str) -> None:
    pytest.importorskip("coremltools")
    from edgecompress.commands import deploy
    from edgecompress.extras.apps import package
    from edgecompress.extras.apps.verify import verify

    steps = ", ".join(f'{{ use = "{step["use"]}" }}' for step in SHIPPED[name])
    (tmp_path / "ship.toml").write_text(TARGET.format(name=name, steps=steps))
    options = Options(store=shared_store, out=tmp_path / "dist")
    done = deploy.deploy(target=str(tmp_path / "ship.toml"), profile="quick", options=options)
    assert done.exit_code == 0, done.message
    packed = package.package(tmp_path / "dist", out=tmp_path / "a.zip")
    assert packed.read_bytes() == package.package(tmp_path / "dist", out=tmp_path / "b.zip").read_bytes()
    found = {check.name: check for check in verify(packed)}
    assert {check.status for check in found.values()} <= {"pass", "skipped"}
    assert found["golden"].status == found["mlpackage items"].status == found["code"].status == "pass"
    assert found["golden"].reason.startswith("coreml here")


@pytest.mark.slow
def test_an_onnx_model_packs_and_verifies(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    import package_inputs

    from edgecompress.extras.apps import package
    from edgecompress.extras.apps.verify import verify

    packed = package.package(package_inputs.shipped(tmp_path / "dist"), "ios", tmp_path / "a.zip")
    found = {check.name: check.status for check in verify(packed)}
    assert set(found.values()) <= {"pass", "skipped"}
    assert found["code"] == found["golden"] == found["processing"] == "pass"
    with zipfile.ZipFile(packed) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/ModelSpec.swift"))
        spec = archive.read(name).decode()
    assert '("graph_optimization_level", "ORT_ENABLE_ALL"),' in spec
    assert '("session.intra_op.allow_spinning", "0"),' in spec
    package_inputs.set_settings(tmp_path / "dist", {"enable_cpu_mem_arena": False})
    with pytest.raises(
        InputError, match="enable_cpu_mem_arena = False, but in this package its runtime can have True only"
    ):
        package.package(tmp_path / "dist", "ios", tmp_path / "b.zip")
