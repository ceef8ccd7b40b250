"""What a segmentation net sees at each pixel of the user's picture: docs/detectors.md has the specification."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from edgecompress.data import preprocess

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.settings import Preprocess

UNSEEN = 255  # of a pixel outside of what the model saw, as behind a crop
Single = Literal["probability", "logit", ""]  # what the one channel of an output is; "": it has several, or classes
GOLDEN = 0.618034  # of the colour circle, between the colours of two classes that follow each other
METRICS = ("miou", "iou")  # that say that an output tells the class of each pixel


@dataclass(frozen=True)
class Segments:
    """How the class of each pixel is read, as `regions` has it, out of an output."""

    output: str
    axis: int | None
    single: Single


def find(outputs: Mapping[str, np.ndarray], size: Sequence[int]) -> Segments | None:
    """The first output whose plane has the sides of the picture, height and width, or both as often; else None."""
    for name, array in outputs.items():
        axes: list[int | None] = [None] if array.ndim == 3 else [1, 3] if array.ndim == 4 else []
        planes = {axis: [n for i, n in enumerate(array.shape) if i not in (0, axis)] for axis in axes}
        fits = [axis for axis, (h, w) in planes.items() if abs(h * size[1] - w * size[0]) <= max(size)]
        if fits:
            axis = min(fits, key=lambda a: array.shape[a] if a else 0)
            if axis is None or array.shape[axis] > 1:
                return Segments(name, axis, "")
            return Segments(name, axis, "probability" if array.min() >= 0 else "logit")
    return None


def regions(output: np.ndarray, axis: int | None, single: Single) -> np.ndarray:
    """The class of each cell, uint8 [h, w], of an output of batch 1; the first of equals, and not more than 254.

    `axis`: that of the classes, 1 or 3; None: the output [1, h, w] holds their numbers. Of a `single` channel 1 is
    where a probability is above 0.5, or a logit above 0.
    """
    import numpy as np

    if axis is None:
        chosen = np.rint(np.nan_to_num(output[0]))
    elif single:
        chosen = output.take(0, axis)[0] > (0.5 if single == "probability" else 0.0)
    else:
        chosen = output[0].argmax(axis - 1)
    return np.asarray(np.clip(chosen, 0, UNSEEN - 1), np.uint8)


def in_picture(
    cells: np.ndarray, size: tuple[int, int], picture: tuple[int, int], how: Preprocess | None
) -> np.ndarray:
    """The class of each pixel of the user's picture, uint8 of its height and width: that of the cell of its middle.

    `size`: height and width of the model's input, which the picture becomes as `how` says; None: it is the input.
    """
    import numpy as np

    at = preprocess.placement(*picture, how) if how else None
    indices, seen = list[np.ndarray](), list[np.ndarray]()
    for axis, (scale, begin) in enumerate(((at.down, at.top), (at.across, at.left)) if at else ((1.0, 0),) * 2):
        pixels = (np.arange(picture[axis]) + 0.5) * scale - begin
        found = np.floor(pixels * cells.shape[axis] / size[axis]).astype(np.int64)
        seen.append((found >= 0) & (found < cells.shape[axis]))
        indices.append(np.clip(found, 0, cells.shape[axis] - 1))
    return np.where(np.logical_and.outer(*seen), cells[np.ix_(*indices)], UNSEEN).astype(np.uint8)


def colour(index: int) -> tuple[int, int, int]:
    """Of a class: red, green and blue."""
    red, green, blue = colorsys.hsv_to_rgb(index * GOLDEN % 1.0, 0.85, 0.95)
    return round(255 * red), round(255 * green), round(255 * blue)


def laid_over(picture: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """A picture, uint8 [h, w, 3], half in the colours of its pixels' classes; class 0 and what is unseen have none."""
    import numpy as np

    table = np.array([colour(index) for index in range(UNSEEN + 1)])
    seen = (mask > 0) & (mask != UNSEEN)
    return np.where(seen[..., None], (picture + table[mask]) // 2, picture).astype(np.uint8)
