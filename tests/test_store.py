"""The store: successes by content, a reason for each re-run, nothing half-written, room checked, damage found."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import subprocess
import sys
import time
from pathlib import Path

import nulls
import package_inputs
import pytest

import edgecompress
from edgecompress.core.errors import DiskFull, StageFailed
from edgecompress.core.model import Artifact
from edgecompress.pipeline import store as store_module
from edgecompress.pipeline import store_place
from edgecompress.pipeline.store import Store, StoredResult, key_of

PARTS = {"call": "x:run", "options.ratio": 0.5}


def put(
    store: Store, parts: dict[str, object], content: str = "hello", files: dict[str, str] | None = None
) -> StoredResult:
    scratch = store.scratch(key_of(parts))
    (scratch / "artifact" / "data.txt").write_text(content)
    Artifact(scratch / "artifact", "text").write()
    entry = store.commit(scratch, parts, {"stage": "s", "wall_s": 1.0, "log": "", "files": files or {}, "modules": []})
    store.remember("s", parts, entry.receipt)
    return entry


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "results")


def test_what_was_stored_is_found_again_with_its_bytes(store: Store) -> None:
    made = put(store, PARTS)
    found = store.find(PARTS)
    assert found is not None
    assert found.artifact.sha256 == made.artifact.sha256 == found.artifact.digest()
    assert found.artifact.file(".txt").read_text() == "hello"


def test_what_later_stages_go_by_is_in_the_digest(tmp_path: Path) -> None:
    def sha(facts: dict[str, object], *files: str) -> str:
        folder = tmp_path / f"{len([*tmp_path.iterdir()])}"
        folder.mkdir()
        for name in files:
            (folder / name).write_text("x")
        made = Artifact(folder, "block", facts=facts).write()
        assert made.digest() == Artifact.read(folder).digest() == made.sha256
        return made.sha256

    assert sha({"block": 4}) != sha({"block": 16}), "without files, what was found is all there is"
    assert sha({"ms": 1.0}, "net.onnx") == sha({"ms": 2.0}, "net.onnx"), "a number that was only told"
    assert sha({"augment": ["flip"]}, "x.npy") != sha({"augment": []}, "x.npy"), "what training may do to the items"


def test_a_stage_that_may_look_at_files_and_looked_at_none_is_found_again(store: Store) -> None:
    put(store, PARTS)
    assert store.find(PARTS, observes=True) is not None


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_store_is_for_its_owner_alone_unless_the_owner_shares_it(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(Store(tmp_path / "results"), PARTS)
        (tmp_path / "shared" / "store").mkdir(parents=True)
        Store(tmp_path / "shared")
    finally:
        os.umask(before)
    made = [
        tmp_path / "results",
        *(tmp_path / root / name for root in ("results", "shared") for name in store_place.FOLDERS),
    ]
    assert {_mode(folder) for folder in made if folder != tmp_path / "shared" / "store"} == {0o700}
    assert _mode(tmp_path / "shared") == _mode(tmp_path / "shared" / "store") == 0o777


def test_other_parts_are_a_miss_and_the_reason_names_what_changed(store: Store) -> None:
    assert store.why("s", PARTS, False) == "first run"
    put(store, PARTS)
    changed = {**PARTS, "options.ratio": 0.6}
    assert store.find(changed) is None
    assert store.why("s", changed, False) == "changed: ratio 0.5 → 0.6"


def test_a_removed_result_says_that_it_is_gone(store: Store) -> None:
    store.remove(put(store, PARTS).key)
    assert store.find(PARTS) is None
    assert "no longer in the store" in store.why("s", PARTS, False)


def test_a_changed_file_of_the_user_is_a_miss_and_the_old_content_a_hit_again(store: Store, tmp_path: Path) -> None:
    net = tmp_path / "net.py"
    for content in ("a", "b"):
        net.write_text(content)
        put(store, PARTS, content, {str(net): store_module.observed_digest(net)})
    for content in ("a", "b"):
        net.write_text(content)
        found = store.find(PARTS, observes=True)
        assert found is not None
        assert found.artifact.file(".txt").read_text() == content
    net.write_text("c")
    assert store.find(PARTS, observes=True) is None
    assert store.why("s", PARTS, True) == "changed: file net.py"


def test_scratch_of_a_killed_run_is_swept_when_the_stage_runs_again(store: Store) -> None:
    left = store.scratch(key_of(PARTS)) / "artifact" / "half"
    left.write_text("half-written")
    assert store.find(PARTS) is None
    put(store, PARTS)
    assert not left.exists()
    assert not list((store.root / "tmp").iterdir())


def test_a_renewed_result_replaces_the_old_one(store: Store) -> None:
    put(store, PARTS, "old")
    put(store, PARTS, "new")
    assert store.find(PARTS).artifact.file(".txt").read_text() == "new"  # type: ignore[union-attr]
    assert len(store.entries()) == 1


@pytest.mark.prove
def test_a_measurement_from_the_future_is_no_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {**nulls.make(tmp_path / "net"), "profile": "quick", "settings": nulls.FAST}

    def reasons() -> dict[str, str]:
        options = edgecompress.Options(store=tmp_path / "results", out=tmp_path / "shipped")
        outcomes = edgecompress.deploy(**asked, options=options).outcomes
        return {name: outcome.why_run for name, outcome in outcomes.items() if outcome.why_run != "hit"}

    reasons()
    assert reasons() == {}
    now = time.time()
    monkeypatch.setattr(store_module.time, "time", lambda: now - 86400)  # the clock is set back by a day
    assert "the clock was set back" in reasons()["race/round-1"]


def test_damage_is_found(store: Store) -> None:
    entry = put(store, PARTS)
    assert store.damaged() == []
    entry.artifact.file(".txt").write_text("hellO")
    assert store.damaged() == [entry.artifact.path.parent]


def test_collecting_frees_old_results_and_leftovers_but_keeps_the_young(store: Store) -> None:
    put(store, PARTS)
    (store.scratch("0" * 64) / "artifact" / "left").write_bytes(b"x" * 1000)
    assert store.collect(older_than_s=3600) >= 1000
    assert store.find(PARTS) is not None
    store.collect(older_than_s=0)
    assert store.find(PARTS) is None


def test_collecting_spares_what_was_found_lately(store: Store) -> None:
    entry = put(store, PARTS)
    receipt = entry.artifact.path.parent / "receipt.json"
    for finds in (True, False):
        os.utime(receipt, (0, 0))
        assert not finds or store.find(PARTS)
        store.collect(older_than_s=3600)
        assert receipt.exists() is finds


def test_too_little_room_is_said_before_anything_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 5 << 20

    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(DiskFull, match=r"5 MiB free, the next stage needs about 32 MiB; .*cache gc"):
        store.require_room(1)


@pytest.mark.parametrize("name", ["artifact/data.txt", "artifact/artifact.json", "receipt.json"])
@pytest.mark.parametrize(
    "damage", [package_inputs.flip, lambda f: f.write_text(""), lambda f: f.write_text("[]"), Path.unlink]
)
def test_a_damaged_result_is_a_miss_that_says_so_and_is_made_again(store: Store, name: str, damage) -> None:
    folder = put(store, PARTS, "hello" * 100).artifact.path.parent
    damage(folder / name)
    assert store.damaged() == [folder]
    store.entries()
    assert store.find(PARTS) is None
    assert store.why("s", PARTS, False) == "its stored bytes were damaged"
    put(store, PARTS)
    assert store.find(PARTS) is not None and store.damaged() == []


def test_a_card_that_was_made_to_fit_other_bytes_is_damage_too(store: Store) -> None:
    entry = put(store, PARTS)
    entry.artifact.file(".txt").write_text("other")
    Artifact(entry.artifact.path, "text").write()
    assert store.find(PARTS) is None


def test_collecting_removes_what_cannot_be_read(store: Store) -> None:
    folder = put(store, PARTS).artifact.path.parent
    (folder / "artifact" / "artifact.json").write_text("{")
    store.collect(older_than_s=3600)
    assert not folder.exists()


ODD = ("", "0", "null", "[]", "[1]", '"x"', "NaN", "{}", "[{}]", '{"parts": 5, "files": {}}', "[" * 200_000)


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
@pytest.mark.parametrize("name", ["last", "observed"])
def test_an_index_that_is_not_as_we_write_it_counts_as_empty(
    store: Store, tmp_path: Path, name: str, text: str
) -> None:
    (tmp_path / "net.py").touch()
    files = {str(tmp_path / "net.py"): store_module.observed_digest(tmp_path / "net.py")}
    put(store, PARTS, files=files)
    for file in (store.root / name).iterdir():
        file.write_text(text)
    store.find(PARTS, True)
    assert store.why("s", PARTS, True)
    assert store.expected_s("s") in (None, 1.0) and len(store.remembered()) <= 1
    put(store, PARTS, files=files)
    assert store.find(PARTS, True) is not None


NO_SECONDS = (
    "-30.0",
    "-1e-9",
    "1" + "0" * 400,
    "1e999",
    "Infinity",
    "-Infinity",
    "NaN",
    "1e300",
    "true",
    '"5"',
    "null",
)


@pytest.mark.parametrize("number", NO_SECONDS, ids=lambda number: number[:9])
def test_seconds_that_no_stage_takes_are_not_believed(store: Store, number: str) -> None:
    entry = put(store, PARTS)
    store.remember("a>x86:verify", PARTS, entry.receipt)
    file = store._last("a>x86:verify")
    file.write_text(re.sub(r'("wall_s": )[^,\n]+', rf"\g<1>{number}", file.read_text()))
    again = Store(store.root)
    again.remove(entry.key)
    assert again.expected_s("a>x86:verify") is None and again.expected_s("b>x86:verify") is None
    assert (
        "a>x86:verify" not in {run["name"] for run in again.remembered()}
        and again.why("a>x86:verify", PARTS, False) == "first run"
    )


@pytest.mark.parametrize("number", NO_SECONDS, ids=lambda number: number[:9])
@pytest.mark.parametrize("key", ["wall_s", "time"])
def test_a_receipt_with_seconds_that_cannot_be_is_that_of_no_result(store: Store, key: str, number: str) -> None:
    entry = put(store, PARTS)
    file = entry.artifact.path.parent / "receipt.json"
    changed = {**entry.receipt, key: json.loads(number)}
    changed["seal"] = store_module._seal(changed)
    file.write_text(json.dumps(changed))
    assert store.find(PARTS) is None and store.why("a", PARTS, False) == "its stored bytes were damaged"


def test_a_stage_is_expected_to_take_what_it_took_last_or_for_other_models(store: Store) -> None:
    for scope, took_s in (("a", 1.0), ("b", 5.0), ("c", 30.0)):
        entry = put(store, {**PARTS, "input.model": scope})
        store.remember(f"{scope}>x86:verify", PARTS, {**entry.receipt, "wall_s": took_s})
    store.remember_search("a>x86:race", 20.0)
    later = Store(store.root)
    assert later.expected_s("c>x86:verify") == 30.0
    assert later.expected_s("new>x86:verify") == 5.0
    assert later.expected_s("a>x86:race") == later.expected_s("new>arm64:race") == 20.0
    assert later.expected_s("new>x86:export") is None
    assert "a>x86:race" not in {run["name"] for run in later.remembered()}


# --------------------------------------------------------------------------- bytes are read when they may have changed


def test_bytes_are_read_once_until_something_about_the_files_changes(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, PARTS)
    read = []
    digest = Artifact.digest
    monkeypatch.setattr(Artifact, "digest", lambda self: read.append(self) or digest(self))
    for _ in range(3):
        assert store.find(PARTS) is not None
    assert len(read) == 1
    store.distrust()
    assert store.find(PARTS) is not None
    assert len(read) == 2


@pytest.mark.parametrize("damage", [package_inputs.flip, lambda f: f.write_bytes(f.read_bytes()[:-1])])
def test_damage_is_found_though_the_file_says_that_it_is_as_old_as_before(store: Store, damage) -> None:
    file = put(store, PARTS, "hello" * 100).artifact.file(".txt")
    assert store.find(PARTS) is not None
    stat = file.stat()
    damage(file)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert store.find(PARTS) is None


def test_a_record_of_checked_bytes_that_cannot_be_read_has_them_read_again(store: Store) -> None:
    put(store, PARTS)
    assert store.find(PARTS) is not None
    for known in (store.root / "checked").iterdir():
        known.write_bytes(b"\xff\x00")
    assert store.find(PARTS) is not None


# --------------------------------------------------------------------------- what a living run needs stays

RUN = """
import sys
from pathlib import Path
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.store import Store
from edgecompress.core.model import Context

