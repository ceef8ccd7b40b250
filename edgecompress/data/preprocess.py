"""The preprocessing that `settings.Preprocess` declares: from raw images (or any arrays) to the model's input."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import package_files
from edgecompress.core.errors import InputError, MissingDependency
from edgecompress.core.settings import Preprocess
from edgecompress.data.spectrogram import spectrogram

if TYPE_CHECKING:
    import numpy as np

LUMA = (19595, 38470, 7471)  # ITU-R 601-2, in 1/65536, as Pillow has it
CHANNELS = {"RGB": 3, "BGR": 3, "GRAY": 1}


def is_image(declared: Preprocess) -> bool:
    """Whether it declares an image operation; otherwise it is arithmetic on an array of any shape."""
    return bool(declared.resize or declared.crop or declared.layout or declared.colour != "RGB")


def geometry(raw: np.ndarray, declared: Preprocess) -> np.ndarray:
    """Resize, crop and colour order of one raw item: [H, W], [H, W, 1] or [H, W, 3] -> [h, w, channels].

    The shorter side is resized as torchvision does it (the longer one rounded down), bilinear with antialiasing; a
    letterbox is as YOLO's; the crop is about the centre. Audio becomes its spectrogram, [frames, bins], or [frames,
    bins, 1] where a layout is declared. Anything else is returned as it is. Raises InputError.
    """
    import numpy as np

    if declared.spectrogram:
        values = spectrogram(raw, declared.spectrogram)
        return values[:, :, None] if declared.layout else values
    if not is_image(declared):
        return raw
    image = raw[:, :, None] if raw.ndim == 2 else raw
    if image.ndim != 3 or image.shape[2] not in (1, 3):
        alpha = raw.ndim == 3 and raw.shape[2] == 4
        raise InputError(
            f"an image must be [height, width] or [height, width, 3], not {list(raw.shape)}; "
            f"{'leave its alpha out: image[:, :, :3]' if alpha else 'check [preprocess]'}"
        )
    image = _resized(image, declared) if declared.resize else image
    image = _cropped(image, declared.crop) if declared.crop else image
    return np.ascontiguousarray(_coloured(image, declared.colour))


def numbers(chunk: np.ndarray, declared: Preprocess) -> np.ndarray:
    """x * scale, (x - mean) / std and the layout of items [n, ...]: float32, or as it came if there is nothing to do.

    `mean` and `std` are along the last axis (the channels). Raises InputError when they are not one per channel.
    """
    import numpy as np

    x = chunk
    if declared.scale != 1 or declared.mean or declared.std:
        x = x.astype(np.float32) * np.float32(declared.scale)
        x -= _per_channel(declared.mean or (0.0,), x, "mean")
        x /= _per_channel(declared.std or (1.0,), x, "std")
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2) if declared.layout == "NCHW" else x)


def _per_channel(values: tuple[float, ...], x: np.ndarray, name: str) -> np.ndarray:
    import numpy as np

    if len(values) not in (1, x.shape[-1]):
        raise InputError(f"[preprocess] {name} has {len(values)} values, the data has {x.shape[-1]} channels")
    return np.array(values, np.float32)


@dataclass(frozen=True)
class Placement:
    """Where a picture lies in the input that it becomes: there x is `across` * x - `left`, and y `down` * y - `top`."""

    across: float
    down: float
    left: int
    top: int


def placement(height: int, width: int, declared: Preprocess) -> Placement:
    """Of a picture of a size, in pixels."""
    tall, wide = _size(height, width, declared) if declared.resize else (height, width)
    side = declared.resize if declared.fit == "letterbox" else declared.crop
    left, top = (_begin(length, side) if side else 0 for length in (wide, tall))
    return Placement(wide / width, tall / height, left, top)


def _size(height: int, width: int, declared: Preprocess) -> tuple[int, int]:
    """The height and width that a picture is resized to."""
    size = declared.resize
    assert size
    if declared.fit == "stretch":
        return size, size
    if declared.fit == "letterbox":  # rounded, halves up
        long = max(height, width)
        tall, wide = (max(1, (2 * size * side + long) // (2 * long)) for side in (height, width))
        return tall, wide
    short = min(height, width)
    return int(size * height / short), int(size * width / short)


def _begin(length: int, side: int) -> int:
    """Where `side` pixels about the middle of so many begin; below 0 where they are more, rounded towards 0."""
    return round((length - side) / 2) if length >= side else -((side - length) // 2)


def _resized(image: np.ndarray, declared: Preprocess) -> np.ndarray:
    import numpy as np

    pillow = pil()
    if image.dtype != np.uint8:
        raise InputError(f"[preprocess] resize takes uint8 images, not {image.dtype}; resize them yourself")
    height, width, channels = image.shape
    tall, wide = _size(height, width, declared)
    if (tall, wide) != (height, width):
        resized = pillow.fromarray(image[:, :, 0] if channels == 1 else image)
        for step in ((wide, height), (wide, tall)):  # rows first: Pillow 13 chooses an order, and rounds to 8 bits
            resized = resized.resize(step, pillow.Resampling.BILINEAR)
        image = np.asarray(resized).reshape(tall, wide, channels)
    if declared.fit != "letterbox":
        return image
    size = declared.resize
    assert size
    whole = np.full((size, size, channels), declared.bars, np.uint8)
    left, top = (-_begin(length, size) for length in (wide, tall))
    whole[top : top + tall, left : left + wide] = image
    return whole


def _cropped(image: np.ndarray, size: int) -> np.ndarray:
    height, width = image.shape[:2]
    if size > min(height, width):
        raise InputError(f"[preprocess] crop {size} of an image of {width} x {height}; resize it first, or crop less")
    top, left = _begin(height, size), _begin(width, size)
    return image[top : top + size, left : left + size]


def _coloured(image: np.ndarray, colour: str) -> np.ndarray:
    import numpy as np

    if image.shape[2] == CHANNELS[colour]:
        return image[:, :, ::-1] if colour == "BGR" else image
    if colour != "GRAY":
        raise InputError(
            f'the images are grayscale, but [preprocess] colour is {colour}; set colour = "GRAY", or for a net of '
            "three channels repeat that of [height, width, 1]: numpy.repeat(image, 3, 2)"
        )
    grey: np.ndarray
    if image.dtype == np.uint8:
        grey = (image.astype(np.int64) @ np.array(LUMA) + 0x8000) >> 16
    else:
        grey = image @ (np.array(LUMA) / 65536)
    return grey.astype(image.dtype)[:, :, None]


def pil() -> ModuleType:
    """Pillow's Image module; raises MissingDependency."""
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependency(f"images need Pillow, not installed; run: {package_files.install('images')}") from error
    image: ModuleType = Image
    return image
