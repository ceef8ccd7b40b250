"""Calibration: a law of power recovered from a fake RAPL tree that real inferences drive, an error that is honest, and
a sensor that estimates by the file, within what was calibrated and nowhere else."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import statistics
import struct
import threading
import time
from pathlib import Path
from typing import Any

import bench_inputs
import numpy as np
import plugins
import pytest

from edgecompress.cli import main
from edgecompress.commands import energy_calibrate
from edgecompress.commands.energy_calibrate import MeasuredNet
from edgecompress.core import config, registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.formats import op_counts
from edgecompress.plugins.sensors import calibrated
from edgecompress.stages import energy

LAW = {"idle_w": 1.5, "busy_w": 4.0, "pj_per_byte": 400.0, "pj_per_mac": {"float32": 150.0, "int8": 40.0}}
CLASS = {"fingerprint": {"cpu": "Cortex-A76", "cores": 4, "machine": "aarch64"}, "cores": 4}

# --------------------------------------------------------------------------- the fit


def rows(noise: float = 0.0, seed: int = 0, law: dict[str, Any] = LAW) -> list[MeasuredNet]:
    """Rates as a small processor has them, energies by a law, each off by a factor of its own."""
    draw = random.Random(seed)
    found = []
    for micro in energy_calibrate.MICROS:
        dtype = "int8" if micro.family.endswith("int8") else "float32"
        heavy = micro.family.startswith(("conv", "pointwise"))
        rate = {"add": 0.0}.get(micro.family, draw.uniform(5e9, 60e9) if heavy else draw.uniform(0.5e9, 6e9))
        seconds, moved = draw.uniform(1e-5, 1e-2), draw.uniform(0.2e9, 2e9) if heavy else draw.uniform(2e9, 20e9)
        row = MeasuredNet(micro.name, micro.family, seconds, {dtype: rate * seconds}, moved * seconds, 1.0, "package")
        joules = energy_calibrate.predicted(law, row) * math.exp(draw.gauss(0, noise))
        found.append(dataclasses.replace(row, joules=joules))
    return found


def test_a_law_without_noise_is_recovered_and_its_held_out_error_is_none() -> None:
    found = energy_calibrate.fitted(rows(), LAW["idle_w"])
    assert flat(found["coefficients"]) == pytest.approx(flat(LAW), rel=1e-6)
    assert found["error"]["rms"] < 1e-9 and found["error"]["folds"] == 5 and found["error"]["nets"] == 30


def flat(table: dict[str, Any]) -> dict[str, float]:
    return {key: value for key, value in table.items() if key != "pj_per_mac"} | table["pj_per_mac"]


@pytest.mark.parametrize("noise", [0.03, 0.1, 0.2])
def test_the_held_out_error_is_that_of_nets_never_seen(noise: float) -> None:
    """Over many calibrations: it is near the scatter that is there, and the band holds as many new nets as it says."""
    trials = [energy_calibrate.fitted(rows(noise, seed), 1.0) for seed in range(40)]
    news = [(found, row) for seed, found in enumerate(trials) for row in rows(noise, 1000 + seed)]
    errors = [abs(energy_calibrate.predicted(found["coefficients"], row) / row.joules - 1) for found, row in news]
    said = statistics.fmean(found["error"]["rms"] for found in trials)
    assert said == pytest.approx(math.sqrt(statistics.fmean(e * e for e in errors)), rel=0.15)
    inside = [error <= found["error"]["band"] for error, (found, _) in zip(errors, news, strict=True)]
    assert {found["error"]["covers"] for found in trials} == {0.95}
    assert statistics.fmean(inside) > 0.95 - 2.33 * math.sqrt(0.95 * 0.05 / len(inside))


def test_a_law_that_a_family_breaks_shows_in_the_error() -> None:
    """Depthwise nets that take three times what the law says: held out, they are far off, and the band says so."""
    odd = [dataclasses.replace(r, joules=3 * r.joules) if r.family == "depthwise" else r for r in rows(0.02)]
    assert energy_calibrate.fitted(odd, 1.0)["error"]["band"] > 0.5


def test_coefficients_are_never_below_zero() -> None:
    optimize = pytest.importorskip("scipy.optimize")
    drawn = np.random.default_rng(5)
    for _ in range(200):
        table, wanted = drawn.normal(size=(12, 4)), drawn.normal(size=12)
        found = energy_calibrate.non_negative(table, wanted)
        assert (found >= 0).all()
        assert np.linalg.norm(table @ found - wanted) == pytest.approx(optimize.nnls(table, wanted)[1])


# --------------------------------------------------------------------------- the file and its sensor


def file(folder: Path, **changed: Any) -> Path:
    told = {
        "format": 1,
        "date": "2026-11-21",
        "device": 'a "board" of Zoë\x7f',
        "device_class": calibrated.device_class(CLASS),
        "sensor": "rapl",
        "scope": "board",
        "runtime": "onnx",
        "threads": 1,
        **energy_calibrate.fitted(rows(0.05), LAW["idle_w"]),
        "environment": {"os": "Linux", "now": {"loadavg": [0.1, 0.2], "governor": None}, "odd key": True},
        **changed,
    }
    return energy_calibrate.write(told, folder / "cal.toml")


def device(path: Path, **more: Any) -> dict[str, Any]:
    work = {"kind": "onnx", "batch": 1, "macs": 10**8, "macs_of": {"float32": 10**8}, "bytes": 10**7, "why": ""}
    return {**CLASS, "options": {"calibrated": {"file": str(path)}}, "threads": 1, "work": work, **more}


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = file(tmp_path)
    found = config.read_toml(path)
    assert found["device"] == 'a "board" of Zoë\x7f' and found["environment"]["odd key"] is True
    assert "governor" not in found["environment"]["now"] and calibrated.load(path) == found
    assert [p.name for p in tmp_path.iterdir()] == ["cal.toml"]


def test_an_estimate_is_the_law_with_the_held_out_error_as_its_band(tmp_path: Path) -> None:
    path = file(tmp_path)
    told = calibrated.load(path)
    assert calibrated.unavailable(device(path), Path("/")) == ""
    found = calibrated.open(device(path), Path("/")).energy(0.0, 0.005)
    row = MeasuredNet("", "", 0.005, {"float32": 1e8}, 1e7, 1.0, "board")
    assert found.value == pytest.approx(energy_calibrate.predicted(told["coefficients"], row))
    assert found.high == pytest.approx(found.value * (1 + told["error"]["band"]))
    assert (found.status, found.scope, found.reason) == ("estimated", "board", "")
    assert "rapl" in found.source and "Cortex-A76" in found.source
    idle = calibrated.open(device(path, threads=0), Path("/")).energy(0.0, 0.005)
    assert idle.value == pytest.approx(told["coefficients"]["idle_w"] * 0.005)


def test_a_batch_is_divided_among_its_inferences(tmp_path: Path) -> None:
    one = device(file(tmp_path))
    eight = {**one["work"], "batch": 8, "macs_of": {"float32": 8 * 10**8}, "bytes": 8 * 10**7}
    values = [calibrated.open({**one, "work": w}, Path("/")).energy(0.0, 0.005).value for w in (one["work"], eight)]
    assert values[0] == pytest.approx(values[1])


@pytest.mark.parametrize(
    ("changed", "seconds", "says"),
    [
        ({"macs_of": {"float32": 10**8}, "bytes": 10**7}, 1e-4, "MACs of float32 a second"),
        ({"macs_of": {"float32": 0}, "bytes": 10**9}, 0.005, "bytes a second"),
        ({"macs_of": {"float16": 10**8}}, 0.005, "it has no MACs of float16"),
        ({"macs": None, "why": "the MACs of X cannot be counted"}, 0.005, "cannot be counted"),
    ],
)
def test_outside_of_what_was_calibrated_there_is_no_estimate(
    changed: dict[str, Any], seconds: float, says: str, tmp_path: Path
) -> None:
    plain = device(file(tmp_path))
    found = calibrated.open({**plain, "work": {**plain["work"], **changed}}, Path("/")).energy(0.0, seconds)
    assert found.value is None and found.status == "unavailable" and says in found.reason


def test_another_class_of_device_or_number_of_threads_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path)
    other = device(path, fingerprint={"cpu": "Cortex-A72", "cores": 4, "machine": "aarch64"})
    why_not = calibrated.unavailable(other, Path("/"))
    assert "'Cortex-A76, 4 cores, aarch64'" in why_not and "'Cortex-A72, 4 cores, aarch64'" in why_not
    found = calibrated.open(device(path, threads=2), Path("/")).energy(0.0, 0.005)
    assert found.value is None and "calibrated with 1 threads, this ran on 2" in found.reason


def test_another_format_than_the_calibrations_is_remarked(tmp_path: Path) -> None:
    plain = device(file(tmp_path))
    found = calibrated.open({**plain, "work": {**plain["work"], "kind": "tflite"}}, Path("/")).energy(0.0, 0.005)
    assert found.value is not None and found.reason == "calibrated with onnx, not with tflite"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("format = 1\n", "damaged"),
        ("format = 2\n", "not a calibration of format 1"),
        ("no TOML", "cannot be read"),
        (None, "no such file"),
    ],
)
def test_a_file_that_is_no_calibration_says_so(text: str | None, says: str, tmp_path: Path) -> None:
    path = tmp_path / "cal.toml"
    if text is not None:
        path.write_text(text)
    assert says in calibrated.unavailable(device(path), Path("/"))


@pytest.mark.parametrize("place", [("coefficients", "busy_w"), ("error", "band"), ("hull", "bytes_per_s")])
def test_a_file_whose_numbers_are_none_is_refused(place: tuple[str, str], tmp_path: Path) -> None:
    told = config.read_toml(file(tmp_path))
    told[place[0]][place[1]] = "many"
    assert "damaged" in calibrated.unavailable(device(file(tmp_path, **told)), Path("/"))


def test_the_stage_asks_the_next_sensor_where_every_variant_is_outside(tmp_path: Path) -> None:
    asked = {"sensors": ("calibrated", "power_model"), "power": dataclasses.asdict(bench_inputs.POWER)}
    asked |= {"options": {"calibrated": {"file": str(file(tmp_path))}}}
    variants = {"a": bench_inputs.net(tmp_path / "a")}  # a null net has no operators to count
    found = energy.energy(bench_inputs.request(tmp_path, variants, asked, latency_ms={"a": 1.0})).facts
    assert found["sensor"] == "power_model" and "kind 'null'" in found["why_not"]["calibrated"]


# --------------------------------------------------------------------------- the nets


@pytest.mark.slow
def test_each_net_has_the_operator_that_its_family_names(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    assert len(energy_calibrate.MICROS) == 30 == len({micro.name for micro in energy_calibrate.MICROS})
    for micro in energy_calibrate.MICROS:
        if micro.sizes[0] > 2**20:
            continue
        artifact, _ = energy_calibrate.build(micro, tmp_path / "first")
        assert artifact.sha256 == energy_calibrate.build(micro, tmp_path / "second")[0].sha256
        work = op_counts.total(artifact)
        dtypes = [] if micro.family == "add" else ["int8" if micro.family.endswith("int8") else "float32"]
        assert [*work["macs_of"]] == dtypes and work["why"] == ""


# --------------------------------------------------------------------------- end to end: a tree driven by a known law

METERED = '''"""ONNX Runtime on a machine whose RAPL counter follows a law of what runs."""
import fcntl, json, os, struct, time
from pathlib import Path
from edgecompress.formats import op_counts as costs
from edgecompress.engines.onnx.runtimes import onnx

REQUIRES, EXTRA, FORMAT, READS, SUFFIX, IMPORTS = (), "", "onnx", (), "", ("onnx", "onnxruntime")
PLACE = Path({place!r})
LAW = json.loads((PLACE / "law.json").read_text())
STATE, COUNTER = (os.open(PLACE / name, os.O_RDWR) for name in ("state", "zone/energy_uj"))


def spend(joules=0.0):
    """The counter moved on to now: idle power over the time since it last was, and `joules`."""
    fcntl.flock(STATE, fcntl.LOCK_EX)
    last, spent = struct.unpack("dd", os.pread(STATE, 16, 0))
    now = time.monotonic()
    spent += LAW["idle_w"] * (now - last) + joules
    os.pwrite(STATE, struct.pack("dd", now, spent), 0)
    os.pwrite(COUNTER, b"%020d" % int(1e6 * spent), 0)
    fcntl.flock(STATE, fcntl.LOCK_UN)


def open(artifact, threads, profile=False):
    return Metered(onnx.open(artifact, threads, profile), costs.total(artifact))


class Metered:
    def __init__(self, inner, work):
        self.inner, self.close, self.last = inner, inner.close, 0.0
        macs = sum(LAW["pj_per_mac"][dtype] * n for dtype, n in work["macs_of"].items())
        self.joules = 1e-12 * (macs + LAW["pj_per_byte"] * work["bytes"])

    def run(self, inputs):
        began = time.monotonic()
        found = self.inner.run(inputs)
        now = time.monotonic()
        busy_s = now - (self.last if began - self.last < 0.2 else began)  # not a rest: it computes between runs too
        spend((LAW["busy_w"] - LAW["idle_w"]) * busy_s + self.joules)
        self.last = now
        return found
'''
FAST = """
description = "moments"
sessions = 1
warmup_s = 0.0
warmup_runs = 2
window_s = 0.0
window_runs = 1
energy_windows = 1
energy_window_s = 0.2
idle_s = 0.3
"""


@pytest.mark.prove
@pytest.mark.slow
@pytest.mark.alone
def test_a_known_law_is_recovered_from_the_counter_of_a_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real agents, real inferences, the real sensor: only the counter's file is made here."""
    pytest.importorskip("onnxruntime")
    zone = bench_inputs.RaplTree(tmp_path / "root").zone("intel-rapl:0", "package-0")
    (tmp_path / "zone").symlink_to(zone)
    (tmp_path / "law.json").write_text(json.dumps(LAW))
    (tmp_path / "state").write_bytes(struct.pack("dd", time.monotonic(), 0.0))
    plugins.plugin(tmp_path, "runtimes", "metered", METERED.format(place=str(tmp_path)))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entry_points.cache_clear()
    few = [m for m in energy_calibrate.MICROS if m.sizes[0] < 2**20 and m.sizes != (4096, 2048)]
    families = {family: [m for m in few if m.family == family] for family in dict.fromkeys(m.family for m in few)}
    monkeypatch.setattr(energy_calibrate, "MICROS", [m for each in families.values() for m in (each[0], each[-1])])
    monkeypatch.setattr(energy_calibrate, "RUNTIME", "metered")
    (tmp_path / "fast.toml").write_text(FAST)
    text = 'description = "a board"\nsensors = ["power_model", "rapl"]\n'
    monkeypatch.setenv("EDGECOMPRESS_ROOT", str(tmp_path / "root"))
    (tmp_path / "board.toml").write_text(text)
    import plugin_metered

    ended = threading.Event()
    idling = threading.Thread(target=lambda: [plugin_metered.spend() for _ in iter(lambda: ended.wait(0.002), True)])
    idling.start()
    try:
        asked = ["--device", str(tmp_path / "board.toml"), "--profile", str(tmp_path / "fast.toml")]
        code = main.main(["energy", "calibrate", *asked, "--out", str(tmp_path / "made" / "board.toml")])
    finally:
        ended.set()
        idling.join()
        registry.entry_points.cache_clear()
    said = capsys.readouterr()
    assert code == 0, said.err
    told = calibrated.load(tmp_path / "made" / "board.toml")
    assert told["nets"] == {"left_out": [], "measured": [m.name for m in energy_calibrate.MICROS]}
    assert (told["sensor"], told["scope"], told["threads"], told["profile"]) == ("rapl", "package", 1, "fast")
    found = told["coefficients"]
    assert flat(found) == pytest.approx(flat(LAW), rel=0.08)
    assert told["error"]["rms"] < 0.1 and told["error"]["folds"] == 5
    assert "14/14" in said.err and "nets" in said.out
    artifact, _ = energy_calibrate.build(
        energy_calibrate.Micro("conv", (64, 64, 28)), tmp_path / "new"
    )  # one that was not measured
    device = {"sensors": ("calibrated",), "options": {"calibrated": {"file": str(tmp_path / "made" / "board.toml")}}}
    work = op_counts.total(artifact)
    law = energy_calibrate.predicted(LAW, MeasuredNet("", "", 2e-3, work["macs_of"], work["bytes"], 1.0, "package"))
    request = bench_inputs.request(tmp_path / "stage", {"a": artifact}, device, latency_ms={"a": 2.0})
    gross = energy.energy(request).facts["variants"]["a"][0]
    assert (gross["status"], gross["value"]) == ("estimated", pytest.approx(1e3 * law, rel=0.05))


