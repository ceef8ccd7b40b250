"""A schedule in the Trainer of Hugging Face's transformers, as a callback."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import reader
from edgecompress.extras.schedules.reader import Schedule
from edgecompress.extras.schedules.scheduler import CompressionScheduler
from edgecompress.formats import torch_edits

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.optim import Optimizer


class ScheduleCallback(TrainerCallback):  # type: ignore[misc]
    """Runs a schedule around the steps of a Trainer: Trainer(..., callbacks=[ScheduleCallback("s.yaml")]).

    What regularizers add to the loss reaches the gradients, after the Trainer has clipped them; the loss that it logs
    is without. A schedule with learning rates sets them, else those of the Trainer count. After the training `edits`
    has what `CompressionScheduler.finish` returns.
    """

    def __init__(
        self, schedule: str | Path | Schedule, example_inputs: Sequence[Tensor] | None = None, metric: str = ""
    ) -> None:
        """`metric`: what a plateau's "max" goes by, of the Trainer's evaluation: "eval_accuracy"; "min": its loss.

        Raises InputError for what the file says wrongly; when training begins, for what does not fit the model.
        """
        self.schedule = schedule if isinstance(schedule, Schedule) else reader.read(schedule)
        self.example_inputs = example_inputs
        self.metric = metric
        self.scheduler: CompressionScheduler | None = None
        self.edits: list[torch_edits.Edit] = []
        self._rates: list[float] = []
        self._ended = True  # the last epoch, for the schedule

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: nn.Module,
        optimizer: Optimizer,
        **_: Any,
    ) -> None:
        """Prepares the model; goes on from what `on_save` kept where the Trainer goes on."""
        if args.fp16 and any(policy.kind == "regularizer" for policy in self.schedule.policies):
            raise InputError("ScheduleCallback: gradients of fp16 are scaled, no regularizer can be added; use bf16")
        self._optimizer = getattr(optimizer, "optimizer", optimizer)  # inside accelerate's
        self._keep_rates()
        for group in self._optimizer.param_groups if self._sets_rates else ():  # the Trainer's warm-up has begun
            group["lr"] = group.get("initial_lr", group["lr"])
        self.scheduler = CompressionScheduler(model, self._optimizer, self.schedule, self.example_inputs)
        if state.global_step:
            self.scheduler.load(self._place(args, state))
            self._set_rates()  # as the Trainer has restored them
        self._keep_rates()
        if args.max_grad_norm:
            self.scheduler.mask_gradients()

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The masks of the epoch."""
        self._end({})  # where no evaluation followed
        self._epoch, self._step, self._ended = round(state.epoch or 0), 0, False
        self._running.on_epoch_begin(self._epoch)

    def on_step_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        train_dataloader: Any = None,
        **_: Any,
    ) -> None:
        """Masks the weights."""
        batches = len(train_dataloader) if hasattr(train_dataloader, "__len__") else state.max_steps
        steps = math.ceil(batches / args.gradient_accumulation_steps)
        self._running.on_minibatch_begin(self._epoch, self._step, steps)
        self._step += 1

    def on_pre_optimizer_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        lr_scheduler: Any = None,
        **_: Any,
    ) -> None:
        """Adds the gradients of the regularizers, and gives the optimizer the weights and rates that it is to have."""
        self._regularize(args)
        self._running.before_parameter_optimization()
        self._set_rates()
        if self._sets_rates and lr_scheduler is not None:  # what the Trainer logs
            getattr(lr_scheduler, "scheduler", lr_scheduler)._last_lr = list(self._rates)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Masks hold."""
        self._running.on_minibatch_end()

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Ends the epoch, unless an evaluation is to follow."""
        if args.eval_strategy == "no":
            self._end({})

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        metrics: Mapping[str, float],
        **_: Any,
    ) -> None:
        """Ends the epoch with its metrics, where it is over."""
        known = {"min": metrics.get("eval_loss"), "max": metrics.get(self.metric)}
        if state.epoch is not None and state.epoch >= self._epoch + 1:
            self._end({name: value for name, value in known.items() if value is not None})

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """Keeps the schedule's state beside the Trainer's."""
        if state.is_world_process_zero:
            self._running.save(self._place(args, state))

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        """The model is as it is to be."""
        self._end({})
        self.edits = self._running.finish()

    # ----------------------------------------------------------------------- parts

    @property
    def _running(self) -> CompressionScheduler:
        assert self.scheduler is not None  # training has begun
        return self.scheduler

    @property
    def _sets_rates(self) -> bool:
        return any(policy.kind == "lr_scheduler" for policy in self.schedule.policies)

    def _place(self, args: TrainingArguments, state: TrainerState) -> Path:
        """The folder of the Trainer's own checkpoint."""
        return Path(args.output_dir) / f"checkpoint-{state.global_step}"

    def _regularize(self, args: TrainingArguments) -> None:
        import torch

        loss = self._running.before_backward_pass(torch.zeros((), device=args.device))
        if not loss.requires_grad:
            return
        trained = [p for group in self._optimizer.param_groups for p in group["params"] if p.requires_grad]
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
        for parameter, gradient in zip(trained, gradients, strict=True):
            if gradient is not None:
                parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient

    def _end(self, metrics: Mapping[str, float]) -> None:
        """Ends an epoch that has not ended; the Trainer's own rates are put aside meanwhile."""
        if self._ended:
            return
        self._ended = True
        self._set_rates()
        self._running.on_epoch_end(metrics)
        self._keep_rates()

    def _keep_rates(self) -> None:
        self._rates = [float(group["lr"]) for group in self._optimizer.param_groups]

    def _set_rates(self) -> None:
        """Those of the schedule, if it has any."""
        for group, rate in zip(self._optimizer.param_groups, self._rates, strict=True) if self._sets_rates else ():
            group["lr"] = rate
