"""An Android device by the `adb` executable, over USB or Wi-Fi. Options: `serial`, `folder`, `python`.

`serial` is one that `adb devices` lists, or HOST:PORT (else ANDROID_SERIAL counts, or there is but one device);
`folder` is where files go there, `python` the command there that runs an agent: phones have none. EDGECOMPRESS_ADB
names the executable here, where it is not on PATH.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shlex
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgecompress.core import child_process
from edgecompress.core.errors import EdgeError, InputError, StageFailed, Unreachable
from edgecompress.core.json import Json
from edgecompress.core.model import sha256_of
from edgecompress.core.protocols import DEADLINE
from edgecompress.device import machine
from edgecompress.plugins.transports import _archive, _flood

REQUIRES: tuple[str, ...] = ()
NAMED = "EDGECOMPRESS_ADB"  # the executable: never a word of a TOML
FOLDER = "/data/local/tmp/edgecompress"  # what adb's user may write to on every Android
LOOK_S = 5.0  # for `unavailable`, all in all
ANSWER_S = 60.0  # for a short command
CARRY_S = 3600.0  # for a model
LAST_BYTES = 80  # of what is printed, in which the code of the program is
GRACE_S = 8.0  # in which the end of a program that was killed there is told
POLL_S = 0.02
SAID_BYTES = 64 << 20  # that a program may say
CARRY_BYTES = 4 << 30  # of files that are fetched
STATES = {
    "unauthorized": "unlock it and allow USB debugging from this computer",
    "authorizing": "unlock it and allow USB debugging from this computer",
    "offline": "plug it in again, or run: adb reconnect offline",
    "no permissions": "this user may not open USB devices; see the udev rules for Android devices",
}
# What adb returns is no code to trust (0 when adbd dies), so the last line is ours. The program has a process group of
# its own, and beside it a guard that reads stdin: where that ends (at the deadline, or with this side, the link, or
# adbd), the group is killed. Where the link ends adbd sends this shell SIGHUP: it goes on, or it would leave a program
# behind whose guard it had not started yet. For dash, mksh, toybox alike.
GUARDED = """trap : HUP
cd {folder}
exec 3<&0
setsid {program} </dev/null 2>&1 3<&- & job=$!
setsid sh -c 'cat >/dev/null; kill -s KILL -- -$0 || kill -s KILL $0' $job <&3 >/dev/null 2>&1 & guard=$!
wait $job; code=$?
kill -s KILL -- -$job 2>/dev/null || kill -s KILL $job 2>/dev/null
kill -s KILL -- -$guard 2>/dev/null || kill -s KILL $guard
echo; echo {token}=$code
"""
PROPERTIES = ("ro.product.model", "ro.soc.model", "ro.build.version.release", "ro.product.cpu.abi")
ABIS = {"arm64-v8a": "arm64", "armeabi-v7a": "arm", "armeabi": "arm"}
SCRIPT = "\n".join(
    [
        "exec 2>/dev/null",  # Android lets its shell see files that it may not open
        *(f"echo '{machine.MARK} {name}'; getprop {name}" for name in PROPERTIES),
        f"echo '{machine.MARK} python'; command -v python3; {machine.SCRIPT}",
    ]
)


def unavailable(device: Mapping[str, Json]) -> str:
    """Why the device cannot be reached now, or ""."""
    try:
        _serial(_executable(device), _chosen_serial(device), LOOK_S)
    except EdgeError as error:
        return str(error)
    return ""


def connect(device: Mapping[str, Json]) -> Adb:
    """The device that the options name, or the only one there is. Raises Unreachable, or InputError for options."""
    adb, serial = _executable(device), _chosen_serial(device)
    folder = _option(device, "folder") or FOLDER
    if not folder.startswith("/"):
        raise InputError(f"device.options.folder is '{folder}': give an absolute path on the device, such as {FOLDER}")
    shell = Adb(adb, _serial(adb, serial, ANSWER_S), folder.rstrip("/"), _option(device, "python"))
    shell.tell(f"mkdir -p {shlex.quote(folder)}", f"make the folder {folder}", place="/")
    return shell


# --------------------------------------------------------------------------- which device


def _option(device: Mapping[str, Any], name: str) -> str:
    value = (device.get("options") or {}).get(name, "")
    if not isinstance(value, str):
        raise InputError(f"device.options.{name} is {value!r}: write it as text, in quotes")
    return value


def _chosen_serial(device: Mapping[str, Json]) -> str:
    return _option(device, "serial") or os.environ.get("ANDROID_SERIAL", "")


def _executable(device: Mapping[str, Json]) -> str:
    if _option(device, "adb"):
        raise InputError(
            f"device.options.adb is not allowed: a device file may not name a program of this machine; set {NAMED} "
            "instead"
        )
    program = _program()
    if not program:
        raise Unreachable(lacking())
    return program


def _program() -> str | None:
    return shutil.which(os.environ.get(NAMED) or "adb")


def lacking() -> str:
    """What this machine lacks for it, or ""."""
    if _program():
        return ""
    named = os.environ.get(NAMED)
    what = f"there is no program '{named}' on this machine" if named else "no adb here"
    return f"{what}; install Android's platform-tools, or set {NAMED} to where adb is"


def _serial(adb: str, chosen: str, seconds: float) -> str:
    """The serial of the device that is meant, which is ready; raises Unreachable with what to do."""
    end = time.monotonic() + seconds
    listed = _listed(adb, end)
    if ":" in chosen and chosen not in listed:
        answer = _call([adb, "connect", chosen], end)
        if not re.search(r"^(already )?connected to ", answer, re.MULTILINE) and "authenticate" not in answer:
            raise Unreachable(
                f"{chosen}: {_last(answer) or 'adb connect printed nothing'}; is Wi-Fi debugging on there?"
            )
        listed = _listed(adb, end)
    serial = chosen or _only(listed)
    if serial not in listed:
        raise Unreachable(f"no device {serial}; adb sees {', '.join(sorted(listed)) or 'none'}")
    state = listed[serial]
    if state != "device":
        next_step = next((hint for name, hint in STATES.items() if state.startswith(name)), "start it as usual")
        raise Unreachable(f"{serial} is {state.partition('(')[0].strip()}: {next_step}")
    return serial


def _only(listed: Mapping[str, str]) -> str:
    if not listed:
        raise Unreachable("adb sees no device; plug one in and switch on USB debugging")
    if len(listed) > 1:
        names = sorted(listed)
        raise Unreachable(
            f"adb sees {len(listed)} devices, {', '.join(names)}: name one with --set device.options.serial={names[0]}"
        )
    return next(iter(listed))


def _listed(adb: str, end: float) -> dict[str, str]:
    """Serial and state of each device that adb sees."""
    lines = (line.partition("\t") for line in _call([adb, "devices"], end).splitlines())
    return {serial.strip(): state.strip() for serial, tab, state in lines if tab}


def _call(argv: Sequence[str], end: float) -> str:
    """What adb says to a command that ends by itself."""
    seconds = max(0.1, end - time.monotonic())
    try:
        out, errors = _ended(argv, seconds)
    except _flood.Flood as error:
        raise Unreachable(f"adb {argv[1]}: it printed {error}; is {argv[0]} adb?") from error
    except subprocess.TimeoutExpired as error:
        raise Unreachable(f"adb {argv[1]}: no answer within {seconds:.0f} s; try: adb kill-server") from error
    except OSError as error:
        raise Unreachable(f"{argv[0]}: {error.strerror}; set {NAMED} to where adb is") from error
    return (out + b"\n" + errors).decode(errors="replace")


def _ended(argv: Sequence[str], seconds: float) -> tuple[bytes, bytes]:
    """What a program prints. It may be a script around adb: what that started ends with it (adb's server goes on)."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, start_new_session=True)
        try:
            _flood.wait(process, seconds, [out, errors], SAID_BYTES)
        finally:
            child_process.end(process)
        out.seek(0)
        errors.seek(0)
        return out.read(), errors.read()


def _last(text: str) -> str:
    """The last line that says something, as far as it can be shown."""
    lines = [line for each in text.splitlines() if (line := machine.line(each))]
    return lines[-1] if lines else ""


# --------------------------------------------------------------------------- the shell


@dataclass(frozen=True)
class Adb:
    """A Shell on an Android device."""

    adb: str
    serial: str
    folder: str
    python: str = ""
    scratches: set[str] = field(default_factory=set)
    here = False

    def push(self, path: Path) -> str:
        """Where a copy of the file or folder is there, named by its content, not to be written to."""
        digest = _digest(path)
        name = shlex.quote(digest + path.suffix)
        if self.code(f"[ -e {name} ]"):
            part = self._send(path, digest)
            self.tell(f"chmod -R a-w {part} && mv {part} {name}", f"keep {path.name}")
        return f"{self.folder}/{digest}{path.suffix}"

    def scratch(self, path: Path) -> str:
        """A copy of the folder there, for one run to write in."""
        name = self._send(path, _digest(path))
        self.scratches.add(name)
        return f"{self.folder}/{name}"

    def discard(self, there: str) -> None:
        """Removes what `scratch` made."""
        folder, _, name = there.rpartition("/")
        if folder == self.folder and name in self.scratches:
            self.tell(f"rm -rf {name}", f"remove {there}")
            self.scratches.remove(name)

    def _send(self, path: Path, digest: str) -> str:
        """The name of a new copy of the file or folder in the device's folder, whose content was read again there."""
        part = f"run-{secrets.token_hex(8)}"
        argv = [self.adb, "-s", self.serial, "push", str(path.resolve()), f"{self.folder}/{part}"]
        output = _call(argv, time.monotonic() + CARRY_S)
        lines = f"mkdir -p {part} && cd {part} && find . -type f -exec sha256sum {{}} + | LC_ALL=C sort | sha256sum"
        read = lines if path.is_dir() else f"sha256sum < {part}"
        arrived = self.tell(f"{read} | cut -c1-64", f"read {path.name}", CARRY_S)
        if arrived.strip() != digest:
            self.code(f"rm -rf {part}")
            raise Unreachable(f"{self.serial}: {path.name} was not transferred completely: {_last(output)}")
        return part

    def pull(self, there: str, path: Path) -> None:
        """Copies a file or folder from there: plain files only, and none outside `path`."""
        parent, name = map(shlex.quote, os.path.split(there))
        with tempfile.TemporaryDirectory() as scratch:
            archive = Path(scratch) / "archive.tar"
            packed = f"tar -cf - -C {parent} {name} 2>/dev/null"
            if self._execute(["sh", "-c", packed], CARRY_S, archive, most=CARRY_BYTES):
                raise StageFailed(f"{self.serial}: {there} cannot be read there")
            _unpack(archive, path, f"{self.serial}: {there}")

    def run(self, argv: Sequence[str], deadline_s: float, log: Path) -> int:
        """The program's exit code, its output added to `log`; DEADLINE when it was killed there for being late."""
        return self._execute(argv, deadline_s, log)

    def code(self, script: str, seconds: float = ANSWER_S) -> int:
        """The exit code of a short script."""
        with tempfile.TemporaryDirectory() as scratch:
            return self._execute(["sh", "-c", script], seconds, Path(scratch) / "said")

    def tell(self, script: str, what: str, seconds: float = ANSWER_S, place: str = "") -> str:
        """What a short script prints; raises Unreachable, with what it was to do, when it fails."""
        with tempfile.TemporaryDirectory() as scratch:
            log = Path(scratch) / "said"
            code = self._execute(["sh", "-c", script], seconds, log, place)
            output = log.read_text(encoding="utf-8", errors="replace")
        if code:
            raise Unreachable(f"{self.serial}: cannot {what} there: {_last(output) or f'code {code}'}")
        return output

    def _execute(
        self, argv: Sequence[str], deadline_s: float, log: Path, place: str = "", most: int = SAID_BYTES
    ) -> int:
        """Runs a program in `place` (the device's folder) with its output, of at most so many bytes, in `log`."""
        token = secrets.token_hex(16)
        script = GUARDED.format(folder=shlex.quote(place or self.folder), program=shlex.join(argv), token=token)
        with log.open("ab") as out, tempfile.TemporaryFile() as errors:
            command = [self.adb, "-s", self.serial, "shell", script]
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdin=pipe, stdout=out, stderr=errors, start_new_session=True)
            try:
                code = _awaited(process, log, token, deadline_s, most)
            except _flood.Flood as error:
                raise StageFailed(f"{self.serial}: it sent {error}; that is no answer of an agent") from error
            finally:
                child_process.end(process)
                assert process.stdin
                process.stdin.close()
            if code is None:
                errors.seek(0)
                why = _last(errors.read(1 << 16).decode(errors="replace")) or "adb ended without a message"
                raise Unreachable(f"{self.serial}: the link was lost ({why}); plug it in again")
        return code

    def facts(self) -> Mapping[str, Any]:
        """What the device is, by its own words; "python" is None where there is none."""
        texts = machine.parsed(self.tell(SCRIPT, "look around"))
        return {**machine.facts(texts), **_android(texts), "python": self.python or _word(texts, "python") or None}

    def close(self) -> None:
        """Removes what is left of `scratch`: a program ends with its run."""
        with contextlib.suppress(Unreachable):
            for name in sorted(self.scratches):
                self.discard(f"{self.folder}/{name}")


