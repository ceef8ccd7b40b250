"""The measuring stages: turns, crashes that cost one variant, sensors in their order, intervals that are honest."""

from __future__ import annotations

import array
import dataclasses
import json
import math
import random
import statistics
import types
from pathlib import Path
from typing import Any

import bench_inputs
import pytest

from edgecompress.core import registry, session_stats, stats
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Measured
from edgecompress.device import agent_client
from edgecompress.stages import energy, latency, operators

pytestmark = pytest.mark.slow


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a runtime that takes its process down."""
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "dying.py").write_text("import os\ndef open(*given):\n    os.abort()")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "modules"))
    real = registry.load
    stub = types.SimpleNamespace(__name__="dying")
    monkeypatch.setattr(registry, "load", lambda kind, name: stub if name == "dying" else real(kind, name))
    return "dying"


def traced(folder: Path, begin: float, watts: float) -> dict[str, Any]:
    """Device options: a trace of constant power from `begin` on, for a minute."""
    rows = "".join(f"{begin + i / 100},{watts}\n" for i in range(6000))
    (folder / "trace.csv").write_text("t_s,power_w\n" + rows)
    return {"replay": {"file": str(folder / "trace.csv")}}


def by_metric(artifact: Artifact, variant: str) -> dict[str, dict[str, Any]]:
    return {m["metric"]: m for m in artifact.facts["variants"][variant]}


# --------------------------------------------------------------------------- rounds


def test_a_round_measures_each_variant_in_the_order_given(tmp_path):
    variants = {"a": bench_inputs.net(tmp_path / "a", spin_ms=1.0), "b": bench_inputs.net(tmp_path / "b", spin_ms=3.0)}
    said = []
    asked = bench_inputs.request(tmp_path, variants, order=["b", "a"])
    asked = dataclasses.replace(asked, progress=lambda fraction, what: said.append((fraction, what)))
    result = latency.round(asked)
    assert said == [(0.0, "measuring b, a by turns")]
    a, b = (result.facts["variants"][v] for v in "ab")
    assert 1.0 <= min(a["rough_ms"]) < min(b["rough_ms"]) and min(b["rough_ms"]) >= 3.0
    assert a["noisy"] or (a["min_ms"] <= a["median_ms"] <= a["max_ms"] and a["n"] >= 10)
    assert a["memory"]["artifact_bytes"] == variants["a"].size_bytes
    assert Artifact.read(result.path).facts == json.loads(json.dumps(result.facts))


def test_a_round_keeps_the_raw_latencies_that_its_numbers_come_from(tmp_path):
    asked = bench_inputs.request(tmp_path, {"a": bench_inputs.net(tmp_path / "a")})
    told = latency.round(asked).facts["variants"]["a"]
    raw = json.loads((asked.out / "a.json").read_text())
    assert len(raw["latencies_ms"]) == told["n"] and raw["every"] == 1
    assert told["noisy"] or statistics.median(raw["latencies_ms"]) == told["median_ms"]
    assert sorted(p.name for p in asked.out.iterdir()) == ["a.json", "artifact.json"]


def test_of_very_many_latencies_every_kth_is_kept_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(latency, "KEPT", 100)
    latency._keep(tmp_path / "a.json", list(range(250)), {})
    raw = json.loads((tmp_path / "a.json").read_text())
    assert raw["every"] == 3 and raw["latencies_ms"][:3] == [0, 3, 6]


def test_a_device_that_tells_of_a_run_of_less_than_no_time_is_not_believed(tmp_path):
    (file := tmp_path / "latencies.ns").write_bytes(array.array("q", [5, -30, 7]).tobytes())
    with pytest.raises(StageFailed, match="the device answered a run of -30 ns"):
        latency._latencies_ms(file)


def test_percentiles_only_where_the_runs_hold_them():
    few, many = session_stats.in_numbers([1.0] * 58), session_stats.in_numbers([1.0] * 299)
    assert (few["p90_ms"], few["p95_ms"], few["p99_ms"]) == (1.0, None, None)
    assert many["p99_ms"] == 1.0


QUIET = {"warm": True, "outliers": 0, "preempted": 1, "n": 100, "warmup_s": 3.0, "drift": None, "window_s": 10.0}
QUIET |= {"noisy": "", "repeated": 0, "stolen_s": None, "others_s": None}


def test_what_disturbed_a_session_is_flagged():
    assert latency._flags(QUIET, QUIET) == []
    loud = {**QUIET, "warm": False, "outliers": 4, "preempted": 2, "repeated": 3}
    assert latency._flags(loud, loud) == [
        "not warm after 3 s",
        "disturbed: 3 windows were repeated",
        "outliers: 4 of 100",
        "preempted: 2 in 100 runs",
    ]
    crowded = {**QUIET, "drift": -0.074, "stolen_s": 0.4, "others_s": 9.0}
    assert latency._flags(crowded, crowded) == [
        "drifting: −7% over the window",
        "stolen: the hypervisor took 0.4 s of processor in 10 s",
        "not alone: other processes kept 0.9 processors busy",
    ]
    assert latency._flags({**QUIET, "stolen_s": 0.1, "others_s": 2.0}, QUIET) == []
    assert latency._flags({**crowded, "noisy": "it stood still"}, crowded) == ["too noisy: it stood still"]


def test_a_session_that_is_too_noisy_has_no_statistics(tmp_path, monkeypatch):
    real = agent_client.ask

    def disturbed(*given):
        answer = real(*given)
        answer["sessions"]["a"] |= {"noisy": "other work held its processors for 50% of the time"}
        return answer

    monkeypatch.setattr(agent_client, "ask", disturbed)
    told = latency.round(bench_inputs.request(tmp_path, {"a": bench_inputs.net(tmp_path / "a")})).facts["variants"]["a"]
    assert all(told[key] is None for key in session_stats.unknown())
    assert told["flags"][-1].startswith("too noisy: other work") and told["rough_ms"]


def test_an_agent_that_dies_costs_its_variant_only(tmp_path, dying):
    variants = {"good": bench_inputs.net(tmp_path / "good"), "bad": bench_inputs.net(tmp_path / "bad")}
    asked = bench_inputs.request(tmp_path, variants, runtimes={"good": "null", "bad": dying})
    found = latency.round(asked).facts["variants"]
    assert found["bad"].keys() == {"crashed"} and "the agent was ended by SIGABRT" in found["bad"]["crashed"]
    assert found["good"]["n"] > 0


def test_a_round_in_which_all_die_fails(tmp_path, dying):
    asked = bench_inputs.request(tmp_path, {"bad": bench_inputs.net(tmp_path / "bad")}, runtimes={"bad": dying})
    with pytest.raises(StageFailed, match="bad crashed: the agent was ended by SIGABRT"):
        latency.round(asked)


def test_a_round_carries_its_environment(tmp_path):
    asked = bench_inputs.request(tmp_path, {"a": bench_inputs.net(tmp_path / "a")})
    told = latency.round(asked).facts["environment"]
    assert told["threads"] == 1 and told["runtimes"]["a"]["runtime"] == "null"
    assert {"cpu", "kernel", "os", "governor", "virtual", "now"} <= told.keys()
    assert told["now"]["before"]["loadavg"] and told["now"]["after"]["loadavg"]


# --------------------------------------------------------------------------- operators


def test_operators_add_up_and_a_crash_is_a_reason(tmp_path, dying):
    variants = {"good": bench_inputs.net(tmp_path / "good", spin_ms=1.0), "bad": bench_inputs.net(tmp_path / "bad")}
    asked = bench_inputs.request(tmp_path, variants, runtimes={"good": "null", "bad": dying})
    found = operators.ops(asked).facts["variants"]
    assert found["good"]["total_ms"] == pytest.approx(sum(op["ms"] for op in found["good"]["ops"]))
    assert found["good"]["total_ms"] >= 1.0
    assert found["bad"]["total_ms"] is None and "SIGABRT" in found["bad"]["why"]


def test_a_slow_variant_runs_fewer_times_in_its_per_operator_pass(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECOMPRESS_NULL_LOG", str(tmp_path / "runs"))
    latency_ms = {"slow": 1e3 * operators.OPS_S / 2, "fast": 1.0}
    variants = {name: bench_inputs.net(tmp_path / name) for name in latency_ms}
    for name, net in variants.items():
        (tmp_path / "runs").write_text("")
        asked = bench_inputs.request(tmp_path / f"{name}-asked", {name: net}, latency_ms=latency_ms)
        operators.ops(asked)
        runs = len((tmp_path / "runs").read_text().splitlines())
        assert runs == (3 if name == "slow" else asked.options["profile"]["ops_runs"])


# --------------------------------------------------------------------------- energy: which sensor


def test_the_first_sensor_that_reads_is_used_and_the_others_say_why_not(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGECOMPRESS_ROOT", str(tmp_path / "nowhere"))
    device = {
        "sensors": ("rapl", "replay", "power_model"),
        "power": dataclasses.asdict(bench_inputs.POWER),
        "options": traced(tmp_path, 0.0, 3.0),
    }
    asked = bench_inputs.request(tmp_path, {"a": bench_inputs.net(tmp_path / "a", spin_ms=2.0)}, device)
    found = energy.energy(asked)
    assert found.facts["sensor"] == "replay"
    assert found.facts["why_not"].keys() == {"rapl"} and "no RAPL" in found.facts["why_not"]["rapl"]
    gross = by_metric(found, "a")["energy_gross"]
    assert (gross["status"], gross["scope"], gross["n"]) == ("replayed", "board", 2)
    windows = json.loads((asked.out / "a.json").read_text())["windows"]
    each_ms = [1e3 * w["seconds"] / w["n"] for w in windows]  # 2 ms and what surrounds them: the machine may be busy
    assert min(each_ms) >= 2.0
    assert gross["value"] == pytest.approx(3.0 * statistics.median(each_ms), rel=0.05)
    assert by_metric(found, "a")["power"]["value"] == pytest.approx(3.0)


def test_power_that_is_that_of_idling_leaves_no_net(tmp_path):
    device = {"sensors": ("replay",), "options": traced(tmp_path, 0.0, 3.0)}
    asked = bench_inputs.request(tmp_path, {"a": bench_inputs.net(tmp_path / "a", spin_ms=2.0)}, device)
    net = by_metric(energy.energy(asked), "a")["energy_net"]
    assert (net["value"], net["status"]) == (None, "unavailable")
    assert "not distinguishable from zero" in net["reason"]


def test_a_sensor_that_fails_in_every_window_passes_on_to_the_next(tmp_path):
    (tmp_path / "short.csv").write_text("t_s,power_w\n0,1\n0.01,1\n")  # over before the first window is
    device = {
        "sensors": ("replay", "power_model"),
        "power": dataclasses.asdict(bench_inputs.POWER),
        "options": {"replay": {"file": str(tmp_path / "short.csv")}},
    }
    variants = {"a": bench_inputs.net(tmp_path / "a")}
    found = energy.energy(bench_inputs.request(tmp_path, variants, device, latency_ms={"a": 10.0}))
    assert found.facts["sensor"] == "power_model"
    assert "no samples cover" in found.facts["why_not"]["replay"]


def test_the_power_model_runs_no_window_and_keeps_its_band(tmp_path, monkeypatch):
    monkeypatch.setattr(agent_client, "ask", lambda *given: pytest.fail("an estimate needs no agent"))
    device = {"sensors": ("power_model",), "power": dataclasses.asdict(bench_inputs.POWER), "cores": 4}
    variants = {"a": bench_inputs.net(tmp_path / "a"), "b": bench_inputs.net(tmp_path / "b")}
    found = energy.energy(bench_inputs.request(tmp_path, variants, device, latency_ms={"a": 10.0}))
    numbers = by_metric(found, "a")
    gross, net = numbers["energy_gross"], numbers["energy_net"]
    assert gross["value"] == pytest.approx(55)  # (3 * 0.5 + 4) W * 10 ms
    assert (gross["low"], gross["high"]) == (pytest.approx(55 * 0.75), pytest.approx(55 * 1.25))
    assert (gross["status"], gross["scope"]) == ("estimated", "package") and "a data sheet" in gross["source"]
    assert net["value"] == pytest.approx(35)  # less 4 * 0.5 W
    assert (net["low"], net["high"]) == (pytest.approx(41.25 - 25), pytest.approx(68.75 - 15))
    assert numbers["inferences_per_joule"]["value"] == pytest.approx(1 / 0.055)
    assert numbers["power"]["value"] == pytest.approx(5.5)
    assert by_metric(found, "b")["energy_gross"]["reason"].startswith("no measured latency")


def test_an_estimate_whose_band_hides_the_net_refuses_it():
    gross = Measured("energy", 1.0, "J", "estimated", 1, 0.5, 1.5, "m", "package")
    idle = dataclasses.replace(gross, value=0.5, low=0.2, high=0.6)
    net = energy.estimate(gross, idle, 1.0)[1]
    assert net.value is None and "wider than" in net.reason


def test_without_any_sensor_each_number_says_why(tmp_path):
    device = {"sensors": ("power_model",), "power": None}
    found = energy.energy(bench_inputs.request(tmp_path, {"a": bench_inputs.net(tmp_path / "a")}, device))
    assert found.facts["sensor"] == ""
    for number in by_metric(found, "a").values():
        assert number["value"] is None and "[power]" in number["reason"]


def test_a_variant_that_dies_under_the_sensor_is_unavailable_and_the_other_measured(tmp_path, dying):
    device = {"sensors": ("replay",), "options": traced(tmp_path, 0.0, 3.0)}
    variants = {"bad": bench_inputs.net(tmp_path / "bad"), "good": bench_inputs.net(tmp_path / "good")}
    asked = bench_inputs.request(tmp_path, variants, device, runtimes={"good": "null", "bad": dying})
    found = energy.energy(asked)
    assert "crashed: the agent was ended by SIGABRT" in by_metric(found, "bad")["energy_gross"]["reason"]
    assert by_metric(found, "good")["energy_gross"]["value"] > 0


# --------------------------------------------------------------------------- energy: numbers


def window(joules: float, seconds: float, n: int, **more: Any) -> dict[str, Any]:
    energy = Measured("energy", joules, "J", "measured", 5000, source="RAPL package-0", scope="package")
    return {"n": n, "seconds": seconds, "energy": {**dataclasses.asdict(energy), **more}}


def told(windows: list[dict[str, Any]], idle: list[dict[str, Any]]) -> dict[str, Measured]:
    return {m.metric: m for m in energy.per_inference({"windows": windows, "idle": idle})}


IDLE = [window(20.0, 10.0, 0), window(22.0, 10.0, 0)]  # 2.1 W on average, and drifting


def test_gross_and_net_per_inference_with_students_interval():
    windows = [window(j, 10.0, 1000) for j in (100.0, 101.0, 99.0, 100.0, 100.0)]
    numbers = told(windows, IDLE)
    gross, net = numbers["energy_gross"], numbers["energy_net"]
    assert gross.value == pytest.approx(100.0) and gross.unit == "mJ" and gross.n == 5
    alike = (1 + 2 * stats.CORRELATED * 4 / 5) / (1 - 2 * stats.CORRELATED / 5)  # neighbouring windows may be
    half = stats.student_t(4) * math.sqrt(0.5 / 5 * alike)
    assert (gross.low, gross.high) == (pytest.approx(100 - half), pytest.approx(100 + half))
    assert net.value == pytest.approx(100 - 2.1 * 10)
    assert net.high - net.value > half  # the idle's drift is in it
    sigma = math.sqrt(0.5 / 5 * alike + statistics.variance([2.0, 2.2]) / 2 * 10**2)
    assert net.high - net.value == pytest.approx(
        stats.student_t(1) * sigma
    )  # two idle windows decide it: one degree of freedom
    assert numbers["inferences_per_joule"].value == pytest.approx(10.0)
    assert numbers["power"].value == pytest.approx(10.0)


def test_inferences_per_joule_is_that_of_one_window():
    windows = [window(100.0, 10.0, 1000), window(50.0, 5.0, 1000), window(100.0, 10.0, 100)]
    assert told(windows, IDLE)["inferences_per_joule"].value == pytest.approx(10.0)  # of 10, 20 and 1


def test_net_within_three_sigma_of_nothing_is_refused():
    windows = [window(j, 10.0, 1000) for j in (21.0, 25.0, 18.0)]
    net = told(windows, IDLE)["energy_net"]
    assert net.value is None and "not distinguishable from zero" in net.reason and net.scope == "package"


def test_one_window_has_no_interval_but_its_own_error_bound():
    numbers = told([window(100.0, 10.0, 1000)], IDLE)
    assert (numbers["energy_gross"].low, numbers["energy_gross"].high) == (None, None)
    assert numbers["energy_net"].value == pytest.approx(79.0) and numbers["energy_net"].low is None
    short = told([window(100.0, 10.0, 1000, low=90.0, high=110.0, reason="window of 10 sensor periods")], IDLE)
    assert (short["energy_gross"].low, short["energy_gross"].high) == (pytest.approx(90), pytest.approx(110))
    assert short["inferences_per_joule"].low == pytest.approx(1000 / 110)
    assert short["energy_gross"].reason == "window of 10 sensor periods"


def test_windows_of_few_sensor_periods_keep_their_error_bound_however_alike_they_are():
    alike = [window(100.0, 10.0, 1000, low=90.0, high=110.0, reason="window of 10 sensor periods")] * 5
    numbers = told(alike, IDLE)
    assert (numbers["energy_gross"].low, numbers["energy_gross"].high) == (pytest.approx(90), pytest.approx(110))
    net = numbers["energy_net"]
    assert net.low < net.value - 10 and net.value + 10 < net.high
    one = told(alike[:1], IDLE)["energy_net"]
    assert (one.low, one.high) == (pytest.approx(69), pytest.approx(89))
    hidden = told([window(25.0, 10.0, 1000, low=15.0, high=35.0)] * 5, [window(20.0, 10.0, 0)] * 2)["energy_net"]
    assert hidden.value is None and "off by 10 at most" in hidden.reason


def test_an_energy_whose_error_bound_reaches_nothing_is_none():
    short = window(10.0, 1.0, 100, low=-1.0, high=21.0, reason="window of 1 sensor periods")
    for number in told([short] * 2, IDLE).values():
        assert number.value is None
    assert "as large as the energy itself" in told([short], IDLE)["energy_gross"].reason


def test_students_interval_covers_the_mean_at_least_as_often_as_it_says():
    draw, hits = random.Random(2), 0
    for _ in range(2000):
        low, high = energy._spread([draw.gauss(5, 1) for _ in range(5)])
        hits += low <= 5 <= high
    assert 0.95 <= hits / 2000 < 0.985


def test_a_window_without_energy_or_with_a_gap_gives_no_number():
    assert told([window(0.0, 10.0, 1000)], IDLE)["energy_gross"].reason == "a window with no energy at all"
    gap = window(None, 10.0, 1000, status="unavailable", reason="a gap of 2 s")  # type: ignore[arg-type]
    assert {m.reason for m in told([gap], IDLE).values()} == {"a gap of 2 s"}
    assert {m.value for m in told([], IDLE).values()} == {None}
