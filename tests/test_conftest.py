"""CI skips nothing it promised: a skip under a required marker is a failure, and elsewhere stays a skip."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

INNER = """
import pytest
@pytest.mark.shared
def test_needs_data(shared_data): pass
@pytest.mark.browser
def test_skips_itself(): pytest.skip("not today")
@pytest.mark.shared
@pytest.mark.xfail(reason="known")
def test_known(): assert False
def test_plain(): pytest.skip("never required")
"""
MARKERS = "[pytest]\nmarkers =\n    shared: data\n    browser: chromium\n"


@pytest.mark.parametrize(
    ("required", "counts"),
    [("", "4 skipped"), ("browser", "1 failed, 3 skipped"), ("shared,browser", "1 failed, 1 skipped, 2 errors")],
)
def test_a_required_marker_turns_skips_into_failures(tmp_path: Path, required: str, counts: str) -> None:
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_inner.py").write_text(INNER)
    (tmp_path / "pytest.ini").write_text(MARKERS)
    env = {**os.environ, "EDGECOMPRESS_SHARED": str(tmp_path / "none"), "EDGECOMPRESS_REQUIRE": required}
    env["PYTHONPATH"] = str(Path(__file__).parent)  # what conftest.py imports
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:anyio", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().splitlines()[-1].startswith(counts), done.stdout
    assert ("EDGECOMPRESS_REQUIRE" in done.stdout) is bool(required)
