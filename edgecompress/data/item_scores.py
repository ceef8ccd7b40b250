"""How each item scores: its class among the first, its likelihood, its error, what a user's function says."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core import user_code
from edgecompress.core.errors import InputError

if TYPE_CHECKING:
    import numpy as np

Arrays: TypeAlias = "Mapping[str, np.ndarray]"
Scores: TypeAlias = "Callable[[Arrays, np.ndarray], np.ndarray]"  # outputs, labels -> a number per item


class BadItem(InputError):
    """Something is wrong with one item; `index` counts within the chunk."""

    def __init__(self, index: int, message: str) -> None:
        super().__init__(message)
        self.index = index


def _classes(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The labels as indices into the last axis of the logits; raises InputError when one is out of range."""
    import numpy as np

    count, swapped = logits.shape[-1], "; an item is (inputs, label), in this order" if labels.ndim > 2 else ""
    if labels.dtype.kind not in "iub":
        raise InputError(
            f"labels are {labels.dtype} {list(labels.shape)}, but classes are whole numbers"
            f"{swapped or '; of a regression give --metric mse or mae'}"
        )
    if labels.shape != logits.shape[:-1]:
        raise InputError(
            f"labels {list(labels.shape)} do not fit an output {list(logits.shape)}; give one label per row{swapped}"
        )
    wrong = np.argwhere((labels < 0) | (labels >= count))
    if len(wrong):
        where = tuple(int(i) for i in wrong[0])
        from_one = (labels.min(), labels.max()) == (1, count)
        remedy = "they run from 1: take 1 from each" if from_one else "correct the labels"
        remedy = remedy if count > 1 else "of a regression give --metric mse or mae, of two classes auc"
        message = f"label {int(labels[where])} is out of range: the model has classes 0 to {count - 1}; {remedy}"
        raise BadItem(where[0], message)
    return labels.astype(np.int64)


def top(k: int, logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """1 where the label's logit is among the k largest, of equals the first; a row with NaN is wrong.

    logits [n, classes], labels [n].
    """
    import numpy as np

    if logits.ndim != 2:
        fits = labels.dtype.kind in "iu" and labels.ndim == logits.ndim - 1
        tokens = "of a language model, which scores each token, give --metric perplexity"
        give = {3: tokens, 4: "of a segmentation give --metric miou"}.get(logits.ndim) if fits else None
        needs = f"top-{k} needs an output [items, classes], not {list(logits.shape)}"
        raise InputError(f"{needs}; {give or 'name your own metric'}")
    index = _classes(logits, labels)[:, None]
    own = np.take_along_axis(logits, index, axis=1)
    before = (logits > own) | ((logits == own) & (np.arange(logits.shape[1]) < index))
    right: np.ndarray = (before.sum(axis=1) < k) & ~np.isnan(logits.astype(np.float64)).any(axis=1)
    return right


def nats(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean over an item's labels of -ln softmax(logits)[label]; logits [n, ..., classes], labels [n, ...]."""
    import numpy as np

    index = _classes(logits, labels)
    x = logits.astype(np.float64)
    x = x - x.max(axis=-1, keepdims=True)
    own = np.take_along_axis(x, index[..., None], axis=-1)[..., 0]
    nats: np.ndarray = (np.log(np.exp(x).sum(axis=-1)) - own).reshape(len(x), -1).mean(axis=1)
    return nats


def squared(output: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Mean squared difference of an item; output and labels of one shape."""
    import numpy as np

    if output.shape != labels.shape:
        raise InputError(
            f"it needs labels of the output's shape {list(output.shape)}, but they have shape {list(labels.shape)}"
        )
    squares: np.ndarray = np.square(output.astype(np.float64) - labels).reshape(len(output), -1).mean(axis=1)
    return squares


def of_users(reference: str) -> Scores:
    """`fn(outputs, labels)` -> one number per item, higher is better. What it raises is the user's to mend."""

    def score(outputs: Arrays, labels: np.ndarray) -> np.ndarray:
        import numpy as np

        try:
            values = np.asarray(user_code.function(reference)(outputs, labels), np.float64)
        except InputError:
            raise
        except Exception as error:
            raise InputError(f"it raised {user_code.error_line(error)}; run it in Python to debug it") from error
        if values.shape != (len(labels),):
            raise InputError(f"it returned {list(values.shape)} for {len(labels)} items; return one number per item")
        return values

    return score
