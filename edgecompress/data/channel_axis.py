"""Which axis of an output holds its channels: the numbers that mean different things, each with a spread of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

NAMED = "C"  # in a layout such as "NCHW"
COLOURS = (1, 3, 4)  # channels of a picture
FEW = 16  # numbers of an axis that mean different things, where the axes beside it are of size 1 or much longer


def channel_axis(array: np.ndarray, layout: str = "") -> int:
    """The axis of an output [items, ...] that holds its channels; 0 where the items are single numbers.

    The one that the layout names. Beside axes of size 1 a short one ([1, 3], [1, anchors, 6]), else the axis of size 1,
    if it is the first or the last of an item. Of two axes the last, unless it is the longer one ([anchors, 4], but also
    [84, anchors] and [steps, words]): then the one whose places differ more from each other on average over the items.
    Of three the odd one beside a plane of equal sides, else the shorter end; of more the last, unless the two last are
    equal.
    """
    import numpy as np

    sizes = array.shape[1:]
    if len(layout) == array.ndim and NAMED in layout:
        return layout.index(NAMED)
    if len(sizes) < 2:
        return len(sizes)
    if 1 in sizes and (short := _short(sizes)) is not None:
        return 1 + short
    if 1 in (sizes[0], sizes[-1]):
        return 1 if sizes[0] == 1 else array.ndim - 1
    if len(sizes) == 2:
        if sizes[1] <= sizes[0]:
            return 2
        mean = np.mean(array, axis=0, dtype=np.float64)
        return 2 if mean.mean(axis=0).var() >= mean.mean(axis=1).var() else 1
    if sizes[-1] == sizes[-2] or len(sizes) > 3:
        return 1 if sizes[-1] == sizes[-2] else array.ndim - 1
    return 1 if sizes[0] != sizes[1] and sizes[0] <= sizes[-1] else array.ndim - 1


def class_axis(sizes: Sequence[int | None], labels: Sequence[int], layout: str = "") -> int:
    """The axis of an output that labels of these sizes lack; where several fit, the one that looks like channels.

    `sizes` of the output, both with the items first; None: any. Where none fits, the one that looks like channels.
    """
    import numpy as np

    whole = [1, *(size or max(labels, default=1) for size in sizes[1:])]
    axis = channel_axis(np.broadcast_to(np.float32(0), whole), layout)
    rest = [[*sizes[1:i], *sizes[i + 1 :]] for i in range(1, len(sizes))]
    fits = [i for i, each in enumerate(rest, 1) if len(each) == len(labels) - 1]
    fits = [i for i in fits if all(a in (None, b) for a, b in zip(rest[i - 1], labels[1:], strict=True))]
    return axis if axis in fits or not fits else fits[-1]


def _short(sizes: Sequence[int]) -> int | None:
    """Of one or two axes that are longer than 1 the short one, at most half of the other; None where there is none."""
    longer = sorted((i for i, size in enumerate(sizes) if size > 1), key=lambda i: sizes[i])
    if len(longer) not in (1, 2) or sizes[longer[0]] > FEW:
        return None
    return longer[0] if len(longer) == 1 or 2 * sizes[longer[0]] <= sizes[longer[1]] else None


def picture(shapes: Iterable[Sequence[int]]) -> tuple[int, int] | None:
    """Height and width of the first picture among inputs of these shapes, [n, h, w, channels] or channels first."""
    for shape in shapes:
        if len(shape) == 4:
            last = shape[3] in COLOURS and shape[1] not in COLOURS
            return (shape[1], shape[2]) if last else (shape[2], shape[3])
    return None


def channels_last(array: np.ndarray, axis: int) -> np.ndarray:
    """[items, places, channels] as float64."""
    import numpy as np

    if not axis:
        return array.reshape(len(array), 1, 1).astype(np.float64)
    moved = np.moveaxis(array, axis, -1)
    return moved.reshape(len(array), -1, moved.shape[-1]).astype(np.float64)