def _android(texts: machine.Texts) -> dict[str, str]:
    """What Android's properties know better than the files of Linux; nothing where it is another system."""
    model, soc, release, abi = (_word(texts, name) for name in PROPERTIES)
    facts = {
        "board": model,
        "cpu": soc,
        "os": f"Android {release}" if release else "",
        "platform": f"android-{ABIS.get(abi, abi)}" if abi else "",
    }
    return {key: value for key, value in facts.items() if value}


def _word(texts: machine.Texts, name: str) -> str:
    """The last line of what a device said."""
    return _last(texts.get(name, ""))


# --------------------------------------------------------------------------- the end of a program


def _awaited(process: subprocess.Popen[bytes], log: Path, token: str, deadline_s: float, most: int) -> int | None:
    """The code of the program, DEADLINE where it had to be killed, None when nobody knows what became of it."""
    code = _heard(process, log, token, deadline_s, most)
    if code is None and process.poll() is None:
        assert process.stdin
        process.stdin.close()  # which ends it there
        code = None if _heard(process, log, token, GRACE_S, most) is None else DEADLINE
    return code


def _heard(process: subprocess.Popen[bytes], log: Path, token: str, seconds: float, most: int) -> int | None:
    """The code in the last line, which is then taken away; None when there is none after so long, or at adb's end."""
    end = time.monotonic() + seconds
    while True:
        ended = process.poll() is not None  # asked before the log is read, which is then complete
        _flood.check(log.stat().st_size, most)
        if (code := _taken(log, token)) is not None or ended or time.monotonic() > end:
            return code
        time.sleep(POLL_S)


