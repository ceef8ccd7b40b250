"""Tests in several processes: one that measures runs while no other runs."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def taken(run: str, alone: bool) -> Iterator[None]:
    """A turn in a run of tests: shared with the other processes, or with nobody."""
    folder = Path(os.environ["XDG_STATE_HOME"]) / f"turns-{run}"  # which goes with the run: see conftest.py
    folder.mkdir(exist_ok=True)
    with (folder / "room").open("w") as room:
        with _locked(folder / "door"):  # who waits for the room alone keeps the others from going in before
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
