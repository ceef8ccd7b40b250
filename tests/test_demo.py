"""The embedded demo: its splits, its weights, and that it is as right as it says."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from edgecompress.core import config, settings
from edgecompress.data import preprocess
from edgecompress.demo import net

FOLDER = Path(str(resources.files("edgecompress"))) / "demo"
CLAIMED = 0.994  # source.toml's description


def source() -> settings.Source:
    return config.build(settings.Source, config.read_toml(FOLDER / "source.toml"), "source.toml")


def images(split: str) -> np.ndarray:
    items = net.data(split)
    assert items is not None
    return np.stack([image for image, _ in items])


def test_the_splits_share_no_image() -> None:
    parts = {split: {image.tobytes() for image in images(split)} for split in ("train", *settings.SPLITS)}
    assert len(set().union(*parts.values())) == sum(map(len, parts.values())) == 1797
    assert len(parts["test"]) == 500
    assert net.data("validation") is None


def test_raw_images_are_small_bytes() -> None:
    found = images("test")
    assert (found.dtype, found.shape[1:], found.max()) == (np.uint8, (8, 8), 16)


def test_the_repository_carries_little() -> None:
    assert (FOLDER / "digits.safetensors").stat().st_size < 1_000_000
    assert (FOLDER / "digits.npz").stat().st_size < 100_000


@pytest.mark.slow
def test_it_is_as_right_as_it_says_with_the_declared_preprocessing() -> None:
    import torch

    declared = source().preprocess
    assert declared is not None
    raw = np.stack([preprocess.geometry(image, declared) for image in images("test")])
    with torch.no_grad():
        found = net.build()(torch.from_numpy(preprocess.numbers(raw, declared))).argmax(1).numpy()
    labels = [label for _, label in net.data("test") or ()]
    assert (found == labels).mean() == CLAIMED
    assert f"{CLAIMED:.1%}".replace("%", " %") in source().description


@pytest.mark.slow
def test_running_it_needs_no_scikit_learn() -> None:
    code = "import sys; sys.modules['sklearn'] = None; from edgecompress.demo import net; net.build(); net.data('test')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.slow
def test_its_images_are_scikit_learns_digits() -> None:
    datasets = pytest.importorskip("sklearn.datasets")
    original = datasets.load_digits().images.astype(np.uint8)
    carried = np.concatenate([images(split) for split in ("train", *settings.SPLITS)])
    assert sorted(map(bytes, original)) == sorted(map(bytes, carried))
