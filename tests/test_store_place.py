"""Whose a store is: one that came with a stranger's folder is not believed, and what is no store is not touched."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from pathlib import Path

import nulls
import pytest

from edgecompress.cli import main
from edgecompress.core import file_lock, home
from edgecompress.core.errors import InputError
from edgecompress.core.package_files import PACKAGE
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


@pytest.fixture
def container(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without an account whose home folder is a place where nobody can write."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(home, "state", lambda: Path("/proc/nothing"))


@pytest.mark.usefixtures("container")
@pytest.mark.prove
def test_in_a_container_without_a_home_the_store_that_one_made_is_used_again(here: Path) -> None:
    for _ in range(3):
        Store(store_place.root(None))
    assert deploy(here) == 0
    assert main.main(["cache", "ls"]) == 0


@pytest.mark.usefixtures("container")
def test_in_a_container_without_a_home_a_store_that_came_from_elsewhere_is_refused(here: Path) -> None:
    Store(here / "theirs")
    subprocess.run(["cp", "-a", "theirs", ".edgecompress"], check=True)
    with pytest.raises(InputError, match="did not make"):
        store_place.root(None)
    Store(store_place.root(Path(".edgecompress")))
    assert store_place.root(None)  # it was named once


def test_what_a_store_tells_of_itself_counts_only_where_there_is_no_folder_of_state(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setattr(home, "state", lambda: Path("/proc/nothing"))
        Store(here / ".edgecompress")
    with pytest.raises(InputError, match="did not make"):
        store_place.root(None)


NAMELESS = ("unshare", "--user", "--map-user=54321")  # who has no account


@pytest.mark.slow
@pytest.mark.skipif(subprocess.run([*NAMELESS, "true"]).returncode != 0, reason="no user namespaces here")
@pytest.mark.parametrize(
    "home",
    [
        pytest.param({"XDG_STATE_HOME": "state"}, marks=pytest.mark.prove, id="none"),
        pytest.param({"HOME": "/proc/nothing"}, id="read-only"),
    ],
)
def test_a_user_without_an_account_runs_every_command(here: Path, home: dict[str, str]) -> None:
    asked = nulls.make(here / "net")
    fast = [word for key, value in nulls.FAST.items() for word in ("--set", f"{key}={value}")]
    what = [asked["model"], "--data", asked["data"], "--target", asked["target"], "--profile", "quick"]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(PACKAGE.parent), **home}
    for words in (["deploy", *what, *fast], ["deploy", *what, *fast], ["doctor"], ["plan", *what], ["cache", "ls"]):
        command = [*NAMELESS, sys.executable, "-P", "-m", "edgecompress.cli.main", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "Traceback" not in done.stderr, (words, done.stderr[-2000:])


def test_a_lock_follows_no_link_and_empties_no_file(here: Path) -> None:
    (here / "precious").write_text("x")
    (here / "lock").symlink_to("precious")
    with pytest.raises(OSError), file_lock.held(here / "lock"):
        pass
    with file_lock.held(here / "precious"):
        assert (here / "precious").read_text() == "x"
