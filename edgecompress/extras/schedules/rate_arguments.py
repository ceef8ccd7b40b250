"""What a schedule may say of learning rates: Distiller's classes and torch's, with their arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Step:
    """A factor every few epochs."""

    step_size: int
    gamma: float = 0.1

    def __post_init__(self) -> None:
        if self.step_size < 1:
            raise ValueError("step_size must be at least 1")


@dataclass(frozen=True, kw_only=True)
class MultiStep:
    """A factor at each milestone."""

    milestones: tuple[int, ...]
    gamma: float = 0.1


@dataclass(frozen=True, kw_only=True)
class MultiGamma:
    """A factor of its own at each milestone."""

    milestones: tuple[int, ...]
    gammas: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.milestones) != len(self.gammas):
            raise ValueError("gammas must have as many values as milestones")


@dataclass(frozen=True, kw_only=True)
class Exponential:
    """A factor at each epoch."""

    gamma: float


@dataclass(frozen=True, kw_only=True)
class Polynomial:
    """To zero at T_max: Distiller's, not that of torch."""

    T_max: int
    power: float

    def __post_init__(self) -> None:
        if self.T_max < 1:
            raise ValueError("T_max must be at least 1")


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A factor for the first epochs."""

    factor: float = 1 / 3
    total_iters: int = 5


@dataclass(frozen=True, kw_only=True)
class Linear:
    """From one factor to another in the first epochs."""

    start_factor: float = 1 / 3
    end_factor: float = 1.0
    total_iters: int = 5


@dataclass(frozen=True, kw_only=True)
class Cosine:
    """Half a wave."""

    T_max: int
    eta_min: float = 0.0


@dataclass(frozen=True, kw_only=True)
class WarmRestarts:
    """Half waves, one after the other."""

    T_0: int
    T_mult: int = 1
    eta_min: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Cyclic:
    """Up and down."""

    base_lr: float | tuple[float, ...]
    max_lr: float | tuple[float, ...]
    step_size_up: int = 2000
    step_size_down: int | None = None
    mode: Literal["triangular", "triangular2", "exp_range"] = "triangular"
    gamma: float = 1.0
    scale_mode: Literal["cycle", "iterations"] = "cycle"
    cycle_momentum: bool = True
    base_momentum: float | tuple[float, ...] = 0.8
    max_momentum: float | tuple[float, ...] = 0.9


@dataclass(frozen=True, kw_only=True)
class OneCycle:
    """Up and down once."""

    max_lr: float | tuple[float, ...]
    total_steps: int | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    pct_start: float = 0.3
    anneal_strategy: Literal["cos", "linear"] = "cos"
    cycle_momentum: bool = True
    base_momentum: float | tuple[float, ...] = 0.85
    max_momentum: float | tuple[float, ...] = 0.95
    div_factor: float = 25.0
    final_div_factor: float = 1e4
    three_phase: bool = False


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """A factor where a metric no longer improves."""

    mode: Literal["min", "max"] = "min"
    factor: float = 0.1
    patience: int = 10
    threshold: float = 1e-4
    threshold_mode: Literal["rel", "abs"] = "rel"
    cooldown: int = 0
    min_lr: float | tuple[float, ...] = 0.0
    eps: float = 1e-8
    verbose: bool = False  # of older versions of torch: nothing is printed


LR_SCHEDULERS: dict[str, type] = {
    "StepLR": Step,
    "MultiStepLR": MultiStep,
    "MultiStepMultiGammaLR": MultiGamma,
    "ExponentialLR": Exponential,
    "PolynomialLR": Polynomial,
    "ConstantLR": Constant,
    "LinearLR": Linear,
    "CosineAnnealingLR": Cosine,
    "CosineAnnealingWarmRestarts": WarmRestarts,
    "CyclicLR": Cyclic,
    "OneCycleLR": OneCycle,
    "ReduceLROnPlateau": Plateau,
}
