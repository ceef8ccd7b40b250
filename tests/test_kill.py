"""`kill -9` of the worker, of the parent, of both, at any moment and on either side of a rename: the next run goes on.

EDGECOMPRESS_KILLS is the number of seeded moments per stage (1 by default; `make prove`: 6; 20 take more than an hour).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import nulls
import prove
import psutil
import pytest

from edgecompress.pipeline.store import Store

MOMENTS = int(os.environ.get("EDGECOMPRESS_KILLS", "1"))
STAGES = ["data", "source", "golden", "excerpt", "plain/verify", "race/round-1", "energy", "ops", "report"]
RENAMES = [(number, side) for number in range(len(STAGES) + 1) for side in ("before", "after")]
if not prove.WHOLE:
    RENAMES = [RENAMES[9]]
UNTIL = {s: s for s in STAGES[:5]}  # the others come from a search: they run to the end

CHILD = """
import json, os, signal, sys
from pathlib import Path
from edgecompress.commands import deploy, job_run as result

asked, store, out, until, die = json.loads(sys.argv[1])
if die:  # ends this process right before, or right after, the n-th rename of a result into the store
    count, side = die
    rename = Path.rename
    def dying(self, target):
        global count
        hit = Path(target).parent.name == "store" or Path(target).name == "shipped"
        count -= hit
        if hit and count < 0 and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = rename(self, target)
        if hit and count < 0 and side == "after":
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    Path.rename = dying

def tell(event):
    print(event.kind, event.stage.name, event.why or "-", flush=True)

ended = deploy.deploy(**asked, options=result.Options(store=Path(store), out=Path(out), until=until, listener=tell))
print("result", ended.exit_code, ended.message, flush=True)
"""


class Place:
    """A folder with a null net, and deploys of it in processes of their own."""

    def __init__(self, folder: Path, asked: dict[str, object]) -> None:
        self.folder, self.asked, self.tag = folder, asked, uuid.uuid4().hex

    def start(
        self, until: str = "", die: tuple[int, str] | None = None, out: Path | None = None
    ) -> subprocess.Popen[str]:
        said = json.dumps([self.asked, str(self.folder / "results"), str(out or self.folder / "shipped"), until, die])
        return subprocess.Popen(
            [sys.executable, "-c", CHILD, said],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "EDGECOMPRESS_TEST_TAG": self.tag},
        )

    def finish(self, until: str = "") -> str:
        process = self.start(until)
        out, err = process.communicate(timeout=120)
        assert "result 0" in out, err
        return out

    def entries(self) -> dict[str, str]:
        return {e.key: e.artifact.digest() for e in Store(self.folder / "results").entries()}

    def living(self) -> list[psutil.Process]:
        """Processes of this place that still run, found by the tag in their environment."""
        return [p for p in psutil.process_iter() if _environ(p).get("EDGECOMPRESS_TEST_TAG") == self.tag]

    def copy(self, folder: Path) -> Place:
        shutil.copytree(self.folder, folder)
        return Place(folder, self.asked)


def _environ(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ() if process.status() != psutil.STATUS_ZOMBIE else {}
    except psutil.Error:
        return {}


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    made: dict[str, object] = {**nulls.make(tmp_path_factory.mktemp("net"), sleep_ms=2.0)}
    return {**made, "profile": "quick", "settings": nulls.FAST}


@pytest.fixture(scope="module")
def whole(asked: dict[str, object], tmp_path_factory: pytest.TempPathFactory) -> Place:
    """An uninterrupted run: the results to compare with."""
    place = Place(tmp_path_factory.mktemp("whole"), asked)
    place.finish()
    return place


def _prepared(whole: Place, stage: str, folder: Path) -> Place:
    """A place where everything before `stage` is stored, and nothing from it on."""
    place = whole.copy(folder)
    shutil.rmtree(place.folder / "shipped")
    store = Store(place.folder / "results")
    for entry in store.entries():
        if STAGES.index(entry.receipt["stage"]) >= STAGES.index(stage):
            store.remove(entry.key)
    return place


def _kill(process: subprocess.Popen[str], victims: str) -> None:
    """SIGKILL to the parent, to its worker (waiting for one), or to both."""
    parent = psutil.Process(process.pid)
    workers: list[psutil.Process] = []
    if victims != "parent":
        until = time.monotonic() + 10
        while not workers and process.poll() is None and time.monotonic() < until:
            workers = [p for p in parent.children() if "edgecompress.pipeline.worker" in " ".join(_command(p))]
    for victim in [*workers, *([parent] if victims != "worker" else [])]:
        with contextlib.suppress(psutil.Error):
            victim.send_signal(signal.SIGKILL)


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def _wait_for(process: subprocess.Popen[str], stage: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"started {stage} "):
            return
    raise AssertionError(f"{stage} never started: {process.stderr.read() if process.stderr else ''}")


def _left(place: Place) -> list[psutil.Process]:
    """What still lives after two seconds."""
    until = time.monotonic() + 2
    while (left := place.living()) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _goes_on(place: Place, whole: Place, before: dict[str, str]) -> None:
    """Two seconds after the kill nothing lives; the next run keeps what was stored and ends as the whole run did."""
    assert not _left(place)
    place.finish()
    after = place.entries()
    assert before.items() <= after.items()
    assert Store(place.folder / "results").damaged() == []
    for name in ("artifact/artifact.json", "artifact/model.null", "excerpt/artifact.json"):
        assert (place.folder / "shipped" / name).read_bytes() == (whole.folder / "shipped" / name).read_bytes()


def _moments() -> list[tuple[str, str, float]]:
    seeded = random.Random(20)
    kills = [(stage, victims) for stage in STAGES for victims in ("worker", "parent", "both")]
    kills = kills if prove.WHOLE else [kills[3 * number + number % 3] for number in range(0, len(STAGES), 4)]
    return [(*kill, round(seeded.random(), 3)) for kill in kills for _ in range(MOMENTS)]


@pytest.mark.slow
def test_nothing_outlives_a_killed_parent_in_a_stage_of_a_minute(asked: dict[str, object], tmp_path: Path) -> None:
    """The stages of the other tests end by themselves within two seconds."""
    place = Place(tmp_path / "place", {**asked, **nulls.make(tmp_path / "net", sleep_ms=60_000.0)})
    process = place.start("golden")
    _wait_for(process, "golden")
    until = time.monotonic() + 30
    while len(place.living()) < 2 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(place.living()) > 1, "no worker"
    process.kill()
    process.communicate(timeout=60)
    left = _left(place)
    for each in left:
        each.kill()
    assert left == []


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "victims", "moment"), _moments())
def test_a_kill_inside_a_stage_loses_nothing(
    stage: str, victims: str, moment: float, whole: Place, tmp_path: Path
) -> None:
    place = _prepared(whole, stage, tmp_path / "place")
    before = place.entries()
    seconds = next(
        e.receipt["wall_s"] for e in Store(whole.folder / "results").entries() if e.receipt["stage"] == stage
    )
    process = place.start(UNTIL.get(stage, ""))
    _wait_for(process, stage)
    time.sleep(moment * seconds)
    _kill(process, victims)
    out, err = process.communicate(timeout=60)
    if victims == "worker" and "result 0" not in out:
        assert "SIGKILL" in out + err
    _goes_on(place, whole, before)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "side"), RENAMES)
def test_a_kill_beside_a_rename_loses_nothing(
    number: int, side: str, whole: Place, asked: dict[str, object], tmp_path: Path
) -> None:
    place = Place(tmp_path, asked)
    process = place.start(die=(number, side))
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    before = place.entries()
    assert len(before) == min(number + (side == "after"), len(STAGES))
    _goes_on(place, whole, before)


@pytest.mark.slow
def test_two_deploys_at_once_share_the_work_and_agree(whole: Place, asked: dict[str, object], tmp_path: Path) -> None:
    place = Place(tmp_path, asked)
    both = [place.start(), place.start()]
    outs = [p.communicate(timeout=120)[0] for p in both]
    assert [o.strip().splitlines()[-1].split()[:2] for o in outs] == [["result", "0"]] * 2
    started = [line.split()[1] for out in outs for line in out.splitlines() if line.startswith("started")]
    assert sorted(started) == sorted(STAGES)  # each stage ran once, in one of the two
    assert (place.folder / "shipped/artifact/model.null").read_bytes() == (
        whole.folder / "shipped/artifact/model.null"
    ).read_bytes()


CLEANER = """
import signal, sys, time
from pathlib import Path
from edgecompress.commands import cache
from edgecompress.core.errors import StageFailed

