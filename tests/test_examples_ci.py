"""The example for CI: its gate is run, on null nets, and its workflow refers to what exists and parses."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nulls
import prove
import pytest
import yaml
from packaging.requirements import Requirement

from edgecompress.cli import main
from edgecompress.core import errors
from edgecompress.pipeline import store_place
from edgecompress.reporting import gates
from edgecompress.reporting.compare import BY_NAME, DROP

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "ci"
SCRIPT = (EXAMPLE / "gate.sh").read_text(encoding="utf-8")
NAMES = ("MODEL", "DATA", "TARGET", "METRIC", "BASELINE", "STORE", "OUT")  # each one word of a command
SESSIONS = {"profile.sessions": 6 if prove.WHOLE else 2}  # six decide about a latency
QUICK = " ".join(f"--set {key}={value}" for key, value in {**nulls.FAST, **SESSIONS}.items())
MEASURE = f"--profile quick {QUICK}"
GOOD = {"sleep_ms": 1.0, "scale": -1.0}  # right on 45 % of the items
SLOWER = {"sleep_ms": 3.0, "scale": -1.0}
LESS_ACCURATE = {"sleep_ms": 1.0}  # right on 25 %
slow = pytest.mark.slow


@dataclass(frozen=True)
class Checkout:
    """A repository that has copied the example."""

    root: Path
    env: dict[str, str]

    def gate(self, **env: str) -> subprocess.CompletedProcess[str]:
        """Runs gate.sh as a stranger would."""
        return self.sh("sh ci/gate.sh", env)

    def sh(self, command: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Runs a step's command as GitHub does."""
        shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", command]
        around = {**os.environ, **self.env, **env}
        return subprocess.run(shell, cwd=self.root, env=around, capture_output=True, text=True, timeout=300)

    def holds(self, *names: str) -> bool:
        """Whether all of these files exist and none is empty."""
        files = [self.root / name for name in names]
        return all(file.is_file() and file.stat().st_size for file in files)


def checkout(folder: Path, **net: float) -> Checkout:
    """With the example's script, a net and its data, and `edgecompress` on the PATH."""
    nulls.make(folder, **net)
    for place in ("bin", "ci"):
        (folder / place).mkdir()
    shutil.copy(EXAMPLE / "gate.sh", folder / "ci")
    command = folder / "bin" / "edgecompress"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m edgecompress.cli.main "$@"\n')
    command.chmod(0o755)
    env = {"MODEL": "net.null", "DATA": "data", "TARGET": "null.toml", "MEASURE": MEASURE}
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return Checkout(folder, {**env, "PATH": path, "GITHUB_STEP_SUMMARY": str(folder / "summary.md")})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Checkout:
    """A repository whose first run has stored a baseline."""
    made = checkout(tmp_path_factory.mktemp("repository"), **GOOD)
    first = made.gate()
    assert first.returncode == 0, first.stdout + first.stderr
    assert "no baseline yet: nothing was compared" in first.stdout
    assert made.holds("baseline/report.json", "dist/model/report.html")
    return made


# --------------------------------------------------------------------------- the script


@slow
@pytest.mark.prove
def test_a_second_run_of_the_same_model_keeps_the_gates_and_leaves_the_baseline(kept: Checkout) -> None:
    nulls.make(kept.root, **GOOD)
    before = (kept.root / "baseline" / "report.json").stat().st_ino
    second = kept.gate()
    assert second.returncode in (0, 4), second.stdout + second.stderr  # 4: the machine was busy meanwhile
    assert second.stdout.count(": kept: dist/model ") + second.stdout.count(": undecided: dist/model ") == 3
    assert "accuracy_drop > 0.01: kept: dist/model 0 " in second.stdout  # the same bytes
    assert kept.holds("dist/model/report.html", "dist/comparison.html", "dist/comparison.txt")
    assert (kept.root / "dist" / "comparison.txt").read_text() in (kept.root / "summary.md").read_text()
    assert (kept.root / "baseline" / "report.json").stat().st_ino == before


