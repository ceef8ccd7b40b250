"""What the pages say of installing: from a checkout or a wheel, with extras that exist; what `make test` runs."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from edgecompress.core import package_files

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PAGES = [
    *(
        ROOT / name
        for name in ("README.md", "CONTRIBUTING.md", "examples/ci/README.md", "examples/ci/edgecompress.yml")
    ),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "examples").rglob("*.ipynb")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_no_page_installs_edgecompress_from_an_index_that_does_not_have_it(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"pip install\s+['\"]?edgecompress\[", text) == []
    for version, extras in re.findall(r"edgecompress-([\d.]+)-py3-none-any\.whl\[([\w,-]+)\]", text):
        assert version == PROJECT["version"] and set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    for option, extras in re.findall(r"pip install +(-\S+ +)?['\"]?\.(?:\[([\w,-]+)\]|(?=['\"`\s]))", text):
        assert option.strip() in ("-e", "--editable"), "a copy takes the place of the checkout's own files"
        assert set(filter(None, extras.split(","))) <= set(PROJECT["optional-dependencies"])


def test_only_one_place_says_how_an_extra_is_installed() -> None:
    files = [file for file in (ROOT / "edgecompress").rglob("*.py") if "'edgecompress[" in file.read_text("utf-8")]
    assert files == [Path(package_files.__file__)]


def test_an_extra_is_installed_into_the_checkout_that_runs_or_into_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert package_files.install("onnx,openvino") == f"pip install -e {shlex.quote(f'{ROOT}[onnx,openvino]')}"
    for folder, file in (("site-packages", "pyproject.toml"), ("zipped", "README")):  # some wheels leave one there
        (tmp_path / folder).mkdir()
        (tmp_path / folder / file).touch()
        monkeypatch.setattr(package_files, "PACKAGE", tmp_path / folder / "edgecompress")
        assert package_files.install("onnx") == "pip install 'edgecompress[onnx]'"


def test_the_extras_that_the_docs_name_for_each_kind_of_model_exist() -> None:
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    section = text.partition("### What to install\n")[2].partition("\n### ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("|")][2:]
    named = {e for _, cell in rows for quoted in re.findall(r"`([\w,-]+)`", cell) for e in quoted.split(",")}
    assert named == {"onnx", "torch", "litert", "tensorflow", "images", "transformers"}
    assert named <= set(PROJECT["optional-dependencies"])
    models = " ".join(model for model, _ in rows)
    assert all(suffix in models for suffix in (".onnx", ".pt2", ".tflite", ".keras", "SavedModel", "pkg.mod:fn"))


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_what_make_test_leaves_out_is_said_to_be_the_business_of_make_prove(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    assert "short form" in text and "make prove" in text


def test_the_readme_names_what_belongs_into_gitignore() -> None:
    assert re.search(
        r"`\.edgecompress/` and `dist/`[^.]*`\.gitignore`", (ROOT / "README.md").read_text(encoding="utf-8")
    )
