"""Training under one of Distiller's YAML schedules: it prunes, regularizes and sets learning rates as the file says."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request, sha256_of
from edgecompress.extras.schedules import post_training, reader, thinning
from edgecompress.extras.schedules.reader import Schedule
from edgecompress.extras.schedules.scheduler import CompressionScheduler
from edgecompress.formats import sparsity, torch_edits, torch_module
from edgecompress.techniques import _sparsity
from edgecompress.techniques._calibration import inputs_of, spread, used
from edgecompress.techniques._training import batch_norms, checkpoint, setup
from edgecompress.techniques._training.data import Augment, Batch
from edgecompress.techniques._training.loop import Training, computing, zeros_kept
from edgecompress.techniques._training.options import TrainingOptions

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors", "pyyaml")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense", "training")
TRAINS = True
ZEROS = True
FILE_OPTIONS = ("file",)

CALIBRATED = 32  # items of a batch of a quantizer without training
HIGHER = ("top1", "agreement")  # scores of which the higher is better


@dataclass(frozen=True)
class Options(TrainingOptions):
    """The file, and what Distiller takes from its command line."""

    file: str = ""  # the schedule, a YAML file; relative to the target's file
    rename: tuple[str, ...] = ()  # of modules that the net calls otherwise than the file: ["layer3=stage2"]
    epochs: int = 90  # here and below the defaults are Distiller's
    batch_size: int = 256
    lr: float = 0.1  # of SGD; it stays, or is what the file's lr_schedulers begin with
    momentum: float = 0.9  # not Nesterov's
    weight_decay: float = 1e-4
    clip: float | None = None  # the largest norm of all gradients together; None: any
    plateau: float | None = None  # what the rate is divided by after an epoch that is no better on select: 4
    augment: tuple[Augment, ...] | None = None  # flip (mirror), crop (shift by 4 pixels at most); None: the source's
    distill: float = 0.0  # 0: labels alone .. 1: what the teacher answers alone
    temperature: float = 4.0  # of the distillation of classes
    teacher: str = ""  # a factory, pkg.mod:fn, or another variant of the target; empty: the uncompressed net
    loss: Literal["auto", "cross_entropy", "mse"] = "auto"  # auto: by the labels, whole numbers are classes
    amp: Literal["auto", "on", "off"] = "off"  # 16-bit computing; auto: on a GPU, and on a CPU made for it
    loop: str = ""  # the user's own, pkg.mod:fn, called as fn(net, training); empty: ours

    def __post_init__(self) -> None:
        setup.check(self)

    @property
    def nesterov(self) -> bool:
        """Distiller's momentum is not."""
        return False


class ScheduleFacts(setup.TrainingFacts):
    """And what the schedule did: what is odd about it on this net, the zeros that stay, Distiller's table."""

    warnings: list[str]
    sparsity: _sparsity.PrunedWeights
    weights: list[sparsity.WeightSparsity]


@dataclass
class Scheduled(Training):
    """Training in which a schedule acts around the steps of any loop."""

    goes_back: ClassVar[bool] = False  # a later epoch is of another net
    keeps_shapes: ClassVar[bool] = False  # a quantizer learns where activations are clipped, and nets are thinned
    schedule: Schedule | None = None
    acting: tuple[CompressionScheduler, torch.optim.Optimizer] | None = None

    @property
    def options(self) -> Options:
        """The technique's."""
        options: Options = self.request.options
        return options

    @property
    def scheduler(self) -> CompressionScheduler:
        """What acts; raises InputError for a loop that names no optimizer for it."""
        if self.acting is None:
            raise InputError(
                f"{self.options.loop}: call training.resume(net, optimizer) first: a schedule acts on both"
            )
        return self.acting[0]

    def example(self) -> list[torch.Tensor]:
        """What the net is called with."""
        model, samples = self.request.model, self.request.inputs["samples"]
        one = torch_module.example(model, samples, model.batch if isinstance(model.batch, int) else 1)
        return [tensor.to(self.device) for tensor in one.values()]

    def batches(self, epoch: int) -> Iterator[Batch]:
        """As ever; masks are chosen before the first one, applied before each, and hold after its step."""
        for step, batch in enumerate(super().batches(epoch)):
            if step == 0:
                self.scheduler.on_epoch_begin(epoch)
            self.scheduler.on_minibatch_begin(epoch, step, self.steps)
            yield batch
            self.scheduler.on_minibatch_end()

    def loss(self, net: torch.nn.Module, inputs: dict[str, torch.Tensor], labels: torch.Tensor | None) -> torch.Tensor:
        """Of one batch, with what the regularizers add."""
        loss = self.scheduler.before_backward_pass(super().loss(net, inputs, labels))
        self.last = loss.detach()
        return loss

    def rate(self, epoch: int, step: int) -> float:
        """As the schedule has set it."""
        assert self.acting is not None  # our own loop
        return float(self.acting[1].param_groups[0]["lr"])

    def resume(self, net: torch.nn.Module, optimizer: torch.optim.Optimizer, *others: checkpoint.Stateful) -> int:
        """As ever; from now on the schedule acts on this net and optimizer."""
        assert self.schedule is not None
        self.acting = CompressionScheduler(net, optimizer, self.schedule, self.example()), optimizer
        optimizer.register_step_pre_hook(lambda *_: self.scheduler.before_parameter_optimization())
        return super().resume(net, optimizer, *others, self.scheduler)

    def ended(
        self,
        net: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        *others: checkpoint.Stateful,
        loss: float | None = None,
    ) -> None:
        """As ever; what the schedule remembers is kept, too."""
        super().ended(net, optimizer, *others, self.scheduler, loss=loss)

    def _of(self) -> str:
        """And by which schedule."""
        return f"{super()._of()} {sha256_of(Path(self.options.file))}"

    def slow(self, optimizer: torch.optim.Optimizer) -> None:
        """The rate falls, which the schedule may set."""
        for group in optimizer.param_groups:
            group["lr"] /= self.options.plateau or 1.0

    def scored(self, net: torch.nn.Module) -> None:
        """Masks are kept for good and the next learning rates set; "min" of a plateau is the loss on what trains."""
        newest = self.history[-1]
        loss, score = newest["loss"], newest["select"]
        metrics = {"min": loss, "max": score if self.metric in HIGHER else None}
        self.scheduler.on_epoch_end({name: value for name, value in metrics.items() if value is not None})
        newest["sparsity"] = _share_of_zeros(net)


