"""Quantization-aware training: the net learns to round as int8 does, the unquantized net its teacher."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from edgecompress.core.model import Artifact, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_edits, torch_module
from edgecompress.techniques import _qat as rounding
from edgecompress.techniques._training import setup
from edgecompress.techniques._training.data import Augment, Batch
from edgecompress.techniques._training.loop import Training, computing, zeros_kept
from edgecompress.techniques._training.options import TrainingOptions
from edgecompress.techniques._training.rates import Kind

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors", "torchao>=0.18")
EXTRA = "executorch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense", "training")
TRAINS = True
RUNG = 60
KNOBS = {"epochs": Knob(low=1, high=8, log=True)}

FEW, CAUTION = 500, 30  # below so many items the rate is divided: at full rate 64 pictures spoil an ImageNet net
STEPS = 8  # of an epoch, at least: no batch norm is computed from a batch, so a small one does no harm
NO_LAYER = "no convolution and no linear layer: there is nothing to quantize"


@dataclass(frozen=True)
class Options(TrainingOptions):
    """How it is trained, and what it is trained for."""

    # small: batch norms that stay hold nothing back, and the net is nearly there
    RATES: ClassVar = {"sgd": 0.0005, "adamw": 0.0003}
    weight_bits: Literal[8, 4] = 8  # of weights, per channel; activations have 8
    watch: float = 0.5  # of the epochs: as long the ranges of activations follow the data, then they stay
    epochs: int = 4
    minutes: float | None = None  # instead of epochs: as many as fit, by the time of the first steps; kept on resume
    batch_size: int = 128  # at most: an epoch of little data has 8 steps
    optimizer: Literal["sgd", "adamw"] = "adamw"  # sgd: with Nesterov's momentum of 0.9; it diverges sooner
    lr: float | None = None  # the highest of the schedule; None: 0.0003 (adamw) or 0.0005 (sgd), less with few items
    weight_decay: float = 1e-4
    schedule: Kind = "cosine"  # after a short warm-up; step: a tenth from each milestone on; constant
    milestones: tuple[float, ...] = (0.5, 0.75)  # of the schedule "step", as shares of it
    augment: tuple[Augment, ...] | None = (
        None  # flip (mirror), crop (shift by 4 pixels at most); None: as the source says
    )
    distill: float = 0.9  # 0: labels alone .. 1: what the unquantized net answers alone
    temperature: float = 4.0  # of the distillation of classes
    loss: Literal["auto", "cross_entropy", "mse"] = "auto"  # auto: by the labels, whole numbers are classes
    amp: Literal["auto", "on", "off"] = "off"  # 16-bit computing, which rounds by itself; auto: where it is fast
    loop: str = ""  # the user's own, pkg.mod:fn, called as fn(net, training); empty: ours

    def __post_init__(self) -> None:
        setup.check(self)
        if not 0 <= self.watch <= 1:
            raise ValueError("watch must be between 0 and 1")


@dataclass
class Rounded(Training):
    """Training that tells its student from which epoch on the ranges of activations stay."""

    goes_back: ClassVar[bool] = False  # ranges are learned on the way: what it begins with has none
    student: torch.nn.Module | None = None

    @property
    def options(self) -> Options:
        """The technique's."""
        options: Options = self.request.options
        return options

    def batches(self, epoch: int) -> Iterator[Batch]:
        """As ever."""
        assert self.student is not None
        self.student.watch(epoch < self.options.watch * self.options.epochs)
        return super().batches(epoch)


def apply(request: Request) -> Artifact:
    """The module, its weights trained to be rounded; inputs: "model", "samples" (select), "dense" (the unquantized
    net), "training" (train).

    It stays in float: whatever quantizes its weights per channel, evenly on both sides of zero, from extreme to
    extreme, has the grid that it was trained on. After Jacob et al. 2018, arXiv:1712.05877, section 3.

    facts: {"weight_bits", "layers": how many are rounded} and those of `finetune`; {"lost": why} where nothing can be
    done. Raises InputError for data that cannot train or a net that cannot be traced, StageFailed where the loss
    diverges.
    """
    device = setup.best_device()
    request = _careful(setup.settled(request), setup.training_items(request, device).count)
    net = torch_module.rebuild(request.model)
    if layer := rounding.recurrent(net):
        lost = f"no quantization-aware training of a recurrent net: PyTorch's quantizer leaves '{layer}' as it is"
        return torch_module.save(net, request, [], {"lost": lost})
    training = setup.training(request, device, Rounded, STEPS)
    assert isinstance(training, Rounded)
    net = setup.placed(net, device, request.model)
    with computing(setup.cores(), device):
        student = rounding.student(net, training.items, request.options.weight_bits, training.size)
        if student is None:
            return torch_module.save(net.to("cpu"), request, [], {"lost": NO_LAYER})
        training.student = student
        # zeros of the net stay: the grid has one
        zeros = torch_edits.zeros(torch_module.edits(training.request.model))
        with zeros_kept(student, [rounding.OWN + name for name in zeros]):
            setup.train(student, training)
    rounding.taken_back(net, student)
    facts = {"weight_bits": request.options.weight_bits, "layers": student.layers, **setup.facts(training)}
    return torch_module.save(net.to("cpu").eval(), request, [], facts)


def _careful(request: Request, items: int) -> Request:
    """With the rate that so few items bear, where the options name none."""
    options = request.options
    if options.lr is not None or items >= FEW:
        return request
    return replace(request, options=replace(options, lr=options.rate / CAUTION))
