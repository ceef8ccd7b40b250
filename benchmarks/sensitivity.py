"""Do layers mind as `analyze` says? Its order of them beside brute force: each one of ResNet-20 really pruned, alone.

    python benchmarks/sensitivity.py [--ratios 0.25,0.5,0.75] [--images 1500] [--settle] [--brief] [--store FOLDER]
                                     [--json FILE]

`analyze --sensitivity ratio --structure filter` zeroes filters and looks at 64 images; prune_channels measures a
distance on 256. Brute force takes the channels out, with --settle batch norms then count anew as prune_channels has it,
and looks at test images, 500 at most, and at as many train images as are asked for. What a layer costs is the rise of
the cross entropy, the mean over the ratios. Printed: the orders, the one by the metric of the same 64 images too;
Spearman's rank correlation with a 95 % interval over the images of brute force; the machine. --brief leaves out
prune_channels' own measure. Exit 1 where the order of `analyze` correlates less than 0.7.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

from edgecompress.commands import analyze
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.formats import torch_module
from edgecompress.pipeline.job_request import Options
from edgecompress.techniques import prune_channels

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "resnet20"
LEAST = 0.7
SPLITS = ("test", "calibrate")  # of brute force; analyze looks at "select"
BATCH, RESAMPLED = 50, 2000
CHEAP = {"analyze": "analyze's order", "metric": "by its top-1", "own": "prune_channels' own"}

Array = np.ndarray[Any, np.dtype[Any]]
Damage = Mapping[str, Array]  # layer -> rise of the cross entropy of each image


def main() -> int:
    """Prints the orders."""
    arguments = figures.flags(__doc__, "store", "json")
    arguments.add_argument("--ratios", default="0.25,0.5,0.75", help="shares of a layer's channels that go")
    arguments.add_argument("--images", type=int, default=1500, help="train images, and test images up to 500")
    arguments.add_argument("--settle", action="store_true", help="batch norms count anew")
    arguments.add_argument("--brief", action="store_true", help="without prune_channels' own measure")
    asked = arguments.parse_args()
    sys.path.insert(0, str(EXAMPLE))  # the factory's module
    begin = time.monotonic()
    found = measured([float(r) for r in asked.ratios.split(",")], asked)
    found |= {"seconds": time.monotonic() - begin, "machine": figures.machine()}
    show(found)
    figures.write(asked.json, found)
    return 1 if found["rho"]["analyze"]["rho"] < LEAST else 0


def measured(ratios: Sequence[float], asked: argparse.Namespace) -> dict[str, Any]:
    """{"layers": {layer: {"nats", "points", measures}}, "rho": {measure: {"rho", "low", "high"}}, "order", ...}.

    Nats, points and measures: the more, the more sensitive.
    """
    wanted = analyze.AnalysisRequest((), analyze.SensitivityRequest("ratio", "filter"))
    options = Options(store=asked.store)
    outcomes = analyze.analyze(str(EXAMPLE / "source.toml"), wanted, options=options, samples=asked.images).outcomes
    model, samples = (outcomes[stage].artifact for stage in ("source", "data"))
    assert model is not None and samples is not None
    facts = outcomes["sensitivity"].facts
    order = facts["order"]
    with tempfile.TemporaryDirectory() as scratch:
        work = Pruning(model, samples, Path(scratch), asked.settle)
        dense = work.judged(model)
        each = {layer: work.alone(layer, ratios) for layer in work.layers()}
        own = {} if asked.brief else work.own()
    nats = {layer: np.mean([loss for loss, _ in found], axis=0) - dense[0] for layer, found in each.items()}
    points = {layer: 100 * float(np.mean([dense[1] - right for _, right in found])) for layer, found in each.items()}
    cheap = {
        "analyze": {layer: len(order) - order.index(layer) for layer in each},
        "metric": {layer: -float(np.mean([p["metric"] for p in facts["layers"][layer]])) for layer in each},
        **({"own": own} if own else {}),
    }
    layers = {
        layer: {
            "nats": float(nats[layer].mean()),
            "points": points[layer],
            **{name: m[layer] for name, m in cheap.items()},
        }
        for layer in each
    }
    rho = {name: correlated(measure, nats) for name, measure in cheap.items()}
    return {"layers": layers, "rho": rho, "order": order, "images": len(dense[0]), "ratios": list(ratios)}


class Pruning:
    """The net, its data, and a folder for what is made of it."""

    def __init__(self, model: Artifact, samples: Artifact, scratch: Path, settle: bool) -> None:
        self.model, self.samples, self.scratch, self.settle = model, samples, scratch, settle
        self.net = torch_module.rebuild(model)

    def layers(self) -> list[str]:
        """Those whose channels can go."""
        cells = self._called(prune_channels.cells).facts["cells"].values()
        return list(dict.fromkeys(layer for cell in cells for layer in cell["widths"]))

    def alone(self, layer: str, ratios: Sequence[float]) -> list[tuple[Array, Array]]:
        """The verdict on the net with fewer channels in that layer, for each ratio."""
        channels = self.net.get_submodule(layer).out_channels
        kept = [channels - math.floor(ratio * channels) for ratio in ratios]
        return [self.judged(self._pruned(layer, width)) for width in kept]

    def _pruned(self, layer: str, width: int) -> Artifact:
        return self._called(prune_channels.apply, widths={layer: width}, settle=self.settle)

    def own(self) -> dict[str, float]:
        """What prune_channels thinks that each layer minds: the mean distance over the widths that it tries, but 0."""
        facts = self._called(prune_channels.apply, ratio=0.5).facts
        full = {group["name"]: group["channels"] for group in facts["groups"]}
        return {
            name: float(np.mean([harm for width, harm in harms if 0 < width < full[name]]))
            for name, harms in facts["sensitivity"].items()
        }

    def _called(self, function: Any, **options: Any) -> Artifact:
        out = Path(tempfile.mkdtemp(dir=self.scratch))
        inputs = {"model": self.model, "samples": self.samples, "dense": self.model}
        return function(Request(inputs, out, prune_channels.Options(**options)))  # type: ignore[no-any-return]

    def judged(self, model: Artifact) -> tuple[Array, Array]:
        """The cross entropy of each image in nats, and whether it is right."""
        import torch
        from torch.nn import functional

        net, losses, right = torch_module.rebuild(model), [], []
        for images, labels in self._batches():
            logits = torch_module.outputs(net, model, {name: torch.from_numpy(array) for name, array in images.items()})
            expected = torch.from_numpy(labels)
            losses.append(functional.cross_entropy(logits["output"], expected, reduction="none").numpy())
            right.append((logits["output"].argmax(1) == expected).numpy())
        return np.concatenate(losses), np.concatenate(right).astype(float)

    def _batches(self) -> Iterator[tuple[dict[str, Array], Array]]:
        for split in SPLITS:
            labels = tensors.labels(self.samples, split)
            assert labels is not None
            for number, images in enumerate(tensors.batches(self.samples, split, BATCH, model=self.model)):
                yield images, np.array(labels[number * BATCH :][:BATCH], np.int64)


def correlated(cheap: Mapping[str, float], nats: Damage) -> dict[str, float]:
    """Spearman's rho of a measure and the damage, and its interval over resampled images (percentile bootstrap)."""
    from scipy import stats

    given, damage = [cheap[layer] for layer in nats], np.array(list(nats.values()))
    seeded, images = np.random.default_rng(0), damage.shape[1]
    drawn = (damage[:, seeded.integers(0, images, images)].mean(axis=1) for _ in range(RESAMPLED))
    low, high = np.quantile([stats.spearmanr(given, d).statistic for d in drawn], [0.025, 0.975])
    return {"rho": float(stats.spearmanr(given, damage.mean(axis=1)).statistic), "low": float(low), "high": float(high)}


