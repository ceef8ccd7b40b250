"""A program whose output a stranger decides: more of it than is allowed ends the wait, and nothing fills the disk."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from typing import IO

LOOK_S = 0.2  # how often the output is looked at


class Flood(Exception):
    """More output than is allowed; the message is how much is allowed."""


def wait(process: subprocess.Popen[bytes], timeout_s: float, outputs: Sequence[IO[bytes]], most: int) -> int:
    """The code of a program that writes into files. Raises TimeoutExpired, Flood; it is ended then."""
    end = time.monotonic() + timeout_s
    try:
        while True:
            left = end - time.monotonic()
            try:
                code = process.wait(max(0.0, min(LOOK_S, left)))
            except subprocess.TimeoutExpired:
                if left <= 0:
                    raise
                code = None
            check(sum(os.fstat(output.fileno()).st_size for output in outputs), most)
            if code is not None:
                return code
    finally:
        if process.returncode is None:
            process.kill()
            process.wait()


def check(size: int, most: int) -> None:
    """Raises Flood for more bytes of output than are allowed."""
    if size > most:
        raise Flood(f"more than {most >> 20} MiB" if most >> 20 else f"more than {most} bytes")
