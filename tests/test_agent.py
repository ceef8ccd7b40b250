"""The agent: one process, one request, one result; what it says when things go wrong; that it dies with its parent."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import bench_inputs
import numpy as np
import psutil
import pytest

import edgecompress
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact
from edgecompress.data import tensors
from edgecompress.device import agent_client
from edgecompress.device.agent import call_cost, session, timing
from edgecompress.device.agent import measuring_round as rounds
from edgecompress.device.request import AgentRequest
from edgecompress.plugins.transports import host

pytestmark = pytest.mark.slow

PACKAGE = Path(edgecompress.__path__[0])
PROFILE = {
    "warmup_s": 0.02,
    "warmup_runs": 2,
    "warmup_tolerance": 0.02,
    "warmup_cap_s": 0.3,
    "windows": 4,
    "window_s": 0.05,
    "window_runs": 20,
    "ops_runs": 3,
}


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """An empty folder for the agent's result."""
    (tmp_path / "result").mkdir()
    return tmp_path / "result"


def request(folder: Path, mode: str, model: Artifact, items: int = 10, **more: object) -> dict[str, object]:
    """What is asked of the agent about a null net."""
    data = bench_inputs.samples(folder / "samples", items)
    return bench_inputs.asked(model, data, **{"mode": mode, "profile": PROFILE, "device": {}, **more})


def ask(asked: dict[str, object], out: Path, deadline_s: float = 60) -> dict[str, object]:
    return agent_client.ask(host.connect({}), AgentRequest.from_json(json.dumps(asked)), out, deadline_s)


@pytest.mark.parametrize("batch", [1, 4])
def test_outputs_lie_item_by_item_with_the_padding_dropped(tmp_path, out, batch):
    answer = ask(request(tmp_path, "outputs", bench_inputs.net(tmp_path / "net"), batch=batch), out)
    given, found = np.load(tmp_path / "samples/test/x.npy"), np.load(out / "test/y.npy")
    assert (answer["n"], found.shape) == (10, (10, 3))
    np.testing.assert_allclose(found, given.mean(axis=1, keepdims=True) * [1, 2, 3], rtol=1e-5)


def test_outputs_of_a_net_made_for_a_batch_are_the_same(tmp_path, out):
    answer = ask(request(tmp_path, "outputs", bench_inputs.net(tmp_path / "net", batch=4)), out)
    assert (answer["batch"], np.load(out / "test/y.npy").shape) == (4, (10, 3))


def a_round(tmp_path: Path, nets: dict[str, Artifact], **more: object) -> dict[str, object]:
    """What is asked of the agent about null nets that take turns."""
    first = next(iter(nets.values()))
    runtimes = {label: {"name": "null", "module": "edgecompress.engines.null.runtimes.null"} for label in nets}
    asked = {
        "artifact": "",
        "artifacts": {label: str(net.path) for label, net in nets.items()},
        "runtimes": runtimes,
        "pythons": dict.fromkeys(nets, sys.executable),
        **more,
    }
    return request(tmp_path, "round", first, **asked)


def test_a_session_tells_load_first_warm_windows_memory_and_environment(tmp_path, out):
    nets = {"a": bench_inputs.net(tmp_path / "a", spin_ms=1.0), "b": bench_inputs.net(tmp_path / "b", spin_ms=2.0)}
    found = ask(a_round(tmp_path, nets, threads=2), out)["sessions"]
    for label, spin_ms in (("a", 1.0), ("b", 2.0)):
        told = found[label]
        times = np.fromfile(out / label / session.LATENCIES, dtype=np.int64) / 1e6
        kept = [ms for ms in told["windows_ms"] if ms is not None] or told["rough_ms"]
        assert len(told["windows_ms"]) == len(told["rough_ms"]) == PROFILE["windows"] and min(kept) >= spin_ms
        assert told["n"] == len(times) and times.min() >= spin_ms and times.sum() / 1e3 <= told["window_s"]
        assert told["first_ms"] >= spin_ms and told["load_ms"] > 0
        assert told["warmup_s"] >= 0.02 and told["warmup_runs"] >= 2
        assert 0 < told["call_ms"] < 1.0 and told["call_reason"] == ""
        assert told["memory"]["arena_bytes"] is None and told["memory"]["arena_reason"] == "a null net plans no memory"
        assert told["environment"]["threads"] == 2 and "numpy" in told["environment"]["versions"]
        assert told["environment"]["affinity"] == psutil.Process().cpu_affinity()
        assert sorted(file.name for file in (out / label).iterdir()) == [session.LATENCIES]


