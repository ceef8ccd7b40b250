"""Instructions of an x86-64 program, counted by Callgrind, which simulates the program: no time and no energy."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ()
LOCAL = True
QUANTITY = "instructions"
STATUS = "simulated"
SCOPE = "process"
COUNTS = "EDGECOMPRESS_COUNTS"  # where Callgrind dumps to: FILE.1, FILE.2, ...
# Requests to Callgrind (callgrind.h).
DUMP, ZERO, START = (0x43540000 + i for i in (0, 1, 4))
# unsigned long ask(const unsigned long *rdi): nothing on a processor, a request to Valgrind below it (valgrind.h).
ASK = bytes.fromhex(
    "4889f8"  # mov rax, rdi
    "31d2"  # xor edx, edx: the answer where there is no Valgrind
    "48c1c703 48c1c70d 48c1c73d 48c1c733"  # rol rdi, 3; 13; 61; 51: it is as it was
    "4887db"  # xchg rbx, rbx
    "4889d0"  # mov rax, rdx
    "c3"  # ret
)


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why nothing is counted here, or ""."""
    return "" if os.environ.get(COUNTS) else "no simulator counts here: it is a sensor of devices of transport valgrind"


def open(device: Mapping[str, Json], root: Path) -> CallgrindCounter:
    """A counter; Callgrind counts from here on, and is much slower."""
    return CallgrindCounter(os.environ[COUNTS])


class CallgrindCounter:
    """Counts what an act takes: Callgrind's counters are set to nothing before it, and dumped after it."""

    def __init__(self, file: str) -> None:
        self.file, self.dumps = file, 0
        code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        code.write(ASK)
        place = ctypes.addressof(ctypes.c_char.from_buffer(code))
        self.code = code  # as long as it may be called
        self.ask = ctypes.CFUNCTYPE(ctypes.c_ulong, ctypes.c_void_p)(place)
        self.zero, self.dump, start = ((ctypes.c_ulong * 6)(request) for request in (ZERO, DUMP, START))
        self.ask(start)

    def count(self, act: Callable[[], object]) -> Mapping[str, int]:
        """Instructions of `act`."""
        ask, zero, dump = self.ask, self.zero, self.dump
        ask(zero)
        act()
        ask(dump)
        self.dumps += 1
        file = Path(f"{self.file}.{self.dumps}")
        total = next(line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("totals:"))
        file.unlink()
        return {"instructions": int(total.split()[1])}
