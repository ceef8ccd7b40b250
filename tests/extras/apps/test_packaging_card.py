"""The card, the golden items and the bill of materials of a package, from what a deploy shipped."""

from __future__ import annotations

import copy
import errno
import functools
import hashlib
import json
import random
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import numpy as np
import package_inputs
import pytest

from edgecompress.commands import init
from edgecompress.core import registry
from edgecompress.core.errors import ConfigError, InputError, StageFailed
from edgecompress.core.model import Artifact, Quantization, TensorSpec, sha256_of
from edgecompress.core.package_contents import CARD
from edgecompress.data import preprocess, tensors
from edgecompress.extras.apps import bom, golden, model_card, pack, package

pytestmark = pytest.mark.slow  # jsonschema, cyclonedx and ONNX
SCHEMA = json.loads(model_card.SCHEMA_FILE.read_text())


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A deployed classifier of pictures."""
    return package_inputs.shipped(tmp_path_factory.mktemp("shipped") / "pets")


@pytest.fixture
def own(shipped: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    import shutil

    return shutil.copytree(shipped, tmp_path / "pets")


def made(folder: Path, payload: Path, **common: str) -> dict[str, Any]:
    """The card of a shipped folder."""
    return dict(pack.payload(package._to_pack(folder), "tar", model_card.Common(**common), payload).card)


def test_the_card_has_every_key_and_its_schema_takes_it(shipped: Path, tmp_path: Path) -> None:
    told = made(shipped, tmp_path / "p")
    assert set(told) == set(SCHEMA["required"])
    jsonschema.Draft202012Validator(SCHEMA).validate(told)
    assert json.loads((tmp_path / "p" / CARD).read_text()) == told
    assert (told["name"], told["slug"], told["version"]) == ("Small pets", "small-pets", "1.0.0")
    assert told["runtime"] == {"name": "onnx", "version": "1.31.1", "settings": registry.runtime("onnx").settings}
    assert told["model"]["main"] == "model/model.onnx" and len(told["model"]["files"]) == 1
    assert told["postprocess"] == {"task": "classify", "output": "scores", "probabilities": False, "top_k": 4}
    assert told["preprocess"]["input"] == "image" and told["preprocess"]["crop"] == 8
    facts = {"calibrator": "minmax", "weight_bits": 8}
    assert told["compression"] == [{"technique": "int8", "options": {"calibrator": "minmax"}, "facts": facts}]
    assert told["quality"]["before"] == 1.0 and told["quality"]["split"] == "test"
    assert {row["status"] for row in told["profile"]} == {"measured", "unavailable"}
    assert told["created"] == package_inputs.DATE and told["licence"] == "CC0-1.0"


def test_a_precision_is_told_as_the_technique_that_reached_it(own: Path, tmp_path: Path) -> None:
    report = json.loads((own / "report.json").read_text())
    variant = json.loads((own / "deploy.json").read_text())["variant"]
    stages = ["data", f"{variant}/equalize", f"{variant}/guard/plain/ptq_int8", f"{variant}/verify", "other/nncf_int8"]
    report["stages"] = [{"stage": n, "status": "ok", "reason": "", "wall_s": 1.0, "log": ""} for n in stages]
    (own / "report.json").write_text(json.dumps(report))
    assert [step["technique"] for step in made(own, tmp_path / "p")["compression"]] == ["ptq_int8"]


def test_the_same_folder_gives_the_same_bytes(shipped: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        made(shipped, tmp_path / name)
    first, second = ({p.name: p.read_bytes() for p in (tmp_path / n).rglob("*") if p.is_file()} for n in ("a", "b"))
    assert first == second


def test_name_and_version_are_options(shipped: Path, tmp_path: Path) -> None:
    told = made(shipped, tmp_path / "p", name="Größe X", version="2.1.0-beta.1")
    assert (told["name"], told["slug"], told["version"]) == ("Größe X", "grosse-x", "2.1.0-beta.1") or told["slug"]
    for bad in ("", "1 0", "v1", "1.0\n", "1.0'"):
        with pytest.raises(ValueError, match="write"):
            model_card.Common(version=bad)


PLACES = (
    "",
    "model",
    "model files 0",
    "inputs 0",
    "preprocess",
    "golden",
    "golden raw",
    "profile 0",
    "quality",
    "labels",
)


@pytest.mark.parametrize("path", PLACES)
def test_a_card_with_a_key_more_or_less_is_none(shipped: Path, tmp_path: Path, path: str) -> None:
    told = made(shipped, tmp_path / "p")
    for change in ("more", "less"):
        bad = copy.deepcopy(told)
        place: Any = bad
        for key in path.split():
            place = place[int(key) if key.isdigit() else key]
        if change == "more":
            place["more"] = 1
        else:
            place.popitem()
        assert not jsonschema.Draft202012Validator(SCHEMA).is_valid(bad)
        with pytest.raises(InputError, match=r"here: model_card\.json") as raised:
            model_card.check(bad, "here")
        assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield (*at, key)
        yield from _places(each, (*at, key))


def test_what_the_schema_refuses_is_no_card(shipped: Path, tmp_path: Path) -> None:
    """A number that is null without a reason, too."""
    drawn, told = random.Random(0), made(shipped, tmp_path / "p")
    places, refused = list(_places(told)), 0
    for _ in range(300):
        changed, at = copy.deepcopy(told), drawn.choice(places)
        holder = functools.reduce(lambda inner, key: inner[key], at[:-1], changed)
        holder[at[-1]] = drawn.choice([None, True, 0, -1, 0.5, 1e9, "", "x\n", "x" * 5000, [], {}, [None]])
        if not jsonschema.Draft202012Validator(SCHEMA).is_valid(changed):
            refused += 1
            with pytest.raises(InputError, match=r"here: model_card\.json: .+: .+"):
                model_card.check(changed, "here")
    assert refused > 100


WRONG = {
    "schema": "edgecompress/model_card/2",
    "slug": "a/../b",
    "packager": "../tar",
    "version": "1.0'",
    "created": "yesterday",
    "name": "",
    "packager ": "tar\n",
    "slug ": "a\n",
}


@pytest.mark.parametrize("key", WRONG)
def test_a_card_with_a_wrong_value_is_none(shipped: Path, tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=key.strip()):
        model_card.check({**made(shipped, tmp_path / "p"), key.strip(): WRONG[key]}, "here")


OUTSIDE = (
    "../x",
    "/x",
    "model/../x",
    "model",
    "model//x",
    "model/./x",
    "model/a b",
    'model/"',
    "golden/x",
    "model/x\n",
)


@pytest.mark.parametrize("path", OUTSIDE)
def test_a_card_names_no_file_outside_of_its_folder(shipped: Path, tmp_path: Path, path: str) -> None:
    told = made(shipped, tmp_path / "p")
    told["model"]["files"][0]["path"] = path
    with pytest.raises(InputError, match="path"):
        model_card.check(told, "here")


@pytest.mark.parametrize("name", ["a\0", "a\n", "\x7f", "", "n" * 201])
def test_a_tensor_is_called_what_a_file_may_be(shipped: Path, tmp_path: Path, name: str) -> None:
    told = made(shipped, tmp_path / "p")
    told["golden"]["inputs"][0]["name"] = name
    with pytest.raises(InputError, match="name"):
        model_card.check(told, "here")


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b"\xff", b"[" * 100_000, b"null", b'{"schema": 1e999}'])
def test_a_damaged_card_is_told_in_a_line(tmp_path: Path, data: bytes) -> None:
    (tmp_path / CARD).write_bytes(data)
    with pytest.raises(InputError, match=CARD) as raised:
        model_card.read(tmp_path / CARD)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 400


def test_hostile_names_are_cut_and_kept(tmp_path: Path) -> None:
    name = "evil \"'</script>\n\u202e${x}\0" + "x" * 10_000_000
    told = made(package_inputs.shipped(tmp_path / "s", name=name, licence=name, description=name), tmp_path / "p")
    assert told["name"] == name[:199] + "…" and len(told["licence"]) == len(told["description"]) == 4000
    assert told["slug"].startswith("evil-script-x") and len(told["slug"]) <= 46


@pytest.mark.parametrize("name", ["", "\u202e", "日本語", "42", "\ud800", "../../etc", "CON"])
def test_any_name_gives_a_slug(tmp_path: Path, name: str) -> None:
    told = made(package_inputs.null(tmp_path / "s", name=name), tmp_path / "p")
    assert told["name"] and told["slug"][0].isalpha()


def test_hostile_labels_come_back_as_they_are(tmp_path: Path) -> None:
    labels = ['"', "new\nline", "\u202ertl", "x" * 10_000_000]
    made(package_inputs.shipped(tmp_path / "s", labels=labels), tmp_path / "p")
    assert json.loads((tmp_path / "p" / "labels.json").read_text()) == labels


def test_labels_of_another_number_than_the_classes_are_refused(tmp_path: Path) -> None:
    folder = package_inputs.shipped(tmp_path / "s", labels=("a", "b"))
    with pytest.raises(InputError, match="2 labels for the 4 classes of 'scores'"):
        made(folder, tmp_path / "p")


def test_without_labels_the_list_is_empty(tmp_path: Path) -> None:
    told = made(package_inputs.shipped(tmp_path / "s", labels=()), tmp_path / "p")
    assert told["labels"]["count"] == 0 and json.loads((tmp_path / "p" / "labels.json").read_text()) == []


def test_what_init_wrote_and_nobody_filled_in_is_in_no_card(tmp_path: Path) -> None:
    written = init.text("source", {"name": "birds", "model": "m.onnx", "data": "random"})
    assert {"description", "licence", "labels", "name"} & tomllib.loads(written).keys() == set()
    told = tomllib.loads(re.sub(r"^# description", "description", written, flags=re.M))["description"]
    assert made(package_inputs.shipped(tmp_path / "s", description=told), tmp_path / "p")["description"] == ""


def test_a_path_of_this_machine_does_not_get_into_the_card(tmp_path: Path) -> None:
    told = made(package_inputs.shipped(tmp_path / "s", model="/secret/place/net.onnx"), tmp_path / "p")
    assert told["source"]["model"] == "net.onnx" and "secret" not in model_card.text(told)


def test_probabilities_are_seen(own: Path, tmp_path: Path) -> None:
    from edgecompress.data import tensors

    tensors.write_split(own / "verdict" / "answers", {"scores": np.full((3, 4), 0.25, np.float32)})
    Artifact.read(own / "verdict").write()
    assert made(own, tmp_path / "p")["postprocess"]["probabilities"]


def test_a_folder_without_an_excerpt_is_refused(own: Path) -> None:
    import shutil

    shutil.rmtree(own / "excerpt")
    with pytest.raises(InputError, match="contains no test items"):
        package.package(own)


def test_a_changed_byte_of_what_was_shipped_is_refused(own: Path) -> None:
    file = own / "artifact" / "model.onnx"
    file.write_bytes(file.read_bytes() + b"\0")
    with pytest.raises(InputError, match="sha256 differs"):
        package.package(own)


# --------------------------------------------------------------------------- golden items


def test_golden_items_are_raw_numbers(shipped: Path, tmp_path: Path) -> None:
    told = made(shipped, tmp_path / "p")["golden"]
    raw = golden.load(tmp_path / "p", told["raw"])
    assert raw.shape == (12, 10, 3) and raw.dtype == np.uint8 and told["raw"]["name"] == "image"
    assert (tmp_path / "p" / "golden" / "raw.bin").read_bytes() == raw.tobytes()
    taken = golden.load(tmp_path / "p", told["inputs"][0])
    declared = package_inputs.PREPROCESS
    assert np.array_equal(taken, preprocess.numbers(preprocess.geometry(raw, declared)[None], declared))
    assert golden.load(tmp_path / "p", told["outputs"][0]).shape == (1, 4)


def test_the_golden_answer_is_the_artifacts_own(own: Path, tmp_path: Path) -> None:
    from edgecompress.data import tensors

    tensors.write_split(own / "verdict" / "answers", {"scores": np.full((3, 4), 7, np.float32)})
    Artifact.read(own / "verdict").write()
    told = made(own, tmp_path / "p")["golden"]
    assert (golden.load(tmp_path / "p", told["outputs"][0]) == 7).all()


def test_a_quantized_input_is_golden_as_the_model_takes_it(shipped: Path, tmp_path: Path) -> None:
    excerpt = Artifact.read(shipped / "excerpt")
    how = Quantization((0.05,), (3,))
    spec = TensorSpec("image", (1, 3, 8, 8), "int8", "NCHW", how)
    state = TensorSpec("h", (1, 5))
    outputs = (TensorSpec("scores", (1, 4)), TensorSpec("h1", (1, 5), feeds="h"))
    (tmp_path / "p").mkdir()
    told = golden.write(Artifact(tmp_path, "x", (spec, state), outputs), excerpt, None, tmp_path / "p")
    taken, zero = (golden.load(tmp_path / "p", item) for item in told["inputs"])
    real = np.load(shipped / "excerpt" / "test" / "input.npy")[:1]
    assert taken.dtype == np.int8 and np.abs((taken.astype(float) - 3) * 0.05 - real).max() <= 0.0251
    assert not zero.any() and zero.shape == (1, 5)
    assert [item["name"] for item in told["outputs"]] == ["scores"]


def test_a_golden_file_of_another_size_is_refused(shipped: Path, tmp_path: Path) -> None:
    item = made(shipped, tmp_path / "p")["golden"]["raw"]
    file = tmp_path / "p" / item["file"]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"golden/raw\.bin: is missing, or does not contain the 360"):
        golden.load(tmp_path / "p", item)


def test_distance_is_the_relative_rms() -> None:
    old = np.array([3.0, 4.0])
    assert golden.distance(old, old) == 0
    assert golden.distance(old, np.array([3.0, 4.5])) == pytest.approx(0.1)
    assert golden.distance(np.zeros(2), np.zeros(2)) == 0
    infinite = (np.ones(3), np.array([np.nan, 1.0]), np.array([np.inf, 1.0]))
    assert all(golden.distance(old, bad) == float("inf") for bad in infinite)
    assert golden.distance(np.zeros(2), old) == float("inf")


# --------------------------------------------------------------------------- the bill of materials


def test_the_bill_of_materials_is_valid_and_names_model_runtime_and_tools(shipped: Path, tmp_path: Path) -> None:
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    told = made(shipped, tmp_path / "p")
    module = _packager()
    module.purl = lambda card: f"pkg:maven/com.microsoft/onnxruntime-android@{card['runtime']['version']}"  # type: ignore[attr-defined]
    (tmp_path / "root").mkdir()
    text = bom.text(told, module, tmp_path / "root")
    try:
        assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    except ImportError as error:  # what the strict one needs is not ours to install
        pytest.skip(str(error))
    parts = {c["bom-ref"]: c for c in json.loads(text)["components"]}
    digest = hashlib.sha256((shipped / "artifact" / "model.onnx").read_bytes()).hexdigest()
    assert parts["model"]["type"] == "machine-learning-model"
    assert parts["model"]["hashes"] == [{"alg": "SHA-256", "content": digest}]
    assert parts["model"]["licenses"] == [{"license": {"id": "CC0-1.0"}}]
    assert parts["runtime"]["purl"] == "pkg:maven/com.microsoft/onnxruntime-android@1.31.1"
    tools = json.loads(text)["metadata"]["tools"]["components"]
    assert {"edgecompress", "onnxruntime", "numpy"} == {tool["name"] for tool in tools}
    assert bom.text(told, module, tmp_path / "root") == text


def _packager() -> ModuleType:
    """The packager `tar` under another name, without a word on what its runtime is installed as."""
    module = ModuleType("mine")
    vars(module).update(
        {name: value for name, value in vars(registry.load("packagers", "tar")).items() if name != "purl"}
    )
    return module


def _wheel(file: Path, metadata: str, **entries: bytes) -> None:
    with zipfile.ZipFile(file, "w") as wheel:
        wheel.writestr("x-1.dist-info/METADATA", f"Metadata-Version: 2.4\n{metadata}\n\nLicense: of the description")
        for name, content in entries.items():
            wheel.writestr(name, content)


def test_the_bill_of_materials_lists_all_that_ships(shipped: Path, tmp_path: Path) -> None:
    told, root = made(shipped, tmp_path / "p"), tmp_path / "root"
    (root / "wheels").mkdir(parents=True)
    native = {"x.libs/libgomp-1.so.1.0": b"machine code", "x/core.abi3.so": b"more", "x/so.py": b"none"}
    _wheel(root / "wheels" / "x-1.whl", "Name: X_y\nVersion: 1.0\nLicense-Expression: MIT AND BSD-3-Clause", **native)
    _wheel(root / "wheels" / "old-2.whl", "Name: old\nVersion: 2\nLicense: Zlib")
    (root / "requirements.txt").write_text("x-y==1.0 --hash=sha256:00\nold==2\nfetched.there==3.1\n")
    (root / "run.pyz").write_bytes(b"the runner")
    found = json.loads(bom.text(told, _packager(), root))
    parts = {c["bom-ref"]: c for c in found["components"]}
    files = {c["name"]: c["hashes"][0]["content"] for c in found["metadata"]["component"]["components"]}
    assert files == {p.relative_to(root).as_posix(): sha256_of(p) for p in root.rglob("*") if p.is_file()}
    wheel, old = parts["wheel:x-1.whl"], parts["wheel:old-2.whl"]
    assert (wheel["purl"], wheel["licenses"]) == ("pkg:pypi/x-y@1.0", [{"expression": "MIT AND BSD-3-Clause"}])
    assert {c["name"]: c["hashes"][0]["content"] for c in wheel["components"]} == {
        name: hashlib.sha256(content).hexdigest() for name, content in native.items() if ".so" in name
    }
    assert old["licenses"] == [{"license": {"id": "Zlib"}}] and old["hashes"][0]["content"] == files["wheels/old-2.whl"]
    assert parts["pin:fetched.there"]["purl"] == "pkg:pypi/fetched-there@3.1" and "pin:old" not in parts
    assert parts["code"]["name"] == "edgecompress" and parts["code"]["licenses"] == [{"license": {"id": "Apache-2.0"}}]


@pytest.mark.parametrize(
    "licence", ["", "Images: mine, CC BY 4.0. Weights: Apache-2.0.", "MIT OR Apache-2.0", "\u202e\n\0<x>"]
)
def test_any_licence_can_be_written(shipped: Path, tmp_path: Path, licence: str) -> None:
    told = {**made(shipped, tmp_path / "p"), "licence": licence}
    (tmp_path / "root").mkdir()
    found = json.loads(bom.text(told, _packager(), tmp_path / "root"))
    model = next(c for c in found["components"] if c["bom-ref"] == "model")
    assert ("licenses" in model) == bool(licence)


# --------------------------------------------------------------------------- packing


def test_an_option_that_is_none_is_told(shipped: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="packager 'tar': no option 'versoin', did you mean 'version'"):
        package.package(shipped, "tar", tmp_path / "x.tar.gz", {"versoin": "1"})
    with pytest.raises(ConfigError, match=r"write 1\.0\.0"):
        package.package(shipped, "tar", tmp_path / "x.tar.gz", {"version": "v1"})
    assert not list(tmp_path.iterdir())


def test_a_packager_that_does_not_take_the_format_names_those_that_do(
    monkeypatch: pytest.MonkeyPatch, shipped: Path
) -> None:
    from edgecompress.extras.apps.packagers import tar

    monkeypatch.setattr(tar, "FORMATS", ("pte",))
    with pytest.raises(InputError, match=r"packager 'tar' takes pte, not onnx(; onnx is packed with --as .+)?$"):
        package.package(shipped, "tar")


@pytest.mark.parametrize("change", [{"variants": [3]}, {"target": "x"}, {"data": [1]}, {"variants": {"a": 1}}])
def test_a_report_that_no_deploy_wrote_is_refused(own: Path, tmp_path: Path, change: dict[str, Any]) -> None:
    package_inputs.report(own, **change)
    with pytest.raises(InputError, match=r"report\.json: damaged: "):
        package.package(own, "tar", tmp_path / "out.tar.gz", {"wheels": False})


def test_a_place_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, shipped: Path, tmp_path: Path
) -> None:
    def full(*given: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "file").write_text("")
    for out, says in (
        (tmp_path, "is a folder"),
        (tmp_path / "file" / "out.tar.gz", "is a file, not a folder|not writable"),
    ):
        with pytest.raises(InputError, match=says):
            package.package(shipped, "tar", out, {"wheels": False})
    monkeypatch.setattr(pack.archive, "write", full)
    with pytest.raises(StageFailed, match="No space left on device"):
        package.package(shipped, "tar", tmp_path / "full" / "out.tar.gz", {"wheels": False})
    assert not list((tmp_path / "full").iterdir())


def test_what_breaks_on_the_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, shipped: Path, tmp_path: Path) -> None:
    from edgecompress.extras.apps.packagers import tar

    def breaks(contents: object, root: Path) -> None:
        (root / "half").write_text("half")
        raise InputError("broken")

    monkeypatch.setattr(tar, "build", breaks)
    (tmp_path / "x.tar.gz").write_text("the one before")
    with pytest.raises(InputError, match="broken"):
        package.package(shipped, "tar", tmp_path / "x.tar.gz")
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("x.tar.gz", "the one before")]


KILLED = """
import os, sys
from pathlib import Path
import edgecompress
from edgecompress.extras.apps import pack

