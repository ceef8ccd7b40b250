"""What a segmentation net sees at each pixel of the user's picture: docs/detectors.md has the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from edgecompress.data import preprocess

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.settings import Preprocess

UNSEEN = 255  # of a pixel outside of what the model saw, as behind a crop
Single = Literal["probability", "logit", ""]  # what the one channel of an output is; "": it has several, or classes


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
