"""What the runner and the child process of a stage tell each other, as JSON: the request, and the last answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from edgecompress.core.json import Json


class ContextFields(TypedDict):
    """The fields of core.model.Context."""

    seed: int
    threads: int
    batch: int
    device: Mapping[str, Json]
    here: Mapping[str, Json]


class StageRequest(TypedDict):
    """One call of a stage function: where its inputs are, where its result goes, what it may know."""

    stage: str
    call: str
    inputs: dict[str, str]  # role -> folder of the artifact
    out: str
    keep: str
    options: Mapping[str, Json]
    context: ContextFields
    observes: bool
    path: list[str]
    store: str
    offline: bool


class Done(TypedDict):
    """How a stage ended well: the user's files that it read, with their digests, and the modules that it imported."""

    done: bool
    files: dict[str, str]
    modules: list[str]
