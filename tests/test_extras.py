"""The package without one of its extras: the core goes on, and what the folder brought is refused in a line."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nulls
import pytest

from edgecompress.core import catalog, extras
from edgecompress.core.package_files import PACKAGE

pytestmark = pytest.mark.slow

NAMES = sorted(folder.name for folder in PACKAGE.glob("extras/*") if (folder / "__init__.py").is_file())
REPORT = Path(__file__).parent / "data" / "reports" / "2026-11-23-d9abe19.json.gz"
# The folder of the copy goes first, before that of an editable installation.
STAR = "from edgecompress import *; import edgecompress; print(edgecompress.__file__)"
FIRST = "import sys; from pathlib import Path; sys.path.insert(0, str(Path(__file__).parent))\n"


class Copy:
    """A copy of the package, and a folder to work in."""

    def __init__(self, folder: Path, without: tuple[str, ...]) -> None:
        self.package, self.work = folder / "package", folder / "work"
        shutil.copytree(PACKAGE, self.package / PACKAGE.name)
        for kind in catalog.KINDS:
            shutil.copytree(catalog.shipped(kind), self.package / PACKAGE.name / kind, dirs_exist_ok=True)
        for name in without:
            shutil.rmtree(self.package / PACKAGE.name / "extras" / name)
        (self.package / "sitecustomize.py").write_text(FIRST, encoding="utf-8")
        self.work.mkdir()

    def python(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A Python that imports the copy."""
        env = {**os.environ, "PYTHONPATH": str(self.package)}
        line = [sys.executable, "-P", *words]
        return subprocess.run(line, cwd=self.work, env=env, capture_output=True, text=True, timeout=120)

    def run(self, *words: str) -> str:
        """What a command prints that ends well."""
        done = self.python("-m", PACKAGE.name, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refused(self, *words: str) -> str:
        """The one line that refuses a command."""
        done = self.python("-m", PACKAGE.name, *words)
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        return line


@pytest.fixture(scope="module")
def without(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Copy]:
    """The copy without some extras; one is made of each."""

    @cache
    def copy(*names: str) -> Copy:
        return Copy(tmp_path_factory.mktemp("copy"), names)

    return copy


@pytest.mark.parametrize("name", NAMES)
def test_without_an_extra_its_commands_are_refused_and_the_core_plans_and_reports(
    name: str, without: Callable[..., Copy]
) -> None:
    copy = without(name)
    assert copy.python("-c", STAR).stdout.startswith(str(copy.package))
    listed = {line[2:].split("  ")[0] for line in copy.run("--help").splitlines() if line.startswith("  ")}
    for other, commands in extras.COMMANDS.items():
        assert (other == name) == listed.isdisjoint(commands)
    for command in extras.COMMANDS.get(name, ()):
        line = copy.refused(*command.split())
        assert f"the extra '{name}' is not here; install edgecompress whole" in line
    assert "edgecompress.demo.net:build → target x86" in copy.run("plan", "--target", "x86")
    shipped = copy.work / "shipped"
    shipped.mkdir()
    (shipped / "report.json").write_bytes(gzip.decompress(REPORT.read_bytes()))
    assert "int8 ships" in copy.run("report", str(shipped))


def test_without_any_extra_a_net_is_deployed_and_its_report_shown(without: Callable[..., Copy]) -> None:
    copy = without(*NAMES)
    made = nulls.make(copy.work / "net")
    target = Path(made["target"])
    target.write_text('package = "tar"\n' + target.read_text(encoding="utf-8"), encoding="utf-8")
    settings = [f"--set={key}={value}" for key, value in nulls.FAST.items()]
    told = copy.run(
        "deploy", made["model"], "--data", made["data"], "--target", made["target"], "--profile", "quick", *settings
    )
    assert "report.html" in told and "next:" not in told  # which would be a package
    assert "plain" in copy.run("report", "dist/null")


def test_without_its_extra_a_hugging_face_folder_is_refused(
    without: Callable[..., Copy],
) -> None:
    copy = without("hugging_face")
    (copy.work / "bert").mkdir()
    (copy.work / "bert" / "config.json").write_text("{}", encoding="utf-8")
    (copy.work / "a.tsv").write_text("text\tlabel\na film\t1\n", encoding="utf-8")
    assert extras.lacking("hugging_face") in copy.refused("plan", "bert", "--data", "a.tsv")


@pytest.mark.parametrize(("name", "function"), [("apps", "package"), ("hugging_face", "trim"), ("search", "advise")])
def test_the_function_of_an_extra_that_is_not_here_says_what_to_install_and_is_not_listed(
    name: str, function: str, without: Callable[..., Copy]
) -> None:
    asked = (
        f"import edgecompress as e\nassert '{function}' not in dir(e)\n"
        f"try: e.{function}\nexcept e.EdgeError as error: print(error.exit_code, error)"
    )
    assert without(name).python("-c", asked).stdout == f"2 {extras.lacking(name)}\n"


def test_without_packages_for_apps_a_target_conforms_whose_packager_is_not_here(without: Callable[..., Copy]) -> None:
    told = without("apps").run("conformance", "x86", "--kind", "target")
    assert told.splitlines()[1].split()[-1] == "yes"
