"""stdout and stderr as commands write to them: clean, in any locale, and a fault of theirs is none of a file."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from typing import TextIO

from edgecompress.core.errors import StageFailed
from edgecompress.core.plain_text import escape, escaped


class ReaderGone(Exception):
    """The reader of a pipe went away: nobody is left to tell."""


class OutputStream(io.TextIOBase):
    """A stream that writes what drives a terminal, and what its encoding lacks, as JSON escapes it.

    `styled`: what comes is clean, and has the colours of ours. Raises ReaderGone, StageFailed.
    """

    def __init__(self, stream: TextIO, styled: bool = False) -> None:
        self.stream, self._styled = stream, styled

    @property
    def styled(self) -> OutputStream:
        """The same stream, for what has colours."""
        return OutputStream(self.stream, styled=True)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """What the stream can show."""
        return getattr(self.stream, "encoding", None) or "utf-8"

    def fileno(self) -> int:
        """That of the stream."""
        return self.stream.fileno()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return self.stream.isatty()

    def write(self, text: str) -> int:
        """Writes the text, in characters that the stream has."""
        shown = text if self._styled else escaped(text)
        with self._told_apart():
            self.stream.write(_encodable(shown, self.encoding))
        return len(text)

    def flush(self) -> None:
        """What is not written yet."""
        with self._told_apart():
            self.stream.flush()

    @contextlib.contextmanager
    def _told_apart(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError as error:
            self._silence()
            raise ReaderGone from error
        except OSError as error:
            self._silence()
            why = error.strerror or str(error)
            raise StageFailed(f"the output cannot be written: {why}; free some room, or write elsewhere") from error

    def _silence(self) -> None:
        """Nothing more is written: what is left in the buffer would fail again at exit."""
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self.stream.fileno())


def _encodable(text: str, encoding: str) -> str:
    try:
        text.encode(encoding)
        return text
    except UnicodeEncodeError:
        return "".join(c if _fits(c, encoding) else escape(c) for c in text)


def _fits(char: str, encoding: str) -> bool:
    try:
        return bool(char.encode(encoding))
    except UnicodeEncodeError:
        return False


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Has all that is printed meanwhile go through an OutputStream; where a stream is closed, to nobody."""
    before = sys.stdout, sys.stderr
    with open(os.devnull, "w", encoding="utf-8") as nothing:
        sys.stdout, sys.stderr = (OutputStream(stream or nothing) for stream in before)
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before
