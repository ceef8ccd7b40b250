"""Adb: a real adbd in a network namespace of its own; a script in adb's place for what a real one cannot show."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import adbd
import bench_inputs
import nulls
import numpy as np
import psutil
import pytest

import edgecompress
from edgecompress.core import protocols
from edgecompress.core.errors import InputError, StageFailed, Unreachable
from edgecompress.core.settings import Device
from edgecompress.device import agent_client
from edgecompress.device.request import AgentRequest
from edgecompress.plugins.transports import adb
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

real = pytest.mark.adbd


@pytest.fixture(autouse=True)
def no_serial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[adbd.Adbd]:
    with adbd.adbd(tmp_path_factory.mktemp("adbd")) as started:
        yield started


@pytest.fixture
def phone(daemon: adbd.Adbd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """The device as a plug-in is given it; its files are in a folder of this test."""
    monkeypatch.setenv(adb.NAMED, str(daemon.adb))
    options = {"folder": str(tmp_path / "it's a phone"), "python": sys.executable}
    return {**dataclasses.asdict(Device("a phone", "adb")), "options": options}


@pytest.fixture
def shell(phone: dict[str, object]) -> Iterator[adb.Adb]:
    opened = adb.connect(phone)
    yield opened
    opened.close()


def running(word: str) -> list[psutil.Process]:
    """The processes with a word in their command, that of a guard or shell left out."""
    return [p for p in psutil.process_iter(["cmdline"]) if (p.info["cmdline"] or [])[:2] == ["sleep", word]]


def gone(word: str, within_s: float = 3.0) -> bool:
    """Whether no `sleep WORD` runs any longer, soon."""
    end = time.monotonic() + within_s
    while still := running(word):
        if time.monotonic() > end:
            break
        time.sleep(0.02)
    return not still


def begun(word: str) -> bool:
    """Whether a `sleep WORD` runs, soon."""
    end = time.monotonic() + 10
    while not running(word) and time.monotonic() < end:
        time.sleep(0.02)
    return bool(running(word))


# --------------------------------------------------------------------------- a real adbd


@real
def test_a_real_daemon_conforms(phone, tmp_path):
    phone["options"]["folder"] = str(tmp_path / "phone")
    assert adb.unavailable(phone) == ""
    conformance.check_transport("adb", tmp_path / "conformance", phone)


@real
def test_facts_are_those_of_android(shell):
    facts = shell.facts()
    assert (facts["platform"], facts["os"], facts["board"]) == ("android-arm64", "Android 14", "Pixel of Debian")
    assert facts["cores"] == len(os.sched_getaffinity(0)) and facts["memory_bytes"] > 0
    assert facts["python"] == sys.executable
    assert {k: v for k, v in shell.facts().items() if k != "now"} == {k: v for k, v in facts.items() if k != "now"}


@real
@pytest.mark.parametrize(
    ("program", "code"),
    [("true", 0), ("exit 7", 7), ("exit 255", 255), ("kill -9 $$", 137), ("/no/such/program", 127)],
)
def test_the_code_is_the_programs(shell, tmp_path, program, code):
    assert shell.run(["sh", "-c", program], 20, tmp_path / "log") == code


@real
def test_output_arrives_byte_for_byte_after_what_the_log_held(shell, tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    code = "import sys; sys.stdout.buffer.write(bytes(range(256))); sys.stdout.flush(); sys.stderr.write('no newline')"
    assert shell.run([sys.executable, "-c", code], 20, log) == 0
    assert log.read_bytes() == b"before\n" + bytes(range(256)) + b"no newline"


@real
def test_arguments_are_no_shell_to_the_device(shell, tmp_path):
    words = ["$(touch x)", "a'b", 'c"d', "e;f", "*", "two\nlines", ""]
    code = "import sys; print(sys.argv[1:])"
    assert shell.run([sys.executable, "-c", code, *words], 20, tmp_path / "log") == 0
    assert (tmp_path / "log").read_text() == f"{words}\n"


@real
def test_a_program_that_prints_a_code_is_not_believed(shell, tmp_path):
    said = f"\\n{'0' * 32}=0\\n"
    assert shell.run(["sh", "-c", f"printf '{said}'; exit 5"], 20, tmp_path / "log") == 5


@real
def test_the_deadline_ends_the_program_there_and_its_children(shell, tmp_path):
    begin = time.monotonic()
    code = shell.run(["sh", "-c", "sleep 41231 & sleep 41231"], 1.0, tmp_path / "log")
    assert code == protocols.DEADLINE and time.monotonic() - begin < 5
    assert gone("41231")


@real
def test_what_a_program_leaves_behind_is_ended_with_it(shell, tmp_path):
    assert shell.run(["sh", "-c", "sleep 41232 & exit 3"], 20, tmp_path / "log") == 3
    assert gone("41232")


@real
def test_a_program_ends_when_nobody_waits_for_it_any_longer(phone, tmp_path):
    code = (
        "import json, sys\nfrom pathlib import Path\nfrom edgecompress.plugins.transports import adb\n"
        "adb.connect(json.loads(sys.argv[1])).run(['sleep', '41233'], 60, Path(sys.argv[2]))"
    )
    argv = [
        sys.executable,
        "-c",
        code,
        f'{{"options": {{"folder": "{tmp_path}"}}}}',
    ]
    waiting = subprocess.Popen([*argv, str(tmp_path / "log")])
    assert begun("41233")
    waiting.kill()
    waiting.wait()
    assert gone("41233")


@real
def test_a_daemon_that_dies_is_an_error_and_takes_the_program_along(daemon, shell, tmp_path):
    def crash() -> None:
        begun("41234")
        daemon.kill()

    crashing = threading.Thread(target=crash)
    crashing.start()
    try:
        with pytest.raises(Unreachable, match=f"{daemon.serial}: the link was lost"):
            shell.run(["sh", "-c", "sleep 41234; exit 0"], 30, tmp_path / "log")
        crashing.join()
        assert gone("41234")
        with pytest.raises(Unreachable):
            shell.push(tmp_path / "log")
    finally:
        daemon.start()
    assert shell.run(["true"], 20, tmp_path / "log") == 0


@real
def test_a_device_that_stops_answering_is_an_error_soon_after_the_deadline(daemon, shell, tmp_path, monkeypatch):
    monkeypatch.setattr(adb, "GRACE_S", 0.5)
    daemon.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with pytest.raises(Unreachable, match="the link was lost"):
            shell.run(["sleep", "41235"], 1.0, tmp_path / "log")
        assert time.monotonic() - begin < 5
    finally:
        daemon.process.send_signal(signal.SIGCONT)
    assert shell.run(["true"], 20, tmp_path / "log") == 0  # what had been asked of it meanwhile has come and gone
    assert gone("41235")


# --------------------------------------------------------------------------- files


@real
def test_folders_travel_both_ways_with_their_names(shell, tmp_path):
    names = ["plain", "with space", "it's", "ü", "in/a/folder", ".hidden", "$(id)", "-n"]
    for i, name in enumerate(names):
        (tmp_path / "sent" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sent" / name).write_bytes(bytes([i]) * i * 1000)
    shell.pull(shell.push(tmp_path / "sent"), tmp_path / "back")
    assert {p.relative_to(tmp_path / "back").as_posix() for p in (tmp_path / "back").rglob("*") if p.is_file()} == {
        *names
    }
    assert all((tmp_path / "sent" / n).read_bytes() == (tmp_path / "back" / n).read_bytes() for n in names)


@real
def test_a_file_travels_both_ways_and_keeps_its_suffix(shell, tmp_path):
    (tmp_path / "model.bin").write_bytes(os.urandom(3_000_000))
    there = shell.push(tmp_path / "model.bin")
    shell.pull(there, tmp_path / "new" / "back.bin")
    assert there.endswith(".bin")
    assert (tmp_path / "new" / "back.bin").read_bytes() == (tmp_path / "model.bin").read_bytes()


@real
def test_what_is_there_already_is_not_sent_again(shell, phone, tmp_path):
    for name, text in (("a", "same"), ("b", "same"), ("c", "other")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(text)
    first = shell.push(tmp_path / "a")
    inode = Path(first, "file").stat().st_ino
    assert shell.push(tmp_path / "b") == first != shell.push(tmp_path / "c")
    assert Path(first, "file").stat().st_ino == inode
    assert len(list(Path(phone["options"]["folder"]).iterdir())) == 2


@real
def test_what_runs_share_is_not_written_to(shell, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("kept")
    there = Path(shell.push(tmp_path / "a"))
    assert not any(p.stat().st_mode & 0o222 for p in (there, there / "file"))


@real
def test_a_copy_to_write_in_is_new_each_time_and_goes(shell, phone, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "request.json").write_text("{}")
    one, two = shell.scratch(tmp_path / "a"), shell.scratch(tmp_path / "a")
    assert one != two
    assert shell.run(["sh", "-c", 'echo 1 > "$0/result.json"', one], 20, tmp_path / "log") == 0
    shell.pull(one, tmp_path / "a")
    assert (tmp_path / "a" / "result.json").read_text() == "1\n"
    shell.discard(one)
    shell.discard(str(tmp_path / "a"))  # which it did not make
    shell.close()
    assert list(Path(phone["options"]["folder"]).iterdir()) == [] and (tmp_path / "a").is_dir()


@real
def test_a_link_on_the_device_is_not_taken(shell, tmp_path):
    (tmp_path / "a").mkdir()
    there = shell.scratch(tmp_path / "a")
    os.symlink("/etc/passwd", Path(there, "result.json"))
    with pytest.raises(StageFailed, match=r"'run-\w+/result.json' is a link, or lies outside"):
        shell.pull(there, tmp_path / "a")
    assert list((tmp_path / "a").iterdir()) == []


@real
def test_what_is_not_there_is_said(shell, tmp_path):
    with pytest.raises(StageFailed, match=r"127\.0\.0\.1:15555: /no/such cannot be read there"):
        shell.pull("/no/such", tmp_path / "a")


@real
def test_what_arrives_damaged_is_refused_and_removed(daemon, phone, tmp_path, monkeypatch):
    cut = tmp_path / "cutting adb"
    adbd.script(cut, f'"{daemon.adb}" "$@"; case "$3" in push) truncate -s 5 "$5";; esac; exit 0')
    monkeypatch.setenv(adb.NAMED, str(cut))
    shell = adb.connect(phone)
    (tmp_path / "model.bin").write_bytes(bytes(100))
    with pytest.raises(Unreachable, match=r"model\.bin was not transferred completely: .*1 file pushed"):
        shell.push(tmp_path / "model.bin")
    assert list(Path(phone["options"]["folder"]).iterdir()) == []


@real
def test_a_folder_that_cannot_be_made_is_said(phone):
    with pytest.raises(Unreachable, match=r"cannot make the folder /proc/none there: mkdir: .+"):
        adb.connect({**phone, "options": {**phone["options"], "folder": "/proc/none"}})


@pytest.mark.parametrize("name", ["top/../../outside", "top/../x", "../outside", "/etc/file"])
def test_a_path_that_leaves_the_folder_is_refused(tmp_path, name):
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / "a.tar", "w") as packed:
        packed.addfile(tarfile.TarInfo(name))
    with pytest.raises(StageFailed, match="lies outside"):
        adb._unpack(tmp_path / "in" / "a.tar", tmp_path / "in" / "b" / "c", "a device")
    assert not (tmp_path / "outside").exists()


def test_what_an_archive_calls_its_top_does_not_count(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        packed.addfile(tarfile.TarInfo("./top/."))
    adb._unpack(tmp_path / "a.tar", tmp_path / "b", "a device")
    assert (tmp_path / "b").is_file()


def test_half_an_archive_is_refused(tmp_path):
    (tmp_path / "file").write_bytes(bytes(50_000))
    with tarfile.open(tmp_path / "a.tar", "w") as packed:
        packed.add(tmp_path / "file", "top/file")
    os.truncate(tmp_path / "a.tar", 20_000)
    with pytest.raises(Unreachable, match="was not transferred completely"):
        adb._unpack(tmp_path / "a.tar", tmp_path / "b", "a device")


# --------------------------------------------------------------------------- agents there


@real
def test_an_agent_answers_from_there_and_leaves_nothing_but_the_cache(shell, phone, tmp_path):
    out = tmp_path / "result"
    out.mkdir()
    answer = agent_client.ask(shell, asked(tmp_path, "outputs"), out, 60)
    given, found = np.load(tmp_path / "samples/test/x.npy"), np.load(out / "test/y.npy")
    np.testing.assert_allclose(found, given.mean(axis=1, keepdims=True) * [1, 2, 3], rtol=1e-5)
    assert answer["n"] == 10 and answer["environment"]["runtime"] == "null"
    left = {p.name for p in Path(phone["options"]["folder"]).iterdir()}
    assert len(left) == 3 and not any(name.startswith("run-") for name in left)


@real
def test_an_error_of_the_agent_there_keeps_its_class(shell, tmp_path):
    (tmp_path / "result").mkdir()
    with pytest.raises(InputError, match=r"absent/x\.npy: cannot be read"):
        agent_client.ask(
            shell, dataclasses.replace(asked(tmp_path, "session"), split="absent"), tmp_path / "result", 60
        )


@real
def test_a_device_without_python_is_a_clear_error(shell, phone, tmp_path, monkeypatch):
    monkeypatch.setattr(adb, "SCRIPT", adb.SCRIPT.replace("command -v python3", "true"))
    phoneless = dataclasses.replace(shell, python="")
    assert phoneless.facts()["python"] is None
    (tmp_path / "result").mkdir()
    with pytest.raises(StageFailed, match=r"no Python on the device.*device\.options\.python.*benchmark screen"):
        agent_client.ask(phoneless, asked(tmp_path, "outputs"), tmp_path / "result", 60)
    shell.close()
    assert not list(Path(phone["options"]["folder"]).glob("run-*"))


@real
@pytest.mark.slow
def test_a_deployed_net_is_profiled_on_the_device(phone, tmp_path, store):
    options = edgecompress.Options(out=tmp_path / "dist", store=store)
    made = edgecompress.deploy(**nulls.make(tmp_path / "net"), profile="quick", settings=nulls.FAST, options=options)
    assert made.exit_code == 0, made.message
    file = tmp_path / "phone.toml"
    words = "\n".join(f'{key} = "{value}"' for key, value in phone["options"].items())
    file.write_text(f'description = "a phone"\ntransport = "adb"\n[options]\n{words}\n')
    target = str(tmp_path / "net" / "null.toml")
    asked = {"device": str(file), "target": target, "profile": "quick", "settings": nulls.FAST}
    result = edgecompress.profile(tmp_path / "dist", **asked, options=options)
    assert result.exit_code == 0, result.message
    facts = {o.artifact.kind: o.facts for o in result.outcomes.values() if o.artifact}
    assert facts["round"]["environment"]["board"] == "Pixel of Debian"
    assert facts["agreement"]["environment"]["platform"] == "android-arm64"
    assert all(output["moved"] == 0 for output in facts["agreement"]["outputs"])


def asked(folder: Path, mode: str) -> AgentRequest:
    """What is asked of an agent about a null net."""
    model, data = bench_inputs.net(folder / "net"), bench_inputs.samples(folder / "samples")
    more = {"split": "test", "profile": dataclasses.asdict(bench_inputs.MOMENT), "device": {}}
    return bench_inputs.agent_request(bench_inputs.asked(model, data, mode=mode, **more))


# --------------------------------------------------------------------------- no device


@real
def test_a_dead_port_and_no_device_are_told_apart(daemon, phone):
    def told(**options: str) -> str:
        return adb.unavailable({"options": options})

    begin = time.monotonic()
    assert "failed to connect to '127.0.0.1:15999': Connection refused" in told(serial="127.0.0.1:15999")
    assert told(serial="emulator-5554") == f"no device emulator-5554; adb sees {daemon.serial}"
    daemon.call("disconnect")
    assert told() == "adb sees no device; plug one in and switch on USB debugging"
    assert told(serial=daemon.serial) == ""  # it connects
    assert told() == ""
    assert time.monotonic() - begin < 5


LISTED = "List of devices attached\n"


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a script in adb's place goes."""
    monkeypatch.setenv(adb.NAMED, str(tmp_path / "adb"))
    return tmp_path / "adb"