def test_a_session_that_ends_costs_only_itself(tmp_path, out, monkeypatch):
    (tmp_path / "dying.py").write_text(
        "import os\nfrom edgecompress.engines.null.runtimes import null\nREQUIRES = ()\n"
        "class Dying(null.NullSession):\n    runs = 0\n    def run(self, inputs):\n        self.runs += 1\n"
        "        return super().run(inputs) if self.runs < 40 else os.abort()\n"
        "def open(artifact, threads, profile=False):\n    return Dying(null.parse(artifact.file('.null')))\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = a_round(tmp_path, {name: bench_inputs.net(tmp_path / name, spin_ms=1.0) for name in "ab"})
    asked["runtimes"]["b"] = {"name": "dying", "module": "dying"}
    found = ask(asked, out)["sessions"]
    assert found["b"].keys() == {"crashed"} and "the agent was ended by SIGABRT" in found["b"]["crashed"]
    assert found["a"]["n"] >= 20 and not (out / "b").exists()


def test_a_python_that_the_kernel_cannot_start_is_copied(tmp_path, out):
    foreign = tmp_path / "python3"  # as in an emulated userland
    foreign.write_bytes(b"\x7fELF of another machine")
    foreign.chmod(0o755)
    nets = {name: bench_inputs.net(tmp_path / name, spin_ms=1.0) for name in "ab"}
    found = ask(a_round(tmp_path, nets, pythons=dict.fromkeys(nets, str(foreign))), out)["sessions"]
    assert min(told["n"] for told in found.values()) >= PROFILE["windows"]


def test_sessions_that_do_not_fit_into_memory_together_follow_one_another(tmp_path, out, monkeypatch):
    monkeypatch.setattr(rounds, "_free_bytes", lambda: 1)
    opened = []
    real = rounds._by_turns
    monkeypatch.setattr(rounds, "_by_turns", lambda asked, group: opened.append(list(group)) or real(asked, group))
    nets = {name: bench_inputs.net(tmp_path / name) for name in "ab"}
    asked = AgentRequest.from_json(json.dumps({**a_round(tmp_path, nets), "deadline_s": 60.0}))
    assert rounds.run(asked, out)["sessions"].keys() == {"a", "b"}
    assert opened == [["a"], ["b"]]


@pytest.mark.parametrize(
    ("runtime", "says"),
    [
        (SimpleNamespace(), "its runtime has no empty model"),
        (SimpleNamespace(NO_EMPTY="it is compiled"), "it is compiled"),
        (SimpleNamespace(empty=lambda folder: 1 / 0), "the empty model: ZeroDivisionError: division by zero"),
    ],
)
def test_a_call_without_a_net_that_cannot_be_timed_has_a_reason(runtime, says):
    assert call_cost.measured(runtime, None, 1) == {"call_ms": None, "call_reason": says}


def test_a_net_that_never_settles_is_flagged_at_the_cap():
    settings = {**PROFILE, "warmup_cap_s": 0.2, "warmup_tolerance": 0.0}
    told = timing.warm_up(lambda given: time.sleep(0.001), [{}], settings)
    assert told["warm"] is False
    assert 0.2 <= told["warmup_s"] < 2


def test_warm_up_lasts_until_the_blocks_agree():
    pace = iter([0.02] * 3 + [0.01] * 3 + [0.005] * 1000)
    told = timing.warm_up(lambda given: time.sleep(next(pace)), [{}], {**PROFILE, "warmup_tolerance": 0.2})
    blocks = told["warmup_blocks_ms"]
    assert told["warm"] and abs(blocks[-1] / blocks[-2] - 1) < 0.2
    assert blocks[-1] < blocks[0] / 2


def test_every_run_is_counted_and_the_samples_take_turns():
    seen = []
    times = timing.timed(lambda given: seen.append(given["i"]), [{"i": 0}, {"i": 1}, {"i": 2}], 0.0, 7)
    assert (len(times), seen) == (7, [0, 1, 2, 0, 1, 2, 0])


def test_ops_come_from_a_session_of_their_own(tmp_path, out):
    answer = ask(request(tmp_path, "ops", bench_inputs.net(tmp_path / "net", spin_ms=1.0)), out)
    assert [op["name"] for op in answer["ops"]] == ["null"]
    assert answer["ops"][0]["ms"] >= 1.0


def test_facts_say_why_each_sensor_cannot_read(tmp_path, out):
    sensors = [{"name": n, "module": f"edgecompress.plugins.sensors.{n}"} for n in ("rapl", "power_model")]
    asked = {"mode": "facts", "sensors": sensors, "device": {"power": None}, "root": str(tmp_path)}
    answer = ask(asked, out)
    assert "no RAPL" in answer["sensors"]["rapl"] and "[power]" in answer["sensors"]["power_model"]


def test_threads_reach_the_libraries_before_they_are_loaded(tmp_path, out, monkeypatch):
    (tmp_path / "telling.py").write_text("import os\nraise ValueError('OMP=' + os.environ['OMP_NUM_THREADS'])")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = request(tmp_path, "ops", bench_inputs.net(tmp_path / "net"), threads=3)
    with pytest.raises(StageFailed, match="ValueError: OMP=3"):
        ask({**asked, "runtime": {"name": "telling", "module": "telling"}}, out)


# --------------------------------------------------------------------------- when things go wrong


def test_a_damaged_model_is_the_users_fault(tmp_path, out):
    model = bench_inputs.net(tmp_path / "net")
    (model.path / "model.null").write_text("{")
    with pytest.raises(InputError, match="not a null net"):
        ask(request(tmp_path, "ops", model), out)


@pytest.mark.parametrize(
    ("batch", "items", "says"),
    [
        (4, 4, "its batch is fixed to 4, but batch 1 was asked for; use --batch 4"),
        ("", 0, "split 'test' is empty"),
    ],
)
def test_another_batch_than_the_models_and_an_empty_split_are_refused(tmp_path, out, batch, items, says):
    net = bench_inputs.net(tmp_path / "net", batch=batch) if batch else bench_inputs.net(tmp_path / "net")
    with pytest.raises(InputError, match=says):
        ask(request(tmp_path, "ops", net, items=items), out)


def test_an_unknown_mode_is_refused(tmp_path, out):
    with pytest.raises(InputError, match="no mode 'sing'; known: outputs"):
        ask({"mode": "sing"}, out)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os; os.abort()", "the agent was ended by SIGABRT"),
        ("import os; print('nothing left'); os._exit(3)", "ended with code 3 and no result"),
        ("import time; time.sleep(60)", "gave no answer within 2 s"),
    ],
)
def test_a_runtime_that_takes_the_process_down_is_named(tmp_path, out, monkeypatch, code, says):
    (tmp_path / "dying.py").write_text(f"def open(artifact, threads, profile=False):\n    {code}")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    asked = request(tmp_path, "ops", bench_inputs.net(tmp_path / "net"))
    with pytest.raises(StageFailed, match=says):
        ask({**asked, "runtime": {"name": "dying", "module": "dying"}}, out, 2 if "sleep" in code else 60)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("{", "not JSON"),
        ('{"n": NaN}', "not JSON: NaN is not a finite number"),
        ('{"n": 1e999}', "not JSON: 1e999 is not a finite number"),
        ('{"n": -1e999}', "not JSON: -1e999 is not a finite number"),
        ('{"n": 1' + "0" * 400 + "}", "not JSON: 10000.* is larger than any count"),
        ('["x"]', "which is not a JSON object"),
        ('{"error": "gone \x1b[2J\\n wild", "class": "NoPath"}', r"gone  \[2J  wild"),
        ('{"error": "gone"}', "gone"),
    ],
)
def test_a_device_that_answers_nonsense_is_one_line(tmp_path, answer, says):
    (tmp_path / "result.json").write_text(answer.replace("\x1b", "\\u001b"))
    with pytest.raises(StageFailed, match=says) as raised:
        agent_client._answer(tmp_path / "result.json", "it died")
    assert str(raised.value).isprintable()


