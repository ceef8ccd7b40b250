"""The SSH transport against a real sshd: files, programs, lost links, wrong keys, hostile answers, nothing left."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import bench_inputs
import nulls
import psutil
import pytest
import sshd

from edgecompress.commands import profile
from edgecompress.core.errors import InputError, StageFailed, Unreachable
from edgecompress.device import agent_client
from edgecompress.pipeline.job_request import Options
from edgecompress.plugins.transports import ssh
from edgecompress.testing import conformance

pytestmark = [pytest.mark.slow, pytest.mark.sshd]
PYTHON = sys.executable


@pytest.fixture(scope="module")
def server() -> Iterator[sshd.Sshd]:
    with sshd.serving() as running:
        yield running


@pytest.fixture
def board(server: sshd.Sshd) -> Iterator[ssh.SshBoard]:
    connected = ssh.connect(server.device())
    yield connected
    connected.close()


def ends(pid: int, within_s: float = 5.0) -> bool:
    """Whether a process ends (or is a zombie) in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.02)
                continue
        return True
    return False


def soon(found: Callable[[], object], within_s: float = 15.0) -> bool:
    """Whether something comes true in time."""
    end = time.monotonic() + within_s
    while not found() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(found())


def failure(device: dict[str, object]) -> str:
    """The one line that tells why a device cannot be reached."""
    with pytest.raises(Unreachable) as caught:
        ssh.connect(device)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --------------------------------------------------------------------------- files and programs


def test_it_keeps_the_promises_of_a_transport(server, tmp_path):
    conformance.check_transport("ssh", tmp_path, server.device())


def test_odd_names_go_there_and_come_back_without_sftp(board, tmp_path):
    names = ("it's $HOME `id`", "-rf", "new\nline", "back\\slash", "söß/deep/" + 120 * "x", "*", "a b")
    for i, name in enumerate(names):
        file = tmp_path / "odd 'folder'" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(1000 + i))
    there = board.push(tmp_path / "odd 'folder'")
    board.pull(there, tmp_path / "back")
    board.pull(board.push(tmp_path / "odd 'folder'" / "-rf"), tmp_path / "file")
    for name in names:
        assert (tmp_path / "back" / name).read_bytes() == (tmp_path / "odd 'folder'" / name).read_bytes()
    assert (tmp_path / "file").read_bytes() == (tmp_path / "back" / "-rf").read_bytes()


def test_a_program_is_given_its_words_and_nothing_on_stdin(board, tmp_path):
    words = ["it's", "$HOME", "a  b", "", "*", "söß"]
    code = "import sys; print(sys.argv[1:], sys.stdin.read() == ''); print('warned', file=sys.stderr)"
    assert board.run([PYTHON, "-c", code, *words], 30, tmp_path / "log") == 0
    assert (tmp_path / "log").read_text().splitlines() == ["warned", f"{words} True"]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 255", 255), ("kill -9 $$", 137), ("nothing-such", 127)]
)
def test_the_code_is_the_programs(board, tmp_path, script, code):
    assert board.run(["sh", "-c", script], 30, tmp_path / "log") == code


