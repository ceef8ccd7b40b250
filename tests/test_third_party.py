"""Plug-ins of other people: each installed by pip from a distribution of its own, with no change in the core."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import nulls
import plugins
import prove
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
PLUGINS = ROOT / "examples" / "plugins"
CLI = [sys.executable, "-m", "edgecompress.cli.main"]
QUICK = [f"--set={key}={value}" for key, value in nulls.FAST.items()]


class Home:
    """A folder to work in, with a null net, and the distributions that are installed beside it."""

    def __init__(self, folder: Path, site: Path) -> None:
        self.folder, self.site, self.asked = folder, site, nulls.make(folder / "net")
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]), "PYTHONDONTWRITEBYTECODE": "1"}

    def run(self, *argv: str, code: int = 0) -> str:
        """A command's output; it must end with `code`."""
        done = subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def cli(self, *words: str, code: int = 0) -> str:
        """The output of an edgecompress command."""
        return self.run(*CLI, *words, code=code)

    def conforms(self, check: str) -> None:
        """Runs a check of the shipped conformance suite."""
        self.run(
            sys.executable,
            "-c",
            f"from pathlib import Path\nfrom edgecompress.testing import conformance\nconformance.{check}",
        )

    def file(self, name: str, text: str) -> Path:
        """A file of the user's own."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def deploy(self, *more: str, target: str) -> dict[str, Any]:
        """Plans and deploys the null net; returns its report."""
        words = [
            self.asked["model"],
            "--data",
            self.asked["data"],
            "--target",
            target,
            "--profile",
            "quick",
            *QUICK,
            *more,
        ]
        assert target in self.cli("plan", *words)
        self.cli("deploy", *words, "--out", "out")
        return dict(json.loads((self.folder / "out" / "report.json").read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Each distribution, built and installed by pip into a folder of its own; nothing is downloaded."""
    return {p.name: _install(p, tmp_path_factory.mktemp(p.name)) for p in sorted(PLUGINS.iterdir()) if p.is_dir()}


def _install(source: Path, site: Path) -> Path:
    copy = site / "source"  # a build leaves files beside what it builds
    shutil.copytree(source, copy)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*pip, "--target", str(site / "site"), str(copy)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return site / "site"


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path, installed: dict[str, Path]) -> Home:
    """A home with the distribution that the test is marked with."""
    return Home(tmp_path, installed[request.param])


def of(name: str) -> pytest.MarkDecorator:
    """The distribution a test is about."""
    return pytest.mark.parametrize("home", [name], indirect=True)


TARGET = """
description = "of one's own"
runtime = "{runtime}"
[limits]
cosine = 0.9
[[variant]]
name = "theirs"
{more}
"""


@of("edgecompress-technique-round")
@pytest.mark.prove
def test_a_technique_conforms_and_is_listed_planned_and_reported(home: Home) -> None:
    assert home.cli("conformance", "round").splitlines()[1].split()[-1] == "yes"
    assert "round" in home.cli("techniques")
    assert "digits" in home.cli("techniques", "round")
    more = 'compress = [{ use = "rounded", digits = 1 }]'
    home.file("targets/own.toml", TARGET.format(runtime="null", more=more))
    report = home.deploy(target="own")
    assert any(row["stage"] == "theirs/round" for row in report["stages"])
    wrong = ["--set", "variant.theirs.digit=1"]
    home.cli("plan", home.asked["model"], "--data", home.asked["data"], "--target", "own", *wrong, code=2)


@of("edgecompress-command-largest")
def test_a_command_conforms_and_runs(home: Home) -> None:
    assert home.cli("conformance", "largest", "--kind", "command").splitlines()[1].split()[-1] == "yes"
    assert home.cli("largest", "net", "--count", "1").split()[0].isdigit()
    home.cli("largest", "nowhere", code=2)


@of("edgecompress-section-sizes")
@pytest.mark.prove
def test_a_section_conforms_and_is_in_the_report(home: Home) -> None:
    assert home.cli("conformance", "sizes", "--kind", "section").splitlines()[1].split()[-1] == "yes"
    home.file("targets/own.toml", TARGET.format(runtime="null", more=""))
    home.deploy(target="own")
    assert "Sizes" in (home.folder / "out" / "report.md").read_text(encoding="utf-8")


@of("edgecompress-capability-levels")
def test_a_capability_is_one_folder_with_a_technique_a_section_and_a_command(home: Home) -> None:
    for kind in ("technique", "section", "command"):
        assert home.cli("conformance", "levels", "--kind", kind).splitlines()[1].split()[-1] == "yes"
    assert "few-levels" in home.cli("techniques")
    assert re.search(r"levels +say how far levels are apart\s+\(experimental\)", home.cli("--help"))
    assert home.cli("levels", "5") == "5 levels are 0.25 apart\n"
    more = 'compress = [{ use = "few-levels", levels = 3 }]'
    home.file("targets/own.toml", TARGET.format(runtime="null", more=more))
    report = home.deploy(target="own")
    assert report["levels"] == [{"variant": "theirs", "levels": 3, "moved": 0.0}]
    page = (home.folder / "out" / "report.html").read_text(encoding="utf-8")
    assert "<h2>Levels</h2>" in page and "## Levels" in (home.folder / "out" / "report.md").read_text(encoding="utf-8")
    assert "moved by" in home.cli("report", "out", "--verbose")
    without = {**home.env, "PYTHONPATH": str(ROOT)}
    words = ["report", "out", "--json"]
    read = subprocess.run([*CLI, *words], cwd=home.folder, env=without, capture_output=True, text=True, check=True)
    assert json.loads(read.stdout)["levels"] == report["levels"]


