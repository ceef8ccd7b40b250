"""The engine: hits, reasons, workers that crash, hang, lie, leave orphans or reach for the network."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import nulls
import prove
import psutil
import pytest

from edgecompress.core import registry
from edgecompress.core.errors import DiskFull, EdgeError, InputError, StageFailed
from edgecompress.core.model import Choice, Context, Outcome, Stage
from edgecompress.pipeline import fork_server
from edgecompress.pipeline.runner import Event, PlanRun
from edgecompress.pipeline.store import Store

Made = Callable[..., PlanRun]
KEEP = "import shutil\nshutil.copytree(request.model.path, request.out, dirs_exist_ok=True)\n"
DONE = KEEP + 'return Artifact(request.out, "null", request.model.inputs, request.model.outputs).write()'


@pytest.fixture(autouse=True, params=prove.some(["forked", "started alone"], 1))
def worker(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each worker is started in either way."""
    monkeypatch.setattr(fork_server, "serves", lambda stage, ahead: request.param == "forked")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    asked = nulls.make(tmp_path / "net")

    def make(**named: object) -> PlanRun:
        walk = PlanRun(Store(tmp_path / "results"), Context(), **named)  # type: ignore[arg-type]
        walk.stage(Stage("source", "runtimes.null:read", {}, {"path": asked["model"]}))
        return walk

    return make


def test_the_second_run_is_a_hit_and_starts_no_worker(made: Made) -> None:
    first, heard = made(), []
    second = made(listener=heard.append)
    assert first.outcomes["source"].why_run == "first run"
    assert second.outcomes["source"].why_run == "hit"
    assert [e.kind for e in heard] == ["ended"]
    assert first.outcomes["source"].artifact == second.outcomes["source"].artifact


def test_a_changed_option_is_the_reason_for_a_re_run(made: Made, tmp_path: Path) -> None:
    other = nulls.make(tmp_path / "other", scale=2.0)["model"]
    walk = made()
    outcome = walk.stage(Stage("source", "runtimes.null:read", {}, {"path": other}))
    assert outcome.why_run.startswith("changed: path")


def test_a_plug_in_that_works_gives_its_artifact_and_its_log(made: Made, technique: Callable[[str], Stage]) -> None:
    walk = made()
    outcome = walk.stage(technique('print("hello from the stage")\n' + DONE))
    assert outcome.status == "ok"
    assert "hello from the stage" in Path(outcome.log).read_text()


def test_changed_code_of_a_plug_in_is_the_reason_for_a_re_run(made: Made, technique: Callable[[str], Stage]) -> None:
    walk = made()
    stage = technique(DONE)
    walk.stage(stage)
    file = Path(registry.load("techniques", "probe").__file__ or "")
    file.write_text(file.read_text() + "# changed\n")
    assert walk.stage(stage).why_run == "changed: code of plugin_probe"


def test_what_a_stage_keeps_outlives_a_kill_and_goes_when_it_has_its_result(
    made: Made, technique: Callable[[str], Stage]
) -> None:
    body = (
        "import os, signal\nkept = request.keep / 'checkpoint'\nif not kept.exists():\n"
        "    (request.keep / 'log').mkdir()\n    (request.keep / 'log' / 'events').write_text('a')\n"
        "    kept.write_text('half')\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "print('resumed from', kept.read_text())\n"
    )
    walk = made()
    stage = technique(body + DONE)
    with pytest.raises(StageFailed, match="SIGKILL"):
        walk.stage(stage)
    outcome = walk.stage(stage)
    assert "resumed from half" in Path(outcome.log).read_text()
    assert [p.name for p in (walk.store.root / "kept").rglob("*") if p.is_file()] == ["events"]
    root = walk.store.root
    del walk
    Store(root).collect(0.0)
    assert not any((root / "kept").iterdir())


@pytest.mark.parametrize(
    ("body", "kind", "message"),
    [
        (
            "import os\nos.abort()",
            StageFailed,
            r"probe: its process was ended by SIGABRT \(a crash in native code; log: ",
        ),
        ("import os\nos._exit(4)", StageFailed, r"probe: its process ended with code 4 and no answer \(log: "),
        ("raise KeyError('x')", StageFailed, r"probe: unexpected error: KeyError: 'x' \(log: "),
        ("return None", StageFailed, "must return an artifact in its folder, but returned NoneType"),
        ("from edgecompress.core.errors import InputError\nraise InputError('no')", InputError, r"^no \(log: "),
        (
            "import errno\nraise OSError(errno.ENOSPC, 'full', '/x')",
            DiskFull,
            "probe: /x: no space left on the device; free some room, run `edgecompress cache gc`, or",
        ),
    ],
)
def test_however_a_worker_ends_there_is_one_line_with_its_log(
    made: Made, technique: Callable[[str], Stage], body: str, kind: type[EdgeError], message: str
) -> None:
    walk = made()
    with pytest.raises(kind, match=message) as error:
        walk.stage(technique(body))
    assert "\n" not in str(error.value)
    assert type(error.value) is kind
    assert walk.store.find({}) is None
    assert [e.receipt["stage"] for e in walk.store.entries()] == ["source"]


def test_a_failure_of_a_variant_costs_the_variant_not_the_run(made: Made, technique: Callable[[str], Stage]) -> None:
    walk = made()
    stage = technique("import os\nos.abort()")
    after = Stage("after", "techniques.probe:apply", {"model": "probe"}, variants=("a",))
    heard: list[Event] = []
    walk.listener = heard.append
    walk.stages([Stage(stage.name, stage.call, stage.inputs, variants=("a",)), after])
    assert [walk.outcomes[n].status for n in ("source", "probe", "after")] == ["ok", "failed", "failed"]
    assert walk.outcomes["after"].reason == walk.outcomes["probe"].reason
    assert [e.outcome.stage for e in heard if e.outcome] == ["probe"]  # what fell with it is not told twice


