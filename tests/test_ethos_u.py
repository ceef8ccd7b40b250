"""Vela itself, on small nets: what it compiles, what it estimates, what it leaves on the CPU, and what it breaks on."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgecompress
from edgecompress.commands import deploy, job_run, verify
from edgecompress.core import catalog, environments
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.engines.ethos_u.runtimes import ethos_u
from edgecompress.engines.litert import model_file
from edgecompress.engines.litert.runtimes import litert
from edgecompress.engines.litert.techniques import litert_int8
from edgecompress.pipeline import job, plan
from edgecompress.testing import conformance

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(environments.missing(ethos_u)), reason=f"run `{environments.install_command(ethos_u)}`"),
]
torch = pytest.importorskip("torch")
pytest.importorskip("ai_edge_quantizer")

Make = Callable[..., Artifact]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Make:
    """The conformance net as int8, its ends int8 or float, or as fp32: made once."""
    folder = tmp_path_factory.mktemp("made")
    fp32 = conformance.net("tflite", folder)

    def one(precision: str) -> Artifact:
        if precision == "fp32":
            return fp32
        if (folder / precision / "artifact.json").exists():
            return Artifact.read(folder / precision)
        (folder / precision).mkdir()
        inputs = {"model": fp32, "samples": conformance.samples(fp32, folder)}
        return litert_int8.apply(Request(inputs, folder / precision, litert_int8.Options(io=precision)))  # type: ignore[arg-type]

    return one


@pytest.fixture
def compiled(made: Make, tmp_path: Path) -> Make:
    """What Vela makes of it, in a folder of its own each time."""
    numbers = itertools.count()

    def one(precision: str = "int8", **options: Any) -> Artifact:
        out = tmp_path / str(next(numbers))
        out.mkdir()
        return ethos_u.export(Request({"model": made(precision)}, out, ethos_u.Options(**options)))

    return one


# --------------------------------------------------------------------------- what it estimates


def test_an_int8_net_runs_on_the_npu_alone_and_every_estimate_is_there(compiled: Make) -> None:
    told = compiled().facts["estimate"]
    assert told["status"] == "estimated"
    assert told["source"].startswith("Vela 5")
    assert (told["accelerator"], told["clock_mhz"]) == ("ethos-u55-128", 500.0)
    assert (told["npu_operators"] > 4, told["cpu_operators"], told["fallback"]) == (True, 0, [])
    cycles = told["cycles"]
    assert cycles["total"] >= max(cycles["npu"], cycles["sram"], cycles["off_chip_flash"]) > 0
    assert told["inference_ms"] == pytest.approx(cycles["total"] / 500e3)
    assert told["macs"] >= 8 * 8 * 9 * (3 * 16 + 16 * 16) + 16 * 16  # its convolutions and its matrix product
    assert min(told["sram_bytes"], told["flash_bytes"]) > 16 * 16 * 9 / 2  # int8 weights, packed


def test_more_multipliers_take_fewer_cycles_and_size_takes_no_more_sram(compiled: Make) -> None:
    cycles = [compiled(accelerator=f"ethos-u55-{n}").facts["estimate"]["cycles"]["npu"] for n in (32, 128, 256)]
    assert cycles[0] > cycles[1] > cycles[2]
    sizes = [compiled(optimise=o).facts["estimate"]["sram_bytes"] for o in ("Size", "Performance")]
    assert sizes[0] <= sizes[1]


def test_a_slower_system_takes_longer(compiled: Make) -> None:
    fast, slow = (compiled(system=f"Ethos_U55_{name}_Embedded").facts["estimate"] for name in ("High_End", "Deep"))
    assert slow["clock_mhz"] == 200.0
    assert slow["inference_ms"] > fast["inference_ms"]


def test_weights_in_sram_take_no_cycles_of_an_off_chip_flash(compiled: Make) -> None:
    assert compiled(memory="Sram_Only").facts["estimate"]["cycles"]["off_chip_flash"] == 0


# --------------------------------------------------------------------------- what it leaves on the CPU


def test_operators_left_on_the_cpu_are_named_with_the_reason(compiled: Make) -> None:
    artifact = compiled("float")
    told = artifact.facts["estimate"]
    assert [op["type"] for op in told["fallback"]] == ["QUANTIZE", "DEQUANTIZE"]
    assert artifact.facts["fallback"] == [op["name"] for op in told["fallback"]] == ["QUANTIZE:0", "DEQUANTIZE:6"]
    assert told["fallback"][0]["why"].startswith("Operation has tensor with unsupported DataType Float32; ")
    assert told["fallback"][1]["why"] == "Unsupported opType"


def test_a_float_net_is_estimated_by_nobody_and_nothing_of_it_is_zero(compiled: Make) -> None:
    told = compiled("fp32").facts["estimate"]
    assert told["reason"] == ethos_u.ALL_LEFT
    assert {told[key] for key in ("cycles", "inference_ms", "macs", "sram_bytes", "flash_bytes")} == {None}
    assert len(told["fallback"]) == told["cpu_operators"] > 4
    assert told["npu_operators"] == 0


def test_a_mean_over_the_plane_of_a_torch_net_stays_on_the_npu(tmp_path: Path) -> None:
    """However it is written: a pool, or a mean over the last two dimensions."""
    torch.manual_seed(0)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.head = torch.nn.Conv2d(3, 16, 3), torch.nn.Linear(16, 4)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = torch.relu(self.conv(image))
            return self.head(x.mean((-1, 2)) + x.mean((2, 3), keepdim=True).flatten(1))

    net, image = Net().eval(), torch.randn(1, 3, 8, 8)
    pooled = litert._pooled(torch.export.export(net, (image,)).module(check_guards=False))
    assert not any(node.target is torch.ops.aten.mean.dim for node in pooled.graph.nodes)
    assert torch.allclose(pooled(image), net(image), atol=1e-6)


# --------------------------------------------------------------------------- what goes onto the device, and what runs


def test_the_file_for_the_device_has_the_same_ends_and_one_operator_of_the_npu(compiled: Make) -> None:
    artifact = compiled()
    data = (artifact.path / ethos_u.FILE).read_bytes()
    assert b"ethos-u" in data
    assert model_file.inputs_and_outputs(data, "it") == (artifact.inputs, artifact.outputs)
    assert artifact.inputs[0].dtype == "int8"
    assert artifact.size_bytes == len(data)
    assert [f.name for f in artifact.files()] == [ethos_u.BEFORE, ethos_u.FILE]


def test_what_runs_here_is_the_file_before_vela(made: Make, compiled: Make, tmp_path: Path) -> None:
    before, artifact = made("int8"), compiled()
    item = next(tensors.batches(conformance.samples(before, tmp_path), "test", 1))
    wanted = {k: np.array(v) for k, v in litert.open(before, 1).run(item).items()}
    session = ethos_u.open(artifact, 1)
    assert all((np.array(v) == wanted[k]).all() for k, v in session.run(item).items())
    assert session.ops(item, 1) == {"ops": [], "why": ethos_u.NO_TIMES, "fallback": []}


def test_the_runtime_passes_the_conformance_suite(tmp_path: Path) -> None:
    conformance.check_runtime("ethos_u", tmp_path)


def test_the_target_parses_and_is_for_the_device_of_its_name() -> None:
    conformance.check_target(catalog.shipped("targets") / "ethos-u55.toml")
    target, device = catalog.target("ethos-u55").value, catalog.device("ethos-u55").value
    assert target.platforms == (device.platform,)
    assert "--target ethos-u55" in device.unreachable


# --------------------------------------------------------------------------- what breaks it


@pytest.mark.parametrize("damage", [lambda data: data[:3000], lambda data: os.urandom(64) + data, lambda _: b""])
def test_a_damaged_file_is_told_in_one_line(damage: Callable[[bytes], bytes], made: Make, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "model.tflite").write_bytes(damage((made("int8").path / "model.tflite").read_bytes()))
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError) as caught:
        ethos_u.export(Request({"model": Artifact(broken, "tflite")}, tmp_path / "out", ethos_u.Options()))
    assert "\n" not in str(caught.value)
    assert "model.tflite" in str(caught.value)


def test_a_crash_of_vela_is_no_crash_of_ours(made: Make, tmp_path: Path) -> None:
    """Vela 5.2 follows the offsets of a cut file out of its memory."""
    file = tmp_path / "cut.tflite"
    file.write_bytes((made("int8").path / "model.tflite").read_bytes()[:3000])
    with pytest.raises(StageFailed, match=r"^runtime ethos_u: Vela[^\n]+$"):
        ethos_u._compiled(file, tmp_path, ethos_u.Options())


def test_vela_s_own_error_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "noise.tflite"
    file.write_bytes(bytes(range(256)))
    with pytest.raises(StageFailed, match=r"^runtime ethos_u: Vela: Compilation failed: [^\n]+$"):
        ethos_u._compiled(file, tmp_path, ethos_u.Options())


# --------------------------------------------------------------------------- a whole deploy

TARGET = """
description = "Dense, pruned, and one that promises to leave nothing on the CPU"
runtime = "ethos_u"
platforms = ["mcu-*"]

