"""A real adbd to test against: Debian's, unpacked without root, in a network namespace where nobody else finds it.

`python tests/adbd.py` fetches it (some 3 MB, and 10 MB of package lists) into the user's cache; nothing is installed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgecompress" / "adbd"
ROOT = CACHE / "root"
TOOLS = ROOT / "usr/lib/android-sdk/platform-tools"
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PORT = 15555  # not one of those at which adb looks for emulators
SERIAL = f"127.0.0.1:{PORT}"
START_S = 20.0
PROPERTIES = {
    "ro.product.model": "Pixel of Debian",
    "ro.product.cpu.abi": "arm64-v8a",
    "ro.build.version.release": "14",
}
# What `unshare` starts: brings loopback up (SIOCSIFFLAGS: up, loopback, running) and lasts until its stdin ends.
KEEPER = """
import fcntl, socket, struct, sys
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh14x", b"lo", 0x49))
print("up", flush=True)
sys.stdin.read()
"""


def unavailable() -> str:
    """Why there is no adbd to be had, or ""."""
    if sys.platform != "linux" or not shutil.which("unshare"):
        return "adbd is run in a Linux network namespace"
    if not (TOOLS / "adbd").is_file():
        return "no adbd here; on Debian: `python tests/adbd.py`"
    tried = subprocess.run(["unshare", "-rn", "true"], capture_output=True, text=True)
    return f"no network namespace for this user: {tried.stderr.strip()}" if tried.returncode else ""


# --------------------------------------------------------------------------- fetching


def fetch() -> None:
    """adb, adbd and what they need beside what is installed, from this machine's mirror, by an apt state of its own."""
    url, suite = mirror()
    shutil.rmtree(CACHE, ignore_errors=True)
    for folder in ("lists/partial", "cache/archives/partial", "unpacked"):
        (CACHE / folder).mkdir(parents=True)
    lines = [f"deb [signed-by={KEYRING}] {url} {name} main\n" for name in (suite, f"{suite}-backports")]
    (CACHE / "sources.list").write_text("".join(lines), encoding="ascii")
    apt(CACHE, "-qq", "update")
    words = ("-qq", "-y", "--no-install-recommends", f"-t={suite}-backports", "--download-only", "install")
    apt(CACHE, *words, "adb", "adbd")
    for package in (CACHE / "cache/archives").glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(CACHE / "unpacked")], check=True)
    (CACHE / "unpacked").rename(ROOT)
    for folder in ("lists", "cache"):
        shutil.rmtree(CACHE / folder)


def mirror() -> tuple[str, str]:
    """Where this machine's own packages come from, and the name of its release."""
    asked = subprocess.run(["apt-get", "update", "--print-uris"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"'(\S+/debian/?)/dists/([a-z]+)/InRelease'", asked)
    if not found:
        raise SystemExit("this is no Debian: none of apt's sources is a mirror of it")
    return found[1], found[2]


def apt(cache: Path, *arguments: str, alone: bool = False) -> None:
    """apt-get that writes below a folder only, and reads what is installed here: nothing where it is `alone`."""
    places = {
        "Dir::Etc::sourcelist": cache / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null" if alone else "-",
        **({"Dir::State": cache, "Dir::State::status": cache / "status"} if alone else {}),
        **({"Dir::Etc::preferencesparts": "/dev/null"} if alone else {}),
        "Dir::State::lists": cache / "lists",
        "Dir::Cache": cache / "cache",
        "APT::Sandbox::User": "root",
        "APT::Update::Post-Invoke": "",
        "Acquire::Languages": "none",
        "Debug::NoLocking": "1",
    }
    options = [f"-o={key}={value}" for key, value in places.items()]
    subprocess.run(["apt-get", *options, *arguments], check=True)


# --------------------------------------------------------------------------- running


@dataclass
class Adbd:
    """A device that runs on this machine: `adb` is the executable that finds it, `serial` its name."""

    folder: Path
    adb: Path
    serial: str = SERIAL
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the daemon and connects adb to it."""
        daemon = [str(self.adb.with_name("within")), str(TOOLS / "adbd")]
        with (self.folder / "adbd.log").open("ab") as log:
            self.process = subprocess.Popen(daemon, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        end = time.monotonic() + START_S
        while self.call("-s", self.serial, "get-state") != "device":
            if time.monotonic() > end:
                raise RuntimeError(f"adbd does not answer: {(self.folder / 'adbd.log').read_text()}")
            self.call("connect", self.serial)
            time.sleep(0.05)

    def kill(self) -> None:
        """Ends the daemon as a crash would."""
        assert self.process
        self.process.kill()
        self.process.wait()

    def call(self, *arguments: str) -> str:
        """What adb says."""
        done = subprocess.run([str(self.adb), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True)
        return done.stdout.strip()


@contextlib.contextmanager
def adbd(folder: Path) -> Iterator[Adbd]:
    """A daemon whose home, temporary files and device's files are in `folder`; gone afterwards, with all it began."""
    keeper = subprocess.Popen(
        ["unshare", "-rn", sys.executable, "-c", KEEPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert keeper.stdin and keeper.stdout
    keeper.stdout.readline()
    device = Adbd(folder, _scripts(folder, keeper.pid))
    try:
        device.start()
        yield device
    finally:
        device.call("kill-server")
        device.kill()
        keeper.stdin.close()
        keeper.wait()
        keeper.stdout.close()


def _scripts(folder: Path, keeper: int) -> Path:
    """`within COMMAND...` runs in the keeper's namespace, `adb` is the client there, `getprop` what Android has."""
    libraries = [str(p) for p in ROOT.glob("usr/lib/*-linux-gnu/android")]
    libraries += [str(Path(p).parent) for p in libraries]
    told = "\n".join(f"  {name}) echo '{value}';;" for name, value in PROPERTIES.items())
    environment = {
        "HOME": folder / "home",
        "TMPDIR": folder / "tmp",
        "LD_LIBRARY_PATH": ":".join(libraries),
        "ADB_MDNS": "0",
        "ANDROID_ADB_SERVER_PORT": "15037",
        "ADBD_PORT": PORT,
    }
    words = " ".join(f"'{key}={value}'" for key, value in environment.items())
    for name in ("home", "tmp", "bin"):
        (folder / name).mkdir(parents=True)
    within = folder / "bin" / "within"
    script(
        within, f'exec nsenter -t {keeper} -U -n --preserve-credentials env {words} PATH="{within.parent}:$PATH" "$@"'
    )
    script(folder / "bin/getprop", f'case "$1" in\n{told}\nesac')
    script(folder / "bin/adb", f'exec "{within}" "{TOOLS}/adb" "$@"')
    return folder / "bin" / "adb"


def script(file: Path, text: str) -> None:
    file.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    file.chmod(0o755)


if __name__ == "__main__":
    if not (TOOLS / "adbd").is_file():
        fetch()
    print(f"{TOOLS}/adbd")
