"""`package verify`: a sound package passes, and whatever is changed in one fails the check that is about it."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import package_inputs
import pytest

from edgecompress.cli import main
from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import CARD
from edgecompress.extras.apps import archive, model_card, pack, verify
from edgecompress.extras.apps.package import package as pack_up

pytestmark = pytest.mark.slow  # ONNX, jsonschema

CORE = ["signature", "archive", "card", "sums", "payload", "code", "processing", "golden", "accuracy"]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package of a classifier of pictures; opened beside it."""
    folder = tmp_path_factory.mktemp("package")
    made = pack_up(package_inputs.shipped(folder / "pets"), "tar", folder / "pets.tar.gz", {"wheels": False})
    (folder / "opened").mkdir()
    archive.unpack(made, folder / "opened")
    return made


@pytest.fixture
def root(package: Path, tmp_path: Path) -> Path:
    """The package's tree, to be changed."""
    shutil.copytree(package.parent / "opened", tmp_path / "tree")
    return archive.top(tmp_path / "tree", package)


def status(file: Path, key: str | None = None) -> dict[str, tuple[str, str]]:
    return {check.name: (check.status, check.reason) for check in verify.verify(file, key)}


def resealed(root: Path) -> dict[str, tuple[str, str]]:
    """The checks of a tree whose sums were made again: as one who changes a package would."""
    (root / pack.SUMS).write_text(pack.sums(root), encoding="utf-8")
    return packed(root)


def packed(root: Path) -> dict[str, tuple[str, str]]:
    file = root.parent.parent / "changed.tar.gz"
    archive.write(root.parent, file, ".tar.gz")
    return status(file)


def payload(root: Path) -> Path:
    from edgecompress.extras.apps.packagers import tar

    return tar.payload(root, root.parent.parent)


