"""The JSON messages between the runner and the child process of a stage: the request, and the answers."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, TypedDict, cast, final

from edgecompress.core.errors import StageFailed
from edgecompress.core.json import Json, parsed

LONGEST = 16 << 20  # bytes of a message


class ContextFields(TypedDict):
    """The fields of core.model.Context."""

    seed: int
    threads: int
    batch: int
    device: Mapping[str, Json]
    here: Mapping[str, Json]


class StageRequest(TypedDict):
    """One call of a stage function: the places of its inputs and its result, and its context."""

    stage: str
    call: str
    inputs: dict[str, str]  # role -> folder of the artifact
    out: str
    keep: str
    options: Mapping[str, Json]
    context: ContextFields
    observes: bool
    reads: list[str]  # files of strangers, of whom no code is run
    path: list[str]
    store: str
    offline: bool
    limits: dict[str, Any]  # the fields of core.sandbox.Limits


@final
class Progress(TypedDict):
    """An answer while a stage runs."""

    progress: float  # 0..1
    what: str


@final
class Failure(TypedDict):
    """The answer of a stage that failed: the class of the error, and its one line."""

    error: str
    message: str


@final
class Done(TypedDict):
    """The answer of a successful stage: the user's files that it read, with their digests, and what it imported.

    `uncompiled`: the imported files that have no bytecode on disk.
    """

    done: bool
    files: dict[str, str]
    modules: list[str]
    uncompiled: list[str]


SHAPES: tuple[Mapping[str, type | tuple[type, ...]], ...] = (  # of the three
    {"progress": (int, float), "what": str},
    {"error": str, "message": str},
    {"done": bool, "files": dict, "modules": list, "uncompiled": list},
)


def answer(line: bytes, who: str) -> Progress | Failure | Done:
    """The answer in a line. Raises StageFailed for any other text: the user's code may write to any open file."""
    try:
        message = parsed(line.decode())
    except ValueError:
        message = None
    keys = message.keys() if isinstance(message, dict) else set()
    shape = next((shape for shape in SHAPES if shape.keys() == keys), None)
    if shape is None or not all(isinstance(message[key], kind) for key, kind in shape.items()) or not _plain(message):
        raise StageFailed(
            f"{who}: its process sent {line[:60]!r}, which is no answer; does your code write to open files?"
        )
    return cast("Progress | Failure | Done", message)


def _plain(message: Mapping[str, Any]) -> bool:
    """Whether its lists hold texts."""
    texts = (*chain(*message.get("files", {}).items()), *message.get("modules", ()), *message.get("uncompiled", ()))
    return all(isinstance(text, str) for text in texts)
