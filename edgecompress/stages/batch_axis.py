"""Whether axis 0 is a model's batch: items in another order have the same answers, in that order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np

SAME = 0.01  # energy of a difference, of that between the items: another order of sums makes far less
QUANTIZED = 1e-3  # of the energy of an answer: the ranges of a batch that is quantized as it comes change it by less
ROUNDING = 1e-6  # of the energy of an output that is the same for all items
EXPORT = "export the model with the items on axis 0 of each input and output"

LONG = (
    "axis 0 must be of length 1; one as long as the data says (NonZero, NonMaxSuppression, Compress, Unique) cannot be "
    "compared: make it as long as can be, by TopK or a Pad, and give the count as an output"
)


def check(
    infer: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
) -> None:
    """Runs a batch once more, its last item first. `outputs` are its answers in the order given.

    Raises InputError where axis 0 is something else, where items change each other's answers, or where the answers
    are random.
    """
    import numpy as np

    count = len(next(iter(inputs.values())))
    for name, output in outputs.items():
        if output.shape[:1] != (count,):
            remedy = f"axis 0 must be theirs; {EXPORT}" if count > 1 else LONG
            raise InputError(
                f"the source's output '{name}' is {list(output.shape)} for {count} item{'s' * (count > 1)}: {remedy}"
            )
    # a copy: ascontiguousarray keeps the negative stride of an axis of length 1, which torch refuses
    turned = infer({name: array[::-1].copy() for name, array in inputs.items()})
    other = [name for name, output in outputs.items() if not _same(output, np.asarray(turned[name])[::-1])]
    if not other:
        return
    again = infer(inputs)
    if not all(_same(output, np.asarray(again[name])) for name, output in outputs.items()):
        raise InputError(
            f"the source's output '{other[0]}' changes from run to run: it has a random operator, or dropout of "
            "training; export the model for inference"
        )
    raise InputError(
        f"the source's output '{other[0]}' for an item depends on the other items of the batch: axis 0 is another "
        f"one, such as time, or the model mixes its items; {EXPORT}"
    )


def mixed(
    infer: Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]],
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, np.ndarray],
) -> bool:
    """Whether the first item has another answer in a batch of copies of it. `outputs` are those of its own batch."""
    import numpy as np

    copies = infer({name: np.repeat(array[:1], len(array), axis=0) for name, array in inputs.items()})
    for name, output in outputs.items():
        own, other = output.astype(np.float64), np.asarray(copies[name])[0].astype(np.float64)
        between = np.square(own - own.mean(axis=0)).sum() / len(own)
        off = np.square(own[0] - other).sum()
        if off > SAME * between and off > QUANTIZED * np.square(own[0]).sum():
            return True
    return False


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether they differ by little, compared with how the items differ; values that are not finite are left out."""
    import numpy as np

    a, b = one.astype(np.float64), other.astype(np.float64)
    if a.shape != b.shape:
        return False
    known = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(known, a, 0.0), np.where(known, b, 0.0)
    between = np.square(a - a.mean(axis=0)).sum()
    return bool(np.square(a - b).sum() <= SAME * between + ROUNDING * np.square(a).sum())