def apply(request: Request) -> Artifact:
    """The module, trained; inputs: "model", "samples" (select), "dense" (the uncompressed net), "training" (train).

    facts: those of finetune, each epoch with its "sparsity", 0..1; "warnings" of the schedule; "sparsity": those of
    the techniques that prune; "weights": see formats.sparsity; {"lost": why} where no file is named. A quantizer
    without training is given the split "calibrate", and has facts of its own. Raises InputError for a schedule that is
    wrong or does not fit the net, and for data that cannot train; StageFailed where the loss diverges.
    """
    request = setup.settled(request)
    net = torch_module.rebuild(request.model)
    if not request.options.file:
        return torch_module.save(net, request, [], {"lost": "no schedule is named: give its YAML file as `file`"})
    schedule = reader.read(request.options.file, request.options.rename)
    if post_training.quantizer(schedule):
        return _without_training(request, net, schedule)
    device = setup.best_device()
    training = setup.training(request, device, Scheduled)
    training.schedule = schedule
    kept = torch_edits.zeros(torch_module.edits(request.model))
    if kept and schedule.thins:
        raise InputError(f"{schedule.path}: it thins a net whose zeros an earlier step keeps; let it be the first step")
    net = setup.placed(net, device, request.model)
    with computing(setup.cores(), device), zeros_kept(net, kept), batch_norms.apart(net, training):
        odd = thinning.conflicts(net, schedule, training.example()) if schedule.thins else []
        last = max((policy.epochs[-1] for policy in schedule.policies if policy.kind == "pruner"), default=0) + 1
        if last > training.options.epochs:
            odd.append(f"{schedule.path}: its pruners act until epoch {last}, of which {training.options.epochs} train")
        setup.train(net, training)
        edits = training.scheduler.finish()
    net = net.to("cpu").eval()
    facts: ScheduleFacts = {
        **setup.facts(training),
        "warnings": [*schedule.warnings, *odd],
        "sparsity": _sparsity.told(_sparsity.weights(net), torch_edits.zeros(edits), {}, "by schedule"),
        "weights": [sparsity.row(name, weight.detach().numpy()) for name, weight in _tabled(net)],
    }
    return torch_module.save(net, request, edits, facts)


def _without_training(request: Request, net: torch.nn.Module, schedule: Schedule) -> Artifact:
    """The module on the grids of its calibration items; facts: "calibrated", how many, "warnings" and "weights"."""
    import torch

    size = request.model.batch if isinstance(request.model.batch, int) else CALIBRATED
    items = spread(request, None, size)
    batches = [tuple(map(torch.from_numpy, inputs_of(request, each).values())) for each in items]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        edits = post_training.quantize(net, schedule, batches)
    odd = [text for each in told if (text := str(each.message)).startswith(schedule.path)]
    facts = {
        "calibrated": used(items),
        "warnings": [*schedule.warnings, *odd],
        "weights": [sparsity.row(name, weight.detach().numpy()) for name, weight in _tabled(net)],
    }
    return torch_module.save(net, request, edits, facts)


def _tabled(net: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Parameter]]:
    """The weights of Distiller's table."""
    return ((name, weight) for name, weight in net.named_parameters() if weight.ndim in (2, 4))


def _share_of_zeros(net: torch.nn.Module) -> float:
    """Of all those weights together."""
    weights = [weight.detach() for _, weight in _tabled(net)]
    elements = sum(weight.numel() for weight in weights)
    return 1 - sum(int(weight.count_nonzero()) for weight in weights) / elements if elements else 0.0
