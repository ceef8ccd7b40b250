"""Disk faults: a preload library lets the n-th call of a kind fail, in whatever process of a command it happens.

As a program this file is what runs the commands: it imports once, and forks for each.
"""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import select
import signal
import struct
import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgecompress.cli import main
from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact
from edgecompress.pipeline import shipping
from edgecompress.pipeline.store import Store, key_of

SOURCE = Path(__file__).with_suffix(".c")
KINDS = (
    *("open", "create", "read", "write", "fsync", "rename", "mkdir", "link", "unlink", "flock"),
    *("close", "truncate", "copy", "list", "meta"),
)
STORE = "store-and-ship"  # a command of ours: what all deploys do with the disk, without a stage
SHORT = 10_000  # of faults.c: a part of the work is done, without an error
# What a disk answers to each: open and list only read.
CODES: dict[str, tuple[int, ...]] = {
    "open": (errno.EIO, errno.EINTR),
    "create": (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EINTR),
    "read": (errno.EIO, errno.EINTR, SHORT),
    "write": (errno.EIO, errno.ENOSPC, errno.EINTR, SHORT),
    "fsync": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "rename": (errno.EIO, errno.ENOSPC, errno.EROFS),
    "mkdir": (errno.EIO, errno.ENOSPC, errno.EROFS),
    "link": (errno.EIO, errno.ENOSPC, errno.EROFS),
    "unlink": (errno.EIO, errno.EROFS),
    "flock": (errno.EIO, errno.EINTR),
    "close": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "truncate": (errno.EIO, errno.ENOSPC, errno.EINTR),
    "copy": (errno.EIO, errno.ENOSPC, errno.EINTR, SHORT),
    "list": (errno.EIO,),
    "meta": (errno.EIO, errno.EROFS),
}
_LAYOUT = struct.Struct("5i16i2048s2i")  # of faults.c; the log follows
_LOG_BYTES = 4 << 20
LONGEST_S = 120  # of a command


@dataclass(frozen=True)
class Fault:
    """The `number`-th call of a kind fails with an errno, or does a part of its work (SHORT)."""

    kind: str
    number: int
    code: int
    site: str = ""  # where that is: the path, without what differs from run to run

    def __str__(self) -> str:
        name = "SHORT" if self.code == SHORT else errno.errorcode[self.code]
        return f"{self.kind}-{self.number}-{name} {self.site}"


@dataclass(frozen=True)
class Ended:
    """How a command ended, and whether the fault happened."""

    code: int
    out: str
    err: str
    hit: int


class FaultyDisk:
    """A place where commands of edgecompress run, with a fault or without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.control, self.said = folder / "control", folder / "said"
        library = folder / "faults.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        self.control.write_bytes(_LAYOUT.pack(-1, 0, 0, 0, 0, *[0] * 16, b"", 0, 0) + bytes(_LOG_BYTES))
        env = {**os.environ, "LD_PRELOAD": str(library), "EDGECOMPRESS_FAULTS": str(self.control)}
        argv = [sys.executable, "-P", __file__]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        with self.control.open("r+b") as file:
            self.shared = mmap.mmap(file.fileno(), _LAYOUT.size + _LOG_BYTES)

    def close(self) -> None:
        """Ends the process that runs the commands."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(10)

    def run(self, words: Sequence[str], folder: Path, fault: Fault | None = None) -> Ended:
        """Runs a command in a folder; the fault may happen below it."""
        return self._run(words, folder, _control(folder, fault))[0]

    def calls(self, words: Sequence[str], folder: Path) -> list[tuple[str, int, str]]:
        """What a command does below a folder: kind, number, and where."""
        ended, log = self._run(words, folder, _control(folder, None, traced=True))
        assert ended.code == 0, ended.err
        lines = [line.split(" ", 3) for line in log.splitlines()]
        first = lines[0][2]
        return [
            (KINDS[int(kind)], int(number), f"{'parent' if process == first else 'child'} {_plain(path, folder)}")
            for number, kind, process, path in lines
        ]

    def _run(self, words: Sequence[str], folder: Path, control: bytes) -> tuple[Ended, str]:
        size = _LAYOUT.size
        self.shared[:size] = control
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps([list(words), str(folder), str(self.said), LONGEST_S]) + "\n")
        self.process.stdin.flush()
        assert select.select([self.process.stdout], [], [], LONGEST_S + 10)[0], "no answer"
        code = int(self.process.stdout.readline())
        told = _LAYOUT.unpack(self.shared[:size])
        self.shared[:size] = _control(folder, None)
        out, err = (Path(f"{self.said}.{name}").read_text(errors="replace") for name in ("out", "err"))
        return Ended(code, out, err, told[3]), self.shared[size : size + told[-1]].decode()


