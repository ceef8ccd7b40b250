"""Steps side by side: as many as are asked for, each after what it needs; what measures has the machine to itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import nulls
import psutil
import pytest

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Choice, Context, Outcomes, Stage
from edgecompress.pipeline import side_by_side
from edgecompress.pipeline.runner import Event, PlanRun
from edgecompress.pipeline.side_by_side import SideBySide, Step, Turns
from edgecompress.pipeline.store import Store

FRONT = Stage("front", "x:y")
LEFT, RIGHT = (Stage(name, "x:y", {"model": "front"}, variants=(name,)) for name in ("left", "right"))
LAST = Stage("last", "x:y", {"a": "left", "b": "right"}, variants=("left", "right"))


class Log:
    """What works when: the most at once, and the order in which steps ended."""

    def __init__(self) -> None:
        self.now, self.most, self.ended, self.lock = 0, 0, list[str](), threading.Lock()

    def do(self, step: Step) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.05)
        with self.lock:
            self.now -= 1
            self.ended.append(step.name)


def run(log: Log, jobs: int, fits: bool = True) -> None:
    SideBySide(log.do, lambda step: fits, lambda: None, jobs).run([FRONT, LEFT, RIGHT, LAST])


@pytest.mark.parametrize(("jobs", "fits", "most"), [(1, True, 1), (2, True, 2), (8, True, 2), (2, False, 1)])
def test_as_many_work_as_are_asked_for_and_fit(jobs: int, fits: bool, most: int) -> None:
    log = Log()
    run(log, jobs, fits)
    assert log.most == most
    assert log.ended[0] == "front"
    assert log.ended[-1] == "last"
    assert len(log.ended) == 4


def test_an_error_stops_the_others_and_starts_no_more() -> None:
    over, log = threading.Event(), list[str]()

    def do(step: Step) -> None:
        log.append(step.name)
        if step.name == "left":
            raise StageFailed("left broke")
        if step.name == "right":
            assert over.wait(5)

    with pytest.raises(StageFailed, match="left broke"):
        SideBySide(do, lambda step: True, over.set, 2).run([FRONT, LEFT, RIGHT, LAST])
    assert log == ["front", "left", "right"]


def test_what_measures_waits_for_those_that_build_and_they_for_it() -> None:
    turns, spans = Turns(), dict[str, tuple[float, float]]()

    def work(name: str, turn: Callable[[], object], start_s: float, seconds: float) -> None:
        time.sleep(start_s)
        with turn():  # type: ignore[attr-defined]
            begin = time.monotonic()
            time.sleep(seconds)
            spans[name] = (begin, time.monotonic())

    asked = {
        "build": (turns.building, 0.0, 0.2),
        "beside": (turns.building, 0.02, 0.2),
        "measure": (turns.alone, 0.1, 0.1),
        "later": (turns.building, 0.15, 0.05),
    }
    threads = [threading.Thread(target=work, args=(name, *each)) for name, each in asked.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert spans["beside"][0] < spans["build"][1]
    assert spans["measure"][0] >= max(spans["build"][1], spans["beside"][1])
    assert spans["later"][0] >= spans["measure"][1]


def test_beside_others_only_what_the_free_memory_holds(tmp_path: Path) -> None:
    with (tmp_path / "weights").open("wb") as file:
        file.truncate(psutil.virtual_memory().available // side_by_side.COPIES)  # a hole: no byte is written
    assert side_by_side.room([])
    assert not side_by_side.room([Artifact(tmp_path, "null")])


# --------------------------------------------------------------------------- a run


@pytest.fixture
def walk(tmp_path: Path) -> PlanRun:
    """A run of two jobs that has a null net as its source."""
    walk = PlanRun(Store(tmp_path / "results"), Context(), jobs=2)
    walk.stage(Stage("source", "runtimes.null:read", {}, {"path": nulls.make(tmp_path / "net")["model"]}))
    return walk


def heard(walk: PlanRun) -> tuple[list[str], set[threading.Thread]]:
    """The names of stages in the order in which they will end, and the threads that tell of them."""
    ended, heard_by = list[str](), set[threading.Thread]()

    def hear(event: Event) -> None:
        heard_by.add(threading.current_thread())
        if event.kind == "ended":
            ended.append(event.stage.name)

    walk.listener = hear
    return ended, heard_by


@pytest.mark.slow
def test_outcomes_are_in_the_order_of_the_plan_whichever_ends_first(
    walk: PlanRun, technique: Callable[[str], Stage]
) -> None:
    stage = technique("import time\ntime.sleep(0.3 * len(request.inputs))\nreturn request.model")
    slow = replace(stage, name="slow", inputs={"model": "source", "other": "source"}, variants=("slow",))
    quick = replace(stage, name="quick", variants=("quick",))
    ended, heard_by = heard(walk)
    walk.stages([slow, quick])
    assert heard_by == {threading.current_thread()}
    assert ended == ["quick", "slow"]
    assert list(walk.outcomes) == ["source", "slow", "quick"]
    assert not walk.waiting


@dataclass(frozen=True)
class Asks:
    """A search that asks for two stages at once, and chooses the second."""

    stage: Stage
    both: tuple[Stage, Stage]
    name: str = "asks"
    variants: tuple[str, ...] = ("asks",)

    @property
    def inputs(self) -> Mapping[str, str]:
        return self.stage.inputs

    def bound(self) -> str:
        return "two stages"

    def estimate_s(self) -> float:
        return 1.0

    def step(self, outcomes: Outcomes) -> Sequence[Stage] | Choice:
        return Choice(self.both[1].name, "the second") if self.both[0].name in outcomes else self.both


@pytest.mark.slow
@pytest.mark.parametrize("inside", [True, False])
def test_what_a_search_asks_for_is_built_side_by_side(
    walk: PlanRun, technique: Callable[[str], Stage], inside: bool
) -> None:
    stage = technique("import time\ntime.sleep(0.5 * len(request.inputs))\nreturn request.model")
    slow = replace(stage, name="asks/slow", inputs={"model": "source", "other": "source"}, variants=("asks",))
    quick = replace(stage, name="asks/quick", variants=("asks",))
    ended, heard_by = heard(walk)
    asks = Asks(stage, (slow, quick))
    if inside:
        walk.stages([asks])
        assert walk.choices["asks"].stage == "asks/quick"
    else:
        assert walk.search(asks).stage == "asks/quick"
    assert heard_by == {threading.current_thread()}
    assert ended[:2] == ["asks/quick", "asks/slow"]
    assert [name for name in walk.outcomes if name.startswith("asks/")] == ["asks/slow", "asks/quick"]
    assert not walk.waiting


@pytest.mark.slow
def test_trainings_follow_one_another(walk: PlanRun, technique: Callable[[str], Stage]) -> None:
    stage = technique("""
