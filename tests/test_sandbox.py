"""What a stage can do to the machine: the kernel refuses files, programs and the network, to native code and children.

Each attempt runs in a process of its own, with and without root's rights, and succeeds there where nothing limits it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import nulls
import plugins
import pytest
from test_opened_files import Stages, run

from edgecompress.core import child_process, registry, sandbox
from edgecompress.core.errors import EdgeError, InputError, StageFailed, TooMuchMemory
from edgecompress.core.model import Stage
from edgecompress.pipeline import confinement, worker_protocol
from edgecompress.pipeline.runner import PlanRun

pytestmark = pytest.mark.skipif(bool(sandbox.missing()), reason=f"no sandbox: {sandbox.missing()}")
ROOT = Path(__file__).resolve().parent.parent
NOBODY = 65534
__all__ = ["run"]  # a fixture of the tests of opened files

# what is tried, in a process that may change `own` and not `theirs`
ATTEMPTS: Mapping[str, str] = {
    "write": "open(theirs / 'file', 'w')",
    "append": "open(theirs / 'file', 'a')",
    "truncate": "os.truncate(theirs / 'file', 0)",
    "create": "open(theirs / 'new', 'x')",
    "make a folder": "os.mkdir(theirs / 'folder')",
    "remove": "os.unlink(theirs / 'file')",
    "rename": "os.rename(theirs / 'file', theirs / 'other')",
    "move in": "open(own / 'mine', 'w').close(); os.rename(own / 'mine', theirs / 'mine')",
    "link": "os.symlink('file', theirs / 'link')",
    "hard link": "os.link(theirs / 'file', theirs / 'again')",
    "pipe": "os.mkfifo(theirs / 'pipe')",
    "through a link": "os.symlink(theirs, own / 'way'); open(own / 'way' / 'file', 'w')",
    "through ..": "open(own / '..' / 'theirs' / 'file', 'w')",
    "in native code": "refused(libc.creat(bytes(theirs / 'native'), 0o600))",
    "in a child": "subprocess.run([sys.executable, '-c', f'open({str(theirs / \"file\")!r}, \"w\")'], check=True)",
    "in a thread": "threaded(lambda: open(theirs / 'file', 'w'))",
    "a program": "subprocess.run(['/bin/true'], check=True)",
    "a program of its own": "shutil.copy('/bin/true', own / 'tool'); subprocess.run([own / 'tool'], check=True)",
    "TCP": "socket.socket(socket.AF_INET, socket.SOCK_STREAM)",
    "UDP": "socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)",
    "raw netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM)",
    "TCP in native code": "refused(libc.socket(2, 1, 0))",
    "UDP in a child": "subprocess.run([sys.executable, '-c', 'import socket; socket.socket(2, 2)'], check=True)",
    "io_uring": "refused(libc.syscall(425, 1, ctypes.create_string_buffer(120)))",
    "a service's socket": "socket.socket(socket.AF_UNIX).connect(bytes(theirs / 'service'))",
    "a signal": "os.kill(other, signal.SIGCONT)",
    "another's memory": "refused(libc.ptrace(16, other, 0, 0))",
    "another's limits": "resource.prlimit(other, resource.RLIMIT_NOFILE, (99, 99))",
    "another's priority": "os.setpriority(os.PRIO_PROCESS, other, 3)",
    "another's processors": "os.sched_setaffinity(other, {0})",
    "another's scheduler": "os.sched_setscheduler(other, os.SCHED_BATCH, os.sched_param(0))",
    "attributes": "os.setxattr(theirs / 'file', 'user.x', b'1')",
    "flags of a file": "fcntl.ioctl(os.open(theirs / 'file', os.O_RDONLY), 0x40086602, bytes(8))",
    "a terminal": "termios.tcsetattr(os.openpty()[1], termios.TCSANOW, termios.tcgetattr(os.openpty()[1]))",
    "a namespace": "refused(libc.syscall(CLONE, 0x10000011, 0, 0, 0, 0) or os._exit(0))",
}
SCRIPT = """
import ctypes, fcntl, json, os, resource, shutil, signal, socket, subprocess, sys, termios, threading
from pathlib import Path
from edgecompress.core import child_process, registry, sandbox
from edgecompress.core.model import Stage
from edgecompress.pipeline import confinement

libc = ctypes.CDLL(None, use_errno=True)
where, other, user, attempts = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), json.loads(sys.argv[4])
source = Stage("source", "runtimes.null:read", user_files=("net.null",))
confinement.limits(source, 0, (), {}, False)  # imports what it needs while it can be read

CLONE = {'x86_64': 56, 'aarch64': 220}[os.uname().machine]

