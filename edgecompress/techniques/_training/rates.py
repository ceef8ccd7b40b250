"""The learning rate of each step: cosine with a warm-up, drops at milestones, constant; rewound or from the start."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

Kind = Literal["cosine", "step", "constant"]

WARM_UP = 0.05  # of a cosine's steps: rising in a line to its highest rate
DROP = 0.1  # what a milestone multiplies the rate by


def share(kind: Kind, milestones: Sequence[float], step: int, total: int) -> float:
    """The rate at `step` of `total`, as a share of the highest.

    cosine: (1 + cos(pi t)) / 2 with t in [0, 1) after the warm-up (Loshchilov & Hutter 2017, arXiv:1608.03983, eq. 5);
    step: a tenth from each milestone on, given as a share of the whole schedule.
    """
    if kind == "constant":
        return 1.0
    if kind == "step":
        return float(DROP ** sum(step >= round(m * total) for m in milestones))
    warm = round(WARM_UP * total)
    if step < warm:
        return (step + 1) / warm
    return (1 + math.cos(math.pi * (step - warm) / (total - warm))) / 2


def rewound(step: int, steps: int, whole: int) -> int:
    """Which step of a whole schedule a step of the last `steps` of it is.

    Learning-rate rewinding trains a pruned net with the last part of the schedule that the dense one was trained with
    (Renda, Frankle & Carbin 2020, arXiv:2003.02389, section 2).
    """
    return whole - steps + step
