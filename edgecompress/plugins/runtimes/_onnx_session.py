"""A session of ONNX Runtime, whatever it runs on."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.model import Artifact
from edgecompress.plugins.runtimes import _empty
from edgecompress.plugins.runtimes._bound import InputBuffers

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime

    from edgecompress.core.protocols import OperatorTime, OperatorTimes

CPU = "CPUExecutionProvider"
WARM_RUNS = 3  # of the per-operator pass, left out of its means
EMPTY = "CAgSADo7ChAKAXgSAXkiCElkZW50aXR5EgVlbXB0eVoPCgF4EgoKCAgBEgQKAggBYg8KAXkSCgoICAESBAoCCAFCBAoAEA0="  # base64


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return _empty.written(folder, "onnx", {"model.onnx": base64.b64decode(EMPTY)})


def options(threads: int) -> onnxruntime.SessionOptions:
    """Fully optimised, on `threads` threads that do not spin when idle."""
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    settings.add_session_config_entry("session.intra_op.allow_spinning", "0")  # spinning burns energy between runs
    settings.log_severity_level = 3
    return settings


class OnnxSession:
    """A model opened by ONNX Runtime on the first of `providers` that can run each node."""

    def __init__(self, artifact: Artifact, threads: int, profile: bool, providers: Sequence[str]) -> None:
        self.file, self.threads, self.profile, self.providers = artifact.file(".onnx"), threads, profile, providers
        self.names = [spec.name for spec in artifact.outputs]
        self.session = self._session(options(threads))
        self.inputs = InputBuffers([spec.name for spec in artifact.inputs])
        self.binding = self.session.io_binding()
        self.same_shapes = all(isinstance(d, int) for out in self.session.get_outputs() for d in out.shape)

    def _session(self, how: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        import onnxruntime

        return onnxruntime.InferenceSession(self.file, how, providers=list(self.providers))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        if self.inputs.fill(inputs):
            self._bind_inputs()
            self._bind_outputs()
        elif not self.same_shapes:
            self._bind_outputs()
        self.session.run_with_iobinding(self.binding)
        return dict(zip(self.names, self.binding.copy_outputs_to_cpu(), strict=True))

    def _bind_inputs(self) -> None:
        self.binding.clear_binding_inputs()
        for name, array in self.inputs.arrays.items():
            self.binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)

    def _bind_outputs(self) -> None:
        """Memory that ONNX Runtime takes for them at the next run, and keeps for those of the same shape."""
        self.binding.clear_binding_outputs()
        for name in self.names:
            self.binding.bind_output(name)

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Mean milliseconds of each node of the optimised graph over `runs` runs, from ONNX Runtime's own profile."""
        if not self.profile:
            return {"ops": [], "why": "the session was opened without its profile", "fallback": []}
        with tempfile.TemporaryDirectory() as folder:
            how = options(self.threads)
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
    """Profile events (one per node and run, durations in microseconds) as one mean per node; first runs left out."""
    durations: dict[str, list[float]] = {}
    about: dict[str, Mapping[str, Any]] = {}
    for event in events:
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            name = event["name"].removesuffix("_kernel_time")
            durations.setdefault(name, []).append(event["dur"] / 1000)
            about[name] = event["args"]
    return [
        {"name": n, "type": about[n]["op_name"], "ms": sum(d[-runs:]) / runs, "where": _where(about[n])}
        for n, d in durations.items()
    ]


def _where(about: Mapping[str, Any]) -> str:
    """The provider, and of which 8-bit numbers, activations first: its kernels for signed ones are others."""
    dtypes = (dtype for tensor in about.get("input_type_shape", ()) for dtype in tensor)
    small = dict.fromkeys(dtype for dtype in dtypes if dtype in ("int8", "uint8"))
    return " ".join([about["provider"], *(["×".join(small)] if small else [])])
