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
from edgecompress.core.package_files import PACKAGE
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


MADE = {f"{kind}.{name}" for kind in ("runtimes", "techniques") for name in registry.names(kind)}


def of_engines(*engines: str) -> set[str]:
    """The plug-ins of some engines."""
    named = {name: registry.load(*name.split(".")).__name__.split(".")[1:3] for name in MADE}
    return {name for name, place in named.items() if place[0] == "engines" and place[1] in engines}


CHANGES = [
    ("stages/verify.py", {""}),
    ("device/emulation/count.c", {""}),
    ("reporting/style.css", {""}),
    ("plugins/transports/host.py", {""}),
    ("core/new.py", {""}),
    ("techniques/qat.py", {"techniques.qat"}),
    ("techniques/_training/loop.py", MADE),
    ("engines/litert/session.py", of_engines("litert", "ethos_u", "tensorflow", "onnx")),
    ("engines/onnx/runtimes/onnx.py", {"runtimes.onnx"}),
    ("extras/schedules/techniques/schedule.py", {"techniques.schedule"}),
    ("extras/schedules/masks.py", {""}),
    ("commands/deploy.py", set()),
    ("extras/mcp/commands/mcp.py", set()),
    ("extras/hugging_face/texts.py", {""}),
    ("extras/search/commands/search.py", set()),
    ("extras/search/expected_gains.json", set()),
    ("extras/search/sections/new.py", {""}),
    ("extras/apps/packagers/tar.py", set()),
    ("demo/__init__.py", set()),
    ("core/__pycache__/new.pyc", set()),
]


@pytest.mark.prove
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


def test_every_file_that_a_plug_in_imports_is_in_one_of_its_two_digests(monkeypatch: pytest.MonkeyPatch) -> None:
    covered: set[Path] = set()
    monkeypatch.setattr(code_digest, "_digest", lambda folder, files: covered.update(files) or "")
    code_digest.of_package()
    package = frozenset(covered)
    for kind in ("runtimes", "techniques"):
        for name in registry.names(kind):
            covered.clear()
            module = registry.load(kind, name)
            code_digest.of_plugin(module)
            left = set(imported_modules.sources([module.__name__]).values()) - package - covered
            assert left <= {PACKAGE / "engines" / "__init__.py"}, name


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
