"""Writing that a power cut leaves whole, and two paths that change places at once."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from edgecompress.core import atomic_file


def test_two_folders_change_places(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "says").write_text(name)
    assert atomic_file.exchange(tmp_path / "one", tmp_path / "other")
    assert [(tmp_path / name / "says").read_text() for name in ("one", "other")] == ["other", "one"]


def test_a_path_that_is_missing_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(FileNotFoundError, match="one"):
        atomic_file.exchange(tmp_path / "one", tmp_path / "none")
    assert (tmp_path / "one").is_dir()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EINVAL])
def test_a_kernel_or_a_file_system_that_cannot_exchange_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *a, **k: SimpleNamespace(renameat2=lambda *a: -1))
    monkeypatch.setattr(ctypes, "get_errno", lambda: code)
    assert not atomic_file.exchange(tmp_path, tmp_path)


def test_a_library_without_the_call_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda *a, **k: SimpleNamespace())
    assert not atomic_file.exchange(tmp_path, tmp_path)


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace

    def synced(descriptor: object) -> None:
        done.append("folder" if isinstance(descriptor, int) else "file")
        fsync(descriptor)  # type: ignore[arg-type]

    monkeypatch.setattr(atomic_file.os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", lambda self, to: done.append("name") or replace(self, to))
    atomic_file.write(tmp_path / "a.json", b"{}")
    assert done == ["file", "name", "folder"]
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_the_names_of_new_folders_are_written_and_no_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Path] = []
    monkeypatch.setattr(atomic_file, "sync", done.append)
    atomic_file.make_folder(tmp_path / "a" / "b")
    atomic_file.make_folder(tmp_path / "a" / "b")
    assert done == [tmp_path, tmp_path / "a"]


def test_all_of_a_tree_is_written_the_inner_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").touch()
    (tmp_path / "b").touch()
    (tmp_path / "link").symlink_to("nowhere")
    done: list[Path] = []
    monkeypatch.setattr(atomic_file, "sync", done.append)
    atomic_file.sync_tree(tmp_path)
    assert done == [tmp_path / "in" / "a", tmp_path / "in", tmp_path / "b", tmp_path]
