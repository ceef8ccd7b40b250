"""The repository against itself: what one file says of another is true."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from functools import cache
from importlib import util
from pathlib import Path

import pins
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edgecompress.core import catalog, registry

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# Written in two halves, so that this file does not find itself.
MACHINE_PATHS = ("/wo" + "rk/", "/ro" + "ot/", "/ho" + "me/")
INDEX_ADDRESSES = ("--index" + "-url", "--extra-index" + "-url", "pypi.org/" + "simple", "download." + "pytorch.org")


def constraints() -> dict[str, str]:
    """The pinned version of each package."""
    return {canonicalize_name(name): version for name, version in pins.PINS.items()}


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


def test_constraints_name_versions_with_their_hashes_and_nothing_else() -> None:
    hashed = re.compile(r"[\w.-]+==[\w.]+(?: \\\n    --hash=sha256:[0-9a-f]{64})+")
    lines = re.sub(r"(?<!\\)\n(?! )", "\0", pins.TEXT).split("\0")
    pinned = [line for line in lines if line and not line.startswith("#")]
    assert len(pinned) == len(constraints())
    assert [line for line in pinned if not hashed.fullmatch(line)] == [f"torch=={constraints()['torch']}"]


@pytest.mark.parametrize("kind", registry.KINDS)
def test_the_extra_of_a_plugin_exists_and_installs_what_it_requires(kind: str) -> None:
    for name, module in registry.every(kind):
        extra = getattr(module, "EXTRA", "")
        if extra and module.__name__.startswith("edgecompress."):
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


@pytest.mark.prove
def test_the_generated_docs_are_fresh() -> None:
    done = subprocess.run([sys.executable, "scripts/docs.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def _copied(to: Path) -> list[Path]:
    """Copies the tracked files; returns their relative paths."""
    files = [f.relative_to(ROOT) for f in tracked(binary=True)]
    for file in files:
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, to / file)
    return files


def _wheel(source: Path, out: Path) -> set[str]:
    """What a wheel of these sources holds."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "-w", out, source], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next(out.glob("*.whl"))) as wheel:
        return set(wheel.namelist())


def _shipped(files: Sequence[Path]) -> set[str]:
    """Where an installed package has these files: folders of TOML files and of examples lie inside it."""
    own = {f.as_posix() for f in files if f.parts[0] == "edgecompress"}
    plugins = [f.parts[2:] for f in files if f.parts[:2] == ("examples", "plugins") and len(f.parts) == 4]
    own |= {f"edgecompress/plugin_examples/{folder}/{file}" for folder, file in plugins}
    return own | {f"edgecompress/{f.as_posix()}" for f in files if f.parts[0] in catalog.KINDS}


@pytest.mark.slow
def test_the_wheel_holds_every_file_of_the_package(tmp_path: Path) -> None:
    files = _copied(tmp_path / "source")
    held = _wheel(tmp_path / "source", tmp_path)
    assert _shipped(files) <= held
    assert {
        "edgecompress/targets/x86.toml",
        "edgecompress/devices/host.toml",
        "edgecompress/profiles/quick.toml",
    } <= held


@pytest.mark.slow
@pytest.mark.prove
def test_a_wheel_made_again_has_no_file_that_was_deleted_meanwhile(tmp_path: Path) -> None:
    files, source = _copied(tmp_path / "source"), tmp_path / "source"
    deleted = [f for f in files if f.as_posix() in ("edgecompress/py.typed", "targets/x86.toml")]
    deleted.append(Path("edgecompress/techniques/old.py"))
    (source / deleted[-1]).touch()
    assert _shipped(deleted) <= _wheel(source, tmp_path) and len(deleted) == 3
    for file in deleted:
        (source / file).unlink()
    held = _wheel(source, tmp_path)
    assert not _shipped(deleted) & held
    assert _shipped([f for f in files if f not in deleted]) <= held


@pytest.mark.slow
@pytest.mark.prove
def test_the_source_distribution_makes_the_same_wheel(tmp_path: Path) -> None:
    files = _copied(tmp_path / "source")
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path / "source", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(tmp_path.glob("*.tar.gz"))) as sdist:
        sdist.extractall(tmp_path / "opened", filter="data")
    assert _shipped(files) <= _wheel(next((tmp_path / "opened").iterdir()), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["wheel", "editable", "checkout"])
