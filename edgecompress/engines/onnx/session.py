"""A session of ONNX Runtime, whatever it runs on."""

from __future__ import annotations

import base64
import functools
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import engine_settings, stats
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact
from edgecompress.device.input_buffers import InputBuffers
from edgecompress.formats import empty_model

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime

    from edgecompress.core.json import Json
    from edgecompress.core.protocols import OperatorTime, OperatorTimes

CPU = "CPUExecutionProvider"
NO_ARENA = "ONNX Runtime's Python interface does not report its memory plan"
SETTINGS: Mapping[str, Json] = {
    "graph_optimization_level": "ORT_ENABLE_ALL",
    "execution_mode": "ORT_SEQUENTIAL",
    "enable_cpu_mem_arena": True,
    "session.intra_op.allow_spinning": "0",  # spinning burns energy between runs
}
WARM_RUNS = 3  # of the per-operator pass, left out of its medians
EMPTY = "CAgSADo7ChAKAXgSAXkiCElkZW50aXR5EgVlbXB0eVoPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEA0="  # base64


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return empty_model.written(folder, "onnx", {"model.onnx": base64.b64decode(EMPTY)})


def options(threads: int, settings: Mapping[str, Json] = SETTINGS) -> onnxruntime.SessionOptions:
    """ONNX Runtime's options on `threads` threads. Raises InputError for a level or mode that it does not have."""
    import onnxruntime

    how = onnxruntime.SessionOptions()
    how.intra_op_num_threads = threads
    how.inter_op_num_threads = 1
    how.log_severity_level = 3
    enums = {
        "graph_optimization_level": onnxruntime.GraphOptimizationLevel,
        "execution_mode": onnxruntime.ExecutionMode,
    }
    for name, value in settings.items():
        if name.startswith("session."):
            how.add_session_config_entry(name, str(value))
        elif name not in enums:
            setattr(how, name, value)
        elif hasattr(enums[name], str(value)):
            setattr(how, name, getattr(enums[name], str(value)))
        else:
            raise InputError(f"ONNX Runtime: {name} is '{value}'; use {', '.join(enums[name].__members__)}")
    return how


class OnnxSession:
    """A model opened by ONNX Runtime on the first of `providers` that can run each node."""

    suffix = ".onnx"  # of the artifact's file that is opened

    def __init__(self, artifact: Artifact, threads: int, profile: bool, providers: Sequence[str]) -> None:
        self.file, self.profile, self.providers = artifact.file(self.suffix), profile, providers
        self.options = functools.partial(options, threads, engine_settings.of(artifact, SETTINGS))
        self.names = [spec.name for spec in artifact.outputs]
        self.session = self._session(self.options())
        self.inputs = InputBuffers([spec.name for spec in artifact.inputs])
        self.binding = self.session.io_binding()
        self.same_shapes = all(isinstance(d, int) for out in self.session.get_outputs() for d in out.shape)

    def _session(self, how: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        import onnxruntime

        return onnxruntime.InferenceSession(self.file, how, providers=list(self.providers))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        if self.inputs.fill(inputs):
            self.binding.clear_binding_inputs()
            for name, array in self.inputs.arrays.items():
                self.binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            self._bind_outputs()
        elif not self.same_shapes:
            self._bind_outputs()
        self.session.run_with_iobinding(self.binding)
        return dict(zip(self.names, self.binding.copy_outputs_to_cpu(), strict=True))

    def _bind_outputs(self) -> None:
        """Memory that ONNX Runtime takes for them at the next run, and keeps for those of the same shape."""
        self.binding.clear_binding_outputs()
        for name in self.names:
            self.binding.bind_output(name)

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Median milliseconds of each node of the optimised graph over `runs` runs, from ONNX Runtime's own profile."""
        if not self.profile:
            return {"ops": [], "why": "the session was opened without its profile", "fallback": []}
        with tempfile.TemporaryDirectory() as folder:
            how = self.options()
            how.enable_profiling = True
            how.profile_file_prefix = f"{folder}/profile"
            session = self._session(how)
            for _ in range(WARM_RUNS + runs):
                session.run(self.names, inputs)
            events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
        return {"ops": _operators(events, runs), "why": "", "fallback": []}

    def close(self) -> None:
        """Frees it."""
        self.session = self.binding = None


def _operators(events: Sequence[Mapping[str, Any]], runs: int) -> list[OperatorTime]:
    """Profile events (one per node and run, durations in microseconds) as one median per node; first runs left out."""
    durations: dict[str, list[float]] = {}
    about: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"].removesuffix("_kernel_time")
            durations.setdefault(name, []).append(event["dur"] / 1000)
            about[name] = event["args"]
    return [
        {"name": n, "type": about[n]["op_name"], "ms": stats.of_a_run(d, runs, WARM_RUNS), "where": _where(about[n])}
        for n, d in durations.items()
    ]


def _where(about: Mapping[str, Any]) -> str:
    """The provider, and of which 8-bit numbers, activations first: its kernels for signed ones are others."""
    dtypes = (dtype for tensor in about.get("input_type_shape", ()) for dtype in tensor)
    small = dict.fromkeys(dtype for dtype in dtypes if dtype in ("int8", "uint8"))
    return " ".join([about["provider"], *(["×".join(small)] if small else [])])
