"""A board behind sshd, by the OpenSSH client: your ssh_config, keys, agent and jump hosts; no sftp needed there."""

from __future__ import annotations

import contextlib
import hashlib
import math
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
from typing import IO, Any

from edgecompress.core.errors import InputError, StageFailed, Unreachable
from edgecompress.core.json import Json
from edgecompress.core.model import sha256_of
from edgecompress.core.protocols import DEADLINE
from edgecompress.device import machine
from edgecompress.plugins.transports import _archive, _flood

Stream = IO[bytes] | None

REQUIRES: tuple[str, ...] = ()
KILLED = 137  # of one that is gone without a code: as a shell reports SIGKILL
TOOLS = ("mkfifo", "setsid", "sha256sum", "tar")  # of coreutils, util-linux and tar, or of busybox
CONFIG = "EDGECOMPRESS_SSH_CONFIG"  # an ssh_config: never a word of a TOML, for its ProxyCommand runs here
SHELL = re.compile(r"""[\s'`"$\\;&<>|(){}]""")  # what a ProxyCommand of the user's own would hand to a shell
FOLDER = "~/.cache/edgecompress"
HOW = "give it with `--set device.options.host=user@board`, or run `edgecompress device add --ssh user@board`"

ANSWER_S = 30.0  # that a small call may take
CARRY_S = 900.0  # that files may take: a dead link is noticed long before by ServerAlive
PROBE_S = 5  # of `unavailable`
AGAIN_S = 2.0  # the longest pause before a lost link is tried again
WATCH_S = 5.0  # the far side ends a program so long after the deadline, when we do not
SAID_BYTES = 4 << 20  # the end of a program's output that is brought back
ANSWER_BYTES = 64 << 20  # of a small call, with what login shells print before it
CARRY_BYTES = 4 << 30  # of files that are fetched
WEEK = "+7"  # days, of find: what nobody used for longer is dropped there
SAYS = b"==edgecompress-says==\n"  # before what a script says: profiles of login shells may print, too

# What ssh tells when it ends with 255 -> why, and what to do about it. The first that fits is said.
REASONS = (
    (
        "IDENTIFICATION HAS CHANGED",
        "its host key differs from the known one: it is another machine, or was reinstalled",
        "if you know why, remove the old key with `ssh-keygen -R`, then run `{by_hand}` and compare the new one",
    ),
    (
        "Host key verification failed|host key is known",
        "its host key is not known on this machine",
        "run `{by_hand}` once and compare the key that it shows",
    ),
    (
        "Permission denied|Too many authentication failures",
        "it accepts none of your keys (passwords are not used)",
        "run `ssh-copy-id` for it, or load the key with ssh-add",
    ),
    ("Could not resolve hostname", "no such host", "check the name, or give it an entry in ~/.ssh/config"),
    ("Connection refused", "it refuses the connection", "start sshd there, or set its port in options.port"),
    ("No route to host|unreachable", "no route to it", "check its network and this machine's"),
    ("[Tt]imed out|[Tt]imeout|not responding", "no answer", "check that it is on and connected to this network"),
)

# What stands by in a session of its own until we let go of it or die, by whatever signal: then it clears up over there
# and here. $1: what to run there, $2: the folder of the connection's socket, $3: the host, then ssh and its options.
UNDERTAKER = """\
script=$1 control=$2 host=$3; shift 3
cat >/dev/null
printf '%s\\n' "$script" | "$@" -- "$host" sh
"$@" -O exit -- "$host"
rm -rf "$control"
"""


@dataclass(frozen=True)
class Address:
    """The device's options that say where it is."""

    host: str
    port: int | None = None
    user: str = ""
    python: str = "python3"
    folder: str = FOLDER

    def words(self) -> list[str]:
        """The ssh command and what it is told of the address, the host left out."""
        config = os.environ.get(CONFIG, "")
        return [
            "ssh",
            *(["-F", os.path.expanduser(config)] if config else []),
            *(["-p", str(self.port)] if self.port else []),
            *(["-l", self.user] if self.user else []),
        ]

    def by_hand(self) -> str:
        """What a user types to try it."""
        return shlex.join([*self.words(), self.host])


def unavailable(device: Mapping[str, Json]) -> str:
    """Why the board cannot be reached now, or ""."""
    try:
        address = _address(device)
        _client()
        argv = [*address.words(), *_options(PROBE_S - 1), "-o", "ControlPath=none", "--", address.host, "true"]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_S)
        _raise_if_ssh_failed(address, done.returncode, done.stderr.decode("utf-8", "replace"))
    except subprocess.TimeoutExpired:
        return f"{address.host}: no answer within {PROBE_S} s; check that it is on and connected to this network"
    except (InputError, Unreachable) as error:
        return str(error)
    return ""


