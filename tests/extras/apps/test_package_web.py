"""A web package's tree and checks, and where ONNX Runtime Web comes from. A stand-in is packed: nothing is fetched."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgecompress.core.errors import InputError, MissingDependency, StageFailed
from edgecompress.extras.apps import model_card as cards
from edgecompress.extras.apps.packagers import _web_ort, web

STAND_IN = {_web_ort.LOADER: b"export const env = {};\n", _web_ort.WASM: b"\0asm"}
ISOLATES = "Cross-Origin-Opener-Policy"
PASSED = ["policy", "no other code", "ONNX Runtime Web"]


def release(files: dict[str, bytes] = STAND_IN) -> bytes:
    """An archive as npm packs it."""
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w:gz") as tar:
        for name, content in {"../../escaped": b"no", **{f"package/dist/{k}": v for k, v in files.items()}}.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return held.getvalue()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and pins of the stand-in."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(_web_ort.OFFLINE, raising=False)
    monkeypatch.setattr(_web_ort, "FILES", {k: hashlib.sha256(v).hexdigest() for k, v in STAND_IN.items()})
    archive = release()
    digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
    monkeypatch.setattr(_web_ort, "INTEGRITY", f"sha512-{digest}")
    npm(tmp_path, monkeypatch, archive)
    return tmp_path / "cache" / "edgecompress" / _web_ort.NAME / _web_ort.VERSION


def npm(place: Path, monkeypatch: pytest.MonkeyPatch, archive: bytes, code: int = 0, says: str = "") -> Path:
    """An npm that brings `archive`; the file counts its calls."""
    (place / "bin").mkdir(exist_ok=True)
    (place / "archive.tgz").write_bytes(archive)
    script = (
        f"#!{sys.executable}\nimport pathlib, shutil, sys\n"
        f"pathlib.Path({str(place / 'calls')!r}).open('a').write(' '.join(sys.argv[1:]) + '\\n')\n"
        f"print({says!r}, file=sys.stderr)\nif {code}: sys.exit({code})\n"
        f"shutil.copy({str(place / 'archive.tgz')!r}, sys.argv[-1])\n"
    )
    (place / "bin" / "npm").write_text(script)
    (place / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", str(place / "bin"))
    return place / "calls"


# --------------------------------------------------------------------------- where the runtime comes from


def test_the_runtime_is_fetched_once_and_kept(cache: Path, tmp_path: Path) -> None:
    found = _web_ort.files()
    assert {name: file.read_bytes() for name, file in found.items()} == STAND_IN
    assert {file.parent for file in found.values()} == {cache}
    assert _web_ort.files() == found
    (asked,) = (tmp_path / "calls").read_text().splitlines()
    assert asked.startswith(f"pack {_web_ort.NAME}@{_web_ort.VERSION} --silent --ignore-scripts --pack-destination ")
    assert sorted(p.name for p in cache.parent.iterdir()) == [_web_ort.VERSION]  # nothing is left of the fetch
    assert not list(tmp_path.rglob("escaped"))


def test_a_damaged_copy_in_the_cache_is_fetched_again(cache: Path) -> None:
    file = _web_ort.files()[_web_ort.WASM]
    file.write_bytes(b"damaged")
    assert _web_ort.files()[_web_ort.WASM].read_bytes() == STAND_IN[_web_ort.WASM]


def test_without_npm_the_command_that_installs_it_is_told(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingDependency, match="is fetched by npm, not installed; install it"):
        _web_ort.files()


def test_with_a_copy_in_the_cache_nothing_is_needed(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _web_ort.files()
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv(_web_ort.OFFLINE, "1")
    assert _web_ort.cached()
    assert len(_web_ort.files()) == 2


def test_offline_nothing_is_fetched(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_web_ort.OFFLINE, "1")
    with pytest.raises(InputError, match="and --offline allows no downloads; package once"):
        _web_ort.files()
    assert not (tmp_path / "calls").exists()


def test_other_bytes_than_the_release_are_refused(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm(tmp_path, monkeypatch, release({**STAND_IN, _web_ort.LOADER: b"alert(1)"}))
    with pytest.raises(StageFailed, match="are not those of the release"):
        _web_ort.files()
    assert not _web_ort.cached()


@pytest.mark.parametrize(
    ("files", "says"), [({}, "not found"), ({**STAND_IN, _web_ort.WASM: b"other"}, "is not the pinned version")]
)
def test_a_release_without_the_pinned_files_is_refused(
    files: dict[str, bytes], says: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = release(files)
    npm(tmp_path, monkeypatch, archive)
    pinned = f"sha512-{base64.b64encode(hashlib.sha512(archive).digest()).decode()}"
    monkeypatch.setattr(_web_ort, "INTEGRITY", pinned)
    with pytest.raises(StageFailed, match=says):
        _web_ort.files()


def test_what_npm_says_is_one_line(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    npm(tmp_path, monkeypatch, b"", 1, "npm warn old\nnpm error code E404\nnpm error 404 Not Found\n")
    with pytest.raises(StageFailed) as failed:
        _web_ort.files()
    assert str(failed.value) == (
        f"packager 'web': onnxruntime-web {_web_ort.VERSION}: npm: npm error code E404; "
        "check the network and npm's settings and run the command again"
    )


# --------------------------------------------------------------------------- the tree


@pytest.fixture
def root(cache: Path, tmp_path: Path) -> Path:
    """The opened package of a small net, around the stand-in."""
    return made(tmp_path)


def made(place: Path, **changes: Any) -> Path:
    pytest.importorskip("onnxruntime")
    import package_inputs
    from package_web import packed

    return packed(package_inputs.shipped(place / "shipped", **changes), place / "package")


def found(root: Path) -> dict[str, str]:
    """The checks that failed, with their reasons."""
    checks = list(web.checks(root, cards.read(root / "model_card.json"), root.parent / "work"))
    assert [check.name for check in checks] == [f"web: {name}" for name in PASSED]
    return {check.name.removeprefix("web: "): check.reason for check in checks if check.status != "pass"}


@pytest.mark.slow
def test_the_tree_has_what_a_page_needs_and_passes_its_checks(root: Path) -> None:
    there = {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}
    wanted = {"index.html", "model.js", "spec.js", "processing.js", "page.css", "serve.py", "package.json", "README.md"}
    assert wanted | {f"ort/{name}" for name in STAND_IN} | {"ort/LICENSE", "model/model.onnx", "labels.json"} <= there
    assert found(root) == {}
    assert web.payload(root, root.parent / "work") == root
    assert "export class SmallPetsModel {" in (root / "model.js").read_text()
    assert root.name == "small-pets-web"


@pytest.mark.slow
def test_a_packed_model_is_carried_packed_alone(cache: Path, tmp_path: Path) -> None:
    import package_inputs
    from package_web import packed

    root = packed(package_inputs.shipped(tmp_path / "shipped"), tmp_path / "package", packed=True)
    assert [file.name for file in (root / "model").iterdir()] == ["model.onnx.packed"]
    assert found(root) == {} and '"packed": true' in (root / "spec.js").read_text()


@pytest.mark.slow
def test_the_readme_has_at_most_three_steps_and_tells_the_size(root: Path) -> None:
    readme = (root / "README.md").read_text()
    assert [line[:2] for line in readme.splitlines() if line[:1].isdigit()] == ["1.", "2.", "3."]
    assert 'import { SmallPetsModel } from "small-pets";' in readme
    assert " MB" in readme and " KB" in readme


@pytest.mark.slow
def test_the_bill_of_materials_names_the_release(root: Path) -> None:
    assert f"pkg:npm/onnxruntime-web@{_web_ort.VERSION}" in (root / "bom.cdx.json").read_text()


@pytest.mark.slow
@pytest.mark.parametrize(("given", "version"), [("1.0.0", "1.0.0"), ("2", "2.0.0"), ("2.1-beta.1", "2.1.0-beta.1")])
def test_the_npm_package_has_a_version_that_npm_takes(given: str, version: str, cache: Path, tmp_path: Path) -> None:
    import package_inputs

    from edgecompress.extras.apps import package

    file = package.package(package_inputs.shipped(tmp_path / "s"), "web", tmp_path / "p.zip", {"version": given})
    import zipfile

    with zipfile.ZipFile(file) as archive:
        told = json.loads(archive.read("small-pets-web/package.json"))
    assert (told["name"], told["version"], told["type"]) == ("small-pets", version, "module")
    assert "description" not in told  # the source has none


@pytest.mark.slow
def test_a_model_in_several_files_is_refused(cache: Path, tmp_path: Path) -> None:
    import package_inputs

    from edgecompress.core.model import Artifact
    from edgecompress.extras.apps import package

    shipped = package_inputs.shipped(tmp_path / "s")
    (shipped / "artifact" / "model.onnx.data").write_bytes(b"weights")
    Artifact.read(shipped / "artifact").write()
    with pytest.raises(InputError, match=r"the model is 2 files; it takes one \.onnx"):
        package.package(shipped, "web", tmp_path / "p.zip")


# --------------------------------------------------------------------------- what its checks find


def edited(name: str, change: Callable[[str], str]) -> Callable[[Path], None]:
    def edit(root: Path) -> None:
        text = (root / name).read_text(encoding="utf-8")
        assert change(text) != text
        (root / name).write_text(change(text), encoding="utf-8")

    return edit


def added(name: str, text: str) -> Callable[[Path], None]:
    return edited(name, lambda found: found + text)


def inside(tag: str) -> Callable[[Path], None]:
    return edited("index.html", lambda text: text.replace("</main>", f"{tag}</main>"))


def written(name: str) -> Callable[[Path], None]:
    return lambda root: (root / name).write_text("1", encoding="utf-8") and None


TAMPERED: dict[str, tuple[str, Callable[[Path], None]]] = {
    "another policy": ("policy", edited("index.html", lambda t: t.replace("connect-src", "img-src *; connect-src"))),
    "no policy": ("policy", edited("index.html", lambda t: t.replace("Content-Security-Policy", "x-policy"))),
    "two policies": (
        "policy",
        inside('<meta http-equiv="content-security-policy" content="script-src *">'),
    ),
    "a refresh": ("policy", inside('<meta http-equiv="refresh" content="0">')),
    "before the policy": (
        "policy",
        edited("index.html", lambda t: t.replace("<head>", '<head><link href="a.css">', 1)),
    ),
    "inline script": ("policy", inside("<script>alert(1)</script>")),
    "a handler": ("policy", inside('<p onclick="alert(1)">')),
    "a stranger's script": ("no other code", written("extra.js")),
    "a stranger's page": ("no other code", written("golden/x.HTML")),
    "a script in a picture": ("no other code", edited("icon.svg", lambda t: t.replace("<rect", "<script/><rect", 1))),
    "another runtime": ("ONNX Runtime Web", added(f"ort/{_web_ort.LOADER}", "alert(1);\n")),
    "no runtime": ("ONNX Runtime Web", lambda root: (root / "ort" / _web_ort.WASM).unlink()),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", TAMPERED)
def test_a_package_that_was_tampered_with_fails_its_check(what: str, root: Path) -> None:
    check, tamper = TAMPERED[what]
    tamper(root)
    failed = found(root)
    assert list(failed) == [check]
    assert 0 < len(failed[check]) <= 200 and "\n" not in failed[check]


@pytest.mark.slow
@pytest.mark.parametrize("tag", ["<!--", "<a ", "<![x", "<"])
def test_a_page_that_would_hold_up_a_parser_is_not_parsed(tag: str, root: Path) -> None:
    (root / "index.html").write_text(tag * 100_000, encoding="utf-8")
    assert "is larger, or has more tags" in found(root)["policy"]


@pytest.mark.slow
def test_a_page_that_breaks_the_parser_is_a_failed_check(root: Path) -> None:
    (root / "index.html").write_text("<![x[ <!y", encoding="utf-8")
    assert found(root)["policy"]


@pytest.mark.slow
def test_a_name_that_looks_like_a_host_fails_no_check(cache: Path, tmp_path: Path) -> None:
    name = 'https://example.org/ "//example.org" url(x) <script src=//e.org>'
    assert found(made(tmp_path, name=name, description=name, labels=[name] * 4)) == {}


@pytest.mark.slow
def test_what_is_missing_is_a_failed_check_and_no_traceback(root: Path) -> None:
    (root / "index.html").unlink()
    assert set(found(root)) == {"policy"}
    (root / "index.html").write_bytes(b"\xff\xfe")
    assert set(found(root)) == {"policy"}


# --------------------------------------------------------------------------- the scripts themselves


@pytest.mark.slow
def test_the_server_keeps_to_its_folder_and_isolates_the_page(root: Path) -> None:
    import http.client

    (root.parent / "secret.txt").write_text("secret")
    words = [sys.executable, "serve.py", "--port", "0"]
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as server:
        try:
            assert server.stdout
            port = int(server.stdout.readline().strip().rstrip("/").rpartition(":")[2])
            answers = {}
            for path in ("/", "/ort/" + _web_ort.WASM, "/../secret.txt", "/%2e%2e/secret.txt", "/golden/"):
                link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                link.request("GET", path)
                answer = link.getresponse()
                answers[path] = (answer.status, answer.getheader("Content-Type"), answer.getheader(ISOLATES))
                answer.read()
                link.close()
        finally:
            server.terminate()
    assert answers["/"] == (200, "text/html; charset=utf-8", "same-origin")
    assert answers["/ort/" + _web_ort.WASM][1] == "application/wasm"
    assert {answers[path][0] for path in ("/../secret.txt", "/%2e%2e/secret.txt", "/golden/")} == {404}
