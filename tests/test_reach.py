"""What strace sees of a deploy: no address beyond this machine, and no file outside store, out and TMPDIR."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nulls
import pytest
from test_bad_input import QUICK, conv_net, images

pytestmark = [pytest.mark.slow, pytest.mark.strace, pytest.mark.timeout(1800)]
CALLS = (
    "connect,sendto,sendmsg,openat,creat,mkdir,mkdirat,rename,renameat,renameat2,unlink,unlinkat,rmdir,link,linkat,"
    "symlink,symlinkat,truncate,mknod,mknodat,chmod,fchmodat,chown,utimensat"
)
CHANGED = re.compile(r"^(\w+)\(.*\) += \d+")
PATH = re.compile(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"([^"]*)"')
WRITES = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC)")
DEVICES = re.compile(r"/dev/(null|tty|shm/.*|pts/.*)|/proc/(self|\d+)/task/\d+/comm")


def traced(folder: Path, *words: str) -> list[str]:
    """The lines of strace of a deploy in a folder, and of all its processes; it must ship."""
    (folder / "tmp").mkdir()
    environment = {
        **os.environ,
        "TMPDIR": str(folder / "tmp"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HOME": str(folder / "home"),
        "XDG_STATE_HOME": str(folder / "state"),
    }
    strace = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-s",
        "4000",
        "-e",
        f"trace={CALLS}",
        "-o",
        str(folder / "trace"),
    ]
    command = [sys.executable, "-P", "-m", "edgecompress.cli.main", "deploy", *words]
    done = subprocess.run(
        [*strace, *command], cwd=folder, env=environment, capture_output=True, text=True, timeout=1500, check=False
    )
    assert done.returncode == 0, done.stderr
    return [line.partition(" ")[2].lstrip() for line in (folder / "trace").read_text(errors="replace").splitlines()]


def contacts(lines: list[str]) -> list[str]:
    """The calls that reach an address of the internet, even on this machine."""
    return [line for line in lines if "AF_INET" in line and line.startswith(("connect", "send"))]


def changed(lines: list[str], folder: Path) -> Iterator[str]:
    """The paths that were changed, each absolute."""
    for line in lines:
        if (match := CHANGED.match(line)) and (match[1] != "openat" or WRITES.search(line)):
            for at, name in PATH.findall(line):
                yield os.path.normpath(os.path.join(at or folder, name))


def elsewhere(lines: list[str], folder: Path) -> set[str]:
    """The changed paths outside the folder of the deploy, but for devices."""
    paths = set(changed(lines, folder))
    assert paths, "nothing was seen"
    return {path for path in paths if not f"{path}/".startswith(f"{folder}/") and not DEVICES.fullmatch(path)}


def test_a_deploy_stays_in_its_folders_and_reaches_no_address(tmp_path: Path) -> None:
    nulls.make(tmp_path)
    lines = traced(tmp_path, "net.null", "--data", "data", "--target", "null.toml", *QUICK)
    assert elsewhere(lines, tmp_path) == set()
    assert contacts(lines) == []
    assert not (tmp_path / "home").exists()


@pytest.mark.prove
@pytest.mark.parametrize("source", ["demo", "net.onnx"])
def test_a_deploy_with_all_its_libraries_stays_there_too(source: str, tmp_path: Path) -> None:
    conv_net(tmp_path / "net.onnx")
    images(tmp_path / "data.npz")
    words = () if source == "demo" else ("net.onnx", "--data", "data.npz")
    lines = traced(tmp_path, *words, "--target", "x86", "--profile", "quick")
    assert elsewhere(lines, tmp_path) == set()
    assert contacts(lines) == []


def test_what_strays_is_seen(tmp_path: Path) -> None:
    """The check can fail: a file and an address, each by a child of a child."""
    code = "import socket\nopen('/tmp/edgecompress-strays', 'w')\nsocket.socket(2, 2).sendto(b'x', ('127.0.0.1', 9))"
    (tmp_path / "stray.py").write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {code!r}])\n")
    out = tmp_path / "trace"
    subprocess.run(
        ["strace", "-f", "-qq", "-y", "-e", f"trace={CALLS}", "-o", out, sys.executable, tmp_path / "stray.py"],
        check=True,
    )
    Path("/tmp/edgecompress-strays").unlink()
    lines = [line.partition(" ")[2].lstrip() for line in out.read_text().splitlines()]
    assert "/tmp/edgecompress-strays" in elsewhere(lines, tmp_path)
    assert len(contacts(lines)) == 1