@pytest.mark.slow
def test_a_worker_that_hangs_is_stopped_at_its_deadline_with_all_its_children(
    made: Made, technique: Callable[[str], Stage], tmp_path: Path
) -> None:
    stage = technique(
        "import subprocess, time\nprint(subprocess.Popen(['sleep', '300']).pid, flush=True)\ntime.sleep(300)"
    )
    begin = time.monotonic()
    with pytest.raises(StageFailed, match="probe: no end after 2 s, stopped"):
        made().stage(Stage(stage.name, stage.call, stage.inputs, timeout_s=2))
    assert time.monotonic() - begin < 10
    time.sleep(0.2)
    (log,) = (tmp_path / "results" / "logs").glob("*-probe.log")
    pid = int(log.read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_code_that_reads_stdin_finds_it_empty(made: Made, technique: Callable[[str], Stage]) -> None:
    outcome = made().stage(technique("import sys\nprint('read', repr(sys.stdin.read()))\n" + DONE))
    assert "read ''" in Path(outcome.log).read_text()


def test_offline_refuses_a_connection_and_names_its_goal(made: Made, technique: Callable[[str], Stage]) -> None:
    body = "import socket\nsocket.create_connection(('127.0.0.1', 9), timeout=1)"
    with pytest.raises(InputError, match=r"--offline: a stage tried to connect to 127\.0\.0\.1"):
        made(offline=True).stage(technique(body))


def test_progress_reaches_the_listener_with_the_time_left(made: Made, technique: Callable[[str], Stage]) -> None:
    heard: list[Event] = []
    made(listener=heard.append).stage(technique("request.progress(0.5, 'half')\n" + DONE))
    half = [e for e in heard if e.kind == "progress"]
    assert [(e.fraction, e.what) for e in half] == [(0.5, "half")]
    assert [(e.number, e.of) for e in half] == [(2, 2)] and half[0].left_s > 0


def test_the_time_left_counts_what_a_search_may_still_ask_for(made: Made, technique: Callable[[str], Stage]) -> None:
    class Twice:
        name = "twice"

        def bound(self) -> str:
            return "two stages"

        def estimate_s(self) -> float:
            return 100.0

        def step(self, outcomes: Mapping[str, Outcome]) -> list[Stage] | Choice:
            asked = [Stage(f"try-{n}", stage.call, stage.inputs, estimate_s=10.0) for n in (1, 2)]
            return next(([s] for s in asked if s.name not in outcomes), Choice("try-2", "the last"))

    heard: list[Event] = []
    stage = technique(DONE)
    walk = made(listener=heard.append)
    heard.clear()
    assert walk.search(Twice()).stage == "try-2"
    left = [e.left_s for e in heard if e.kind == "started"]
    assert left[0] > 80
    assert heard[-1].left_s < left[0]


def test_the_time_left_counts_the_stages_that_wait_and_what_comes_after_a_search(made: Made, tmp_path: Path) -> None:
    """Every stage here is found: the same call with the same options as the one that `made` ran."""

    def stage(name: str, estimate_s: float) -> Stage:
        return Stage(
            name, "runtimes.null:read", {}, {"path": str(tmp_path / "net" / "net.null")}, estimate_s=estimate_s
        )

    class Once:
        name, inputs, variants = "chosen", dict[str, str](), ()

        @property
        def stage(self) -> Stage:
            return stage(self.name, 40.0)

        def bound(self) -> str:
            return "one stage"

        def estimate_s(self) -> float:
            return 40.0

        def step(self, outcomes: Mapping[str, Outcome]) -> list[Stage] | Choice:
            return Choice("try", "the only one") if "try" in outcomes else [stage("try", 15.0)]

    heard: list[Event] = []
    walk = made(listener=heard.append)
    heard.clear()
    walk.ahead_s = 1000.0
    walk.stages([stage("a", 100.0), stage("b", 200.0), Once(), stage("c", 300.0)])  # type: ignore[list-item]
    assert [e.outcome.why_run for e in heard if e.outcome] == ["hit"] * 5
    left = {e.outcome.stage: e.left_s for e in heard if e.outcome}
    foretold = {"a": 1540.0, "b": 1340.0, "try": 1325.0, "chosen": 1300.0, "c": 1000.0}
    assert left == pytest.approx(foretold)
    del walk.outcomes["try"]
    Once.name = "another, of which nothing is known"
    walk.search(Once())  # type: ignore[arg-type]
    assert walk.ahead_s == 1000.0


def test_a_measurement_ages_and_is_renewed_on_demand(made: Made, technique: Callable[[str], Stage]) -> None:
    stage = technique(DONE)
    aging = Stage(stage.name, stage.call, stage.inputs, max_age_s=3600)
    assert made().stage(aging).why_run == "first run"
    assert made().stage(aging).why_run == "hit"
    renewed = made(remeasure=True)
    assert renewed.stage(aging).why_run == "--remeasure"
    assert renewed.stage(aging).why_run == "hit"
    old = Stage(stage.name, stage.call, stage.inputs, max_age_s=-1)
    assert "days ago, older than" in made().stage(old).why_run


def test_a_lost_result_is_stored_with_its_reason(made: Made, technique: Callable[[str], Stage]) -> None:
    body = KEEP + 'return Artifact(request.out, "null", facts={"lost": "too wrong"}).write()'
    stage = technique(body)
    outcomes: list[Outcome] = [made().stage(stage), made().stage(stage)]
    assert [(o.status, o.reason) for o in outcomes] == [("lost", "too wrong")] * 2
    assert outcomes[1].why_run == "hit"
