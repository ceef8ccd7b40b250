"""The repository against itself: what one file says of another is true."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib import util
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edgecompress import registry

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Written in two halves, so that this file does not find itself.
MACHINE_PATHS = ("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/")
INDEX_ADDRESSES = ("--index" + "-url", "--extra-index" + "-url", "pypi.org/" + "simple", "download." + "pytorch.org")


def constraints() -> dict[str, str]:
    """The pinned version of each package."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pins}


def requirements() -> list[Requirement]:
    """Everything the package and its extras ask for."""
    lists = [PROJECT["dependencies"], *EXTRAS.values()]
    return [Requirement(r) for r in sorted({r for each in lists for r in each})]


def tracked(binary: bool = False) -> list[Path]:
    """The text files of the repository, or all of them."""
    told = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if told.returncode:
        pytest.skip("not a git checkout")
    files = [ROOT / name for name in told.stdout.split("\0") if name]
    return [f for f in files if f.is_file() and (binary or b"\0" not in f.read_bytes()[:4096])]


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_a_requirement_has_a_pin_that_satisfies_it(requirement: Requirement) -> None:
    if requirement.name == PROJECT["name"]:
        assert set(requirement.extras) <= set(EXTRAS)
    else:
        assert constraints()[canonicalize_name(requirement.name)] in requirement.specifier


def test_constraints_name_versions_and_nothing_else() -> None:
    assert all(re.fullmatch(r"[\w.]+", version) for version in constraints().values())


@pytest.mark.parametrize("kind", registry.KINDS)
def test_the_extra_of_a_plugin_exists_and_installs_what_it_requires(kind: str) -> None:
    for name, module in registry.every(kind):
        extra = getattr(module, "EXTRA", "")
        if extra and (registry.ROOT / kind / f"{name}.py").exists():
            installed = {canonicalize_name(Requirement(r).name) for r in _closure(extra)}
            needed = {canonicalize_name(Requirement(r).name) for r in module.REQUIRES}
            assert needed <= installed, (
                f"{kind}/{name}: pyproject.toml's extra '{extra}' does not bring all it REQUIRES"
            )


def _closure(extra: str) -> set[str]:
    found = set(PROJECT["dependencies"])
    for requirement in EXTRAS[extra]:
        own = Requirement(requirement)
        found |= set().union(*map(_closure, own.extras)) if own.name == PROJECT["name"] else {requirement}
    return found


def test_no_file_names_a_place_on_one_machine_or_a_package_index() -> None:
    found = [
        f"{file.relative_to(ROOT)}: {bad}"
        for file in tracked()
        for bad in MACHINE_PATHS + INDEX_ADDRESSES
        if bad in file.read_text(encoding="utf-8", errors="replace")
    ]
    assert not found


def test_the_changelog_has_this_version() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## \[{re.escape(PROJECT['version'])}\] - \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE)


def test_the_package_says_the_version_of_the_project() -> None:
    import edgecompress

    assert edgecompress.__version__ == PROJECT["version"]


def test_the_generated_docs_are_fresh() -> None:
    done = subprocess.run([sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    files = [f.relative_to(ROOT) for f in tracked(binary=True)]
    for file in files:
        (tmp_path / "source" / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tmp_path / "source" / file)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "-w", tmp_path, tmp_path / "source"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        held = set(wheel.namelist())
    assert {f.as_posix() for f in files if f.parts[0] == "edgecompress"} <= held


def test_make_lists_every_job_it_has() -> None:
    listed = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    phony = re.search(r"^\.PHONY: (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony and set(re.findall(r"make ([a-z-]+) ", listed)) == set(phony[1].split())


def _pages() -> list[Path]:
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", _pages(), ids=lambda p: p.name)
def test_every_command_a_page_shows_is_one_the_parser_takes(page: Path) -> None:
    import shlex

    from edgecompress import cli

    lines = [line for block in _blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] == ["edgecompress"]:
            cli.parser().parse_args(words[1:])


@pytest.mark.parametrize("page", _pages(), ids=lambda p: p.name)
def test_every_link_of_a_page_leads_to_a_file(page: Path) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.read_text(encoding="utf-8"))
    assert [link for link in links if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("page", _pages(), ids=lambda p: p.name)
def test_the_python_a_page_shows_compiles_and_imports_what_is_there(page: Path) -> None:
    for block in _blocks(page, "python"):
        compile(block, str(page), "exec")
        for name in re.findall(r"^(?:from|import) (edgecompress[\w.]*)", block, re.MULTILINE):
            assert util.find_spec(name), f"{page.name} imports {name}"
