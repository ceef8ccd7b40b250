"""A device has one user at a time: a lease in the store that all nodes share, told of and ended by its process."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator

from edgecompress.core import file_lock
from edgecompress.core.errors import Unreachable
from edgecompress.core.json import parsed
from edgecompress.pipeline.store import Store

LOOK_S = 0.2


@contextlib.contextmanager
def leased(store: Store, device: str, who: str, patience_s: float) -> Iterator[None]:
    """Holds a device; its process, or the end of it, gives it back. Raises Unreachable after so many seconds.

    A stage has a time-out of its own, so that no lease is held for ever.
    """
    file = store.root / "locks" / f"device-{device.replace('/', '-')}.lock"
    until = time.monotonic() + patience_s
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(file_lock.held(file, wait=False))
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise Unreachable(
                        f"device {device}: in use for {patience_s:.0f} s{_holder(file.with_suffix('.json'))}"
                    ) from None
                time.sleep(LOOK_S)
        told = {"stage": who, "node": socket.gethostname(), "pid": os.getpid(), "since": time.time()}
        file.with_suffix(".json").write_text(json.dumps(told), encoding="utf-8")
        yield


def _holder(file: os.PathLike[str]) -> str:
    """By whom, as far as that is told."""
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        with open(file, encoding="utf-8") as stream:
            told = parsed(stream.read())
        return f" by {told['stage']} on {told['node']} (process {int(told['pid'])})"
    return ""