@pytest.mark.parametrize(
    ("listed", "says"),
    [
        ("", "adb sees no device; plug one in and switch on USB debugging"),
        ("28A\tunauthorized\n", "28A is unauthorized: unlock it and allow USB debugging from this computer"),
        ("28A\toffline\n", "28A is offline: plug it in again, or run: adb reconnect offline"),
        ("28A\tno permissions (user in plugdev group; are your udev rules wrong?); see [http://x]\n",
         "28A is no permissions: this user may not open USB devices; see the udev rules for Android devices"),
        ("28A\trecovery\n", "28A is recovery: start it as usual"),
        ("28B\tdevice\n28A\tdevice\n",
         "adb sees 2 devices, 28A, 28B: name one with --set device.options.serial=28A"),
        ("28A\tdevice\n", ""),
    ],
)  # fmt: skip
def test_why_a_device_cannot_be_reached_is_one_line(fake, listed, says):
    adbd.script(fake, f"echo '* daemon not running; starting now' >&2; printf '{LISTED}{listed}\\n'")
    device: dict[str, object] = {"options": {}}
    assert adb.unavailable(device) == says
    if says:
        with pytest.raises(Unreachable):
            adb.connect(device)


def test_the_serial_of_the_environment_counts(fake, monkeypatch):
    adbd.script(fake, f"printf '{LISTED}28A\\tdevice\\n28B\\toffline\\n'")
    monkeypatch.setenv("ANDROID_SERIAL", "28B")
    assert adb.unavailable({"options": {}}).startswith("28B is offline")
    assert adb.unavailable({"options": {"serial": "28A"}}) == ""


