"""How much each layer minds: the net's answers with one weight at a time pruned, or in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from typing import TYPE_CHECKING, Any

from edgecompress import tensors
from edgecompress.errors import InputError, did_you_mean
from edgecompress.model import Artifact, Request
from edgecompress.stages import golden, metrics, outputs
from edgecompress.stages.analyze import nets, sparsity

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

SPLIT = "select"  # what chooses layers is not what judges the artifact
LOWER = ("perplexity", "mse")
IDENTICAL_DB = 300.0  # beyond what doubles can tell apart
Point = dict[str, Any]
Answers = Mapping[str, "Array"]


def points(request: Request) -> dict[str, Any]:
    """{"baseline", "metric", "unit", "split", "items", "layers": {layer: [{"level", "metric", "sqnr_db", "reason"}]},
    "order"} of the Request's model on its samples.

    options: "by" ("ratio", "bits"), "structure", "layers" (patterns), "levels", "items", "metric".
    """
    asked, bench = request.options, _Bench(request)
    chosen = _chosen(bench.net.layers, asked["layers"])
    dense = bench.answers()
    found: dict[str, list[Point]] = {layer: [] for layer in chosen}
    for done, (layer, level) in enumerate((layer, level) for layer in chosen for level in asked["levels"]):
        request.progress(done / (len(chosen) * len(asked["levels"])), f"{layer} at {_said(asked['by'], level)}")
        with bench.net.changed(layer, partial(_change, asked, level)):
            found[layer].append({"level": level, **bench.judged(dense, bench.answers())})
    lower = bench.metric is not None and bench.metric.kind in LOWER
    told = {"baseline": bench.value(dense), "lower_is_better": lower, **bench.facts()}
    return {**told, "by": asked["by"], "structure": asked["structure"], "layers": found, "order": order(found)}


def _change(asked: Mapping[str, Any], level: float, weight: Array) -> Array:
    if asked["by"] == "bits":
        return sparsity.quantized(weight, int(level))
    return sparsity.pruned(weight, level, asked["structure"])


def _said(by: str, level: float) -> str:
    return f"{level:g} bits" if by == "bits" else f"{level:.0%}"


def _chosen(weights: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The layers that any of the patterns names; raises InputError for a pattern that names none."""
    for pattern in patterns:
        if not any(fnmatch(layer, pattern) for layer in weights):
            raise InputError(f"--layers {pattern}: no such layer with a weight{did_you_mean(pattern, weights)}")
    if not weights:
        raise InputError("the net has no weight of two or more axes: nothing to be sensitive")
    return [layer for layer in weights if not patterns or any(fnmatch(layer, pattern) for pattern in patterns)]


def order(found: Mapping[str, Sequence[Point]]) -> list[str]:
    """The layers, the most sensitive first: by noise over signal, in power, the mean over the levels.

    With few items the metric moves in steps and tells layers apart less well: benchmarks/sensitivity.py.
    """
    return sorted(found, key=lambda layer: -_noise(found[layer]))


def _noise(points: Sequence[Point]) -> float:
    return sum(10 ** (-_decibels(point) / 10) for point in points) / len(points)


def _decibels(point: Point) -> float:
    if point["sqnr_db"] is not None:
        return float(point["sqnr_db"])
    return IDENTICAL_DB if point["reason"] == "identical" else -IDENTICAL_DB


class _Bench:
    """The net, the items it is tried on, and how its answers are judged."""

    def __init__(self, request: Request) -> None:
        self.model, samples = request.model, request.inputs["samples"]
        self.net = nets.opened(self.model, request.context.threads)
        self.items = min(request.options["items"], tensors.count(samples, SPLIT))
        self.batches = list(_batches(self.model, samples, self.items))
        labels = tensors.labels(samples, SPLIT)
        self.labels = None if labels is None else labels[: self.items]
        self.metric = None if labels is None else metrics.find(request.options["metric"])

    def answers(self) -> Answers:
        """The outputs for the items, by name."""
        import numpy as np

        found = [self.net.run(batch) for batch in self.batches]
        names = [spec.name for spec in self.model.outputs if not spec.feeds]
        return {name: np.concatenate([f[name] for f in found])[: self.items] for name in names}

    def value(self, found: Answers) -> float | None:
        """The metric of the answers; None without labels or for "none"."""
        if self.metric is None or self.labels is None:
            return None
        return metrics.summary(self.metric, metrics.scores(self.metric, dict(found), self.labels))

    def judged(self, dense: Answers, found: Answers) -> Point:
        """The metric of the answers, and the worst SQNR of an output against the dense net's."""
        each = [outputs.compare(dense[name], found[name], name).facts() for name in dense]
        worst = min(each, key=_decibels)
        return {"metric": self.value(found), "sqnr_db": worst["sqnr_db"], "reason": worst["reason"]}

    def facts(self) -> dict[str, Any]:
        """What it was judged on."""
        metric = self.metric.name if self.metric else None
        return {"metric": metric, "unit": self.metric.unit if self.metric else "", "split": SPLIT, "items": self.items}


def _batches(model: Artifact, samples: Artifact, items: int) -> Iterator[dict[str, Array]]:
    """The items as the model takes them; state is zero."""
    import numpy as np

    size, fed = golden.batch(model), {spec.feeds for spec in model.outputs if spec.feeds}
    zeros = {spec.name: np.zeros(spec.concrete(size), spec.dtype) for spec in model.inputs if spec.name in fed}
    for arrays in tensors.batches(samples, SPLIT, size, items, model):
        yield {**zeros, **arrays}
