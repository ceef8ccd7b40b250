"""Without the folder of packages for apps: all else goes on, and what is lost is told in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import nulls
import pytest

from edgecompress.core.package_files import PACKAGE

CLI = ("-m", "edgecompress")
LOST = "the extra 'apps' is not here; install edgecompress whole: pip install --force-reinstall edgecompress"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package that lacks the extra, and with the shipped files that it reads."""
    folder = tmp_path_factory.mktemp("without")
    shutil.copytree(PACKAGE, folder / PACKAGE.name, ignore=shutil.ignore_patterns("__pycache__", "apps"))
    for kind in ("targets", "devices", "profiles"):
        if not (PACKAGE / kind).exists():
            shutil.copytree(PACKAGE.parent / kind, folder / kind)
    return folder


def run(place: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python finds a package in its working folder first, and its workers one on PYTHONPATH."""
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120)


@pytest.mark.parametrize("arguments", ["package dist/x86", "package verify a.zip", "pack a.tflite", "unpack a.packed"])
def test_its_commands_say_in_one_line_what_to_install(place: Path, arguments: str) -> None:
    command = arguments.split()[0]
    done = run(place, *CLI, *arguments.split())
    assert done.returncode == 2
    assert done.stderr == f"edgecompress: error: {command}: {LOST} (see edgecompress --help)\n"


def test_its_name_for_python_says_the_same(place: Path) -> None:
    code = (
        "import edgecompress\ntry:\n    edgecompress.package\n"
        "except edgecompress.InputError as error:\n    print(error.exit_code, error)"
    )
    assert run(place, "-c", code).stdout == f"2 {LOST}\n"


def test_a_deploy_ships_and_names_no_package_as_the_next_step(place: Path, tmp_path: Path) -> None:
    made = nulls.make(tmp_path / "net")
    target = Path(made["target"])
    target.write_text('package = "tar"\n' + target.read_text(encoding="utf-8"), encoding="utf-8")
    words = ["--target", made["target"], "--data", made["data"], "--out", str(tmp_path / "out")]
    settings = [f"--set={key}={value}" for key, value in nulls.FAST.items()]
    done = run(place, *CLI, "deploy", made["model"], *words, *settings)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "deploy.json").is_file()
    assert "report.html" in done.stdout and "next:" not in done.stdout


def test_a_target_conforms_whose_packager_is_not_here(place: Path) -> None:
    done = run(place, *CLI, "conformance", "x86", "--kind", "target")
    assert done.returncode == 0 and done.stdout.splitlines()[1].split()[-1] == "yes", done.stderr
