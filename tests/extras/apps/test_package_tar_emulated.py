"""The board package on an aarch64 board that is not here: its own root folder, a real shell, no network, QEMU."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import package_inputs
import pytest

from edgecompress.device.emulation import build
from edgecompress.device.emulation.emulator import Emulator
from edgecompress.extras.apps import archive, golden, package

pytestmark = [pytest.mark.slow, pytest.mark.qemu]
CPU = "cortex-a76"
# Of 64-bit little-endian Arm programs: what the kernel hands to QEMU, here in the namespace alone.
MAGIC = r"\x7fELF\x02\x01\x01" + r"\x00" * 9 + r"\x02\x00\xb7\x00"
MASK = r"\xff" * 7 + r"\x00" + r"\xff" * 8 + r"\xfe\xff\xff\xff"
ENTER = """\
set -eu
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
printf '%s' ':arm64:M:0:{magic}:{mask}:{place}/host/usr/bin/qemu-aarch64:FP' >/proc/sys/fs/binfmt_misc/register
mount --rbind {place}/arm64/usr {root}/usr
mount --rbind {place}/arm64/lib/aarch64-linux-gnu {root}/lib/aarch64-linux-gnu
mount -t proc proc {root}/proc
mount --bind {cpu}/proc/cpuinfo {root}/proc/cpuinfo
mount --bind {cpu}/sys {root}/sys
mount --rbind /dev {root}/dev
exec {chroot} {root} /bin/sh -eu /opt/script
"""
POST = """\
import sys, urllib.request
body = open(sys.argv[1], "rb").read()
print(urllib.request.urlopen("http://127.0.0.1:8123/predict", body).read().decode())
"""  # busybox wget ends a body at its first zero
BOARD = """\
ip link set lo up
cd /opt/package/{top}
echo "machine $(uname -m)"
./install.sh /opt/app
tr -d '\\n' </opt/app/self-test.json
echo
/opt/app/run serve --port 8123 >/opt/said 2>/opt/log &
while ! grep -q serving /opt/said; do
    kill -0 $! || {{ cat /opt/said /opt/log; exit 1; }}
    sleep 1
done
python3 -I -c '{post}' payload/golden/raw.bin
wget -q -O - http://127.0.0.1:8123/health
kill $!
"""


@pytest.fixture(scope="module")
def emulator() -> Emulator:
    built = build.find()
    assert built
    return built


@pytest.fixture
def board(tmp_path: Path, emulator: Emulator) -> Path:
    """The root folder of a board: busybox as its tools, and below lib the libraries that QEMU itself needs."""
    root = tmp_path / "board"
    for folder in (
        "bin",
        "dev",
        "lib/aarch64-linux-gnu",
        "lib/x86_64-linux-gnu",
        "lib64",
        "opt",
        "proc",
        "sys",
        "tmp",
        "usr",
    ):
        (root / folder).mkdir(parents=True)
    shutil.copy(emulator.place / "arm64/bin/busybox", root / "bin/busybox")
    (root / "bin/sh").symlink_to("busybox")
    for libraries in ("host/lib/x86_64-linux-gnu", "host/usr/lib/x86_64-linux-gnu"):
        for library in (emulator.place / libraries).glob("*.so*"):
            shutil.copy(library, root / "lib/x86_64-linux-gnu" / library.name)
    (root / "lib64/ld-linux-x86-64.so.2").symlink_to("/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2")
    (root / "lib/ld-linux-aarch64.so.1").symlink_to("aarch64-linux-gnu/ld-linux-aarch64.so.1")
    return root


def run(board: Path, emulator: Emulator, script: str) -> str:
    """What a script says that runs on the board, in namespaces of its own: no network, nothing mounted is left."""
    (board / "opt/script").write_text(script)
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
    enter = ENTER.format(
        magic=MAGIC, mask=MASK, place=emulator.place, cpu=emulator.root(CPU), root=board, chroot=chroot
    )
    alone = ["unshare", "--user", "--map-root-user", "--mount", "--net", "--pid", "--fork", "--kill-child"]
    env = {"PATH": "/bin:/usr/bin:/sbin:/usr/sbin", "QEMU_CPU": CPU, "PIP_NO_COMPILE": "0"}  # pip reads this as "no"
    done = subprocess.run([*alone, "sh", "-c", enter], env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.mark.prove  # test_package_tar.py does it here, test_ssh_emulated.py runs other things there
def test_it_installs_tests_itself_and_serves_a_prediction_offline(
    tmp_path: Path, board: Path, emulator: Emulator
) -> None:
    shipped = package_inputs.shipped(tmp_path / "dist")
    file = package.package(shipped, "tar", tmp_path / "pets.tar.gz", {"platform": "linux-aarch64"})
    (board / "opt/package").mkdir()
    archive.unpack(file, board / "opt/package")
    top = archive.top(board / "opt/package", file)
    machine, installed, steps, answer, health = run(board, emulator, BOARD.format(top=top.name, post=POST)).splitlines()
    assert machine == "machine aarch64"
    assert installed.startswith("installed below /opt/app, self-test passed")
    assert [step["ok"] for step in json.loads(steps)] == [True] * 4
    assert json.loads(health)["status"] == "ok"
    classes = {row["label"]: row["probability"] for row in json.loads(answer)["classes"]}
    assert classes == pytest.approx(expected(top / "payload"), rel=0.01)


def expected(payload: Path) -> dict[str, float]:
    """What the golden answer means."""
    card = json.loads((payload / "model_card.json").read_text())
    scores = golden.load(payload, card["golden"]["outputs"][0]).reshape(-1)
    powers = np.exp(scores - scores.max())
    return dict(zip(package_inputs.LABELS, (float(p) for p in powers / math.fsum(powers)), strict=True))
