"""Which Python runs a plug-in; environments of their own: made once, whole or not at all, nothing of ours inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import edgecompress
from edgecompress.core import environments, registry
from edgecompress.core.errors import InputError, MissingDependency, StageFailed
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest, PluginModule
from edgecompress.engines.null.runtimes import null
from edgecompress.pipeline import requirements
from edgecompress.plugins.transports import host

ROOT = Path(__file__).parents[1]
PINS = ("tiny==1.0",)


def plugin(pins: tuple[str, ...] = PINS, name: str = "edgecompress.engines.elder.runtimes.elder") -> ModuleType:
    """A plug-in with an environment of its own, as far as envs looks at it."""
    return SimpleNamespace(__name__=name, ENVIRONMENT=pins, REQUIRES=("tiny",))  # type: ignore[return-value]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for environments."""
    monkeypatch.setattr(environments, "root", lambda: tmp_path / "envs")
    return tmp_path / "envs"


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that pip installs from, and nothing else: it holds the package tiny 1.0."""
    import zipfile

    folder = tmp_path / "wheels"
    folder.mkdir()
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(folder / "tiny-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny.py", "ANSWER = 42\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    yield folder


def said_by(python: str, code: str) -> str:
    done = subprocess.run(
        [python, "-c", code], capture_output=True, text=True, cwd="/", env={"PATH": os.environ["PATH"]}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_plugin_without_pins_runs_in_this_python() -> None:
    assert environments.environment(null) is None
    assert environments.python(null) == sys.executable


def test_an_environment_that_is_not_made_is_missing_and_says_how_to_make_it(root: Path) -> None:
    assert environments.missing(plugin()) == ["tiny==1.0"]
    with pytest.raises(MissingDependency) as error:
        environments.require(plugin(), "runtime 'elder'")
    assert str(error.value) == (
        "runtime 'elder' needs tiny==1.0 in an environment of its own, not installed; "
        "run: python -m edgecompress.pipeline.requirements make elder"
    )


def test_other_pins_and_another_place_of_the_package_are_another_environment(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = environments.environment(plugin()), environments.environment(plugin(("tiny==2.0",)))
    monkeypatch.setattr(environments, "PACKAGE", Path("/elsewhere/edgecompress"))
    assert len({one, other, environments.environment(plugin())}) == 3


@pytest.mark.slow
@pytest.mark.prove
def test_an_environment_has_its_pins_and_this_package_and_nothing_else_of_ours(root: Path, wheels: Path) -> None:
    place = environments.make(plugin())
    assert place is not None and environments.missing(plugin()) == []
    python = environments.python(plugin())
    assert said_by(python, "import tiny; print(tiny.ANSWER)") == "42"
    where = said_by(python, "import edgecompress; print(edgecompress.__file__)")
    assert Path(where).resolve() == Path(str(edgecompress.__file__)).resolve()
    lookup = "import importlib.util as u; print([n for n in ('numpy', 'rich', 'pytest') if u.find_spec(n)])"
    assert said_by(python, lookup) == "[]"
    assert environments.versions(plugin()) == {"tiny": "1.0"}
    made = (place / environments.COMPLETE).stat().st_mtime_ns
    assert environments.make(plugin()) == place
    assert (place / environments.COMPLETE).stat().st_mtime_ns == made, "a whole environment is left alone"


@pytest.mark.slow
@pytest.mark.prove
def test_an_environment_that_broke_off_is_made_anew(root: Path, wheels: Path) -> None:
    place = environments.environment(plugin())
    assert place is not None
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "python").write_text("torn")
    assert environments.missing(plugin()) == ["tiny==1.0"]
    environments.make(plugin())
    assert said_by(environments.python(plugin()), "print('whole')") == "whole"


@pytest.mark.slow
@pytest.mark.prove
def test_what_pip_cannot_find_is_one_line_and_leaves_nothing_that_looks_whole(root: Path, wheels: Path) -> None:
    absent = plugin(("no-such-package==9.9",))
    with pytest.raises(StageFailed, match="No matching distribution found for no-such-package") as error:
        environments.make(absent)
    assert "\n" not in str(error.value)
    assert environments.missing(absent) == ["no-such-package==9.9"]


@pytest.mark.slow
def test_an_agent_runs_in_the_environment_of_its_runtime(
    root: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The null runtime, pinned: its agent answers from the other Python."""
    monkeypatch.setattr(null, "ENVIRONMENT", PINS, raising=False)
    asked = AgentRequest("facts", runtime=PluginModule("null", null.__name__))
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(MissingDependency, match=r"python -m edgecompress\.pipeline\.requirements make null"):
        agent_client.ask(host.connect({}), asked, out, 60)
    place = environments.make(null)
    seen: list[str] = []
    real = host.Host.run
    monkeypatch.setattr(host.Host, "run", lambda self, argv, *rest: (seen.append(argv[0]), real(self, argv, *rest))[1])
    assert agent_client.ask(host.connect({}), asked, out, 60)["machine"]
    assert seen == [str(place / "bin" / "python")]


