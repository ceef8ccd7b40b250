"""Results of stages by content: the key holds inputs, options, code and versions; atomic, locked, and able to say why.

ROOT/store/KEY/{artifact/, receipt.json}   one result; written in tmp, then renamed into place
ROOT/observed/KEY.json                     of stages that run user code: the files seen, and the result they gave
ROOT/last/NAME.json                        what a stage's key was made of the last time: the reason for a re-run
ROOT/kept/KEY/                             a stage's own: checkpoints until it ends; the log of a training stays
ROOT/checked/KEY                           the files' identities, sizes and times when their bytes were last checked
ROOT/given/DIGEST/NAME                     a model, or data, that a Python program handed over as an object
ROOT/mark                                  by what the user who made the store knows it: `store_place`
ROOT/tmp, ROOT/locks, ROOT/logs

Nothing here waits for the disk: what a power cut damages does not fit its sha256, and is made again.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypedDict, TypeVar

from edgecompress.core import atomic_file, file_lock
from edgecompress.core.errors import FAULTS, DiskFull, EdgeError, InputError, StageFailed
from edgecompress.core.json import Json, is_number, parsed
from edgecompress.core.model import CARD, Artifact, sha256_of
from edgecompress.pipeline import store_place

Parts = Mapping[str, Json]  # what a key is made of, flat: {"options.ratio": 0.5, "inputs.model": "3f..", ...}

RECEIPT = "receipt.json"
SEAL = "seal"  # of a receipt: the sha256 of the rest of it
DAMAGED = "its stored bytes were damaged"
KEPT_LOG = "log"
HELD = "store"  # a lock: runs share it, and `collect` has it alone
PRIVATE = 0o700  # of the folders that are made: results hold the user's data, and logs what was printed
MIN_FREE_BYTES = 32 << 20
SAMPLE = 2000  # runs that an estimate of time is made of
LONGEST_S = 366 * 86400.0  # that a stage, or a search, may have taken
END_OF_TIME = 253402300800.0  # in seconds since 1970: the year 10000, which no date tells
T = TypeVar("T")


class Receipt(TypedDict, total=False):
    """How a result was made; what the store adds when it takes it in comes last."""

    stage: str
    wall_s: float
    log: str
    files: dict[str, str]  # of the user's, with their digests
    modules: list[str]  # those of the top level that it imported
    parts: dict[str, Json]
    time: float  # seconds since 1970
    key: str
    card: str  # the sha256 of the artifact's card
    seal: str


class LastRun(TypedDict):
    """What the key of a stage was made of the last time it ran, and how long it took."""

    name: str
    parts: dict[str, Json]
    files: dict[str, str]
    key: str
    wall_s: float


class Seen(TypedDict):
    """The user's files that a stage read, and the result that it gave with them."""

    files: dict[str, str]
    key: str


@dataclass(frozen=True)
class StoredResult:
    """One stored result."""

    key: str
    artifact: Artifact
    receipt: Receipt

    @property
    def age_s(self) -> float:
        """Seconds since it was made; less than 0 where the clock was set back since."""
        return time.time() - self.receipt["time"]

    @property
    def idle_s(self) -> float:
        """Seconds since it was made or last found."""
        return _idle_s(self.artifact.path.parent / RECEIPT)