def test_what_is_there_already_is_not_sent_again_but_damage_is_mended(server, board, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_bytes(b"whole")
    carried = Path(board.push(tmp_path / "folder")) / "file"
    first = carried.stat().st_ino
    again = ssh.connect(server.device())
    assert Path(again.push(tmp_path / "folder")) / "file" == carried
    assert carried.stat().st_ino == first and stat.S_IMODE(carried.stat().st_mode) == 0o400
    again.close()
    carried.chmod(0o600)
    carried.write_bytes(b"wh0le")
    mending = ssh.connect(server.device())
    mending.push(tmp_path / "folder")
    mending.close()
    assert carried.read_bytes() == b"whole"


def test_what_nobody_used_for_a_week_is_dropped(server, board, tmp_path):
    (tmp_path / "old").write_bytes(b"old")
    (tmp_path / "new").write_bytes(b"new")
    old, new = (Path(board.push(tmp_path / name)) for name in ("old", "new"))
    os.utime(old.parent, (time.time() - 9 * 86400,) * 2)
    ssh.connect(server.device()).close()
    assert new.exists() and not old.parent.exists()


def test_a_scratch_folder_is_written_in_and_goes(board, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "request.json").write_text("{}")
    there = board.scratch(tmp_path / "out")
    assert board.run(["cp", f"{there}/request.json", f"{there}/result.json"], 30, tmp_path / "log") == 0
    board.pull(there, tmp_path / "out")
    board.discard(there)
    assert (tmp_path / "out" / "result.json").read_text() == "{}"
    assert not Path(there).exists()
    with pytest.raises(StageFailed, match="cannot be fetched"):
        board.pull(there, tmp_path / "out")


def test_facts_are_the_boards_own(server, tmp_path):
    fake = tmp_path / "python"
    fake.symlink_to(PYTHON)
    board = ssh.connect(server.device(python=str(fake)))
    facts = board.facts()
    board.close()
    assert facts["python"] == str(fake)
    assert (facts["machine"], facts["kernel"]) == (os.uname().machine, os.uname().release)
    assert facts["now"]["loadavg"]


# --------------------------------------------------------------------------- the end of a program


def test_the_deadline_ends_the_program_and_its_children(board, tmp_path):
    note = tmp_path / "pid"
    begin = time.monotonic()
    assert board.run(["sh", "-c", f"echo said; sleep 600 & echo $! > {note}; sleep 600"], 1.0, tmp_path / "log") == 124
    assert time.monotonic() - begin < 10
    assert ends(int(note.read_text()))
    assert (tmp_path / "log").read_text() == "said\n"


def test_what_a_program_leaves_behind_ends_with_it(board, tmp_path):
    note = tmp_path / "pid"
    assert board.run(["sh", "-c", f"sleep 600 & echo $! > {note}"], 30, tmp_path / "log") == 0
    assert ends(int(note.read_text()))


def test_a_link_that_is_cut_neither_ends_a_program_nor_makes_up_its_code(server, board, tmp_path):
    script = "echo begun; sleep 2; echo ended; exit 7"
    cutter = threading.Timer(1.0, server.cut)
    cutter.start()
    assert board.run(["sh", "-c", script], 60, tmp_path / "log") == 7
    cutter.join()
    assert (tmp_path / "log").read_text() == "begun\nended\n"


@pytest.mark.prove
def test_a_black_hole_ends_at_the_deadline(server, board, tmp_path, monkeypatch):
    monkeypatch.setattr(ssh, "ANSWER_S", 3.0)
    begin = time.monotonic()
    with server.frozen(), pytest.raises(Unreachable, match=r"no answer.* the deadline of 2 s has passed"):
        board.run(["sleep", "600"], 2.0, tmp_path / "log")
    assert time.monotonic() - begin < 20


def test_closing_ends_what_runs_and_leaves_the_cache_only(server, tmp_path):
    board = ssh.connect(server.device())
    (tmp_path / "file").write_bytes(b"1")
    board.push(tmp_path / "file")
    board.scratch(tmp_path)
    note = tmp_path / "pid"
    runner = threading.Thread(target=_quietly, args=(board, ["sh", "-c", f"echo $$ > {note}; sleep 600"], tmp_path))
    runner.start()
    assert soon(lambda: note.exists() and note.read_text().strip())
    board.close()
    assert ends(int(note.read_text()))
    runner.join(20)
    assert not Path(board.session).exists() and not Path(board.control).exists()
    assert {p.name for p in (server.folder / "there").iterdir()} == {"cache", "sessions"}


def _quietly(board: ssh.SshBoard, argv: list[str], folder: Path) -> None:
    with contextlib.suppress(Unreachable):
        board.run(argv, 5.0, folder / "log")


CHILD = """
import sys
from pathlib import Path
from edgecompress.plugins.transports import ssh
ssh.WATCH_S = 0.0
board = ssh.connect({device!r})
print(board.undertaker.pid, board.session, board.control, flush=True)
board.run(["sh", "-c", "echo $$ > {note}; sleep 600"], {deadline_s}, Path({log!r}))
"""


def started(server: sshd.Sshd, folder: Path, deadline_s: float) -> tuple[subprocess.Popen[str], int, list[str]]:
    """A process that runs a program on the board: itself, the program's id, and what it printed."""
    note = folder / "pid"
    words = {"device": server.device(), "note": note, "deadline_s": deadline_s, "log": str(folder / "log")}
    process = subprocess.Popen([PYTHON, "-c", CHILD.format(**words)], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    said = process.stdout.readline().split()
    assert soon(lambda: note.exists() and note.read_text().strip())
    return process, int(note.read_text()), said


def test_kill_9_of_our_side_leaves_nothing_over_there_nor_here(server, tmp_path):
    process, program, (_, session, control) = started(server, tmp_path, 600)
    process.kill()
    process.communicate()
    assert ends(program)
    assert soon(lambda: not Path(session).exists() and not Path(control).exists())


@pytest.mark.prove
def test_the_far_side_ends_a_program_at_its_deadline_when_nobody_of_ours_is_left(server, tmp_path):
    process, program, (undertaker, _, control) = started(server, tmp_path, 6.0)
    for pid in (int(undertaker), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert psutil.pid_exists(program)
    assert ends(program, 12.0)
    subprocess.run(["ssh", "-S", f"{control}/s", "-O", "exit", "dut"], capture_output=True, check=False)
    shutil.rmtree(control)


# --------------------------------------------------------------------------- what cannot be reached


def test_a_wrong_host_key_is_refused(server, tmp_path, monkeypatch):
    key = (server.folder / "client_key.pub").read_text().split()[1]
    (tmp_path / "known_hosts").write_text(f"[127.0.0.1]:{server.port} ssh-ed25519 {key}\n")
    _with_known_hosts(server, tmp_path, monkeypatch)
    said = failure(server.device())
    assert "its host key differs from the known one" in said and "ssh-keygen -R" in said


def test_an_unknown_host_key_is_refused(server, tmp_path, monkeypatch):
    (tmp_path / "known_hosts").write_text("")
    _with_known_hosts(server, tmp_path, monkeypatch)
    said = failure(server.device())
    assert "its host key is not known on this machine" in said and f"run `ssh -F {tmp_path}/config dut` once" in said


def _with_known_hosts(server: sshd.Sshd, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = server.config.read_text().replace(f"{server.folder}/known_hosts", f"{folder}/known_hosts")
    (folder / "config").write_text(text)
    monkeypatch.setenv(ssh.CONFIG, str(folder / "config"))


def test_a_key_that_is_not_accepted_is_told(server, tmp_path, monkeypatch):
    other = str(tmp_path / "key")
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", other], check=True)
    text = server.config.read_text().replace(f"{server.folder}/client_key", other)
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv(ssh.CONFIG, str(tmp_path / "config"))
    assert "it accepts none of your keys" in failure(server.device())


def test_a_port_where_nothing_listens_is_told(server):
    assert failure(server.device(port=1)).startswith("dut: it refuses the connection; start sshd there")


def test_a_board_without_a_tool_says_which_and_where_to_get_it(tmp_path):
    for name in ("sh", "mkdir", "find"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    with sshd.serving(f"SetEnv PATH={tmp_path}") as server:
        assert "it has no mkfifo, setsid, sha256sum, tar; install" in failure(server.device())


def test_unavailable_is_quick_and_says_why(server):
    assert ssh.unavailable(server.device()) == ""
    assert "refuses the connection" in ssh.unavailable(server.device(port=1))
    begin = time.monotonic()
    with server.frozen():
        assert "no answer" in ssh.unavailable(server.device())
    assert time.monotonic() - begin < 6


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "device add --ssh user@board"),
        ({"host": "-oProxyCommand=id"}, "is not a valid host name"),
        ({"host": "board", "port": 70000}, "port 70000 is not a number from 1 to 65535"),
        ({"host": "board", "port": "22"}, "port '22' is not a number"),
        ({"host": "board", "user": 7}, "user 7 is not one line of text"),
        ({"host": "board", "config": "/nowhere"}, "set EDGECOMPRESS_SSH_CONFIG instead"),
    ],
)
def test_options_that_are_wrong_are_the_users_and_reach_nothing(options, says):
    with pytest.raises(InputError, match=says):
        ssh.connect({"options": options})
    assert says in ssh.unavailable({"options": options})


# --------------------------------------------------------------------------- boards that are small, loud or hostile


@pytest.mark.prove
def test_a_board_with_busybox_and_a_loud_login_is_enough(tmp_path):
    busybox = shutil.which("busybox")
    if not busybox:
        pytest.skip("no busybox (Debian: apt-get install busybox-static)")
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True).stdout.split():
        (tools / name).symlink_to(busybox)
    loud = f'ForceCommand echo welcome; echo psst >&2; PATH={tools} eval "$SSH_ORIGINAL_COMMAND"'
    with sshd.serving(loud) as server:
        conformance.check_transport("ssh", tmp_path / "work", server.device())
        board = ssh.connect(server.device())
        assert board.run(["sleep", "600"], 0.5, tmp_path / "log") == 124
        (tmp_path / (120 * "x")).write_bytes(b"long")
        assert Path(board.push(tmp_path / (120 * "x"))).read_bytes() == b"long"
        board.close()
        assert not Path(board.session).exists()


def _entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, link
    return entry


@pytest.mark.parametrize(
    "entry",
    [
        _entry("out/../../escaped"),
        _entry("/tmp/escaped"),
        _entry("out/link", tarfile.SYMTYPE, "/etc/passwd"),
        _entry("out/link", tarfile.LNKTYPE, "/etc/passwd"),
        _entry("out/pipe", tarfile.FIFOTYPE),
    ],
    ids=lambda e: f"{e.name}-{e.type.decode()}",
)
def test_what_a_hostile_board_sends_stays_in_its_folder(tmp_path, entry):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        archive.addfile(_entry("out/fine"))
        archive.addfile(entry)
    (tmp_path / "answer").write_bytes(stream.getvalue())
    (tmp_path / "bin").mkdir()
    tar = tmp_path / "bin" / "tar"
    tar.write_text(f"#!/bin/sh\nexec cat {tmp_path}/answer\n")
    tar.chmod(0o755)
    with sshd.serving(f"SetEnv PATH={tar.parent}:/usr/bin:/bin") as server:
        board = ssh.connect(server.device())
        with pytest.raises(StageFailed, match=r"was not received correctly: .* refused"):
            board.pull("/there/out", tmp_path / "back")
        board.close()
    assert not (tmp_path / "escaped").exists() and not (tmp_path.parent / "escaped").exists()
    assert {p.name for p in (tmp_path / "back").iterdir()} == {"fine"}


# --------------------------------------------------------------------------- end to end


@pytest.mark.prove
def test_a_deployed_net_is_profiled_on_the_board(server, tmp_path):
    sessions = server.folder / "there" / "sessions"
    before = set(sessions.iterdir()) if sessions.exists() else set()
    environment = sshd.profiled(server.device(python=PYTHON), tmp_path)["environment"]
    assert environment["python"] == PYTHON and environment["kernel"] == os.uname().release
    assert set(sessions.iterdir()) == before
    asked = {"device": str(tmp_path / "board.toml"), "target": str(tmp_path / "net" / "null.toml"), "profile": "quick"}
    strict = {**nulls.FAST, "limits.on_device": -0.01}
    result = profile.profile(tmp_path / "shipped", options=Options(store=tmp_path / "store"), **asked, settings=strict)
    assert (
        result.exit_code == 1
        and "on the device is 0 % from that of the same artifact on this machine, limit -1 %" in result.message
    )


def test_an_onnx_net_answers_on_the_board_as_it_does_here(server, tmp_path):
    pytest.importorskip("onnxruntime")
    model = conformance.net("onnx", tmp_path)
    asked = bench_inputs.asked(model, conformance.samples(model, tmp_path), "onnx")
    board, out = ssh.connect(server.device(python=PYTHON)), tmp_path / "out"
    out.mkdir()
    answer = agent_client.ask(board, bench_inputs.agent_request(asked), out, 120)
    board.close()
    assert answer["n"] == conformance.ITEMS and answer["environment"]["versions"]["onnxruntime"]
    assert (out / "test" / "scores.npy").stat().st_size > 16 * 4 * conformance.ITEMS
