"""What a stage's key is made of: all code that can change its result."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgecompress.core import registry
from edgecompress.core.place import PACKAGE
from edgecompress.device import imported_modules
from edgecompress.pipeline import code_digest

DIGESTS = """
from edgecompress.core import registry
from edgecompress.pipeline import code_digest

print(code_digest.of_package())
for kind in ("runtimes", "techniques"):
    for name in registry.names(kind):
        print(f"{kind}.{name}", code_digest.of_plugin(registry.load(kind, name)))
"""


def digests_in(folder: Path) -> dict[str, str]:
    """The digests of the package below `folder`, as a new process tells them; that of the package itself is ""."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", DIGESTS], env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    package, *plugins = done.stdout.split("\n")
    return {"": package, **dict(line.split() for line in plugins if line)}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to change."""
    shutil.copytree(PACKAGE, tmp_path / "edgecompress", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package `somebody` of another distribution, as a folder."""
    folder = tmp_path / "somebody"
    (folder / "inside").mkdir(parents=True)
    for name in ("__init__.py", "inside/__init__.py", "inside/stage.py", "helper.py"):
        (folder / name).touch()
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "somebody"]:
        del sys.modules[name]


CHANGES = [
    ("stages/verify.py", {""}),
    ("device/emulation/count.c", {""}),
    ("reporting/style.css", {""}),
    ("plugins/transports/host.py", {""}),
    ("core/new.py", {""}),
    ("plugins/techniques/qat.py", {"techniques.qat"}),
    ("plugins/techniques/_training/loop.py", {f"techniques.{name}" for name in registry.names("techniques")}),
    ("plugins/runtimes/_tflite.py", {f"runtimes.{name}" for name in registry.names("runtimes")}),
    ("commands/deploy.py", set()),
    ("demo/__init__.py", set()),
    ("core/__pycache__/new.pyc", set()),
]


def test_an_edited_file_changes_the_digests_of_what_it_belongs_to(copy: Path) -> None:
    before = digests_in(copy)
    onnx = code_digest.of_plugin(registry.load("runtimes", "onnx"))
    assert before.items() >= {"": code_digest.of_package(), "runtimes.onnx": onnx}.items(), "wherever the package lies"
    for file, expected in CHANGES:
        (copy / "edgecompress" / file).parent.mkdir(exist_ok=True)
        with (copy / "edgecompress" / file).open("a") as stream:
            stream.write("\n")
        after = digests_in(copy)
        assert {name for name in after if after[name] != before[name]} == expected, file
        before = after


def test_every_file_that_a_plug_in_imports_is_in_one_of_its_two_digests() -> None:
    for kind in ("runtimes", "techniques"):
        for name in registry.names(kind):
            for path in imported_modules.sources([f"edgecompress.plugins.{kind}.{name}"]).values():
                inside = path.relative_to(PACKAGE).parts
                assert inside[0] not in ("cli", "commands", "demo"), f"{name} imports {path}"
                own = inside[:2] == ("plugins", kind) and (inside[2].startswith("_") or inside[2] == f"{name}.py")
                assert own or inside[:2] not in (("plugins", "runtimes"), ("plugins", "techniques")), path


@pytest.mark.parametrize("file", ["inside/stage.py", "helper.py", "tables/a.json"])
def test_of_another_distribution_the_whole_package_counts(file: str, other: Path) -> None:
    module = importlib.import_module("somebody.inside.stage")
    before = code_digest.of_plugin(module)
    (other / file).parent.mkdir(exist_ok=True)
    (other / file).write_text("# changed\n")
    assert code_digest.of_plugin(module) != before


def test_of_a_namespace_that_many_share_the_own_package_counts(other: Path) -> None:
    (other / "__init__.py").unlink()
    module = importlib.import_module("somebody.inside.stage")
    before = code_digest.of_plugin(module)
    (other / "helper.py").write_text("# changed\n")
    assert code_digest.of_plugin(module) == before
    (other / "inside" / "new.py").touch()
    assert code_digest.of_plugin(module) != before
