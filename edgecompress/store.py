"""Results of stages by content: the key holds inputs, options, code and versions; atomic, locked, and able to say why.

ROOT/store/KEY/{artifact/, receipt.json}   one result; written elsewhere, then renamed into place
ROOT/observed/KEY.json                     of stages that run user code: the files seen, and the result they gave
ROOT/last/NAME.json                        what a stage's key was made of the last time: the reason for a re-run
ROOT/kept/KEY/                             a stage's own: checkpoints until it ends, the log of a training for good
ROOT/tmp, ROOT/locks, ROOT/logs
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgecompress.errors import DiskFull, InputError
from edgecompress.model import Artifact, sha256_of

Parts = Mapping[str, Any]  # what a key is made of, flat: {"options.ratio": 0.5, "inputs.model": "3f..", ...}

RECEIPT = "receipt.json"
KEPT_LOG = "log"
MIN_FREE_BYTES = 32 << 20


@dataclass(frozen=True)
class Entry:
    """One stored result."""

    key: str
    artifact: Artifact
    receipt: Mapping[str, Any]

    @property
    def age_s(self) -> float:
        """Seconds since it was made."""
        return max(0.0, time.time() - float(self.receipt["time"]))

    @property
    def idle_s(self) -> float:
        """Seconds since it was made or last found."""
        return max(0.0, time.time() - (self.artifact.path.parent / RECEIPT).stat().st_mtime)


def key_of(parts: Parts) -> str:
    """The sha256 of the parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class Store:
    """The folder that holds the results. Successes only; safe against `kill -9` and against a second process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        try:
            for name in ("store", "observed", "last", "kept", "tmp", "locks", "logs"):
                (root / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            said = f"cannot keep results there: {error.strerror}"
            raise InputError(f"{root}: {said}; choose another place with --store") from error

    # ------------------------------------------------------------------ look up

    def find(self, parts: Parts, user_code: bool = False) -> Entry | None:
        """The stored result for these parts, if its user files (where it has any) are as they were."""
        key: str | None = key_of(parts)
        if user_code:
            observed = reversed(_read_json(self.root / "observed" / f"{key}.json", []))
            key = next((seen["key"] for seen in observed if _unchanged(seen["files"])), None)
        entry = self._entry(key) if key else None
        if entry:
            os.utime(entry.artifact.path.parent / RECEIPT)  # in use: `collect` lets it be
        return entry

    def _entry(self, key: str) -> Entry | None:
        folder = self.root / "store" / key
        receipt = _read_json(folder / RECEIPT, None)
        return Entry(key, Artifact.read(folder / "artifact"), receipt) if receipt else None

    def why(self, name: str, parts: Parts, user_code: bool) -> str:
        """Why the stage `name` has to run: what changed since the last time, in words."""
        last = _read_json(self._last(name), None)
        if last is None:
            return "first run"
        changed = sorted(k for k in {*parts, *last["parts"]} if parts.get(k) != last["parts"].get(k))
        if changed:
            shown = ", ".join(_change(k, last["parts"].get(k), parts.get(k)) for k in changed[:3])
            return f"changed: {shown}" + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        files = [
            path
            for path, digest in last.get("files", {}).items()
            if user_code and observed_digest(Path(path)) != digest
        ]
        if files:
            return f"changed: file {Path(files[0]).name}"
        return "its result is no longer in the store"

    def remember(self, name: str, parts: Parts, receipt: Mapping[str, Any]) -> None:
        """Keeps what the key of `name` was made of, for the next `why`, and how long it took."""
        kept = {"name": name, "parts": dict(parts), "files": receipt["files"], "key": receipt["key"]}
        _write_json(self._last(name), {**kept, "wall_s": receipt["wall_s"]})

    def expected_s(self, name: str) -> float | None:
        """Seconds the stage `name` took the last time, if it ran before."""
        last: dict[str, float] = _read_json(self._last(name), {})
        return last.get("wall_s")

    def remembered(self) -> list[Mapping[str, Any]]:
        """Every stage that has run: its name, the parts of its key, its key, its seconds."""
        found = [_read_json(path, None) for path in sorted((self.root / "last").glob("*.json"))]
        return [f for f in found if f]

    def log(self, stage: str) -> Path:
        """A new log file for a stage."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return self.root / "logs" / f"{stamp}-{os.getpid()}-{stage.replace('/', '-')}.log"

    def _last(self, name: str) -> Path:
        return self.root / "last" / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}.json"

    # ------------------------------------------------------------------ write

    @contextlib.contextmanager
    def locked(self, key: str, wait: bool = True) -> Iterator[None]:
        """Holds the key for this process; another process waits. The kernel frees it when the process dies.

        Without `wait` it raises BlockingIOError when another process holds the key.
        """
        with (self.root / "locks" / f"{key}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            yield

    def scratch(self, key: str) -> Path:
        """An empty folder to work in; call with the key locked, so what a killed run left there can go."""
        folder = self.root / "tmp" / key
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "artifact").mkdir(parents=True)
        return folder

    def keep(self, key: str) -> Path:
        """A folder where the stage of that key may keep what outlives it when it is killed: checkpoints."""
        folder = self.root / "kept" / key
        folder.mkdir(exist_ok=True)
        return folder

    def release(self, key: str) -> None:
        """The stage has its result: what it kept goes, but for its log."""
        folder = self.root / "kept" / key
        for path in folder.iterdir():
            if path.name != KEPT_LOG:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        with contextlib.suppress(OSError):  # where there is a log it stays
            folder.rmdir()

    def commit(self, scratch: Path, parts: Parts, receipt: dict[str, Any]) -> Entry:
        """Moves a finished scratch folder into place with one rename, and returns the entry."""
        files: dict[str, str] = receipt["files"]
        primary = key_of(parts)
        key = key_of({"primary": primary, "files": files}) if files else primary
        receipt = {**receipt, "parts": dict(parts), "time": time.time(), "key": key}
        _write_json(scratch / RECEIPT, receipt)
        place = self.root / "store" / key
        if place.exists():  # a renewed measurement, or another process was first
            aside = self.root / "tmp" / f"{key}.old.{os.getpid()}"
            place.rename(aside)
            scratch.rename(place)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            scratch.rename(place)
        if files:
            self._observe(primary, key, files)
        return Entry(key, Artifact.read(place / "artifact"), receipt)

    def _observe(self, primary: str, key: str, files: Mapping[str, str]) -> None:
        index = self.root / "observed" / f"{primary}.json"
        seen = [s for s in _read_json(index, []) if s["key"] != key]
        _write_json(index, [*seen, {"files": dict(files), "key": key}][-20:])

    def require_room(self, size_bytes: int) -> None:
        """Raises DiskFull when less than `size_bytes` (and 32 MiB) is free where results go."""
        need = max(size_bytes, MIN_FREE_BYTES)
        free = shutil.disk_usage(self.root).free
        if free < need:
            raise DiskFull(
                f"{self.root}: {free >> 20} MiB free, the next stage needs about {need >> 20} MiB; "
                "free some room, run `edgecompress cache gc`, or choose another place with --store"
            )

    # ------------------------------------------------------------------ housekeeping

    def entries(self) -> list[Entry]:
        """Every stored result, the newest first."""
        found = (self._entry(folder.name) for folder in (self.root / "store").iterdir())
        return sorted((e for e in found if e), key=lambda e: e.age_s)

    def damaged(self) -> list[Entry]:
        """The results whose bytes are no longer what their card says."""
        return [e for e in self.entries() if e.artifact.digest() != e.artifact.sha256]

    def remove(self, entry: Entry) -> None:
        """Deletes one result, in one rename."""
        aside = self.root / "tmp" / f"{entry.key}.gone.{os.getpid()}"
        (self.root / "store" / entry.key).rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def collect(self, older_than_s: float) -> int:
        """Removes results unused for so long, and what killed runs left behind; returns the bytes freed."""
        before = _bytes_in(self.root)
        for entry in self.entries():
            if entry.idle_s > older_than_s:
                self.remove(entry)
        for left in (self.root / "tmp").iterdir():
            with contextlib.suppress(BlockingIOError), self.locked(left.name.split(".")[0], wait=False):
                shutil.rmtree(left, ignore_errors=True)
        for log in (self.root / "logs").iterdir():
            if time.time() - log.stat().st_mtime > older_than_s:
                log.unlink()
        for kept in (self.root / "kept").iterdir():
            if time.time() - max(p.stat().st_mtime for p in (kept, *kept.rglob("*"))) > older_than_s:
                shutil.rmtree(kept, ignore_errors=True)
        return before - _bytes_in(self.root)


def _change(key: str, old: Any, new: Any) -> str:
    short = key.removeprefix("options.")
    digest = key.startswith(("code of", "input."))
    if digest or old is None or new is None or max(len(str(old)), len(str(new))) > 24:
        return short
    return f"{short} {old} → {new}"


def observed_digest(path: Path) -> str:
    """What must stay the same of a file (its bytes) or a folder (its names) that user code looked at; "" if gone."""
    try:
        if path.is_dir():
            return hashlib.sha256("\0".join(sorted(p.name for p in path.iterdir())).encode()).hexdigest()
        return sha256_of(path)
    except OSError:
        return ""


def _unchanged(files: Mapping[str, str]) -> bool:
    return all(observed_digest(Path(path)) == digest for path, digest in files.items())


def _read_json(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return default


def _write_json(path: Path, data: Any) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    part.write_text(json.dumps(data, indent=1, default=str), encoding="utf-8")
    part.replace(path)


def _bytes_in(folder: Path) -> int:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
