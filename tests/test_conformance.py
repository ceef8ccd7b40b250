"""Every plug-in and target we ship passes the suite that we ship; a new file is tested the day it appears."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import plugins
import prove
import pytest

from edgecompress.cli.main import main
from edgecompress.core import catalog, environments, registry
from edgecompress.core.model import Artifact
from edgecompress.testing import conformance

LONG = ("torchinductor",)  # test_torchinductor.py has in the short form what it promises


def of(kind: str) -> pytest.MarkDecorator:
    """Each plug-in of a kind; slow where it needs a library of its own."""
    needs = {name: {*getattr(module, "REQUIRES", ())} - {"numpy"} for name, module in registry.every(kind)}
    marks = {name: [pytest.mark.slow] if needed else [] for name, needed in needs.items()}
    marks = {n: [*m, *([pytest.mark.prove] if n in LONG else [])] for n, m in marks.items()}
    return pytest.mark.parametrize("name", [pytest.param(n, marks=m) for n, m in marks.items()])


def need(kind: str, name: str) -> None:
    """Skips where a plug-in's libraries are not installed."""
    if missing := environments.missing(registry.load(kind, name)):
        pytest.skip(f"{name} needs {', '.join(missing)}")


TRAINED = {"adaround": {"iterations": 50}, **{name: {"epochs": 2} for name in ("distill", "finetune", "qat")}}


@of("techniques")
def test_a_technique_conforms(name: str, tmp_path: Path) -> None:
    need("techniques", name)
    conformance.check_technique(name, tmp_path, None if prove.WHOLE else TRAINED.get(name))


@of("runtimes")
def test_a_runtime_conforms(name: str, tmp_path: Path) -> None:
    need("runtimes", name)
    conformance.check_runtime(name, tmp_path)


def test_a_runtime_that_hides_without_a_profile_what_left_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    null = registry.load("runtimes", "null")
    opened = null.open

    def hiding(artifact: Artifact, threads: int, profile: bool = False) -> Any:
        session = opened(artifact, threads, profile)
        left = ["null"] if profile else []
        monkeypatch.setattr(type(session), "ops", lambda *_: {"ops": [], "why": "it tells no times", "fallback": left})
        return session

    monkeypatch.setattr(null, "open", hiding)
    with pytest.raises(AssertionError, match=r"runtime null: fallback is \[\], but \['null'\] under a profile"):
        conformance.check_runtime("null", tmp_path)


def test_a_misspelt_name_is_a_finding_what_was_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    null = registry.load("runtimes", "null")
    monkeypatch.setattr(null, "OPEN_WITH", ("numpy",), raising=False)
    monkeypatch.delattr(null, "OPENS_WITH")
    with pytest.raises(AssertionError, match="OPEN_WITH is nothing that anybody asks for; did you mean 'OPENS_WITH'"):
        conformance.check_runtime("null", tmp_path)


@of("commands")
def test_a_command_conforms(name: str, tmp_path: Path) -> None:
    conformance.check_command(name, tmp_path)


@of("sections")
def test_a_section_conforms(name: str, tmp_path: Path) -> None:
    conformance.check_section(name, tmp_path)


@of("sensors")
def test_a_sensor_conforms(name: str, tmp_path: Path) -> None:
    conformance.check_sensor(name, tmp_path)


BRIEF = {
    "sustained": {"seconds": 0.6, "every_s": 0.1, "rest_s": 0.0},
    "periodic": {"rate_hz": 50.0, "seconds": 0.2},
    "throughput": {"batches": (1, 4), "seconds": 0.05},
    "streams": {"streams": (1, 2), "seconds": 0.05},
    "cold": {"starts": 1},
    "memory": {"seconds": 0.05},
    "roofline": {"seconds": 0.05, "size": 64, "runs": 2},
}


@of("profilers")
def test_a_pass_conforms(name: str, tmp_path: Path) -> None:
    conformance.check_pass(name, tmp_path, BRIEF.get(name))


@of("transports")
def test_a_transport_conforms(name: str, tmp_path: Path) -> None:
    conformance.check_transport(name, tmp_path)


