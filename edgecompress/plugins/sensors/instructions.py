"""Instructions on emulated Arm, in total and by class, counted exactly by a QEMU plugin: no time and no energy."""

from __future__ import annotations

import ctypes
import json
import os
import struct
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
QUANTITY = "instructions"
STATUS = "simulated"
SCOPE = "process"
LEGEND = {
    "dot_i8": "SDOT, UDOT: four products of 8-bit numbers added to a 32-bit one, in each lane",
    "mmla_i8": "SMMLA, UMMLA: products of 2 × 8 matrices of 8-bit numbers",
    "mlal": "SMLAL, SMULL: products of 8- or 16-bit numbers at twice the width",
    "fmla_f32": "FMLA: a product of 32-bit floats added, in each lane",
    "fmla_f16": "FMLA: a product of 16-bit floats added, in each lane",
    "bf16": "BFMMLA, BFDOT: products of bfloat16 numbers",
    "sve": "SVE: vectors of a length that the core decides",
    "sme": "SME: outer products on a matrix unit",
}
COUNTS = "EDGECOMPRESS_COUNTS"  # the file that the plugin writes a line to at each mark
MARK = 0x51454D55  # prctl's option that the plugin knows; to the kernel it is an unknown one
# int clock_gettime(clockid_t w0, struct timespec *x1): one of the two times behind it.
STANDSTILL = (
    0x35000060,  # cbnz w0, 12: another clock than the real-time one
    0x100000E2,  # adr x2, 28
    0x14000002,  # b 8
    0x10000122,  # adr x2, 36
    0xA9401043,  # ldp x3, x4, [x2]
    0xA9001023,  # stp x3, x4, [x1]
    0x52800000,  # mov w0, 0
    0xD65F03C0,  # ret
)


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why nothing is counted here, or ""."""
    return "" if os.environ.get(COUNTS) else "no emulator counts here: it is a sensor of devices of transport qemu"


def open(device: Mapping[str, Json], root: Path) -> EmulatorCounter:
    """A counter over the plugin's file. From here on the clock stands still in this process."""
    _stop_the_clock()
    return EmulatorCounter(Path(os.environ[COUNTS]))


class EmulatorCounter:
    """Counts what an act takes: the difference of the plugin's snapshots before and after it."""

    def __init__(self, file: Path) -> None:
        self.stream = file.open(encoding="ascii")
        self.stream.seek(0, os.SEEK_END)
        self.mark = ctypes.CDLL(None).prctl
        self.mark.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]

    def count(self, act: Callable[[], object]) -> Mapping[str, int]:
        """Instructions of `act`, and of each class among them."""
        mark = self.mark
        mark(MARK, 0, 0, 0, 0)
        act()
        mark(MARK, 1, 0, 0, 0)
        before, after = (json.loads(line) for line in self.stream.read().splitlines())
        return {name: after[name] - before[name] for name in after if name != "id"}


def _stop_the_clock() -> None:
    """Libraries that do something every two seconds would do it in one count, and not in the next.

    libc's own function is overwritten, in the memory of this process: whoever asks is told the time of now.
    """
    import mmap

    libc = ctypes.CDLL(None)
    place = ctypes.cast(libc.clock_gettime, ctypes.c_void_p).value or 0
    times = [divmod(clock(), 10**9) for clock in (time.time_ns, time.monotonic_ns)]
    code = struct.pack("<8I4q", *STANDSTILL, *times[0], *times[1])
    page = place - place % mmap.PAGESIZE
    length = place + len(code) - page
    protect = libc.mprotect
    protect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    readable = mmap.PROT_READ | mmap.PROT_EXEC
    if protect(page, length, readable | mmap.PROT_WRITE):
        raise StageFailed("sensor instructions: the clock cannot be stopped: libc's code is not writable here")
    ctypes.memmove(place, code, len(code))
    protect(page, length, readable)
