"""A stage depends on each file of the user's that it opens: by Python, by native code, in a child, in a thread."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import nulls
import pytest

from edgecompress.core.model import Artifact, Context, Stage
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.store import Store

Stages = Callable[[str], Stage]
READ = {
    "Python": "open({path!r}).read()",
    "native code": "import ctypes\nassert ctypes.CDLL(None).open({path!r}.encode(), 0) > 0",
    "native code, by a relative path": (
        "import ctypes, os\nos.chdir(os.path.dirname({path!r}))\n"
        "assert ctypes.CDLL(None).open(os.path.basename({path!r}).encode(), 0) > 0"
    ),
    "native code, below a folder": (
        "import ctypes, os\nfolder = os.open(os.path.dirname({path!r}), os.O_RDONLY)\n"
        "assert ctypes.CDLL(None).openat(folder, os.path.basename({path!r}).encode(), 0) > 0"
    ),
    "a thread": (
        "import ctypes, threading\n"
        "thread = threading.Thread(target=lambda: ctypes.CDLL(None).open({path!r}.encode(), 0))\n"
        "thread.start()\nthread.join()"
    ),
    "a forked process": (
        "import os\npid = os.fork()\nif not pid:\n    open({path!r}).read()\n    os._exit(0)\nos.waitpid(pid, 0)"
    ),
    "a program": "import subprocess\nsubprocess.run(['cat', {path!r}], check=True)",
    "a mapped file": "import numpy\nnumpy.memmap({path!r}, mode='r')[0]",
}
END = "\nreturn Artifact(request.out, 'null').write()"


@pytest.fixture
def run(tmp_path: Path) -> PlanRun:
    """A run that has a null net as its source."""
    walk = PlanRun(Store(tmp_path / "results"), Context())
    walk.stage(Stage("source", "runtimes.null:read", {}, {"path": nulls.make(tmp_path / "net")["model"]}))
    return walk


def of_the_user(stage: Stage) -> Stage:
    """The same stage, as one that runs the user's code."""
    return dataclasses.replace(stage, user_code=True)


def again(run: PlanRun, stage: Stage) -> str:
    """Why a stage ran; "hit" where it did not."""
    fresh = PlanRun(run.store, Context())
    fresh.outcomes.update({"source": run.outcomes["source"]})
    return fresh.stage(stage).why_run


@pytest.mark.slow
@pytest.mark.parametrize("way", READ)
def test_a_file_that_changed_makes_its_stage_run_again(
    run: PlanRun, technique: Stages, tmp_path: Path, way: str
) -> None:
    (tmp_path / "mine").mkdir()
    file = tmp_path / "mine" / "weights"
    file.write_text("one")
    os.utime(file, (1e9, 1e9))
    stage = of_the_user(technique(READ[way].format(path=str(file)) + END))
    assert run.stage(stage).artifact
    assert again(run, stage) == "hit"
    file.write_text("two")
    os.utime(file, (1e9, 1e9))
    assert again(run, stage) == "changed: file weights"


@pytest.mark.slow
def test_what_a_stage_writes_is_no_input_of_it(run: PlanRun, technique: Stages, tmp_path: Path) -> None:
    body = (
        f"import ctypes\npath = {str(tmp_path / 'cache')!r}\nopen(path, 'w').write(str(__import__('time').time()))\n"
        "assert ctypes.CDLL(None).open(path.encode(), 0) > 0"
    )
    stage = of_the_user(technique(body + END))
    assert run.stage(stage).artifact
    (tmp_path / "cache").write_text("another")
    assert again(run, stage) == "hit"


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["", "cache"], ids=["the temporary folder", "a folder of its own"])
def test_a_module_that_a_library_generates_is_no_input(
    run: PlanRun, technique: Stages, tmp_path: Path, folder: str
) -> None:
    (tmp_path / "cache").mkdir()
    where = f"dir={str(tmp_path / folder)!r}, " if folder else ""
    body = (
        "import importlib.util, tempfile\n"
        f"with tempfile.NamedTemporaryFile('w', {where}prefix='generated_', suffix='.py', delete=False) as file:\n"
        "    file.write('VALUE = 1')\n"
        "spec = importlib.util.spec_from_file_location(file.name.rpartition('/')[2][:-3], file.name)\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "import sys\nsys.modules[spec.name] = module\nspec.loader.exec_module(module)\n"
        "import linecache\nassert linecache.getline(file.name, 1) and module.VALUE"
    )
    stage = of_the_user(technique(body + END))
    assert run.stage(stage).artifact
    shutil.rmtree(tmp_path / "cache")  # with the bytecode beside it
    (tmp_path / "cache").mkdir()
    assert again(run, stage) == "hit"


@pytest.mark.slow
def test_where_the_kernel_tells_nothing_python_does(
    run: PlanRun, technique: Stages, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").write_text("one")
    stage = of_the_user(technique(READ["Python"].format(path=str(tmp_path / "weights")) + END))
    code = "import os\nfrom edgecompress.core import syscall_filter\nsyscall_filter.NEW_LISTENER = 1 << 30\n"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "sitecustomize.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'old'}{os.pathsep}{os.environ['PYTHONPATH']}")
    assert run.stage(stage).artifact
    (tmp_path / "weights").write_text("two")
    assert again(run, stage) == "changed: file weights"


MANY = {
    "processes that open at once": (
        "import multiprocessing, os\n"
        "with multiprocessing.get_context('fork').Pool(8) as pool:\n"
        "    assert pool.map(os.path.getsize, ['/etc/passwd'] * 100)\n"
        "    assert all(pool.map(len, [p.read() for p in map(open, ['/etc/passwd'] * 2000)]))"
    ),
    "one that ends while it opens": (
        "import os, signal, time\n"
        "for _ in range(30):\n"
        "    pid = os.fork()\n"
        "    while not pid: open('/etc/passwd').close()\n"
        "    time.sleep(0.005)\n    os.kill(pid, signal.SIGKILL)\n    os.waitpid(pid, 0)"
    ),
}


@pytest.mark.slow
@pytest.mark.prove
@pytest.mark.parametrize("what", MANY)
def test_of_many_processes_all_are_answered(run: PlanRun, technique: Stages, what: str) -> None:
    assert run.stage(of_the_user(technique(MANY[what] + END))).artifact


@pytest.mark.slow
def test_weights_beside_an_onnx_file_belong_to_it(tmp_path: Path) -> None:
    import numpy as np

    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    def write(scale: float) -> None:
        weights = numpy_helper.from_array(np.full((4, 4), scale, np.float32), "w")
        sides = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4])] for name in "xy"]
        graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", *sides, [weights])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
        (tmp_path / "net.data").unlink(missing_ok=True)  # onnx appends to one
        onnx.save_model(model, tmp_path / "net.onnx", save_as_external_data=True, location="net.data", size_threshold=0)
        for name in ("net.onnx", "net.data"):
            os.utime(tmp_path / name, (1e9, 1e9))

    stage = Stage("source", "runtimes.onnx:read", {}, {"path": str(tmp_path / "net.onnx")}, user_files=("net.onnx",))
    write(1.0)
    store = Store(tmp_path / "results")
    first = PlanRun(store, Context()).stage(stage).artifact
    assert PlanRun(store, Context()).stage(stage).why_run == "hit"
    write(2.0)
    second = PlanRun(store, Context()).stage(stage)
    assert second.why_run == "changed: file net.data"
    assert isinstance(first, Artifact) and second.artifact and first.sha256 != second.artifact.sha256