def refused(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

def threaded(call):
    errors = []
    def run():
        try: call()
        except OSError as error: errors.append(error)
    thread = threading.Thread(target=run)
    thread.start(); thread.join()
    for error in errors: raise error

def attempt(code, folder, limited):
    own, theirs = folder / "own", folder / "theirs"
    for place in (own, theirs): place.mkdir(parents=True)
    (theirs / "file").write_text("theirs")
    service = socket.socket(socket.AF_UNIX)
    service.bind(str(theirs / "service"))
    service.listen()
    if limited: sandbox.enter(confinement.limits(source, 0, (str(own),), {}, offline=False))
    (own / "inside").write_text("x")
    try: exec(code, {**globals(), "own": own, "theirs": theirs})
    except (OSError, subprocess.CalledProcessError): return 9
    return 0

where.mkdir()
if user:
    os.chown(where, user, user)
    os.setgroups([]); os.setuid(user)
codes = {}
for limited in (False, True):
    for index, (what, code) in enumerate(attempts.items()):
        if not (child := os.fork()):
            try: os._exit(attempt(code, where / f"{index}-{limited}", limited))
            finally: os._exit(1)
        codes.setdefault(what, []).append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


def tried(attempts: Mapping[str, str], folder: Path, user: int = 0) -> dict[str, list[int]]:
    """The codes of each attempt, free and limited: 0 where it succeeded, 9 where it was refused."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(["sleep", "600"], user=user or None) as other:
        words = [str(folder), str(other.pid), str(user), json.dumps(attempts)]
        done = subprocess.run(
            [sys.executable, "-P", "-c", SCRIPT, *words], env=environment, capture_output=True, text=True, check=False
        )
        other.kill()
    assert done.returncode == 0, done.stderr
    codes: dict[str, list[int]] = json.loads(done.stdout)
    return codes


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[int]]:
    return tried(ATTEMPTS, tmp_path_factory.mktemp("attempts") / "here")


@pytest.mark.slow
@pytest.mark.parametrize("what", ATTEMPTS)
def test_a_stage_that_reads_a_strangers_file_changes_starts_and_reaches_nothing(
    what: str, codes: dict[str, list[int]]
) -> None:
    free, limited = codes[what]
    assert free == 0, "the attempt is none"
    assert limited == 9


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root becomes another user")
def test_the_limits_need_no_privileges() -> None:
    attempts = {what: ATTEMPTS[what] for what in ("write", "in native code", "UDP", "a program", "a signal")}
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        assert tried(attempts, Path(folder) / "nobody", NOBODY) == {what: [0, 9] for what in attempts}


# --------------------------------------------------------------------------- stages


@pytest.mark.slow
def test_a_stage_that_writes_elsewhere_is_told_where_it_may(run: PlanRun, technique: Stages, tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match=r"probe: .*'.*/elsewhere': a stage changes only its own folder and TMPDIR"):
        run.stage(technique(f"open({str(tmp_path / 'elsewhere')!r}, 'w')"))
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        "import socket\nsocket.create_connection(('192.0.2.1', 9), timeout=1)",
        "import socket\nsocket.getaddrinfo('example.org', 80)",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))",
        "import urllib.request\nurllib.request.urlopen('http://192.0.2.1/', timeout=1)",
        "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'import socket; socket.socket()'], check=True)",
    ],
    ids=["TCP", "DNS", "UDP", "HTTP", "a child"],
)
@pytest.mark.parametrize("code", ["a library's", "the user's"])
def test_offline_holds_for_libraries_for_the_users_code_and_for_children(
    run: PlanRun, technique: Stages, body: str, code: str
) -> None:
    run.offline = True
    stage = technique(body)
    if code == "the user's":
        stage = Stage(stage.name, stage.call, stage.inputs, user_code=True)
    with pytest.raises(EdgeError, match=r"--offline: a stage tried to connect to|Permission denied|CalledProcessError"):
        run.stage(stage)


READER = """from edgecompress.engines.null.runtimes.null import *


def read(request):
    {body}
"""


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stages]:
    """A stage that reads a stranger's file with the given body, in a runtime of its own."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)

    def write(body: str) -> Stage:
        plugins.plugin(folder, "runtimes", "probe", READER.format(body="\n    ".join(body.splitlines())))
        registry.entry_points.cache_clear()
        return Stage("probe", "runtimes.probe:read", {"model": "source"}, user_files=("net.null",), timeout_s=60)

    yield write
    registry.entry_points.cache_clear()


GREEDY = {
    "its own": "held = []\nwhile True:\n    held.append(bytearray(b'x') * (32 << 20))",
    "files without a name": """
import os, time
files = [os.memfd_create(str(i)) for i in range(64)]
for file in files:
    os.write(file, b"x" * (32 << 20))
    time.sleep(0.02)
time.sleep(60)
""",
    "of a child": """
import subprocess, sys
subprocess.run([sys.executable, "-c", "held = b'x' * (700 << 20); import time; time.sleep(60)"])
""",
}
TOGETHER = """
import subprocess, sys, time
hold = "held = b'x' * (100 << 20); import time; time.sleep(60)"
held = [subprocess.Popen([sys.executable, "-c", hold]) for _ in range(8)]
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("body", GREEDY.values(), ids=GREEDY)
def test_a_stage_that_takes_too_much_memory_is_ended_with_what_to_do(
    run: PlanRun, technique: Stages, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    stage = technique(body)
    monkeypatch.setenv(sandbox.MEMORY, "0.5")
    with pytest.raises(
        TooMuchMemory, match=r"probe: its process took 0\.\d GB .* limit is 0\.5 GB; .*EDGECOMPRESS_MEMORY"
    ):
        run.stage(stage)


@pytest.mark.slow
def test_a_stage_that_reads_a_strangers_file_has_its_memory_for_all_that_it_starts(
    run: PlanRun, reader: Stages, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = reader(TOGETHER)
    monkeypatch.setenv(sandbox.MEMORY, "0.5")
    with pytest.raises(InputError, match=r"net\.null: its process took .* its limit is 0\.5 GB"):
        run.stage(stage)


HARMS = {
    "crash": ("import os\nos.abort()", r"net\.null: cannot be read: its process was ended by SIGABRT \(a crash in nat"),
    "fill": (
        "import numpy\nheld = [numpy.ones(1 << 27) for _ in range(3)]",
        r"net\.null: reading it needs too much mem",
    ),
    "hold up": ("while True: pass", r"net\.null: cannot be read: no end after 5 s"),
    "raise": (
        "raise KeyError('x')",
        r"net\.null: unexpected error: KeyError: 'x'; check it, give a smaller one, or more",
    ),
    "refuse": ("from edgecompress.core.errors import ConfigError\nraise ConfigError('net: no')", r"^net: no \(log"),
}


@pytest.mark.parametrize("what", HARMS)
def test_what_a_strangers_file_does_to_a_library_is_the_fault_of_the_file(
    run: PlanRun, reader: Stages, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    body, says = HARMS[what]
    stage = reader(body)
    monkeypatch.setenv(sandbox.MEMORY, "1.5")
    patience = 5.0 if what == "hold up" else 60.0
    with pytest.raises(InputError, match=says):
        run.stage(replace(stage, timeout_s=patience))


def test_processes_that_come_and_go_are_looked_at_without_an_error() -> None:
    script = "for i in $(seq 300); do sleep 0 & done; wait"
    with subprocess.Popen(["sh", "-c", script]) as busy:
        while busy.poll() is None:
            child_process.check_memory("probe", busy.pid, 1 << 40, together=True)
            child_process.check_memory("probe", busy.pid, 1 << 40)
    child_process.check_memory("probe", busy.pid, 1)


@pytest.mark.slow
def test_a_stage_that_makes_no_progress_is_ended(run: PlanRun, technique: Stages) -> None:
    body = "import time\nrequest.progress(0.5, 'half')\ntime.sleep(60)"
    stage = technique(body)
    with pytest.raises(StageFailed, match=r"probe: no end after . s and no progress for 1 s, stopped"):
        run.stage(Stage(stage.name, stage.call, stage.inputs, silence_s=1.0))


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-1e999", "1" + "0" * 400], ids=lambda number: number[:8])
def test_progress_that_is_no_finite_number_is_no_answer(number: str) -> None:
    with pytest.raises(StageFailed, match=r"probe: its process sent .* which is no answer"):
        worker_protocol.answer(f'{{"progress": {number}, "what": ""}}'.encode(), "probe")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        '{"done": true}',
        "[1]",
        "nonsense",
        '{"progress": NaN, "what": ""}',
        '{"progress": "1", "what": ""}',
        "[" * 100_000,
    ],
)
def test_what_the_users_code_writes_to_our_pipe_is_no_answer(run: PlanRun, technique: Stages, sent: str) -> None:
    body = (
        f"import os, time\nsent = {sent!r}.encode() + bytes([10])\n"
        "for number in range(3, 20):\n    try: os.write(number, sent)\n    except OSError: pass\ntime.sleep(5)"
    )
    with pytest.raises(StageFailed, match=r"probe: its process sent .* which is no answer"):
        run.stage(technique(body))


LEFT = {
    "a pipe": "os.mkfifo(request.out / 'x')",
    "a link": "os.symlink('/etc/passwd', request.out / 'x')",
    "a link to a folder": "(request.out / 'deep').mkdir(); os.symlink('/etc', request.out / 'deep' / 'x')",
    "a socket": "os.mknod(request.out / 'x', 0o140600)",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", LEFT)
def test_a_result_that_is_no_file_is_refused_and_not_waited_for(run: PlanRun, technique: Stages, what: str) -> None:
    stage = technique(f"import os\n{LEFT[what]}\nreturn Artifact(request.out, 'null').write()")
    with pytest.raises(StageFailed, match=f"probe: it left {what.removesuffix(' to a folder')} among its results"):
        run.stage(stage)


@pytest.mark.slow
def test_a_stage_writes_only_what_it_makes_and_no_receipt(run: PlanRun, technique: Stages) -> None:
    body = "import os\nos.symlink('/nowhere', request.out.parent / 'receipt.json')"
    with pytest.raises(StageFailed, match="a stage changes only its own folder"):
        run.stage(technique(body))


@pytest.mark.slow
def test_a_process_in_a_session_of_its_own_ends_with_its_stage(run: PlanRun, technique: Stages, tmp_path: Path) -> None:
    body = (
        "import os, time\nif not os.fork():\n    os.setsid()\n    if not os.fork():\n"
        "        (request.out / 'living').write_text(str(os.getpid()))\n        time.sleep(600)\n    os._exit(0)\n"
        "while not (request.out / 'living').exists() or not (request.out / 'living').read_text(): time.sleep(0.01)\n"
        "return Artifact(request.out, 'null').write()"
    )
    made = run.stage(technique(body)).artifact
    assert made is not None
    with pytest.raises(ProcessLookupError):
        for _ in range(100):
            os.kill(int((made.path / "living").read_text()), 0)
            time.sleep(0.05)


@pytest.mark.slow
def test_the_users_processes_share_data_through_sockets_in_the_temporary_folder(
    run: PlanRun, technique: Stages
) -> None:
    body = (
        "import multiprocessing.connection\nfrom multiprocessing import Pool\n"
        "multiprocessing.connection.Listener(family='AF_UNIX').close()\n"
        "with Pool(2) as pool: assert pool.map(abs, [-1, 2]) == [1, 2]\n"
        "return Artifact(request.out, 'null').write()"
    )
    stage = technique(body)
    assert run.stage(Stage(stage.name, stage.call, stage.inputs, user_code=True, timeout_s=60)).artifact


def test_what_a_killed_run_left_in_the_systems_temporary_folder_goes(
    run: PlanRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "system").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "system"))
    (tmp_path / "system" / "edgecompress-0").symlink_to(tmp_path / "gone")
    (tmp_path / "system" / "edgecompress-1").symlink_to(tmp_path)
    run.stage(Stage("again", "runtimes.null:read", {}, {"path": nulls.make(tmp_path / "another")["model"]}))
    assert [path.name for path in (tmp_path / "system").iterdir()] == ["edgecompress-1"]


@pytest.mark.parametrize(
    ("stage", "device", "expected"),
    [
        (Stage("source", "runtimes.null:read", user_files=("net.null",)), {}, "no programs, no network, own files"),
        (Stage("export", "runtimes.null:export"), {}, "no network, own files"),
        (Stage("trace", "stages.trace:run", user_code=True), {}, ""),
        (Stage("round", "stages.latency:round", context=("device",)), {"transport": "host"}, "no network, own files"),
        (Stage("round", "stages.latency:round", context=("device",)), {"transport": "ssh"}, ""),
        (Stage("round", "stages.latency:round", context=("device",)), {"sensors": ["joulescope"]}, ""),
        (Stage("round", "stages.latency:round", context=("device",)), {"sensors": ["rapl"]}, "no network, own files"),
        (Stage("verify", "stages.verify:run", context=("here",)), {"transport": "ssh"}, "no network, own files"),
    ],
)
def test_a_stage_has_what_its_work_needs(stage: Stage, device: Mapping[str, object], expected: str) -> None:
    limits = confinement.limits(stage, 0, ("/own",), device, offline=False)
    says = [
        *(["no programs"] if limits.programs is not None else []),
        *(["no network"] if not limits.network else []),
        *(["own files"] if limits.writes is not None else []),
    ]
    assert ", ".join(says) == expected


def test_a_larger_file_has_more_memory_and_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(1000))
    files = (str(tmp_path / "file"), str(tmp_path), "a\0b")
    read = Stage("source", "runtimes.null:read", user_files=files)
    assert confinement.input_bytes(read, {}) == 1000
    limits = [confinement.limits(read, size, (), {}, offline=False) for size in (0, 1000)]
    assert limits[0].resident_bytes + 8000 == limits[1].resident_bytes
    assert confinement.deadline_s(read, 0) < confinement.deadline_s(read, 1 << 30)


def test_a_memory_limit_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sandbox.MEMORY, "much")
    with pytest.raises(InputError, match="EDGECOMPRESS_MEMORY=much: not a number of GiB"):
        confinement.limits(
            Stage("source", "runtimes.null:read", user_files=("net.null",)), 0, ("/own",), {}, offline=False
        )