def _control(folder: Path, fault: Fault | None, traced: bool = False) -> bytes:
    kind, number, code = (KINDS.index(fault.kind), fault.number, fault.code) if fault else (-1, 0, 0)
    return _LAYOUT.pack(kind, number, code, 0, 0, *[0] * 16, str(folder).encode(), traced, 0)


def _plain(path: str, folder: Path) -> str:
    """A path without what differs from run to run."""
    path = path.removeprefix(f"{folder}/")
    path = re.sub(r"\d{8}-\d{6}-\d+", "TIME", path)
    path = re.sub(r"\.[a-z0-9_]{8}(/|$)", r".RANDOM\1", path)
    path = re.sub(r"\d+-[0-9a-f]{16}", "RUN", path)
    return re.sub(r"\.\d+(\.|$)", r".PID\1", path)


# --------------------------------------------------------------------------- what runs the commands


def serve() -> None:
    """Runs each line of stdin, [words, folder, file of what it says, seconds], and answers its exit code."""
    for line in sys.stdin:
        words, folder, said, seconds = json.loads(line)
        child = os.fork()
        if not child:
            _forked(words, folder, said, seconds)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def _forked(words: list[str], folder: str, said: str, seconds: int) -> None:
    os.setsid()
    os.chdir(folder)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(f"{said}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.alarm(seconds)
    code = 99
    try:
        code = main.main(words) if words != [STORE] else _in_one_line()
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _in_one_line() -> int:
    try:
        store_and_ship(Path())
        return 0
    except EdgeError as error:
        print(f"edgecompress: error: {error}", file=sys.stderr)
        return error.exit_code


def store_and_ship(folder: Path) -> None:
    """What a deploy does with a store and what it ships, without its stages: look up, make, keep, ship, clear."""
    store = Store(folder.resolve() / "results")
    artifacts = [_stage(store, {"call": name}, name) for name in ("one", "two")]
    out = folder.resolve() / "shipped"
    with store.locked("ship"):
        shipping.check(out, store.root)
        shipping.ship(out, lambda part: _fill(part, artifacts))
    store.remember_search("scope:race", 1.0)
    store.collect(older_than_s=3600)


def _stage(store: Store, parts: dict[str, str], text: str) -> Artifact:
    with store.locked(key_of(parts)):
        found = store.find(parts)
        if not found:
            store.why(parts["call"], parts, False)
            scratch, kept = store.scratch(key_of(parts)), store.keep(key_of(parts))
            (kept / "log").write_text("kept")
            (kept / "checkpoint").write_text("goes")
            (scratch / "artifact" / "model.txt").write_text(text)
            Artifact(scratch / "artifact", "text").write()
            store.release(scratch.name)
            found = store.commit(
                scratch, parts, {"stage": parts["call"], "wall_s": 1.0, "log": "", "files": {}, "modules": []}
            )
    store.remember(parts["call"], parts, found.receipt)
    return found.artifact


def _fill(part: Path, artifacts: Sequence[Artifact]) -> None:
    for name, artifact in zip(shipping.ARTIFACTS, artifacts, strict=False):
        shipping.copied(artifact, part / name)
    for name in shipping.REPORT:
        (part / name).write_text('{"schema": "edgecompress/stages/report/0"}')
    origin = {"variant": "", "runtime": "", "target": ""}
    (part / shipping.ORIGIN).write_text(json.dumps(origin))


if __name__ == "__main__":
    serve()