def show(found: Mapping[str, Any]) -> None:
    """The orders, the correlations and the machine."""
    layers = found["layers"]
    ranks = {key: _ranks({n: row[key] for n, row in layers.items()}) for key in ("nats", *found["rho"])}
    rows = []
    for name in sorted(layers, key=ranks["nats"].__getitem__):
        said = [str(ranks[key][name]) for key in found["rho"]]
        rows.append((name, f"+{layers[name]['nats']:.3f} nats", f"−{layers[name]['points']:.1f}", *said))
    title = f"Layers of ResNet-20, the most sensitive first, by brute force on {found['images']} images"
    columns = ("layer", "cross entropy", "top-1, points", *(CHEAP[key] for key in found["rho"]))
    rhos = [
        f"{CHEAP[key]}: Spearman {rho['rho']:.2f}, 95 % of {rho['low']:.2f} to {rho['high']:.2f}"
        for key, rho in found["rho"].items()
    ]
    figures.show(title, columns, rows, *rhos, f"{found['seconds']:.0f} s", found["machine"])


def _ranks(measure: Mapping[str, float]) -> dict[str, int]:
    """1: the most sensitive."""
    return {layer: rank for rank, layer in enumerate(sorted(measure, key=lambda n: -measure[n]), 1)}


if __name__ == "__main__":
    sys.exit(main())
