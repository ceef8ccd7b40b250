"""A program on this machine, ended at its deadline with all that it began: what local transports run."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from edgecompress.core import child_process, sandbox
from edgecompress.core.protocols import DEADLINE
from edgecompress.core.sandbox import Limits


def run(argv: Sequence[str], deadline_s: float, log: Path, env: Mapping[str, str], limits: Limits | None = None) -> int:
    """Runs a program with its output in `log`; ends its whole session at the deadline and returns DEADLINE then.

    Raises TooMuchMemory when it holds more than its limits, or else those of this process, say.
    """
    process = child_process.spawn(argv, log, env)
    assert process.stdout and process.stdin
    drain = threading.Thread(target=_drain, args=(process.stdout, log), daemon=True)
    drain.start()
    try:
        code = child_process.wait(process, deadline_s, (limits or sandbox.entered).resident_bytes, Path(argv[0]).name)
        return DEADLINE if code is None else code
    finally:
        child_process.end(process)
        process.stdin.close()
        drain.join(1.0)


def copy(source: str, path: Path) -> None:
    """Copies a file or folder, unless it lies where it should."""
    if Path(source).resolve() == path.resolve():
        return
    if Path(source).is_dir():
        shutil.copytree(source, path, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, path)


def _drain(stream: IO[bytes], log: Path) -> None:
    with log.open("ab") as file:
        shutil.copyfileobj(stream, file)
