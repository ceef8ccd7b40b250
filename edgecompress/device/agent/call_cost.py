"""What a call of a session costs without a net: an empty model, timed as the artifact is."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import brief
from edgecompress.core.model import SETTINGS
from edgecompress.device.agent.timing import timed

if TYPE_CHECKING:
    from edgecompress.core.json import Json

WARM_RUNS, RUNS, SECONDS = 50, 500, 0.05


class CallCost(TypedDict):
    """The median of a call, None with the reason where a runtime has no empty model."""

    call_ms: float | None
    call_reason: str


def measured(runtime: ModuleType, settings: Mapping[str, Json] | None, threads: int) -> CallCost:
    """Opens the runtime's empty model as the artifact with these settings was, and times its calls."""
    import numpy as np

    if not hasattr(runtime, "empty"):
        return {"call_ms": None, "call_reason": getattr(runtime, "NO_EMPTY", "its runtime has no empty model")}
    with tempfile.TemporaryDirectory() as folder:
        try:
            model = runtime.empty(Path(folder))
            session = runtime.open(replace(model, facts={} if settings is None else {SETTINGS: settings}), threads)
            inputs = [{spec.name: np.full(spec.concrete(), i, spec.dtype) for spec in model.inputs} for i in range(2)]
            timed(session.run, inputs, 0.0, WARM_RUNS)
            median = statistics.median(timed(session.run, inputs, SECONDS, RUNS)) / 1e6
            session.close()
            return {"call_ms": median, "call_reason": ""}
        except Exception as error:  # whatever a runtime raises: the artifact was measured, and that is kept
            message = brief(str(error))
            return {"call_ms": None, "call_reason": f"the empty model: {type(error).__name__}: {message}"}
