"""The signals that end a command: it clears up and says so, as after Ctrl-C."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

ENDING = ("SIGTERM", "SIGHUP")  # of a service manager, of a terminal that was closed; Windows has no SIGHUP


class Ended(KeyboardInterrupt):
    """A signal ended the command; `number` is the signal's."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """Has these signals raise Ended, except where somebody ignores or handles them already."""
    numbers = [getattr(signal, name) for name in ENDING if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []  # Python sets handlers in its main thread only
    for number in ours:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _end(number: int, frame: FrameType | None) -> None:
    raise Ended(number)
