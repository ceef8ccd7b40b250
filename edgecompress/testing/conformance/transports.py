"""The checks of a transport: exit codes, deadlines, and files in both directions."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import registry
from edgecompress.core.errors import EdgeError
from edgecompress.core.plugins import TransportPlugin
from edgecompress.testing.conformance.common import check_described

if TYPE_CHECKING:
    from edgecompress.core.json import Json
    from edgecompress.core.protocols import Shell


def check_transport(name: str, tmp_path: Path, device: Mapping[str, Json] | None = None) -> None:
    """A transport says why it cannot be reached; runs programs with their exit code, ends them at the deadline, and
    carries files both ways.
    """
    module = registry.load("transports", name)
    says = f"transport {name}"
    check_described(module, TransportPlugin, says)
    tmp_path.mkdir(parents=True, exist_ok=True)
    log = tmp_path / "log"
    settings = {"options": {}} if device is None else device
    why_not = module.unavailable(settings)
    assert isinstance(why_not, str) and "\n" not in why_not, f"{says}: unavailable() says why in one line: {why_not!r}"
    try:
        shell = module.connect(settings)
    except EdgeError as error:  # nothing to reach from here
        assert "\n" not in str(error), f"{says}: its error is not one line: {error}"
        assert why_not, f"{says}: unavailable() found nothing wrong, connect() says {error}"
        return
    assert not why_not, f"{says}: connect() reached what unavailable() said cannot be: {why_not}"
    assert isinstance(shell.here, bool), f"{says}: here is True for this machine, False for another"
    facts = dict(shell.facts())
    assert facts, f"{says}: facts says nothing of the device"
    json.dumps(facts, allow_nan=False)
    assert shell.run(["sh", "-c", "echo heard; exit 0"], 30, log) == 0, f"{says}: a program that ended well"
    assert "heard" in log.read_text(encoding="utf-8"), f"{says}: what a program prints belongs into the log"
    assert shell.run(["sh", "-c", "exit 7"], 30, log) == 7, f"{says}: it must return the program's exit code"
    begin = time.monotonic()
    code = shell.run(["sleep", "20"], 0.5, log)
    assert code != 0, f"{says}: a program ended at its deadline did not end well"
    assert time.monotonic() - begin < 15, f"{says}: a program outlived its deadline"
    _check_carries(shell, tmp_path, says)
    _check_scratch(shell, tmp_path, log, says)
    shell.close()


def _check_carries(shell: Shell, folder: Path, says: str) -> None:
    here, back = folder / "pushed", folder / "pulled"
    (here / "inner").mkdir(parents=True, exist_ok=True)
    (here / "inner" / "file.bin").write_bytes(bytes(range(256)))
    there = shell.push(here)
    shell.pull(there, back)
    carried = back / "inner" / "file.bin"
    assert carried.read_bytes() == bytes(range(256)), f"{says}: a file came back with other bytes"
    assert shell.push(here) == there, f"{says}: what is there already has its place"


def _check_scratch(shell: Shell, folder: Path, log: Path, says: str) -> None:
    """What a run writes into a scratch folder comes back; the folder goes when it is discarded."""
    mine = folder / "scratch"
    mine.mkdir(exist_ok=True)
    (mine / "request").write_text("asked", encoding="utf-8")
    place = shell.scratch(mine)
    assert shell.run(["sh", "-c", f"cat '{place}/request' > '{place}/answer'"], 30, log) == 0, (
        f"{says}: scratch holds a copy"
    )
    shell.pull(place, mine)
    assert (mine / "answer").read_text(encoding="utf-8") == "asked", f"{says}: what a run wrote must come back"
    shell.discard(place)
    gone = shell.run(["sh", "-c", f"test ! -e '{place}'"], 30, log) == 0
    assert gone or shell.here, f"{says}: a discarded folder is still there"
