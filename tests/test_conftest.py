"""CI skips nothing it promised: a skip under a required marker is a failure, elsewhere it is told how to run it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

INNER = """
import pytest
@pytest.mark.shared
def test_needs_data(shared_data): pass
@pytest.mark.browser
def test_skips_itself(): pytest.skip("not today")
@pytest.mark.shared
@pytest.mark.xfail(reason="known")
def test_known(): assert False
def test_plain(): pytest.skip("a tool is not installed")
def test_elsewhere(): pytest.skip("there is no GPU")
"""
WHOLE = 'import pytest\npytest.importorskip("no_such_library")\ndef test_hidden(): pass\n'
MISSING = """
import pytest
@pytest.mark.shared
def test_needs_data(shared_data): pass
def test_a(): pytest.skip("two not installed (Debian: apt-get install two one)")
def test_b(): pytest.skip("no three: apt-get install three one")
def test_c(): pytest.skip("not built: run `make machine`")
def test_d(): pytest.skip("there is no GPU")
"""
MARKERS = "[pytest]\nmarkers =\n    shared: data\n    browser: chromium\n"


def ran(folder: Path, required: str, text: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A run of pytest, with our conftest.py, on a file of its own."""
    shutil.copy(Path(__file__).with_name("conftest.py"), folder)
    (folder / "test_inner.py").write_text(text)
    (folder / "pytest.ini").write_text(MARKERS)
    env = {**os.environ, "EDGECOMPRESS_SHARED": str(folder / "none"), "EDGECOMPRESS_REQUIRE": required}
    env["PYTHONPATH"] = str(Path(__file__).parent)  # what conftest.py imports
    env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    for name in ("chromium", "chromedriver"):  # found on any machine, and never started
        (tools / name).write_text("#!/bin/sh\n")
        (tools / name).chmod(0o755)
    env["PATH"] = f"{tools}{os.pathsep}{env.get('PATH', '')}"
    plain = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "xdist",
        f"--basetemp={folder / 'tmp'}",
    ]  # pytest clears its own: slow
    command = [sys.executable, "-m", "pytest", *plain, *options, str(folder)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    ("required", "counts"),
    [
        ("", "5 skipped"),
        ("browser", "2 failed, 3 skipped"),  # the two that need data, and the one that no CI runs
        ("shared, browser", "2 failed, 1 skipped, 2 errors"),
    ],
)
def test_where_something_is_required_a_skip_is_a_failure(tmp_path: Path, required: str, counts: str) -> None:
    done = ran(tmp_path, required, INNER)
    assert done.stdout.strip().splitlines()[-1].startswith(counts), done.stdout
    assert ("EDGECOMPRESS_REQUIRE" in done.stdout) is bool(required)


def test_a_file_that_skips_itself_whole_is_a_failure(tmp_path: Path) -> None:
    done = ran(tmp_path, "browser", WHOLE)
    assert done.returncode == 2 and "no_such_library" in done.stdout, done.stdout
    assert ran(tmp_path, "browser", WHOLE + INNER, "-n", "1").returncode == 1
    assert ran(tmp_path, "", WHOLE).returncode == 5  # pytest's code for no tests


def test_a_name_that_is_no_marker_is_refused(tmp_path: Path) -> None:
    done = ran(tmp_path, "browser,shraed", INNER)
    assert done.returncode == 4 and "shraed: none of shared" in done.stderr, done.stderr


def test_a_run_ends_with_what_to_install_for_what_was_skipped(tmp_path: Path) -> None:
    says = "5 skipped; to run more of them: apt-get install one three two; EDGECOMPRESS_SHARED=FOLDER; make machine"
    for options in ((), ("-n", "1")):
        assert ran(tmp_path, "", MISSING, *options).stdout.strip().splitlines()[-2] == says
    assert "to run more" not in ran(tmp_path, "", "def test_passes(): pass").stdout
