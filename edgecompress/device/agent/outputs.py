"""Modes outputs and layer_outputs: what an artifact computes, as arrays on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import InputError, StageFailed, first_line
from edgecompress.core.model import SETTINGS, Artifact, TensorSpec
from edgecompress.data import states, tensors
from edgecompress.device import operator_sketches
from edgecompress.device.agent.environment import Environment, environment
from edgecompress.device.agent.inputs import batch_of, batches, runtime_module
from edgecompress.device.request import AgentRequest

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.json import Json
    from edgecompress.core.protocols import Session

TRACE = "trace.json"  # what is kept of each operator's output, where the runtime tells them
TRACED = 16  # items
DEFAULTS = "defaults"  # the folder of what the engine answers when it is opened without our settings


class EngineDefaults(TypedDict):
    """A session opened with an engine's own defaults: what it says is in effect, or why it did not run."""

    items: int
    settings: Mapping[str, Json]
    reason: str


class Outputs(TypedDict):
    """The answer of mode outputs; `defaults` is None where they were not asked for, or there are no settings.

    `fallback` are the operators that left the accelerator, None where only a session made for profiling tells.
    """

    n: int
    batch: int
    fallback: list[str] | None
    defaults: EngineDefaults | None
    environment: Environment


class LayerOutputs(TypedDict):
    """The answer of mode layer_outputs."""

    environment: Environment


def run(request: AgentRequest, out: Path) -> Outputs:
    """The artifact's outputs for a whole split, as SPLIT/OUTPUT.npy: item i is the split's item i.

    Where the session can be traced, TRACE holds a sketch of each operator's output for the first items.
    """
    runtime = runtime_module(request)
    model = Artifact.read(Path(request.artifact))
    total = tensors.count(Artifact.read(Path(request.samples)), request.split)
    session = runtime.open(model, request.threads)
    writer = tensors.Appender(out / request.split)
    batch = batch_of(model, request.batch)
    if hasattr(session, "trace"):
        lines = operator_sketches.trace(session.trace(inputs) for inputs in batches(request, model, TRACED))
        (out / TRACE).write_text(json.dumps(lines, allow_nan=False), encoding="utf-8")
    _append(writer, request, model, session, total)
    writer.close()
    fallback: list[str] | None
    try:
        fallback = session.ops({}, 0)["fallback"]
    except Exception:  # whatever an engine raises: a session made for profiling is asked next, and says what broke
        fallback = None
    session.close()
    defaults = _by_defaults(request, runtime, model, out) if request.defaults and hasattr(runtime, "SETTINGS") else None
    return {
        "n": writer.count,
        "batch": batch,
        "fallback": fallback,
        "defaults": defaults,
        "environment": environment(request, runtime),
    }


def _append(writer: tensors.Appender, request: AgentRequest, model: Artifact, session: Session, items: int) -> None:
    """The outputs for the first items. A net with state goes through their sequences with its own, an item a call."""
    batch, outputs = batch_of(model, request.batch), [spec for spec in model.outputs if not spec.feeds]
    step = 1 if len(outputs) < len(model.outputs) else batch
    length = Artifact.read(Path(request.samples)).facts.get(states.SEQUENCE, 1)
    calls = batches(request, model, items, step)
    for _, result in states.steps(session.run, calls, model, length):
        kept = min(step, items - writer.count)
        writer.append({spec.name: _items(spec, result[spec.name], batch)[:kept] for spec in outputs})


def _by_defaults(request: AgentRequest, runtime: ModuleType, model: Artifact, out: Path) -> EngineDefaults:
    """The first items by a session without settings, as DEFAULTS/SPLIT/OUTPUT.npy."""
    items = min(request.defaults, tensors.count(Artifact.read(Path(request.samples)), request.split))
    writer = tensors.Appender(out / DEFAULTS / request.split)
    try:
        session = runtime.open(replace(model, facts={**model.facts, SETTINGS: {}}), request.threads)
        _append(writer, request, model, session, items)
        in_effect = getattr(session, "in_effect", {})
        session.close()
    except Exception as error:  # whatever an engine raises: the artifact was run, and that counts
        return {"items": 0, "settings": {}, "reason": first_line(error)}
    writer.close()
    return {"items": writer.count, "settings": in_effect, "reason": ""}


def _items(spec: TensorSpec, value: np.ndarray, batch: int) -> np.ndarray:
    """An output with its items on axis 0. Raises when it has another number of rows."""
    import numpy as np

    items = states.parted(tensors.real(np.asarray(value), spec), spec)
    if not items.ndim or len(items) != batch:
        raise StageFailed(
            f"output '{spec.name}' has shape {list(items.shape)} for a batch of {batch}: axis 0 is not the batch"
        )
    return items


def run_layer_outputs(request: AgentRequest, out: Path) -> LayerOutputs:
    """All outputs of each of `artifacts` for the first `items`, as LABEL/SPLIT/OUTPUT.npy: row k is of batch k."""
    import numpy as np

    runtime = runtime_module(request)
    for label, path in request.artifacts.items():
        model = Artifact.read(Path(path))
        session = runtime.open(model, request.threads)
        writer = tensors.Appender(out / label / request.split)
        for inputs in batches(request, model, request.items):
            result = session.run(inputs)
            writer.append({s.name: tensors.real(np.asarray(result[s.name]), s)[None] for s in model.outputs})
        writer.close()
        session.close()
        if not writer.count:
            raise InputError(f"{request.samples}: split '{request.split}' is empty; give it at least one item")
    return {"environment": environment(request, runtime)}
