"""Runs commands as a stranger's victim would: an unprivileged user, in a folder that is not theirs, watched.

This file is also the small process that starts them (`python -I -S hostile_run.py`): what the kernel says of the memory
of a child begins with its parent's, so the parent must be small.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

NOBODY = 65534
POLL_S = 0.01
GRACE_S = 2.0  # in which what a command has started ends with it
MARK = "EDGECOMPRESS_HOSTILE"  # in the environment of a command and of all that it starts
# Root's Python may lie where nobody else may look: in a view of the files of our own, its folder is the only one there.
VIEW = 'mount --bind "$1" "$2" && mount -t tmpfs -o mode=755 none "$3" && mkdir -p "$1" && mount --move "$2" "$1"'


class Runner:
    """The small process, for many commands."""

    def __init__(self, scratch: str) -> None:
        server = [sys.executable, "-I", "-S", os.path.abspath(__file__)]
        argv = [*_viewed(scratch), *server]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, argv, folder, environment, limit_s, stdin=None):  # type: ignore[no-untyped-def]
        """A command's {"code", "rss_bytes", "seconds", "left"}: code None where it was ended at its limit."""
        assert self.process.stdin and self.process.stdout
        asked = {"argv": argv, "folder": str(folder), "env": environment, "limit_s": limit_s, "stdin": stdin}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def close(self) -> None:
        """Ends it."""
        assert self.process.stdin
        self.process.stdin.close()
        self.process.wait(30)


def _viewed(scratch: str) -> list[str]:
    """What to start it through, so that nobody can run this Python."""
    home = os.path.realpath(sys.base_prefix)
    parts = [home[:i] for i, char in enumerate(home) if char == "/" and i] + [home]
    shut = [folder for folder in parts if not os.stat(folder).st_mode & 0o001]
    if os.geteuid() != 0 or not shut:
        return []
    words = [home, scratch, shut[0]]
    tried = subprocess.run(["unshare", "-m", "sh", "-c", VIEW, "sh", *words], capture_output=True)
    return ["unshare", "-m", "sh", "-c", f'{VIEW} && shift 3 && exec "$@"', "sh", *words] * (tried.returncode == 0)


def main() -> None:
    """Reads commands on stdin, answers on stdout."""
    for line in sys.stdin:
        print(json.dumps(_run(json.loads(line))), flush=True)


def _run(asked):  # type: ignore[no-untyped-def]
    mark = f"{MARK}={os.getpid()}-{time.monotonic_ns()}"
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            _become(asked, mark)
        except BaseException as error:
            os.write(2, f"hostile_run: {error}\n".encode())
        os._exit(127)
    code, usage = _waited(pid, began + asked["limit_s"])
    seconds = time.monotonic() - began
    left = _left(mark)
    return {"code": code, "rss_bytes": usage.ru_maxrss << 10, "seconds": seconds, "left": left}


def _become(asked, mark):  # type: ignore[no-untyped-def]
    os.setsid()
    folder = asked["folder"]
    reads = os.open(asked["stdin"] or os.devnull, os.O_RDONLY)
    for target, name in ((1, "stdout"), (2, "stderr")):
        file = os.open(f"{folder}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        os.dup2(file, target)
    os.dup2(reads, 0)
    os.chdir(folder)
    if os.geteuid() == 0 and os.access(os.path.realpath(sys.executable), os.X_OK):
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    name, _, value = mark.partition("=")
    os.execve(asked["argv"][0], [os.fsencode(word) for word in asked["argv"]], {**asked["env"], name: value})


def _waited(pid, end):  # type: ignore[no-untyped-def]
    while time.monotonic() < end:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status), usage
        time.sleep(POLL_S)
    os.killpg(pid, signal.SIGKILL)
    return None, os.wait4(pid, 0)[2]


def _left(mark):  # type: ignore[no-untyped-def]
    """The commands that were started by it and still run; they are ended."""
    end = time.monotonic() + GRACE_S
    while (alive := _alive(mark)) and time.monotonic() < end:
        time.sleep(POLL_S)
    for pid in alive:
        os.kill(pid, signal.SIGKILL)
    return list(alive.values())


def _alive(mark):  # type: ignore[no-untyped-def]
    found = {}
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark.encode() in _read(f"/proc/{name}/environ").split(b"\0"):
                found[int(name)] = _read(f"/proc/{name}/cmdline").replace(b"\0", b" ").decode(errors="replace")[:200]
        except OSError:
            continue
    return found


def _read(file):  # type: ignore[no-untyped-def]
    with open(file, "rb") as stream:
        return stream.read()


if __name__ == "__main__":
    main()
