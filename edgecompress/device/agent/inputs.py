"""Loads what a request names: the runtime's module and batches of samples."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.data import tensors
from edgecompress.device.request import AgentRequest

if TYPE_CHECKING:
    import numpy as np

ITEMS = 32  # batches of samples held in memory and rotated through


def runtime_module(request: AgentRequest) -> ModuleType:
    """The runtime's module; the libraries in its IMPORTS are loaded: they are baseline, not the model's load."""
    if request.runtime is None:
        raise InputError(f"agent: mode '{request.mode}' needs a runtime")
    runtime = importlib.import_module(request.runtime.module)
    for name in getattr(runtime, "IMPORTS", ()):
        with contextlib.suppress(ImportError):  # `open` says it with the command that installs it
            importlib.import_module(name)
    return runtime


def batch_of(model: Artifact, batch: int) -> int:
    """The batch that the model is made for, where it is fixed; else `batch`."""
    return model.batch if isinstance(model.batch, int) else batch


def batches(
    request: AgentRequest, model: Artifact, limit: int | None, step: int | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Batches of the split by the model's input names, `step` items after each other; see `tensors.batches`."""
    samples = Artifact.read(Path(request.samples))
    return tensors.batches(samples, request.split, batch_of(model, request.batch), limit, model, step)


def preloaded(request: AgentRequest, model: Artifact, items: int = ITEMS) -> list[dict[str, np.ndarray]]:
    """The split's first items, in memory. Raises InputError when there are none or the model's batch is another."""
    batch = batch_of(model, request.batch)
    if batch != request.batch:
        raise InputError(
            f"{model.path}: its batch is fixed to {batch}, but batch {request.batch} was asked for; use --batch {batch}"
        )
    inputs = list(batches(request, model, items * batch))
    if not inputs:
        raise InputError(f"{request.samples}: split '{request.split}' is empty; give it at least one item")
    return inputs
