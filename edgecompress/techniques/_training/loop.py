"""Training a net: what a loop is given (batches, the loss, checkpoints, progress), and what is set around it."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import AFTER_EPOCH, Request
from edgecompress.core.plain_text import fitted
from edgecompress.data import states
from edgecompress.formats import torch_module, torch_outputs
from edgecompress.techniques._training import checkpoint, log
from edgecompress.techniques._training.data import Batch, Items, augmented, contiguous, images, shuffled, spread
from edgecompress.techniques._training.losses import PERPLEXITY, Named, Objective
from edgecompress.techniques._training.options import TrainingOptions
from edgecompress.techniques._training.pace import Pace
from edgecompress.techniques._training.rates import rewound, share

if TYPE_CHECKING:
    import numpy as np
    import torch

SELECTED = 1000  # items of the split "select" that are looked at after an epoch
SELECT_BATCH = 250
SIDE_BY_SIDE = 10  # parts of "select" that a net with state reads at once
LARGEST = 700.0  # nats of a perplexity that is still a number
WORDS = {
    "top1": "top-1 {:.1f} %",
    PERPLEXITY: "perplexity {:.4g}",
    "agreement": "agreement {:.1f} %",
    "mse": "mse {:.4g}",
    "distance": "distance {:.4g}",
}
PERCENT = {"top1": 100, "agreement": 100}  # of what is a share


@dataclass
class Best:
    """The weights with the best score on "select": of an epoch, or those that training began with (0)."""

    epoch: int = 0
    score: float | None = None
    began: float | None = None  # the score at the beginning
    rate: float = 1.0  # the share of the usual learning rate that is trained with
    weights: dict[str, torch.Tensor] = field(default_factory=dict)  # by their place in the net's state

    def keep(self, net: torch.nn.Module, epoch: int) -> None:
        """Those of now."""
        self.epoch = epoch
        self.weights = {str(i): tensor.detach().clone() for i, tensor in enumerate(net.state_dict().values())}

    def state_dict(self) -> dict[str, Any]:
        """All of it."""
        return vars(self)

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """The inverse."""
        vars(self).update(state_dict)
        self.weights = dict(sorted(self.weights.items(), key=lambda item: int(item[0])))


@dataclass
class Training:
    """What a training loop is given. The smallest loop of one's own:

        def loop(net, training):
            optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
            for epoch in range(training.resume(net, optimizer), training.options.epochs):
                for inputs, labels in training.batches(epoch):
                    loss = training.loss(net, inputs, labels)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                training.ended(net, optimizer)

    What is zero by a "zeros" edit is set to zero again after each step of any optimizer.
    """

    keeps_shapes: ClassVar[bool] = True  # of all tensors of the net, which has no new ones
    goes_back: ClassVar[bool] = True  # to an earlier epoch, where it ends worse than it began
    request: Request
    device: torch.device  # the net's
    amp: str  # "off", or the type of autocast: "bfloat16", "float16"
    items: Items  # that it trains on
    select: Items
    dense: torch.nn.Module | None  # the unpruned net, in eval mode on the device; None where nothing is distilled
    objective: Objective
    size: int  # of a batch
    history: list[checkpoint.EpochRecord] = field(default_factory=list)
    last: torch.Tensor | None = None  # the loss of the last step
    went_back: int | None = None  # the epoch whose weights `settle` took; 0: none
    part: int = 0  # which one it is of `parts` trainings, one after the other: generations
    parts: int = 1
    most: int | None = None  # batches of an epoch at most
    best: Best = field(default_factory=lambda: Best())
    begins: np.ndarray | None = None  # of a batch of a net with state: the items before which it is zero
    carried: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)  # the state of each net that is called

    def __post_init__(self) -> None:
        self._set_off(0)

    @property
    def options(self) -> TrainingOptions:
        """The technique's."""
        options: TrainingOptions = self.request.options
        return options

    @property
    def steps(self) -> int:
        """Batches of an epoch."""
        whole = self.items.count // self.size
        return whole if self.most is None else min(whole, self.most)

    def limit(self, steps: int) -> None:
        """An epoch has so many batches at most, and as many epochs as the options now say."""
        self.most = steps
        self._set_off(0)

    def _set_off(self, done: int) -> None:
        """The pace from here, so many epochs of this part being done."""
        each = self.options.epochs * self.steps
        self.pace = Pace(self.parts * each, self._at(done))

    def _at(self, epoch: int, steps: int = 0) -> int:
        """Steps that are done of all parts, after epochs of this one and steps of the next."""
        return int(self.part * self.options.epochs + epoch) * self.steps + steps

    # ------------------------------------------------------------------ a step

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Inputs by name and labels (or None) of each batch of an epoch, counted from 0; the same at each call.

        The order, the augmentation and torch's own chances (dropout) follow from the seed and the epoch alone. The
        batches of a net with state follow each other, and what `call` computes begins with the state of the one before.
        """
        import numpy as np
        import torch

        seeds = np.random.SeedSequence([self.request.context.seed, epoch])
        torch.manual_seed(int(seeds.generate_state(1)[0]))
        generator, layouts = np.random.default_rng(seeds), images(self.items.model)
        order: Iterator[tuple[np.ndarray, np.ndarray | None]]
        if states.names(self.items.model):
            order = contiguous(self.items.count, self.size, self.items.sequence)
            self.carried.clear()
        else:
            order = ((index, None) for index in shuffled(self.items.count, self.size, generator))
        try:
            for step, (index, begins) in enumerate(islice(order, self.steps)):
                inputs, labels = self.items.take(index)
                self.begins = begins
                yield augmented(inputs, layouts, self.options.augment or (), generator), labels
                self._report(epoch, step + 1)
        finally:
            self.begins = None

    def call(self, net: torch.nn.Module, inputs: Named) -> dict[str, torch.Tensor]:
        """The net's outputs by name, real ones in float32, computed as `amp` says; with gradients where they are on.

        In batches that follow each other its state is the one that it was left in.
        """
        import torch

        model, kind = self.request.model, getattr(torch, self.amp) if self.amp != "off" else None
        if self.begins is not None:
            inputs = {**inputs, **self._state(net, inputs)}
        with torch.autocast(self.device.type, kind, enabled=kind is not None):
            outputs = torch_module.call(net, inputs)
        found = torch_outputs.flatten(outputs, [spec.name for spec in model.outputs])
        found = {n: t.float() if t.is_floating_point() else t for n, t in found.items()}
        if self.begins is not None:
            self.carried[id(net)] = {s.feeds: found[s.name].detach() for s in model.outputs if s.feeds}
        return found

    def _state(self, net: torch.nn.Module, inputs: Named) -> dict[str, torch.Tensor]:
        """What a net of a batch behind another begins with."""
        import torch

        fed, before = states.names(self.request.model), self.carried.get(id(net), {})
        begins = torch.from_numpy(self.begins).to(self.device)
        given = {}
        for spec in (each for each in self.request.model.inputs if each.name in fed):
            old = before.get(spec.name, inputs[spec.name])
            axis = spec.batch_axis
            sizes = [-1 if axis == each else 1 for each in range(old.dim())]
            given[spec.name] = old.masked_fill(begins.reshape(sizes), 0)
        return given

    def loss(self, net: torch.nn.Module, inputs: dict[str, torch.Tensor], labels: torch.Tensor | None) -> torch.Tensor:
        """Of one batch, as the options say: on the labels, and the distance to the unpruned net."""
        loss = self.objective.loss(self.call(net, inputs), self._taught(inputs), labels)
        self.last = loss.detach()
        return loss

    def rate(self, epoch: int, step: int) -> float:
        """The learning rate of a step, as the options say."""
        o = self.options
        whole = o.whole_epochs * self.steps
        at = rewound(epoch * self.steps + step, o.epochs * self.steps, whole)
        return float(self.best.rate * o.rate * share(o.schedule, o.milestones, at, whole))

    def _taught(self, inputs: Named) -> Named | None:
        import torch

        if self.dense is None:
            return None
        with torch.no_grad():
            return self.call(self.dense, inputs)

    # ------------------------------------------------------------------ an epoch

    def resume(self, net: torch.nn.Module, optimizer: torch.optim.Optimizer, *others: checkpoint.Stateful) -> int:
        """How many epochs are done: those of the last checkpoint, to which net and optimizer are set; else 0.

        `others`, here and in `ended`, is what else has a `state_dict` of numbers and tensors: a scheduler, a scaler.
        """
        card = self._checkpoint(checkpoint.State(net, optimizer, (*others, self.best)))
        self.history[:] = card.get("history", [])
        done = len(self.history)
        if done:
            self._say(f"resuming {AFTER_EPOCH} {done} of {self.options.epochs}, from its checkpoint")
        elif self.goes_back:
            self.best = Best()
            self.best.began = self.best.score = self.score(net)
            self.best.keep(net, 0)
        self._set_off(done)
        return done

    def ended(
        self,
        net: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *others: checkpoint.Stateful,
        loss: float | None = None,
    ) -> None:
        """An epoch is done: scores the split "select", reports, keeps a checkpoint. `loss`: its mean over the epoch.

        Raises StageFailed when the loss is not finite: its weights are worth nothing.
        """
        epoch = len(self.history) + 1
        self._check(loss, epoch)
        rate = float(optimizer.param_groups[0]["lr"])
        self.history.append({"epoch": epoch, "lr": rate, "loss": loss, "select": self.score(net)})
        self.scored(net)
        score, before = self.history[-1]["select"], self.best.score
        if score is not None and not self._worse(score, before):
            self.best.score = score
            self.best.keep(net, epoch)
        if self.options.plateau and score is not None and before is not None and not self._worse(before, score):
            self.slow(optimizer)
        self._log(net)
        self._keep(checkpoint.State(net, optimizer, (*others, self.best)))
        self._progress(self._at(epoch), self._words(f"{AFTER_EPOCH} {epoch}", loss))

    def slow(self, optimizer: torch.optim.Optimizer) -> None:
        """The rate falls: an epoch was no better than one before."""
        self.best.rate /= self.options.plateau or 1.0

    def scored(self, net: torch.nn.Module) -> None:
        """What a technique does with an epoch's record, the last of `history`, before the checkpoint."""

    def _worse(self, score: float, other: float | None, by: float = 0.0) -> bool:
        return other is not None and (score < other - by if self.metric in PERCENT else score > other + by)

    def _chance(self, score: float) -> float:
        """The standard error of the difference of a score and that of the beginning: less is no difference."""
        if self.metric not in PERCENT or self.best.began is None:
            return 0.0
        mean = (score + self.best.began) / 2
        return math.sqrt(2 * mean * (1 - mean) / min(self.select.count, SELECTED))

    def settle(self, net: torch.nn.Module) -> None:
        """Sets a net that ended worse on "select" than it began to its best epoch, or to what it was.

        Worse by more than a standard error, as in the rule of Breiman et al. 1984: one item tells nothing.
        """
        last = self.history[-1]["select"] if self.history else None
        if self.goes_back and last is not None and self._worse(last, self.best.began, self._chance(last)):
            epoch = self.best.epoch
            net.load_state_dict(dict(zip(net.state_dict(), self.best.weights.values(), strict=True)))
            self.went_back = epoch
            kept = f"the weights {AFTER_EPOCH} {epoch} are kept" if epoch else "the net stays as it was"
            self._say(f"{AFTER_EPOCH} {len(self.history)} it is worse on the split select than it was before: {kept}")

    def progress(self, fraction: float, what: str) -> None:
        """Tells whoever waits: the part that is done, 0..1, and words."""
        self.request.progress(min(fraction, 1.0), what)

    @property
    def metric(self) -> str | None:
        """What `score` counts; None where there is nothing to compare the net with."""
        labelled = self._labelled
        return self.objective.metric(labelled) if labelled or (self.dense and self.select.count) else None

    @property
    def _labelled(self) -> bool:
        return self.items.labels is not None and self.select.labels is not None

    def score(self, net: torch.nn.Module) -> float | None:
        """The mean score of at most 1000 items of "select", in float32: against labels, else the unpruned net."""
        import torch

        if self.metric is None:
            return None
        was, amp = net.training, self.amp
        net.eval()
        self.amp = "off"
        fixed = isinstance(self.request.model.batch, int)
        order: Iterable[tuple[np.ndarray, np.ndarray | None]]
        if states.names(self.request.model):
            most = min(self.select.count, SELECTED)
            order = contiguous(most, min(most, self.size if fixed else SIDE_BY_SIDE), self.select.sequence)
        else:
            chosen, size = spread(self.select.count, SELECTED), self.size if fixed else SELECT_BATCH
            order = ((chosen[begin : begin + size], None) for begin in range(0, len(chosen), size))
        parts = []
        self.carried.clear()
        with torch.inference_mode():
            for index, begins in order:
                self.begins = begins
                parts.append(self._scores(net, index))
        scores = torch.cat(parts)
        self.begins, self.amp = None, amp
        net.train(was)
        mean = float(scores.double().mean())
        return math.exp(min(mean, LARGEST)) if self.metric == PERPLEXITY else mean

    def _scores(self, net: torch.nn.Module, index: np.ndarray) -> torch.Tensor:
        """Of each of those items; a net of a fixed batch gets it whole, filled up with the last item."""
        import numpy as np

        fixed = isinstance(self.request.model.batch, int)
        more = (0, self.size - len(index) if fixed else 0)
        whole = np.pad(index, more, mode="edge")
        self.begins = None if self.begins is None else np.pad(self.begins, more, mode="edge")
        inputs, labels = self.select.take(whole)
        taught = None if self._labelled else self._taught(inputs)
        return self.objective.scores(self.call(net, inputs), taught, labels if self._labelled else None)[: len(index)]

    # ------------------------------------------------------------------ what is reported and kept

    def _report(self, epoch: int, steps: int) -> None:
        """After a step, at most once in a second: reading the loss waits for a GPU."""
        if not self.pace.due():
            return
        loss = None if self.last is None else float(self.last)
        self._check(loss, epoch + 1)
        self._progress(self._at(epoch, steps), self._words(f"epoch {epoch + 1}", loss))

    def _progress(self, done: int, words: str) -> None:
        self.progress(done / self.pace.total, words + self.pace.left(done))

    def _check(self, loss: float | None, epoch: int) -> None:
        if loss is not None and not math.isfinite(loss):
            raise StageFailed(
                f"training: the loss is {loss} in epoch {epoch} of {self.options.epochs}: it diverged; "
                f"lower lr (it was {self.options.rate:g}), or set amp = 'off'"
            )

    def _words(self, where: str, loss: float | None) -> str:
        words = f"generation {self.part + 1} of {self.parts}, " if self.parts > 1 else ""
        words += f"{where} of {self.options.epochs}"
        words += "" if loss is None else f", loss {loss:.4g}"
        select = self.history[-1]["select"] if self.history else None
        if select is None or self.metric is None:
            return words
        of_pixels = self.metric == "top1" and self.items.labels is not None and self.items.labels.ndim > 1
        shown = "{:.1f} % of labels right" if of_pixels else WORDS[self.metric]
        return f"{words}, select {shown.format(select * PERCENT.get(self.metric, 1))}"

    def _checkpoint(self, state: checkpoint.State) -> checkpoint.Card:
        if self.request.keep is None:
            return {}
        try:
            return checkpoint.load(self.request.keep / self._run, state, self._of())
        except checkpoint.Damaged as error:
            self._say(f"starting again from epoch 1: the checkpoint cannot be used: {error}")
            return {}

    def _log(self, net: torch.nn.Module) -> None:
        """The epoch's numbers for TensorBoard, and the weights as a table in the stage's log.

        Gradients are those of the epoch's last step.
        """
        newest = self.history[-1]
        named = {"train/loss": newest["loss"], "train/lr": newest["lr"], f"select/{self.metric}": newest["select"]}
        named["train/sparsity"] = newest.get("sparsity")
        tensors, rows = dict[str, "torch.Tensor"](), [("weight", "zero", "norm", "norm of the gradient")]
        for name, weight in net.named_parameters():
            zeros, norm = 1 - int(weight.count_nonzero()) / max(weight.numel(), 1), float(weight.detach().norm())
            named |= {f"sparsity/{name}": zeros, f"norm/{name}": norm}
            tensors[f"weights/{name}"] = weight
            if weight.grad is not None:
                named[f"gradient norm/{name}"] = float(weight.grad.norm())
                tensors[f"gradients/{name}"] = weight.grad
            steep = "" if weight.grad is None else f"{named[f'gradient norm/{name}']:.3g}"
            rows.append((name, f"{zeros:.1%}", f"{norm:.4g}", steep))
        told = "\n".join(f"  {line}" for line in fitted(rows, 98))
        print(f"training: {AFTER_EPOCH} {newest['epoch']}\n{told}", file=sys.stderr, flush=True)
        if self.request.keep is not None and log.available():
            values = {tag: value for tag, value in named.items() if value is not None}
            log.write(self.request.keep / log.FOLDER / self._run, newest["epoch"], values, tensors)

    def _keep(self, state: checkpoint.State) -> None:
        if self.request.keep is not None:
            checkpoint.save(self.request.keep / self._run, state, {"of": self._of(), "history": self.history})

    @property
    def _run(self) -> str:
        """The folder of this part, below what is kept and below the log."""
        return f"generation-{self.part + 1}" if self.parts > 1 else ""

    def _of(self) -> str:
        """Which training this is: its inputs, options, seed and device."""
        request = self.request
        shas = {role: artifact.sha256 for role, artifact in sorted(request.inputs.items())}
        which = f"{request.options} seed {request.context.seed} part {self.part}"
        return f"{shas} {which} {self.device.type} {self.amp}"

    def _say(self, words: str) -> None:
        """To the listener, and to the stage's log."""
        print(f"training: {words}", file=sys.stderr, flush=True)
        self.progress(self._at(0) / self.pace.total, words)


# --------------------------------------------------------------------------- around it


@contextlib.contextmanager
def zeros_kept(net: torch.nn.Module, names: Sequence[str]) -> Iterator[Callable[..., None]]:
    """What is zero now in those parameters is set to zero again after each step of any optimizer, and at the end.

    And when what it gives is called.
    """
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    parameters = [net.get_parameter(name) for name in names]
    masks = [(p.detach() != 0).to(p.dtype) for p in parameters]

    def again(*_: object) -> None:
        with torch.no_grad():
            for parameter, mask in zip(parameters, masks, strict=True):
                parameter.mul_(mask)

    handle = register_optimizer_step_post_hook(again) if names else None
    try:
        yield again
        again()
    finally:
        if handle:
            handle.remove()


@contextlib.contextmanager
def computing(threads: int, device: torch.device) -> Iterator[None]:
    """Threads, chances and, on a GPU, deterministic kernels (where there are some) for training; then as before."""
    import torch

    was = torch.get_num_threads()
    strict, lenient = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(strict or device.type == "cuda", warn_only=True)
    try:
        with torch.random.fork_rng():
            yield
    finally:
        torch.set_num_threads(was)
        torch.use_deterministic_algorithms(strict, warn_only=lenient)
