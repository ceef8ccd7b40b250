"""The JSON messages between the runner and the child process of a stage: the request and the last answer."""

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
    """One call of a stage function: the places of its inputs and its result, and its context."""

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
    """The answer of a successful stage: the user's files that it read, and the modules that it imported."""

    done: bool
    files: dict[str, str]
    modules: list[str]
