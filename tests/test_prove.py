"""The short form of a matrix of cases holds every pair of values; `make prove` passes where every part of it passed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from itertools import combinations, product
from pathlib import Path
from types import ModuleType

import prove
import pytest
from hypothesis import given
from hypothesis import strategies as st

CASES = st.lists(st.tuples(*[st.integers(0, 3)] * 3), max_size=40, unique=True)


def pairs(cases: list[tuple[int, ...]]) -> set[object]:
    return {pair for case in cases for pair in combinations(enumerate(case), 2)}


@given(CASES)
def test_every_pair_that_occurs_is_kept_and_the_order_too(cases: list[tuple[int, ...]]) -> None:
    chosen = prove.pairwise(cases, lambda case: case, whole=False)
    assert pairs(chosen) == pairs(cases)
    assert chosen == [case for case in cases if case in chosen]
    assert prove.pairwise(cases, lambda case: case, whole=True) == cases


@given(CASES)
def test_what_is_always_in_is_in_and_counts(cases: list[tuple[int, ...]]) -> None:
    chosen = prove.pairwise(cases, lambda case: case, always=lambda case: case[0] == 1, whole=False)
    assert {case for case in cases if case[0] == 1} <= set(chosen)
    assert pairs(chosen) == pairs(cases)


def test_a_full_matrix_shrinks_to_its_two_longest_axes() -> None:
    cases = list(product(range(8), range(2), range(7)))
    assert len(prove.pairwise(cases, lambda case: case, whole=False)) == 8 * 7


@pytest.mark.parametrize(("count", "chosen"), [(1, [0]), (2, [0, 9]), (4, [0, 3, 6, 9]), (10, list(range(10)))])
def test_some_are_spread_evenly(count: int, chosen: list[int]) -> None:
    assert prove.some(list(range(10)), count, whole=False) == chosen


# --------------------------------------------------------------------------- scripts/prove.py


def script(name: str = "scripts/prove.py") -> ModuleType:
    """A script of the repository."""
    file = Path(__file__).parents[1] / name
    spec = importlib.util.spec_from_file_location(name.replace("/", "_").removesuffix(".py"), file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one file."""
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "a")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "a@b.c")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / ".gitignore").write_text("build/\n__pycache__/\n")
    (tmp_path / "code.py").write_text("x = 1\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-qm", "one")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def said(proof: ModuleType, root: Path, *commands: str, count: int = 2) -> str:
    """A run whose parts are these lines of shell, the first of them beside others; what it ended with."""
    parts = [proof.Part(f"part{number}", ("sh", "-c", line)) for number, line in enumerate(commands)]
    try:
        return str(proof.proved(root, count, ([], parts[:1], parts[1:])))
    except SystemExit as error:
        return str(error)


def sh(root: Path, line: str) -> None:
    """Runs a line of shell in a folder."""
    subprocess.run(["sh", "-c", line], cwd=root, check=True, capture_output=True)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "2x", "", "two", "00"])
def test_jobs_that_are_no_number_above_0_are_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="JOBS="):
        script().jobs(text)
    command = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "prove.py")]
    if text == "0":
        assert (
            subprocess.run(command, env={**os.environ, "JOBS": text}, timeout=60, capture_output=True).returncode == 1
        )


def test_jobs_may_begin_with_a_zero() -> None:
    assert [script().jobs(text) for text in ("1", "08", "12")] == [1, 8, 12]


def test_the_plan_has_every_file_of_tests_the_longest_first() -> None:
    proof = script()
    _, tests, alone = proof.plan(proof.ROOT, 2)
    assert tuple(part.name for part in tests[: len(proof.LONGEST)]) == proof.LONGEST
    assert {part.name for part in tests} == {file.stem for file in Path(__file__).parent.glob("test_*.py")}
    assert all((proof.ROOT / part.command[1]).is_file() for part in alone if part.name != "check")


