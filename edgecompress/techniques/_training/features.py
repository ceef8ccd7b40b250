"""What a student's layers are compared with: a teacher's, as hints, as attention, or as relations between items.

Features are [n, c, h, w], [n, steps, c] or [n, c]: the output of a layer of torch for n items with c channels.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    import torch

Output: TypeAlias = "torch.Tensor | Sequence[torch.Tensor]"  # of a layer
NEAR = 1e-6  # items whose features are nearer than that have no direction to each other


# --------------------------------------------------------------------------- the losses


def hint(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """1/2 (student - teacher)^2, the mean over all numbers; both of one shape.

    FitNets: Romero et al. 2015, arXiv:1412.6550, eq. 3, of what the regressor makes of the student's features.
    """
    return (student - teacher).square().mean() / 2


def attention(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """1/2 |Q_s/|Q_s| - Q_t/|Q_t||^2 with Q the sum of squares over channels at each place; the mean over items.

    Zagoruyko & Komodakis 2017, arXiv:1612.03928, eq. 2 with p = 2, its norm squared as in the authors' code: the
    gradient is then finite where both look at the same. Features of as many places; widths may differ.
    """
    return (_looked_at(student) - _looked_at(teacher)).square().sum(dim=1).mean() / 2


def _looked_at(features: torch.Tensor) -> torch.Tensor:
    """[n, places], each row of length 1."""
    from torch.nn import functional

    channels = 1 if features.dim() == 4 else -1
    return functional.normalize(features.square().sum(dim=channels).flatten(1))


def distances(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """How otherwise far the items of a batch lie from each other: Huber's loss of |x_i - x_j| / their mean.

    The mean over pairs. RKD-D: Park et al. 2019, arXiv:1904.05068, eq. 5 to 8. Both [n, c], widths may differ.
    """
    from torch.nn import functional

    return functional.smooth_l1_loss(_apart(student), _apart(teacher))


def _apart(embedded: torch.Tensor) -> torch.Tensor:
    """The distance of each pair, their mean being 1."""
    from torch.nn import functional

    lengths = functional.pdist(embedded)
    return lengths / lengths.mean().clamp_min(NEAR)


def angles(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """How otherwise the items of a batch lie around each other: Huber's loss of cos of the angle x_i x_j x_k.

    The mean over triplets of distinct items: memory grows with the cube of the batch. RKD-A: Park et al. 2019,
    arXiv:1904.05068, eq. 9 to 11. Both [n, c], widths may differ.
    """
    from torch.nn import functional

    n = len(student)
    each = functional.smooth_l1_loss(_cosines(student), _cosines(teacher), reduction="sum")
    return each / (n * (n - 1) * (n - 2))  # of the n^3 those with items twice are the same in both, and add nothing


def _cosines(embedded: torch.Tensor) -> torch.Tensor:
    """[n, n, n]: of the angle at j between i and k."""
    import torch

    apart = embedded[None] - embedded[:, None]
    length = torch.linalg.vector_norm(apart, dim=2, keepdim=True)
    ways = torch.where(length > NEAR, apart / length.clamp_min(NEAR), 0.0)
    return ways @ ways.transpose(1, 2)


# --------------------------------------------------------------------------- what fits on what


def embedding(features: torch.Tensor) -> torch.Tensor:
    """[n, c]: one vector per item, the mean over its places or steps."""
    if features.dim() == 4:
        return features.mean(dim=(2, 3))
    return features.mean(dim=1) if features.dim() == 3 else features.reshape(len(features), -1)


def evened(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures of features of two sizes as those of the smaller, by means over what falls together."""
    from torch.nn import functional

    if one.dim() != 4 or one.shape[2:] == other.shape[2:]:
        return one, other
    smaller = tuple(min(pair) for pair in zip(one.shape[2:], other.shape[2:], strict=True))
    return functional.adaptive_avg_pool2d(one, smaller), functional.adaptive_avg_pool2d(other, smaller)


def regressor(student: torch.Tensor, teacher: torch.Tensor) -> torch.nn.Module:
    """What makes features as wide as the teacher's: a 1 x 1 convolution or a Linear; nothing where they are."""
    from torch import nn

    axis = 1 if student.dim() == 4 else -1
    widths = student.shape[axis], teacher.shape[axis]
    if widths[0] == widths[1]:
        return nn.Identity()
    return nn.Conv2d(*widths, 1) if student.dim() == 4 else nn.Linear(*widths)


def check(pair: Sequence[str], student: torch.Tensor, teacher: torch.Tensor, places: bool) -> None:
    """Raises InputError for features that cannot be compared; `places`: they must have some, for attention."""
    known = (3, 4) if places else (2, 3, 4)
    steps = [features.shape[1] for features in (student, teacher) if features.dim() == 3]
    if student.dim() != teacher.dim() or student.dim() not in known or len(set(steps)) > 1:
        kinds = (
            "images, or the same number of steps"
            if places
            else "images, the same number of steps, or one vector per item"
        )
        raise InputError(
            f"layers: the student's '{pair[0]}' returns {list(student.shape)}, the teacher's '{pair[1]}' "
            f"{list(teacher.shape)}, which cannot be compared; name two layers that both return {kinds}"
        )


# --------------------------------------------------------------------------- outputs of layers


@contextlib.contextmanager
def with_layer_outputs(net: torch.nn.Module, names: Sequence[str], whose: str) -> Iterator[dict[str, torch.Tensor]]:
    """The outputs of layers of `net` at its last call, by name, in float32; a tuple's first tensor.

    Raises InputError for a layer that it does not have, with `whose` net it is.
    """
    outputs: dict[str, torch.Tensor] = {}
    hooks = [_layer(net, name, whose).register_forward_hook(_keeper(outputs, name)) for name in dict.fromkeys(names)]
    try:
        yield outputs
    finally:
        for hook in hooks:
            hook.remove()


def _layer(net: torch.nn.Module, name: str, whose: str) -> torch.nn.Module:
    layers = {n: layer for n, layer in net.named_modules() if n}
    if name not in layers:
        near = did_you_mean(name, layers)
        hint = near if near.startswith(",") else did_you_mean(name, [n for n in layers if "." not in n])
        raise InputError(f"layers: the {whose} has no layer '{name}'{hint}")
    return layers[name]


def _keeper(outputs: dict[str, torch.Tensor], name: str) -> Callable[[torch.nn.Module, Output, Output], None]:
    def keep(layer: torch.nn.Module, inputs: Output, output: Output) -> None:
        import torch

        first = output[0] if isinstance(output, (tuple, list)) else output
        if not isinstance(first, torch.Tensor):
            raise InputError(f"layers: '{name}' returns a {type(first).__name__}, not a tensor; name another layer")
        outputs[name] = first.float()

    return keep
