"""What a crash leaves of a store and of what shipped is whole or gone, and the next deploy ends with the same bytes.

strace records what two deploys (the second measures again and replaces what shipped) write and sync; the states that a
crash may leave of that are made and recovered: 2,000 by `make prove`, fewer here, and some by whole deploys.
"""

from __future__ import annotations

import json
import os
import random
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import crash_states
import nulls
import prove
import pytest
from crash_states import Change

import edgecompress
from edgecompress.pipeline import shipping
from edgecompress.pipeline.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.strace, pytest.mark.timeout(3600)]

STATES, DEPLOYS = (2000, 50) if prove.WHOLE else (120, 2)
TWO_DEPLOYS = """
import json, sys
from pathlib import Path
import edgecompress
asked, base = json.loads(sys.argv[1]), Path(sys.argv[2])
for remeasure in (False, True):
    options = edgecompress.Options(store=base / "results", out=base / "shipped", remeasure=remeasure)
    assert edgecompress.deploy(**asked, options=options).exit_code == 0
"""


@dataclass(frozen=True)
class Recording:
    """What two deploys changed below `base`."""

    changes: list[Change]
    base: Path
    asked: dict[str, object]

    @cached_property
    def ends(self) -> list[tuple[int, str]]:
        """After how many changes which path (a stored result, what shipped) is on the disk for good."""
        places = [str(self.base / "results" / "store"), str(self.base)]
        ends, moved = [], list[str]()
        for number, change in enumerate(self.changes):
            if change.kind in ("rename", "exchange") and str(Path(change.to).parent) in places:
                moved.append(change.to)
            if change.kind == "fsync-folder":
                ends += [(number + 1, path) for path in moved if str(Path(path).parent) == change.path]
                moved = [path for path in moved if str(Path(path).parent) != change.path]
        return ends

    @cached_property
    def shipped(self) -> list[dict[str, bytes | None]]:
        """What shipped, of each deploy."""
        moments = [n for n, path in self.ends if path == str(self.base / "shipped")]
        states = [crash_states.crashed(self.changes, at, None, self.base) for at in moments]
        return [below(state, self.base / "shipped") for state in states]

    def crash(self, seed: int, folder: Path) -> int:
        """Writes a state that a crash may leave into a folder; returns after how many changes it happened."""
        seeded = random.Random(seed)
        at = seeded.randrange(len(self.changes) + 1)
        crash_states.written(crash_states.crashed(self.changes, at, seeded, self.base), self.base, folder)
        return at


def below(state: dict[str, bytes | None], place: Path) -> dict[str, bytes | None]:
    """The part of a state in one folder, by the paths in it."""
    return {name[len(str(place)) :]: content for name, content in state.items() if name.startswith(f"{place}/")}


def tree(folder: Path) -> dict[str, bytes | None]:
    """The files of a folder, and its folders (None)."""
    paths = [path for path in folder.rglob("*") if ".sqlite" not in path.name]
    return {str(path): None if path.is_dir() else path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    folder = tmp_path_factory.mktemp("recorded")
    base = folder / "base"
    base.mkdir()
    asked = {**nulls.make(folder / "net"), "profile": "quick", "settings": nulls.FAST}
    command = [sys.executable, "-c", TWO_DEPLOYS, json.dumps(asked), str(base)]
    return Recording(crash_states.recorded(command, [base]), base, asked)


def test_without_a_crash_the_simulated_disk_is_the_real_one(recording: Recording) -> None:
    end = crash_states.crashed(recording.changes, len(recording.changes), None, recording.base)
    assert end == {str(recording.base): None, **tree(recording.base)}
    assert {change.kind for change in recording.changes} >= {"create", "write", "rename", "exchange", "unlink", "fsync"}
    assert len(recording.shipped) == 2
    stored = {str(entry.artifact.path.parent) for entry in Store(recording.base / "results").entries()}
    assert stored <= {path for _, path in recording.ends}  # each is on the disk for good at some time


def test_what_a_crash_leaves_is_whole_or_gone_and_what_was_done_is_there(recording: Recording, tmp_path: Path) -> None:
    known = Store(recording.base / "results").entries()
    gone = 0
    for seed in range(STATES):
        folder = tmp_path / str(seed)
        at = recording.crash(seed, folder)
        done = {path for number, path in recording.ends if number <= at}
        store = Store(folder / "results")
        store.remembered()
        for entry in known:
            found = store.find(entry.receipt["parts"], bool(entry.receipt["files"]))
            assert found is None or found.artifact.digest() == found.artifact.sha256, (seed, entry.receipt["stage"])
            if str(recording.base / "results" / "store" / entry.key) in done and not entry.receipt["files"]:
                assert found, (seed, at, entry.receipt["stage"])
            gone += found is None
        assert store.damaged() == [], seed
        shipping.check(folder / "shipped", folder / "results")
        there = below(tree(folder), folder / "shipped")
        assert there in recording.shipped or (not there and str(recording.base / "shipped") not in done), seed
    assert gone > STATES  # the states are not all alike


@pytest.mark.parametrize("seed", range(DEPLOYS))
def test_the_next_deploy_ends_with_the_same_bytes(recording: Recording, tmp_path: Path, seed: int) -> None:
    recording.crash(100_000 + seed, tmp_path)
    for folder in tmp_path.iterdir():  # as after a restart: what is younger than a minute may be somebody's who works
        os.utime(folder, (0, 0))
    options = edgecompress.Options(store=tmp_path / "results", out=tmp_path / "shipped")
    assert edgecompress.deploy(**recording.asked, options=options).exit_code == 0  # type: ignore[arg-type]
    for name in ("artifact", "excerpt"):
        folder, first = tmp_path / "shipped" / name, recording.base / "shipped" / name
        assert shipping.files(folder) == shipping.files(first)
        assert shipping.sound(folder).sha256 == shipping.sound(first).sha256
    assert Store(tmp_path / "results").damaged() == []
    Store(tmp_path / "results").collect(older_than_s=3600)
    assert not list((tmp_path / "results" / "tmp").iterdir())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "shipped"]
