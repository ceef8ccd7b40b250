"""A throw-away sshd on loopback with keys of its own: what the tests of the SSH transport take for a board."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

SERVER = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/client_key.pub
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
LogLevel ERROR
{more}
"""
CLIENT = """\
Host dut
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/client_key
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
"""


def binary() -> str | None:
    """sshd, by the absolute path that it insists on."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def unavailable() -> str:
    """Why there is no sshd, or ""."""
    missing = [name for name, path in {"ssh": shutil.which("ssh"), "sshd": binary()}.items() if not path]
    return f"{' and '.join(missing)} not installed (Debian: apt-get install openssh-server)" if missing else ""


@dataclass
class Sshd:
    """A running server. `folder` holds its keys, its log and the client's configuration."""

    folder: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def config(self) -> Path:
        """The client's configuration: host "dut"."""
        return self.folder / "ssh_config"

    def device(self, **options: Any) -> dict[str, Any]:
        """The device as a transport is given it; what it keeps there lies in `folder`/there."""
        there = {"host": "dut", "folder": f"{self.folder}/there"}
        return {"transport": "ssh", "options": {**there, **options}}

    def connections(self) -> list[psutil.Process]:
        """The processes that serve connections."""
        return [p for p in psutil.Process(self.process.pid).children(recursive=True) if p.name().startswith("sshd")]

    def cut(self) -> None:
        """Breaks every connection."""
        for process in self.connections():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def renew_key(self) -> None:
        """Comes back, at once, as another machine."""
        for name in ("host_key", "host_key.pub"):
            (self.folder / name).unlink()
        _make_key(self.folder / "host_key")
        self.cut()
        self.process.kill()
        self.process.wait()
        self.process = _start(self.folder, self.port)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """A black hole: connections stay open, new ones are taken by the kernel, nothing answers."""
        stopped = [psutil.Process(self.process.pid), *self.connections()]
        for process in stopped:
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in stopped:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def serving(more: str = "") -> Iterator[Sshd]:
    """An sshd with `more` lines in its configuration, {folder} its own; no sftp unless they say so."""
    folder = Path(tempfile.mkdtemp(prefix="sshd-"))
    server = None
    try:
        port = _prepare(folder, more)
        server = Sshd(folder, port, _start(folder, port))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("EDGECOMPRESS_SSH_CONFIG", str(folder / "ssh_config"))
            yield server
    finally:
        if server:
            server.process.kill()
            server.process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _make_key(file: Path) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(file)]
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL)


def _prepare(folder: Path, more: str) -> int:
    """Keys and configurations of both sides; the port."""
    for name in ("host_key", "client_key"):
        _make_key(folder / name)
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # its privilege separation wants it
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    words = {"port": port, "folder": folder, "user": getpass.getuser(), "more": more.replace("{folder}", str(folder))}
    key = " ".join((folder / "host_key.pub").read_text().split()[:2])
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {key}\n")
    (folder / "sshd_config").write_text(SERVER.format(**words))
    (folder / "ssh_config").write_text(CLIENT.format(**words))
    return port


def _start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    exe = binary()
    assert exe, "no sshd: see tests/conftest.py"
    with (folder / "log").open("wb") as log:
        argv = [exe, "-D", "-e", "-f", str(folder / "sshd_config")]
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    end = time.monotonic() + 10
    while time.monotonic() < end and process.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2) as client:
            if client.recv(4) == b"SSH-":
                return process
        time.sleep(0.01)
    process.kill()
    raise AssertionError(f"sshd does not answer: {(folder / 'log').read_text()}")


def profiled(device: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The report of a null net that the command line deployed here, then profiled on a device behind sshd."""
    import nulls  # numpy: not for every test that sees conftest

    asked = nulls.make(folder / "net")
    options = "\n".join(f"{key} = {json.dumps(value)}" for key, value in device["options"].items())
    power = '[power]\nidle_w = 1.0\nactive_w = 2.0\nerror = 0.5\nsource = "of the test"'
    head = 'description = "a board"\ntransport = "ssh"\nsensors = ["power_model"]'
    (folder / "board.toml").write_text(f"{head}\n{power}\n[options]\n{options}\n")
    how = ["--profile", "quick", *(w for k, v in nulls.FAST.items() for w in ("--set", f"{k}={v}"))]
    words = [asked["model"], "--data", asked["data"], "--target", asked["target"], "--out", "shipped"]
    _edgecompress(["deploy", *words, *how], folder)
    told = json.loads(_edgecompress(["profile", "shipped", "--device", "board.toml", "--json", *how], folder))
    report: dict[str, Any] = json.loads((Path(told["report"]) / "report.json").read_text())
    return report


def _edgecompress(words: list[str], folder: Path) -> str:
    argv = [sys.executable, "-m", "edgecompress.cli.main", *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