@pytest.mark.prove
@slow
@pytest.mark.parametrize(
    ("gate", "net"),
    [
        ("latency_ms > 1.10x", SLOWER),
        ("accuracy < 0.42", LESS_ACCURATE),  # 25 % of 40 items: at most 41.2 % of all
    ],
)
def test_a_worse_model_breaks_its_gate_and_both_reports_are_still_there(
    kept: Checkout, gate: str, net: dict[str, float]
) -> None:
    nulls.make(kept.root, **net)
    worse = kept.gate(UPDATE="1", GATES=gate)
    assert worse.returncode == 1, worse.stdout + worse.stderr
    assert f"{gate}: broken: dist/model" in worse.stdout
    assert "is now this result" not in worse.stdout
    assert kept.holds("dist/model/report.html", "dist/comparison.html")


@slow
@pytest.mark.prove
def test_a_gate_that_few_items_leave_undecided_is_a_warning_of_the_workflow_and_fails_where_strict(
    kept: Checkout,
) -> None:
    nulls.make(kept.root, **LESS_ACCURATE)
    asked = {"GATES": "accuracy_drop > 0.01", "UPDATE": "1", "GITHUB_ACTIONS": "true"}
    before = (kept.root / "baseline" / "report.json").stat().st_ino
    done = kept.sh(step("Deploy and compare")["run"], {**kept.env, **asked})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "accuracy_drop > 0.01: undecided: dist/model 0.2 [" in done.stdout
    assert "\n::warning::gate.sh: undecided" in done.stdout and "items would decide (there are 40)" in done.stdout
    assert (kept.root / "baseline" / "report.json").stat().st_ino == before
    inside = f"{MEASURE} --set limits.items_lost=4"
    strict = kept.gate(**asked, STRICT="1", MEASURE=inside)
    assert strict.returncode == 1 and "broken" in strict.stdout, strict.stdout + strict.stderr


@pytest.mark.prove
@slow
def test_a_worse_model_that_is_accepted_becomes_the_baseline(kept: Checkout) -> None:
    nulls.make(kept.root, **LESS_ACCURATE)
    baseline = shutil.copytree(kept.root / "baseline", kept.root / "accepted")
    accepted = kept.gate(ACCEPT="1", BASELINE="accepted", GATES="accuracy_drop > 0.01")
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    assert "accuracy_drop > 0.01: undecided" in accepted.stdout
    shipped = kept.root / "dist" / "model" / "report.json"
    assert (baseline / "report.json").read_bytes() == shipped.read_bytes()


@pytest.mark.prove
@slow
@pytest.mark.parametrize("spelt", ["named//", "link"])
def test_a_baseline_is_replaced_by_renaming_however_it_is_spelt(kept: Checkout, spelt: str) -> None:
    nulls.make(kept.root, **GOOD)
    baseline = shutil.copytree(kept.root / "baseline", kept.root / "named", dirs_exist_ok=True)
    before = (baseline / "report.json").stat().st_ino
    if spelt == "link" and not (kept.root / "link").is_symlink():
        (kept.root / "link").symlink_to("named")
    second = kept.gate(BASELINE=spelt, UPDATE="1", GATES="size_bytes > 1.02x")
    assert second.returncode == 0, second.stdout + second.stderr
    assert f"baseline: {spelt.rstrip('/')} is now this result" in second.stdout
    assert (baseline / "report.json").stat().st_ino != before
    assert not list(kept.root.glob("*.new")) + list(kept.root.glob("*.old")) + list(baseline.glob(".*"))


@pytest.mark.prove
@slow
def test_a_baseline_that_an_interrupted_run_had_moved_away_is_found_again(kept: Checkout) -> None:
    nulls.make(kept.root, **GOOD)
    shutil.copytree(kept.root / "baseline", kept.root / "moved.old")
    second = kept.gate(BASELINE="moved", GATES="size_bytes > 1.02x")
    assert second.returncode == 0 and "size_bytes > 1.02x: kept" in second.stdout, second.stdout + second.stderr
    assert kept.holds("moved/report.json") and not (kept.root / "moved.old").exists()


