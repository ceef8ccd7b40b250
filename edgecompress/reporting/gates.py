"""Gates of a comparison: `latency_ms > 1.05x` is kept or broken where all of the interval says so."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.limit_decision import Interval, Word, decide
from edgecompress.data import metrics as task_names

FORM = re.compile(r"\s*(\w+)\s*([<>])\s*([-+.\w]+?)\s*([x×]?)\s*")
Ended = Literal["kept", "undecided", "broken", "not judged"]
ENDED: Mapping[Word, Ended] = {"inside": "kept", "undecided": "undecided", "outside": "broken"}


@dataclass(frozen=True)
class Gate:
    """`metric` may not be above (or below) `limit`: a number in the metric's unit, or a factor of the baseline's."""

    text: str
    metric: str
    above: bool
    limit: float
    relative: bool

    def judge(self, value: float, interval: Interval) -> Ended:
        """How the gate ends for a number with its interval."""
        return ENDED[decide(value, interval, self.limit, least=not self.above).word]


def read(text: str, metrics: Iterable[str], absolute: Iterable[str] = ()) -> Gate:
    """A gate from its words; `absolute` metrics are differences already and take no factor. Raises InputError."""
    where = f'--fail-if "{text}"'
    match = FORM.fullmatch(text)
    if not match:
        raise InputError(f'{where}: write METRIC > NUMBER, METRIC < NUMBER, or a factor as "latency_ms > 1.05x"')
    metric, sign, number, factor = match.groups()
    if metric not in {*metrics, *absolute}:
        of_task = ": what the task's metric loses is metric_loss > 0.01, in its own unit accuracy_drop > 0.01"
        near = of_task if metric in task_names.NAMES else did_you_mean(metric, [*metrics, *absolute])
        raise InputError(f"{where}: no metric '{metric}'{near}")
    try:
        limit = float(number)
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit) or (factor and limit <= 0):
        raise InputError(f"{where}: '{number}' is not a limit; write a number such as 1.05")
    if factor and metric in absolute:
        raise InputError(f"{where}: {metric} is a difference already; write it without the x")
    return Gate(text, metric, sign == ">", limit, bool(factor))
