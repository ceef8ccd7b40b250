"""Detectors that choose inside the file: in int8 what chooses, and what it chooses from, stays in float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core import environments, registry
from edgecompress.core.model import Artifact, Context, Request, TensorSpec
from edgecompress.data import output_channels, tensors
from edgecompress.techniques import _tail
from edgecompress.techniques._tail import Step

torch = pytest.importorskip("torch")
ITEMS, CLASSES, BINS, KEPT = 24, 3, 8, 8


class Finder(torch.nn.Module):  # type: ignore[misc]
    """Boxes in pixels as expectations over bins, scores in 0..1, and what `ends` makes of them."""

    def __init__(self, ends: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.ends = ends
        layers = torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 16, 3, 2, 1), torch.nn.ReLU()
        self.body = torch.nn.Sequential(*layers)
        self.sides, self.scores = torch.nn.Conv2d(16, 4 * BINS, 1), torch.nn.Conv2d(16, CLASSES, 1)
        self.expectation = torch.nn.Conv2d(BINS, 1, 1, bias=False)
        self.expectation.weight.data[:] = torch.arange(BINS).float().view(1, BINS, 1, 1)
        self.sides.weight.data *= 40
        self.scores.weight.data *= 8
        places = torch.arange(8) * 4 + 2.0
        self.register_buffer("middles", torch.stack(torch.meshgrid(places, places, indexing="xy")).flatten(1))

    def forward(self, image: torch.Tensor) -> Any:
        x = self.body(image)
        bins, scores = self.sides(x).flatten(2), self.scores(x).flatten(2).sigmoid()
        sides = self.expectation(bins.view(-1, 4, BINS, 64).transpose(2, 1).softmax(1)).view(-1, 4, 64)
        boxes = torch.cat([self.middles - sides[:, :2], self.middles + sides[:, 2:]], 1).transpose(1, 2) * 8
        if self.ends == "joined":
            return torch.cat([boxes, scores.transpose(1, 2)], -1)
        best, kind = scores.max(1)
        score, rank = best.topk(KEPT, 1)
        box, kind = boxes.gather(1, rank[..., None].expand(-1, -1, 4)), kind.gather(1, rank)
        if self.ends == "several":
            return box, score, kind, (score > 0.6).sum(1)
        return torch.cat([box, score[..., None], kind[..., None].to(box.dtype)], -1)


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("samples")
    images = np.random.default_rng(0).normal(size=(ITEMS, 3, 32, 32)).astype(np.float32)
    for split in ("calibrate", "test"):
        tensors.write_split(folder / split, {"image": images})
    facts = {"splits": {"calibrate": ITEMS, "test": ITEMS}}
    return Artifact(folder, "samples", (TensorSpec("image", (1, 3, 32, 32)),), (), facts).write()


def in_int8(net: Finder, samples: Artifact, engine: str, folder: Path) -> Artifact:
    """The net as a program, brought to the engine's format, and quantized by its technique."""

    def out(name: str) -> Path:
        (folder / name).mkdir()
        return folder / name

    image = torch.from_numpy(tensors.load(samples, "test", "image")[:1].copy())
    answers = net(image) if isinstance(net(image), tuple) else (net(image),)
    program = torch.export.export(net, (image,))
    torch.export.save(program, out("program") / "program.pt2")
    names = ("boxes", "scores", "classes", "count")
    specs = [TensorSpec(n, tuple(a.shape), str(a.dtype)[6:]) for n, a in zip(names, answers, strict=False)]
    made = Artifact(folder / "program", "program", samples.inputs, specs).write()
    steps = {
        "onnx": ("onnx", "ptq_int8"),
        "openvino": ("onnx", "openvino", "nncf_int8"),
        "litert": ("litert", "litert_int8"),
        "executorch": ("pt2e_int8", "executorch"),
    }
    for step in steps[engine]:
        if "_" in step:
            technique = registry.load("techniques", step)
            made = technique.apply(Request({"model": made, "samples": samples}, out(step), technique.Options()))
        else:
            runtime = registry.load("runtimes", step)
            options = runtime.Options() if hasattr(runtime, "Options") else None
            made = runtime.export(Request({"model": made}, out(step), options, Context()))
    return made


@pytest.mark.slow
@pytest.mark.parametrize("ends", ["chosen", "several", "joined"])
@pytest.mark.parametrize("engine", ["onnx", "openvino", "litert", "executorch"])
def test_what_an_int8_detector_chooses_is_what_its_source_chooses(
    engine: str, ends: str, samples: Artifact, tmp_path: Path
) -> None:
    runtime = registry.load("runtimes", engine)
    if missing := environments.missing(runtime):
        pytest.skip(f"needs {missing}")
    net = Finder(ends).eval()
    session = runtime.open(in_int8(net, samples, engine, tmp_path), 1)
    images = tensors.load(samples, "test", "image")
    with torch.no_grad():
        wanted = net(torch.from_numpy(images.copy()))
    wanted = [each.numpy() for each in (wanted if isinstance(wanted, tuple) else (wanted,))]
    answers = [list(session.run({"image": image[None]}).values()) for image in images]
    found = [np.concatenate(side) for side in zip(*answers, strict=True)]
    if ends == "several":
        boxes, scores, classes, count = found
        assert (count.ravel() == (scores > 0.6).sum(1)).all()
    else:
        boxes, scores, classes = found[0][..., :4], found[0][..., 4], found[0][..., 5]
    if ends == "joined":
        assert np.abs(found[0][..., 4:] - wanted[0][..., 4:]).mean() < 0.02
    else:
        assert (np.rint(classes) == classes).all()
        there = wanted[0][:, :1, :4]  # the box of the best, among those that are found
        assert np.median(np.abs(boxes - there).max(-1).min(1)) < 4
    assert len(np.unique(scores)) > 40