@pytest.mark.prove
def test_every_install_finds_the_shipped_files(way: str, tmp_path: Path) -> None:
    _copied(tmp_path / "source")
    if way == "wheel":
        _wheel(tmp_path / "source", tmp_path)
    place = tmp_path / ("source" if way == "checkout" else "site")
    if way != "checkout":
        what = ["-e", tmp_path / "source"] if way == "editable" else [next(tmp_path.glob("*.whl"))]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
        done = subprocess.run([*pip, "--target", place, *what], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
    code = (
        f"import site, sys; site.addsitedir({str(place)!r}); sys.path.insert(0, {str(place)!r})\n"
        "from edgecompress.core import catalog\n"
        "pairs = (('target', 'x86'), ('device', 'host'), ('profile', 'quick'))\n"
        "print(catalog.__file__, *(getattr(catalog, k)(n).path for k, n in pairs))"
    )
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    command = [sys.executable, "-P", "-S", "-c", code]  # -S: without what is installed beside this test
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0 and str(tmp_path) in done.stdout, done.stdout + done.stderr


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
    lines = [line for block in _blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        words = shlex.split(line, comments=True)
        if words[:1] == ["edgecompress"]:
            _grammar().parse_args([*itertools.takewhile(">".__ne__, words[1:])])


@cache
def _grammar() -> argparse.ArgumentParser:
    from edgecompress.cli import main

    return main.parser()


def _strange(line: str) -> list[str]:
    """What a shown command names that there is not: a command, an option, a job or a variable of make."""
    from edgecompress.cli import main

    whole = line.count("'") % 2 == line.count('"') % 2 == 0
    program, *words = shlex.split(line, comments=True) if whole else line.split()
    if program == "make":
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        named = [word.partition("=")[0] for word in words if not word.startswith("-")]
        return [name for name in named if not re.search(rf"(?m)^{name}:" if name.islower() else rf"\b{name}\b", text)]
    parser, words = _grammar(), main._joined(words)
    while words and not words[0].startswith("-"):
        below = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not below or not re.fullmatch(r"[a-z_ -]+", words[0]):  # an argument; COMMAND, ...
            break
        if words[0] not in below[0].choices:
            return words[:1]
        parser, words = below[0].choices[words[0]], words[1:]
    options = [match[0] for word in words if (match := re.match(r"--?[a-z-]+", word))]
    return [option for option in options if words[0] != "COMMAND" and option not in parser._option_string_actions]


@pytest.mark.parametrize("page", _pages(), ids=lambda p: p.name)
def test_no_page_names_a_command_an_option_or_a_job_that_there_is_not(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = [block for language in ("sh", "bash", "console") for block in _blocks(page, language)]
    lines = [line.strip().removeprefix("$ ") for block in fenced for line in block.replace("\\\n", " ").splitlines()]
    inline = re.findall(r"`([^`]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
    shown = [
        each for each in (*lines, *map(" ".join, map(str.split, inline))) if re.match("(edgecompress|make) ", each)
    ]
    assert {line: bad for line in shown if (bad := _strange(line))} == {}


def test_where_a_journey_starts_it_is_said_how_edgecompress_becomes_a_command() -> None:
    start, activate = "README.md#before-the-first-command", ". .venv/bin/activate`"
    texts = {page.name: page.read_text(encoding="utf-8") for page in (ROOT / "docs").glob("*.md")}
    for text in (texts.pop("README.md"), texts.pop("tutorial.md"), (ROOT / "README.md").read_text(encoding="utf-8")):
        assert text.count(activate) == 1
    begins = {
        name: re.search(r"(?m)\A# .*\n+(.*\n+){0,7}?```(sh|bash|console)\nedgecompress ", t)
        for name, t in texts.items()
    }
    assert len([*filter(None, begins.values())]) > 5
    assert [name for name, found in begins.items() if found and start not in texts[name]] == []


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