def changed_card(root: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Both cards changed alike."""
    told = json.loads((root / CARD).read_text())
    change(told)
    for place in (root, payload(root)):
        (place / CARD).write_text(model_card.text(told), encoding="utf-8")


LIMITED = {"name": "items_lost", "ok": True, "value": 2.0, "limit": 5.0}
ACCURACY = {
    "inside": {**LIMITED, "decision": "inside", "needed": None, "says": "at most 3"},
    "undecided": {**LIMITED, "decision": "undecided", "needed": 900, "says": "0.2 to 6: undecided"},
}


@pytest.mark.parametrize(
    ("word", "status", "status_where_strict"), [("inside", "pass", "pass"), ("undecided", "skipped", "fail")]
)
def test_an_undecided_accuracy_is_told_and_fails_where_strict(
    word: str, status: str, status_where_strict: str, tmp_path: Path
) -> None:
    folder = package_inputs.shipped(tmp_path / "pets")
    report = json.loads((folder / "report.json").read_text())
    report["variants"][0]["verify"]["checks"] = [
        {"name": "finite", "ok": True, "value": 1.0, "limit": 1.0, "says": "finite"},
        ACCURACY[word],
    ]
    (folder / "report.json").write_text(json.dumps(report))
    file = pack_up(folder, "tar", tmp_path / "pets.tar.gz", {"wheels": False})
    for strict, ended in ((False, status), (True, status_where_strict)):
        found = {check.name: check for check in verify.verify(file, strict=strict)}
        assert (found["accuracy"].status, found["accuracy"].reason) == (ended, ACCURACY[word]["says"])


def test_a_sound_package_passes(package: Path) -> None:
    found = verify.verify(package)
    assert [check.name for check in found][: len(CORE)] == CORE
    assert not [check for check in found if check.status == "fail"]
    told = status(package)
    assert told["signature"] == ("skipped", "it is not signed")
    assert {told[name][0] for name in CORE if name not in ("signature", "accuracy")} == {"pass"}
    assert told["accuracy"] == ("skipped", "the card has no limit on its accuracy")


def test_its_name_does_not_matter(package: Path, tmp_path: Path) -> None:
    shutil.copy(package, tmp_path / "x.exe")
    assert status(tmp_path / "x.exe")["archive"][0] == "pass"


CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a weight": ("payload", lambda root: package_inputs.flip(payload(root) / "model" / "model.onnx")),
    "a golden input": ("payload", lambda root: package_inputs.flip(payload(root) / "golden" / "input-0.bin")),
    "a golden output": ("payload", lambda root: package_inputs.flip(payload(root) / "golden" / "output-0.bin")),
    "the raw item": ("payload", lambda root: package_inputs.flip(payload(root) / "golden" / "raw.bin")),
    "a label": ("payload", lambda root: package_inputs.flip(payload(root) / "labels.json")),
    "the payload's card": ("payload", lambda root: (payload(root) / CARD).write_text("{}") and None),
    "no golden file": ("payload", lambda root: (payload(root) / "golden" / "output-0.bin").unlink()),
    "no model": ("payload", lambda root: (payload(root) / "model" / "model.onnx").unlink()),
    "one more model": ("payload", lambda root: (payload(root) / "model" / "more.onnx").write_text("x") and None),
    "no card": ("card", lambda root: (root / CARD).unlink()),
    "no card's text": ("card", lambda root: (root / CARD).write_text("[]") and None),
    "another name": ("card", lambda root: changed_card(root, lambda told: told.update(slug="other"))),
    "an unknown packager": ("card", lambda root: changed_card(root, lambda told: told.update(packager="rar"))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_changed_fails_even_where_the_sums_were_made_again(root: Path, what: str) -> None:
    name, change = CHANGES[what]
    change(root)
    told = resealed(root)
    assert told[name][0] == "fail", told
    assert all("\n" not in reason and len(reason) < 500 for _, reason in told.values())
    assert told["golden"][0] == "skipped"


SUMS_CHANGES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "a byte of any file": ("sha256 differs", lambda root: package_inputs.flip(root / "README.md")),
    "a file that is missing": ("not in the package", lambda root: (root / "README.md").unlink()),
    "a file that is more": ("is not in SHA256SUMS", lambda root: (root / "more").write_text("x") and None),
    "no sums": ("is missing", lambda root: (root / pack.SUMS).unlink()),
    "a line twice": ("occurs twice", lambda root: repeat(root / pack.SUMS)),
    "no lines": ("not 'sha256 path'", lambda root: (root / pack.SUMS).write_text("x\n") and None),
}


def repeat(file: Path) -> None:
    file.write_text(file.read_text() + file.read_text().splitlines()[0] + "\n")


@pytest.mark.parametrize("what", SUMS_CHANGES)
def test_the_sums_are_complete_and_right(root: Path, what: str) -> None:
    says, change = SUMS_CHANGES[what]
    change(root)
    state, reason = packed(root)["sums"]
    assert state == "fail" and says in reason


def test_a_changed_normalisation_fails_the_processing(root: Path) -> None:
    changed_card(root, lambda told: told["preprocess"]["mean"].__setitem__(0, 0.4851))
    told = resealed(root)
    assert told["processing"][0] == "fail" and "from the golden input, limit 1e-06" in told["processing"][1]
    assert told["golden"][0] == "pass"


def test_the_process_that_opens_the_model_changes_nothing_else(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that each Python imports at its start tries it, in the agent alone."""
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(
        "import pathlib, sys\n"
        "if sys.orig_argv[3] == 'edgecompress.device.agent':\n"
        "    print('agent', file=sys.stderr)\n"
        f"    pathlib.Path({str(tmp_path / 'strayed')!r}).touch()\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "hook"))
    assert packed(root)["golden"][0] == "pass"  # Python goes on where its hook fails
    assert not (tmp_path / "strayed").exists()


def test_a_golden_answer_that_the_model_does_not_give_fails(root: Path) -> None:
    from edgecompress.core.model import sha256_of

    file = payload(root) / "golden" / "output-0.bin"
    file.write_bytes(file.read_bytes()[::-1])
    changed_card(root, lambda told: told["golden"]["outputs"][0].update(sha256=sha256_of(file)))
    told = resealed(root)
    assert told["payload"][0] == "pass"
    assert told["golden"][0] == "fail" and "output 'scores' is" in told["golden"][1]


def test_a_model_that_does_not_open_is_a_failed_check(root: Path) -> None:
    from edgecompress.core.model import sha256_of

    file = payload(root) / "model" / "model.onnx"
    file.write_bytes(b"no model" * 100)
    sealed = {"bytes": 800, "sha256": sha256_of(file)}
    changed_card(root, lambda told: told["model"]["files"][0].update(sealed))
    told = resealed(root)
    assert told["payload"][0] == "pass" and told["golden"][0] == "fail"


@pytest.mark.parametrize(
    ("change", "state", "says"),
    [
        ({"runtime": {"name": "unheard", "version": "1"}}, "skipped", "this version has no runtime 'unheard'"),
        ({"runtime": {"name": "openvino", "version": "1"}}, "fail", "runs openvino, but the model is onnx"),
    ],
)
def test_a_runtime_that_is_not_here_is_said(root: Path, change: dict[str, Any], state: str, says: str) -> None:
    changed_card(root, lambda told: told.update(change))
    found = resealed(root)["golden"]
    assert found[0] == state and says in found[1]


@pytest.mark.parametrize("kind", ["aoti", "savedmodel"])
def test_a_format_that_runs_its_authors_code_is_not_opened(root: Path, kind: str) -> None:
    name = {"aoti": "torchinductor", "savedmodel": "tensorflow"}[kind]
    change = {"runtime": {"name": name, "version": "1"}}
    changed_card(root, lambda told: told.update(change, model={**told["model"], "format": kind}))
    found = resealed(root)["golden"]
    assert found[0] == "skipped" and "author" in found[1]


@pytest.mark.parametrize(("pixels", "says"), [(30_000, "more pixels"), (10**8, "resize must be 1 to 32768 pixels")])
def test_a_resize_that_would_fill_the_memory_is_refused(root: Path, pixels: int, says: str) -> None:
    changed_card(root, lambda told: told["preprocess"].update(resize=pixels))
    found = resealed(root)["processing"]
    assert found[0] == "fail" and says in found[1]


NAMES: dict[str, Callable[[dict[str, Any]], object]] = {
    "preprocess": lambda told: told["preprocess"].update(input="nothere"),
    "golden": lambda told: told["golden"]["inputs"][0].update(name="nothere"),
    "golden:": lambda told: told["golden"]["outputs"][0].update(name="nothere"),
    "postprocess": lambda told: told["postprocess"].update(output="nothere"),
}


@pytest.mark.parametrize("key", NAMES)
def test_a_card_that_names_what_its_model_does_not_have_is_none(root: Path, key: str) -> None:
    changed_card(root, lambda told: NAMES[key](told) and None)
    assert resealed(root)["card"] == ("fail", f"model_card.json: {key.rstrip(':')}: the model has no 'nothere'")


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_a_limit_that_nothing_exceeds_is_no_card(root: Path, number: str) -> None:
    text = (root / CARD).read_text().replace('"float": 1e-06', f'"float": {number}')
    assert number in text
    for place in (root, payload(root)):
        (place / CARD).write_text(text)
    told = resealed(root)
    assert told["card"][0] == "fail" and f"{number} is not a finite number" in told["card"][1]


def test_a_golden_input_that_is_no_number_fails_the_processing(root: Path) -> None:
    import numpy as np

    from edgecompress.core.model import sha256_of

    file = payload(root) / "golden" / "input-0.bin"
    numbers = np.fromfile(file, np.float32)
    numbers[3] = np.nan
    numbers.tofile(file)
    changed_card(root, lambda told: told["golden"]["inputs"][0].update(sha256=sha256_of(file)))
    assert resealed(root)["processing"][0] == "fail"


def test_a_card_of_many_megabytes_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_card, "LARGEST", 100)
    status, reason = resealed(root)["card"]
    assert status == "fail" and reason.endswith("/model_card.json: is larger than 100 bytes; give a smaller file")


def test_a_key_that_is_there_twice_is_no_card(root: Path) -> None:
    file = root / CARD
    file.write_text(file.read_text().replace("{", '{"name": "another",', 1), encoding="utf-8")
    assert resealed(root)["card"] == ("fail", "model_card.json: damaged: the key 'name' occurs twice")


CODE = {
    "a changed script": lambda root: (root / "install.sh").write_text("#!/bin/sh\necho owned\n"),
    "a changed page of words": lambda root: (root / "README.md").write_text("1. curl example.com | sh\n"),
    "a script that is missing": lambda root: (root / "run").unlink(),
    "a script more": lambda root: (root / "more.sh").write_text("#!/bin/sh\n"),
    "a file more beside the payload's": lambda root: (payload(root) / "more.so").write_text("x"),
    "a changed runner": lambda root: _changed_runner(root / "run.pyz"),
    "another option in the card": lambda root: changed_card(
        root, lambda told: told["packaged"]["options"].update(port=9000)
    ),
}


def _changed_runner(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as runner:
        runner.writestr("sitecustomize.py", "import os\n")


@pytest.mark.parametrize("what", CODE)
def test_code_that_is_not_written_so_fails_though_the_sums_were_made_again(root: Path, what: str) -> None:
    CODE[what](root)
    assert resealed(root)["code"][0] == "fail"


def test_the_code_of_another_version_is_not_judged(root: Path) -> None:
    changed_card(root, lambda told: told["packaged"].update(by="0.0.1"))
    status, reason = resealed(root)["code"]
    assert status == "skipped"
    assert reason.startswith("written by edgecompress 0.0.1; this is ")


def test_a_reason_tells_the_packages_paths_and_not_where_it_was_opened(root: Path) -> None:
    (root / "run.pyz").write_bytes(b"PK\5\6")
    reasons = "; ".join(reason for _, reason in resealed(root).values())
    assert "run.pyz: is truncated" in reasons
    assert tempfile.gettempdir() not in reasons


@pytest.mark.parametrize("error", [zlib.error("x"), StopIteration(), AssertionError("x"), AttributeError("x")])
def test_whatever_a_library_raises_is_a_fail(package: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def broken(*given: object) -> Any:
        raise error

    monkeypatch.setattr(verify.golden, "load", broken)
    told = status(package)
    assert told["processing"][0] == told["golden"][0] == "fail"


def test_a_check_of_the_packager_that_breaks_is_a_fail(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from edgecompress.extras.apps.packagers import tar

    def broken(*given: object) -> Any:
        raise ZeroDivisionError("line\nline")

    monkeypatch.setattr(tar, "checks", broken)
    assert status(package)["tar"] == ("fail", "ZeroDivisionError: line line")


@pytest.mark.parametrize("data", [b"", b"PK\3\4", b"\x1f\x8b\x08", b"text" * 100])
def test_what_is_no_package_fails_at_once_and_says_why_the_rest_was_not_looked_at(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.zip").write_bytes(data)
    told = status(tmp_path / "bad.zip")
    assert told["archive"][0] == "fail" and {told[name][0] for name in CORE if name != "archive"} == {"skipped"}
    assert all(reason for _, reason in told.values())


def test_a_file_that_is_not_there_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        verify.verify(tmp_path / "nowhere.zip")


# --------------------------------------------------------------------------- signed, and from the command line


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A signed package, and the public key."""
    from minisign import KeyPair

    pair = KeyPair.generate()
    (tmp_path / "mine.key").write_bytes(bytes(pair.secret_key) + b"\n")
    (tmp_path / "mine.pub").write_bytes(bytes(pair.public_key) + b"\n")
    folder, out = package_inputs.null(tmp_path / "null"), tmp_path / "null.tar.gz"
    command = ["package", folder, "--as", "tar", "--out", out, "--sign", tmp_path / "mine.key"]
    settings = ["--set", "version=2.10", "--set", "wheels=false"]
    assert main.main([*(str(word) for word in command), *settings]) == 0
    return out, tmp_path / "mine.pub"


def test_a_signature_passes_fails_or_is_skipped(signed: tuple[Path, Path], tmp_path: Path) -> None:
    file, key = signed
    assert status(file, str(key))["signature"][0] == "pass"
    assert status(file)["signature"] == ("skipped", "it is signed; give the public key with --key")
    beside = file.with_name(file.name + ".minisig")
    beside.rename(tmp_path / "kept")
    assert status(file, str(key))["signature"][0] == "fail"
    other = pack_up(tmp_path / "null", "tar", tmp_path / "other.tar.gz", {"version": "3.0", "wheels": False})
    shutil.copy(tmp_path / "kept", other.with_name(other.name + ".minisig"))
    assert "is not a valid signature of this file" in status(other, str(key))["signature"][1]


def test_nothing_is_opened_whose_signature_is_wrong(signed: tuple[Path, Path], tmp_path: Path) -> None:
    file, key = signed
    other = tmp_path / "unsigned.tar.gz"
    shutil.copyfile(file, other)
    assert {name: said for name, (said, _) in status(other, str(key)).items()} == {
        "signature": "fail",
        **dict.fromkeys(CORE[1:], "skipped"),
    }
    assert status(other, str(key))["archive"][1] == "its signature is wrong"


def test_the_command_lists_each_check_and_ends_with_its_code(
    signed: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, key = signed
    capsys.readouterr()
    assert main.main(["package", "verify", str(file), "--key", str(key)]) == 0
    told = capsys.readouterr().out
    assert all(name in told for name in CORE) and "pass" in told and "skipped" in told
    assert main.main(["package", "verify", "--json", str(file)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert b'"version": "2.10"' in gzip.decompress(file.read_bytes())
    assert found["ok"] and {"name", "status", "reason"} == set(found["checks"][0])
    file.write_bytes(file.read_bytes()[:-20])
    assert main.main(["package", "verify", str(file)]) == 1
    assert "fail" in capsys.readouterr().out
    assert main.main(["package", "verify", str(tmp_path / "nowhere")]) == 2
    assert main.main(["package", "verify", str(file), "--key", "nothing"]) == 2


def test_a_folder_may_be_called_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package_inputs.null(tmp_path / "verify")
    monkeypatch.chdir(tmp_path)
    assert main.main(["package", "./verify"]) == 0
    assert (tmp_path / "verify.tar.gz").is_file()


def test_a_packages_name_says_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def packs(shipped: object, packager: str, place: Path, settings: object) -> object:
        raise InputError(place.name)

    monkeypatch.setattr(pack, "pack", packs)
    for name in ("android.zip", "birds-android.zip", "x86.tar.gz", "x86-web.zip", "webs-ios.zip"):
        packager = "tar" if ".tar" in name else name.split(".")[0].split("-")[-1]
        folder = tmp_path / f"of-{name}" / name.split(".")[0].removesuffix("-web").removesuffix("-ios")
        with pytest.raises(InputError, match=f"^{name}$"):
            pack_up(package_inputs.null(folder), packager)


def test_the_command_names_what_the_source_does_not_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = package_inputs.null(tmp_path / "null", description="A net.")
    assert main.main(["package", str(folder)]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == str(tmp_path / "null.tar.gz") and told[-1] == "left out, for the source has none: licence"
    assert main.main(["package", str(folder), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["package"] == told[0] and facts["left_out"] == ["licence"]


def test_a_bad_key_or_option_leaves_no_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = package_inputs.null(tmp_path / "null")
    before = set(tmp_path.rglob("*"))
    for words in (["--sign", "nowhere.key"], ["--set", "versoin=1"], ["--as", "rar"], ["--as", "web"]):
        assert main.main(["package", str(folder), *words]) == 2, words
        assert capsys.readouterr().err.count("\n") == 1
    assert set(tmp_path.rglob("*")) == before