TOOLS = {"android": pytest.mark.jdk, "web": pytest.mark.ortweb}  # that a packager needs besides libraries
PACKAGERS = [
    pytest.param(n, marks=[pytest.mark.slow, *([TOOLS[n], pytest.mark.prove] if n in TOOLS else ())])
    for n in registry.names("packagers")
]  # with `make prove` where tools are slow: each has files of its own


LIGHT = {"tar": {"wheels": False}}


@pytest.mark.parametrize("name", PACKAGERS)
def test_a_packager_conforms(name: str, tmp_path: Path) -> None:
    need("packagers", name)
    conformance.check_packager(name, tmp_path, None if prove.WHOLE else LIGHT.get(name))


@pytest.mark.parametrize("name", catalog.names("targets"))
def test_a_target_conforms(name: str) -> None:
    conformance.check_target(catalog.path_of("targets", name))


FAULTS = {
    "promised null, made onnx": "return Artifact(request.out, 'onnx', request.model.inputs).write()",
    "its sha256 is not that of its content": "return Artifact(request.out, 'null', request.model.inputs)",
    "gave other bytes the second time": """\
import os
(request.out / 'model.null').write_text(request.model.file('.null').read_text() + os.urandom(4).hex())
return Artifact(request.out, 'null', request.model.inputs, request.model.outputs).write()""",
    "outputs were": """\
(request.out / 'model.null').write_text('{}')
return Artifact(request.out, 'null', request.model.inputs, request.model.inputs).write()""",
    "it changed its input": """\
request.model.file('.null').write_text('{}')
(request.out / 'model.null').write_text('{}')
return Artifact(request.out, 'null', request.model.inputs, request.model.outputs).write()""",
}


@pytest.mark.parametrize("says", FAULTS)
def test_a_technique_that_breaks_a_promise_is_told_which(
    says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugins.technique(tmp_path, "faulty", FAULTS[says])
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entry_points.cache_clear()
    monkeypatch.delitem(__import__("sys").modules, "plugin_faulty", raising=False)
    with pytest.raises(AssertionError, match=says):
        conformance.check_technique("faulty", tmp_path / "work")
    registry.entry_points.cache_clear()


def test_the_suite_runs_by_name_and_exits_1_with_what_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins.technique(tmp_path, "faulty", FAULTS["promised null, made onnx"])
    plugins.technique(tmp_path, "broken", "print('printed')\n1 / 0")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry.entry_points.cache_clear()
    assert main(["conformance", "null"]) == 0
    assert "yes" in capsys.readouterr().out
    assert main(["conformance", "faulty", "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)
    assert finding["kind"] == "technique" and finding["file"].endswith("plugin_faulty.py")
    assert "promised null, made onnx" in finding["finding"]
    assert main(["conformance", "broken", "-v"]) == 1
    told = capsys.readouterr()
    assert "technique broken: ZeroDivisionError" in told.out and "Traceback" in told.out
    assert "printed" in told.err and "printed" not in told.out.partition("Traceback")[0]
    assert main(["conformance", "falty"]) == 2
    assert "no plug-in or target 'falty', did you mean 'faulty'?" in capsys.readouterr().err
    registry.entry_points.cache_clear()


def test_a_target_without_a_reference_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "lone.toml"
    file.write_text('description = "x"\nruntime = "null"\n[[variant]]\nname = "plain"\n')
    with pytest.raises(AssertionError, match="no variant is the reference"):
        conformance.check_target(file)


def test_the_sensor_check_meets_a_sensor_that_reads(tmp_path: Path) -> None:
    """replay over a trace of constant 5 W: the check runs through its windows."""
    rows = "".join(f"{t / 100},5.0\n" for t in range(400))
    (tmp_path / "trace.csv").write_text("t_s,power_w\n" + rows)
    device = json.loads(json.dumps({"options": {"replay": {"file": str(tmp_path / "trace.csv")}}}))
    conformance.check_sensor("replay", tmp_path, device)