[[variant]]
name = "int8"
reference = true
compress = [{ use = "int8", io = "int8" }]

[[variant]]
name = "float-ends"
compress = [{ use = "int8" }]
limits = { fallback_ops = 0 }

[[variant]]
name = "pruned"
limits = { metric_loss = 1.0 }
compress = [{ use = "prune_channels", macs = 0.5, align = 16 }, { use = "int8", io = "int8" }]
"""


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory, shared_store: Path) -> Iterator[job_run.Result]:
    """The demo: its blocks of 64 channels narrowed, untrained, for the estimates alone."""
    pytest.importorskip("torch_pruning")
    folder = tmp_path_factory.mktemp("deployed")
    (folder / "mcu.toml").write_text(TARGET)
    wanted = job.job(None, str(folder / "mcu.toml"), profile="quick")
    options = edgecompress.Options(store=shared_store, out=folder / "dist")
    yield deploy.run_all([(wanted, plan.deploy(wanted))], options)["mcu"]


@pytest.mark.prove
def test_a_pruned_net_ships_for_its_fewer_estimated_cycles(deployed: job_run.Result) -> None:
    assert deployed.exit_code == 0, deployed.message
    assert deployed.out is not None
    assert json.loads((deployed.out / "deploy.json").read_text())["variant"] == "pruned"
    told = deployed.read_report()
    rows = {row["metric"]: row for row in told["deltas"]}
    for metric in ("cycles", "npu_time", "sram", "flash"):
        assert rows[metric]["after"]["status"] == rows[metric]["before"]["status"] == "estimated"
        assert rows[metric]["after"]["value"] < rows[metric]["before"]["value"]
    assert rows["cycles"]["change"]["factor"] > 1.5
    assert "estimated" in told["summary"]["sentence"]
    assert told["choice"]["unmeasured"]


@pytest.mark.prove
def test_a_promise_to_leave_nothing_on_the_cpu_is_held_against_vela(deployed: job_run.Result) -> None:
    lost = deployed.outcomes["float-ends/verify"]
    assert lost.status == "lost"
    assert "2 operators fell back (QUANTIZE:0, DEQUANTIZE:" in lost.reason


@pytest.mark.prove
def test_what_shipped_can_be_verified_again(deployed: job_run.Result, shared_store: Path) -> None:
    assert deployed.out is not None
    options = edgecompress.Options(store=shared_store, out=deployed.out.parent / "again")
    assert verify.verify(deployed.out, options=options).exit_code == 0


def test_what_vela_says_of_an_operator_is_told_whole() -> None:
    said = "RuntimeError: Compilation failed: Error: LSTM 'cell' has no valid semantics.\n - IFM must be INT8\nFailed\n"
    assert ethos_u._broke(1, f"Traceback\n  File\n{said}") == (
        "Vela: LSTM 'cell' has no valid semantics. - IFM must be INT8 Failed"
    )
    assert ethos_u._broke(2, "one\ntwo") == "Vela: two"
    assert ethos_u._broke(2, "") == "Vela: exit code 2"
