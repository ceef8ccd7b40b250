"""How far a call has come, in one line that is written over: in notebooks and on terminals."""

from __future__ import annotations

import sys
from typing import Protocol

from edgecompress.core.plain_text import one_line
from edgecompress.pipeline.runner import Event

WIDTH = 79


class _Shown(Protocol):
    """A place in a notebook that can be written over."""

    def update(self, content: object, *, raw: bool) -> None: ...


class Line:
    """Hears a run. `shown` None: it tells where somebody may look at it live."""

    def __init__(self, shown: bool | None = None) -> None:
        notebook = "ipykernel" in sys.modules
        self.place: _Shown | None = None
        if notebook and shown is not False:
            from IPython.display import display

            self.place = display({"text/plain": ""}, raw=True, display_id=True)
        self.terminal = not notebook and (sys.stderr.isatty() if shown is None else shown)

    def __call__(self, event: Event) -> None:
        """Writes an event; nothing stays when its stage has ended."""
        minutes, seconds = divmod(max(0, round(event.left_s)), 60)
        what = f": {event.what}" if event.what else ""
        left = f"about {minutes} min {seconds} s left" if minutes else f"about {seconds} s left"
        told = f"{event.number} of {event.of}, {left}: {event.stage.name}{what}"
        text = "" if event.kind == "ended" else one_line(told)[:WIDTH]
        if self.place:
            self.place.update({"text/plain": text}, raw=True)
        elif self.terminal:
            stream = getattr(sys.stderr, "styled", sys.stderr)  # the command line's escapes what moves the cursor
            stream.write(f"\r{text:<{WIDTH}}\r")
            stream.flush()
