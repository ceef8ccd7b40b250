"""The changes of techniques to a torch net, as data: edits that are replayed on the net that its factory builds.

{"edit": "resize", "module": "layer1.0.conv1", "attributes": {"out_channels": 8}, "shapes": {"weight": [8, 16, 3, 3]}}
{"edit": "replace", "module": "layer1.2", "by": [["Conv2d", {"in_channels": 16, ...}], ...]}   several are a Sequential
{"edit": "keep", "module": "encoder.layer", "items": [0, 1, 3]}   a ModuleList without its other items
{"edit": "bind", "inputs": {"rate": 16000}}   forward is called with these values; a list is a tensor
{"edit": "zeros", "parameters": ["layer1.0.conv1.weight"]}   what is zero in them stays zero in training
{"edit": "levels", "module": "relu1", "step": 0.1, "low": 0, "high": 15}   its output is rounded to 0, 0.1, ... 1.5;
    with "input": 0 its first input is
{"edit": "decode", "how": {"head": "dfl", ...}, "shapes": {"output": [1, 84, 80, 80]}, "size": [640, 640]}   its outputs
    of these shapes become boxes and scores (settings.Decode)

A stranger's edits execute nothing: attributes are whole numbers that the module has already, layers come from LAYERS.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Required, TypeAlias, TypedDict

from edgecompress.core import config
from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.settings import Decode
from edgecompress.data import declared_ends

if TYPE_CHECKING:
    import torch

Size: TypeAlias = "int | Sequence[int]"
Option: TypeAlias = "int | str | Sequence[int]"


class LinearOptions(TypedDict):
    """Of a Linear in an edit."""

    in_features: int
    out_features: int
    bias: bool


class ConvOptions(TypedDict):
    """Of a Conv2d in an edit."""

    in_channels: int
    out_channels: int
    kernel_size: list[int]
    stride: list[int]
    padding: str | int | list[int]
    dilation: list[int]
    groups: int
    bias: bool
    padding_mode: str


class TensorTrainOptions(TypedDict):
    """Of a TensorTrainLinear in an edit: the two factors of its inputs and of its outputs."""

    inputs: list[int]
    outputs: list[int]
    rank: int
    bias: bool


class Edit(TypedDict, total=False):
    """One edit; which keys it has beside "edit" depends on its kind."""

    edit: Required[str]
    module: str
    attributes: Mapping[str, Size]
    shapes: Mapping[str, Sequence[int]]
    # (kind, options) each
    by: Sequence[Sequence[str | Mapping[str, Option]] | tuple[str, LinearOptions | ConvOptions | TensorTrainOptions]]
    items: Sequence[int]
    parameters: Sequence[str]
    inputs: Mapping[str, Json]
    step: float
    low: int
    high: int
    input: int
    how: Mapping[str, Json]
    size: Sequence[int]


LAYERS = (
    "Identity",
    "Linear",
    *(f"{kind}{axes}d" for kind in ("Conv", "ConvTranspose") for axes in (1, 2, 3)),
    *("ReLU", "ReLU6", "Hardswish"),
    "TensorTrainLinear",  # ours
)
LARGEST = 1 << 24  # of a dimension
MOST_INPUTS = 64  # of a module


def apply(net: torch.nn.Module, edits: Sequence[Edit]) -> None:
    """Replays the edits on `net`; new weights hold anything. Raises InputError for an edit that does not fit it."""
    known = {
        "resize": _resize,
        "replace": _replace,
        "keep": _keep,
        "zeros": _check_zeros,
        "bind": _bind,
        "levels": _levels,
        "decode": _decode,
    }
    for edit in edits:
        try:
            known[edit["edit"]](net, edit)
        except (KeyError, AttributeError, TypeError, ValueError, RuntimeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise InputError(
                f"the edit {str(dict(edit))[:120]} does not fit the factory's net ({reason}); "
                "the factory now builds a different net from the one that was compressed; deploy again"
            ) from error


def resized(before: torch.nn.Module, after: torch.nn.Module) -> list[Edit]:
    """What makes a net of the shapes of `before` one of those of `after`: modules that both have, under their names."""
    mine = dict(before.named_modules())
    return [
        edit for name, module in after.named_modules() if name in mine for edit in _change(name, mine[name], module)
    ]


def zeros(edits: Sequence[Edit]) -> list[str]:
    """The parameters whose zeros stay."""
    return list(dict.fromkeys(name for edit in edits if edit["edit"] == "zeros" for name in edit["parameters"]))


def _change(name: str, before: torch.nn.Module, after: torch.nn.Module) -> Iterator[Edit]:
    """The resize of one module, if it has another size."""
    old, new = (
        {n: list(t.shape) for n, t in (*m.named_parameters(recurse=False), *m.named_buffers(recurse=False))}
        for m in (before, after)
    )
    shapes = {n: shape for n, shape in new.items() if old.get(n) != shape}
    was = _numbers(before)
    attributes = {n: value for n, value in _numbers(after).items() if n in was and was[n] != value}
    if shapes or attributes:
        yield {"edit": "resize", "module": name, "attributes": attributes, "shapes": shapes}


def _numbers(module: torch.nn.Module) -> dict[str, Size]:
    """Attributes that are whole numbers, or tuples of them (a LayerNorm's normalized_shape)."""
    return {n: list(v) if isinstance(v, tuple) else v for n, v in vars(module).items() if _is_size(v)}


def _is_size(value: Option) -> bool:
    whole = value if isinstance(value, (tuple, list)) and value else [value]
    return all(isinstance(v, int) and not isinstance(v, bool) for v in whole)


def _resize(net: torch.nn.Module, edit: Edit) -> None:
    import torch

    module = net.get_submodule(edit["module"])
    for name, value in edit["attributes"].items():
        if not _is_size(value) or not _is_size(getattr(module, name)):
            raise ValueError(f"{name} is not a size")
        setattr(module, name, tuple(value) if isinstance(value, list) else value)
    for name, shape in edit["shapes"].items():
        old = getattr(module, name)
        if not all(isinstance(n, int) and 0 <= n <= LARGEST for n in shape):
            raise ValueError(f"{name} cannot be {shape}")
        new = torch.zeros(shape, dtype=old.dtype)
        if isinstance(old, torch.nn.Parameter):
            setattr(module, name, torch.nn.Parameter(new, requires_grad=old.requires_grad))
        else:
            module.register_buffer(name, new, persistent=name not in module._non_persistent_buffers_set)


def _replace(net: torch.nn.Module, edit: Edit) -> None:
    from torch import nn

    made = [_layer(*layer) for layer in edit["by"]]
    parent, _, name = edit["module"].rpartition(".")
    net.get_submodule(edit["module"])  # raises for what is not there
    setattr(net.get_submodule(parent), name, made[0] if len(made) == 1 else nn.Sequential(*made))


def _keep(net: torch.nn.Module, edit: Edit) -> None:
    from torch import nn

    stack, items = net.get_submodule(edit["module"]), edit["items"]
    if not isinstance(stack, nn.ModuleList):
        raise ValueError(f"{edit['module']} is no ModuleList")
    if not items or not all(isinstance(i, int) and 0 <= i < len(stack) for i in items) or sorted({*items}) != [*items]:
        raise ValueError(f"no items {items}")
    parent, _, name = edit["module"].rpartition(".")
    setattr(net.get_submodule(parent), name, nn.ModuleList([stack[i] for i in items]))


def _layer(kind: str | Mapping[str, Option], options: str | Mapping[str, Option]) -> torch.nn.Module:
    from torch import nn

    if not isinstance(kind, str) or isinstance(options, str) or kind not in LAYERS:
        raise ValueError(f"no layer {kind}")
    plain = {n: tuple(v) if isinstance(v, list) else v for n, v in options.items()}
    if any(not (_is_size(v) or isinstance(v, (bool, str))) for v in plain.values()):
        raise ValueError(f"the options of {kind} must be numbers or words")
    if kind == "TensorTrainLinear":
        from edgecompress.formats import torch_tensor_train

        return torch_tensor_train.linear(**plain)  # type: ignore[arg-type]
    return getattr(nn, kind)(**plain)


def bound(net: torch.nn.Module, constants: Mapping[str, Json], where: str) -> list[Edit]:
    """What gives forward the values of `constants`. Raises InputError for a name that it does not take."""
    declared_ends.check_constants(constants, list(inspect.signature(net.forward).parameters), where)
    return [{"edit": "bind", "inputs": dict(constants)}] if constants else []


def _bind(net: torch.nn.Module, edit: Edit) -> None:
    import torch

    values = {name: torch.tensor(value) if isinstance(value, list) else value for name, value in edit["inputs"].items()}
    net.forward = functools.partial(net.forward, **values)


def _decode(net: torch.nn.Module, edit: Edit) -> None:
    from edgecompress.formats import torch_decoding

    how, size = config.build(Decode, edit["how"], "decode"), edit["size"]
    torch_decoding.attach(net, how, edit["shapes"], (size[0], size[1]) if size else None)


def _check_zeros(net: torch.nn.Module, edit: Edit) -> None:
    for name in edit["parameters"]:
        net.get_parameter(name)


def _levels(net: torch.nn.Module, edit: Edit) -> None:
    from edgecompress.formats import torch_levels

    step, low, high, place = edit["step"], edit["low"], edit["high"], edit.get("input")
    if isinstance(step, bool) or not isinstance(step, (int, float)) or not (math.isfinite(step) and step > 0):
        raise ValueError(f"step cannot be {step}")
    if any(isinstance(n, bool) or not isinstance(n, int) or abs(n) >= 1 << 32 for n in (low, high)) or low > high:
        raise ValueError(f"no levels from {low} to {high}")
    if place is not None and not (_is_size(place) and isinstance(place, int) and 0 <= place < MOST_INPUTS):
        raise ValueError(f"no input {place}")
    torch_levels.attach(net.get_submodule(edit["module"]), torch_levels.Levels(step, low, high), place)
