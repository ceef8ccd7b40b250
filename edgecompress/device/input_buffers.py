"""The inputs of a session in memory of its own: an engine is shown it once, and each call copies its arrays there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

ALIGNMENT = 64  # bytes: what engines give their own tensors, a cache line and the widest vector


class InputBuffers:
    """One buffer for each input, of the shape and type of the array that it was given last."""

    def __init__(self, names: Sequence[str]) -> None:
        import numpy as np

        self.names = names
        self.arrays: dict[str, np.ndarray] = {}
        self._copy = np.copyto

    def fill(self, inputs: Mapping[str, np.ndarray]) -> bool:
        """Copies the arrays in. True where the buffers are new ones, which the engine has not seen yet."""
        for name, own in self.arrays.items():
            given = inputs[name]
            if given.shape != own.shape or given.dtype != own.dtype:
                break
            self._copy(own, given)
        else:
            if self.arrays:
                return False
        self.arrays = {name: _aligned(inputs[name]) for name in self.names}
        return True


def _aligned(array: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of ALIGNMENT."""
    import numpy as np

    room = np.empty(array.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    own: np.ndarray = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(own, array)
    return own
