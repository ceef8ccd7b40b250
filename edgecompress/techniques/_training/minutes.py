"""How many epochs, or how much of one, fit into the minutes that a training may take."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from edgecompress.core import atomic_file
from edgecompress.techniques._training.fitting import optimizer_of
from edgecompress.techniques._training.loop import Training

if TYPE_CHECKING:
    import torch

FILE = "minutes.json"  # among what is kept: a training that goes on has the epochs that it began with
TIMED_S, TIMED_STEPS = 5.0, 20  # of steps that are timed, at most; the first one warms up


def fit(net: torch.nn.Module, training: Training) -> None:
    """Sets epochs, and steps of each, to what fits into `options.minutes`, by the time of a few steps on a copy.

    Whole epochs are shortened a little so that they fill the time: after 4.3 epochs' worth of it, five have ended.
    """
    keep = training.request.keep
    file = keep / FILE if keep else None
    if file and file.is_file():
        epochs, steps = json.loads(file.read_bytes())
    else:
        epochs, steps = _fitting(net, training)
        if file:
            file.parent.mkdir(parents=True, exist_ok=True)
            atomic_file.write(file, json.dumps([epochs, steps]).encode())
    training.request = replace(training.request, options=replace(training.request.options, epochs=epochs))
    training.limit(steps)


def _fitting(net: torch.nn.Module, training: Training) -> tuple[int, int]:
    """Epochs, and steps of each."""
    began = time.monotonic()
    step_s, score_s = _timed(net, training)
    left_s = 60 * float(training.options.minutes or 0) - (time.monotonic() - began)
    epochs = max(1, -int(-left_s // (training.steps * step_s + score_s)))
    steps = int((left_s / epochs - score_s) / step_s)
    return epochs, min(max(1, steps), training.steps)


def _timed(net: torch.nn.Module, training: Training) -> tuple[float, float]:
    """Seconds of a step, and of looking at "select" after an epoch."""
    pupil = copy.deepcopy(net)
    optimizer, ends = optimizer_of(pupil, training.options), list[float]()
    for inputs, labels in training.batches(0):
        loss = training.loss(pupil, inputs, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        float(loss.detach())  # waits for a GPU
        ends.append(time.monotonic())
        if len(ends) > TIMED_STEPS or ends[-1] - ends[0] > TIMED_S:
            break
    began = time.monotonic()
    training.score(pupil)
    score_s = time.monotonic() - began
    return (ends[-1] - ends[0]) / (len(ends) - 1) if len(ends) > 1 else TIMED_S, score_s