def test_what_passed_is_not_run_again_and_what_failed_is(checkout: Path) -> None:
    proof, log = script(), checkout / "build" / "ran"
    first = said(proof, checkout, f"echo one >>{log}", f"echo two >>{log}; test -e build/fixed")
    assert first.startswith("prove: failed: part1;"), first
    (checkout / "build" / "fixed").touch()
    second = said(proof, checkout, f"echo one >>{log}", f"echo two >>{log}; test -e build/fixed")
    assert second.startswith("prove: all passed, 0 skipped"), second
    assert log.read_text().split() == ["one", "two", "two"]
    third = said(proof, checkout, f"echo one >>{log}", f"echo two >>{log}; test -e build/fixed")
    assert third.startswith("prove: all passed"), third  # its own log is no change
    assert log.read_text().split() == ["one", "two", "two"]
    assert said(proof, checkout) == f"prove: failed: nothing ran; the logs are in {proof.Run(checkout).state}"


@pytest.mark.parametrize(
    "change",
    [
        "echo y >>code.py",
        "echo x >new.py",
        "rm code.py",
        "chmod +x code.py",
        "ln -sf new.py code.py",
        "git mv code.py d.py",
        "echo x=2 >code.py; git commit -qam two",
        "git rm -q --cached code.py",
        "git add seen.py",
        "mkdir tests; touch tests/test_new.py",
    ],
)
def test_on_other_files_everything_runs_again(checkout: Path, change: str) -> None:
    proof, log = script(), checkout / "build" / "ran"
    sh(checkout, "touch seen.py")
    assert "all passed" in said(proof, checkout, f"echo one >>{log}")
    sh(checkout, change)
    assert "all passed" in said(proof, checkout, f"echo one >>{log}")
    assert log.read_text().split() == ["one", "one"]
    first = proof.files(checkout)
    sh(checkout, "echo z >>new.py")
    assert proof.files(checkout) != first


def test_what_was_run_is_part_of_what_passed(checkout: Path) -> None:
    proof, log = script(), checkout / "build" / "ran"
    for command in ("true", f"echo one >>{log}", f"echo two >>{log}", f"echo two >>{log}", "false"):
        ended = said(proof, checkout, command)
        assert ("all passed" in ended) is (command != "false"), ended
    assert log.read_text().split() == ["one", "two"]


@pytest.mark.parametrize("known", ["", "git add nested"])
def test_a_repository_inside_this_one_is_refused(checkout: Path, known: str) -> None:
    sh(checkout, f"git init -q nested; cd nested; git commit -q --allow-empty -m one; cd ..; {known}")
    assert said(script(), checkout, "true").startswith("prove: nested")


def test_a_link_is_what_it_points_to_as_well(checkout: Path) -> None:
    proof = script()
    sh(checkout, "mkdir build; echo x >build/made; ln -s build/made link")
    first = proof.files(checkout)
    sh(checkout, "echo y >build/made")
    assert proof.files(checkout) != first


