"""A stranger's folder: nothing in it runs, or is connected to, because one stands there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import adbd
import measured_inputs
import nulls
import pytest

from edgecompress.cli.main import main
from edgecompress.commands import listing
from edgecompress.core import catalog
from edgecompress.core.errors import InputError
from edgecompress.pipeline import job
from edgecompress.plugins.transports import adb, ssh
from edgecompress.reporting import external_results

pytestmark = pytest.mark.slow

TARGET = 'description = "theirs"\nruntime = "null"\n{device}\n[[variant]]\nname = "plain"\n'
BAIT = 'description = "a bait"\ntransport = "{transport}"\n{more}\n[options]\n{options}\n'


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of theirs to stand in; a program of it that is run leaves the file `ran`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    for kind in catalog.KINDS:
        (tmp_path / kind).mkdir()
    adbd.script(tmp_path / "evil", f"touch {tmp_path}/ran; exit 0")
    (tmp_path / "ssh_config").write_text(f"Host *\n  ProxyCommand {tmp_path}/evil\n")
    return tmp_path


def bait(folder: Path, name: str, transport: str, options: str, more: str = "") -> None:
    text = BAIT.format(transport=transport, options=options.format(folder=folder), more=more)
    (folder / "devices" / f"{name}.toml").write_text(text)


BAITS = [
    ("adb", 'adb = "{folder}/evil"', ""),
    ("ssh", 'host = "x"\nconfig = "{folder}/ssh_config"', ""),
    ("host", 'root = "{folder}/usr"', 'sensors = ["rpi5_pmic"]'),
]


@pytest.mark.parametrize(("transport", "options", "more"), BAITS, ids=[b[0] for b in BAITS])
@pytest.mark.parametrize("name", ["host", "theirs"])
def test_no_program_of_a_folder_runs_because_one_stands_in_it(theirs, name, transport, options, more, capsys):
    adbd.script(_made(theirs / "usr/usr/bin/vcgencmd"), f"touch {theirs}/ran")
    bait(theirs, name, transport, options, more)
    (theirs / "targets" / "own.toml").write_text(TARGET.format(device=f'device = "{name}"'))
    for words in (["devices"], ["plan"], ["plan", "--target", "own"], ["doctor"], ["devices", name]):
        main(words)
    main(["plan", "--device", name])
    main(["doctor", "--device", f"devices/{name}.toml"])
    assert not (theirs / "ran").exists()


def _made(file: Path) -> Path:
    file.parent.mkdir(parents=True)
    return file


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_a_file_that_takes_the_name_of_an_installed_one_is_refused_in_one_line(theirs, kind):
    name = next(iter(catalog.shipped(kind).glob("*.toml"))).stem
    (theirs / kind / f"{name}.toml").write_text("")
    with pytest.raises(InputError) as raised:
        catalog.path_of(kind, name)
    one = kind.removesuffix("s")
    said = (
        f"./{kind}/{name}.toml has the same name as an installed {one}; rename the file, or give its path, "
        f"./{kind}/{name}.toml"
    )
    assert str(raised.value) == said
    assert catalog.path_of(kind, f"./{kind}/{name}.toml") == Path(kind, f"{name}.toml")
    assert catalog.path_of(kind, name, own=False) in catalog.shipped(kind).iterdir(), "--untrusted: it does not count"
    (theirs / "edgecompress" / "core").mkdir(parents=True)
    (theirs / "edgecompress" / "core" / "catalog.py").touch()
    with pytest.raises(InputError, match=r"that runs is not this checkout's; run: pip install -e \.$"):
        catalog.path_of(kind, name)


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_a_file_that_says_what_the_installed_one_of_its_name_says_is_no_other(theirs, kind):
    for file in catalog.shipped(kind).glob("*.toml"):
        (theirs / kind / file.name).write_bytes(file.read_bytes())
        assert catalog.path_of(kind, file.stem) == file


def test_where_the_folder_is_the_installed_one_its_files_have_their_names(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "PACKAGE", tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices" / "bench.toml").write_text('description = "a bench."\n')
    assert len(catalog.folders("devices")) == len({f.resolve() for f in catalog.folders("devices")})
    for name in ("bench", "devices/bench.toml", str(tmp_path / "devices/bench.toml")):
        assert catalog.reference("devices", catalog.device(name)) == "bench"


def test_a_device_of_the_folder_is_listed_and_not_tried(theirs, monkeypatch, capsys):
    bait(theirs, "board", "ssh", 'host = "x"')
    tried: list[object] = []
    monkeypatch.setattr(ssh, "unavailable", lambda device: tried.append(device["options"].get("host")) or "tried")
    row = next(row for row in listing.devices() if row["name"] == "board")
    assert "x" not in tried
    assert row["reachable"] == "" and "`edgecompress devices board` checks it" in row["why_not"]
    assert main(["devices"]) == 0 and "from ./devices" in capsys.readouterr().out
    assert listing.one("devices", "board")["why_not"] == "tried" and "x" in tried


@pytest.mark.parametrize("device", ["board", "devices/board.toml"])
def test_a_target_of_the_folder_does_not_choose_a_device_of_it(theirs, device, monkeypatch):
    bait(theirs, "board", "ssh", 'host = "x"')
    (theirs / "targets" / "own.toml").write_text(TARGET.format(device=f'device = "{device}"'))
    with pytest.raises(InputError) as raised:
        job.job(target="own")
    assert (
        str(raised.value)
        == f"target own: its device '{device}' is not an installed device; give it with --device {device}"
    )


def test_a_file_is_not_written_under_the_name_of_an_installed_one(theirs, capsys):
    assert main(["init", "rpi5", "--kind", "device"]) == 2
    assert "rpi5 is already the name of an installed device; give another name" in capsys.readouterr().err
    assert not list((theirs / "devices").iterdir())


def test_the_program_adb_is_named_by_the_environment_and_by_no_file(theirs, monkeypatch):
    says = (
        "device.options.adb is not allowed: a device file may not name a program of this machine; set "
        "EDGECOMPRESS_ADB instead"
    )
    assert adb.unavailable({"options": {"adb": "adb"}}) == says
    adbd.script(theirs / "mine", "printf 'List of devices attached\\n28A\\tdevice\\n'")
    monkeypatch.setenv("EDGECOMPRESS_ADB", str(theirs / "mine"))
    assert adb.unavailable({"options": {}}) == ""


def test_the_ssh_config_is_named_by_the_environment_and_by_no_file(theirs, monkeypatch):
    says = (
        "device.options.config is not allowed: an ssh_config can run programs on this machine; set "
        "EDGECOMPRESS_SSH_CONFIG instead"
    )
    assert ssh.unavailable({"options": {"host": "x", "config": "ssh_config"}}) == says
    monkeypatch.setenv("EDGECOMPRESS_SSH_CONFIG", str(theirs / "ssh_config"))
    ssh.unavailable({"options": {"host": "x"}})
    assert (theirs / "ran").exists()


@pytest.mark.parametrize("host", ["`touch ran`", "$(touch ran)", "a;b", "a|b", "'a'"])
def test_a_host_or_user_that_a_proxy_command_would_read_as_shell_is_refused(theirs, host):
    for options in ({"host": host}, {"host": "x", "user": host}):
        assert " is not a valid " in ssh.unavailable({"options": options})


def test_json_of_devices_says_which_were_not_tried(theirs, capsys):
    bait(theirs, "board", "ssh", 'host = "x"')
    assert main(["devices", "--json"]) == 0
    assert next(r for r in json.loads(capsys.readouterr().out) if r["name"] == "board")["reachable"] == ""


@pytest.mark.parametrize("file", ["/proc/kmsg", "pipe", "large", "/dev/zero"])
def test_a_sensors_file_that_never_ends_is_one_line(file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    with open("large", "wb") as stream:
        stream.truncate(1 << 42)
    nulls.make(tmp_path)
    (tmp_path / "board.toml").write_text(
        f'description = "x"\nplatform = "linux-x86_64"\nsensors = ["replay"]\n[options.replay]\nfile = "{file}"\n'
    )
    words = ["net.null", "--data", "data", "--target", "null.toml", "--device", "board.toml", "--until", "data"]
    argv = [sys.executable, "-P", "-m", "edgecompress.cli.main", "deploy", *words]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (
        done.returncode in ((0, 2) if file == "/proc/kmsg" else (2,)) and done.stderr.count("edgecompress: error") <= 1
    )


def test_what_is_added_to_a_report_does_not_go_through_a_link(tmp_path):
    (tmp_path / "theirs").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "theirs" / "measured").symlink_to("../elsewhere")
    with pytest.raises(InputError, match="measured: is a link"):
        told = external_results.parsed(json.dumps(measured_inputs.told()).encode(), "told.json")
        external_results.keep(tmp_path / "theirs", told)
    assert not list((tmp_path / "elsewhere").iterdir())
