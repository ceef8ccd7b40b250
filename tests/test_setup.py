"""The set-up decides before it installs: which extras, which build of torch, and whether anything is to be done."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import json
import os
import subprocess
import sys
import zipfile
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
STAMP = {"place": "", "files": "a", "torch": "cpu", "extras": ["dev", "gone"]}
# Of a name each: no sha256 is checked, another version, another place, another uv, an option that ends it.
HOSTILE = {"UV_NO_VERIFY_HASHES": "1", "UV_OVERRIDE": "other.txt", "UV_CONSTRAINT": "other.txt", "UV_TARGET": "other"}
HOSTILE |= {"UV_EXCLUDE_NEWER": "2000-01-01", "UV_CONFIG_FILE": "none.toml", "UV_TORCH_BACKEND": "cu130"}
HOSTILE |= {"PYTHONPATH": ".", "PYTHONHOME": "/nowhere"}


@pytest.fixture
def setup(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for a clone in which uv finds what lies in it and nothing else, with the environment of the tests."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    module = importlib.reload(importlib.import_module("setup"))
    for name in {name for names in module.SETTINGS.values() for name in names}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "pip_settings", lambda: {"find-links": [str(tmp_path)], "no-index": ["true"]})
    module.ROOT, module.VENV = tmp_path, Path(sys.prefix)
    return module


@pytest.mark.parametrize(("name", "seen"), [("cpu", None), ("cuda", "cuda-bindings==13.5.0")])
def test_the_torch_of_the_public_index_is_refused(name: str, seen: str | None, setup: ModuleType) -> None:
    """Recorded: what `uv pip install --dry-run torch==2.13.0` printed on Linux."""
    found = setup.CUDA.search((ROOT / "tests" / "data" / f"uv-dry-run-{name}.txt").read_text())
    assert (found and found[1]) == seen


def test_packages_of_an_accelerator_are_told_from_those_that_resemble_them(setup: ModuleType) -> None:
    seen = ["torch==2.13.0+rocm6.4", "nvidia-cublas-cu12==12.8", "triton==3.7.1", "pytorch-triton-rocm==3.1"]
    passed = ["torch==2.13.0+cpu", "tritonclient==2.5", "torch-pruning==1.6.1+cu1", "nvidia-ml-py==13", "pycuda==1"]
    for package in (*seen, *passed):
        assert bool(setup.CUDA.search(f" + numpy==2\n + {package}\n")) is (package in seen), package


def test_uv_looks_where_pip_looks(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"extra-index-url": ["https://a", "https://me:secret@b"], "find-links": ["/c", "/d"], "cert": ["/e"]}
    told |= {"index-url": ["https://pip"], "proxy": ["http://f"], "no-index": ["0"], "only-binary": ["x,y"]}
    ran: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(setup, "pip_settings", lambda: told)
    monkeypatch.setattr(setup, "run", lambda command, env, **_: ran.append((command, env)))
    monkeypatch.setenv("UV_DEFAULT_INDEX", "https://uv")  # goes before what pip is told
    setup.uv("thing")
    ((command, env),) = ran
    expected = {"UV_INDEX": "https://a https://me:secret@b", "UV_FIND_LINKS": "/c,/d", "SSL_CERT_FILE": "/e"}
    expected |= dict.fromkeys(["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"], "http://f")
    assert env.items() >= {**expected, "UV_DEFAULT_INDEX": "https://uv"}.items()
    assert command[-3:] == ["--only-binary=x", "--only-binary=y", "thing"] and "--no-index" not in command
    assert "secret" not in " ".join(command)


def test_pip_keeps_only_the_settings_that_say_where_it_looks(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (setup.ROOT / "pip").mkdir()
    conf = "[install]\nuser = yes\n[global]\nretries = 7\nindex-url = https://a.example\nfind-links = /other\n"
    (setup.ROOT / "pip" / "pip.conf").write_text(conf)
    monkeypatch.undo()  # pip is asked itself
    monkeypatch.setenv("XDG_CONFIG_HOME", str(setup.ROOT))
    moving = {"target", "prefix", "root", "user", "requirement", "constraint", "dry-run"}
    for name in moving - {"user"}:
        monkeypatch.setenv(f"PIP_{name.upper().replace('-', '_')}", "x")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more")
    env = setup.pip_environment()
    expected = {"retries": ["7"], "index-url": ["https://a.example"], "find-links": ["/wheels", "/more"]}
    assert setup.pip_settings().items() >= expected.items() and not setup.pip_settings().keys() & moving
    told = subprocess.run(setup.python("pip", "config", "list"), env=env, capture_output=True, text=True).stdout
    assert "retries='7'" in told and "user" not in told and "target" not in told


def test_nothing_in_a_folder_above_the_clone_decides(setup: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    for folder, text in (
        (setup.ROOT, '[tool.uv.workspace]\nmembers = ["clone"]\n[tool.uv.sources]\nstray = { path = "evil" }\n'),
        (setup.ROOT / "clone", 'dependencies = ["stray"]\n'),
        (setup.ROOT / "evil", ""),
    ):
        folder.mkdir(exist_ok=True)
        name = "stray" if folder.name == "evil" else "mine"
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1"\n{text}')
    (setup.ROOT / "uv.toml").write_text("this ends a uv that reads it")
    (setup.ROOT / "clone" / "constraints.txt").touch()
    setup.ROOT /= "clone"
    with pytest.raises(SystemExit):
        setup.uv("--dry-run", "--editable", ".")
    told = capfd.readouterr().err
    assert "stray was not found" in told and "setup: failed with code 1; the message above is of: " in told


def wheel(folder: Path, name: str, module: str = "") -> str:
    """Writes a wheel of one module; its sha256."""
    file, info = folder / f"{name}-1-py3-none-any.whl", f"{name}-1.dist-info"
    with zipfile.ZipFile(file, "w") as made:
        made.writestr(f"{name}.py", module)
        made.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        made.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        made.writestr(f"{info}/RECORD", f"{name}.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_no_variable_of_the_user_changes_what_is_installed_or_leaves_a_sha256_unchecked(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "uv.py").touch()
    (tmp_path / "other.txt").write_text("thing==2\n")
    right, there = wheel(tmp_path, "thing"), tmp_path / "there"
    for sha256 in ("0" * 64, right):
        (tmp_path / "constraints.txt").write_text(f"thing==1 --hash=sha256:{sha256}\n")
        with pytest.raises(SystemExit) if sha256 != right else nullcontext():
            setup.uv("--target", str(there), "thing")
        assert ("Hash mismatch" in capfd.readouterr().err) is (sha256 != right) is not (there / "thing.py").exists()


@pytest.mark.parametrize("kept", [True, False])
def test_bytecode_is_compiled_where_no_later_run_may_keep_it(
    setup: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", not kept)
    (setup.ROOT / "constraints.txt").write_text(f"thing==1 --hash=sha256:{wheel(setup.ROOT, 'thing')}\n")
    setup.uv("--target", str(tmp_path / "there"), "thing")
    assert (tmp_path / "there" / "__pycache__").exists() is not kept


def test_what_builds_the_package_has_a_sha256_too(setup: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    backend = "def get_requires_for_build_editable(settings=None): raise SystemExit('the backend ran')\n"
    sha256 = wheel(setup.ROOT, "backend", backend)
    (setup.ROOT / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\n[build-system]\nrequires = ["backend"]\nbuild-backend = "backend"\n'
    )
    for pinned, ran in {"backend==1": False, f"backend==1 --hash=sha256:{sha256}": True}.items():
        (setup.ROOT / "constraints.txt").write_text(f"{pinned}\n")
        with pytest.raises(SystemExit):
            setup.uv("--target", str(setup.ROOT / "there"), "--editable", ".")
        assert ("the backend ran" in capfd.readouterr().err) is ran


def test_extras_are_told_by_a_python_that_has_nothing_installed() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); from edgecompress.pipeline.requirements import main; main()"
    )
    told = subprocess.run([sys.executable, "-I", "-S", "-c", code, str(ROOT), "x86"], capture_output=True, text=True)
    assert told.stdout.splitlines()[0] == "executorch,litert,onnx,openvino,package,torch", told.stderr


def test_several_targets_are_asked_at_once_and_an_unknown_one_ends_the_setup_with_a_suggestion(
    setup: ModuleType, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    setup.ROOT, null = ROOT, tmp_path / "null.toml"
    null.write_text('description = "n"\nruntime = "null"\n[[variant]]\nname = "plain"\n')
    assert setup.needs([str(null)], sys.executable) == ({"package"}, False)
    assert setup.needs([str(null), "x86"], sys.executable)[0] > {"package", "torch"}
    with pytest.raises(SystemExit, match="2"):
        setup.needs(["x86", "x68"], sys.executable)
    assert capfd.readouterr().err.strip().endswith("no target 'x68', did you mean 'x86'?")


def test_a_setup_that_is_unfinished_or_moved_is_made_anew(setup: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []
    setup.VENV = setup.ROOT / ".venv"
    (setup.VENV / "bin").mkdir(parents=True)
    os.symlink(sys.executable, setup.VENV / "bin" / "python")
    (setup.ROOT / "constraints.txt").write_text("torch==2\nuv==1 \\\n    --hash=sha256:00\nuvloop==1\n")
    (setup.ROOT / "pyproject.toml").write_text("[project.optional-dependencies]\ndev = []\nonnx = []\n")
    monkeypatch.setattr(setup, "run", lambda command, **_: ran.append(command) or "")
    (setup.VENV / setup.STAMP).write_text(json.dumps(STAMP))
    assert setup.read_stamp() == {}, "it was moved"
    found = STAMP | {"place": str(setup.VENV)}
    wanted = setup.wanted_stamp(found, {"onnx"}, None)
    assert wanted["extras"] == ["dev", "onnx"] and wanted["torch"] == "cpu"
    setup.install({}, wanted)
    assert "venv" in ran[0] and setup.read_stamp() == wanted == setup.wanted_stamp(wanted, set(), None)
    assert (setup.VENV / "edgecompress-uv.txt").read_text() == "uv==1 \\\n    --hash=sha256:00"
    ran.clear()
    setup.install(found, wanted)
    assert not any("venv" in command for command in ran) and ran[0][-1].endswith("edgecompress-uv.txt")
    monkeypatch.setattr(setup, "run", lambda *_, **__: sys.exit(1))
    with pytest.raises(SystemExit):
        setup.install(wanted, setup.wanted_stamp(wanted, set(), "gpu"))
    assert setup.read_stamp() == {}


@pytest.mark.parametrize(
    ("told", "again"),
    [
        ({"dir_info": {"editable": True}}, False),
        ({"dir_info": {}}, True),  # pip install .
        ({"dir_info": {"editable": True}, "url": "file:///another%20clone"}, True),
        ({"archive_info": {}}, True),  # a wheel
        (None, True),
    ],
)
def test_a_copy_in_the_place_of_the_clones_own_files_is_installed_anew(
    setup: ModuleType, monkeypatch: pytest.MonkeyPatch, told: dict[str, object] | None, again: bool
) -> None:
    setup.ROOT = setup.ROOT / "a clone"
    setup.VENV, installed = setup.ROOT / ".venv", list[object]()
    place = setup.VENV / "lib" / "python3.11" / "site-packages" / "edgecompress-0.3.0.dist-info"
    place.mkdir(parents=True)
    if told is not None:
        (place / "direct_url.json").write_text(json.dumps({"url": setup.ROOT.as_uri(), **told}))
    monkeypatch.setattr(setup, "wait_for_others", lambda: None)
    monkeypatch.setattr(setup, "read_stamp", lambda: STAMP)
    monkeypatch.setattr(setup, "wanted_stamp", lambda found, *_: found)
    monkeypatch.setattr(setup, "install", lambda *stamps: installed.append(stamps))
    monkeypatch.setattr(sys, "argv", ["setup.py"])
    assert setup.main() == 0 and bool(installed) is again


def test_a_second_setup_waits_for_what_the_first_started(setup: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    with (setup.ROOT / "pyproject.toml").open("w") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        child = subprocess.Popen(["sleep", "0.3"], pass_fds=[first.fileno()])
    setup.wait_for_others()
    assert child.wait(1) == 0 and capfd.readouterr().out == "setup: waits for another set-up\n"
