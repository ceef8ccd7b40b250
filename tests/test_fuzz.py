"""The readers of strangers' files: what fuzzing once found stays mended, and a short search finds nothing new."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import prove
import pytest

from edgecompress.core.errors import InputError, StageFailed

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT))
from fuzz import guard, run  # noqa: E402 - beside this folder

HEAVY = ("mil", "onnx", "tflite")  # their libraries are no part of the fast set
RUNS = {
    "archive": 1000,
    "arrays": 4000,
    "mil": 1000,
    "onnx": 4000,
    "report": 1200,
    "schedule": 800,
    "tflite": 3000,
    "toml": 1600,
}
KEPT = [
    pytest.param(file, id=f"{file.parent.name}/{file.name}", marks=[pytest.mark.slow] * (file.parent.name in HEAVY))
    for file in sorted((ROOT / "fuzz").glob("regressions/*/*"))
]
needs_atheris = pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no wheel for this machine")


# --------------------------------------------------------------------------- what was found


@cache
def warmed(name: str, folder: Path) -> Any:
    """A target whose libraries are imported."""
    target = importlib.import_module(f"fuzz.targets.{name}")
    guard.warm(target.check, sorted((ROOT / "fuzz" / "corpora" / name).iterdir()), folder)
    return target


@pytest.mark.parametrize("file", KEPT)
def test_an_input_that_once_broke_a_reader_is_read_or_refused_in_one_line(file: Path, tmp_path: Path) -> None:
    target = warmed(file.parent.name, tmp_path / "warm")
    finding = guard.judged(target.check, file.read_bytes(), guard.emptied(tmp_path / "input"))
    assert finding is None, f"{finding.what}\n{finding.how}"


def test_the_corpora_are_small_and_every_target_has_one() -> None:
    files = [file for file in (ROOT / "fuzz" / "corpora").rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} == {*run.TARGETS} == {*RUNS}
    assert sum(file.stat().st_size for file in files) < 300_000
    assert max(file.stat().st_size for file in files) <= run.LONGEST


CHANGED = [
    pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY))
    for name in ("report", "toml", "schedule", "mil", "onnx")
]


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_of_structure_is_another_input(name: str) -> None:
    target = importlib.import_module(f"fuzz.targets.{name}")
    seeds = [file.read_bytes() for file in sorted((ROOT / "fuzz" / "corpora" / name).iterdir())]
    changed = {target.changed(seed, Random(number)) for seed in seeds for number in range(20)}
    assert len(changed - {*seeds}) > 10 * len(seeds)


# --------------------------------------------------------------------------- what is searched for


LONG = ("arrays", "mil", "report", "schedule", "toml")  # with `make prove`: what goes on around them is the same


@pytest.mark.slow
@needs_atheris
@pytest.mark.parametrize(
    "target", [pytest.param(name, marks=[pytest.mark.prove] if name in LONG else []) for name in run.TARGETS]
)
def test_no_input_breaks_a_reader(target: str, tmp_path: Path) -> None:
    """In the short form the same inputs each time, for a test is to fail where the code has changed, and only there."""
    flags = ["-max_total_time=600"] if prove.WHOLE else [f"-runs={RUNS[target]}", "-seed=17"]
    ended = run.fuzz(target, tmp_path, flags)
    assert not ended.found, "\n".join(f"{what}\n{file.read_bytes().hex()}" for what, file in ended.found.items())
    assert ended.runs >= RUNS[target] and ended.coverage > 50


@pytest.mark.slow
@needs_atheris
@pytest.mark.prove
def test_a_fault_that_is_planted_is_found_and_kept(tmp_path: Path) -> None:
    for name in ("edgecompress", "fuzz", *guard.KINDS):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "edgecompress" / "core" / "config.py"
    error = re.compile("(def _convert_scalar.*?)raise ConfigError", re.DOTALL)
    planted, count = error.subn(r"\1raise (KeyError if hint is str else ConfigError)", file.read_text())
    assert count == 1
    file.write_text(planted)
    command = [sys.executable, "-m", "fuzz.run", "--only=toml", "--runs=1500", "--seed=17", "--folder=found"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1, done.stderr
    assert "KeyError at edgecompress/core/config.py:_convert_scalar" in done.stdout
    assert list((tmp_path / "found" / "toml" / "findings").glob("*.json"))


# --------------------------------------------------------------------------- what holds of every input


def says_nothing_of(exception: BaseException) -> guard.Check:
    def check(data: bytes, folder: Path) -> None:
        raise exception

    return check


def grows(data: bytes, folder: Path) -> None:
    bytearray(b"x" * (2 * guard.BYTES))


def never_ends(data: bytes, folder: Path) -> None:
    while True:
        with contextlib.suppress(Exception):
            raise ValueError


def spins(data: bytes, folder: Path) -> None:
    while True:
        sum(range(100_000))
        if sum(os.times()[:2]) > float(data):
            return


def reads_beyond(data: bytes, folder: Path) -> None:
    (folder / ".." / "beside").read_bytes()


def follows_a_link(data: bytes, folder: Path) -> None:
    (folder / "link").read_bytes()


def writes_code(data: bytes, folder: Path) -> None:
    (Path(guard.__file__).parent / "left.py").write_text("")


def runs_a_program(data: bytes, folder: Path) -> None:
    subprocess.run(["true"], check=True)


def connects(data: bytes, folder: Path) -> None:
    with socket.socket() as made:
        made.connect(("127.0.0.1", 9))


BREAKS: list[tuple[guard.Check, str]] = [
    (says_nothing_of(KeyError("x")), "KeyError at "),
    (says_nothing_of(SystemExit(0)), "SystemExit at "),
    (says_nothing_of(RecursionError()), "RecursionError at "),
    (says_nothing_of(StageFailed("broke")), "exit code 3 at "),
    (says_nothing_of(InputError("")), "an error that is no printable line at "),
    (says_nothing_of(InputError("x" * (guard.LINE + 1))), "an error of too many characters at "),
    (grows, "it takes too much memory"),
    (reads_beyond, "open of "),
    (follows_a_link, "open of "),
    (writes_code, "open of "),
    (runs_a_program, "subprocess.Popen of "),
    (connects, "socket.connect of "),
]


@pytest.mark.parametrize(("check", "what"), BREAKS, ids=[what for _, what in BREAKS])
def test_what_does_not_hold_of_an_input_is_found(check: guard.Check, what: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(guard, "BYTES", 64 << 20)
    (tmp_path / "beside").write_text("theirs")
    folder = guard.emptied(tmp_path / "input")
    (folder / "link").symlink_to(tmp_path / "beside")
    finding = guard.judged(check, b"data", folder)
    assert finding and finding.what.startswith(what) and finding.data == b"data"


ENDS = (
    "import sys; from pathlib import Path; sys.path[:0] = sys.argv[1:3]; import test_fuzz as here\n"
    "here.guard.ENDED_S = 0.2\n"
    "print(here.guard.judged(here.never_ends, b'', here.guard.emptied(Path(sys.argv[3]))).what)"
)


def test_a_reader_that_never_ends_is_ended(tmp_path: Path) -> None:
    """In a process of its own: the signal ends whoever else holds the processor."""
    tests = Path(__file__).parent
    command = [sys.executable, "-c", ENDS, str(tests), str(tests.parent), str(tmp_path / "input")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.startswith("TooLong at ")


def test_a_reader_that_takes_long_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "SECONDS", 0.2)
    until = sum(os.times()[:2]) + 0.4
    finding = guard.judged(spins, str(until).encode(), guard.emptied(tmp_path / "input"))
    assert finding and finding.what == "it takes too long"


SOUND: list[Callable[[bytes, Path], Any]] = [
    says_nothing_of(InputError("net.onnx: damaged; export it again")),
    lambda data, folder: (folder / "file").write_bytes(data),
    lambda data, folder: importlib.import_module("colorsys"),
]


@pytest.mark.parametrize("check", SOUND)
def test_a_result_or_one_line_of_error_is_sound(check: guard.Check, tmp_path: Path) -> None:
    assert guard.judged(check, b"data", guard.emptied(tmp_path / "input")) is None


def test_nobody_is_watched_afterwards(tmp_path: Path) -> None:
    guard.judged(connects, b"", guard.emptied(tmp_path / "input"))
    assert Path(__file__).read_bytes() and subprocess.run(["true"]).returncode == 0
