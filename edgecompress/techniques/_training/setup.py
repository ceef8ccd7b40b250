"""What each technique that trains does around its loop: its data and objective, where it computes, what it tells."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypedDict, TypeVar

from edgecompress.core import package_files, user_code
from edgecompress.core.errors import EdgeError, InputError, StageFailed
from edgecompress.core.model import AUGMENT, METRIC, Artifact, Request
from edgecompress.core.settings import is_factory
from edgecompress.data import channel_axis, states
from edgecompress.device import machine
from edgecompress.formats import torch_module
from edgecompress.techniques._training import checkpoint, log, losses, minutes
from edgecompress.techniques._training.data import Items, check_augment
from edgecompress.techniques._training.fitting import fit
from edgecompress.techniques._training.loop import Training
from edgecompress.techniques._training.options import TrainingOptions

if TYPE_CHECKING:
    import torch

TRAIN, LENDER = "train", "calibrate"  # the split that trains, and the one that is taken where there is none
BF16 = {"avx512_bf16", "amx_bf16", "bf16"}  # of a CPU: it multiplies such numbers itself
NO_LOG = f"none: tensorboard is not installed; run: {package_files.install('train')}"


AnyTraining = TypeVar("AnyTraining", bound=Training)


class TrainingFacts(TypedDict):
    """What was trained on, how, and what came of each epoch."""

    epochs: list[checkpoint.EpochRecord]
    samples: int
    split: str
    batch_size: int
    device: str
    amp: str
    distill: float
    metric: str | None
    went_back: int | None
    log: str
    teachers: list[str]


def check(options: TrainingOptions) -> None:
    """Raises ValueError for numbers that cannot be, among the options that each technique that trains has."""
    if options.epochs < 1 or options.batch_size < 1:
        raise ValueError("epochs and batch_size must be at least 1")
    if options.minutes is not None and not 0 < options.minutes < math.inf:
        raise ValueError("minutes must be above 0")
    if not 0 < options.rate < math.inf or not 0 <= options.weight_decay < math.inf:
        raise ValueError("lr must be above 0, weight_decay at least 0")
    if not 0 <= options.momentum < 1:
        raise ValueError("momentum must be at least 0 and below 1")
    if not 0 <= options.distill <= 1 or not 0 < options.temperature < math.inf:
        raise ValueError("distill must be between 0 and 1, temperature above 0")
    if options.teacher and not options.distill:
        raise ValueError("teacher is used with distill above 0 only")
    if options.clip is not None and not 0 < options.clip < math.inf:
        raise ValueError("clip must be above 0")
    if options.plateau is not None and not 1 < options.plateau < math.inf:
        raise ValueError("plateau must be above 1: the rate is divided by it")
    if not all(0 < a < b for a, b in zip(options.milestones, (*options.milestones, 1.0)[1:], strict=True)):
        raise ValueError("milestones must increase, each between 0 and 1")


def settled(request: Request, net: torch.nn.Module | None = None) -> Request:
    """With the source's own augmentation, and the optimizer that is usual for `net`, where the options name none."""
    options = request.options
    if options.augment is None:
        options = replace(options, augment=tuple(request.inputs["training"].facts.get(AUGMENT, ())))
    if net is not None and options.optimizer is None:
        options = replace(options, optimizer=_usual(net))
    return replace(request, options=options)


def _usual(net: torch.nn.Module) -> Literal["sgd", "adamw"]:
    """AdamW where rates differ much between layers: recurrent ones, embeddings, layer norms."""
    from torch import nn

    kinds = (nn.RNNBase, nn.Embedding, nn.LayerNorm, nn.MultiheadAttention)
    return "adamw" if any(isinstance(module, kinds) for module in net.modules()) else "sgd"


