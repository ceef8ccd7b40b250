"""Our own loop over a training, and the learning rate that a net bears."""

from __future__ import annotations

import copy
from itertools import islice
from typing import TYPE_CHECKING

from edgecompress.techniques._training.data import spread
from edgecompress.techniques._training.loop import SELECT_BATCH, Training
from edgecompress.techniques._training.options import TrainingOptions

if TYPE_CHECKING:
    import torch

TRIAL_STEPS, TRIES, LESS, TWICE = 20, 6, 1 / 3, 2.0  # of the learning rate, see `bearable`


def fit(net: torch.nn.Module, training: Training) -> None:
    """SGD with momentum, or AdamW, on the options' schedule; in fp16 its gradients are scaled."""
    import torch

    optimizer = optimizer_of(net, training.options)
    scaler = torch.amp.GradScaler(training.device.type, enabled=training.amp == "float16")
    done = training.resume(net, optimizer, scaler)
    if not done and training.goes_back and training.options.lr is None:
        training.best.rate = bearable(net, training)
    for epoch in range(done, training.options.epochs):
        total = torch.zeros((), device=training.device)
        for step, (inputs, labels) in enumerate(training.batches(epoch)):
            for group in optimizer.param_groups:
                group["lr"] = training.rate(epoch, step)
            loss = training.loss(net, inputs, labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            if training.options.clip:
                scaler.unscale_(optimizer)
                torch.nn.utils.clip_grad_norm_(net.parameters(), training.options.clip)
            scaler.step(optimizer)
            scaler.update()
            total += loss.detach()
        training.ended(net, optimizer, scaler, loss=float(total) / training.steps)


def bearable(net: torch.nn.Module, training: Training) -> float:
    """The share of the usual learning rate that a net bears: 1, or a third of it as often as it takes.

    A copy takes a few steps at a rising rate (as in the range test of Smith 2017, arXiv:1506.01186, section 3.3); its
    loss may not be more than TWICE what it was. Weights that batch norms once held, and small batches, bear less.
    """
    import torch

    before = _loss(net, training)
    for tried in range(TRIES):
        pupil, share = copy.deepcopy(net), LESS**tried
        optimizer = optimizer_of(pupil, training.options)
        steps = min(TRIAL_STEPS, training.steps)
        for step, (inputs, labels) in enumerate(islice(training.batches(0), steps)):
            for group in optimizer.param_groups:
                group["lr"] = share * training.options.rate * (step + 1) / steps
            optimizer.zero_grad()
            training.loss(pupil, inputs, labels).backward()
            if training.options.clip:
                torch.nn.utils.clip_grad_norm_(pupil.parameters(), training.options.clip)
            optimizer.step()
            training.last = None  # a loss of the trial is not reported: one that diverges ends the trial alone
        if _loss(pupil, training) <= TWICE * before:  # not of NaN
            return share
    return share


def _loss(net: torch.nn.Module, training: Training) -> float:
    """The mean loss of some items of what it trains on, in eval mode."""
    import numpy as np
    import torch

    was, size = net.training, training.size
    chosen = spread(training.items.count, max(size, min(SELECT_BATCH, training.items.count) // size * size))
    net.eval()
    with torch.no_grad():
        batches = [training.items.take(chosen[i : i + size]) for i in range(0, len(chosen), size)]
        losses = [float(training.loss(net, *batch)) for batch in batches]
    net.train(was)
    training.last = None
    return float(np.mean(losses))


def optimizer_of(net: torch.nn.Module, options: TrainingOptions) -> torch.optim.Optimizer:
    """That of the options, over what has gradients."""
    import torch

    trained = [p for p in net.parameters() if p.requires_grad]
    if options.optimizer == "adamw":
        return torch.optim.AdamW(trained, options.rate, weight_decay=options.weight_decay)
    how = {"momentum": options.momentum, "nesterov": options.nesterov, "weight_decay": options.weight_decay}
    return torch.optim.SGD(trained, options.rate, **how)
