"""A picture with the boxes that were found in it."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError
from edgecompress.data import preprocess

if TYPE_CHECKING:
    import numpy as np

GOLDEN = 0.618034  # of the colour circle, between the colours of two classes that follow each other


def draw(arrays: Mapping[str, np.ndarray], told: Mapping[str, Any], file: Path) -> None:
    """Writes the picture that was asked about, with a box and its label for each detection. Raises InputError."""
    from PIL import ImageDraw

    raw = next(iter(arrays.values()))
    if "detections" not in told or len(arrays) != 1 or raw.dtype != "uint8" or raw.ndim not in (2, 3):
        raise InputError("--draw: draws the boxes of a detector into a picture; this is none")
    picture = preprocess.pil().fromarray(raw[:, :, 0] if raw.shape[2:] == (1,) else raw).convert("RGB")
    width = max(1, round(max(picture.size) / 320))
    pen = ImageDraw.Draw(picture)
    for each in reversed(told["detections"]):  # the best last, over the others
        hue = each["index"] * GOLDEN % 1.0
        colour = tuple(round(255 * share) for share in colorsys.hsv_to_rgb(hue, 0.85, 0.95))
        left, top, right, bottom = each["box"]
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=width)
        text = f"{each['label']} {100 * each['probability']:.0f} %"
        place = pen.textbbox((left, max(0, top - 12)), text)
        pen.rectangle(place, fill=colour)
        pen.text(place[:2], text, fill=(0, 0, 0))
    try:
        picture.save(file, "PNG")
    except OSError as error:
        raise InputError(f"--draw {file}: {error.strerror or error}") from error