import time
from edgecompress.core.model import Artifact
begin = time.time()
time.sleep(0.4)
return Artifact(request.out, "text", facts={"span": [begin, time.time()]}).write()
""")
    one = replace(stage, name="one", inputs={"model": "source", "training": "source"}, variants=("one",))
    two = replace(one, name="two", inputs={**one.inputs, "dense": "source"}, variants=("two",))
    walk.stages([one, two])
    first, second = sorted(walk.outcomes[name].facts["span"] for name in ("one", "two"))
    assert first[1] <= second[0]


@pytest.mark.slow
def test_what_everything_depends_on_ends_the_run_and_the_processes_of_the_others(
    walk: PlanRun, technique: Callable[[str], Stage]
) -> None:
    body = "import time\nif len(request.inputs) == 2:\n    raise KeyError('x')\ntime.sleep(60)"
    stage = technique(body)
    breaks = replace(stage, name="breaks", inputs={"model": "source", "other": "source"})
    holds = replace(stage, name="holds", variants=("holds",))
    begin, before = time.monotonic(), psutil.Process().children(recursive=True)  # a fork server, by other tests
    with pytest.raises(StageFailed, match=r"breaks: .*KeyError"):
        walk.stages([holds, breaks])
    assert time.monotonic() - begin < 30
    left = [child for child in psutil.Process().children(recursive=True) if child not in before]
    assert not [child for child in left if child.status() != "zombie"]


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "trains", "spins"), [(1, False, None), (2, False, "1000"), (2, True, None)])
def test_threads_of_what_works_beside_others_do_not_spin(
    walk: PlanRun,
    technique: Callable[[str], Stage],
    monkeypatch: pytest.MonkeyPatch,
    jobs: int,
    trains: bool,
    spins: str | None,
) -> None:
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    walk.jobs = jobs
    stage = technique("import os\nraise KeyError(os.environ.get('GOMP_SPINCOUNT'))")
    stage = replace(stage, inputs={**stage.inputs, "training": "source"}) if trains else stage
    with pytest.raises(StageFailed, match=f"KeyError: {spins!r}"):
        walk.stage(stage)


def test_no_job_at_all_is_refused() -> None:
    from edgecompress.pipeline.job_request import Options

    with pytest.raises(InputError, match="jobs: must be at least 1, not 0"):
        Options(jobs=0)


@pytest.mark.parametrize("given", ["0", "two", "-1"])
def test_the_environment_tells_how_many_and_no_nonsense(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(side_by_side.JOBS, "3")
    assert side_by_side.usual() == 3
    monkeypatch.setenv(side_by_side.JOBS, given)
    with pytest.raises(InputError, match=f"EDGECOMPRESS_JOBS={given}: give a number of stages, at least 1"):
        side_by_side.usual()
    monkeypatch.delenv(side_by_side.JOBS)
    assert 1 <= side_by_side.usual() <= side_by_side.MOST
