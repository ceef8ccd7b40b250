"""How sensitive each layer is: the net's outputs with one weight at a time pruned, or in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.model import Artifact, Request
from edgecompress.core.quantities import LOWER_IS_BETTER
from edgecompress.data import metrics, output_error, states, tensors
from edgecompress.formats import sparsity
from edgecompress.stages import golden
from edgecompress.stages.analyze import nets

if TYPE_CHECKING:
    import numpy as np

SPLIT = "select"  # what chooses layers is not what verifies the artifact
IDENTICAL_DB = 300.0  # beyond what doubles can tell apart
Outputs: TypeAlias = "Mapping[str, np.ndarray]"


class Score(TypedDict):
    """The metric of a net's outputs, and their worst SQNR; None with a reason where it is no number."""

    metric: float | None
    sqnr_db: float | None
    reason: str


class Point(Score):
    """One layer at one level."""

    level: float


class BenchFacts(TypedDict):
    """What the outputs are scored on."""

    metric: str | None
    unit: str
    split: str
    items: int


class Options(TypedDict):
    """What is changed, and how."""

    by: Literal["ratio", "bits"]
    structure: str
    layers: Sequence[str]
    levels: Sequence[float]
    items: int
    metric: str
    csv: bool


class SensitivityFacts(BenchFacts):
    """The facts of a "sensitivity"."""

    baseline: float | None
    lower_is_better: bool
    by: Literal["ratio", "bits"]
    structure: str
    layers: dict[str, list[Point]]
    order: list[str]
    csv: list[list[str | float | None]]


def points(request: Request) -> SensitivityFacts:
    """{"baseline", "metric", "unit", "split", "items", "layers": {layer: [{"level", "metric", "sqnr_db", "reason"}]},
    "order", "csv"} of the Request's model on its samples.

    options: "by" ("ratio", "bits"), "structure", "layers" (patterns), "levels", "items", "metric", "csv": whether the
    rows of Distiller's file are made, [parameter, sparsity, top-1 and top-5 in percent, cross entropy in nats].
    """
    bench = _Bench(request)
    options: Options = request.options
    chosen = _chosen(bench.net.layers, options["layers"])
    dense = bench.outputs()
    scores: dict[str, list[Point]] = {layer: [] for layer in chosen}
    rows: list[list[str | float | None]] = []
    for done, (layer, level) in enumerate((layer, level) for layer in chosen for level in options["levels"]):
        word = f"{level:g} bits" if options["by"] == "bits" else f"{level:.0%}"
        request.progress(done / (len(chosen) * len(options["levels"])), f"{layer} at {word}")
        with bench.net.changed(layer, partial(_change, options, level)):
            outputs = bench.outputs()
        scores[layer].append({"level": level, **bench.score(dense, outputs)})
        if options["csv"]:
            parameter = layer if "weight" in layer.rpartition(".")[2] else f"{layer}.weight"
            if len(scores[layer]) == 1:
                rows.append([parameter, 0.0, *bench.of_classes(dense)])
            rows.append([parameter, level, *bench.of_classes(outputs)])
    lower = bench.metric is not None and bench.metric.kind in LOWER_IS_BETTER
    return {
        "baseline": bench.value(dense),
        "lower_is_better": lower,
        **bench.facts(),
        "by": options["by"],
        "structure": options["structure"],
        "layers": scores,
        "order": order(scores),
        "csv": rows,
    }


def _change(options: Options, level: float, weight: np.ndarray) -> np.ndarray:
    if options["by"] == "bits":
        return sparsity.quantized(weight, int(level))
    return sparsity.pruned(weight, level, options["structure"])


