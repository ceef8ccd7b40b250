"""`device add` against a real sshd: what it writes parses, says what is missing, and a board's words break nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import psutil
import pytest
import sshd

from edgecompress.commands import device_add
from edgecompress.core import catalog
from edgecompress.core.errors import InputError, Unreachable

pytestmark = [pytest.mark.slow, pytest.mark.sshd]


@pytest.fixture(scope="module")
def server() -> Iterator[sshd.Sshd]:
    with sshd.serving() as running:
        yield running


def options(server: sshd.Sshd, **more: Any) -> dict[str, Any]:
    return {k: v for k, v in server.device(**more)["options"].items() if k != "host"}


def test_a_probed_board_is_a_device_that_can_be_used(server, tmp_path):
    added = device_add.add("dut", output=tmp_path / "mine.toml", options=options(server, python=sys.executable))
    device = catalog.device(str(added.file)).value
    assert (device.transport, device.options["host"]) == ("ssh", "dut")
    assert device.cores == len(psutil.Process().cpu_affinity())
    assert device.memory_mib == psutil.virtual_memory().total // 2**20
    assert device.sensors[-1] == "power_model" and device.vector_bits in (128, 256, 512)
    told = device_add.text(added)
    assert "onnx (onnxruntime 1." in told and f"--device {added.file}" in told
    assert not [line for line in added.missing if "Python" in line]


def test_a_file_that_is_there_is_kept_and_nothing_is_asked(tmp_path):
    (tmp_path / "mine.toml").write_text("mine")
    with pytest.raises(InputError, match="already exists"):
        device_add.add("nobody.invalid", output=tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml").read_text() == "mine"


def test_an_option_that_ssh_does_not_have_is_refused_before_anything_is_asked(tmp_path):
    with pytest.raises(InputError, match="--set prot: transport ssh has no such option, did you mean 'port'"):
        device_add.add("nobody.invalid", output=tmp_path / "mine.toml", options={"prot": 22})


def test_a_board_that_does_not_answer_leaves_no_file(server, tmp_path):
    with pytest.raises(Unreachable, match="refuses the connection"):
        device_add.add("dut", output=tmp_path / "mine.toml", options=options(server, port=1))
    assert not (tmp_path / "mine.toml").exists()


def test_a_board_without_python_is_told_what_it_lacks(server, tmp_path):
    added = device_add.add("dut", output=tmp_path / "mine.toml", options=options(server, python="no-python"))
    assert added.missing[0].startswith("Python 3.10 or later: no-python cannot run the agent")
    assert catalog.device(str(added.file)).value.sensors == ("power_model",)


@pytest.mark.parametrize(("host", "name"), [("pi@Board-5.local", "board-5"), ("board", "board"), ("u@!", "board")])
def test_the_name_is_the_hosts(host: str, name: str) -> None:
    assert device_add.default_name(host) == name


FACTS = {
    "board": 'Pi"\n[options]\nhost = "evil"\x1b[31m',
    "cpu": None,
    "machine": "aarch64",
    "platform": "linux-aarch64",
    "cores": 4,
    "memory_bytes": 4 << 30,
    "features": ["asimd", "sve"],
    "os": "Debian\n# x",
    "kernel": "6.12",
    "governor": "ondemand",
    "python": "/usr/bin/python3",
}


def board(listed: Mapping[str, str], sensors: Mapping[str, str]) -> device_add.ProbedBoard:
    return device_add.ProbedBoard(FACTS, listed, "3.11.2", sensors, {"numpy": None})


def test_what_a_board_says_of_itself_breaks_no_file(tmp_path):
    odd = board({"hwmon": "ina219\x00\n]\n", "sve_bytes": "32", "governors": "ondemand performance"}, {"hwmon": ""})
    file = tmp_path / "odd.toml"
    file.write_text(device_add._toml(odd, {"host": "pi@board"}))
    device = catalog.device(str(file)).value
    assert device.options == {"host": "pi@board"} and device.vector_bits == 256
    assert device.sensors == ("hwmon", "power_model")
    assert "\x1b" not in file.read_text() and 'evil"' in device.description


def test_what_is_missing_comes_with_the_command_that_mends_it():
    lines = list(device_add._missing(board({"governors": "ondemand performance"}, {"rapl": "no powercap"})))
    assert "numpy, which every measurement needs: /usr/bin/python3 -m pip install numpy" in lines
    assert any("pip install with the package of your runtime" in line for line in lines)
    assert "sensor rapl: no powercap" in lines
    assert any("echo performance" in line for line in lines)


def test_the_sensor_that_sees_most_comes_first():
    names = list(device_add._sensors())
    assert names.index("rpi5_pmic") < names.index("rapl") < names.index("hwmon")
    assert not {"power_model", "replay", "instructions"} & set(names)
