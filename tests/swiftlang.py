"""A real Swift compiler, SwiftPM and XCTest: Debian's, unpacked below one folder, run without network and without root.

`python tests/swiftlang.py` fetches them (some 550 MB, 1.6 GB unpacked) into the user's cache; nothing is installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import adbd

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "edgecompress" / "swiftlang"
ROOT = CACHE / "root"
HOME = "usr/libexec/swift"
SUITE = "trixie"  # the first with Swift 6; it is not what this machine runs, so all its libraries come along
PACKAGES = ("swiftlang", "libc6-dev", "libstdc++-14-dev", "binutils")
UNNEEDED = (
    *("./usr/share/doc", "./usr/share/man", "./usr/share/locale", "./usr/share/zoneinfo"),
    *("*/swift_static", "*/liblldb*", "*/lldb*", "*/clangd", "*/docc", "*/sourcekit-lsp", "*/libsourcekitd*"),
    *("*/libLTO*", "*/lib/swift/embedded", "*/swift-format", "*/libexec/gcc", "*/sanitizer", "*/libswiftLLVM*"),
)
MERGED = ("bin", "lib", "lib64")  # of /usr, and links to that
WORK = "/given"  # what a folder of a test is called in there
DEADLINE_S = 500.0
# The folder of the test, /proc and /dev/null are mounted where nobody else sees them; then the root is ROOT.
INSIDE = (
    'mount --bind "$1" "$2$3" && mount -t proc proc "$2/proc" && shift && root=$1 && shift 2 && exec chroot $root "$@"'
)


def unavailable() -> str:
    """Why there is no Swift to be had, or ""."""
    if sys.platform != "linux" or not shutil.which("unshare"):
        return "Swift is run in Linux namespaces"
    if not (ROOT / HOME / "bin" / "swiftc").exists():
        return "no Swift here; on Debian: `python tests/swiftlang.py`"
    tried = subprocess.run(["unshare", "-rmnp", "--fork", "true"], capture_output=True, text=True)
    return f"no namespaces for this user: {tried.stderr.strip()}" if tried.returncode else ""


def swift(work: Path, tool: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`swiftc`, `swift` or a program below `work`, which is called /given in there."""
    program = tool if tool.startswith("/") else f"/{HOME}/bin/{tool}"
    environment = {
        "PATH": f"/{HOME}/bin:/usr/bin:/usr/sbin:/bin",
        "LD_LIBRARY_PATH": f"/{HOME}/lib/swift/linux",
        "HOME": WORK,
        "TMPDIR": WORK,
    }
    namespaces = ["unshare", "-rmnp", "--fork", "sh", "-c", INSIDE, "sh", str(work), str(ROOT), WORK]
    environment["PATH"] += ":" + os.environ["PATH"]
    return subprocess.run(
        [*namespaces, program, *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )


def put_zlib(folder: Path) -> None:
    """zlib for what is built in there: this machine's header, and the library of Swift's own Debian."""
    folder.mkdir(exist_ok=True)
    for name in ("zlib.h", "zconf.h"):
        shutil.copy(Path("/usr/include") / name, folder)
    (folder / "libz.so").symlink_to("/usr/lib/x86_64-linux-gnu/libz.so.1")


# --------------------------------------------------------------------------- fetching


def fetch() -> None:
    """The compiler and every library that it loads, from this machine's mirror, by an apt state of its own."""
    shutil.rmtree(CACHE, ignore_errors=True)
    for folder in (
        "lists/partial",
        "cache/archives/partial",
        "unpacked/usr/lib",
        "unpacked/usr/bin",
        "unpacked/usr/lib64",
    ):
        (CACHE / folder).mkdir(parents=True)
    (CACHE / "status").touch()
    url, _ = adbd.mirror()
    (CACHE / "sources.list").write_text(f"deb [signed-by={adbd.KEYRING}] {url} {SUITE} main\n", encoding="ascii")
    adbd.apt(CACHE, "-qq", "update", alone=True)
    words = ("-qq", "-y", "--no-install-recommends", "--download-only", "install")
    adbd.apt(CACHE, *words, *PACKAGES, alone=True)
    for package in sorted((CACHE / "cache/archives").glob("*.deb")):
        _unpack(package, CACHE / "unpacked")
    for name in MERGED:
        (CACHE / "unpacked" / name).symlink_to(f"usr/{name}")
    for name in ("proc", "dev", "tmp", WORK[1:]):
        (CACHE / "unpacked" / name).mkdir()
    (CACHE / "unpacked/dev/null").touch()
    (CACHE / "unpacked").rename(ROOT)
    for folder in ("lists", "cache"):
        shutil.rmtree(CACHE / folder)


def _unpack(package: Path, into: Path) -> None:
    left_out = [f"--exclude={pattern}" for pattern in UNNEEDED]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(package)], stdout=subprocess.PIPE) as opened:
        subprocess.run(
            ["tar", "-x", "--no-same-owner", "--keep-directory-symlink", *left_out, "-C", str(into)],
            stdin=opened.stdout,
            check=True,
        )


def main(arguments: Sequence[str]) -> None:
    if not (ROOT / HOME / "bin" / "swiftc").exists():
        fetch()
    print(ROOT)


if __name__ == "__main__":
    main(sys.argv[1:])
