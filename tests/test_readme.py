"""The README and the tutorial are true: their commands run in a fresh clone, and so does their Python."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import nulls
import prove
import pytest

from edgecompress.cli import main

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
QUICK = ["--profile=quick", *(f"--set={key}={value}" for key, value in nulls.FAST.items())]
MORE = {
    **dict.fromkeys(("plan", "deploy", "guard", "verify", "profile"), QUICK),
    "search": [*QUICK, "--trials=1"],
    "package": ["--set=wheels=false"],  # they would be fetched
}


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def commands(*texts: str) -> list[list[str]]:
    """The commands of code blocks, in their order, without the name of the program."""
    lines = [shlex.split(line, comments=True) for text in texts for line in text.splitlines()]
    return [words[1:] for words in lines if words]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A fresh clone, with what is changed here and not committed yet; nothing lies beside it."""
    folder = tmp_path / "apart" / "clone"
    git = ["git", "-C", str(ROOT)]
    if subprocess.run([*git, "rev-parse"], capture_output=True).returncode:
        pytest.skip("not a git checkout")
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    changed = subprocess.run([*git, "diff", "HEAD", "--name-only"], capture_output=True, text=True, check=True).stdout
    for name in filter(lambda name: (ROOT / name).is_file(), changed.splitlines()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    return folder


def run(words: list[str], folder: Path, package: Path) -> None:
    """A command by the package of a clone; real data is not found, nor is anything fetched."""
    env = {name: value for name, value in os.environ.items() if name != "EDGECOMPRESS_SHARED"}
    command = [sys.executable, "-m", "edgecompress", *words, *MORE.get(words[0], ())]
    env |= {"PYTHONPATH": str(package), "EDGECOMPRESS_OFFLINE": "1"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    assert done.stdout


def test_the_commands_of_the_readme_run_one_after_the_other(
    tmp_path: Path, shared_store: Path, request: pytest.FixtureRequest
) -> None:
    """In the short form by the package that has filled the store: a clone would build all of it again."""
    package = request.getfixturevalue("clone") if prove.WHOLE else ROOT
    listed = commands(next(b for b in blocks("README.md", "sh") if "edgecompress report dist/x86" in b))
    assert len(listed) >= 8
    shared_store.mkdir(exist_ok=True)
    (tmp_path / ".edgecompress").symlink_to(shared_store)
    for words in listed if prove.WHOLE else of_few(listed, "int8,fp32"):
        run(words, tmp_path, package)


def test_the_commands_of_the_tutorial_run_one_after_the_other(clone: Path) -> None:
    """In the short form those that build nothing: what the others do to the demo is above."""
    listed = commands(*blocks("docs/tutorial.md", "sh"))
    assert {words[0] for words in listed} >= {"plan", "deploy", "verify", "profile", "package"}
    for words in listed:
        main.parser().parse_args(words)
        if prove.WHOLE or words[0] in ("plan", "techniques"):
            run(words, clone, clone)


def of_few(listed: list[list[str]], only: str) -> list[list[str]]:
    """Plans and deploys with a few variants, and what has a file of tests of its own left out."""
    short = [words for words in listed if words[0] not in ("search", "guard")]
    return [[*words, *([f"--only={only}"] if words[0] in ("plan", "deploy") else [])] for words in short]


def test_the_python_of_the_tutorial_is_that_of_its_example() -> None:
    (shown,) = blocks("docs/tutorial.md", "python")
    written = (ROOT / "examples" / "shapes" / "net.py").read_text(encoding="utf-8")
    assert [part for part in shown.strip().split("\n\n\n") if part not in written] == []
    (table,) = blocks("docs/tutorial.md", "toml")
    written = (ROOT / "examples" / "shapes" / "source.toml").read_text(encoding="utf-8")
    assert [line for line in table.splitlines() if line not in written.splitlines()] == []


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    made = nulls.make(tmp_path)
    block = blocks("README.md", "python")[0]
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
