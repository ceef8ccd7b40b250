"""Whose a store is: one that came with a stranger's folder is not believed, and what is no store is not touched."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import nulls
import pytest

from edgecompress.cli import main
from edgecompress.core import file_lock
from edgecompress.core.errors import InputError
from edgecompress.pipeline import store_place
from edgecompress.pipeline.store import Store

COMMANDS = (["cache", "ls"], ["cache", "gc"], ["cache", "verify"], ["cache", "why", "data"], ["history"])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder, and a user's own register."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return folder


def another_users(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(state))


def deploy(folder: Path, *words: str) -> int:
    asked = nulls.make(folder / "net")
    flags = [word for key, value in nulls.FAST.items() for word in ("--set", f"{key}={value}")]
    named = ["--data", asked["data"], "--target", asked["target"], "--profile", "quick", "--quiet"]
    return main.main(["deploy", asked["model"], *named, *flags, *words])


def test_a_store_that_one_made_is_used_again() -> None:
    assert store_place.root(None) == Path(".edgecompress").resolve()
    Store(store_place.root(None))
    Store(store_place.root(None))


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(words))
def test_a_store_of_somebody_else_in_the_working_folder_is_refused(
    words: list[str], here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Store(here / ".edgecompress")
    another_users(monkeypatch, here.parent / "theirs")
    assert main.main(words) == 2
    assert "a store that you did not make here, and what it holds would be believed" in capsys.readouterr().err


@pytest.mark.slow
def test_a_deploy_believes_a_strangers_store_only_where_it_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert deploy(here) == 0
    another_users(monkeypatch, here.parent / "theirs")
    capsys.readouterr()
    assert deploy(here) == 2
    assert "trust it with --store .edgecompress" in capsys.readouterr().err
    assert deploy(here, "--store", ".edgecompress") == 0
    assert deploy(here) == 0  # it was named once
    another_users(monkeypatch, here.parent / "state")
    assert deploy(here) == 0  # and is still the first one's


def test_a_copy_of_a_store_is_another(here: Path) -> None:
    Store(here / ".edgecompress")
    shutil.move(here / ".edgecompress", here / "first")
    shutil.copytree(here / "first", here / ".edgecompress")
    with pytest.raises(InputError, match="did not make"):
        store_place.root(None)


@pytest.mark.parametrize("name", store_place.FOLDERS)
def test_a_link_in_the_place_of_a_folder_is_refused_and_what_it_leads_to_stays(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    precious = here / "precious" / "folder"
    precious.mkdir(parents=True)
    (precious / "thesis").write_text("x")
    for file in (precious / "thesis", precious):
        os.utime(file, (0, 0))
    Store(here / "theirs")
    (here / "theirs" / name).rmdir()
    (here / "theirs" / name).symlink_to("../precious")
    for words in ([*COMMANDS[1], "--older-than", "0"], COMMANDS[0], COMMANDS[2]):
        assert main.main([*words, "--store", "theirs"]) == 2
        assert f"{name}: is not a folder, as that of a store must be" in capsys.readouterr().err
    assert deploy(here, "--store", "theirs") == 2
    assert (precious / "thesis").read_text() == "x"


@pytest.mark.parametrize("file", ["store/invoices/2024.txt", "tmp/x", "notes.txt"])
def test_a_folder_that_is_no_store_is_refused_and_stays(file: str, here: Path) -> None:
    (here / "shop" / file).parent.mkdir(parents=True)
    (here / "shop" / "store").mkdir(exist_ok=True)
    (here / "shop" / file).write_text("x")
    os.utime(here / "shop" / file, (0, 0))
    assert main.main(["cache", "gc", "--store", "shop"]) == 2
    with pytest.raises(InputError, match="not empty and not a store of edgecompress"):
        Store(here / "shop")
    assert (here / "shop" / file).read_text() == "x"


def test_a_store_of_a_version_without_marks_is_one_where_it_is_named(here: Path) -> None:
    for name in store_place.FOLDERS:
        (here / ".edgecompress" / name).mkdir(parents=True)
    (here / ".edgecompress" / "store" / "something").mkdir()
    with pytest.raises(InputError, match="did not make"):
        store_place.root(None)
    Store(store_place.root(Path(".edgecompress")))
    assert store_place.root(None)


def test_a_kill_while_a_store_is_made_leaves_one_that_can_be_made(here: Path) -> None:
    (here / ".edgecompress").mkdir()
    (here / ".edgecompress" / ".mark.123.part").write_text("1")
    Store(store_place.root(None))
    (here / ".edgecompress" / store_place.FOLDERS[-1]).rmdir()
    Store(store_place.root(None))


def test_without_a_home_a_store_is_used_where_it_is_named(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    another_users(monkeypatch, Path("/proc/nothing"))
    Store(store_place.root(None))
    with pytest.raises(InputError, match="did not make"):
        store_place.root(None)
    Store(store_place.root(Path(".edgecompress")))


def test_a_lock_follows_no_link_and_empties_no_file(here: Path) -> None:
    (here / "precious").write_text("x")
    (here / "lock").symlink_to("precious")
    with pytest.raises(OSError), file_lock.held(here / "lock"):
        pass
    with file_lock.held(here / "precious"):
        assert (here / "precious").read_text() == "x"