def connect(device: Mapping[str, Json]) -> SshBoard:
    """The board that the device's options name: host, port, user, python, folder.

    Raises InputError for options that are wrong, Unreachable when it does not answer or lacks a tool.
    """
    address = _address(device)
    _client()
    place = "/tmp" if os.path.isdir("/tmp") else None  # a socket's path holds 107 bytes
    board = SshBoard(address, tempfile.mkdtemp(prefix="ec-", dir=place))
    try:
        board.open()
    except BaseException:
        board.close()
        raise
    return board


def _address(device: Mapping[str, Any]) -> Address:
    options = device.get("options") or {}
    if options.get("config"):
        raise InputError(
            f"device.options.config is not allowed: an ssh_config can run programs on this machine; set {CONFIG} "
            "instead"
        )
    settings = {k: v for k, v in options.items() if k in Address.__dataclass_fields__ and v != ""}
    port = settings.get("port", 22)
    if not isinstance(port, int) or not 0 < port < 65536:
        raise InputError(f"options: port {port!r} is not a number from 1 to 65535")
    for name, value in settings.items():
        if name != "port" and (not isinstance(value, str) or not value.isprintable()):
            raise InputError(f"options: {name} {value!r} is not one line of text")
    host = settings.get("host", "")
    if not host:
        raise InputError(f"options: no host to connect to; {HOW}")
    if host.startswith("-") or SHELL.search(host):
        raise InputError(f"options: host {host!r} is not a valid host name; {HOW}")
    if SHELL.search(settings.get("user", "")):
        raise InputError(f"options: user {settings['user']!r} is not a valid user name; {HOW}")
    config = os.environ.get(CONFIG, "")
    if config and not os.path.isfile(os.path.expanduser(config)):
        raise InputError(f"{CONFIG}={config}: no such file; name an ssh_config, or unset it")
    return Address(**settings)


def lacking() -> str:
    """What this machine lacks for it, or ""."""
    return (
        ""
        if shutil.which("ssh")
        else "no ssh client on this machine; install OpenSSH's (Debian: apt-get install openssh-client)"
    )


def _client() -> None:
    if why := lacking():
        raise Unreachable(why)


def _options(connect_s: int) -> list[str]:
    """Never a question, never an unknown host, never a link that hangs; nothing of the user's session goes along."""
    settings = {
        "BatchMode": "yes",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(connect_s),
        "ServerAliveInterval": "10",
        "ServerAliveCountMax": "3",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "RemoteCommand": "none",
    }
    return ["-T", *(word for key, value in settings.items() for word in ("-o", f"{key}={value}"))]


def _raise_if_ssh_failed(address: Address, code: int, stderr: str) -> None:
    """Raises Unreachable when it was ssh itself that failed: it ends with 255 then, and our scripts never do."""
    if code != 255:
        return
    for pattern, why, what in REASONS:
        if re.search(pattern, stderr):
            raise Unreachable(f"{address.host}: {why}; {what.format(by_hand=address.by_hand())}")
    raise Unreachable(f"{address.host}: {_last(stderr)}; try `{address.by_hand()}`")


def _last(text: str) -> str:
    lines = [line for each in text.splitlines() if (line := machine.line(each))]
    return lines[-1] if lines else "no reason given"


def _home(path: str) -> str:
    """A path as a word of sh, with ~ for the home folder there."""
    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


# --------------------------------------------------------------------------- the board