@pytest.mark.prove
@slow
def test_a_log_has_a_line_per_phase_as_it_ends(kept: Checkout) -> None:
    nulls.make(kept.root, **GOOD)
    log = kept.gate(GATES="size_bytes > 1.02x").stdout
    phases = [re.search(rf"^{phase}  ", log, re.MULTILINE) for phase in ("source", "building", "racing")]
    ends = [found.start() if found else -1 for found in phases]
    assert -1 < ends[0] < ends[1] < ends[2] < log.index("size_bytes > 1.02x: kept")


@slow
@pytest.mark.prove
def test_a_comparison_that_fails_names_no_page_that_does_not_exist(kept: Checkout) -> None:
    nulls.make(kept.root, **GOOD)
    shutil.copytree(kept.root / "baseline", kept.root / "empty")
    for file in (kept.root / "empty" / "artifact").iterdir():
        file.unlink()
    failed = kept.gate(BASELINE="empty")
    assert failed.returncode in (2, 3), failed.stdout + failed.stderr
    assert "report: dist/model/report.html\n" in failed.stdout


@slow
@pytest.mark.parametrize(
    ("env", "says"),
    [
        (
            {"MEASURE": f"{MEASURE} --only plain"},
            "compare does not take it: unrecognized arguments: --only",
        ),
        ({"COMPARE": "--across-nets"}, "compare does not take it: unrecognized arguments: --across-nets"),
        ({"GATES": "latency > 1.1x"}, "no metric 'latency'"),
        ({"GATES": "-latency > 1.1x"}, "gate.sh: GATES: "),
        ({"BASELINE": "data"}, "data: no report.json here"),
    ],
    ids=str,
)
def test_what_compare_would_refuse_is_refused_before_the_deploy(kept: Checkout, env: dict[str, str], says: str) -> None:
    failed = kept.gate(**env)
    assert failed.returncode == 2 and says in failed.stderr, failed.stdout + failed.stderr
    assert failed.stdout == ""


@pytest.mark.prove
@slow
def test_a_model_of_another_name_is_compared_where_that_is_asked_for(kept: Checkout) -> None:
    nulls.make(kept.root, sleep_ms=0.9, scale=-1.0)
    (kept.root / "net.null").rename(kept.root / "other.null")
    refused = kept.gate(MODEL="other.null")
    assert refused.returncode == 2 and "--across-models" in refused.stderr, refused.stdout + refused.stderr
    asked = kept.gate(MODEL="other.null", COMPARE="--across-models", GATES="size_bytes > 1.02x")
    assert asked.returncode == 0, asked.stdout + asked.stderr


@pytest.mark.prove
@slow
def test_a_wrong_gate_of_the_first_run_makes_no_baseline(tmp_path: Path) -> None:
    made = checkout(tmp_path / "repository")
    failed = made.gate(GATES="latency > 1.1x")
    assert failed.returncode == 2 and "no metric 'latency'" in failed.stderr, failed.stdout + failed.stderr
    assert failed.stdout == "" and not (made.root / "baseline").exists()


@pytest.mark.prove
@slow
def test_a_gate_that_cannot_be_judged_is_neither_kept_nor_broken(kept: Checkout) -> None:
    nulls.make(kept.root, **GOOD)
    asked = kept.gate(GATES="instructions > 1.05x")
    assert asked.returncode == 2, asked.stdout + asked.stderr
    assert "not judged" in asked.stdout


@slow
def test_a_deploy_of_which_nothing_ships_ends_with_its_exit_code_and_its_report(tmp_path: Path) -> None:
    made = checkout(tmp_path / "repository")
    failed = made.gate(MEASURE=f"{MEASURE} --set limits.cosine=2")
    assert failed.returncode == 1, failed.stdout + failed.stderr
    assert "Nothing ships" in failed.stdout
    assert made.holds("dist/report.html")
    assert not (made.root / "baseline").exists()


