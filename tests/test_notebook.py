"""The notebooks of the examples run offline from first cell to last, in one `__main__`, as a kernel has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import nulls
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
KERNEL = """
import ast, json, sys
for source in json.load(sys.stdin):
    cell = ast.parse(source)
    last = cell.body.pop() if isinstance(cell.body[-1], ast.Expr) else None
    exec(compile(cell, "<cell>", "exec"))
    if last:
        shown = eval(compile(ast.Expression(last.value), "<cell>", "eval"))
        if shown is not None:
            print(shown._repr_html_()[:20] if hasattr(shown, "_repr_html_") else repr(shown))
"""


def lines(notebook: Path, folder: Path) -> list[str]:
    """What the cells of a notebook print in a folder, where the one that deploys measures as little as it can."""
    cells = [c for c in json.loads(notebook.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    sources = ["".join(cell["source"]) for cell in cells]
    assert 'profile="quick"' in sources[1]
    sources[1] = sources[1].replace('profile="quick"', f'profile="quick", settings={nulls.FAST}')
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(sources),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "EDGECOMPRESS_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()


@pytest.mark.slow
@pytest.mark.prove
def test_every_cell_runs_and_shows_what_it_should(tmp_path: Path) -> None:
    told = lines(EXAMPLES / "notebook" / "digits.ipynb", tmp_path)
    result, page, accuracy, sentence, error, package = told
    assert result.startswith("Result(exit_code=0, ")
    assert page.startswith("<iframe srcdoc=")
    assert float(accuracy) > 0.9
    assert " ships: " in sentence and "500 items" in sentence
    assert "x87" in error and "did you mean 'x86'?" in error
    assert "x86.tar.gz" in package


@pytest.mark.slow
@pytest.mark.prove
def test_the_detector_finds_things_in_a_picture(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "detector", tmp_path / "detector")
    picture, result, page, *found, drawn = lines(EXAMPLES / "detector" / "detector.ipynb", tmp_path / "detector")
    assert "size=128x96" in picture and "size=128x96" in drawn
    assert result.startswith("Result(exit_code=0, ") and page.startswith("<iframe srcdoc=")
    assert found and all(line.split()[0] in ("circle", "square", "triangle") for line in found)
