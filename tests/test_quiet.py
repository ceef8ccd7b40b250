"""`--quiet` prints one line, the outcome; lists are still printed in full."""

from __future__ import annotations

from pathlib import Path

import nulls
import pytest

from edgecompress.cli import main
from edgecompress.reporting import compare as reporting
from edgecompress.reporting import compare_output

pytestmark = pytest.mark.slow

QUICK = [f"--set={key}={value}" for key, value in nulls.FAST.items()]
Told = pytest.CaptureFixture[str]


@pytest.mark.prove
def test_each_command_with_an_outcome_prints_it_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Told
) -> None:
    monkeypatch.chdir(tmp_path)
    made = nulls.make(tmp_path / "net")
    asked = [made["model"], "--data", made["data"], "--target", made["target"], "--profile", "quick", *QUICK]
    several = [word if word != made["target"] else f"{word},other.toml" for word in asked]
    Path("other.toml").write_text(nulls.TARGET)

    def said(*words: str, code: int = 0) -> str:
        assert main.main([*words, "--quiet"]) == code
        (line,) = capsys.readouterr().out.splitlines()
        return line

    assert said("plan", *asked).startswith("null: about ")
    assert said("plan", *several).count("when nothing is stored") == 2
    assert said("deploy", *asked, "--out", "out").startswith("plain")
    assert said("deploy", *asked, "--out", "lost", "--set", "limits.size_bytes=1", code=1)
    assert said("deploy", *several, "--out", "two").count(": shipped: ") == 2
    assert said("report", "out").startswith("plain")
    assert said("verify", "out") == "equal to its source within the limits"
    assert said("profile", "out", "--profile", "quick", *QUICK)
    assert said("compare", "out", "out").startswith("out (2) against out (1): no change")
    gates = said("compare", "out", "out", "--fail-if=size_bytes > 1.1x", "--fail-if=size_bytes > 1", code=1)
    assert gates.startswith("FAIL: size_bytes > 1: broken: ") and "; size_bytes > 1.1x: kept: " in gates
    package = said("package", "out")
    assert Path(package).is_file()
    assert said("package", "verify", package) == f"{package}: no check failed"
    assert said("init", "mine", "--kind", "target") == "targets/mine.toml"


def test_a_list_stays_whole(capsys: Told) -> None:
    assert main.main(["targets"]) == 0
    every = capsys.readouterr().out
    assert main.main(["targets", "--quiet"]) == 0
    assert capsys.readouterr().out == every


def test_the_outcome_of_gates_begins_with_the_worst() -> None:
    verdicts = tuple(reporting.GateVerdict("g", "new", ended, "1") for ended in reversed(reporting.VERDICTS))
    said = compare_output.outcome(reporting.ReportComparison((), (), (), (), verdicts))
    assert said.startswith("FAIL: ")
    assert [clause.split(": ")[1] for clause in said.removeprefix("FAIL: ").split("; ")] == list(reporting.VERDICTS)