def facts(training: Training) -> TrainingFacts:
    """What was trained on, how, and what came of each epoch."""
    return {
        "epochs": training.history,
        "samples": training.items.count,
        "split": training.items.split,
        "batch_size": training.size,
        "device": training.device.type,
        "amp": training.amp,
        "distill": training.objective.distill if training.dense is not None else 0.0,
        "metric": training.metric,
        "went_back": training.went_back,
        "log": "TensorBoard" if log.available() else NO_LOG,
        "teachers": [training.options.teacher] if training.options.teacher else [],
    }


# --------------------------------------------------------------------------- what is trained on


def training(
    request: Request,
    device: torch.device,
    kind: type[AnyTraining],
    steps: int = 1,
) -> AnyTraining:
    """What the loop is given; batches are smaller than asked for where an epoch would have fewer steps than `steps`.

    Raises InputError for data that does not do.
    """
    options: TrainingOptions = request.options
    items, select = training_items(request, device), Items(request.model, request.inputs["samples"], "select", device)
    check_augment(options.augment, items)
    _check_labels(items, options)
    objective = _objective(request, items)
    dense = None
    if objective.distill:
        own = is_factory(options.teacher)
        teacher = torch_module.factory(options.teacher) if own else torch_module.rebuild(request.inputs["dense"])
        dense = placed(teacher.requires_grad_(False), device, request.model)
    fixed = request.model.batch
    size = fixed if isinstance(fixed, int) else max(1, min(options.batch_size, items.count // steps))
    if size > items.count:
        raise InputError(
            f"training: the net needs batches of {size} items, but the data has {items.count}; give more data"
        )
    return kind(request, device, amp(options, device), items, select, dense, objective, size)


def training_items(request: Request, device: torch.device) -> Items:
    """The split "train", or "calibrate" where there is none; raises InputError where both are empty."""
    training, samples = request.inputs["training"], request.inputs["samples"]
    items = Items(request.model, training, TRAIN, device)
    items = items if items.count else Items(request.model, samples, LENDER, device)
    if not items.count:
        raise InputError(f"training: the splits '{TRAIN}' and '{LENDER}' are empty; give the data at least one of them")
    return items


def _check_labels(items: Items, options: TrainingOptions) -> None:
    """Raises InputError where there are none and nothing is distilled, or where they are no classes of the net."""
    if items.labels is None:
        if options.distill == 0:
            raise InputError(f"the split '{items.split}' has no labels: give it labels, or set distill above 0")
        return
    if _kind(items, options) == "mse":
        return
    first = items.model.outputs[0]
    classes = first.shape[_axis(items)]
    judged = items.labels[~losses.ignored(items.labels, classes if isinstance(classes, int) else 1)]
    low, high = int(judged.min(initial=0)), int(judged.max(initial=0))
    if items.labels.dtype.kind not in "iub" or low < 0 or (isinstance(classes, int) and high >= classes):
        raise InputError(
            f"the labels of '{items.split}' are {items.labels.dtype} from {low} to {high}, the output '{first.name}' "
            f"has the classes 0 to {classes - 1 if isinstance(classes, int) else classes.name}; correct the labels"
        )


def _kind(items: Items, options: TrainingOptions) -> losses.Kind:
    return losses.kind_of(items.labels) if options.loss == "auto" else options.loss


def _objective(request: Request, items: Items) -> losses.Objective:
    """Compared are outputs of real numbers that are no state and are of one shape with the unpruned net's."""
    options: TrainingOptions = request.options
    first = request.model.outputs[0].name
    dense = {spec.name: spec.shape for spec in request.inputs["dense"].outputs}
    alike = [s.name for s in request.model.outputs if s.dtype.startswith("float") and not s.feeds]
    alike = [n for s in request.model.outputs if (n := s.name) in alike and dense.get(n) == s.shape and n != first]
    weight = 1.0 if items.labels is None else options.distill
    kind = _kind(items, options)
    axis = _axis(items) if kind == "cross_entropy" else -1
    asked = request.inputs["training"].facts.get(METRIC, "")
    return losses.Objective(kind, weight, options.temperature, (first, *alike), axis, asked)


def _axis(items: Items) -> int:
    """That of the classes in the first output."""
    first = items.model.outputs[0]
    sizes = [size if isinstance(size, int) else None for size in first.shape]
    return channel_axis.class_axis(sizes, () if items.labels is None else items.labels.shape, first.layout)


# --------------------------------------------------------------------------- where it is computed


def best_device() -> torch.device:
    """The GPU where there is one, made deterministic; else the CPU."""
    import torch

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what makes cuBLAS deterministic
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def placed(net: torch.nn.Module, device: torch.device, model: Artifact) -> torch.nn.Module:
    """On the device; for pictures with its channels last in memory, as their batches are."""
    import torch

    pictures = any(len(spec.shape) == 4 and spec.layout != "NHWC" for spec in model.inputs)
    return net.to(device, memory_format=torch.channels_last if pictures else torch.preserve_format)


def amp(options: TrainingOptions, device: torch.device) -> str:
    """In what is computed: "off" is float32, else the type of autocast, as the options say and the device can."""
    if options.amp == "off":
        return "off"
    if device.type == "cuda":
        return "float16"
    return "bfloat16" if options.amp == "on" or BF16.intersection(machine.facts(machine.here())["features"]) else "off"


def cores() -> int:
    """That this process may use; at most OMP_NUM_THREADS, where that is set."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(own, max(int(asked), 1)) if asked.isdecimal() else own


# --------------------------------------------------------------------------- the loop


def train(net: torch.nn.Module, training: Training) -> None:
    """Runs the loop in training mode; raises InputError for what the user's own raised, StageFailed for ours."""
    import torch

    own = training.options.loop
    loop: Callable[[torch.nn.Module, Training], object] = user_code.function(own) if own else fit
    shapes = _shapes(net)
    _check_alone(net, training)
    try:
        if training.options.minutes is not None:
            minutes.fit(net.train(), training)
        loop(net.train(), training)
        training.settle(net)
    except EdgeError:
        raise
    except torch.OutOfMemoryError as error:
        raise StageFailed(f"training: the GPU's memory is full at batch_size {training.size}; lower it") from error
    except Exception as error:
        kind, who = (InputError, own) if own else (StageFailed, "training")
        raise kind(f"{who} raised {user_code.error_line(error)}") from error
    changed = [name for name, shape in _shapes(net).items() if shapes.get(name) != shape]
    if changed and training.keeps_shapes:
        raise InputError(f"{own}: it changed the shape of '{changed[0]}'; a training loop must keep the net's shapes")


def _check_alone(net: torch.nn.Module, training: Training) -> None:
    """Raises InputError where an item's answer is another one behind another item: axis 0 is then not that of items."""
    import numpy as np
    import torch

    model, last = training.request.model, training.items.count - 1
    held = states.names(model)
    ends = [s for s in (*model.inputs, *model.outputs) if s.name not in held and not s.feeds]
    if last < 2 or isinstance(model.batch, int) or any(s.batch_axis != 0 for s in ends):
        return
    net.eval()
    with torch.no_grad():
        beside = [training.call(net, training.items.take(np.array([other, 0]))[0]) for other in (1, last)]
    for name, answer in ((spec.name, beside[0][spec.name]) for spec in model.outputs if not spec.feeds):
        one, other = answer[1].double(), beside[1][name][1].double()
        if not torch.allclose(one, other, rtol=1e-2, atol=1e-2 * float(one.abs().max()), equal_nan=True):
            raise InputError(
                f"training: the output '{name}' of an item depends on the other items of its batch, so axis 0 is not "
                "theirs (an LSTM or GRU reads it as time: give it batch_first=True); make axis 0 that of items"
            )


def _shapes(net: torch.nn.Module) -> Mapping[str, Sequence[int]]:
    return {name: list(tensor.shape) for name, tensor in net.state_dict().items()}
