"""A session of ONNX Runtime, whatever it runs on."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import stats
from edgecompress.core.model import Artifact

if TYPE_CHECKING:
    import numpy as np
    import onnxruntime

    from edgecompress.core.protocols import OperatorTime, OperatorTimes

CPU = "CPUExecutionProvider"
WARM_RUNS = 3  # of the per-operator pass, left out of its medians


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

    def _session(self, how: onnxruntime.SessionOptions) -> onnxruntime.InferenceSession:
        import onnxruntime

        return onnxruntime.InferenceSession(self.file, how, providers=list(self.providers))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        return dict(zip(self.names, self.session.run(self.names, inputs), strict=True))

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Median milliseconds of each node of the optimised graph over `runs` runs, from ONNX Runtime's own profile."""
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
        self.session = None


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
