"""Files of pictures: which of them are read, and one as an array. A stranger's, so few decoders, and limits."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import plain_file
from edgecompress.core.errors import InputError, blamed
from edgecompress.core.settings import SPLITS, TRAIN
from edgecompress.data import preprocess

if TYPE_CHECKING:
    import numpy as np

EVERY = (*SPLITS, TRAIN)
DEEPEST = 10_000  # files that are looked at to tell where data lies
SUFFIXES = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
UNREAD = {".heic", ".heif", ".avif", ".jxl", ".jp2", ".svg", ".psd", ".dng", ".cr2", ".nef", ".arw", ".raw", ".exr"}
DECODERS = ("JPEG", "PNG", "BMP", "GIF", "WEBP", "TIFF", "PPM")  # no other: Pillow has one that starts a program
ROWS = 64  # of an image, that are converted at once: their copies stay small, which is several times as fast
LARGEST_IMAGE = 1 << 30  # bytes of a file


def pictures_in(folder: Path) -> list[Path]:
    """Those of a folder. Raises InputError for a kind that is not read."""
    files = sorted(folder.iterdir())
    if unread := next((f for f in files if f.suffix.lower() in UNREAD and not f.name.startswith(".")), None):
        known = ", ".join(sorted(SUFFIXES))
        raise InputError(f"{unread}: images of this kind are not read, only {known}; convert it, or remove it")
    return [f for f in files if f.suffix.lower() in SUFFIXES]


def elsewhere(folder: Path) -> str:
    """Where the first array or image below a folder lies instead, and where it should."""
    inside = islice(folder.rglob("*"), DEEPEST)
    if not (found := next((file for file in inside if file.suffix.lower() in {*SUFFIXES, ".npy"}), None)):
        return ""
    place = "INPUT.npy or SPLIT/INPUT.npy" if found.suffix == ".npy" else "CLASS/IMAGE or SPLIT/CLASS/IMAGE"
    return f"; it has {found.relative_to(folder)}, which must be {place} (splits: {', '.join(EVERY)})"


def picture(file: Path) -> np.ndarray:
    """[height, width, 3], RGB, uint8. It is a stranger's file: Pillow's limit on pixels stands, as an error."""
    import warnings

    import numpy as np

    pillow = preprocess.pil()
    try:
        with warnings.catch_warnings(), plain_file.opened(file, LARGEST_IMAGE) as stream:
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(stream, formats=DECODERS) as image:
                # pillow's image as RGB, [height, width, 3]: some rows at a time, as each conversion makes copies
                colours = np.empty((image.height, image.width, 3), np.uint8)
                for top in range(0, image.height, ROWS):
                    end = min(top + ROWS, image.height)
                    colours[top:end] = image.crop((0, top, image.width, end)).convert("RGB")
                return colours
    except (pillow.DecompressionBombWarning, pillow.DecompressionBombError) as error:
        raise InputError(f"{file}: too many pixels: {error}; replace or remove it") from error
    except InputError:
        raise
    except Exception as error:  # a decoder raises whatever a stranger's bytes make it
        # why it gave up, without the name of the stream that it read
        reason = str(error) or type(error).__name__
        reason = f"none of {', '.join(DECODERS)}" if "cannot identify" in reason else reason
        raise blamed(error)(f"{file}: not a readable image: {reason}; replace or remove it") from error
