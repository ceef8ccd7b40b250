"""NVIDIA GPUs by NVML: the board's energy counter (Volta and later), or its power where there is none.

Device options: `nvml = { gpu = 0 }`, an index or a UUID. Without it: the first GPU that CUDA_VISIBLE_DEVICES shows. The
figure is of the whole board, memory included: with MIG of all instances, whoever uses them.
"""

from __future__ import annotations

import contextlib
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core import package_files
from edgecompress.plugins.sensors import _sampler
from edgecompress.plugins.sensors._sampler import CounterMeter, Origin, Sampled, Stamped, options_of

if TYPE_CHECKING:
    from edgecompress.core.json import Json

REQUIRES: tuple[str, ...] = ("nvidia-ml-py>=12",)
LOCAL = True
EXTRA = "gpu"
STATUS = "measured"
SCOPE = "board"

UPDATE_S = 0.1  # the counter steps every 20 to 100 ms, by generation
SELF_TEST_S = 1.0


def unavailable(device: Mapping[str, Json], root: Path) -> str:
    """Why no GPU can be read, or "". NVML knows no `root`."""
    try:
        nvml = _library()
    except ImportError:
        return f"nvidia-ml-py is not installed; run: {package_files.install('gpu')}"
    try:
        with _opened(nvml):
            board = _Board(nvml, device)
            return (
                "" if _sampler.moving({"": board.read}, SELF_TEST_S) else f"the counter of {board.name} does not change"
            )
    except nvml.NVMLError as error:
        return f"NVML: {error} (is the NVIDIA driver installed, and the GPU shown to this process?)"
    except (OSError, ValueError) as error:
        return f"NVML: {error}"


def open(device: Mapping[str, Json], root: Path) -> CounterMeter | Sampled:
    """A meter over one GPU."""
    nvml = _library()
    nvml.nvmlInit()  # for the life of this process
    board = _Board(nvml, device)
    origin = Origin(board.source, SCOPE)
    if board.counts:
        return CounterMeter(lambda: [Stamped.now(board.read)], [None], origin, UPDATE_S)
    return Sampled(board.read, origin, UPDATE_S)


def _library() -> Any:
    return importlib.import_module("pynvml")


@contextlib.contextmanager
def _opened(nvml: Any) -> Iterator[None]:
    nvml.nvmlInit()
    try:
        yield
    finally:
        nvml.nvmlShutdown()


class _Board:
    """One GPU; `read` gives microjoules where it `counts`, else watts."""

    def __init__(self, nvml: Any, device: Mapping[str, Json]) -> None:
        self._nvml, self._handle = nvml, _handle(nvml, device)
        self.name = str(nvml.nvmlDeviceGetName(self._handle))
        self.counts = self._query(nvml.nvmlDeviceGetTotalEnergyConsumption) is not None
        partitioned = self._query(nvml.nvmlDeviceGetMigMode)
        shared = ", all MIG instances together" if partitioned and partitioned[0] else ""
        self.source = f"NVML {'energy counter' if self.counts else 'power'} of {self.name}{shared}"

    def read(self) -> float:
        """NVML counts millijoules, and samples milliwatts. Raises ValueError with what NVML says."""
        try:
            if self.counts:
                return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) * 1e3
            return float(self._nvml.nvmlDeviceGetPowerUsage(self._handle)) * 1e-3
        except self._nvml.NVMLError as error:
            raise ValueError(f"NVML: {error}") from error

    def _query(self, ask: Callable[[object], object]) -> Any:
        """What this GPU answers, or None where it does not have that."""
        try:
            return ask(self._handle)
        except self._nvml.NVMLError:
            return None


def _handle(nvml: Any, device: Mapping[str, Json]) -> object:
    """The GPU that is asked for: NVML counts all of the machine, CUDA those that are visible."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    gpu = str(options_of(device, "nvml").get("gpu", visible or 0))
    if gpu.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(gpu))
    return nvml.nvmlDeviceGetHandleByUUID(gpu)