def test_the_last_words_of_an_agent_cannot_steer_a_terminal():
    assert agent_client._last_words("first\nlast \x1b[2Jwords\n \x1b\n") == ": last  [2Jwords"


def test_an_output_whose_name_is_a_path_stays_inside(tmp_path, out):
    model = bench_inputs.net(tmp_path / "net")
    text = (model.path / "model.null").read_text().replace('"y"', '"../../y"')
    (model.path / "model.null").write_text(text)
    card = json.loads((model.path / "artifact.json").read_text())
    card["outputs"][0]["name"] = "../../y"
    (model.path / "artifact.json").write_text(json.dumps(card))
    ask(request(tmp_path, "outputs", model), out)
    (file,) = out.rglob("*.npy")
    assert file.name == "..%2F..%2Fy.npy"
    assert tensors.name_of(file) == "../../y"


def test_the_agent_dies_with_its_parent(tmp_path, out):
    model = bench_inputs.net(tmp_path / "net", sleep_ms=100.0)
    asked = a_round(tmp_path, {"a": model, "b": model}, profile={**PROFILE, "window_s": 60})
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom edgecompress.device import agent_client\n"
        "from edgecompress.device.request import AgentRequest\n"
        "from edgecompress.plugins.transports import host\n"
        f"agent_client.ask(host.connect({{}}), AgentRequest.from_json(sys.argv[1]), Path({str(out)!r}), 60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, json.dumps(asked)])
    end = time.monotonic() + 20
    while len(children := psutil.Process(parent.pid).children(recursive=True)) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(1.0)  # it is in the midst of its work
    assert len(children) == 3 and all(child.is_running() for child in children)
    parent.kill()
    parent.wait()
    _, alive = psutil.wait_procs(children, timeout=2)
    assert [p for p in alive if p.status() != psutil.STATUS_ZOMBIE] == []
