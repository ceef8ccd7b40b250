"""Runs and measures an artifact on its device, in a separate process: one request in, one result out.

    python -m edgecompress.device.agent REQUEST.json

The request is a device.request.AgentRequest as JSON; its `mode` is one of MODES.
The answer is `result.json` in its `out`; exit 1 and {"error": message, "class": name} when it went wrong.
The same files run on the host, a board, an emulator: Python 3.10 and the standard library (numpy for the arrays).
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from edgecompress.core import child_process
from edgecompress.core.errors import EdgeError, InputError, StageFailed, first_line
from edgecompress.device.agent import (
    device_facts,
    energy,
    instructions,
    interleaved,
    measuring_round,
    operators,
    outputs,
    profiler,
    session,
    start,
)
from edgecompress.device.request import RESULT, AgentRequest

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
MODES: Mapping[str, Callable[[AgentRequest, Path], Mapping[str, object]]] = {
    "outputs": outputs.run,
    "layer_outputs": outputs.run_layer_outputs,
    "round": measuring_round.run,
    "session": session.run,
    "interleaved": interleaved.run,
    "energy": energy.run,
    "ops": operators.run,
    "facts": device_facts.run,
    "count": instructions.run,
    "profiler": profiler.run,
    "start": start.run,
}


def main() -> int:
    """Answers the request that the first argument names."""
    file = Path(sys.argv[1])
    request = AgentRequest.from_json(file.read_text(encoding="utf-8"))
    if request.tied:
        child_process.tie()
    else:
        child_process.end_after(request.deadline_s)
    out = Path(request.out or file.parent)
    for name in THREADS:  # before anything that reads them is loaded
        os.environ[name] = str(request.threads)
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # it would tell of models, on a thread beside what is measured
    result = answer(request, out)
    (out / RESULT).write_text(json.dumps(result, allow_nan=False), encoding="utf-8")
    return 1 if "error" in result else 0


def answer(request: AgentRequest, out: Path) -> Mapping[str, object]:
    """The result of the request's mode, or its error as a message and a class."""
    try:
        mode = MODES.get(request.mode)
        if mode is None:
            raise InputError(f"agent: no mode '{request.mode}'; known: {', '.join(MODES)}")
        return mode(request, out)
    except EdgeError as error:
        traceback.print_exc()
        return {"error": str(error), "class": type(error).__name__}
    except ModuleNotFoundError as error:
        traceback.print_exc()
        lacking = f"the Python that runs it ({sys.executable}) has no module '{error.name}': install it there"
        return {"error": lacking, "class": StageFailed.__name__}
    except Exception as error:  # the boundary: whatever a runtime raises becomes one line, its traceback is in the log
        traceback.print_exc()
        who = f"runtime {request.runtime.name}: it cannot run the model" if request.runtime else "the agent broke"
        return {"error": f"{who}: {first_line(error)}", "class": StageFailed.__name__}


if __name__ == "__main__":
    sys.exit(main())