ended = []
signal.signal(signal.SIGTERM, lambda *_: ended.append(True))
count = 0
while not ended:
    try:
        cache.opened(Path(sys.argv[1])).collect(older_than_s=0)
    except StageFailed:  # a deploy holds the store
        count += 1
    time.sleep(0.01)
print(count)
"""


def _deploys_and_gc(place: Place, count: int, until: str) -> None:
    """So many deploys at once, half of them into one folder, while `cache gc --older-than 0` runs all the time."""
    store = place.folder / "results"
    Store(store)
    cleaner = subprocess.Popen([sys.executable, "-c", CLEANER, str(store)], stdout=subprocess.PIPE, text=True)
    outs = [place.folder / ("shipped" if number % 2 else f"shipped-{number}") for number in range(count)]
    deploys = [place.start(until, out=out) for out in outs]
    ended = [deploy.communicate(timeout=600) for deploy in deploys]
    cleaner.terminate()
    times = int(cleaner.communicate(timeout=60)[0])
    assert cleaner.returncode == 0 and times > count
    assert all("result 0" in out for out, _ in ended), [err[-500:] for out, err in ended if "result 0" not in out]


@pytest.mark.slow
def test_deploys_and_gc_at_once_do_not_harm_each_other(asked: dict[str, object], tmp_path: Path) -> None:
    _deploys_and_gc(Place(tmp_path, asked), 3, "excerpt")


@pytest.mark.prove
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_ten_deploys_and_gc_at_once_ship_the_same_bytes(whole: Place, asked: dict[str, object], tmp_path: Path) -> None:
    shipped = whole.folder / "shipped" / "artifact" / "model.null"
    for number in range(20):
        place = Place(tmp_path / str(number), asked)
        place.folder.mkdir()
        _deploys_and_gc(place, 10, "")
        outs = sorted(place.folder.glob("shipped*"))
        assert len(outs) == 6 and all(
            (out / "artifact/model.null").read_bytes() == shipped.read_bytes() for out in outs
        )
        Store(place.folder / "results").collect(older_than_s=0)
        assert sorted(path.name for path in place.folder.iterdir()) == ["results", *(out.name for out in outs)]
        assert not [file for name in ("tmp", "store", "kept") for file in (place.folder / "results" / name).iterdir()]
