"""Training after compression, by a built-in or own loop, distilling from the unpruned net; keeps shapes and zeros."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgecompress.core.errors import InputError, blamed
from edgecompress.core.model import Artifact, Request
from edgecompress.core.settings import Knob
from edgecompress.formats import torch_edits, torch_module
from edgecompress.techniques._training import batch_norms, setup
from edgecompress.techniques._training.data import Augment
from edgecompress.techniques._training.loop import Training, computing, zeros_kept
from edgecompress.techniques._training.options import TrainingOptions
from edgecompress.techniques._training.rates import Kind

if TYPE_CHECKING:
    import torch

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense", "training")
TRAINS = True
KNOBS = {"epochs": Knob(low=1, high=20, log=True)}
FILE_OPTIONS = ("early",)


@dataclass(frozen=True)
class Options(TrainingOptions):
    """How it is trained."""

    epochs: int = 20
    minutes: float | None = None  # instead of epochs: as many as fit, by the time of the first steps; kept on resume
    batch_size: int = 128
    # sgd: with Nesterov's momentum; None: adamw for recurrent layers, embeddings and layer norms, sgd for others
    optimizer: Literal["sgd", "adamw"] | None = None
    momentum: float = 0.9  # of sgd; 0: plain steps
    lr: float | None = None  # the highest of the schedule; None: 0.05 for sgd, 0.001 for adamw, or what a net bears
    weight_decay: float = 1e-4
    schedule: Kind = "cosine"  # after a short warm-up; step: a tenth from each milestone on; constant
    milestones: tuple[float, ...] = (0.5, 0.75)  # of the schedule "step", as shares of it
    clip: float | None = None  # the largest norm of all gradients together; None: any
    plateau: float | None = None  # what the rate is divided by after an epoch that is no better on select: 4
    rewind: Literal["none", "lr", "weights"] = "none"  # the last `epochs` of the schedule of the dense net's training
    original_epochs: int | None = None  # how many that training had, where something is rewound
    early: str = ""  # rewind = "weights": a .safetensors file of the dense net's weights `epochs` before its end
    augment: tuple[Augment, ...] | None = (
        None  # flip (mirror), crop (shift by 4 pixels at most); None: as the source says
    )
    distill: float = 0.9  # 0: labels alone .. 1: what the unpruned net answers alone
    teacher: str = ""  # a factory, pkg.mod:fn, or another variant of the target; empty: the uncompressed net
    temperature: float = 4.0  # of the distillation of classes
    loss: Literal["auto", "cross_entropy", "mse"] = "auto"  # auto: by the labels, whole numbers are classes
    amp: Literal["auto", "on", "off"] = "auto"  # 16-bit computing; auto: on a GPU, and on a CPU made for it
    loop: str = ""  # the user's own, pkg.mod:fn, called as fn(net, training); empty: ours

    def __post_init__(self) -> None:
        setup.check(self)
        if self.rewind != "none" and (self.original_epochs or 0) < self.epochs:
            raise ValueError(
                "rewind needs original_epochs, the number of epochs that trained the dense net, at least `epochs`"
            )
        if (self.rewind == "weights") != bool(self.early):
            raise ValueError("early (the dense net's early weights) is used with rewind = 'weights' only")

    @property
    def nesterov(self) -> bool:
        """Where there is a momentum, it is Nesterov's."""
        return self.momentum > 0

    @property
    def whole_epochs(self) -> int:
        """Epochs of the schedule that the last `epochs` are trained of."""
        return self.epochs if self.rewind == "none" else self.original_epochs or self.epochs


def apply(request: Request) -> Artifact:
    """The module, trained; inputs: "model", "samples" (select), "dense" (the unpruned net), "training" (train).

    facts: {"epochs": [{"epoch", "lr", "loss", "select"}], "samples": items, "split": whose, "batch_size", "device",
    "amp", "distill": the weight used, "metric": what "select" counts, "went_back": to which epoch, "log"}. Raises
    InputError for data that cannot train, StageFailed where the loss diverges.
    """
    net = torch_module.rebuild(request.model)
    request = setup.settled(request, net)
    device = setup.best_device()
    training = setup.training(request, device, Training)
    kept = torch_edits.zeros(torch_module.edits(request.model))
    net = setup.placed(net, device, request.model)
    with computing(setup.cores(), device), zeros_kept(net, kept) as settle:
        _rewind(net, request)
        settle()
        with batch_norms.apart(net, training):
            setup.train(net, training)
    net = net.to("cpu").eval()
    return torch_module.save(net, request, [], setup.facts(training))


# --------------------------------------------------------------------------- rewinding


def _rewind(net: torch.nn.Module, request: Request) -> None:
    """Sets all weights to the dense net's early ones where rewind = "weights".

    Raises InputError for a net whose layers were changed: which of the early weights are left is not known.
    """
    options: Options = request.options
    if options.rewind != "weights":
        return
    changed = next((e for e in torch_module.edits(request.model) if e["edit"] not in ("zeros", "levels")), None)
    if changed:
        raise InputError(
            f"rewind = 'weights': '{changed['module']}' has changed its shape, so the early weights do not fit; use "
            "rewind = 'lr'"
        )
    early = _early(Path(options.early))
    state = net.state_dict()
    wrong = [n for n in {**state, **early} if n not in state or n not in early or early[n].shape != state[n].shape]
    if wrong:
        raise InputError(
            f"{options.early}: its tensors do not match the net's (first: '{wrong[0]}'); give the dense net's weights"
        )
    net.load_state_dict(early)


def _early(file: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(file.read_bytes()))  # read here: what is opened here belongs to the stage's key
    except (OSError, SafetensorError) as error:
        raise blamed(error)(f"{file}: no weights can be read from it: {error}; give a .safetensors file") from error