def _chosen(weights: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The layers that any of the patterns names; raises InputError for a pattern that names none."""
    for pattern in patterns:
        if not any(fnmatch(layer, pattern) for layer in weights):
            raise InputError(f"--layers {pattern}: no such layer with a weight{did_you_mean(pattern, weights)}")
    if not weights:
        raise InputError("the net has no weight of two or more axes: there is nothing to measure")
    return [layer for layer in weights if not patterns or any(fnmatch(layer, pattern) for pattern in patterns)]


def order(layers: Mapping[str, Sequence[Point]]) -> list[str]:
    """The layers, the most sensitive first: by noise over signal, in power, the mean over the levels.

    With few items the metric moves in steps and tells layers apart less well: benchmarks/sensitivity.py.
    """

    def noise(layer: str) -> float:
        return sum(10 ** (-_decibels(point) / 10) for point in layers[layer]) / len(layers[layer])

    return sorted(layers, key=noise, reverse=True)


def _decibels(point: Point | output_error.ErrorFacts) -> float:
    if point["sqnr_db"] is not None:
        return float(point["sqnr_db"])
    return IDENTICAL_DB if point["reason"] == "identical" else -IDENTICAL_DB


class _Bench:
    """The net, the items it is tried on, and how its outputs are scored."""

    def __init__(self, request: Request) -> None:
        self.model, samples = request.model, request.inputs["samples"]
        self.net = nets.opened(self.model, request.context.threads)
        self.items = min(request.options["items"], tensors.count(samples, SPLIT))
        self.batches = list(_batches(self.model, samples, self.items))
        labels = tensors.labels(samples, SPLIT)
        self.labels = None if labels is None else labels[: self.items]
        self.metric = None if labels is None else metrics.find(request.options["metric"])

    def outputs(self) -> Outputs:
        """The outputs for the items, by name."""
        import numpy as np

        batches = [self.net.run(batch) for batch in self.batches]
        specs = [spec for spec in self.model.outputs if not spec.feeds]
        parted = {s.name: [states.parted(batch[s.name], s) for batch in batches] for s in specs}
        return {name: np.concatenate(each)[: self.items] for name, each in parted.items()}

    def value(self, outputs: Outputs) -> float | None:
        """The metric of the outputs; None without labels or for "none"."""
        if self.metric is None or self.labels is None:
            return None
        return metrics.summary(self.metric, metrics.scores(self.metric, dict(outputs), self.labels))

    def of_classes(self, outputs: Outputs) -> list[float | None]:
        """Top-1 and top-5 in percent, the cross entropy in nats; raises InputError for labels that are no classes."""
        if self.labels is None:
            raise InputError(f"--csv has top-1, top-5 and the loss on labels, and the split '{SPLIT}' has none")
        import numpy as np

        found, labels = metrics.scored(outputs, self.labels), self.labels
        if labels.ndim > 1:  # of each place of an item
            rows = found if found.shape[:-1] == labels.shape else np.moveaxis(found, 1, -1)
            found, labels = rows.reshape(-1, rows.shape[-1]), labels.reshape(-1)
        told: list[float | None] = []
        for name in ("top1", f"top{min(5, found.shape[-1])}", "perplexity"):
            metric = metrics.find(name)
            assert metric is not None
            mean = float(metrics.scores(metric, {"output": found}, labels).mean())
            told.append(round(mean if name == "perplexity" else 100 * mean, 6))
        return told

    def score(self, dense: Outputs, outputs: Outputs) -> Score:
        """The metric of the outputs, and the worst SQNR of one compared with the dense net's."""
        each = [output_error.compare(dense[name], outputs[name], name).facts() for name in dense]
        worst = min(each, key=_decibels)
        return {"metric": self.value(outputs), "sqnr_db": worst["sqnr_db"], "reason": worst["reason"]}

    def facts(self) -> BenchFacts:
        """What the outputs are scored on."""
        metric = self.metric.name if self.metric else None
        return {"metric": metric, "unit": self.metric.unit if self.metric else "", "split": SPLIT, "items": self.items}


def _batches(model: Artifact, samples: Artifact, items: int) -> Iterator[dict[str, np.ndarray]]:
    """The items as the model takes them."""
    return tensors.batches(samples, SPLIT, golden.batch(model), items, model)
