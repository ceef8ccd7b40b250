"""Training after compression: our loop or the user's, distilling from the unpruned net; shapes and zeros stay."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from edgecompress import machine, torch_edits, torch_net
from edgecompress.errors import EdgeError, InputError, StageFailed
from edgecompress.model import Artifact, Request
from edgecompress.stages import usercode
from edgecompress.techniques import _training_log as log
from edgecompress.techniques import _training_losses as losses
from edgecompress.techniques._training import Loop, Training, computing, fit, zeros_kept
from edgecompress.techniques._training_data import Augment, Items, check_augment
from edgecompress.techniques._training_rates import Kind

REQUIRES = ("torch", "safetensors")
EXTRA = "torch"
READS: tuple[str, ...] = ("module",)
WRITES = "module"
PROVIDES = ""
NEEDS: tuple[str, ...] = ("samples", "dense", "training")
TRAINS = True

TRAIN, LENDER = "train", "calibrate"  # the split that trains, and the one that is taken where there is none
RATES = {"sgd": 0.05, "adamw": 0.001}
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # of a CPU: it multiplies such numbers itself
NO_LOG = "none: tensorboard is not installed; run: pip install 'edgecompress[train]'"


@dataclass(frozen=True)
class Options:
    """How it is trained."""

    epochs: int = 20
    batch_size: int = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"  # SGD with Nesterov's momentum of 0.9
    lr: float | None = None  # the highest of the schedule; None: 0.05 for sgd, 0.001 for adamw
    weight_decay: float = 1e-4
    schedule: Kind = "cosine"  # after a short warm-up; step: a tenth from each milestone on; constant
    milestones: tuple[float, ...] = (0.5, 0.75)  # of the schedule "step", as shares of it
    rewind: Literal["none", "lr", "weights"] = "none"  # the last `epochs` of the schedule of the dense net's training
    original_epochs: int | None = None  # how many that training had, where something is rewound
    early: str = ""  # rewind = "weights": a .safetensors file of the dense net's weights `epochs` before its end
    augment: tuple[Augment, ...] | None = (
        None  # flip (mirror), crop (shift by 4 pixels at most); None: as the source says
    )
    distill: float = 0.9  # 0: labels alone .. 1: what the unpruned net answers alone
    temperature: float = 4.0  # of the distillation of classes
    loss: Literal["auto", "cross_entropy", "mse"] = "auto"  # auto: by the labels, whole numbers are classes
    amp: Literal["auto", "on", "off"] = "auto"  # 16-bit computing; auto: on a GPU, and on a CPU made for it
    loop: str = ""  # the user's own, pkg.mod:fn, called as fn(net, training); empty: ours

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.batch_size < 1:
            raise ValueError("epochs and batch_size are at least 1")
        if not 0 < self.rate < math.inf or not 0 <= self.weight_decay < math.inf:
            raise ValueError("lr is above 0, weight_decay at least 0")
        if not 0 <= self.distill <= 1 or not 0 < self.temperature < math.inf:
            raise ValueError("distill is between 0 and 1, temperature above 0")
        if not all(0 < a < b for a, b in zip(self.milestones, (*self.milestones[1:], 1.0), strict=True)):
            raise ValueError("milestones rise between 0 and 1")
        if self.rewind != "none" and (self.original_epochs or 0) < self.epochs:
            raise ValueError("rewind needs original_epochs: how many the dense net was trained for, at least `epochs`")
        if (self.rewind == "weights") != bool(self.early):
            raise ValueError("early, the dense net's early weights, belongs to rewind = 'weights'")

    @property
    def rate(self) -> float:
        """The highest learning rate."""
        return RATES[self.optimizer] if self.lr is None else self.lr

    @property
    def whole_epochs(self) -> int:
        """Epochs of the schedule that the last `epochs` are trained of."""
        return self.epochs if self.rewind == "none" else self.original_epochs or self.epochs


def apply(request: Request) -> Artifact:
    """The module, trained; inputs: "model", "samples" (select), "dense" (the unpruned net), "training" (train).

    facts: {"epochs": [{"epoch", "lr", "loss", "select"}], "samples": items, "split": whose, "batch_size", "device",
    "amp", "distill": the weight used, "metric": what "select" counts, "log"}. Raises InputError for data that cannot
    train, StageFailed where the loss diverges.
    """
    import torch

    request = replace(request, options=_settled(request))
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what makes cuBLAS deterministic
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = torch_net.rebuild(request.model)
    training = _training(request, device)
    kept = torch_edits.zeros(torch_net.edits(request.model))
    net = _placed(net, device, request.model)
    with computing(_cores(), device), zeros_kept(net, kept) as settle:
        _rewind(net, request)
        settle()
        _train(net, training)
    net = net.to("cpu").eval()
    return torch_net.save(net, request, [], _facts(training))


def _settled(request: Request) -> Options:
    """The options, with the source's own augmentation where they name none."""
    options: Options = request.options
    said = tuple(request.inputs["training"].facts.get("augment", ()))
    return options if options.augment is not None else replace(options, augment=said)


def _facts(training: Training) -> dict[str, Any]:
    return {
        "epochs": training.history,
        "samples": training.items.count,
        "split": training.items.split,
        "batch_size": training.size,
        "device": training.device.type,
        "amp": training.amp,
        "distill": training.objective.distill if training.dense is not None else 0.0,
        "metric": training.metric,
        "log": "TensorBoard" if log.available() else NO_LOG,
    }


# --------------------------------------------------------------------------- what is trained on