def test_a_device_that_is_not_this_machine_keeps_its_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(null, "ENVIRONMENT", PINS, raising=False)
    asked = AgentRequest("facts", runtime=PluginModule("null", null.__name__))
    there = SimpleNamespace(here=False, facts=lambda: {"python": "/opt/device/python3"}, push=str)
    assert agent_client._agent(there, asked, tmp_path) == ["/opt/device/python3", str(tmp_path / "agent.pyz")]


def test_making_the_environments_of_a_target_without_any_does_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgecompress.pipeline.requirements", "make", "x86"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_name_that_is_neither_runtime_nor_target_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "edgecompress.pipeline.requirements", "make", "tfilte"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("edgecompress: error: no target 'tfilte'")


def test_tflite_is_pinned_to_versions_that_fit_each_other() -> None:
    pins = dict(pin.split("==") for pin in registry.load("runtimes", "tflite").ENVIRONMENT)
    assert pins["tflite-runtime"] == "2.14.0"
    assert pins["numpy"].startswith("1."), "with numpy 2 it imports, and breaks when an interpreter is made"


def test_a_stage_s_key_holds_the_pins() -> None:
    assert json.dumps(environments.versions(registry.load("runtimes", "tflite"))) == (
        '{"tflite-runtime": "2.14.0", "numpy": "1.26.4"}'
    )


@pytest.mark.parametrize(
    ("requirement", "installed", "met"),
    [
        ("tiny", "0.1", True),
        ("tiny", None, False),
        ("tiny>=1.6.1", "1.6.1", True),
        ("tiny>=1.6.1", "1.6.1rc1", False),
        ("tiny>=1.9", "2.0rc1", True),
        ("tiny>=1.9", "1.10", True),
        ("tiny>=2,<2.4", "2.4.0", False),
        ("tiny!=2.3.1", "2.3.1", False),
        ("tiny~=2.3", "3.0", False),
        ("tiny==2.13.0", "2.13.0+cpu", True),
        ("tiny==2.13.0", "2.13.1", False),
        ("tiny>=2; sys_platform == 'nowhere'", None, True),
        ("tiny>=2; python_version >= '3'", "1.0", False),
        ("tiny[fast]>=2", "2.0", True),
    ],
)
def test_a_requirement_is_met_as_pip_would_say(
    requirement: str, installed: str | None, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "version", lambda package: installed if package == "tiny" else None)
    monkeypatch.setattr(environments.metadata, "requires", lambda package: [])
    asking = SimpleNamespace(__name__="a.b", REQUIRES=(requirement,))
    assert environments.missing(asking) == ([] if met else [requirement])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("installed", "asked", "met"),
    [
        ("tensorflow", "tensorflow-cpu", True),
        ("intel-tensorflow", "tensorflow-cpu>=2.15", True),
        ("tensorflow-macos", "tensorflow-cpu>=2.17", False),
        ("onnxruntime-gpu", "onnxruntime", True),
        ("onnxruntime-gpu", "tensorflow-cpu", False),
    ],
)
def test_any_distribution_of_a_module_meets_a_requirement(
    installed: str, asked: str, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(package: str) -> str:
        if package != installed:
            raise environments.metadata.PackageNotFoundError(package)
        return "2.16.1"

    environments.version.cache_clear()
    monkeypatch.setattr(environments.metadata, "version", version)
    try:
        assert environments.met(asked) is met
    finally:
        environments.version.cache_clear()


@pytest.mark.parametrize(("helper", "met"), [("1.0", True), ("0.9", False), (None, False)])
def test_an_extra_is_met_where_what_it_brings_is_there(
    helper: str | None, met: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought = ["helper>=1; extra == 'fast'", "stranger; extra == 'slow'", "always"]
    monkeypatch.setattr(environments, "version", {"tiny": "2.0", "helper": helper}.get)
    monkeypatch.setattr(environments.metadata, "requires", lambda package: brought if package == "tiny" else [])
    asking = SimpleNamespace(__name__="a.b", REQUIRES=("tiny[fast]>=2",))
    assert (environments.missing(asking) == []) is met  # type: ignore[arg-type]


def test_versions_are_of_packages_that_are_required_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "version", lambda package: "2.0")
    asking = SimpleNamespace(__name__="a.b", REQUIRES=("tiny[fast] >= 2", "other; sys_platform == 'nowhere'"))
    assert environments.versions(asking) == {"tiny": "2.0"}  # type: ignore[arg-type]


def test_a_requirement_that_is_none_is_told() -> None:
    asking = SimpleNamespace(__name__="edgecompress.engines.elder.runtimes.elder", REQUIRES=("tiny >> 2",))
    with pytest.raises(InputError, match="'tiny >> 2' is not a valid requirement"):
        environments.missing(asking)  # type: ignore[arg-type]


def test_setup_makes_the_environments_of_a_target_until_they_are_whole(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["requirements", "arm64"])
    requirements.main()
    assert capsys.readouterr().out.splitlines()[1:] == ["make"]
    runtimes = [registry.load("runtimes", name) for name in registry.names("runtimes")]
    for place in filter(None, map(environments.environment, runtimes)):
        place.mkdir(parents=True)
        (place / environments.COMPLETE).touch()
    requirements.main()
    assert capsys.readouterr().out.splitlines()[1:] == []
