"""The examples compute what their authors published, on the real data."""

from __future__ import annotations

import importlib.util
import itertools
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from edgecompress.core import config, settings
from edgecompress.data import preprocess

EXAMPLES = Path(__file__).parents[1] / "examples"
NAMES = ("resnet20", "textgenrnn", "mobilenetv2", "fsdd")  # on real data
shared = pytest.mark.shared
slow = pytest.mark.slow


def net(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / name / "net.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(name: str) -> settings.Source:
    file = EXAMPLES / name / "source.toml"
    return config.build(settings.Source, config.read_toml(file), str(file))


def traced(folder: Path) -> dict[str, Any]:
    """ResNet-20 as a program, its samples, and what torch answers to the 500 test images ("golden")."""
    import dataclasses

    from edgecompress.core.model import Request
    from edgecompress.stages import data, golden, trace

    found = source("resnet20")
    given, made = {"source": dataclasses.asdict(found)}, dict[str, Any]()
    sys.path.insert(0, str(EXAMPLES / "resnet20"))
    for name, stage, roles, options in (
        ("samples", data.run, (), {**given, "samples": found.samples}),
        ("module", trace.load, ("samples",), given),
        ("program", trace.run, ("module", "samples"), {"dynamic": {}}),
        ("golden", golden.run, ("module", "samples"), {"splits": ["test"], "metric": "top1"}),
    ):
        (folder / name).mkdir()
        inputs = {"model" if role == "module" else role: made[role] for role in roles}
        made[name] = stage(Request(inputs, folder / name, options))
    sys.path.remove(str(EXAMPLES / "resnet20"))
    return made


def right(name: str, items: list[tuple[np.ndarray, int]]) -> np.ndarray:
    """Whether each item's top-1 is right, by torch, the source's preprocessing written out by hand."""
    import torch

    declared = source(name).preprocess
    assert declared is not None
    module = net(name).build()
    found = []
    for begin in range(0, len(items), 50):
        chunk = items[begin : begin + 50]
        x = np.stack([image for image, _ in chunk]).astype(np.float32) * declared.scale
        x = (x - np.array(declared.mean)) / np.array(declared.std)
        with torch.no_grad():
            logits = module(torch.from_numpy(x.transpose(0, 3, 1, 2).astype(np.float32)))
        found.append(logits.argmax(1).numpy() == [label for _, label in chunk])
    return np.concatenate(found)


@pytest.mark.parametrize("name", (*NAMES, "shapes", "distiller"))
def test_each_source_is_a_valid_source(name: str) -> None:
    assert source(name).model == "net:build"
    assert source(name).data == "net:data"


@slow
def test_shapes_is_right_on_394_of_its_400_test_pictures_which_its_script_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    items = list(net("shapes").data("test"))
    assert right("shapes", items).sum() == pytest.approx(394, abs=1)
    monkeypatch.syspath_prepend(EXAMPLES / "shapes")
    monkeypatch.delitem(sys.modules, "net", raising=False)
    script = runpy.run_path(str(EXAMPLES / "shapes" / "train.py"))
    pictures, labels = script["pictures"](len(items), np.random.default_rng(script["SEED"]))
    assert labels.tolist() == [label for _, label in items]
    assert np.mean(pictures == np.stack([image for image, _ in items])) > 0.999


@shared
@slow
def test_resnet20_is_right_on_455_of_500_test_images() -> None:
    assert right("resnet20", list(net("resnet20").data("test"))).sum() == 455


@shared
@slow
def test_the_dense_net_of_distiller_is_right_on_458_of_500_test_images() -> None:
    assert right("distiller", list(net("distiller").data("test"))).sum() == 458


@shared
@slow
@pytest.mark.prove
def test_mobilenetv2_is_right_on_86_percent_of_its_500_images() -> None:
    module = net("mobilenetv2")
    items = [*module.data("calibrate"), *module.data("test")]
    assert len(items) == 500
    assert right("mobilenetv2", items).mean() == pytest.approx(0.860, abs=0.004)


@shared
@slow
def test_fsdd_is_right_on_299_of_its_300_test_clips() -> None:
    import torch

    declared = source("fsdd").preprocess
    assert declared is not None
    clips, labels = zip(*net("fsdd").data("test"), strict=True)
    x = preprocess.numbers(np.stack([preprocess.geometry(clip, declared) for clip in clips]), declared)
    with torch.no_grad():
        found = net("fsdd").build()(torch.from_numpy(x)).argmax(1).numpy()
    assert len(labels) == 300
    assert (found == np.array(labels)).sum() == 299


@shared
@slow
def test_textgenrnn_needs_the_published_nats_per_character() -> None:
    import torch

    module = net("textgenrnn")
    row = module.characters(0, 2000)
    index = np.random.default_rng(0).integers(0, len(row) - 40, 8000)
    text = torch.from_numpy(np.stack([row[i : i + 40] for i in index]))
    with torch.no_grad():
        logits = torch.cat([module.build()(part) for part in text.split(1000)])
    nats = torch.nn.functional.cross_entropy(logits, torch.from_numpy(row[index + 40])).item()
    assert nats == pytest.approx(1.654, abs=0.042)  # two standard errors of a mean of 8000 positions


@shared
@slow
@pytest.mark.parametrize("name", NAMES)
def test_no_test_item_is_among_those_that_choose(name: str) -> None:
    def keys(split: str, limit: int) -> set[bytes]:
        return {np.asarray(x).tobytes() for x, _ in itertools.islice(net(name).data(split), limit)}

    if name == "textgenrnn":  # the same forty characters may stand in two texts: the texts are what is disjoint
        lines = dict(net(name).LINES)
        assert lines.pop("train")[1] <= lines["test"][0]
        spans = sorted(lines.values())
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    else:
        assert not keys("test", 500) & (keys("calibrate", 2000) | keys("select", 2000))


@pytest.fixture
def finder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    spec = importlib.util.spec_from_file_location("fresh_shared_data", EXAMPLES / "shared_data.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(os.environ, "EDGECOMPRESS_SHARED", str(tmp_path))
    return module.find  # type: ignore[no-any-return]


def test_absent_datasets_say_what_to_set(finder: Callable[[str], Any]) -> None:
    with pytest.raises(FileNotFoundError, match="set EDGECOMPRESS_SHARED"):
        finder("data/x.npz")


def test_a_dataset_that_changed_is_refused(finder: Callable[[str], Any], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('[{"file": "x", "sha256": "00"}]')
    (tmp_path / "x").write_text("other bytes")
    with pytest.raises(ValueError, match="the manifest says 00"):
        finder("x")