def _training(request: Request, device: Any) -> Training:
    """What the loop is given; raises InputError for data that does not do."""
    options: Options = request.options
    items, select = _items(request, device), Items(request.model, request.inputs["samples"], "select", device)
    check_augment(options.augment, items)
    _check_labels(items, options)
    objective = _objective(request, items)
    dense = _placed(_frozen(request.inputs["dense"]), device, request.model) if objective.distill else None
    fixed = request.model.inputs[0].shape[0]
    size = fixed if isinstance(fixed, int) else min(options.batch_size, items.count)
    if size > items.count:
        raise InputError(f"training: the net takes {size} items at once, the data has {items.count}; give it more")
    return Training(request, device, _amp(options, device), items, select, dense, objective, size)


def _items(request: Request, device: Any) -> Items:
    """The split "train", or "calibrate" where there is none; raises InputError where both are empty."""
    training, samples = request.inputs["training"], request.inputs["samples"]
    found = Items(request.model, training, TRAIN, device)
    found = found if found.count else Items(request.model, samples, LENDER, device)
    if not found.count:
        raise InputError(f"training: the splits '{TRAIN}' and '{LENDER}' are empty; give the data one of them")
    return found


def _check_labels(items: Items, options: Options) -> None:
    """Raises InputError where there are none and nothing is distilled, or where they are no classes of the net."""
    if items.labels is None:
        if options.distill == 0:
            raise InputError(f"the split '{items.split}' has no labels: give it labels, or set distill above 0")
        return
    if _kind(items, options) == "mse":
        return
    first = items.model.outputs[0]
    classes, low, high = first.shape[-1], int(items.labels.min()), int(items.labels.max())
    if items.labels.dtype.kind not in "iub" or low < 0 or (isinstance(classes, int) and high >= classes):
        raise InputError(
            f"the labels of '{items.split}' are {items.labels.dtype} from {low} to {high}, the output '{first.name}' "
            f"has the classes 0 to {classes - 1 if isinstance(classes, int) else classes.name}; correct the labels"
        )


def _kind(items: Items, options: Options) -> losses.Kind:
    return losses.kind_of(items.labels) if options.loss == "auto" else options.loss


def _objective(request: Request, items: Items) -> losses.Objective:
    """Compared are outputs of real numbers that are no state and are of one shape with the unpruned net's."""
    options: Options = request.options
    first = request.model.outputs[0].name
    dense = {spec.name: spec.shape for spec in request.inputs["dense"].outputs}
    alike = [s.name for s in request.model.outputs if s.dtype.startswith("float") and not s.feeds]
    alike = [n for s in request.model.outputs if (n := s.name) in alike and dense.get(n) == s.shape and n != first]
    weight = 1.0 if items.labels is None else options.distill
    return losses.Objective(_kind(items, options), weight, options.temperature, (first, *alike))


# --------------------------------------------------------------------------- where it is computed


def _frozen(dense: Artifact) -> Any:
    return torch_net.rebuild(dense).requires_grad_(False)


def _placed(net: Any, device: Any, model: Artifact) -> Any:
    """On the device; for pictures with its channels last in memory, as their batches are."""
    import torch

    pictures = any(len(spec.shape) == 4 and spec.layout != "NHWC" for spec in model.inputs)
    return net.to(device, memory_format=torch.channels_last if pictures else torch.preserve_format)


def _amp(options: Options, device: Any) -> str:
    if options.amp == "off":
        return "off"
    if device.type == "cuda":
        return "float16"
    return "bfloat16" if options.amp == "on" or BF16.intersection(_features()) else "off"


def _features() -> Sequence[str]:
    return list(machine.facts(machine.here())["features"])


def _cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --------------------------------------------------------------------------- the loop


def _train(net: Any, training: Training) -> None:
    """Runs the loop in training mode; raises InputError for what the user's own raised, StageFailed for ours."""
    import torch

    own = training.options.loop
    loop: Loop = usercode.function(own) if own else fit
    shapes = _shapes(net)
    try:
        loop(net.train(), training)
    except EdgeError:
        raise
    except torch.OutOfMemoryError as error:
        raise StageFailed(f"training: the GPU's memory is full at batch_size {training.size}; lower it") from error
    except Exception as error:
        kind, who = (InputError, own) if own else (StageFailed, "training")
        raise kind(f"{who} raised {usercode.said(error)}") from error
    if changed := [name for name, shape in _shapes(net).items() if shapes.get(name) != shape]:
        raise InputError(f"{own}: it changed the shape of '{changed[0]}'; a loop trains the net that it is given")


def _shapes(net: Any) -> Mapping[str, Sequence[int]]:
    return {name: list(tensor.shape) for name, tensor in net.state_dict().items()}


def _rewind(net: Any, request: Request) -> None:
    """Sets all weights to the dense net's early ones where rewind = "weights".

    Raises InputError for a net whose layers were changed: which of the early weights are left is not known.
    """
    options: Options = request.options
    if options.rewind != "weights":
        return
    changed = next((e for e in torch_net.edits(request.model) if e["edit"] != "zeros"), None)
    if changed:
        raise InputError(
            f"rewind = 'weights': '{changed['module']}' was given other shapes, which early weights do not fit; "
            "it works on nets whose weights were set to zero; use rewind = 'lr'"
        )
    early = _early(Path(options.early))
    state = net.state_dict()
    wrong = [n for n in {**state, **early} if n not in state or n not in early or early[n].shape != state[n].shape]
    if wrong:
        raise InputError(f"{options.early}: its tensors are not the net's ('{wrong[0]}'); give the dense net's weights")
    net.load_state_dict(early)


def _early(file: Path) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        return dict(load(file.read_bytes()))  # read here: what is opened here belongs to the stage's key
    except (OSError, SafetensorError) as error:
        raise InputError(f"{file}: no weights can be read from it: {error}; give a .safetensors file") from error
