"""What a model of gigabytes is said to need, before anything runs."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

import edgecompress
from edgecompress.cli.progress import Phase
from edgecompress.commands import deploy
from edgecompress.core.errors import InputError
from edgecompress.core.model import Outcome, Stage
from edgecompress.pipeline import job, plan
from edgecompress.pipeline.runner import Event

GIB = 1 << 30


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A file beside which 3 GiB lie, or so it looks."""
    (tmp_path / "net.onnx").write_bytes(b"not read")
    with (tmp_path / "weights.bin").open("wb") as stream:
        stream.truncate(3 * GIB)  # takes no room
    return tmp_path / "net.onnx"


def test_memory_and_disk_of_a_large_model_are_told(large: Path) -> None:
    wanted = job.job(str(large), "x86", data="random", metric="none", only=["fp32", "int8"])
    head = Phase(wanted, plan.deploy(wanted)).head()
    assert head.endswith("up to 9.00 GiB of memory and 12.0 GiB of disk")


def test_only_variants_are_counted_as_built_or_lost(large: Path) -> None:
    wanted = job.job(str(large), "x86", data="random", metric="none", only=["fp32", "int8"])
    steps = plan.deploy(wanted)
    phase = Phase(wanted, steps)
    for step in steps.stages:
        assert isinstance(step, Stage)
        ended = Outcome(step.name, "failed", reason="as told")
        phase.take(Event("ended", dataclasses.replace(step, variants=(*step.variants, "level")), outcome=ended))
    assert phase.says() == "building    2 of 2 variants, 2 lost"


def test_a_disk_without_room_for_it_is_told_before_anything_runs(
    large: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * GIB))
    wanted = job.job(str(large), "x86", data="random", metric="none", only=["fp32", "int8"])
    with pytest.raises(InputError, match=r"12\.0 GiB of disk are needed, 5 GiB are free; free some, or name"):
        deploy.run(wanted, plan.deploy(wanted), edgecompress.Options(store=tmp_path / "store"))


def test_a_model_of_usual_size_needs_nothing_told(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_bytes(b"not read")
    wanted = job.job(str(tmp_path / "net.onnx"), "x86", data="random", metric="none", only=["fp32"])
    assert plan.deploy(wanted).large_needs() is None