def _taken(log: Path, token: str) -> int | None:
    with log.open("r+b") as file:
        start = max(0, file.seek(0, os.SEEK_END) - LAST_BYTES)
        file.seek(start)
        last = re.search(rb"\n%s=(\d+)\n" % token.encode(), file.read(LAST_BYTES))  # it may grow meanwhile
        if last:
            file.truncate(start + last.start())
        return int(last[1]) if last else None


# --------------------------------------------------------------------------- files


def _digest(path: Path) -> str:
    """sha256 of a file; of a folder, that of its files' lines as sha256sum prints them, sorted."""
    if path.is_file():
        return sha256_of(path)
    files = (p for p in path.rglob("*") if p.is_file())
    lines = sorted(f"{sha256_of(p)}  ./{p.relative_to(path).as_posix()}\n".encode() for p in files)
    return hashlib.sha256(b"".join(lines)).hexdigest()


def _unpack(archive: Path, path: Path, says: str) -> None:
    """What a device packed, as `path`."""
    try:
        with tarfile.open(archive, "r:") as packed:  # nothing is unpacked to more than was fetched
            _archive.unpack(packed, path)
    except (tarfile.TarError, EOFError) as error:
        raise Unreachable(f"{says} was not transferred completely: {error}") from error
    except ValueError as error:
        raise StageFailed(f"{says} was not received correctly: {error}") from error
