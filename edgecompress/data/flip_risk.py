"""How many items a noisy copy of a classifier may lose, by margins and noise: more precise than counting few items."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

Z = NormalDist().inv_cdf(0.975)  # two-sided 95 %
TAIL = 1e-12  # of a Poisson distribution: what is left out of the sums


def flips(before: np.ndarray, after: np.ndarray, labels: np.ndarray) -> dict[str, float] | None:
    """The shares of items expected to be lost and gained; logits [n, classes], labels [n]. None for other arrays.

    The source's largest logit stands above its rival's by a margin m: the runner-up's where the class is right, the
    label's where it is not. The copy's margins differ by noise of mean b and deviation s, over all items; a class
    changes with the chance that normal noise takes all of its margin: Phi(-(m + b) / s). Right classes are lost so,
    wrong ones mended.
    """
    import numpy as np

    if before.ndim != 2 or before.shape[1] < 2 or labels.dtype.kind not in "iu":
        return None
    rows = np.arange(len(before))
    order = np.argsort(before, axis=1)
    top, right = order[:, -1], order[:, -1] == labels
    rival = np.where(right, order[:, -2], labels)
    margins = [(a[rows, top] - a[rows, rival]).astype(np.float64) for a in (before, after)]
    near = margins[0] <= np.median(margins[0])
    noise = (margins[1] - margins[0])[near]
    if not np.isfinite(noise).all():
        return None
    shift, spread = float(noise.mean()), float(noise.std())
    moved = [m + shift for m in margins[0].tolist()]
    # the normal distribution function at -m / spread
    flipped = np.array([0.5 * math.erfc(m / spread / math.sqrt(2)) if spread else float(m < 0) for m in moved])
    n = len(flipped)
    return {"lost": float(flipped[right].sum() / n), "gained": float(flipped[~right].sum() / n)}


def settled(foretold: float, count: int, items: int) -> float:
    """A foretold share, as far as the 95 % interval of what was counted, `count` of `items`, leaves room for it.

    Normal noise foretells finely what counting cannot see, and too little where a net is ruined: there counting sees
    it. The interval is Wilson's (E. B. Wilson: Probable inference, the law of succession, and statistical inference,
    Journal of the American Statistical Association 22 (1927), 209-212).
    """
    share, z = count / items, Z * Z / items
    middle, half = share + z / 2, math.sqrt(z * share * (1 - share) + z * z / 4)
    return min(max(foretold, (middle - half) / (1 + z)), (middle + half) / (1 + z))


def chance(lost: float, gained: float, most: float) -> float:
    """The chance that at most `most` more items are lost than gained; both are Poisson, of these means.

    The difference has Skellam's distribution (J. G. Skellam: The frequency distribution of the difference between two
    Poisson variates belonging to different populations, Journal of the Royal Statistical Society 109 (1946), 296).
    """
    losses, gains = _poisson(lost), _poisson(gained)
    below = [sum(losses[: k + 1]) for k in range(len(losses))]
    total = 0.0
    for number, share in enumerate(gains):
        reach = math.floor(most + number)
        if reach >= 0:
            total += share * below[min(reach, len(below) - 1)]
    return min(total, 1.0)


def _poisson(mean: float) -> list[float]:
    """The chances of 0, 1, 2, ... until next to nothing is left."""
    chances, total = [math.exp(-mean)], math.exp(-mean)
    while total < 1 - TAIL and len(chances) < 40 + 4 * mean:
        chances.append(chances[-1] * mean / len(chances))
        total += chances[-1]
    return chances
