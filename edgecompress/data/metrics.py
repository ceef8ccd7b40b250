"""Task metrics: a score per item, their summary, and the paired comparison of a source with its artifact."""

from __future__ import annotations

import base64
import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from edgecompress.core import stats
from edgecompress.core.errors import InputError, MissingDependency, StageFailed, did_you_mean
from edgecompress.core.model import TensorSpec
from edgecompress.data import paired_proportions, task_metrics
from edgecompress.data.item_scores import Arrays, BadItem, Scores, nats, of_users, squared, top

if TYPE_CHECKING:
    import numpy as np

CHUNK = 64  # items
LARGEST_EXPONENT = 709.0  # whose exp is a double
TOP = re.compile(r"top([1-9][0-9]{0,5})")  # top1, top5, ...
NAMES = ("top1", "top5", "perplexity", "mse", *task_metrics.METRICS, "none")
SYNONYMS = {"accuracy": "top1", "acc": "top1", "acc1": "top1", "ppl": "perplexity", "rmse": "mse", "l1": "mae"}
FEWEST = 20  # items of a mean with an interval: fewer show nothing of a skewed distribution's tail


class Interval(TypedDict, total=False):
    """How much a metric changed, with a 95 % interval; see `compare`."""

    items_lost: int | None
    items_gained: int | None
    net_lost: int | None
    ratio: float | None
    low: float | None
    high: float | None
    reason: str
    expected: dict[str, float] | None


class MetricComparison(Interval):
    """The same items scored for the source and for its artifact."""

    name: str
    unit: str
    before: float | None
    after: float | None
    n: int


@dataclass(frozen=True)
class Metric:
    """How items are scored, and what a list of scores means.

    share: a score is 1 (right) or 0, the summary their mean. perplexity: a score is the mean of -ln p of an item's
    labels, the summary exp of their mean (lower is better). mse: a score is an item's error, the summary their mean
    (lower). mean: any other number, the user's own too, the summary their mean (higher). `whole`: an item's score
    depends on the others.
    """

    name: str
    kind: Literal["share", "perplexity", "mse", "mean"]
    score: Scores
    whole: bool = False
    unit: str = ""  # of the summary


def find(name: str, output: str = "") -> Metric | None:
    """The metric of this name on `output`, else the first, or of classes `scored`; None for "none".

    Raises InputError for any other name.
    """
    if name == "none":
        return None
    if ":" in name:
        return Metric(name, "mean", of_users(name))
    if best := TOP.fullmatch(name):
        k = int(best[1])
        return Metric(name, "share", lambda o, labels: top(k, _of_classes(o, labels, output), labels), unit="fraction")
    if task := task_metrics.METRICS.get(name):
        kind: Literal["mse", "mean"] = "mse" if task.better == "lower" else "mean"
        own_score, every, classes = task.score, task.every, name == "auc"

        def scores_of(outputs: Arrays, labels: np.ndarray) -> np.ndarray:
            if every:
                return own_score(outputs, labels)
            return own_score(_of_classes(outputs, labels, output) if classes else _of(outputs, output), labels)

        return Metric(name, kind, scores_of, whole=True, unit=task.unit)
    own: dict[str, Metric] = {
        "perplexity": Metric(
            "perplexity", "perplexity", lambda o, labels: nats(_of_classes(o, labels, output), labels)
        ),
        "mse": Metric("mse", "mse", lambda outputs, labels: squared(_of(outputs, output), labels)),
    }
    if name not in own:
        near = f", did you mean '{SYNONYMS[name]}'?" if name in SYNONYMS else did_you_mean(name, NAMES)
        raise InputError(f"no metric '{name}' (give your own as pkg.mod:function){near}")
    return own[name]


def scores(metric: Metric, outputs: Mapping[str, np.ndarray], labels: np.ndarray) -> np.ndarray:
    """The score of each item, float64 [n], a chunk at a time. Raises InputError for labels that do not fit."""
    import numpy as np

    values = np.empty(len(labels))
    step = len(labels) if metric.whole else CHUNK
    for begin in range(0, len(labels), step):
        part = slice(begin, begin + step)
        try:
            values[part] = metric.score({name: np.asarray(a[part]) for name, a in outputs.items()}, labels[part])
        except BadItem as error:
            raise InputError(f"metric {metric.name}: item {begin + error.index}: {error}") from error
        except InputError as error:
            known = MissingDependency if isinstance(error, MissingDependency) else InputError
            raise known(f"metric {metric.name}: {error}") from error
    return values


