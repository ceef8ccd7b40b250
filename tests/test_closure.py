"""What a stage's key is made of: all code that can change its result, and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import edgecompress
from edgecompress.core import closure, registry
from edgecompress.pipeline.code_digest import CORE, CodeDigests, code_digest

PACKAGE = Path(str(edgecompress.__file__)).parent


def names(reference: str) -> set[str]:
    """What the key of a stage or plug-in covers ("stages.verify"), without `edgecompress.`"""
    module, _ = registry.call(f"{reference}:run")
    return {name.removeprefix("edgecompress.") for name in closure.sources(module.__name__, CORE)}


def digest_in(folder: Path, reference: str) -> str:
    """The digest of a stage's code as a new process tells it of the package below `folder`."""
    code = (
        "from edgecompress.core import registry\nfrom edgecompress.pipeline import code_digest\n"
        f"print(code_digest.code_digest(registry.call('{reference}:run')[0]))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to change."""
    shutil.copytree(PACKAGE, tmp_path / "edgecompress", ignore=shutil.ignore_patterns("__pycache__", "templates"))
    return tmp_path


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The empty package `somebody` of another distribution, as a folder."""
    folder = tmp_path / "somebody"
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    (folder / "__init__.py").touch()
    return folder


def covered(module: str) -> set[str]:
    return {name for name in closure.sources(module, CORE) if name.startswith("somebody")}


def test_the_key_of_a_core_ml_verify_covers_the_ops_of_its_interpreter() -> None:
    assert {
        f"formats.mil{part}" for part in ("", ".program", ".ops.linear", ".ops.elementwise", ".ops._padding")
    } <= names("plugins.runtimes.coreml")


@pytest.mark.parametrize(
    ("stage", "file"),
    [
        ("runtimes.coreml", "formats/mil/ops/linear.py"),
        ("transports.qemu", "device/emulation/count.c"),
        ("stages.report", "reporting/style.css"),
        ("stages.verify", "plugins/transports/host.py"),
        ("stages.verify", "device/agent/outputs.py"),
        ("stages.profilers", "device/agent/profiler.py"),
        ("stages.latency", "device/agent/__main__.py"),
    ],
)
def test_an_edited_file_changes_the_digest(stage: str, file: str, copy: Path) -> None:
    before = digest_in(copy, stage)
    assert digest_in(copy, stage) == before
    with (copy / "edgecompress" / file).open("a") as stream:
        stream.write("\n")
    assert digest_in(copy, stage) != before


def test_the_digest_is_the_same_wherever_the_package_lies(copy: Path) -> None:
    assert digest_in(copy, "stages.verify").strip() == code_digest(registry.call("stages.verify:run")[0])


def test_what_is_called_as_a_module_of_the_core_is_in_the_key_all_the_same(other: Path) -> None:
    (other / "stage.py").write_text("from somebody.model import answer\n")
    (other / "model.py").touch()
    assert covered("somebody.stage") == {"somebody", "somebody.stage", "somebody.model"}
    assert "packaging.board_runner.predictor" in {
        n.removeprefix("edgecompress.") for n in closure.sources("edgecompress.packaging.board_runner.main", CORE)
    }


@pytest.mark.parametrize("stage", ["stages.verify", "stages.latency"])
def test_what_set_up_asks_for_is_in_no_key(stage: str) -> None:
    assert names(stage).isdisjoint({"core.catalog", "pipeline.conversion", "pipeline.requirements"})


@pytest.mark.parametrize("stage", ["stages.verify", "stages.latency", "plugins.runtimes.coreml", "stages.report"])
def test_what_stage_abi_covers_is_in_no_key(stage: str) -> None:
    assert closure.sources(f"edgecompress.{stage}", CORE).keys().isdisjoint(CORE)


@pytest.mark.parametrize(
    "text",
    [
        "from somebody import helper",
        "from . import helper",
        "from .helper import answer",
        "import somebody.helper",
        "def run():\n    try:\n        pass\n    finally:\n        import somebody.helper",
        "match 1:\n    case 1:\n        from . import helper",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from . import helper",
        "MODULE = 'somebody.helper'",
        "CALL = 'somebody.helper:run'",
        "import importlib\nimportlib.import_module('.helper', __package__)",
        "import importlib\nfor name in ('helper',):\n    importlib.import_module(f'somebody.{name}')",
        "import importlib\nfor name in ('helper',):\n    importlib.import_module('somebody.' + name)",
        "import pkgutil, somebody\nlist(pkgutil.iter_modules(somebody.__path__))",
    ],
)
def test_whichever_way_a_plug_in_names_a_module_of_its_package_it_is_in_the_key(text: str, other: Path) -> None:
    (other / "stage.py").write_text(text + "\n")
    (other / "helper.py").touch()
    assert covered("somebody.stage") == {"somebody", "somebody.stage", "somebody.helper"}


def test_a_package_that_loads_its_modules_by_their_names_has_all_of_them_in_the_key(other: Path) -> None:
    (other / "ops").mkdir()
    (other / "ops" / "__init__.py").write_text(
        "from importlib import import_module\n\nOPS = [import_module('somebody.ops.' + n) for n in ('add', 'mul')]\n"
    )
    for name in ("add", "mul"):
        (other / "ops" / f"{name}.py").touch()
    (other / "__init__.py").write_text("from somebody import ops\n")
    (other / "unused.py").touch()
    assert covered("somebody") == {"somebody", "somebody.ops", "somebody.ops.add", "somebody.ops.mul"}


def test_files_that_a_module_names_beside_it_are_in_the_key(other: Path) -> None:
    (other / "stage.py").write_text("from pathlib import Path\n\nPLACE = Path(__file__).parent / 'tables' / 'a.json'\n")
    (other / "tables").mkdir()
    (other / "tables" / "a.json").write_text("{}")
    (other / "other.json").write_text("{}")
    assert covered("somebody.stage") == {"somebody", "somebody.stage", "somebody.stage/tables/a.json"}


def test_what_only_a_type_checker_sees_is_in_no_key(other: Path) -> None:
    (other / "helper.py").touch()
    (other / "stage.py").write_text(
        "if typing.TYPE_CHECKING:\n    from somebody import helper\nif TYPE_CHECKING:\n    from . import helper\n"
    )
    assert covered("somebody.stage") == {"somebody", "somebody.stage"}


def test_a_helper_that_came_to_be_imported_is_in_the_key_of_the_same_process(other: Path) -> None:
    (other / "helper.py").touch()
    (other / "stage.py").touch()
    assert covered("somebody.stage") == {"somebody", "somebody.stage"}
    (other / "stage.py").write_text("from . import helper\n")
    assert covered("somebody.stage") == {"somebody", "somebody.stage", "somebody.helper"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda folder: None, "remembered"),
        (lambda folder: (folder / "helper.py").write_text("B = 2\n"), "computed"),
        (lambda folder: (folder / "new.py").touch(), "computed"),
        (lambda folder: os.utime(folder / "helper.py", (1, 1)), "computed"),
        (lambda folder: (folder.parent / "code.json").write_text("[1"), "computed"),
        (lambda folder: (folder.parent / "code.json").write_text('{"a": {"b": 1}}'), "computed"),
        (lambda folder: (folder.parent / "code.json").unlink(), "computed"),
    ],
)
def test_a_digest_is_remembered_until_a_file_of_its_package_changes(
    change: Callable[[Path], object], says: str, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (other / "stage.py").write_text("from somebody import helper\n")
    (other / "helper.py").write_text("A = 1\n")
    module, file = ModuleType("somebody.stage"), other.parent / "code.json"
    first = CodeDigests(file).of(module)
    assert first == code_digest(module)
    change(other)
    expected = code_digest(module)
    computed: list[str] = []
    monkeypatch.setattr(
        "edgecompress.pipeline.code_digest.code_digest", lambda each: (computed.append(each.__name__), expected)[1]
    )
    assert CodeDigests(file).of(module) == expected
    assert ("computed" if computed else "remembered") == says
    assert CodeDigests(file).of(module) == expected and len(computed) <= 1
