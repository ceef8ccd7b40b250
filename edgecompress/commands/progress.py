"""How far a call has come, in one line on stderr that is written over: in notebooks and on terminals."""

from __future__ import annotations

import sys

from edgecompress.core.plain_text import one_line
from edgecompress.pipeline.runner import Event

WIDTH = 79


def automatic(event: Event) -> None:
    """Tells an event where somebody looks at it live."""
    if "ipykernel" in sys.modules or sys.stderr.isatty():
        line(event)


def line(event: Event) -> None:
    """Tells an event; the line is gone when the stage has ended."""
    minutes, seconds = divmod(max(0, round(event.left_s)), 60)
    what = f": {event.what}" if event.what else ""
    left = f"about {minutes} min {seconds} s left" if minutes else f"about {seconds} s left"
    told = "" if event.kind == "ended" else one_line(f"{event.number} of {event.of}, {left}: {event.stage.name}{what}")
    sys.stderr.write(f"\r{told[:WIDTH]:<{WIDTH}}\r")
    sys.stderr.flush()


def silent(event: Event) -> None:
    """Tells nothing."""