@dataclass
class SshBoard:
    """A Shell on a board. `control` is the folder of the connection's socket; all else is known once it is open."""

    address: Address
    control: str
    folder: str = ""  # there: cache/DIGEST and sessions/ID
    session: str = ""  # there: what this connection makes; it goes when the connection ends
    python: str = ""
    pushed: set[str] = field(default_factory=set)
    undertaker: subprocess.Popen[bytes] | None = None
    here = False

    @property
    def ssh(self) -> list[str]:
        """The client with its options. The first call leaves a master behind that the others go through."""
        shared = {"ControlMaster": "auto", "ControlPath": f"{self.control}/s", "ControlPersist": "60"}
        return [*self.address.words(), *_options(10), *(w for k, v in shared.items() for w in ("-o", f"{k}={v}"))]

    def open(self) -> None:
        """Makes the folders there, drops what nobody used for a week, finds Python. Raises Unreachable."""
        session, home, python = f"s-{secrets.token_hex(6)}", _home(self.address.folder), _home(self.address.python)
        output = self._script(
            f"""
            umask 077; missing=
            for tool in {" ".join(TOOLS)}; do command -v $tool >/dev/null || missing="$missing $tool"; done
            mkdir -p {home}/cache {home}/sessions && cd {home} || exit 0
            find cache sessions -mindepth 1 -maxdepth 1 -mtime {WEEK} -exec rm -rf {{}} + 2>/dev/null
            [ -n "$missing" ] || mkdir sessions/{session} || exit 0
            pwd -P
            command -v {python} || echo {python}
            echo "missing:$missing"
        """,
            tries=1,
        )
        lines = [machine.line(each) for each in output.decode("utf-8", "replace").splitlines()]
        if len(lines) != 3 or not lines[0].startswith("/") or lines[2] != "missing:":
            with contextlib.suppress(StageFailed):  # nobody else will
                self._script(f"rm -rf {home}/sessions/{session}", tries=1)
            why = f"its sh cannot write into {self.address.folder}; name another folder in options.folder"
            if missing := lines[-1].partition("missing:")[2].split() if lines else []:
                why = f"it has no {', '.join(missing)}; install util-linux, coreutils and tar there, or busybox"
            raise Unreachable(f"{self.address.host}: {why}")
        self.folder, self.python = lines[:2]
        self.session = f"{self.folder}/sessions/{session}"
        words = [UNDERTAKER, "sh", _clear(shlex.quote(self.session)), self.control, self.address.host, *self.ssh]
        # in a session of its own: what ends us and our children must not end it
        self.undertaker = subprocess.Popen(
            ["sh", "-c", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    # ------------------------------------------------------------------ files

    def push(self, path: Path) -> str:
        """Where the file or folder is there, by its content; what is there undamaged is not sent again."""
        files = _files(path)
        digests = {name: sha256_of(file) for name, file in files.items()}
        entry = f"{self.folder}/cache/{hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()}"
        if entry not in self.pushed:
            if not self._holds(entry, digests):
                self._send(files, entry, 0o400)
                if not self._holds(entry, digests):
                    raise Unreachable(
                        f"{self.address.host}: {path} was changed in transfer (sha256 differs); try again"
                    )
            self.pushed.add(entry)
        return f"{entry}/{path.name}" if path.is_file() else entry

    def scratch(self, path: Path) -> str:
        """A copy of the folder there, to write in."""
        there = f"{self.session}/{secrets.token_hex(4)}"
        self._send(_files(path), there, 0o600)
        return there

    def discard(self, there: str) -> None:
        """Removes what `scratch` made; nothing else is ever removed by it."""
        if there.startswith(f"{self.session}/"):
            self._script(f"rm -rf {shlex.quote(there)}")

    def pull(self, there: str, path: Path) -> None:
        """Copies a file or folder from there: files and folders, nothing that points elsewhere."""
        folder, name = (shlex.quote(part) for part in os.path.split(there.rstrip("/")))
        with tempfile.TemporaryFile() as stream:
            script = _marked(f"tar -cf - -C {folder} ./{name}")
            code, reason = self._call(f"sh -c {shlex.quote(script)}", CARRY_S, out=stream, most=CARRY_BYTES)
            if code:
                raise StageFailed(f"{self.address.host}: {there} cannot be fetched: {reason}")
            _seek_answer(stream)
            try:
                with tarfile.open(fileobj=stream, mode="r|") as archive:
                    _archive.unpack(archive, path)
            except (tarfile.TarError, ValueError) as error:
                raise StageFailed(f"{self.address.host}: {there} was not received correctly: {error}") from error

    def _send(self, files: Mapping[str, Path], there: str, mode: int) -> None:
        """The files as the folder `there`, at once: whole, or not at all."""
        part, place = shlex.quote(f"{there}.{secrets.token_hex(4)}"), shlex.quote(there)
        script = f"umask 077; mkdir -p {part} && tar -xf - -C {part} && rm -rf {place} && mv {part} {place} && exit 0"
        script += f"; rm -rf {part}; exit 1"
        with tempfile.TemporaryFile() as stream:
            _pack(stream, files, mode)
            code, reason = self._call(f"sh -c {shlex.quote(script)}", CARRY_S, stdin=stream)
        if code:
            what = "free some room there, or name another folder in options.folder"
            raise Unreachable(f"{self.address.host}: cannot write {there}: {reason}; {what}")

    def _holds(self, entry: str, digests: Mapping[str, str]) -> bool:
        """Whether the files are there, each with its sha256; marks the entry as used."""
        names = " ".join(shlex.quote(f"./{name}") for name in digests)
        output = self._script(f"""
            cd {shlex.quote(entry)} 2>/dev/null && touch . && echo there || exit 0
            for f in {names}; do [ -f "$f" ] && sha256sum < "$f" || echo none; done
        """)
        sums = [line.partition(" ")[0] for line in output.decode("utf-8", "replace").splitlines()]
        return sums == ["there", *digests.values()]

    # ------------------------------------------------------------------ programs

    def run(self, argv: Sequence[str], deadline_s: float, log: Path) -> int:
        """Runs a program apart from the connection: a lost link neither ends it nor makes up its code.

        What it began ends with it, and at the deadline. Raises Unreachable when the link is still lost then.
        """
        end = time.monotonic() + deadline_s
        job = shlex.quote(f"{self.session}/{secrets.token_hex(4)}")
        try:
            self._until(end, _start(job, argv, deadline_s))
            code, output = _ended(self._until(end, _await(job)))
        except TimeoutError:
            code, output = _ended(self._late(job, deadline_s))
        except BaseException:
            with contextlib.suppress(Unreachable):
                self._script(_kill(job), 5.0, tries=1)
            raise
        with log.open("ab") as file:
            file.write(output)
        return code

    def _until(self, end: float, script: str) -> bytes:
        """What the script says; a lost link is tried again. Raises TimeoutError at the end."""
        pause = 0.1
        while (left := end - time.monotonic()) > 0:
            with contextlib.suppress(Unreachable):
                return self._script(script, left, tries=1)
            time.sleep(max(0.0, min(pause, end - time.monotonic())))
            pause = min(2 * pause, AGAIN_S)
        raise TimeoutError

    def _late(self, job: str, deadline_s: float) -> bytes:
        """Ends a program at its deadline; what it said until then."""
        try:
            return self._script(f"{_kill(job)}\n{_await(job, DEADLINE)}", tries=1)
        except Unreachable as error:
            raise Unreachable(
                f"{error}; the deadline of {deadline_s:.0f} s has passed; the program there ends by itself"
            ) from error

    # ------------------------------------------------------------------ what it is, and the end

    def facts(self) -> Mapping[str, object]:
        """What the board is, and the Python that agents are run with."""
        output = self._script(machine.SCRIPT).decode("utf-8", "replace")
        return {**machine.facts(machine.parsed(output)), "python": self.python}

    def close(self) -> None:
        """Ends the connection and what still runs there; where that takes long, it goes on without us."""
        if self.undertaker and self.undertaker.stdin:
            self.undertaker.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.undertaker.wait(10.0)
        else:  # never came so far
            self._drop()
            shutil.rmtree(self.control, ignore_errors=True)

    # ------------------------------------------------------------------ calls

    def _script(self, script: str, timeout_s: float = ANSWER_S, tries: int = 2) -> bytes:
        """What a script for sh says on stdout. It goes by stdin: of any length, and past any login shell's quoting."""
        try:
            with tempfile.TemporaryFile() as stdin, tempfile.TemporaryFile() as out:
                stdin.write(_marked(script).encode("utf-8", "surrogateescape"))
                stdin.seek(0)
                self._call("sh", timeout_s, stdin, out)
                _seek_answer(out)
                return out.read()
        except Unreachable:
            if tries < 2:
                raise
        return self._script(script, timeout_s, tries - 1)

    def _call(
        self, command: str, timeout_s: float, stdin: Stream = None, out: Stream = None, most: int = ANSWER_BYTES
    ) -> tuple[int, str]:
        """Its code, and the last of its words on stderr.

        Raises Unreachable when ssh fails, or nothing answers; StageFailed for more than `most` bytes of output.
        """
        argv = [*self.ssh, "--", self.address.host, command]
        sink = out or subprocess.DEVNULL
        with tempfile.TemporaryFile() as errors:  # no pipe: a proxy that outlives the call would hold it open
            process = subprocess.Popen(argv, stdin=stdin or subprocess.DEVNULL, stdout=sink, stderr=errors)
            try:
                code = _flood.wait(process, timeout_s, [errors, *([out] if out else [])], most)
            except subprocess.TimeoutExpired as error:
                self._drop()  # it may be the link: the next call makes a new one
                raise Unreachable(
                    f"{self.address.host}: no answer within {timeout_s:.0f} s; {self._check()}"
                ) from error
            except _flood.Flood as error:
                self._drop()  # which writes for it
                raise StageFailed(f"{self.address.host}: it sent {error}; {self._check()}") from error
            errors.seek(0)
            stderr = errors.read(1 << 16).decode("utf-8", "replace")
        _raise_if_ssh_failed(self.address, code, stderr)
        return code, _last(stderr)

    def _check(self) -> str:
        return f"check the link with `{self.address.by_hand()}`"

    def _drop(self) -> None:
        """Ends the connection's master."""
        argv = [*self.ssh, "-O", "exit", "--", self.address.host]
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=5.0)


# --------------------------------------------------------------------------- scripts for sh over there
# A job is a folder: `alive` is a pipe that its shell holds open for as long as it lives, `pid` the process group (of
# the boot in `boot`), `rc` the program's code, `out` what it said.
BOOT = "cat /proc/sys/kernel/random/boot_id 2>/dev/null"
# Asleep until the pipe's last writer is gone. Opened both ways first: without a writer, opening it would block.
UNTIL_DEAD = "exec 8<>alive 7<alive 8>&-; cat <&7"


def _marked(script: str) -> str:
    return f"echo '{SAYS.decode().strip()}'\n{script}\n"


def _start(job: str, argv: Sequence[str], deadline_s: float) -> str:
    """Starts a program, once: asked again after a lost link, it is left alone. The far side ends it by itself, too."""
    watch = math.ceil(deadline_s + WATCH_S)
    # the last line ends whatever the program left behind, and this shell with it
    inner = f"""
        (sleep {watch}; kill -9 0) &
        PYTHONSAFEPATH=1 {shlex.join(argv)} 9>&-
        echo $? > rc.part; mv rc.part rc
        kill -9 0
    """
    return f"""
        mkdir {job} 2>/dev/null && {{
            cd {job}; mkfifo alive; exec 9<>alive; {BOOT} > boot
            setsid sh -c {shlex.quote(inner)} </dev/null >out 2>&1 &
            echo $! > pid
        }}
    """


def _await(job: str, otherwise: int = KILLED) -> str:
    """Waits for the end, asleep: nothing disturbs a measurement. Says the code, then the end of the output."""
    return f"""
        cd {job} 2>/dev/null || {{ echo {otherwise}; exit 0; }}
        {UNTIL_DEAD}
        cat rc 2>/dev/null || echo {otherwise}
        tail -c {SAID_BYTES} out
    """


def _kill(job: str) -> str:
    """Ends a job that is alive."""
    return f'(cd {job} && [ ! -e rc ] && [ "$(cat boot)" = "$({BOOT})" ] && kill -9 -$(cat pid)) 2>/dev/null'


def _clear(session: str) -> str:
    """Ends all jobs of a session and removes its folder."""
    return f"""
        for pid in {session}/*/pid; do {_kill('"${pid%/pid}"')}; done
        rm -rf {session} || {{ sleep 1; rm -rf {session}; }}
    """


def _ended(answer: bytes) -> tuple[int, bytes]:
    """The code and the output from what `_await` says."""
    first, _, rest = answer.partition(b"\n")
    if not re.fullmatch(rb"\d{1,3}", first):
        raise Unreachable(f"unexpected answer from the board: {machine.line(repr(first))}; try again")
    return int(first), rest


def _seek_answer(stream: IO[bytes]) -> None:
    """To what a script says: what login shells print before it is passed over."""
    stream.seek(0)
    head = stream.read(1 << 16)
    place = head.find(SAYS)
    stream.seek(place + len(SAYS) if place >= 0 else 0, os.SEEK_SET if place >= 0 else os.SEEK_END)


# --------------------------------------------------------------------------- files as a stream


def _files(path: Path) -> dict[str, Path]:
    """Each file by its path below the folder; a file by its name."""
    if path.is_file():
        return {path.name: path}
    return {p.relative_to(path).as_posix(): p for p in sorted(path.rglob("*")) if p.is_file()}


def _pack(stream: IO[bytes], files: Mapping[str, Path], mode: int) -> None:
    """A tar that busybox reads, too: GNU's long names, nobody's, of no date."""
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name, file in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = file.stat().st_size, mode
            with file.open("rb") as content:
                archive.addfile(entry, content)
    stream.seek(0)
