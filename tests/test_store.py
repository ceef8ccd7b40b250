"""The store: successes by content, a reason for each re-run, nothing half-written, room checked, damage found."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgecompress.core.errors import DiskFull
from edgecompress.core.model import Artifact
from edgecompress.pipeline import store as store_module
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


def test_other_parts_are_a_miss_and_the_reason_names_what_changed(store: Store) -> None:
    assert store.why("s", PARTS, False) == "first run"
    put(store, PARTS)
    changed = {**PARTS, "options.ratio": 0.6}
    assert store.find(changed) is None
    assert store.why("s", changed, False) == "changed: ratio 0.5 → 0.6"


def test_a_removed_result_says_that_it_is_gone(store: Store) -> None:
    store.remove(put(store, PARTS))
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


def test_collecting_spares_what_was_found_lately_and_what_another_process_works_in(store: Store) -> None:
    entry = put(store, PARTS)
    receipt = entry.artifact.path.parent / "receipt.json"
    os.utime(receipt, (0, 0))
    assert store.find(PARTS) is not None
    working = store.scratch("1" * 64)
    with store.locked("1" * 64):
        store.collect(older_than_s=3600)
    assert store.find(PARTS) is not None
    assert working.exists()
    os.utime(receipt, (0, 0))
    store.collect(older_than_s=3600)
    assert store.find(PARTS) is None


def test_too_little_room_is_said_before_anything_is_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 5 << 20

    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda path: Usage)
    with pytest.raises(DiskFull, match=r"5 MiB free, the next stage needs about 32 MiB; .*cache gc"):
        store.require_room(1)


def _flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0x01
    file.write_bytes(data)


@pytest.mark.parametrize("name", ["artifact/data.txt", "artifact/artifact.json", "receipt.json"])
@pytest.mark.parametrize("damage", [_flip, lambda f: f.write_text(""), lambda f: f.write_text("[]"), Path.unlink])
def test_a_damaged_result_is_a_miss_that_is_removed_and_says_so(store: Store, name: str, damage) -> None:
    folder = put(store, PARTS, "hello" * 100).artifact.path.parent
    damage(folder / name)
    assert store.damaged() == [folder]
    store.entries()
    assert store.find(PARTS) is None
    assert not folder.exists()
    assert store.why("s", PARTS, False) == "its stored bytes were damaged"
    put(store, PARTS)
    assert store.find(PARTS) is not None


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
