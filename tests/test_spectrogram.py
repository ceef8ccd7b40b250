"""Audio as the logarithm of its short-time Fourier transform: the definition, its references, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from edgecompress.core import config
from edgecompress.core.errors import ConfigError, InputError
from edgecompress.core.settings import Preprocess, Source, Spectrogram
from edgecompress.data import preprocess
from edgecompress.data.spectrogram import bands, spectrogram

WHOLE = Spectrogram(rate=8000, length=1000, frame=200, hop=80, fft=256)
MEL = dataclasses.replace(WHOLE, bins=20)


def clip(samples: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-32768, 32768, samples).astype(np.int16)


def test_it_is_the_transform_written_out_by_hand() -> None:
    declared = Spectrogram(rate=8, length=7, frame=3, hop=2, fft=4, floor=1e-3)
    raw = np.array([0.5, -1.0, 0.25, 0.0, 0.75, 1.0, -0.125], np.float32)
    found = spectrogram(raw, declared)
    window = [0.0, 0.75, 0.75]  # 1/2 - cos(2 pi n / 3) / 2
    for row, begin in enumerate((0, 2, 4)):
        for k in range(3):
            turns = [np.exp(-2j * np.pi * k * n / 4) for n in range(3)]
            total = sum(float(raw[begin + n]) * window[n] * turns[n] for n in range(3))
            assert found[row, k] == pytest.approx(np.log(max(abs(total), 1e-3)), rel=1e-6)
    assert found.shape == (3, 3)
    assert found.dtype == np.float32


def test_a_pure_tone_is_the_height_of_half_the_window() -> None:
    declared = Spectrogram(rate=8000, length=256, frame=256, hop=256, fft=256)
    found = spectrogram(np.sin(2 * np.pi * 32 * np.arange(256) / 256), declared)[0]
    assert found.argmax() == 32  # 1000 Hz
    assert found[32] == pytest.approx(np.log(64))  # 256 samples x mean of the window x half of a sine
    assert found[31] == found[33] == pytest.approx(np.log(32))
    assert found[100] == pytest.approx(np.log(declared.floor))


@pytest.mark.slow
@pytest.mark.parametrize("declared", [WHOLE, dataclasses.replace(WHOLE, hop=33, frame=128, fft=512)])
def test_frames_and_window_are_scipys(declared: Spectrogram) -> None:
    from scipy import signal

    raw = clip(declared.length)
    begins = range(0, declared.length - declared.frame + 1, declared.hop)
    parts = np.stack([raw[i : i + declared.frame] for i in begins])
    window = signal.get_window("hann", declared.frame, fftbins=True)
    expected = np.abs(np.fft.fft(parts / 32768 * window, declared.fft))[:, : declared.fft // 2 + 1]
    assert np.allclose(spectrogram(raw, declared), np.log(np.maximum(expected, declared.floor)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("bins", [None, 20, 5])
def test_it_is_tensorflows(bins: int | None) -> None:
    import tensorflow as tf

    declared = dataclasses.replace(WHOLE, bins=bins)
    raw = clip(declared.length) / 32768
    magnitudes = tf.abs(tf.signal.stft(tf.constant(raw, tf.float64), declared.frame, declared.hop, declared.fft))
    if bins:
        half = declared.rate / 2
        frequencies = declared.fft // 2 + 1
        mel = tf.signal.linear_to_mel_weight_matrix(bins, frequencies, declared.rate, 0.0, half, dtype=tf.float64)
        magnitudes = magnitudes @ mel
    expected = tf.math.log(tf.maximum(magnitudes, declared.floor)).numpy()
    assert np.allclose(spectrogram(raw, declared), expected, rtol=1e-6, atol=1e-6)


def test_int16_and_real_samples_are_the_same_clip() -> None:
    raw = clip(1000)
    assert np.array_equal(spectrogram(raw, MEL), spectrogram((raw / 32768).astype(np.float32), MEL))


def test_a_clip_is_cut_or_filled_with_zeros_at_its_end() -> None:
    raw = clip(1300)
    assert np.array_equal(spectrogram(raw, MEL), spectrogram(raw[:1000], MEL))
    short = spectrogram(raw[:500], MEL)
    assert np.array_equal(short, spectrogram(np.concatenate([raw[:500], np.zeros(500, np.int16)]), MEL))
    assert (short[-1] == np.float32(np.log(MEL.floor))).all()
    assert spectrogram(raw[:0], MEL).shape == (11, 20)


def test_mel_bands_are_triangles_that_overlap_by_half() -> None:
    weights = bands(MEL)
    assert weights.shape == (129, 20)
    assert not weights[0].any()
    assert ((weights > 0).sum(axis=1) <= 2).all()
    middle = weights[20:100]
    assert np.allclose(middle.sum(axis=1), 1)


def test_scale_mean_std_and_layout_come_after_it() -> None:
    declared = Preprocess(spectrogram=MEL, scale=2.0, mean=(1.0,), std=(4.0,), layout="NCHW")
    raw = preprocess.geometry(clip(1000), declared)
    assert raw.shape == (11, 20, 1)
    found = preprocess.numbers(raw[None], declared)
    assert found.shape == (1, 1, 11, 20)
    assert np.allclose(found[0, 0], (spectrogram(clip(1000), MEL) * 2 - 1) / 4)
    per_bin = Preprocess(spectrogram=MEL, mean=tuple(range(20)))
    plain = preprocess.numbers(preprocess.geometry(clip(1000), per_bin)[None], per_bin)[0]
    assert plain.shape == (11, 20)
    assert np.allclose(plain, spectrogram(clip(1000), MEL) - np.arange(20))


def test_a_source_declares_it_as_a_table() -> None:
    table: dict[str, Any] = {"model": "m", "preprocess": {"spectrogram": dataclasses.asdict(MEL)}}
    source = config.build(Source, table, "source.toml")
    assert source.preprocess is not None
    assert source.preprocess.spectrogram == MEL
    assert config.build(Source, dataclasses.asdict(source), "again") == source


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"spectrogram": {"hop": 0}}, "rate, frame, hop and bins must be at least 1"),
        ({"spectrogram": {"bins": 0}}, "rate, frame, hop and bins must be at least 1"),
        ({"spectrogram": {"fft": 300}}, "fft must be a power of two, and at least the frame of 200 samples"),
        ({"spectrogram": {"fft": 128}}, "fft must be a power of two, and at least the frame of 200 samples"),
        ({"spectrogram": {"length": 199}}, "length must be at least one frame, 200 samples"),
        ({"spectrogram": {"floor": 0.0}}, "floor must be above 0"),
        ({"spectrogram": {"window": "hamming"}}, "'hamming' is not a valid value"),
        ({"spectrogram": {"hops": 1}}, "unknown key 'hops', did you mean 'hop'"),
        ({"resize": 4}, "resize, crop and colour are for images"),
        ({"colour": "GRAY"}, "resize, crop and colour are for images"),
        ({"layout": "NHWC", "mean": [1, 2]}, "a spectrogram with a layout has one channel"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    whole = dataclasses.asdict(WHOLE) | change.get("spectrogram", {})
    with pytest.raises(ConfigError, match=says):
        config.build(Preprocess, {**change, "spectrogram": whole}, "source.toml: preprocess")


@pytest.mark.parametrize(
    ("raw", "declared", "says"),
    [
        (np.zeros((2, 1000), np.int16), WHOLE, r"not int16 \[2, 1000\]"),
        (np.zeros(1000, np.uint8), WHOLE, r"not uint8 \[1000\]"),
        (
            np.zeros(1000, np.int16),
            dataclasses.replace(WHOLE, bins=128),
            "band [0-9]+ of 128 contains no FFT frequency",
        ),
    ],
)
def test_what_is_no_clip_is_refused(raw: np.ndarray, declared: Spectrogram, says: str) -> None:
    with pytest.raises(InputError, match=says):
        preprocess.geometry(raw, Preprocess(spectrogram=declared))
