"""What distillation gives a small student: ResNet-8 of half width on CIFAR-10, taught by ResNet-20, or trained alone.

    python benchmarks/distill.py [--epochs 60] [--seeds 0,1,2] [--store FOLDER] [--json FILE]

The same 8,000 images, epochs, batches, rates and first weights in both (benchmarks/distill). Judged on the 500 test
images, which no net has seen, and on 15,000 train images, which the teacher has seen and no student has. The gain is
the mean over seeds of the paired difference in top-1, with two intervals of 95 %: over seeds (Student's t), and over
images (bootstrap of each image's mean over seeds). Trains most of half an hour on two cores; a second run is all hits.
Exit 1 unless both intervals over all images are above 0. Figures go to benchmarks/distill-DATE.json.
"""

from __future__ import annotations

import argparse
import datetime
import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

import edgecompress
from edgecompress.core import stats
from edgecompress.core.model import Artifact
from edgecompress.formats import torch_module

HERE = Path(__file__).resolve().parent
FOLDER = HERE / "distill"
VARIANTS = ("alone", "taught")
SETS = ("test", "kept")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BATCH, RESAMPLED = 250, 10_000

Array = np.ndarray[Any, np.dtype[Any]]
Right = Mapping[str, Array]  # of a variant: whether it is right, [seeds, images] of each set


def main() -> int:
    """Trains both with each seed, and prints what was gained."""
    arguments = figures.flags(__doc__, "store")
    arguments.add_argument("--epochs", type=int, default=60)
    arguments.add_argument("--seeds", default="0,1,2", help="separated by commas")
    arguments.add_argument("--out", type=Path, default=Path("dist/distill"))
    arguments.add_argument("--json", type=Path, default=HERE / f"distill-{datetime.date.today()}.json")
    asked = arguments.parse_args()
    sys.path.insert(0, str(FOLDER))  # the factories' module
    pictures = {name: batches(name) for name in SETS}
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    runs = [trained(seed, asked) for seed in seeds]
    right = {
        variant: {name: np.stack([judged(made[variant], pictures[name]) for made, _ in runs]) for name in SETS}
        for variant in VARIANTS
    }
    gains = {name: gain(right["taught"][name], right["alone"][name]) for name in SETS}
    gains["all"] = gain(*(np.concatenate([right[v][name] for name in SETS], axis=1) for v in reversed(VARIANTS)))
    found = {
        "epochs": asked.epochs,
        "seeds": seeds,
        "top1": {v: {name: right[v][name].mean(axis=1).tolist() for name in SETS} for v in VARIANTS},
        "gains": gains,
        "wall_s": sum(seconds for _, seconds in runs),
        "machine": figures.machine(),
    }
    show(found)
    figures.write(asked.json, found)
    return 0 if kept(gains["all"]) else 1


def trained(seed: int, asked: argparse.Namespace) -> tuple[dict[str, Artifact], float]:
    """The student of each variant, and the seconds that training took when it was done."""
    epochs = {f"variant.{variant}.distill.epochs": asked.epochs for variant in VARIANTS}
    options = edgecompress.Options(store=asked.store, out=asked.out / str(seed))
    source, target = str(FOLDER / "source.toml"), str(FOLDER / "target.toml")
    result = edgecompress.deploy(source, target, options=options, profile="quick", seed=seed, settings=epochs)
    outcomes = {variant: result.outcomes[f"{variant}/distill"] for variant in VARIANTS}
    made = {variant: outcome.artifact for variant, outcome in outcomes.items() if outcome.artifact}
    return made, sum(outcome.wall_s for outcome in outcomes.values())


def batches(split: str) -> list[tuple[Array, Array]]:
    """Pictures as the nets take them, with their classes."""
    import cifar

    images, labels = zip(*cifar.data(split), strict=True)
    scaled = (np.stack(images).astype(np.float32) / 255 - MEAN) / STD
    inputs = np.ascontiguousarray(scaled.transpose(0, 3, 1, 2).astype(np.float32))
    starts = range(0, len(inputs), BATCH)
    return [(inputs[i : i + BATCH], np.array(labels[i : i + BATCH])) for i in starts]


def judged(model: Artifact, pictures: Sequence[tuple[Array, Array]]) -> Array:
    """Whether each picture is given its class."""
    import torch

    net, name, output = torch_module.rebuild(model), model.inputs[0].name, model.outputs[0].name
    answers = [torch_module.outputs(net, model, {name: torch.from_numpy(images)})[output] for images, _ in pictures]
    expected = np.concatenate([labels for _, labels in pictures])
    return (torch.cat(answers).argmax(dim=1).numpy() == expected).astype(float)


def gain(taught: Array, alone: Array) -> dict[str, Any]:
    """Of [seeds, images] each: the mean difference in points, with its two intervals; None where one seed has none."""
    difference = 100 * (taught - alone)
    seeds, images = difference.mean(axis=1), difference.mean(axis=0)
    half = stats.student_t(len(seeds) - 1) * seeds.std(ddof=1) / math.sqrt(len(seeds)) if len(seeds) > 1 else None
    seeded = np.random.default_rng(0)
    drawn = [images[seeded.integers(0, len(images), len(images))].mean() for _ in range(RESAMPLED)]
    mean = float(difference.mean())
    return {
        "points": mean,
        "each": seeds.tolist(),
        "images": len(images),
        "over_seeds": None if half is None else [mean - half, mean + half],
        "over_images": np.quantile(drawn, [0.025, 0.975]).tolist(),
    }


def kept(gain: Mapping[str, Any]) -> bool:
    """Whether both intervals are above 0."""
    return bool(gain["over_seeds"]) and gain["over_seeds"][0] > 0 and gain["over_images"][0] > 0


def show(found: Mapping[str, Any]) -> None:
    """A row for each set of images."""
    rows = []
    for name, row in found["gains"].items():
        tops = [words(found["top1"][variant].get(name, ())) for variant in VARIANTS]
        ends = [span(row[key]) for key in ("over_seeds", "over_images")]
        rows.append((f"{name} ({row['images']})", *tops, f"{row['points']:+.2f}", *ends))
    title = f"ResNet-8 of half width, {found['epochs']} epochs, seeds {found['seeds']}: top-1 on CIFAR-10"
    columns = ("images", "alone", "taught", "gain, points", "over seeds", "over images")
    promise = f"promised: a gain above 0 in both intervals over all images: {kept(found['gains']['all'])}"
    figures.show(title, columns, rows, promise, f"{found['wall_s'] / 60:.0f} min of training", found["machine"])


def words(tops: Sequence[float]) -> str:
    """`71.3 % (70.9, 71.1, 71.9)`."""
    each = ", ".join(f"{100 * top:.1f}" for top in tops)
    return f"{100 * float(np.mean(tops)):.1f} % ({each})" if tops else ""


def span(ends: Sequence[float] | None) -> str:
    """`[0.4, 2.1]`."""
    return "one seed: none" if ends is None else f"[{ends[0]:+.2f}, {ends[1]:+.2f}]"


if __name__ == "__main__":
    sys.exit(main())