def test_a_device_without_a_sensor_is_refused_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "bare.toml").write_text(
        'description = "x"\nsensors = ["rapl", "power_model"]\n[options]\nroot = "/none"\n'
    )
    code = main.main(
        ["energy", "calibrate", "--device", str(tmp_path / "bare.toml"), "--out", str(tmp_path / "c.toml")]
    )
    said = capsys.readouterr().err
    assert code == 2 and not (tmp_path / "c.toml").exists()
    assert "no sensor measures its energy" in said and "no RAPL package domain" in said and "[power] table" in said


def test_a_place_that_cannot_be_written_is_told_before_anything_is_measured(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    (tmp_path / "a file").write_text("")
    with pytest.raises(InputError, match="give another --out"):
        energy_calibrate.run("host", tmp_path / "a file" / "cal.toml")
    with pytest.raises(InputError, match="give a file as --out"):
        energy_calibrate.run("host", tmp_path)


def test_too_few_nets_with_a_figure_are_no_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def row(self, micro: Any) -> Any:
            raise StageFailed(f"{micro.name}: a gap")

    told: list[str] = []
    with pytest.raises(StageFailed, match="only 0 of 30 nets have a measured energy; the first failure: conv-8-8-4: a"):
        energy_calibrate._rows(Broken(), told.append)  # type: ignore[arg-type]
    assert len(told) == 30 and "left out" in told[0]