pack.archive.write = lambda *given: os.kill(os.getpid(), 9)
edgecompress.package(Path(sys.argv[1]), "tar", Path(sys.argv[2]), {"wheels": False})
"""


def test_what_a_killed_run_left_goes_with_the_next_one(shipped: Path, tmp_path: Path) -> None:
    place = tmp_path / "out" / "x.tar.gz"
    done = subprocess.run([sys.executable, "-c", KILLED, str(shipped), str(place)], capture_output=True, check=False)
    assert done.returncode == -9 and len(list(place.parent.iterdir())) == 1
    another = place.parent / f".{place.name}.99999999-of-somebody-else"
    another.mkdir()
    package.package(shipped, "tar", place, {"wheels": False})
    assert sorted(place.parent.iterdir()) == sorted([place, another])


@pytest.mark.parametrize(
    ("answers", "distribution"),
    [
        (lambda p, z: p, True),
        (lambda p, z: np.round(p * 256) / 256, True),  # a softmax in int8: its sums are 0.99 to 1.01
        (lambda p, z: z, False),
        (lambda p, z: np.maximum(z, 0), False),
        (lambda p, z: 1 / (1 + np.exp(-z)), False),  # each class for itself
    ],
)
def test_answers_are_probabilities_also_where_int8_rounds_them(
    answers: Any, distribution: bool, tmp_path: Path
) -> None:
    z = 2 * np.random.default_rng(0).normal(size=(16, 10))
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    tensors.write_split(tmp_path / golden.ANSWERS, {"y": answers(p, z).astype(np.float32)})
    verdict = Artifact(tmp_path, "verdict")
    kept = model_card.Shipped(verdict, verdict, verdict, None, "", "")  # type: ignore[arg-type]
    assert model_card._probabilities(kept, "y") is distribution