def test_a_part_sees_the_variables_that_are_part_of_what_passed_and_no_others(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof, told = script(), checkout / "build" / "told"
    hostile = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PYTHONOPTIMIZE", "MAKEFLAGS", "JOBS", "GIT_DIR", "NOT_HEARD_OF")
    for name in hostile:
        monkeypatch.setenv(name, "")  # git, too, runs without them
    assert "all passed" in said(proof, checkout, f"env -0 >{told}")
    seen = {line.partition("=")[0] for line in told.read_text().split("\0")}
    assert not seen & {*hostile} and {"PATH", "EDGECOMPRESS_PROVE"} <= seen
    for name in seen & os.environ.keys() - proof.LONG.keys():
        before = proof.around()
        monkeypatch.setenv(name, "another")
        assert (proof.around() != before) is (name not in ("PWD", "OLDPWD", "SHLVL", "_")), name  # those sh sets itself


def test_the_plan_gives_make_the_python_that_it_has(checkout: Path) -> None:
    proof = script()
    (check,) = (part for part in proof.plan(proof.ROOT, 2)[2] if part.name == "check")
    assert f"PYTHON={sys.executable}" in check.command


def test_another_python_or_environment_of_a_plugin_is_another_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proof = script()
    states = [proof.around()]
    monkeypatch.setattr(sys, "version", "3.99")
    states.append(proof.around())
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    for name in ("one", "two"):
        sh(tmp_path, f"mkdir -p edgecompress-envs/{name}; touch edgecompress-envs/{name}/complete")
        states.append(proof.around())
        sh(tmp_path, "rm -r edgecompress-envs")
    monkeypatch.setattr(proof.importlib.metadata, "distributions", list)
    states.append(proof.around())
    assert all(one != other for one, other in combinations(states, 2))


def test_a_change_during_the_run_ends_it(checkout: Path) -> None:
    proof, log = script(), checkout / "build" / "ran"
    assert "changed during the run" in said(proof, checkout, "true", f"echo x=2 >code.py; echo one >>{log}", "true")
    assert "changed during the run" in said(proof, checkout, "true", "echo x=3 >code.py; git commit -qam two")


def test_what_changed_the_files_has_not_passed(checkout: Path) -> None:
    proof, log = script(), checkout / "build" / "ran"
    changes = f"echo one >>{log}; test -e build/quiet || echo x=2 >code.py"
    assert "changed during the run" in said(proof, checkout, "true", changes)
    sh(checkout, "git checkout -q code.py; touch build/quiet")
    assert "all passed" in said(proof, checkout, "true", changes)
    assert log.read_text().split() == ["one", "one"]


def test_a_second_run_at_once_is_refused(checkout: Path) -> None:
    proof = script()
    first = proof.Run(checkout)
    assert said(proof, checkout, "true") == "prove: another run is in progress in this folder; wait for it to end"
    first.lock.close()
    assert "all passed" in said(proof, checkout, "true")


def test_what_was_skipped_is_listed_and_kept(checkout: Path) -> None:
    proof = script()
    (checkout / "test_it.py").write_text("import pytest\ndef test_gpu(): pytest.skip('there is no GPU')\n")
    run = f"{sys.executable} -m pytest -p no:cacheprovider -rs --no-fold-skipped test_it.py"
    ended = said(proof, checkout, run)
    assert ended.startswith("prove: all passed, 1 skipped") and "test_it.py::test_gpu - " in ended, ended
    assert "there is no GPU" in ended
    (log,) = checkout.glob("benchmarks/prove-*.log")
    assert "== skipped: test_it.py::test_gpu" in log.read_text()


def test_what_skipped_something_runs_again(checkout: Path) -> None:
    proof, log = script(), checkout / "build" / "ran"
    run = f"echo one >>{log}; test -e build/gpu || echo 'SKIPPED no GPU'; ! test -e build/broken"
    assert "1 skipped" in said(proof, checkout, run)
    sh(checkout, "touch build/gpu build/broken")
    assert said(proof, checkout, run).startswith("prove: failed: part0;")
    sh(checkout, "rm build/broken")
    assert "0 skipped" in said(proof, checkout, run) and "0 skipped" in said(proof, checkout, run)
    assert log.read_text().split() == ["one"] * 3


def test_the_kept_log_is_of_the_state_that_passed(checkout: Path) -> None:
    proof = script()
    shows = "cat code.py; ! grep -q y code.py"
    for line in ("true", "echo y=2 >code.py", "git checkout -q code.py"):
        sh(checkout, line)
        assert ("all passed" in said(proof, checkout, shows)) is ("y=2" not in line)
    (log,) = checkout.glob("benchmarks/prove-*.log")
    assert "x = 1" in log.read_text() and "y=2\n" not in log.read_text() and "== took 0 min" in log.read_text()


# --------------------------------------------------------------------------- benchmarks/planted.py


def test_each_fault_can_be_planted_in_the_code_of_today() -> None:
    planted = script("benchmarks/planted.py")
    faults = planted.listed()
    assert len(faults) >= 30
    for fault in faults:
        assert (planted.ROOT / fault.file).read_text(encoding="utf-8").count(fault.old) == 1, fault.name


def test_a_planted_fault_is_found_by_what_passes_without_it(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "test_it.py").write_text(
        "import code_here\ndef test_x(): assert code_here.x == 1\ndef test_always(): assert False\n"
    )
    (checkout / "code_here.py").write_text("x = 1\n")
    for words in (("add", "."), ("commit", "-qm", "two")):
        subprocess.run(["git", *words], cwd=checkout, check=True)
    planted = script("benchmarks/planted.py")
    monkeypatch.setattr(planted, "ROOT", checkout)
    monkeypatch.setattr(planted, "separate_environments", lambda copy: None)
    fault = planted.Fault("wrong", "code_here.py", "x = 1", "x = 2", "test_it.py -k test_x")
    assert planted.tried(fault).short == "test_it.py::test_x"
    with pytest.raises(SystemExit, match="test_always fails without the fault, too"):
        planted.tried(planted.Fault("wrong", "code_here.py", "x = 1", "x = 2", "test_it.py -k always"))