@of("edgecompress-runtime-echo")
@pytest.mark.prove
def test_a_runtime_conforms_and_is_listed_planned_and_reported(home: Home) -> None:
    home.conforms("check_runtime('echo', Path('conformance'))")
    assert "echo" in home.cli("runtimes")
    assert any(r["name"] == "echo" for r in json.loads(home.cli("doctor", "--json"))["runtimes"])
    home.file("targets/own.toml", TARGET.format(runtime="echo", more=""))
    report = home.deploy(target="own")
    assert [v["runtime"] for v in report["variants"]] == ["echo"]
    made = next((home.folder / "out" / "artifact").glob("*.echo"))
    looked = home.cli("analyze", str(made), "--storage", "--json")
    assert "Echo" in looked and ".ramp" in looked


TELLS_MORE = """

SUFFIX, FORMAT = ".hum", "hum"
OPENS_WITH = ()


def stored(artifact):
    yield from weights(artifact)
    yield "packed", None


def precision(artifact):
    return {"int4": 12}, {"int4": 1}
"""


def test_a_new_engine_is_one_file_that_tells_what_its_files_hold(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    echo = (PLUGINS / "edgecompress-runtime-echo" / "edgecompress_runtime_echo.py").read_text(encoding="utf-8")
    plugins.plugin(site, "runtimes", "hum", echo.replace(".echo", ".hum") + TELLS_MORE)
    home = Home(tmp_path, site)
    home.file("targets/own.toml", TARGET.format(runtime="hum", more=""))
    [variant] = home.deploy(target="own")["variants"]
    assert variant["artifact"]["precision"]["weights"] == {"int4": 12}
    made = next((home.folder / "out" / "artifact").glob("*.hum"))
    looked = json.loads(home.cli("analyze", str(made), "--storage", "--json"))
    assert looked["total"]["macs"] and looked["sparsity"]["rows"] and looked["storage"]["packed"] == ["packed"]


@pytest.mark.prove
@of("edgecompress-sensor-constant")
def test_a_sensor_conforms_and_is_listed_and_reported(home: Home) -> None:
    home.conforms("check_sensor('constant', Path('conformance'))")
    home.conforms("check_sensor('constant', Path('reads'), {'options': {'constant': {'watts': 5.0}}, 'sensors': []})")
    assert "constant" in home.cli("sensors")
    home.file("targets/own.toml", TARGET.format(runtime="null", more=""))
    device = 'description = "a bench"\nsensors = ["constant"]\n[options]\nconstant = { watts = 5.0, scope = "wall" }\n'
    home.file("devices/bench.toml", device)
    short = ["--set=profile.energy_window_s=0.3", "--set=profile.idle_s=0.1"]
    report = home.deploy("--device", "bench", *short, target="own")
    text = json.dumps(report)
    assert "a constant 5 W" in text
    assert '"wall"' in text


@pytest.mark.parametrize("kind", prove.some(["engine", "technique", "sensor", "command", "section"], 1))
@pytest.mark.prove
def test_what_init_writes_installs_and_conforms_as_it_is(kind: str, tmp_path: Path) -> None:
    bare = Home(tmp_path, tmp_path / "none")
    folder, _, step = bare.cli("init", "mine", "--kind", kind).partition("\n")
    assert step == f"next: pip install --editable {folder} && edgecompress conformance mine\n"
    bare.cli("init", "mine", "--kind", kind, code=2)  # nothing is overwritten
    home = Home(tmp_path, _install(tmp_path / folder, tmp_path / "built"))
    (finding,) = json.loads(home.cli("conformance", "mine", "--kind", kind, "--json"))
    assert (finding["name"], finding["finding"]) == ("mine", "")
    home.run(sys.executable, "-m", "pytest", "-q", "-p", "no:anyio", folder)
    home.cli("init", "mine", "--kind", kind, "--output", "another", code=2)  # a name that is taken


@of("edgecompress-target-tiny")
@pytest.mark.prove
def test_a_target_conforms_and_is_listed_planned_and_reported(home: Home) -> None:
    home.conforms(f"check_target(Path({str(home.site / 'edgecompress_target_tiny/targets/tiny.toml')!r}))")
    assert "tiny" in home.cli("targets")
    assert "tiny-board" in home.cli("devices")
    report = home.deploy(target="tiny")
    assert report["target"]["name"] == "tiny"
    assert report["device"]["name"] == "tiny-board"


@of("edgecompress-target-tiny")
def test_without_its_distribution_a_target_is_unknown(home: Home) -> None:
    home.env.pop("PYTHONPATH")
    home.cli("plan", home.asked["model"], "--data", home.asked["data"], "--target", "tiny", code=2)