class _Noted(Mapping[str, Any]):
    """Outputs that note which of them are read."""

    def __init__(self, outputs: Arrays) -> None:
        self.outputs, self.read = outputs, set[str]()

    def __getitem__(self, name: str) -> np.ndarray:
        self.read.add(name)
        return self.outputs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.outputs)

    def __len__(self) -> int:
        return len(self.outputs)


def reads(metric: Metric, outputs: Arrays, labels: np.ndarray) -> frozenset[str]:
    """The outputs that a metric reads, tried on the first items; all where it takes nothing but a dictionary."""
    noted = _Noted({name: array[:CHUNK] for name, array in outputs.items()})
    with contextlib.suppress(InputError):  # so few items may be too few for it
        metric.score(noted, labels[:CHUNK])
    return frozenset(noted.read & set(outputs)) or frozenset(outputs)


def summary(metric: Metric, scores: np.ndarray) -> float | None:
    """The value of the metric: the mean of the scores, for perplexity its exp; None if it is not finite."""
    import numpy as np

    with np.errstate(all="ignore"):
        value = float(np.mean(scores))
    if metric.kind == "perplexity":
        value = math.exp(value) if value < LARGEST_EXPONENT else math.inf
    return value if math.isfinite(value) else None


# --------------------------------------------------------------------------- the score of an item


def _of(outputs: Arrays, name: str) -> np.ndarray:
    if name and name not in outputs:
        raise InputError(f"the model has no output '{name}'{did_you_mean(name, list(outputs))}")
    return outputs[name] if name else next(iter(outputs.values()))


def _of_classes(outputs: Arrays, labels: np.ndarray, name: str) -> np.ndarray:
    arrays = outputs.outputs if isinstance(outputs, _Noted) else outputs  # to look at one is not to read it
    return _of(outputs, name or _scored([(n, a.dtype.kind == "f", a.ndim) for n, a in arrays.items()], labels.ndim + 1))


def _scored(outputs: Sequence[tuple[str, bool, int]], axes: int) -> str:
    """The output that scores classes, of (name, whether real numbers, axes): a classifier may have others before it.

    The first of real numbers with an axis more than the labels, else the first of real numbers, else the first.
    """
    real = [(name, own) for name, is_real, own in outputs if is_real and own > 1]
    return next((name for name, own in real if own == axes), real[0][0] if real else outputs[0][0])


def scored(outputs: Arrays, labels: np.ndarray) -> np.ndarray:
    """The output that scores classes."""
    return _of_classes(outputs, labels, "")


def scored_spec(specs: Sequence[TensorSpec], axes: int) -> TensorSpec:
    """The output that scores classes; `axes`: one more than the labels have."""
    told = [(s.name, bool(s.quantization) or "float" in s.dtype, len(s.shape)) for s in specs]
    name = _scored(told, axes)
    return next(spec for spec in specs if spec.name == name)


def class_numbers(labels: np.ndarray) -> np.ndarray | None:
    """Labels of top-k as numbers of classes, [n], where each item is one in another form; None where some is not.

    The forms: [n, 1], real numbers that are whole, and [n, classes] with a single 1 among zeros.
    """
    import numpy as np

    if labels.ndim == 2 and labels.shape[1] > 1:
        single = ((labels == 1).sum(axis=1) == 1) & ((labels == 0).sum(axis=1) == labels.shape[1] - 1)
        return labels.argmax(axis=1) if single.all() else None
    flat = labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels
    return np.array(flat, np.int64) if flat.ndim == 1 and (flat == np.floor(flat)).all() else None


# --------------------------------------------------------------------------- the paired comparison


def compare(metric: Metric, before: np.ndarray, after: np.ndarray) -> MetricComparison:
    """The same items scored twice: both summaries and how much changed, with a 95 % interval, as JSON.

    `low`, `high`: of after - before (share, mean) or of after / before (perplexity, mse; then `ratio` is there too);
    None of fewer than FEWEST items whose scores are other than right or wrong.
    A value that is not finite is None, with `reason`.
    """
    if len(before) != len(after) or not len(before):
        raise StageFailed(f"metric {metric.name}: {len(before)} items before and {len(after)} after cannot be paired")
    comparison: MetricComparison = {
        "name": metric.name,
        "unit": metric.unit,
        "before": summary(metric, before),
        "after": summary(metric, after),
        "items_lost": None,
        "items_gained": None,
        "net_lost": None,
        "low": None,
        "high": None,
        "n": len(before),
    }
    if comparison["before"] is None or comparison["after"] is None:
        return {**comparison, "reason": "a score is not finite"}
    change = {"share": _shares, "perplexity": _perplexities, "mse": _ratios, "mean": _means}[metric.kind]
    return {**comparison, **change(before, after)}


