"""macOS powermetrics: processor, GPU and neural engine of Apple silicon, as Apple estimates their power.

According to Apple, these figures help to tune one Mac, but not to compare it with other devices.
"""

from __future__ import annotations

import contextlib
import os
import plistlib
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING
from xml.parsers.expat import ExpatError

from edgecompress.core.errors import brief
from edgecompress.plugins.sensors._sampler import CounterMeter, Origin, Stamped, wait_for

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
STATUS = "measured"
SCOPE = "package"

PROGRAM = "usr/bin/powermetrics"
PERIOD_MS = 100
SAMPLERS = "cpu_power,gpu_power,ane_power"
FIRST_S = 10.0  # until its first sample
DEADLINE_S = 5.0
SOURCE = "powermetrics, CPU+GPU+ANE as Apple estimates them"


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why powermetrics cannot be asked, or ""."""
    program = root / PROGRAM
    if not program.exists():
        return f"no {program}: it is a program of macOS"
    try:
        done = subprocess.run(_command(program, 1), capture_output=True, timeout=DEADLINE_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"powermetrics: {error}"
    if done.returncode:
        message = brief(done.stderr.decode(errors="replace"))
        return (
            f"not permitted to run powermetrics ({message}): allow it without a password by a line in sudoers, "
            f"`USER ALL=(root) NOPASSWD: /{PROGRAM}`, or run as root"
        )
    try:
        return "" if joules(done.stdout.split(b"\0")[0]) > 0 else "powermetrics reports no power on this Mac"
    except ValueError as error:
        return str(error)


def open(device: Mapping[str, Json], root: Path) -> CounterMeter:
    """A meter over the sum that powermetrics tells."""
    stream = _Stream(_command(root / PROGRAM, 0))
    return CounterMeter(stream.read, [None], Origin(SOURCE, SCOPE), PERIOD_MS / 1e3, stream.running())


def joules(plist: bytes) -> float:
    """The energy of one sample. Raises ValueError for what is not one."""
    try:
        sample = plistlib.loads(plist.strip(b"\0\n"))
        seconds, processor = float(sample["elapsed_ns"]) * 1e-9, sample["processor"]
    except (ExpatError, plistlib.InvalidFileException, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"powermetrics wrote no sample: {type(error).__name__} {error}") from error
    if "combined_power" in processor:  # milliwatts
        return float(processor["combined_power"]) * 1e-3 * seconds
    if "package_joules" in processor:  # Intel Macs
        return float(processor["package_joules"])
    raise ValueError("powermetrics reports neither combined_power nor package_joules")


def _command(program: Path, samples: int) -> list[str]:
    """`samples`: how many, 0 for without end. `sudo -n` never asks for a password."""
    flags = ["--samplers", SAMPLERS, "-i", str(PERIOD_MS), "-n", str(samples), "-f", "plist", "-b", "0"]
    return [*([] if os.geteuid() == 0 else ["sudo", "-n"]), str(program), *flags]


class _Stream:
    """The running program, and the sum of its samples so far, stamped when each arrived."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._sum: list[Stamped] = []
        self._ended = threading.Event()

    def read(self) -> list[Stamped]:
        return self._sum

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert process.stdout
        reader = threading.Thread(target=self._listen, args=(process.stdout,), daemon=True)
        reader.start()
        try:
            wait_for(lambda: self._sum, FIRST_S, f"powermetrics gave no sample within {FIRST_S:g} s")
            yield
        finally:
            self._ended.set()
            with contextlib.suppress(PermissionError):  # what sudo started is not ours to end: it ends at its next word
                process.terminate()
            reader.join()
            process.stdout.close()
            process.wait()

    def _listen(self, stream: IO[bytes]) -> None:
        """Samples are parted by a NUL."""
        held = b""
        while not self._ended.is_set() and (block := os.read(stream.fileno(), 1 << 16)):
            *whole, held = (held + block).split(b"\0")
            for plist in whole:
                self._add(plist)

    def _add(self, plist: bytes) -> None:
        before = self._sum[0].microjoules if self._sum else 0.0
        with contextlib.suppress(ValueError):  # a sample cut short by the end
            self._sum = [Stamped(time.monotonic(), before + joules(plist) * 1e6)]
