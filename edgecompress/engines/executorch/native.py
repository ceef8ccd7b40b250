"""A session without torch, through device/emulation/executorch.cpp, where that was compiled for the machine."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact
from edgecompress.device.input_buffers import InputBuffers

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.protocols import OperatorTimes

LIBRARY = "EDGECOMPRESS_EXECUTORCH"  # in the environment: which file our library is; the emulated machine sets it
# executorch/runtime/core/portable_type/scalar_type.h
TYPES = {
    "uint8": 0,
    "int8": 1,
    "int16": 2,
    "int32": 3,
    "int64": 4,
    "float16": 5,
    "float32": 6,
    "float64": 7,
    "bool": 11,
}
RANKS = 16  # ExecuTorch's kTensorDimensionLimit


def library() -> str:
    """The file of our library, where it was compiled for this machine; else nothing."""
    return os.environ.get(LIBRARY, "")


class NativeSession:
    """A program loaded by ExecuTorch's C++ Module. Raises StageFailed where it cannot run the program."""

    def __init__(self, library: str, artifact: Artifact, threads: int) -> None:
        self.file = artifact.file(".pte")
        self.inputs = InputBuffers([spec.name for spec in artifact.inputs])
        self.outputs = [spec.name for spec in artifact.outputs]
        self.fallback = list(artifact.facts.get("fallback", ()))
        self.calls = ctypes.CDLL(library)
        for name in ("net_load", "net_run"):
            getattr(self.calls, name).restype = ctypes.c_char_p
        for name in ("net_new", "net_output"):
            getattr(self.calls, name).restype = ctypes.c_void_p
        self.net = ctypes.c_void_p(self.calls.net_new(str(self.file).encode(), ctypes.c_uint32(threads)))
        self._check(self.calls.net_load(self.net))

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference."""
        if self.inputs.fill(inputs):
            self.calls.net_forget_inputs(self.net)
            for array in self.inputs.arrays.values():
                sizes = (ctypes.c_int32 * array.ndim)(*array.shape)
                kind = ctypes.c_int8(TYPES[array.dtype.name])
                memory = ctypes.c_void_p(array.ctypes.data)
                self.calls.net_add_input(self.net, memory, kind, ctypes.c_size_t(array.ndim), sizes)
        self._check(self.calls.net_run(self.net))
        return {name: self._output(index) for index, name in enumerate(self.outputs)}

    def _output(self, index: int) -> np.ndarray:
        """A copy: the next run writes its memory."""
        import numpy as np

        kind, rank, sizes = ctypes.c_int8(), ctypes.c_size_t(), (ctypes.c_int32 * RANKS)()
        told = (ctypes.byref(kind), ctypes.byref(rank), sizes, ctypes.c_size_t(RANKS))
        memory = self.calls.net_output(self.net, ctypes.c_size_t(index), *told)
        if kind.value not in TYPES.values():
            raise StageFailed(f"runtime executorch: {self.file.name}: '{self.outputs[index]}' is no plain tensor")
        dtype = np.dtype(next(name for name, number in TYPES.items() if number == kind.value))
        shape = sizes[: rank.value]
        count = int(np.prod(shape, dtype=np.int64))
        if not count:
            return np.empty(shape, dtype)
        return np.frombuffer(ctypes.string_at(memory, count * dtype.itemsize), dtype).reshape(shape)

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """None: it records no events."""
        return {"ops": [], "why": "ExecuTorch without torch records no events", "fallback": self.fallback}

    def close(self) -> None:
        """Frees it."""
        self.calls.net_delete(self.net)
        self.net = ctypes.c_void_p()

    def _check(self, error: bytes | None) -> None:
        if error:
            why = error.decode().removeprefix("Error::")
            raise StageFailed(f"runtime executorch: {self.file.name}: ExecuTorch's error {why}; deploy again")