def exact(comparison: MetricComparison) -> MetricComparison:
    """The comparison where the outputs are the source's own: its change is no sample's, it is its own interval.

    Where an item was lost or gained all the same, by a tie, the interval stays that of counts.
    """
    if comparison.get("reason") is not None or comparison["items_lost"] or comparison["items_gained"]:
        return comparison
    change = comparison.get("ratio")
    if change is None:
        change = (comparison["after"] or 0.0) - (comparison["before"] or 0.0)
    return {**comparison, "low": change, "high": change}


def items(scores: np.ndarray) -> dict[str, str]:
    """Scores for report.json: `right`, of right (1) and wrong (0) the bits in hexadecimal, the first item the highest;
    or `scores`, of others float32 in base64, the lowest byte first."""
    import numpy as np

    if set(scores.tolist()) <= {0.0, 1.0}:
        return {"right": np.packbits(scores == 1).tobytes().hex()}
    return {"scores": base64.b64encode(scores.astype("<f4").tobytes()).decode()}


def of_items(scores: str) -> np.ndarray:
    """The `scores` of `items`, float64 [n]; raises ValueError for other text."""
    import numpy as np

    return np.frombuffer(base64.b64decode(scores, validate=True), "<f4").astype(np.float64)


def lost(comparison: MetricComparison | None, gross: bool = False) -> float | None:
    """The loss in a comparison: a share of the items, the growth of an error, or the drop of a user's metric.

    `gross`: gained items are not subtracted. None if nothing was compared.
    """
    if comparison is None:
        return None
    net, ratio = comparison.get("net_lost"), comparison.get("ratio")
    if net is not None:
        number = comparison["items_lost"] if gross else net
        return float((number or 0) / comparison["n"])
    if ratio is not None:
        return float(ratio - 1)
    before, after = comparison.get("before"), comparison.get("after")
    return None if before is None or after is None else float(before - after)


def _shares(before: np.ndarray, after: np.ndarray) -> Interval:
    lost = int(((before == 1) & (after == 0)).sum())
    gained = int(((before == 0) & (after == 1)).sum())
    low, high = paired_proportions.interval(gained, lost, len(before))
    return {"items_lost": lost, "items_gained": gained, "net_lost": lost - gained, "low": low, "high": high}


def _half_width(values: np.ndarray, scores: np.ndarray) -> float | None:
    """Half the 95 % interval of a mean, wide enough for values of which a few are large; None for too few.

    Student's t, and beside it what the sample cannot show: a share of up to 1 - 0.025^(1/n) of all items may be beyond
    the most that was seen (the chance that none of them is among n is 0.025 or less), and is counted as that far from
    the mean. Where nothing differs and `scores` repeat (they count something), it may differ by all their range.
    """
    import numpy as np

    n = len(values)
    if n < FEWEST:
        return None
    most = float(np.abs(values - values.mean()).max())
    if not values.any() and len(np.unique(scores)) < n:
        most = float(np.ptp(scores))
    seen = stats.student_t(n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    unseen: float = 1 - paired_proportions.TAIL ** (1 / n)
    return seen + unseen * most


def _ends(middle: float, half: float | None) -> tuple[float | None, float | None]:
    return (None, None) if half is None else (middle - half, middle + half)


def _means(before: np.ndarray, after: np.ndarray) -> Interval:
    """Of scores that are all right or wrong, the interval of shares."""
    if all(set(side.tolist()) <= {0.0, 1.0} for side in (before, after)):
        shares = _shares(before, after)
        return {"low": shares["low"], "high": shares["high"]}
    middle = float((after - before).mean())
    low, high = _ends(middle, _half_width(after - before, before))
    return {"low": low, "high": high}


def _perplexities(before: np.ndarray, after: np.ndarray) -> Interval:
    """exp of the paired difference of nats, and of its interval."""
    middle = float((after - before).mean())
    ends = _ends(middle, _half_width(after - before, before))
    low, high = (None if end is None or end > LARGEST_EXPONENT else math.exp(end) for end in ends)
    return {"ratio": math.exp(middle), "low": low, "high": high}


def _ratios(before: np.ndarray, after: np.ndarray) -> Interval:
    """A ratio of two means over the same items, its variance linearised (Cochran: Sampling Techniques, 1977, 6.4)."""
    mean = float(before.mean())
    if mean == 0:
        return {"ratio": None, "reason": "the source's error is zero: nothing to divide by"}
    ratio = float(after.mean()) / mean
    half = _half_width(after - ratio * before, before)
    low, high = _ends(ratio, None if half is None else half / mean)
    return {"ratio": ratio, "low": low, "high": high}
