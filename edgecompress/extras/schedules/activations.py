"""What rounds activations in training: fixed levels, those of a learned clip, those of the range seen so far."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeAlias

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import grids
from edgecompress.extras.schedules.quantizer_arguments import LearnedClip, Quantizer, Range
from edgecompress.formats import torch_levels
from edgecompress.formats.torch_levels import levels

if TYPE_CHECKING:
    from torch import Tensor, nn

    from edgecompress.formats.torch_edits import Edit

Bound: TypeAlias = "Tensor | float"
Grid = tuple[Bound, Bound, Bound]  # step, lowest and highest multiple


class Activation(ABC):
    """Of the output of one module, or of an input; what it learns are tensors of that module."""

    def __init__(self, module: nn.Module, name: str, bits: int, place: int | None = None) -> None:
        self.module, self.name, self.bits, self.place = module, name, bits, place
        self.top = 2**bits - 1
        self._hook = torch_levels.attach(module, self, place)

    @abstractmethod
    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        """A tensor of any shape, rounded; its gradient is that of the clipping."""

    @abstractmethod
    def _grid(self) -> Grid:
        """Where the levels are now."""

    def parameters(self) -> list[nn.Parameter]:
        """What the optimizer is to train."""
        return []

    def tensors(self) -> dict[str, Tensor]:
        """What it learned, by the model's names."""
        return {}

    def freeze(self) -> Edit:
        """Takes itself out of the model; the edit that puts its levels there. Raises InputError for none."""
        step, low, high = (float(part) for part in self._grid())
        if not (math.isfinite(step) and step > 0):
            what = f"the activations of '{self.name or 'the input'}' have learned no range"
            raise InputError(f"{what} (a step of {step}); train on, or give them null bits in overrides")
        self._hook.remove()
        edit: Edit = {"edit": "levels", "module": self.name, "step": step, "low": int(low), "high": int(high)}
        return edit if self.place is None else {**edit, "input": self.place}

    def _named(self, name: str) -> str:
        return f"{self.name}.{name}" if self.name else name


class Fixed(Activation):
    """From 0 to 1: DoReFa's and WRPN's."""

    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        """As its base says."""
        return grids.straight(x.clamp(0, 1), levels(x, *self._grid()))

    def _grid(self) -> tuple[float, float, float]:
        return 1 / self.top, 0, self.top


class Learned(Activation):
    """From 0 to a parameter `clip_val` of the module: PACT's (Choi et al. 2018, arXiv:1805.06085, eq. 1 to 3)."""

    def __init__(self, module: nn.Module, name: str, bits: int, initial: float, like: Tensor) -> None:
        """`like`: a tensor on the device of the model."""
        import torch

        super().__init__(module, name, bits)
        module.register_parameter("clip_val", torch.nn.Parameter(torch.full_like(like.detach().flatten()[:1], initial)))

    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        """As its base says; the clip's gradient is that of what it clips."""
        import torch

        clip = module.get_parameter("clip_val").squeeze()
        clipped = torch.where(x >= clip, clip, x.clamp(min=0))
        return grids.straight(clipped, levels(x, clip.detach() / self.top, 0, self.top))

    def _grid(self) -> tuple[Tensor, float, float]:
        return self.parameters()[0].detach().squeeze() / self.top, 0, self.top

    def parameters(self) -> list[nn.Parameter]:
        """The clip."""
        return [self.module.get_parameter("clip_val")]

    def tensors(self) -> dict[str, Tensor]:
        """The clip."""
        return {self._named("clip_val"): self.parameters()[0]}

    def freeze(self) -> Edit:
        """As its base says."""
        edit = super().freeze()
        del self.module.clip_val
        return edit


class Tracked(Activation):
    """Over a moving average of least and most of each batch, without its bias to 0 (Jacob et al. 2017, 1712.05877)."""

    def __init__(
        self, module: nn.Module, name: str, bits: int, like: Tensor, given: Range, place: int | None = None
    ) -> None:
        """`like`: a tensor on the device of the model."""
        import torch

        super().__init__(module, name, bits, place)
        self.mode, self.decay = grids.mode_of(given.mode, "activations"), given.ema_decay
        self.range = "output_range" if place is None else f"input{place}_range"
        zeros = torch.zeros(3, device=like.device)  # the sums of least and most, and how many batches
        module.register_buffer(self.range, zeros, persistent=False)

    def __call__(self, module: nn.Module, x: Tensor) -> Tensor:
        """As its base says; in training the range moves. Of no batch: as it is."""
        import torch

        seen = module.get_buffer(self.range)
        if module.training:
            with torch.no_grad():
                new = torch.stack(torch.aminmax(x.detach())).to(seen)
                seen[:2].mul_(self.decay).add_(new, alpha=1 - self.decay)
                seen[2] += 1
        elif seen[2] == 0:
            return x
        step, low, high = self._of(seen)
        return grids.straight(x.clamp(low * step, high * step), levels(x, step, low, high))

    def _of(self, seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        import torch

        least, most = seen[:2] / -torch.expm1(seen[2] * math.log(self.decay))
        return grids.fitted(self.bits, self.mode, least, most)

    def _grid(self) -> tuple[Tensor, Tensor, Tensor]:
        return self._of(self.module.get_buffer(self.range))

    def tensors(self) -> dict[str, Tensor]:
        """The sums."""
        return {self._named(self.range): self.module.get_buffer(self.range)}

    def freeze(self) -> Edit:
        """As its base says."""
        edit = super().freeze()
        delattr(self.module, self.range)
        return edit


def build(
    given: Quantizer, module: nn.Module, name: str, bits: int, like: Tensor, place: int | None = None
) -> Activation:
    """What a quantizer of these arguments rounds a module's output, or an input of it, by."""
    if isinstance(given, Range):
        return Tracked(module, name, bits, like, given, place)
    if isinstance(given, LearnedClip):
        return Learned(module, name, bits, given.act_clip_init_val, like)
    return Fixed(module, name, bits)
