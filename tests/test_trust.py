"""What a stranger's folder may do: nothing; and which files and lines are the user's own."""

from __future__ import annotations

import ast
import itertools
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import nulls
import numpy as np
import pytest
from test_bad_input import QUICK, conv_net, images

import edgecompress
from edgecompress.cli import main
from edgecompress.commands import device_add
from edgecompress.core import child_process, package_files, user_code
from edgecompress.core.errors import InputError
from edgecompress.pipeline import plan, worker_process
from edgecompress.pipeline.job import job

pytestmark = pytest.mark.slow

PACKAGE = Path(edgecompress.__file__).parent
HOSTILE = ("onnx", "numpy", "json", "onnxruntime", "openvino", "ai_edge_litert", "sitecustomize")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stranger's folder: a net, its data, and modules with the names of libraries, which leave a mark when run."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    plugin = tmp_path / "evil-1.0.dist-info"
    plugin.mkdir()
    (plugin / "METADATA").write_text("Name: evil\nVersion: 1.0\n")
    (plugin / "entry_points.txt").write_text("[edgecompress.techniques]\nevil = json\n")
    return tmp_path


def ran(folder: Path) -> str:
    """The modules of the folder that were run."""
    mark = folder / "ran"
    return mark.read_text() if mark.exists() else ""


def deploy(folder: Path, *words: str, path: str = str(PACKAGE.parent)) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": path, "NO_COLOR": "1"}
    argv = [sys.executable, "-P", "-m", "edgecompress.cli.main", "deploy", *words, *QUICK]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


# --------------------------------------------------------------------------- what is run


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [("--untrusted",), (), pytest.param(("--untrusted", "--only", "fp32,int8"), marks=pytest.mark.prove)],
    ids=" ".join,
)
def test_a_plain_source_runs_nothing_of_the_folder_that_it_lies_in(folder: Path, words: tuple[str, ...]) -> None:
    conv_net(folder / "net.onnx")
    images(folder / "data.npz")
    short = () if "--only" in words else ("--until", "golden")
    done = deploy(folder, "net.onnx", "--data", "data.npz", "--target", "x86", *words, *short)
    assert (done.returncode, ran(folder)) == (0, ""), done.stderr[-2000:]


def test_a_toml_beside_hostile_modules_runs_none_of_them(folder: Path) -> None:
    nulls.make(folder)
    (folder / "source.toml").write_text('model = "net.null"\ndata = "data"\n')
    done = deploy(folder, "source.toml", "--target", "null.toml", "--until", "golden", "--untrusted")
    assert (done.returncode, ran(folder)) == (0, ""), done.stderr[-2000:]


def test_an_empty_entry_of_pythonpath_is_not_the_working_folder_for_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text("open('ran', 'a').write('x')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", str(PACKAGE.parent), ""]))
    asked = nulls.make(tmp_path / "net")
    words = ["deploy", asked["model"], "--data", asked["data"], "--target", asked["target"], "--until", "golden"]
    assert main.main([*words, "--quiet"]) == 0
    assert ran(tmp_path) == ""


@pytest.mark.parametrize("path", [f":{PACKAGE.parent}", f"{PACKAGE.parent}:"], ids=["first", "last"])
def test_an_empty_entry_of_pythonpath_is_not_the_working_folder_for_the_command(folder: Path, path: str) -> None:
    for name in ("sitecustomize", "usercustomize"):  # which Python itself has run before
        (folder / f"{name}.py").unlink(missing_ok=True)
    for name in ("argparse", "json", "sqlite3", "tomllib"):
        (folder / f"{name}.py").write_text((folder / "numpy.py").read_text().replace("numpy", name))
    nulls.make(folder)
    done = deploy(folder, "net.null", "--data", "data", "--target", "null.toml", "--until", "golden", path=path)
    assert (done.returncode, ran(folder)) == (0, ""), done.stderr[-2000:]


def test_only_stages_that_call_a_factory_find_the_users_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    asked = nulls.make(tmp_path)
    plain = {stage.name: stage for stage in plan.front(job(**asked))}
    assert [name for name, stage in plain.items() if stage.user_code] == []
    assert [name for name, stage in plain.items() if stage.observes] == ["data", "source"]
    (tmp_path / "nets.py").write_text("def data(split): ...\n")
    called = {stage.name: stage for stage in plan.front(job(**{**asked, "data": "nets:data"}))}
    assert [name for name, stage in called.items() if stage.user_code] == ["data"]
    assert [name for name, stage in called.items() if stage.observes] == ["data", "source"]


def test_changed_data_is_the_reason_for_a_re_run_though_nothing_of_the_users_is_run(tmp_path: Path) -> None:
    nulls.make(tmp_path)
    words = ("net.null", "--data", "data", "--target", "null.toml", "--until", "data", "-v")
    assert deploy(tmp_path, *words).returncode == 0
    np.save(tmp_path / "data" / "test" / "x.npy", np.ones((40, 4), "float32"))
    assert "changed: file x.npy" in (done := deploy(tmp_path, *words)).stdout + done.stderr


def test_a_python_that_a_library_starts_in_a_worker_runs_nothing_of_the_working_folder(folder: Path) -> None:
    environment = worker_process._environment(offline=False, scratch=folder, alone=False)
    subprocess.run([sys.executable, "-c", "import json"], cwd=folder, env=environment, check=True, timeout=60)
    assert ran(folder) == ""


def test_a_child_python_runs_nothing_of_the_working_folder(folder: Path) -> None:
    done = subprocess.run(child_process.python("json.tool"), cwd=folder, input=b"[1]", capture_output=True, timeout=60)
    assert (done.returncode, ran(folder)) == (0, "")


