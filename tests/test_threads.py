"""Threads of an inference: one number for all, or several of which the race finds the fastest for each variant."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nulls
import pytest

import edgecompress
from edgecompress.core.errors import InputError
from edgecompress.pipeline import job
from edgecompress.reporting import model


def deploy(folder: Path, threads: Any, **more: Any) -> edgecompress.Result:
    """A net that sleeps eight milliseconds, less with more threads."""
    made = nulls.make(folder, sleep_ms=8.0)
    Path(made["target"]).write_text(nulls.TARGET + '[[variant]]\nname = "base"\nreference = true\n', encoding="utf-8")
    options = edgecompress.Options(out=folder / "out", store=folder / "store")
    given = {"profile": "quick", "settings": nulls.FAST, **made, **more}
    return edgecompress.deploy(threads=threads, options=options, **given)


def told(result: edgecompress.Result) -> dict[str, tuple[str, int | None]]:
    """The verdict on each variant, and the threads that it was measured with."""
    report = model.of(result.read_report())
    return {v.name: (v.verdict, report.threads(v.name)) for v in report.variants}


@pytest.mark.slow
def test_the_fastest_number_of_threads_ships_and_is_measured_with_it_again(tmp_path: Path) -> None:
    result = deploy(tmp_path, "1,2")
    found = told(result)
    assert set(found) == {"plain", "base", "plain-2-threads"}, "no other base: it is what all are compared with"
    assert found["plain-2-threads"] == ("shipped", 2) and found["plain"][1] == 1
    assert result.out and json.loads((result.out / "deploy.json").read_text())["threads"] == 2
    more = {"profile": "quick", "settings": nulls.FAST, "options": edgecompress.Options(store=tmp_path / "store")}
    own = edgecompress.profile(result.out, **more)
    assert [threads for _, threads in told(own).values()] == [2]


@pytest.mark.parametrize("threads", ["1,2", [1, 2, "2"], (1, 2), [1, "all"]])
def test_each_variant_but_the_references_is_there_with_each_number(threads: Any, tmp_path: Path) -> None:
    toml = 'description = "two cores"\ntransport = "host"\nplatform = "linux-x86_64"\ncores = 2\n'
    (tmp_path / "two.toml").write_text(toml, encoding="utf-8")
    asked = job.job(None, "x86", device=str(tmp_path / "two.toml"), threads=threads, only="int8,fp32")
    assert asked.only == ("int8", "fp32", "int8-2-threads")
    own = [v for v in asked.target.value.variant if v.threads]
    assert [(v.name, v.threads) for v in own] == [("int8-2-threads", 2)]
    assert asked.context.threads == 1


@pytest.mark.parametrize("threads", ["many", "0", "1,", "2,-1", [], 1.5, None, 1025])
def test_what_is_no_number_of_threads_is_one_line(threads: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^threads .*: give a whole number, 1 to 1024, or several to race: 1,2"):
        deploy(tmp_path, threads)


def test_several_need_a_device_that_measures(tmp_path: Path) -> None:
    made = nulls.make(tmp_path)
    elsewhere = 'platforms = ["nowhere-*"]\n' + nulls.TARGET
    Path(made["target"]).write_text(elsewhere, encoding="utf-8")
    with pytest.raises(InputError, match=r"^threads: which number is fastest needs measurements, but this machine is"):
        edgecompress.deploy(threads="1,2", **made)


def test_a_variant_that_says_its_own_has_no_other(tmp_path: Path) -> None:
    made = nulls.make(tmp_path)
    Path(made["target"]).write_text(nulls.TARGET + "threads = 3\n", encoding="utf-8")
    asked = job.job(made["model"], made["target"], threads="1,2")
    assert [(v.name, v.threads) for v in asked.target.value.variant] == [("plain", 3)]
