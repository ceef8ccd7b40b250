"""A board behind a real sshd that lies, stalls, floods, breaks off or is another one: one clean line, nothing left.

A lie is a shell command that answers one step of an agent's run in the place of the board. `make prove` runs all of
them, and each by the command line as well.
"""

from __future__ import annotations

import contextlib
import glob
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import bench_inputs
import nulls
import prove
import pytest
import sshd

import edgecompress
from edgecompress.core.errors import EdgeError, Unreachable
from edgecompress.device import agent_client, machine
from edgecompress.device.request import AgentRequest
from edgecompress.plugins.transports import ssh

pytestmark = [pytest.mark.slow, pytest.mark.sshd]

PYTHON = sys.executable
SAYS = ssh.SAYS.decode().strip()
LONGEST_S = 120.0
ESCAPES = r"\033[2J\033]0;owned\007\r\033[31m"

# Which step of a run a command belongs to is told by its words; `honest` does what was asked.
BOARD = r"""#!/bin/sh
here={here}
honest() {{ eval "$SSH_ORIGINAL_COMMAND"; }}
case "$SSH_ORIGINAL_COMMAND" in
sh)
    script=$(cat; echo .); script=${{script%.}}
    honest() {{ printf '%s' "$script" | sh; }}
    case "$script" in
    *'pwd -P'*) step=open ;;
    *'{mark} '*) step=facts ;;
    *'mkfifo alive'*) step=start ;;
    *'tail -c'*) step=await ;;
    *sha256sum*) step=holds ;;
    *) step=clear ;;
    esac ;;
*'tar -xf'*) step=send ;;
*'tar -cf'*) step=fetch ;;
esac
says() {{ echo '{says}'; printf "$@"; }}
once() {{ mkdir "$here/lied" 2>/dev/null; }}
. "$here/lie"
"""
LIE = """
if [ "$step" = {step} ]; then
{does}
else honest; fi
"""
RESULT = (
    "fetched=$(mktemp -d); honest | tail -n +2 | tar -xf - -C $fetched; cd $fetched; file=$(find . -name result.json)"
)
SENT = f"echo '{SAYS}'; tar -cf - ./*; rm -rf $fetched"


@dataclass(frozen=True)
class Lie:
    """What a board does at one step, and what the user is told; `says` of "" is a run that recovers."""

    name: str
    step: str
    does: str
    says: str
    quick: bool = False


def answer(name: str, text: str, says: str, quick: bool = False) -> Lie:
    """One whose agent answers with these bytes."""
    return Lie(name, "fetch", f"{RESULT}; printf '{text}' > $file; {SENT}", says, quick)


LIES = (
    Lie("garbage at login", "open", f"printf '{ESCAPES}\\377\\376 hello'", "its sh cannot write into", True),
    Lie("nothing at all", "open", ":", "its sh cannot write into"),
    Lie("escapes in the path", "open", f"says '/tmp/{ESCAPES}x\\npython3\\nmissing:\\n'", "cannot"),
    Lie("escapes as the last words", "open", f"printf '{ESCAPES}died\\n' >&2; exit 255", "died; try", True),
    Lie("a forged marker", "open", f"echo '{SAYS}'; honest", "its sh cannot write into", True),
    Lie("a loud login", "open", f"printf '{ESCAPES}welcome\\n'; honest", "", True),
    Lie("endless output", "open", "yes", "it sent more than 64 MiB", True),
    Lie("endless errors", "facts", "yes >&2", "it sent more than 64 MiB"),
    Lie("endless output of an agent", "await", f"echo '{SAYS}'; echo 0; yes", "it sent more than 64 MiB"),
    Lie("no end", "open", "sleep 40", "no answer within"),
    Lie(
        "facts of another world",
        "facts",
        f"says '=={{mark}}== nproc\\n{ESCAPES}9e99\\n=={{mark}}== kernel\\n\\377\\n'",
        "",
    ),
    Lie("wrong sums", "holds", "says 'there\\n%064d  -\\n' 0", "was changed in transfer", True),
    Lie("sums without an end", "holds", "says 'there\\n'; head -c 1000000 /dev/zero", "was changed in transfer"),
    Lie("a full disk", "send", "ulimit -f 0; honest", "cannot write .*: .*free some room there", True),
    Lie("half of what was sent", "send", "head -c 700 | honest", "cannot write|was changed in transfer"),
    Lie("no word of an end", "await", f"says '{ESCAPES}\\n'", "unexpected answer from the board", True),
    Lie("an end that is no number", "await", "says '99999\\n'", "unexpected answer from the board"),
    Lie("a program that never began", "start", "says ''", "the agent was ended by SIGKILL"),
    Lie("a truncated archive", "fetch", "honest | head -c 700", "was not received correctly|and no result", True),
    Lie("garbage for an archive", "fetch", f"echo '{SAYS}'; head -c 5000 /dev/urandom", "was not received correctly"),
    Lie(
        "a wrong size",
        "fetch",
        "honest | sed 's/0000000000[0-7]/77777777777/'",
        "was not received correctly|died|ended",
    ),
    Lie("an endless archive", "fetch", "honest; cat /dev/zero", "it sent more than 100 MiB"),
    answer("garbage for an answer", "\\377\\376{ESC}", "the agent's answer is not JSON", True),
    answer("half of an answer", '{"mode": "outp', "the agent's answer is not JSON"),
    answer("a number that is none", '{"n": NaN}', "the agent's answer is not JSON"),
    answer("an answer that is a list", "[1]", "which is not a JSON object"),
    answer("escapes in an error", f'{{"class": "StageFailed", "error": "{ESCAPES}bad"}}', "the agent's answer|bad"),
    answer("an error of another class", '{"class": "SystemExit", "error": "bye"}', "bye", True),
    Lie("a nested answer", "fetch", f"{RESULT}; yes [ | head -100000 | tr -d '\\n' > $file; {SENT}", "is not JSON"),
    Lie("a link that breaks once", "facts", "once && kill -9 $PPID; honest", "", True),
    Lie("a link that breaks always", "facts", "kill -9 $PPID", "closed|reset|lost|no reason|255|try"),
    Lie("a lost link at the end", "await", "once && kill -9 $PPID; honest", ""),
)


