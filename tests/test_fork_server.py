"""The fork server: its workers have all that one started alone has, and it ends when nobody needs it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nulls
import psutil
import pytest

from edgecompress.core.model import Context, Stage
from edgecompress.pipeline import fork_server
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.store import Store

TELLS = """
import json, os, resource, shutil, sys, tempfile, threading
told = {
    "folder": os.getcwd(),
    "environment": {k: v for k, v in os.environ.items() if k not in ("TMPDIR", "LINES", "COLUMNS")},
    "temporary": os.path.realpath(tempfile.gettempdir()) == os.path.realpath(os.environ["TMPDIR"]),
    "path": sys.path, "flags": list(sys.flags), "hash": hash("a"), "leads": os.getsid(0) == os.getpid(),
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
    "threads": threading.active_count(), "stdin": os.path.realpath("/proc/self/fd/0"),
}
print("told", json.dumps(told))
print("own", json.dumps({"pid": os.getpid(), "parent": os.getppid()}))
shutil.copytree(request.model.path, request.out, dirs_exist_ok=True)
return Artifact(request.out, "null", request.model.inputs, request.model.outputs).write()
"""
pytestmark = pytest.mark.skipif(not fork_server._possible(), reason="workers are not forked here")


@pytest.fixture
def probe(tmp_path: Path, technique: Callable[[str], Stage], monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], dict]:
    """What a worker tells of itself, forked or started alone."""
    asked, stage, number = nulls.make(tmp_path / "net"), technique(TELLS), iter(range(9))

    def run(forked: bool) -> dict:
        monkeypatch.setattr(fork_server, "serves", lambda each, ahead: forked and each is stage)
        walk = PlanRun(Store(tmp_path / f"results-{next(number)}"), Context())
        walk.stage(Stage("source", "runtimes.null:read", {}, {"path": asked["model"]}))
        outcome = walk.stage(stage)
        lines = Path(outcome.log).read_text().splitlines()
        words = {line.split(" ", 1)[0]: line.split(" ", 1)[1] for line in lines if line.startswith(("told", "own"))}
        return {"told": json.loads(words["told"]), **json.loads(words["own"])}

    return run


def test_a_forked_worker_has_the_folder_environment_and_limits_of_one_started_alone(
    probe: Callable[[bool], dict], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    probe(True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EDGECOMPRESS_MEMORY", "3")  # since the server began
    alone, forked = probe(False), probe(True)
    assert forked["told"] == alone["told"]
    assert (alone["parent"], forked["parent"] == os.getpid()) == (os.getpid(), False)


def test_the_users_code_is_forked_where_a_step_ahead_imports_pytorch_and_no_strangers_file_is() -> None:
    trace, convert = Stage("trace", "stages.trace:run"), Stage("int8", "techniques.ptq_int8:apply")
    factory = Stage("data", "stages.data:run", user_code=True)
    assert fork_server.serves(trace, []) and not fork_server.serves(convert, [trace])
    assert fork_server.serves(factory, [convert, trace]) and not fork_server.serves(factory, [convert])
    read = Stage("source", "extras.onnx_nets.onnx_import:run", user_files=("net.onnx",))
    assert not fork_server.serves(read, [trace])


def test_one_server_forks_all_workers_and_another_where_what_pytorch_reads_differs(
    probe: Callable[[bool], dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = probe(True), probe(True)
    assert first["parent"] == second["parent"]
    monkeypatch.setenv("OMP_STACKSIZE", "5M")
    assert probe(True)["parent"] != first["parent"]


def test_where_the_server_has_ended_another_one_goes_on(probe: Callable[[bool], dict]) -> None:
    first = probe(True)
    os.kill(first["parent"], signal.SIGKILL)
    assert probe(True)["parent"] != first["parent"]


def test_where_no_server_can_be_had_the_worker_is_started_alone(
    probe: Callable[[bool], dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(fork_server.ForkServer, "worker", gone)
    assert probe(True)["parent"] == os.getpid()


def test_the_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\nfrom edgecompress.pipeline.fork_server import ForkServer\n"
        "server = ForkServer(os.environ)\nprint(server._process.pid, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    psutil.wait_procs([each for each in psutil.process_iter() if each.pid == int(done.stdout)], timeout=60)
    assert not psutil.pid_exists(int(done.stdout)) or psutil.Process(int(done.stdout)).status() == "zombie"


def test_a_server_that_nobody_asks_ends() -> None:
    code = "import sys\nfrom edgecompress.pipeline import fork_server as f\nf.IDLE_S, f.IMPORTS = 0.1, ()\nf.main()"
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        end = theirs.fileno()
        subprocess.run([sys.executable, "-c", code, str(end)], pass_fds=[end], timeout=60, check=True)
