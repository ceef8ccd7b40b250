"""The environment of an agent: Python, the runtime's versions, threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
from collections.abc import Sequence
from types import ModuleType
from typing import TypedDict

from edgecompress.device.request import AgentRequest


class Environment(TypedDict):
    """The fields of every answer of a mode that runs an artifact."""

    python: str
    runtime: str
    versions: dict[str, str]
    threads: int
    affinity: list[int] | None  # the processors that it may use, where the system says


def environment(request: AgentRequest, runtime: ModuleType) -> Environment:
    """The environment of this process."""
    return {
        "python": platform.python_version(),
        "runtime": request.runtime.name if request.runtime else "",
        "versions": _versions(runtime.REQUIRES),
        "threads": request.threads,
        "affinity": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
    }


def _versions(requires: Sequence[str]) -> dict[str, str]:
    versions = {}
    for requirement in requires:
        name = re.split(r"[^A-Za-z0-9._-]", requirement)[0]
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
