"""The error between two arrays of outputs, streamed item by item, so that outputs may be larger than memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypedDict

from edgecompress.core.errors import StageFailed

if TYPE_CHECKING:
    import numpy as np

CHUNK = 64  # items
ROUNDING_DB = 100.0  # from here on outputs differ by the rounding of fp32 alone: int16 and fp16 stay below


class ErrorFacts(TypedDict):
    """The error of an output against the source's, as JSON; see `Difference.facts`."""

    max_abs_error: float | None
    sqnr_db: float | None
    cosine: float | None
    agreement: float | None
    reason: str


class Difference:
    """Sums over the items seen so far: `golden` is the source's output, `output` the artifact's."""

    def __init__(self) -> None:
        self.items = self.bad = self.rows = self.same = 0  # bad: items with NaN or infinity in `output`
        self.worst = self.signal = self.noise = self.power = self.dot = 0.0

    def add(self, golden: np.ndarray, output: np.ndarray) -> None:
        """Some items, on axis 0; those that are not finite are counted, and left out of the sums."""
        import numpy as np

        g, f = (a.reshape(len(a), -1).astype(np.float64) for a in (golden, output))
        fine = np.isfinite(f).all(axis=1)
        self.items += len(g)
        self.bad += int((~fine).sum())
        g, f = g[fine], f[fine]
        error = g - f
        self.worst = max(self.worst, float(np.abs(error).max(initial=0.0)))
        self.signal += float((g * g).sum())
        self.noise += float((error * error).sum())
        self.power += float((f * f).sum())
        self.dot += float((g * f).sum())
        if golden.ndim > 1 and golden.shape[-1] > 1:
            largest = golden[fine].argmax(axis=-1), output[fine].argmax(axis=-1)
            self.rows += largest[0].size
            self.same += int((largest[0] == largest[1]).sum())

    def facts(self) -> ErrorFacts:
        """JSON: max_abs_error, sqnr_db, cosine, agreement; None where it is not a number, with `reason`.

        sqnr_db: 10 log10(sum of golden^2 / sum of (golden - output)^2), over all items; the power of the signal over
        that of the error. cosine: of all items as one vector. agreement: share of rows along the last axis whose
        largest element is the same one.
        """
        if self.bad:
            reason = f"{self.bad} of {self.items} items hold NaN or infinite values"
            return {"max_abs_error": None, "sqnr_db": None, "cosine": None, "agreement": None, "reason": reason}
        length = math.sqrt(self.signal) * math.sqrt(self.power)
        reasons = ["identical"] if not self.noise else [] if self.signal else ["the source's output is zero"]
        return {
            "max_abs_error": self.worst,
            "sqnr_db": 10 * math.log10(self.signal / self.noise) if self.signal and self.noise else None,
            "cosine": min(1.0, self.dot / length) if length else 1.0 if not self.noise else None,
            "agreement": self.same / self.rows if self.rows else None,
            "reason": ", ".join(reasons),
        }


def same(facts: ErrorFacts) -> bool:
    """Whether an output is the source's own, to the rounding of fp32."""
    return facts["reason"] == "identical" or (facts["sqnr_db"] or 0.0) >= ROUNDING_DB


def compare(golden: np.ndarray, output: np.ndarray, name: str) -> Difference:
    """The difference of two arrays of the same items. Raises StageFailed when their shapes differ."""
    check_shapes(golden, output, name)
    difference = Difference()
    for begin in range(0, len(golden), CHUNK):
        difference.add(golden[begin : begin + CHUNK], output[begin : begin + CHUNK])
    return difference


def check_shapes(golden: np.ndarray, output: np.ndarray, name: str) -> None:
    """Raises StageFailed when they differ."""
    if golden.shape != output.shape:
        raise StageFailed(f"output '{name}' has shape {list(output.shape)}, but the source's has {list(golden.shape)}")