@pytest.mark.parametrize("env", [{"MODEL": "nothing.null"}, {"MODEL": ""}, {"DATA": ""}], ids=str)
def test_bad_input_ends_with_its_exit_code_and_makes_no_baseline(tmp_path: Path, env: dict[str, str]) -> None:
    made = checkout(tmp_path / "repository")
    failed = made.gate(**env)
    assert failed.returncode == 2, failed.stdout + failed.stderr
    assert "nothing.null" in failed.stderr or "set MODEL and DATA" in failed.stderr
    assert not (made.root / "baseline").exists()


@pytest.mark.parametrize(
    ("env", "says"),
    [
        ({"GATES": "\n"}, "GATES is empty"),
        ({"GATES": " \n\t\n"}, "GATES is empty"),
        *(({name: "-x"}, f"gate.sh: {name}=-x begins with '-'") for name in NAMES),
        ({"BASELINE": "dist/model"}, "is in OUT=dist"),
        ({"BASELINE": "dist/model/"}, "is in OUT=dist"),
        ({"BASELINE": "./dist/../dist/kept"}, "is in OUT=dist"),
        ({"BASELINE": "dist"}, "is in OUT=dist"),
        ({"BASELINE": "shipped"}, "is in OUT=dist"),
        ({"BASELINE": "."}, "is in BASELINE=."),
        ({"BASELINE": "dangling"}, "BASELINE=dangling is a link to nothing"),
        ({"BASELINE": "dangling/"}, "BASELINE=dangling is a link to nothing"),
        ({"OUT": "mine"}, "mine/model is not of a deploy"),
    ],
    ids=str,
)
def test_folders_and_gates_that_would_hide_a_regression_or_lose_files_are_refused(
    tmp_path: Path, env: dict[str, str], says: str
) -> None:
    made = checkout(tmp_path / "repository")
    for own in ("dist/model/report.json", "mine/model/weights"):
        (made.root / own).parent.mkdir(parents=True)
        (made.root / own).write_text("{}")
    (made.root / "shipped").symlink_to("dist/model")
    (made.root / "dangling").symlink_to("nowhere")
    failed = made.gate(**env)
    assert failed.returncode == 2 and says in failed.stderr, failed.stdout + failed.stderr
    assert made.holds("dist/model/report.json", "mine/model/weights")


# --------------------------------------------------------------------------- the workflow


def workflow() -> dict[Any, Any]:
    """The workflow; `on` is True in YAML 1.1."""
    read: dict[Any, Any] = yaml.safe_load((EXAMPLE / "edgecompress.yml").read_text(encoding="utf-8"))
    return read


def steps() -> list[dict[str, Any]]:
    """What its one job does."""
    (job,) = workflow()["jobs"].values()
    found: list[dict[str, Any]] = job["steps"]
    return found


def step(name: str) -> dict[str, Any]:
    """The step of this name."""
    return next(s for s in steps() if s.get("name") == name)


def commands() -> list[dict[str, Any]]:
    """The steps that run something, but for the install."""
    return [s for s in steps() if "run" in s and not s["run"].startswith("pip install ")]


def default(variable: str) -> str:
    """What gate.sh takes where a variable is not set."""
    match = re.search(rf"^{variable}=\${{{variable}:-(.*?)}}", SCRIPT, re.MULTILINE | re.DOTALL)
    assert match, f"gate.sh does not read {variable}"
    return match[1]


def on_main(value: str) -> str:
    """An expression of GitHub as it is evaluated for a push to main."""
    values = {"github.ref == 'refs/heads/main' && '1' || ''": "1", "inputs.accept && '1' || ''": ""}
    return re.sub(r"\${{ (.*?) }}", lambda match: values[match[1]], value)