def test_a_device_that_does_not_stop_talking_is_told_before_it_fills_the_disk(fake):
    adbd.script(fake, f'[ "$1" = devices ] || exec yes; printf "{LISTED}28A\\tdevice\\n"')
    with pytest.raises(StageFailed, match="28A: it sent more than 64 MiB; that is no answer of an agent"):
        adb.connect({"options": {}})


def test_an_adb_that_does_not_stop_talking_is_told(fake):
    adbd.script(fake, "exec cat /dev/zero")
    assert adb.unavailable({"options": {}}).startswith("adb devices: it printed more than 64 MiB; is ")


def test_an_adb_that_hangs_costs_little_time_and_what_a_script_around_it_started_ends_with_it(fake, monkeypatch):
    monkeypatch.setattr(adb, "LOOK_S", 0.5)
    adbd.script(fake, "sleep 41237 & wait")
    begin = time.monotonic()
    assert adb.unavailable({"options": {}}).startswith("adb devices: no answer within")
    assert time.monotonic() - begin < 3
    assert gone("41237")


def test_without_adb_there_is_a_next_step(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert adb.unavailable({"options": {}}).startswith(
        "no adb here; install Android's platform-tools, or set EDGECOMPRESS_ADB"
    )
    monkeypatch.setenv(adb.NAMED, "/no/adb")
    assert adb.unavailable({"options": {}}).startswith("there is no program '/no/adb' on this machine; ")


@pytest.mark.parametrize(
    ("options", "says"),
    [({"folder": "data"}, "folder is 'data': give an absolute"), ({"serial": 28}, "serial is 28: write it as text")],
)
def test_options_that_are_wrong_are_the_users_fault(fake, options, says):
    adbd.script(fake, "exit 0")
    with pytest.raises(InputError, match=says):
        adb.connect({"options": {**options}})


@pytest.mark.parametrize("code", [0, 1])
def test_an_adb_that_ends_without_the_last_line_is_never_a_success(tmp_path, code):
    adbd.script(tmp_path / "adb", f"echo half the output; echo adb: device offline >&2; exit {code}")
    shell = adb.Adb(str(tmp_path / "adb"), "28A", "/data/local/tmp")
    with pytest.raises(Unreachable, match=r"28A: the link was lost \(adb: device offline\)"):
        shell.run(["true"], 20, tmp_path / "log")
    assert (tmp_path / "log").read_text() == "half the output\n"


def test_what_a_device_calls_itself_cannot_steer_a_terminal(monkeypatch):
    monkeypatch.setattr(adb.Adb, "tell", lambda *given: "==edgecompress== ro.product.model\nPixel \x1b[31m8\n")
    assert adb.Adb("adb", "28A", "/data/local/tmp").facts()["board"] == "Pixel  [31m8"
