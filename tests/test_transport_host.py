"""The host's shell: output kept, nothing outlives its deadline or its parent, facts from /proc and /sys."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from edgecompress.core import protocols
from edgecompress.plugins.transports import host

pytestmark = pytest.mark.slow

PYTHON = sys.executable


def gone(pid: int, within_s: float = 2.0) -> bool:
    """Whether a process ends (or is a zombie) in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def test_output_of_both_kinds_is_in_the_log_and_the_code_is_returned(tmp_path):
    log = tmp_path / "log"
    code = "import sys; print('said'); print('warned', file=sys.stderr); sys.exit(7)"
    assert host.connect({}).run([PYTHON, "-c", code], 20, log) == 7
    assert {"said", "warned"} <= set(log.read_text().split())


def test_more_output_than_a_pipe_holds_does_not_block(tmp_path):
    log = tmp_path / "log"
    assert host.connect({}).run([PYTHON, "-c", "print('x' * 1_000_000)"], 20, log) == 0
    assert log.stat().st_size == 1_000_001


def test_a_program_that_dies_gives_its_signal(tmp_path):
    assert host.connect({}).run([PYTHON, "-c", "import os; os.abort()"], 20, tmp_path / "log") == -6


def test_the_deadline_ends_the_child_and_its_children(tmp_path):
    note = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid)); time.sleep(60)"
    )
    begin = time.monotonic()
    assert host.connect({}).run([PYTHON, "-c", code], 2.0, tmp_path / "log") == protocols.DEADLINE
    assert time.monotonic() - begin < 10
    assert gone(int(note.read_text()))


def test_what_a_program_leaves_behind_is_ended_with_it(tmp_path):
    note = tmp_path / "pid"
    code = (
        "import pathlib, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))"
    )
    assert host.connect({}).run([PYTHON, "-c", code], 20, tmp_path / "log") == 0
    assert gone(int(note.read_text()))


def test_a_file_of_the_working_folder_does_not_stand_in_for_a_library(tmp_path, monkeypatch):
    (tmp_path / "random.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert host.connect({}).run([PYTHON, "-c", "import random"], 20, tmp_path / "log") == 0


def test_nothing_outlives_the_process_that_runs_it(tmp_path):
    code = (
        "from pathlib import Path\nfrom edgecompress.plugins.transports import host\n"
        "child = 'from edgecompress.core import child_process; child_process.tie(); import time; time.sleep(60)'\n"
        f"host.connect({{}}).run([{PYTHON!r}, '-c', child], 60, Path({str(tmp_path / 'log')!r}))"
    )
    parent = subprocess.Popen([PYTHON, "-c", code])
    end = time.monotonic() + 20
    while not (children := psutil.Process(parent.pid).children()) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.5)  # the child ties itself
    parent.kill()
    parent.wait()
    assert children and gone(children[0].pid)


def test_push_and_pull_move_nothing_that_is_in_place(tmp_path):
    shell = host.connect({})
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "file").write_text("1")
    assert shell.push(tmp_path / "a") == str(tmp_path / "a")
    shell.pull(str(tmp_path / "a"), tmp_path / "a")
    shell.pull(str(tmp_path / "a"), tmp_path / "b")
    shell.pull(str(tmp_path / "a" / "file"), tmp_path / "c")
    assert (tmp_path / "b" / "file").read_text() == (tmp_path / "c").read_text() == "1"


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """The files of a small Arm board."""
    files = {
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: Cortex-A76\nFeatures\t: fp asimd asimddp\n\nprocessor\t: 1\n",
        "proc/meminfo": "MemTotal:        8000000 kB\nMemAvailable:    7000000 kB\n",
        "etc/os-release": 'NAME=x\nPRETTY_NAME="Some OS 12"\n',
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        "sys/hypervisor/type": "xen\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_facts_are_read_below_a_root(machine):
    facts = host.Host(machine).facts()
    assert (facts["cpu"], facts["features"]) == ("Cortex-A76", ["asimd", "asimddp"])
    assert (facts["memory_bytes"], facts["now"]["memory_available_bytes"]) == (8000000 * 1024, 7000000 * 1024)
    assert (facts["os"], facts["governor"], facts["virtual"]) == ("Some OS 12", "performance", "xen")


def test_facts_that_nobody_tells_are_none(tmp_path):
    facts = host.Host(tmp_path).facts()
    assert facts["memory_bytes"] is None and facts["governor"] is None
    assert facts["features"] == []


def test_facts_of_this_machine_are_the_kernels():
    facts = host.connect({}).facts()
    assert facts["cores"] == len(psutil.Process().cpu_affinity())
    assert facts["memory_bytes"] == pytest.approx(psutil.virtual_memory().total)
    assert {k: v for k, v in host.connect({}).facts().items() if k != "now"} == {
        k: v for k, v in facts.items() if k != "now"
    }