@pytest.mark.parametrize("path", [PACKAGE, PACKAGE.parent / "scripts"], ids=lambda p: p.name)
def test_every_child_python_is_started_by_the_one_function_that_keeps_it_safe(path: Path) -> None:
    found = {f"{file.name}: {words}" for file in sorted(path.rglob("*.py")) for words in started(file)}
    assert found == set()


def started(file: Path) -> list[str]:
    """Lists of words that begin a Python which looks for modules in the working folder."""
    lists = [n for n in ast.walk(ast.parse(file.read_text())) if isinstance(n, (ast.List, ast.Tuple))]
    return [ast.unparse(each) for each in lists if unsafe([ast.unparse(word) for word in each.elts])]


def unsafe(words: list[str]) -> bool:
    """`-m` without `-P` before it, or `-c` behind a Python, unless its code begins by leaving that folder out."""
    pairs = list(itertools.pairwise(["", *words]))
    modules = any(word == "'-m'" and before != "'-P'" for before, word in pairs)
    code = any(word == "'-c'" and ("python" in before.lower() or "executable" in before) for before, word in pairs)
    return modules or (code and "FIND" not in words)


def test_what_is_asked_of_a_python_elsewhere_runs_nothing_of_its_working_folder(folder: Path) -> None:
    argv = [sys.executable, "-c", device_add.FIND, "numpy=numpy"]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True, timeout=60)
    assert (json.loads(done.stdout), ran(folder)) == ({"numpy": np.__version__}, "")


# --------------------------------------------------------------------------- whose modules are found


def write(folder: Path, **modules: str) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def test_a_users_module_is_found_behind_every_library(tmp_path: Path) -> None:
    nulls.make(tmp_path)
    marks = dict.fromkeys(HOSTILE, "open('ran', 'w')\n")
    write(tmp_path, **marks, trusted_feed="def data(split):\n    return [[0.5] * 4] * 8\n")
    done = deploy(tmp_path, "net.null", "--data", "trusted_feed:data", "--target", "null.toml", "--until", "data")
    assert (done.returncode, ran(tmp_path)) == (0, ""), done.stderr[-2000:]


@pytest.mark.parametrize("name", ["tabulate", "statistics"])
def test_a_users_module_that_an_installed_one_hides_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write(tmp_path, **{name: "def build(): ...\n"})
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(InputError) as error:
        user_code.function(f"{name}:build")
    assert f"{tmp_path / name}.py is hidden by " in str(error.value) and "rename it" in str(error.value)


def test_what_a_users_module_imports_from_beside_it_is_not_silently_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, hidden_nets="def build():\n    import tabulate\n    return tabulate\n", tabulate="")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    with pytest.raises(InputError, match=r"hidden_nets\.py imports tabulate, but .*tabulate\.py is hidden by "):
        user_code.function("hidden_nets:build")


def test_a_module_that_claims_a_file_which_is_not_there_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = "import sys, types\nmade = sys.modules['made_up'] = types.ModuleType('made_up')\nmade.__file__ = "
    write(tmp_path, claiming_nets=f"{made}'_made_up.py'\ndef build(): ...\n")  # as torch.classes does
    monkeypatch.syspath_prepend(tmp_path)
    assert user_code.function("claiming_nets:build").__name__ == "build"


# --------------------------------------------------------------------------- whose line it is


@pytest.mark.parametrize(("ours", "name"), [("core.errors", "did_you_mean"), ("data.tensors", "unnamed")])
def test_an_error_in_a_module_of_ours_names_the_users_line_that_called_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: str, name: str
) -> None:
    caller = f"calling_{name}"
    head = f"from edgecompress.{ours} import {name}\n"
    text = f"{head}def build():\n    return {name}(*[None] * {name}.__code__.co_argcount)\n"
    write(tmp_path, **{caller: text})
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises((TypeError, AttributeError)) as error:
        user_code.function(f"{caller}:build")()
    assert user_code.error_line(error.value).endswith(f"({tmp_path}/{caller}.py:3)")


def test_code_of_ours_of_the_standard_library_and_of_installed_packages_is_nobodys_line(tmp_path: Path) -> None:
    installed = [PACKAGE / "torch_net.py", PACKAGE / "stages" / "usercode.py", Path(ast.__file__), Path(np.__file__)]
    installed += [Path("/usr/lib/python3/dist-packages/yaml/__init__.py"), Path(sysconfig.get_path("stdlib")) / "x.py"]
    installed += [tmp_path / "venv/lib/python3.11/site-packages/thing.py", Path("/usr/share/zoneinfo/UTC")]
    assert [str(path) for path in installed if package_files.is_users(str(path))] == []
    assert not package_files.is_users("<frozen importlib._bootstrap>")


def test_what_lies_beside_an_installation_and_the_demo_is_the_users(tmp_path: Path) -> None:
    users = [tmp_path / "nets.py", PACKAGE / "demo" / "net.py", Path("/usr/src/app/nets.py"), Path("/library/nets.py")]
    users += [Path(f"{sys.prefix}-of-mine/nets.py"), Path(sys.prefix) / "nets.py", Path(f"{PACKAGE}-mine/nets.py")]
    assert [str(path) for path in users if not package_files.is_users(str(path))] == []


def test_a_package_reached_by_a_link_is_ours(tmp_path: Path) -> None:
    (tmp_path / "edgecompress").symlink_to(PACKAGE, target_is_directory=True)
    assert package_files.is_ours(tmp_path / "edgecompress" / "agent.py")
    assert not package_files.is_users(str(tmp_path / "edgecompress" / "agent.py"))
