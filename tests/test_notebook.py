"""The notebook of the examples runs offline from its first cell to its last, in one `__main__`, as a kernel has it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nulls
import pytest

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "notebook" / "digits.ipynb"
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


@pytest.mark.slow
@pytest.mark.prove
def test_every_cell_runs_and_shows_what_it_should(tmp_path: Path) -> None:
    cells = [c for c in json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code"]
    assert not any(cell["outputs"] or cell["execution_count"] for cell in cells)
    sources = ["".join(cell["source"]) for cell in cells]
    assert 'profile="quick"' in sources[1]
    sources[1] = sources[1].replace('profile="quick"', f'profile="quick", settings={nulls.FAST}')
    done = subprocess.run(
        [sys.executable, "-c", KERNEL],
        input=json.dumps(sources),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "EDGECOMPRESS_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    result, page, accuracy, sentence, error, package = done.stdout.strip().splitlines()
    assert result.startswith("Result(exit_code=0, ")
    assert page.startswith("<iframe srcdoc=")
    assert float(accuracy) > 0.9
    assert " ships: " in sentence and "500 items" in sentence
    assert "x87" in error and "did you mean 'x86'?" in error
    assert "x86.tar.gz" in package