def key_of(parts: Parts) -> str:
    """The sha256 of the parts."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()


class Store:
    """The folder that holds the results. Successes only; safe against `kill -9` and against a second process."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._use = contextlib.ExitStack()
        with self.told():
            try:
                store_place.check(root)
                root.mkdir(PRIVATE, parents=True, exist_ok=True)
                store_place.claim(root)
                for name in store_place.FOLDERS:
                    (root / name).mkdir(PRIVATE, exist_ok=True)
            except OSError as error:
                if error.errno in FAULTS:
                    raise
                message = f"cannot keep results there: {error.strerror}"
                raise InputError(f"{root}: {message}; choose another place with --store") from error

    def told(self) -> contextlib.AbstractContextManager[None]:
        """What the disk refuses in the body is raised as StageFailed."""
        return atomic_file.told(self.root, "--store")

    def hold(self) -> None:
        """Nothing is collected until this object, or its process, ends; waits while another process collects."""
        with self.told():  # not `locked`, which would keep this object alive
            self._use.enter_context(file_lock.held(self.root / "locks" / f"{HELD}.lock", shared=True))

    # ------------------------------------------------------------------ look up

    def find(self, parts: Parts, observes: bool = False) -> StoredResult | None:
        """The stored result for these parts, if its user files (where it has any) are as they were.

        Its bytes are those that were stored; they are read again when the identity, size or time of a file has changed
        since they were last read, and after `distrust`.
        """
        primary = key_of(parts)
        observed = reversed(self._seen(primary)) if observes else ()
        key = next((seen["key"] for seen in observed if _unchanged(seen["files"])), primary)  # which looked at no file
        entry = self._entry(key)
        if not (entry and self._whole(entry)):
            return None
        os.utime(entry.artifact.path.parent / RECEIPT)  # in use: `collect` keeps it
        return entry

    def _whole(self, entry: StoredResult) -> bool:
        """Whether the files are those that were stored; read once, then as long as nothing about them changes."""
        known = self.root / "checked" / entry.key
        try:
            # what changes of a file whenever its bytes are written: its identity, its size, its times; of all files
            stats = ((path.relative_to(entry.artifact.path), path.stat()) for path in entry.artifact.files())
            told = (f"{name} {s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for name, s in stats)
            signature = hashlib.sha256("\0".join(told).encode()).digest()
        except OSError:
            return False
        with contextlib.suppress(OSError):
            if known.read_bytes() == signature:
                return True
        whole = _whole(entry)
        if whole:
            with contextlib.suppress(OSError):  # then they are read again the next time
                known.write_bytes(signature)
        return whole

    def distrust(self) -> None:
        """Has every result's bytes read again before it is used."""
        for known in (self.root / "checked").iterdir():
            known.unlink(missing_ok=True)

    def _entry(self, key: str) -> StoredResult | None:
        """The result of that key, or None where there is none that can be read; its files are not looked at."""
        folder = self.root / "store" / key
        receipt: Receipt | None = _read_json(folder / RECEIPT, None)
        try:
            whole = receipt is not None and _sealed(receipt, folder)
            return StoredResult(key, Artifact.read(folder / "artifact"), receipt) if receipt and whole else None
        except (EdgeError, OSError):
            return None

    def entry(self, key: str) -> StoredResult:
        """The result that another process stored. Raises StageFailed where this one does not see it."""
        if found := self._entry(key):
            return found
        raise StageFailed(
            f"{self.root}: has no result {key[:12]}, which another machine stored: it is not one shared folder"
        )

    def why(self, name: str, parts: Parts, observes: bool) -> str:
        """Why the stage `name`, whose result was not found, has to run: what changed since the last time, in words."""
        last = _last_run(self._last(name))
        if (self.root / "store" / key_of(parts)).exists():
            return DAMAGED
        if last is None:
            return "first run"
        changed = sorted(k for k in {*parts, *last["parts"]} if parts.get(k) != last["parts"].get(k))
        if changed:
            shown = ", ".join(_change(k, last["parts"].get(k), parts.get(k)) for k in changed[:3])
            return f"changed: {shown}" + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
        files = [
            path for path, digest in last.get("files", {}).items() if observes and observed_digest(Path(path)) != digest
        ]
        if files:
            return f"changed: file {Path(files[0]).name}"
        return DAMAGED if (self.root / "store" / last["key"]).exists() else "its result is no longer in the store"

    def remember(self, name: str, parts: Parts, receipt: Receipt) -> None:
        """Keeps what the key of `name` was made of, for the next `why`, and how long it took."""
        files, key, wall_s = receipt["files"], receipt["key"], receipt["wall_s"]
        self._remember(LastRun(name=name, parts=dict(parts), files=files, key=key, wall_s=wall_s))

    def expected_s(self, name: str) -> float | None:
        """Seconds the stage or the search `name` (SCOPE:STAGE) took the last time, else the median of other scopes."""
        last = _last_run(self._last(name))
        return last["wall_s"] if last else self._typical_s.get(name.rpartition(":")[2])

    @cached_property
    def _typical_s(self) -> dict[str, float]:
        """The median of the seconds that a stage took, over many scopes, when this store was opened."""
        took: dict[str, list[float]] = {}
        for run in self._runs(SAMPLE):
            took.setdefault(run["name"].rpartition(":")[2], []).append(run["wall_s"])
        return {name: statistics.median(seconds) for name, seconds in took.items()}

    def remember_search(self, name: str, took_s: float) -> None:
        """Keeps how long the stages of a search took together, for the time left of the next one."""
        self._remember(LastRun(name=name, parts={}, files={}, key="", wall_s=took_s))

    def _remember(self, run: LastRun) -> None:
        """Of what it tells, no result depends: where the disk refuses it, the old one stays."""
        if _last_run(self._last(run["name"])) != run:
            with contextlib.suppress(OSError):
                self._write(self._last(run["name"]), run)

    def remembered(self) -> list[LastRun]:
        """Every stage that has run: its name, the parts of its key, its key, its seconds."""
        return [run for run in self._runs() if run["key"]]

    def _runs(self, most: int | None = None) -> list[LastRun]:
        """What is remembered; of more than `most` some, whichever the digests of their names put first."""
        with self.told():
            paths = sorted((self.root / "last").glob("*.json"))[:most]
        return [run for path in paths if (run := _last_run(path))]

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

        Without `wait` it raises BlockingIOError when another process holds the key. What the disk refuses meanwhile is
        raised as StageFailed.
        """
        with self.told(), file_lock.held(self.root / "locks" / f"{key}.lock", wait=wait):
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
                _remove(path)
        with contextlib.suppress(OSError):  # where there is a log it stays
            folder.rmdir()

    def commit(self, scratch: Path, parts: Parts, receipt: Receipt) -> StoredResult:
        """Moves a finished scratch folder into place with one rename, and returns the entry."""
        files = receipt["files"]
        primary = key_of(parts)
        key = key_of({"primary": primary, "files": files}) if files else primary
        card = sha256_of(scratch / "artifact" / CARD)
        receipt = {**receipt, "parts": dict(parts), "time": time.time(), "key": key, "card": card}
        receipt["seal"] = _seal(receipt)
        with (scratch / RECEIPT).open("x", encoding="utf-8") as file:  # no link that a stage left is followed
            file.write(_text(receipt))
        place = self.root / "store" / key
        self.remove(key)  # an older measurement, or a damaged one
        scratch.rename(place)
        if files:
            index = self.root / "observed" / f"{primary}.json"
            seen = [s for s in self._seen(primary) if s["key"] != key]
            self._write(index, [*seen, Seen(files=dict(files), key=key)][-20:])
        return StoredResult(key, Artifact.read(place / "artifact"), receipt)

    def give(self, name: str, write: Callable[[Path], None]) -> Path:
        """The file or folder `name` as `write` makes it: the same bytes have the same place, whoever gives them."""
        with self.locked("given"):
            part = self.scratch("given") / name
            write(part)
            files = [part] if part.is_file() else sorted(path for path in part.rglob("*") if path.is_file())
            told = {file.relative_to(part.parent).as_posix(): sha256_of(file) for file in files}
            place = self.root / "given" / key_of(dict(told))[:32]
            for file in files:  # again, where they are there: what is damaged is mended
                there = place / file.relative_to(part.parent)
                there.parent.mkdir(parents=True, exist_ok=True)
                file.replace(there)
        return place / name

    def _seen(self, primary: str) -> list[Seen]:
        """What user code looked at when it gave each of its results; nothing of what is not as we write it."""
        seen = _read_json(self.root / "observed" / f"{primary}.json", list[Seen]())
        return [s for s in seen if _is_seen(s)] if isinstance(seen, list) else []

    def _write(self, file: Path, data: LastRun | list[Seen]) -> None:
        """Replaces an index. Raises OSError; then the old one is still there."""
        part = self.root / "tmp" / f"{file.name}.{os.getpid()}"
        try:
            part.write_text(_text(data), encoding="utf-8")
            part.replace(file)
        except BaseException:
            part.unlink(missing_ok=True)
            raise

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

    def entries(self) -> list[StoredResult]:
        """Every stored result, the newest first."""
        entries = [self._entry(folder.name) for folder in (self.root / "store").iterdir()]
        return sorted((e for e in entries if e), key=lambda e: e.age_s)

    def damaged(self) -> list[Path]:
        """The folders of results whose bytes are no longer what they were when they were stored."""
        folders = sorted((self.root / "store").iterdir())
        return [folder for folder in folders if not ((entry := self._entry(folder.name)) and _whole(entry))]

    def remove(self, key: str) -> None:
        """Deletes one result, if it is there, in one rename."""
        aside = self.root / "tmp" / f"{key}.gone.{os.getpid()}"
        with contextlib.suppress(FileNotFoundError):
            (self.root / "store" / key).rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    def collect(self, older_than_s: float) -> int:
        """Removes results unused for so long, and what killed runs left behind; returns the bytes freed.

        Raises StageFailed while a run holds the store.
        """
        before = _bytes_in(self.root)
        gc.collect()  # a run of this process that failed may be held by its own traceback
        try:
            with self.locked(HELD, wait=False):
                for left in (self.root / "tmp").iterdir():
                    _remove(left)
                for folder in (self.root / "store").iterdir():
                    if not self._entry(folder.name) or _idle_s(folder / RECEIPT) > older_than_s:
                        self.remove(folder.name)
                for left in (path for name in ("kept", "logs", "given") for path in (self.root / name).iterdir()):
                    if _idle_s(left, *left.rglob("*")) > older_than_s:
                        _remove(left)
                for known in (self.root / "checked").iterdir():
                    if not (self.root / "store" / known.name).exists():
                        known.unlink()
        except BlockingIOError:
            raise StageFailed(f"{self.root}: a running command uses this store; try again when it has ended") from None
        return before - _bytes_in(self.root)


def _remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _seal(receipt: Receipt) -> str:
    """The sha256 of a receipt, without the seal itself."""
    rest = {name: value for name, value in receipt.items() if name != SEAL}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, default=str).encode()).hexdigest()


def _sealed(receipt: Receipt, folder: Path) -> bool:
    """Whether receipt and card are those of the result that was stored, and its numbers can be those of a run."""
    return (
        isinstance(receipt, dict)
        and receipt.get("seal") == _seal(receipt)
        and receipt.get("card") == sha256_of(folder / "artifact" / CARD)
        and is_number(receipt.get("wall_s"), 0, LONGEST_S)
        and is_number(receipt.get("time"), 0, END_OF_TIME)
    )


def _whole(entry: StoredResult) -> bool:
    """Whether the files are those that the card tells of."""
    try:
        return entry.artifact.digest() == entry.artifact.sha256
    except OSError:
        return False


def _idle_s(*paths: Path) -> float:
    """Seconds since the latest change of some files; infinite where none is there."""
    times = []
    for path in paths:
        with contextlib.suppress(OSError):
            times.append(path.stat().st_mtime)
    return time.time() - max(times) if times else math.inf


def _change(key: str, old: Json, new: Json) -> str:
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
    except (OSError, InputError):
        return ""


def _unchanged(files: Mapping[str, str]) -> bool:
    return all(observed_digest(Path(path)) == digest for path, digest in files.items())


def _last_run(path: Path) -> LastRun | None:
    """What is remembered of a stage; None where the file is not as we write it."""
    last: LastRun | None = _read_json(path, None)
    tables = isinstance(last, dict) and all(isinstance(last.get(key), dict) for key in ("parts", "files"))
    return (
        last
        if last
        and tables
        and is_number(last.get("wall_s"), 0, LONGEST_S)
        and isinstance(last.get("name"), str)
        and isinstance(last.get("key"), str)
        else None
    )


def _is_seen(seen: Seen) -> bool:
    return isinstance(seen, dict) and isinstance(seen.get("files"), dict) and isinstance(seen.get("key"), str)


def _read_json(path: Path, default: T) -> T:
    """What we wrote there, or `default` where nothing can be read."""
    try:
        content: T = parsed(path.read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError):
        return default


def _text(data: Receipt | LastRun | list[Seen]) -> str:
    return json.dumps(data, indent=1, default=str)


def _bytes_in(folder: Path) -> int:
    sizes = []
    for parent, _, names in os.walk(folder):  # which passes over what cannot be listed
        for name in names:
            with contextlib.suppress(OSError):  # another process may work in here
                sizes.append(os.lstat(os.path.join(parent, name)).st_size)
    return sum(sizes)