# --------------------------------------------------------------------------- a run of an agent


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> AgentRequest:
    folder = tmp_path_factory.mktemp("asked")
    model, data = bench_inputs.net(folder / "net"), bench_inputs.samples(folder / "samples")
    return bench_inputs.agent_request(bench_inputs.asked(model, data))


def ask(device: dict[str, object], request: AgentRequest, folder: Path) -> str:
    """Runs an agent on a device; what the user would be told, or "" when it answered."""
    out = folder / "out"
    out.mkdir()
    try:
        with contextlib.closing(ssh.connect(device)) as board:
            answered = agent_client.ask(board, request, out, 20)
        assert answered["n"] == 10
    except EdgeError as error:
        assert error.exit_code == 3
        return str(error)
    return ""


@pytest.fixture(scope="module")
def server() -> Iterator[sshd.Sshd]:
    """A board that answers what `lie` in its folder says."""
    with sshd.serving("ForceCommand {folder}/board") as server:
        board = server.folder / "board"
        board.write_text(BOARD.format(here=server.folder, says=SAYS, mark=machine.MARK))
        board.chmod(0o755)
        yield server


def lies(server: sshd.Sshd, lie: Lie) -> None:
    """Has the board tell a lie, for the first time."""
    (server.folder / "lie").write_text(LIE.format(step=lie.step, does=lie.does))
    shutil.rmtree(server.folder / "lied", ignore_errors=True)


def controls() -> set[str]:
    """What the connections of this machine have open."""
    return set(glob.glob("/tmp/ec-*"))


def left(server: sshd.Sshd, before: set[str], within_s: float = 15.0) -> list[str]:
    """What is left of a run after some seconds, here and there; what is kept there for the next run is not."""
    there = server.folder / "there"
    end = time.monotonic() + within_s
    while True:
        found = [*(controls() - before), *map(str, there.glob("sessions/*")), *map(str, there.glob("cache/*.*"))]
        if not found or time.monotonic() > end:
            return found
        time.sleep(0.1)


def fits(said: str, expected: str) -> bool:
    """Whether one line tells what was expected, without a control character; nothing where nothing was."""
    return bool(re.search(expected, said)) and said.isprintable() if expected else not said


@pytest.mark.parametrize("lie", [lie for lie in LIES if lie.quick or prove.WHOLE], ids=lambda lie: lie.name)
def test_a_board_that_lies_is_told_in_one_line(
    server: sshd.Sshd, lie: Lie, request_: AgentRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "CARRY_BYTES", 100 << 20)
    before, begin = controls(), time.monotonic()
    lies(server, lie)
    said = ask(server.device(python=PYTHON), request_, tmp_path)
    assert fits(said, lie.says), said
    assert time.monotonic() - begin < LONGEST_S
    assert left(server, before) == []


def test_a_key_that_changes_while_an_agent_runs_is_refused(request_: AgentRequest, tmp_path: Path) -> None:
    with sshd.serving() as server:
        board = ssh.connect(server.device(python=PYTHON))
        server.renew_key()
        (tmp_path / "out").mkdir()
        with pytest.raises(Unreachable, match="its host key differs from the known one") as raised:
            agent_client.ask(board, request_, tmp_path / "out", 20)
        board.close()
    assert str(raised.value).isprintable() and raised.value.exit_code == 3


@pytest.mark.prove
@pytest.mark.parametrize("lie", [lie for lie in LIES if lie.name != "an endless archive"], ids=lambda lie: lie.name)
def test_the_command_line_says_it_once_and_cleanly(server: sshd.Sshd, lie: Lie, shipped: Path, tmp_path: Path) -> None:
    before = controls()
    lies(server, lie)
    board = "\n".join(f"{k} = {json.dumps(v)}" for k, v in server.device(python=PYTHON)["options"].items())
    (tmp_path / "board.toml").write_text(f'description = "a board"\ntransport = "ssh"\n[options]\n{board}\n')
    fast = [word for key, value in nulls.FAST.items() for word in ("--set", f"{key}={value}")]
    words = ["profile", str(shipped), "--device", "board.toml", "--profile", "quick", *fast]
    argv = [PYTHON, "-m", "edgecompress.cli.main", *words]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, timeout=LONGEST_S)
    assert done.returncode in ((0, 3) if lie.says else (0,)), done.stderr
    assert b"\x1b" not in done.stdout + done.stderr and b"Traceback" not in done.stderr
    errors = [line for line in done.stderr.decode().splitlines() if line.startswith("edgecompress: error: ")]
    assert len(errors) == (done.returncode == 3)
    assert left(server, before) == []


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a deploy of a null net shipped."""
    folder = tmp_path_factory.mktemp("deployed")
    asked = {**nulls.make(folder / "net"), "profile": "quick", "settings": nulls.FAST}
    options = edgecompress.Options(store=folder / "results", out=folder / "shipped")
    assert edgecompress.deploy(**asked, options=options).exit_code == 0  # type: ignore[arg-type]
    return folder / "shipped"