@slow
def test_the_steps_of_the_workflow_run_one_after_the_other(tmp_path: Path) -> None:
    made = checkout(tmp_path / "repository")
    assert len(commands()) == 2
    for each in commands():
        env = {key: on_main(value) for key, value in each.get("env", {}).items()}
        done = made.sh(each["run"], {**env, **made.env})
        assert done.returncode == 0, f"{each['run']}: {done.stdout}{done.stderr}"
    saved = {s["with"]["path"] for s in steps() if s.get("uses", "").startswith(("actions/cache/", "actions/upload"))}
    assert saved == {".edgecompress", "baseline", "dist/"}
    assert all((made.root / path).is_dir() for path in saved)


def test_the_actions_of_the_workflow_are_pinned_by_their_major_version() -> None:
    assert all(re.fullmatch(r"actions/[\w/-]+@v\d+", s["uses"]) for s in steps() if "uses" in s)
    assert set(workflow()[True]) == {"push", "pull_request", "workflow_dispatch"}


def test_the_workflow_installs_extras_that_exist_and_bring_no_torch() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert step("Install")["run"] == 'pip install "$EDGECOMPRESS"'
    installed = re.fullmatch(r"\./ci/(\w+)-([\d.]+)-py3-none-any\.whl\[([\w,-]+)\]", workflow()["env"]["EDGECOMPRESS"])
    assert installed and installed.groups()[:2] == (project["name"], project["version"])
    asked = [Requirement(r) for extra in installed[3].split(",") for r in project["optional-dependencies"][extra]]
    assert asked and not any(r.name in ("torch", project["name"]) for r in asked)
    (python,) = (s["with"]["python-version"] for s in steps() if s.get("uses", "").startswith("actions/setup-python@"))
    assert python in project["requires-python"]


def test_the_workflow_sets_only_what_the_script_reads_and_its_flags_parse() -> None:
    env = step("Deploy and compare")["env"]
    for variable in env:
        default(variable)
    flags, parser = shlex.split(env["MEASURE"]), main.parser()
    for words in (["deploy", env["MODEL"], "--data", env["DATA"]], ["compare", "baseline", "dist/model"]):
        assert parser.parse_args([*words, *flags]).profile == "standard"
    assert [gates.read(line, BY_NAME, [DROP]).text for line in env["GATES"].splitlines()] == default(
        "GATES"
    ).splitlines()


def test_the_commands_of_the_workflow_and_the_files_they_run_exist() -> None:
    for each in commands():
        program, *words = shlex.split(each["run"])
        if program == "edgecompress":
            main.parser().parse_args(words)
        else:
            assert program == "sh" and (EXAMPLE.parent / words[0]).is_file()
            assert words[1:] == ["||", "[", "$?", "-eq", str(errors.UNDECIDED), "]"]


def test_the_folders_of_the_workflow_are_those_of_the_script_and_of_the_commands() -> None:
    assert step("Save the store")["with"]["path"] == default("STORE") == str(store_place.DEFAULT)
    assert f"--store {default('STORE')}" in step("Remove old results")["run"]
    assert step("Save the baseline")["with"]["path"] == default("BASELINE")
    assert step("Upload the report")["with"]["path"].rstrip("/") == default("OUT")
    for name in ("store", "baseline"):
        saved, restored = (step(f"{verb} the {name}")["with"] for verb in ("Save", "Restore"))
        assert saved["path"] == restored["path"]
        assert saved["key"].startswith(restored["restore-keys"])


def test_the_report_is_uploaded_when_the_gate_fails_and_only_main_moves_the_baseline() -> None:
    assert step("Upload the report")["if"] == "always()"
    assert step("Save the baseline")["if"] == "github.ref == 'refs/heads/main'"
    order = [s.get("name") for s in steps()]
    assert order.index("Restore the baseline") < order.index("Deploy and compare") < order.index("Save the baseline")


def test_the_readme_names_every_variable_of_the_script() -> None:
    readme = (EXAMPLE / "README.md").read_text(encoding="utf-8")
    assert len(readme.splitlines()) <= 40
    for variable in re.findall(r"^([A-Z]+)=\${\1:-", SCRIPT, re.MULTILINE):
        assert re.search(rf"`{variable}`", readme), variable
