"""Log spectrograms of audio by short-time Fourier transform, optionally in mel bands.

Frames, window and bands are those of tf.signal.stft and tf.signal.linear_to_mel_weight_matrix, as the usual nets for
keywords have them: no padding before or after the clip, a periodic Hann window, zeros behind it up to the length of
the transform, magnitudes (not powers), triangles even on the mel scale 1127 ln(1 + f / 700).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.settings import Spectrogram

if TYPE_CHECKING:
    import numpy as np

LARGEST = 32768.0  # what samples of 16 bits are fractions of


def spectrogram(raw: np.ndarray, declared: Spectrogram) -> np.ndarray:
    """One clip [samples], int16 or real numbers in -1..1, -> float32 [frames, bins]; double precision inside.

    Raises InputError for what is no clip, and for mel bands that are narrower than the transform can tell apart.
    """
    import numpy as np

    parts = np.lib.stride_tricks.sliding_window_view(_clip(raw, declared.length), declared.frame)[:: declared.hop]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(declared.frame) / declared.frame)
    magnitudes = np.abs(np.fft.rfft(parts * window, declared.fft))
    if declared.bins is not None:
        magnitudes = magnitudes @ bands(declared)
    logarithms: np.ndarray = np.log(np.maximum(magnitudes, declared.floor)).astype(np.float32)
    return logarithms


def _clip(raw: np.ndarray, length: int) -> np.ndarray:
    """The first `length` samples as doubles in -1..1, zeros behind them where there are fewer."""
    import numpy as np

    if raw.ndim != 1 or not (raw.dtype == np.int16 or raw.dtype.kind == "f"):
        raise InputError(
            f"an audio clip must be int16 or float [samples], not {raw.dtype} {list(raw.shape)}; check [preprocess]"
        )
    clip = np.zeros(length)
    clip[: len(raw)] = raw[:length]
    return clip / LARGEST if raw.dtype == np.int16 else clip


def bands(declared: Spectrogram) -> np.ndarray:
    """The weights of the mel bands, [fft / 2 + 1, bins]: from 0 to half the rate, frequency 0 in none."""
    import numpy as np

    assert declared.bins is not None
    hertz = np.arange(1, declared.fft // 2 + 1) * (declared.rate / declared.fft)
    step = _mel(declared.rate / 2) / (declared.bins + 1)
    at = (_mel(hertz) / step)[:, None] - np.arange(declared.bins)
    weights = np.maximum(0, np.minimum(at, 2 - at))
    if empty := np.flatnonzero(~weights.any(axis=0)).tolist():
        raise InputError(
            f"[preprocess] spectrogram: band {empty[0]} of {declared.bins} contains no FFT frequency; use fewer "
            "bins, or a longer fft"
        )
    return np.vstack([np.zeros(declared.bins), weights])


def _mel(hertz: float | np.ndarray) -> np.ndarray:
    import numpy as np

    return 1127 * np.log1p(np.asarray(hertz) / 700)