# --------------------------------------------------------------------------- which operators are meant


def steps(*lines: str) -> list[Step]:
    """Steps as "role name: inputs -> outputs"."""
    made = []
    for line in lines:
        head, _, ends = line.partition(":")
        role, name = head.split()
        before, after = (side.split() for side in ends.split("->"))
        made.append(Step(name, "" if role == "-" else role, before, after))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize(
    ("lines", "behind"),
    [
        (["layer conv: x -> a", "- exp: a -> b", "choice top: b -> c i", "- pick: a i -> d"], "exp top pick"),
        (["layer conv: x -> a", "share gate: a -> p", "move view: p -> q", "join cat: a q -> y"], "gate view cat"),
        (["layer conv: x -> a", "softmax soft: a -> p", "layer mean: p -> b", "choice top: b -> y"], "soft mean top"),
        (["layer conv: x -> a", "scale away: a -> b", "place corners: b -> y"], "away corners"),
        (["place embed: x -> a", "layer conv: a -> y"], ""),
        (["layer conv: x -> a", "softmax soft: a -> y"], ""),
        (["layer one: x -> a", "layer two: x -> b", "join cat: a b -> y"], ""),
        (["layer route: x -> r", "choice top: r -> i", "- pick: x i -> z", "layer expert: z -> y"], ""),
        (["layer conv: x -> a", "share p: a -> p", "share q: a -> q", "join cat: p q -> y"], ""),
    ],
    ids=["top-k", "joined", "bins", "places", "positions", "classifier", "two heads", "experts", "probabilities alone"],
)
def test_the_tail_is_what_follows_the_last_layers_where_something_is_chosen_or_mixed(
    lines: list[str], behind: str
) -> None:
    assert _tail.tail(steps(*lines)) == behind.split()


def test_what_adds_places_has_numbers_of_its_own_for_each() -> None:
    assert _tail.places([1, 320, 4]) and _tail.places([4, 320])
    assert not any(map(_tail.places, ([], [320], [1, 32, 1, 1])))


# --------------------------------------------------------------------------- lists are sets


def listed(rows: int = 6) -> dict[str, np.ndarray]:
    seeded = np.random.default_rng(0)
    scores = np.round(-np.sort(-seeded.uniform(0.1, 1, (40, rows)), axis=1), 1)  # many are alike
    low = seeded.uniform(0, 200, (40, rows, 2))
    boxes = np.concatenate([low, low + seeded.uniform(10, 90, low.shape)], -1)
    return {
        "boxes": boxes,
        "scores": scores,
        "classes": seeded.integers(0, 3, (40, rows)),
        "count": (scores > 0.45).sum(1),
    }


def joined(outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"y": np.concatenate([outputs["boxes"], outputs["scores"][..., None], outputs["classes"][..., None]], -1)}


@pytest.mark.parametrize("form", [dict, joined], ids=["several outputs", "one output"])
def test_rows_that_score_alike_come_in_any_order(form: Any) -> None:
    golden = listed()
    order = np.lexsort((np.random.default_rng(1).random(golden["scores"].shape), -golden["scores"]))
    swapped = {
        name: array if array.ndim == 1 else np.stack([row[rank] for row, rank in zip(array, order, strict=True)])
        for name, array in golden.items()
    }
    ours, theirs = form(golden), form(swapped)
    assert any((ours[name] != theirs[name]).any() for name in ours)
    ranked = output_channels.in_order(ours, theirs)
    for name, array in ours.items():
        np.testing.assert_array_equal(ranked[name], array)


def test_a_moved_box_and_a_number_that_is_none_stay_what_they_are() -> None:
    ours = joined(listed())
    moved, broken = ({"y": ours["y"].copy()} for _ in range(2))
    moved["y"][:, 0, :4] += 5
    broken["y"][3, 2, 1] = np.nan
    assert np.abs(output_channels.in_order(ours, moved)["y"] - ours["y"]).max() == pytest.approx(5)
    assert np.isnan(output_channels.in_order(ours, broken)["y"]).sum() == 1


def test_other_outputs_keep_their_order() -> None:
    seeded = np.random.default_rng(0)
    for golden in (seeded.normal(size=(20, 6, 4)), -np.sort(-seeded.normal(size=(20, 6)))):
        output = golden[:, ::-1]
        assert output_channels.in_order({"y": golden}, {"y": output})["y"] is output


def test_the_number_of_things_is_as_right_as_the_scores_that_it_counts() -> None:
    golden = listed()
    other = golden | {"scores": golden["scores"] - 0.1 * (golden["scores"] == 0.5)}
    counted = other | {"count": (other["scores"] > 0.45).sum(1)}
    assert (counted["count"] != golden["count"]).any()
    assert output_channels.compare(golden, counted, {})["count"]["counted"] == []
    wrong = counted | {"count": counted["count"] + np.arange(40) % 2}
    assert output_channels.compare(golden, wrong, {})["count"]["counted"] is None
