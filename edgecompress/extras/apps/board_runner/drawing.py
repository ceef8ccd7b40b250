"""A picture with what was found in it: boxes and key points, or the class of each pixel."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.errors import InputError
from edgecompress.data import preprocess, segments

if TYPE_CHECKING:
    import numpy as np


def draw(arrays: Mapping[str, np.ndarray], told: Mapping[str, Any], mask: np.ndarray | None, file: Path) -> None:
    """Writes the picture that was asked about, with a box, its label and its key points for each detection.

    `mask` [height, width]: the class of each pixel, laid over it in colours; class 0 is none. Raises InputError.
    """
    import numpy as np
    from PIL import ImageDraw

    raw = next(iter(arrays.values()))
    known = "detections" in told or (mask is not None and mask.shape == raw.shape[:2])
    if not known or len(arrays) != 1 or raw.dtype != "uint8" or raw.ndim not in (2, 3):
        raise InputError("--draw: it takes a picture, and a model that finds boxes or regions in it")
    picture = preprocess.pil().fromarray(raw[:, :, 0] if raw.shape[2:] == (1,) else raw).convert("RGB")
    if mask is not None:
        picture = preprocess.pil().fromarray(segments.laid_over(np.asarray(picture), mask))
    width = max(1, round(max(picture.size) / 320))
    pen = ImageDraw.Draw(picture)
    for each in reversed(told.get("detections", ())):  # the best last, over the others
        colour = segments.colour(each["index"])
        left, top, right, bottom = each["box"]
        pen.rectangle((left, top, max(left, right - 1), max(top, bottom - 1)), outline=colour, width=width)
        for x, y, *_ in each.get("points", ()):
            pen.ellipse((x - width, y - width, x + width, y + width), fill=colour, outline=(0, 0, 0))
        text = f"{each['label']} {100 * each['probability']:.0f} %"
        place = pen.textbbox((left, max(0, top - 12)), text)
        pen.rectangle(place, fill=colour)
        pen.text(place[:2], text, fill=(0, 0, 0))
    try:
        picture.save(file, "PNG")
    except OSError as error:
        raise InputError(f"--draw {file}: {error.strerror or error}") from error


def keep(mask: np.ndarray | None, file: Path) -> None:
    """Writes a mask [height, width] as a PNG whose pixels are the classes, 255 what was not seen. Raises InputError."""
    if mask is None:
        raise InputError("--mask: it takes a model that tells the class of each pixel")
    try:
        preprocess.pil().fromarray(mask).save(file, "PNG")
    except OSError as error:
        raise InputError(f"--mask {file}: {error.strerror or error}") from error
