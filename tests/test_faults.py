"""A disk that fails, once, at any call: a deploy ends with 0, or with 3 and one line, and the next one mends all.

`make prove` lets each call of the store and of shipping fail in each way, and a deploy in many of the places where it
touches the disk.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import nulls
import prove
import pytest
from faults import CODES, STORE, Fault, FaultyDisk

from edgecompress.core import config, plain_file
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.data import loaders, npy, npz
from edgecompress.packaging import model_card
from edgecompress.pipeline import shipping
from edgecompress.pipeline.store import Store
from edgecompress.plugins.runtimes import null
from edgecompress.reporting import external_results

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

SAMPLE = 40  # faults of the store, in the short form
DEPLOYS = 60  # faults of a whole deploy, in the long form: all of them take an hour
MEASURED = ("race/", "energy", "ops", "report")  # stages whose bytes differ from run to run
LEFT = ("tmp", "store", "kept", "quarantine", "pins", "logs", "checked")  # folders that gc leaves empty


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """In memory where that is possible: there are thousands of calls that wait for a disk."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="faults-", dir=memory if os.access(memory, os.W_OK) else None))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def disk(base: Path) -> Iterator[FaultyDisk]:
    if not shutil.which("gcc"):
        pytest.skip("gcc not installed (Debian: apt-get install gcc)")
    disk = FaultyDisk(base)
    yield disk
    disk.close()


@pytest.fixture(scope="module")
def deploy(base: Path) -> list[str]:
    asked = nulls.make(base / "net")
    fast = [word for key, value in nulls.FAST.items() for word in ("--set", f"{key}={value}")]
    what = [asked["model"], "--data", asked["data"], "--target", asked["target"], "--profile", "quick"]
    return ["deploy", *what, *fast, "--store", "results", "--out", "shipped"]


class Trial:
    """A command that is run with a fault, then without, from the state of a folder; what it gives without a fault."""

    def __init__(self, disk: FaultyDisk, base: Path, words: Sequence[str], again: bool = False) -> None:
        self.disk, self.words = disk, words
        self.whole, self.start, self.case = (base / name for name in ("whole", "start", "case"))
        for folder in (self.whole, self.start):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
        ended = disk.run(words, self.whole)
        assert ended.code == 0, ended.err
        if again:
            shutil.copytree(self.whole, self.start, dirs_exist_ok=True)
        self.results, self.shipped = _results(self.whole), _shipped(self.whole)
        self.calls = disk.calls(words, self._fresh())

    def _fresh(self) -> Path:
        shutil.rmtree(self.case, ignore_errors=True)
        return Path(shutil.copytree(self.start, self.case))

    def faults(self) -> list[Fault]:
        """Each call, failing in each way."""
        return [Fault(kind, number, code, site) for kind, number, site in self.calls for code in CODES[kind]]

    def sites(self) -> list[Fault]:
        """The first and the last call of a kind with a path, each failing in one way, in turn all of them."""
        by_site: dict[tuple[str, str], list[int]] = {}
        for kind, number, site in self.calls:
            by_site.setdefault((kind, site), []).append(number)
        chosen = [(kind, n, site) for (kind, site), all_ in by_site.items() for n in sorted({all_[0], all_[-1]})]
        return [Fault(kind, n, CODES[kind][at % len(CODES[kind])], site) for at, (kind, n, site) in enumerate(chosen)]

    def wrong(self, fault: Fault) -> str:
        """What is wrong after a fault and one more run, or ""."""
        folder = self._fresh()
        ended = self.disk.run(self.words, folder, fault)
        lines = ended.err.splitlines()
        told = [line for line in lines if line.startswith("edgecompress: error: ")]
        if ended.code not in (0, 3) or "Traceback" in ended.err or len(told) != (ended.code == 3):
            return f"{fault}: exit {ended.code}: {lines[-3:]}"
        for left in folder.glob(".shipped.*"):  # a minute has passed
            os.utime(left, (0, 0))
        again = self.disk.run(self.words, folder)
        return f"{fault}: the next run: {again.err[-300:]}" if again.code else self._different(fault, folder)

    def _different(self, fault: Fault, folder: Path) -> str:
        results = _results(folder)
        if results.keys() != self.results.keys() or _shipped(folder) != self.shipped:
            return f"{fault}: not all is there again"
        if any(results[name] != digest for name, digest in self.results.items() if not name.startswith(MEASURED)):
            return f"{fault}: other bytes"
        if damaged := Store(folder / "results").damaged():
            return f"{fault}: damaged: {damaged}"
        Store(folder / "results").collect(older_than_s=0)
        left = [path for name in LEFT for path in (folder / "results" / name).iterdir()]
        left += [*folder.rglob(".*.part"), *folder.glob(".*")]
        return f"{fault}: left over: {left}" if left else ""


def _results(folder: Path) -> dict[str, str]:
    return {entry.receipt["stage"]: entry.artifact.digest() for entry in Store(folder / "results").entries()}


def _shipped(folder: Path) -> dict[str, bytes]:
    """What ships of a deploy, its report left out: it tells what was measured."""
    out = folder / "shipped"
    names = [name for name in shipping.files(out) if name.split("/")[0] not in (*shipping.REPORT, shipping.ORIGIN)]
    return {name: (out / name).read_bytes() for name in names}


def check(trial: Trial, faults: Sequence[Fault]) -> None:
    wrong = [said for fault in faults if (said := trial.wrong(fault))]
    assert not wrong, "\n".join([f"{len(wrong)} of {len(faults)}:", *wrong])


@pytest.mark.parametrize("again", [False, True])
def test_the_store_and_what_ships_survive_a_fault_at_any_call(disk: FaultyDisk, base: Path, again: bool) -> None:
    trial = Trial(disk, base, [STORE], again)
    kinds = {kind for kind, _, _ in trial.calls}
    assert kinds >= {"open", "create", "read", "write", "fsync", "rename", "mkdir", "unlink", "flock", "close", "copy"}
    check(trial, prove.some(trial.faults(), SAMPLE))


def test_a_fault_in_a_stage_ends_a_deploy_in_one_line(disk: FaultyDisk, base: Path, deploy: list[str]) -> None:
    trial = Trial(disk, base, [*deploy, "--until", "data"])
    assert {site.split()[0] for _, _, site in trial.calls} == {"parent", "child"}
    check(trial, prove.some(trial.sites(), 3))


READERS = {
    "array": npy.mapped,
    "npz": npz.arrays,
    "picture": loaders._picture,
    "toml": config.read_toml,
    "card": model_card.read,
    "net": null.parse,
    "measurement": external_results.read,
}


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS.keys())
@pytest.mark.parametrize(("code", "error"), [(errno.EIO, StageFailed), (errno.EACCES, InputError)])
def test_a_file_that_the_disk_does_not_give_is_no_mistake_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader: Callable[[Path], object], code: int, error: type
) -> None:
    def fails(path: str, *_: object) -> int:
        raise OSError(code, os.strerror(code), path)

    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setattr(plain_file.os, "open", fails)
    with pytest.raises(error, match=os.strerror(code)):
        reader(tmp_path / "file")


@pytest.mark.prove
@pytest.mark.parametrize("again", [False, True])
def test_a_deploy_survives_a_fault_wherever_it_touches_the_disk(
    disk: FaultyDisk, base: Path, deploy: list[str], again: bool
) -> None:
    trial = Trial(disk, base, deploy, again)
    faults = [fault for fault in trial.sites() if again or fault.site.startswith("child")]
    check(trial, prove.some(faults, DEPLOYS, whole=False))
