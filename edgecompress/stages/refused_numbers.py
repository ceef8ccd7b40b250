"""Whole numbers that the source does not take, as of a token beyond its vocabulary: found by trying it with others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "Mapping[str, np.ndarray]"
Run: TypeAlias = "Callable[[Arrays], Arrays]"


class WatchedRun:
    """The source, and the whole numbers that it took so far; an engine's error about others becomes an InputError."""

    def __init__(self, infer: Run) -> None:
        self.infer = infer
        self.taken: dict[str, tuple[int, int]] = {}  # input -> the least and the largest

    def run(self, inputs: Arrays, split: str, first: int) -> Arrays:
        """The outputs of a batch whose first item is item `first` of the split."""
        try:
            outputs = self.infer(inputs)
        except Exception as error:
            if says := refused(self.infer, inputs, split, first):
                raise InputError(says) from error
            raise
        for name, array in _whole(inputs).items():
            least, most = self.taken.get(name, (0, 0))
            self.taken[name] = min(least, int(array.min())), max(most, int(array.max()))
        return outputs

    def is_new(self, inputs: Arrays) -> bool:
        """Whether a batch holds a whole number beyond all that the source took."""
        ends = {name: self.taken.get(name, (0, 0)) for name in inputs}
        return any(a.min() < ends[name][0] or a.max() > ends[name][1] for name, a in _whole(inputs).items())


def refused(infer: Run, inputs: Arrays, split: str, first: int) -> str:
    """Which number of which item the source refuses, and how many it knows; "" where it is not that.

    infer: raises for `inputs`, a batch with its items on axis 0. It is tried with fewer and fewer numbers.
    """
    import numpy as np

    whole = _whole(inputs)
    zeros = {name: np.zeros_like(array) for name, array in whole.items()}

    def takes(name: str, array: np.ndarray) -> bool:
        try:
            infer({**inputs, **zeros, name: array})
        except Exception:
            return False
        return True

    for name, array in whole.items():
        if not takes(name, zeros[name]):
            return ""
        if takes(name, array):
            continue
        positive = np.maximum(array, 0)
        low, high = 0, int(positive.max())
        if takes(name, positive):
            return _says(name, array, array < 0, split, first) + "the source takes none below 0"
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if takes(name, np.minimum(positive, middle)) else (low, middle)
        return _says(name, array, array > low, split, first) + f"the source takes 0 to {low} (a table of {high})"
    return ""


def _whole(inputs: Arrays) -> dict[str, np.ndarray]:
    return {name: array for name, array in inputs.items() if array.dtype.kind in "iu" and array.size}


def _says(name: str, array: np.ndarray, wrong: np.ndarray, split: str, first: int) -> str:
    import numpy as np

    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    value = int(array[where])
    return f"the data's '{name}' holds {value} in item {first + where[0]} of split '{split}', but "
