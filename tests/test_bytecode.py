"""What a worker compiled is kept by its parent: of the installed libraries, and of nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

import pytest

from edgecompress.pipeline import bytecode


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of installed libraries."""
    folder = tmp_path / "library"
    folder.mkdir()
    monkeypatch.setattr(bytecode, "_libraries", lambda: (f"{folder.resolve()}{os.sep}",))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    return folder


def compiled(file: Path) -> bool:
    return Path(importlib.util.cache_from_source(str(file))).exists()


def written(file: Path, text: str = "value = 1\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_module_without_bytecode_is_missing_until_it_is_kept(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(library / "lonely_module.py")
    monkeypatch.syspath_prepend(str(library))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    importlib.import_module("lonely_module")
    assert str(file) in bytecode.missing()
    bytecode.keep([str(file)])
    assert not compiled(file)  # this Python keeps none
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    bytecode.keep(bytecode.missing())
    assert compiled(file) and str(file) not in bytecode.missing()


def test_files_that_are_not_of_a_library_are_not_compiled(library: Path, tmp_path: Path) -> None:
    own = written(tmp_path / "own.py")
    (library / "link.py").symlink_to(own)
    text = written(library / "notes.txt")
    bytecode.keep(
        [str(own), str(library / "link.py"), str(library / ".." / "own.py"), str(text), str(library / "no.py")]
    )
    assert not list(tmp_path.rglob("*.pyc"))


def test_a_file_that_cannot_be_compiled_does_not_keep_the_others_from_it(
    library: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = [written(library / "broken.py", "def (:\n"), written(library / "zero.py", "a = '\0'\n")]
    whole = written(library / "whole.py")
    bytecode.keep(map(str, [*broken, whole]))
    assert compiled(whole) and capfd.readouterr() == ("", "")


def test_libraries_that_may_not_be_written_stay_as_they_are(library: Path) -> None:
    file = written(library / "whole.py")
    (library / "__pycache__").write_text("a file where the folder would be")
    bytecode.keep([str(file)])
    assert (library / "__pycache__").is_file()
