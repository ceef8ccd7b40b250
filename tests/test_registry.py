"""Plug-ins of other distributions: they are looked up once, and one that cannot be imported costs a line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import plugins
import pytest

from edgecompress.core.package_files import PACKAGE


class Site:
    """A folder of installed distributions, each one module with one entry point."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, group: str, name: str, text: str) -> None:
        """A distribution whose entry point in `group` is a module of this text."""
        (self.folder / f"their_{name}.py").write_text(text, encoding="utf-8")
        info = self.folder / f"their_{name}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: their-{name}\nVersion: 1.0\n", encoding="utf-8")
        (info / "entry_points.txt").write_text(f"[edgecompress.{group}]\n{name} = their_{name}\n", encoding="utf-8")

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """A Python that sees this folder."""
        path = os.pathsep.join([str(PACKAGE.parent), str(self.folder)])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, *argv], env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """An empty one."""
    return Site(tmp_path)


def test_a_plan_reads_the_installed_distributions_once(site: Site) -> None:
    count = """
import sys
from importlib import metadata
scans, scan = [], metadata.entry_points
metadata.entry_points = lambda **group: scans.append(group) or scan(**group)
from edgecompress.cli.main import main
main(["plan", "--target", "x86", "--quiet"])
print(len(scans), "scans")
"""
    done = site.run("-c", count)
    assert done.stdout.splitlines()[-1] == "1 scans", done.stderr


def test_a_plug_in_that_imports_an_old_place_costs_one_line_and_no_other(site: Site) -> None:
    site.install("runtimes", "stale", '"""Old."""\nfrom edgecompress.model import Artifact\n')
    done = site.run("-m", "edgecompress", "runtimes")
    assert done.returncode == 0 and "onnx" in done.stdout and "stale" not in done.stdout
    [line] = [line for line in done.stderr.splitlines() if "stale" in line]
    for part in ("runtime 'stale'", "distribution their-stale", "no module edgecompress.model", "update"):
        assert part in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nowhere.at_all", "no module nowhere; run: pip install nowhere"),
        ("from edgecompress.core.errors import Nothing", "cannot import name 'Nothing'"),
        ("1 / 0", "ZeroDivisionError: division by zero; correct their_broken, or uninstall it"),
    ],
)
def test_whatever_its_import_raises_is_one_line(site: Site, text: str, says: str) -> None:
    site.install("sensors", "broken", f'"""Broken."""\n{text}\n')
    done = site.run("-m", "edgecompress", "sensors", "broken")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr


def test_a_plug_in_without_what_its_kind_must_define_costs_one_line_and_no_other(site: Site) -> None:
    site.install("runtimes", "half", '"""Half."""\nFORMAT = "half"\n')
    done = site.run("-m", "edgecompress", "runtimes")
    assert done.returncode == 0 and "onnx" in done.stdout and "half" not in done.stdout
    [line] = [line for line in done.stderr.splitlines() if "half" in line]
    assert "defines no READS, export, open; see CONTRIBUTING.md" in line


def test_a_runtime_without_read_is_listed_and_takes_no_file_as_a_source(site: Site) -> None:
    text = 'FORMAT = "mute"\nREADS = ()\nSUFFIX = ".mute"\nexport = open = print\n'
    site.install("runtimes", "mute", f'"""Mute."""\n{text}')
    assert "mute" in site.run("-m", "edgecompress", "runtimes").stdout
    asked = "source.resolved(catalog.source('net.mute', {'data': 'random'}).value)"
    [line] = site.run("-c", f"from edgecompress.core import catalog, source; {asked}").stderr.splitlines()[-1:]
    assert "a model must be a factory" in line and ".onnx" in line and "mute" not in line.partition("must be")[2]


def test_what_is_experimental_says_so_in_the_lists_and_what_is_stable_says_nothing(site: Site) -> None:
    mark = 'STABILITY = "experimental"\n'
    site.install("techniques", "trial", plugins.HEAD.format(body="pass") + mark)
    site.install("techniques", "proven", plugins.HEAD.format(body="pass"))
    site.install("commands", "probe", 'HELP = "probe a board"\n' + mark)
    techniques, commands = (
        " ".join(site.run("-m", "edgecompress", word).stdout.split()) for word in ("techniques", "--help")
    )
    assert techniques.count("A plug-in for a test.") == 2 and techniques.count("(experimental)") == 1
    assert "trial test null null A plug-in for a test. (experimental)" in techniques
    assert "probe probe a board (experimental)" in commands and "for a target search" in commands
    detail = site.run("-m", "edgecompress", "techniques", "trial").stdout.splitlines()
    assert "experimental" in next(line for line in detail if line.startswith("stability"))
