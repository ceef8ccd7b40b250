"""The README is true: its commands and its Python are run, on the embedded demo, with short measurements."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import nulls
import pytest

pytestmark = pytest.mark.slow
README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")
QUICK = ["--profile=quick", *(f"--set={key}={value}" for key, value in nulls.FAST.items())]


def blocks(language: str) -> list[str]:
    """The code blocks of the README in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands() -> list[list[str]]:
    """The commands that take the demo through, in the README's order."""
    block = next(b for b in blocks("sh") if "edgecompress report dist/x86" in b)
    return [shlex.split(line, comments=True)[1:] for line in block.splitlines()]


def test_the_commands_of_the_readme_run_one_after_the_other(tmp_path: Path, shared_store: Path) -> None:
    assert len(commands()) >= 8
    shared_store.mkdir(exist_ok=True)
    (tmp_path / ".edgecompress").symlink_to(shared_store)
    for words in commands():
        measures = words[0] in ("plan", "deploy", "guard", "verify", "profile")
        done = subprocess.run(
            [sys.executable, "-m", "edgecompress.cli.main", *words, *(QUICK if measures else [])],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
        assert done.stdout


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    made = nulls.make(tmp_path)
    block = blocks("python")[0]
    for shown, ours in (
        ('"my_pkg.nets:build"', made["model"]),
        ('"x86"', made["target"]),
        ('"my_pkg.nets:data"', made["data"]),
    ):
        assert shown in block
        block = block.replace(shown, repr(ours))
    done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("0 plain")
