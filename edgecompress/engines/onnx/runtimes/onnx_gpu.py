"""ONNX Runtime on an NVIDIA GPU, by TensorRT or CUDA; without a GPU it runs on the CPU and reports that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx import layer_outputs, session
from edgecompress.engines.onnx.session import CPU, OnnxSession

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.protocols import OperatorTime, OperatorTimes

REQUIRES = ("onnxruntime",)
IMPORTS = ("onnxruntime",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "gpu"
FORMAT = "onnx"
SETTINGS = session.SETTINGS
NO_ARENA = session.NO_ARENA
READS: tuple[str, ...] = ()  # runtime onnx exports

GPU = ("TensorrtExecutionProvider", "CUDAExecutionProvider")  # the first that can run a node does


def export(request: Request) -> Artifact:
    """Raises: runtime onnx exports its files."""
    raise InputError(f"runtime onnx_gpu: cannot convert {request.model.kind}; use runtime onnx to export ONNX")


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return session.empty(folder)


def tapped(request: Request) -> Artifact:
    """The input "model" with what its layers answer as further outputs; facts: {"taps": [row]}."""
    return layer_outputs.tapped(request)


def open(artifact: Artifact, threads: int, profile: bool = False) -> GpuSession:
    """A session on the GPU providers that this build of ONNX Runtime has, and the CPU for the rest."""
    import onnxruntime

    there = [name for name in GPU if name in onnxruntime.get_available_providers()]
    if there:
        onnxruntime.preload_dlls()  # CUDA's libraries where pip put them
    return GpuSession(artifact, threads, profile, (*there, CPU))


class GpuSession(OnnxSession):
    """A model opened by ONNX Runtime on a GPU, or on the CPU without one."""

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """Mean milliseconds of each node and the provider that ran it; `fallback`: those left to the CPU."""
        table = super().ops(inputs, runs)
        if not set(GPU) & set(self.session.get_providers()):  # what it got, which may be less than was asked for
            asked = ", ".join(name for name in self.providers if name != CPU)
            why = f"{asked} did not start" if asked else "this onnxruntime is built for CPUs"
            return {**table, "why": f"no GPU here: {why}"}
        if not self.profile:
            return {**table, "fallback": None}
        return {**table, "fallback": left_to_the_cpu(table["ops"])}


def left_to_the_cpu(ops: Sequence[OperatorTime]) -> list[str]:
    """The names of the nodes that the CPU ran beside a GPU."""
    return [op["name"] for op in ops if op["where"].split()[0] == CPU]