walk = PlanRun(Store(Path(sys.argv[1])), Context())
print("holds", flush=True)
sys.stdin.read()
"""


def test_nothing_is_collected_while_a_run_holds_the_store_until_it_ends_or_is_killed(store: Store) -> None:
    put(store, PARTS)
    (store.keep("2" * 64) / "checkpoint").write_text("half")
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(store.root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as run:
        assert run.stdout and run.stdout.readline() == "holds\n"
        other = Store(store.root)
        other.hold()  # as many as there are
        with pytest.raises(StageFailed, match=r"results: a running command uses this store; try again when it has"):
            store.collect(older_than_s=0)
        assert store.find(PARTS) and (store.root / "kept" / ("2" * 64)).exists()
        del other
        run.kill()
    store.collect(older_than_s=0)
    assert store.entries() == [] and not list((store.root / "kept").iterdir())


def test_a_full_disk_while_an_index_is_written_leaves_the_old_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = put(store, PARTS)

    def full(self: Path, text: str, **_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = store.remembered()
    monkeypatch.setattr(Path, "write_text", full)
    store.remember("s", {**PARTS, "options.ratio": 0.9}, entry.receipt)  # no result depends on it: nothing is raised
    assert store.remembered() == before
    assert not list((store.root / "tmp").iterdir())
