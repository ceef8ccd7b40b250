"""What a schedule may name: each class of Distiller's with its arguments, and those of a policy.

The tables at the end are all that is allowed: a name that is in none of them is an error of the reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Structure = Literal["2D", "3D", "Filters", "4D", "Rows", "Cols", "Channels"]
Lasso = Literal[Structure, "Rows+Cols", "Cols+Rows", "Channels+4D", "4D+Channels"]
Criterion = Literal["Max", "Mean_Abs"]
Mode = Literal["SYMMETRIC", "SYMMETRIC_RESTRICTED", "ASYMMETRIC_UNSIGNED", "ASYMMETRIC_SIGNED"]
Clip = Literal["NONE", "None", "AVG", "N_STD", "GAUSS", "LAPLACE"]
EVERY = "*"  # in a table by parameter: all that are not named


def _bits(given: Mapping[str, int | str | None]) -> None:
    for name, bits in given.items():
        if isinstance(bits, int) and not 1 <= bits <= 32:
            raise ValueError(f"{name} must be from 1 to 32, or null for floating point, not {bits}")


def _shares(values: Iterable[float], what: str) -> None:
    if not all(0 <= value <= 1 for value in values):
        raise ValueError(f"{what} must be between 0 and 1")


# --------------------------------------------------------------------------- pruners


@dataclass(frozen=True, kw_only=True)
class Magnitude:
    """Elements of at most a magnitude go."""

    thresholds: Mapping[str, float]

    def __post_init__(self) -> None:
        if EVERY not in self.thresholds:
            raise ValueError("thresholds needs an entry '*', of the parameters that it does not name")


@dataclass(frozen=True, kw_only=True)
class Level:
    """The smallest share of the elements goes."""

    levels: Mapping[str, float]

    def __post_init__(self) -> None:
        _shares(self.levels.values(), "levels")


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Elements of at most so many standard deviations go."""

    sensitivities: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Splicing:
    """Elements below one threshold go, those above another come back."""

    sensitivities: Mapping[str, float]
    low_thresh_mult: float
    hi_thresh_mult: float
    sensitivity_multiplier: float = 0.0

    def __post_init__(self) -> None:
        if self.low_thresh_mult > self.hi_thresh_mult:
            raise ValueError("low_thresh_mult must not be larger than hi_thresh_mult")


@dataclass(frozen=True, kw_only=True)
class Baidu:
    """Elements of at most a threshold that rises go: in two straight lines."""

    q: float
    ramp_epoch_offset: int
    ramp_slope_mult: float
    weights: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Structures whose criterion is at most a threshold go."""

    reg_regims: Mapping[str, tuple[float, Structure]]
    threshold_criteria: Criterion


@dataclass(frozen=True, kw_only=True)
class Gradual:
    """The share rises from epoch to epoch."""

    initial_sparsity: float
    final_sparsity: float

    def __post_init__(self) -> None:
        _shares((self.initial_sparsity, self.final_sparsity), "initial_sparsity and final_sparsity")
        if self.final_sparsity <= self.initial_sparsity:
            raise ValueError("final_sparsity must be larger than initial_sparsity")


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The share is the same at all epochs."""

    desired_sparsity: float

    def __post_init__(self) -> None:
        _shares((self.desired_sparsity,), "desired_sparsity")


@dataclass(frozen=True, kw_only=True)
class GradualLevel(Gradual):
    """The smallest elements go."""

    weights: tuple[str, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.weights:
            raise ValueError("weights must name at least one parameter")


@dataclass(frozen=True)
class Block:
    """The size of a block: filters, channels, height, width."""

    block_shape: tuple[int, int, int, int] | None = None

    def __post_init__(self) -> None:
        if self.block_shape and min(self.block_shape) < 1:
            raise ValueError("block_shape must be at least 1 along each axis")


@dataclass(frozen=True, kw_only=True)
class Ranked:
    """Structures are ranked, and the last of them go."""

    weights: tuple[str, ...]
    group_type: Literal["3D", "Filters", "Channels", "Rows", "Blocks"]
    group_dependency: Literal["Leader"] | None = None
    kwargs: Block | None = None

    def __post_init__(self) -> None:
        if not self.weights:
            raise ValueError("weights must name at least one parameter")
        if self.group_type == "Blocks" and not (self.kwargs and self.kwargs.block_shape):
            raise ValueError("group_type Blocks needs kwargs with block_shape")


@dataclass(frozen=True, kw_only=True)
class RankedFilters(Ranked):
    """Filters alone."""

    group_type: Literal["3D", "Filters"]


@dataclass(frozen=True, kw_only=True)
class GradualRanked(Ranked, Gradual):
    """Ranked by their norm."""

    def __post_init__(self) -> None:
        Ranked.__post_init__(self)
        Gradual.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class SteadyRanked(Ranked, Steady):
    """Ranked by their norm; `group_size`: as many go at a time."""

    noise: Literal[0] = 0
    group_size: int = 1
    rounding_fn: Literal["floor", "round", "ceil"] = "floor"

    def __post_init__(self) -> None:
        Ranked.__post_init__(self)
        Steady.__post_init__(self)
        if self.group_size < 1:
            raise ValueError("group_size must be at least 1")


@dataclass(frozen=True, kw_only=True)
class GradualFilters(RankedFilters, Gradual):
    """Ranked by what they compute, or by chance."""

    def __post_init__(self) -> None:
        Ranked.__post_init__(self)
        Gradual.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class SteadyFilters(RankedFilters, Steady):
    """Ranked by what they compute, or by chance."""

    def __post_init__(self) -> None:
        Ranked.__post_init__(self)
        Steady.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class RandomLevel(Ranked):
    """A share drawn anew each time goes, those of the smallest norm."""

    sparsity_range: tuple[float, float]

    def __post_init__(self) -> None:
        super().__post_init__()
        _shares(self.sparsity_range, "sparsity_range")


@dataclass(frozen=True, kw_only=True)
class FeatureMaps(SteadyRanked):
    """Channels go, and the weights left over are fitted to the feature maps."""

    group_type: Literal["Channels"]


# --------------------------------------------------------------------------- regularizers


@dataclass(frozen=True, kw_only=True)
class Absolute:
    """Elements are pulled to zero."""

    reg_regims: Mapping[str, float]
    threshold_criteria: Criterion | None = None


@dataclass(frozen=True, kw_only=True)
class GroupLasso:
    """Whole structures are pulled to zero."""

    reg_regims: Mapping[str, tuple[float, Lasso]]
    threshold_criteria: Criterion | None = None


@dataclass(frozen=True, kw_only=True)
class GroupVariance:
    """Structures are pulled apart."""

    reg_regims: Mapping[str, tuple[float, Literal["Channels"]]]


# --------------------------------------------------------------------------- quantizers

BITS = ("bits_activations", "bits_weights", "bits_bias")
Default = Literal["default"]  # an override that says nothing of it; null says: in floating point


@dataclass(frozen=True, kw_only=True)
class Modes:
    """Of each kind of tensor."""

    activations: Mode | None = None
    weights: Mode | None = None


@dataclass(frozen=True, kw_only=True)
class InputOverride:
    """How an input of a module is quantized."""

    from_output: bool = False
    bits_activations: int | Default | None = "default"
    mode: Mode | Modes | None = None
    clip_acts: Clip | None = None
    clip_n_stds: float | None = None

    def __post_init__(self) -> None:
        _bits({"bits_activations": self.bits_activations})


@dataclass(frozen=True, kw_only=True)
class Override:
    """How the modules that a pattern matches are quantized."""

    bits_activations: int | Default | None = "default"
    bits_weights: int | Default | None = "default"
    bits_bias: int | Default | None = "default"
    bits_accum: int | None = None
    mode: Mode | Modes | None = None
    clip_acts: Clip | None = None
    clip_n_stds: float | None = None
    clip_half_range: bool | None = None
    per_channel_wts: bool | None = None
    scale_approx_mult_bits: int | None = None
    fpq_module: int | Literal["half", "bfloat16", "bf16"] | None = None
    fp16: bool | None = None
    fake: bool | None = None
    quantize_inputs: bool | None = None
    input_overrides: Mapping[str, InputOverride] | None = None

    def __post_init__(self) -> None:
        _bits({name: getattr(self, name) for name in BITS})
        if not all(place.isdecimal() for place in self.input_overrides or {}):
            raise ValueError("input_overrides are of inputs by their number, from 0")


@dataclass(frozen=True, kw_only=True)
class Quantizer:
    """Bits of everything, and of the modules that the first matching pattern of `overrides` names."""

    bits_activations: int | None = None
    bits_weights: int | None = None
    bits_bias: int | None = None
    overrides: Mapping[str, Override] | None = None

    def __post_init__(self) -> None:
        _bits({name: getattr(self, name) for name in BITS})
        for pattern in self.overrides or {}:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"overrides: {pattern!r} is not a regular expression: {error}") from error


@dataclass(frozen=True, kw_only=True)
class LowBits(Quantizer):
    """DoReFa's and WRPN's."""

    bits_activations: int | None = 32
    bits_weights: int | None = 32


@dataclass(frozen=True, kw_only=True)
class LearnedClip(LowBits):
    """PACT's."""

    act_clip_init_val: float = 8.0
    act_clip_decay: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.act_clip_init_val <= 0:
            raise ValueError("act_clip_init_val must be above 0")


@dataclass(frozen=True, kw_only=True)
class Range(Quantizer):
    """By the ranges of what is seen in training."""

    bits_activations: int | None = 32
    bits_weights: int | None = 32
    bits_bias: int | None = 32
    mode: Mode | Modes = "SYMMETRIC"
    ema_decay: float = 0.999
    per_channel_wts: bool = False
    quantize_inputs: bool = True
    num_bits_inputs: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        _bits({"num_bits_inputs": self.num_bits_inputs})
        if not 0 < self.ema_decay < 1:
            raise ValueError("ema_decay must be between 0 and 1")


@dataclass(frozen=True, kw_only=True)
class PostTraining(Quantizer):
    """By statistics, without training."""

    bits_activations: int | None = 8
    bits_parameters: int | None = 8
    bits_accum: int = 32
    mode: Mode | Modes = "SYMMETRIC"
    clip_acts: Clip = "NONE"
    clip_n_stds: float | None = None
    clip_half_range: bool = False
    per_channel_wts: bool = False
    model_activation_stats: str | Mapping[str, Any] | None = None
    fp16: bool = False
    scale_approx_mult_bits: int | None = None
    inputs_quant_auto_fallback: bool = True
    fpq_module: int | Literal["half", "bfloat16", "bf16"] | None = None
    save_fp_weights: bool = False
    also_clip_weights: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _bits({"bits_parameters": self.bits_parameters})
        if self.clip_acts == "N_STD" and not (self.clip_n_stds and self.clip_n_stds > 0):
            raise ValueError("clip_acts N_STD needs clip_n_stds, above 0")
        if self.also_clip_weights and self.per_channel_wts:
            raise ValueError("also_clip_weights needs per_channel_wts: false")


# --------------------------------------------------------------------------- learning rates


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


# --------------------------------------------------------------------------- extensions, policies


@dataclass(frozen=True, kw_only=True)
class Thinning:
    """Structures that are zero are removed; `arch` and `dataset` only chose a dummy input."""

    thinning_func_str: Literal["remove_filters", "remove_channels", "contract_model"]
    arch: str
    dataset: str


@dataclass(frozen=True, kw_only=True)
class Rewinding:
    """Not Distiller's: weights, learning rates or both become what they were when an epoch began."""

    epoch: int
    what: Literal["weights", "lr", "both"] = "both"

    def __post_init__(self) -> None:
        if self.epoch < 0:
            raise ValueError("epoch counts from 0")


@dataclass(frozen=True, kw_only=True)
class PruningPolicy:
    """How a pruner is run."""

    levels: Mapping[str, float] | None = None
    keep_mask: bool = False
    mini_batch_pruning_frequency: int = 0
    mask_on_forward_only: bool = False
    mask_gradients: bool = False
    use_double_copies: bool = False
    discard_masks_at_minibatch_end: bool = False
    skip_first_minibatch: bool = False
    fold_batchnorm: bool = False

    def __post_init__(self) -> None:
        if self.mask_gradients and not self.mask_on_forward_only:
            raise ValueError("mask_gradients needs mask_on_forward_only")
        if self.mini_batch_pruning_frequency < 0:
            raise ValueError("mini_batch_pruning_frequency must not be negative")


@dataclass(frozen=True, kw_only=True)
class RegularizationPolicy:
    """How a regularizer is run."""

    keep_mask: bool = False


@dataclass(frozen=True, kw_only=True)
class NoArguments:
    """Of the policies that take none."""


RANKINGS = {
    "ActivationAPoZRankedFilterPruner": "apoz",
    "ActivationMeanRankedFilterPruner": "mean",
    "GradientRankedFilterPruner": "gradient",
    "RandomRankedFilterPruner": "random",
    "BernoulliFilterPruner": "bernoulli",
}
GRADUALLY = "_AGP"  # how the names of the classes end whose share rises
PRUNERS: dict[str, type] = {
    "MagnitudeParameterPruner": Magnitude,
    "SparsityLevelParameterPruner": Level,
    "SensitivityPruner": Sensitivity,
    "SplicingPruner": Splicing,
    "AutomatedGradualPruner": GradualLevel,
    "BaiduRNNPruner": Baidu,
    "StructureParameterPruner": Threshold,
    **{f"{norm}RankedStructureParameterPruner": SteadyRanked for norm in ("L1", "L2")},
    **{f"{norm}RankedStructureParameterPruner{GRADUALLY}": GradualRanked for norm in ("L1", "L2")},
    "RandomLevelStructureParameterPruner": RandomLevel,
    **dict.fromkeys(RANKINGS, SteadyFilters),
    **{f"{name}{GRADUALLY}": GradualFilters for name in RANKINGS},
    "FMReconstructionChannelPruner": FeatureMaps,
}
REGULARIZERS: dict[str, type] = {
    "L1Regularizer": Absolute,
    "GroupLassoRegularizer": GroupLasso,
    "GroupVarianceRegularizer": GroupVariance,
}
QUANTIZERS: dict[str, type] = {
    "WRPNQuantizer": LowBits,
    "DorefaQuantizer": LowBits,
    "PACTQuantizer": LearnedClip,
    "QuantAwareTrainRangeLinearQuantizer": Range,
    "NCFQuantAwareTrainQuantizer": Range,
    "PostTrainLinearQuantizer": PostTraining,
}
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
EXTENSIONS: dict[str, type] = {
    **dict.fromkeys(("FilterRemover", "ChannelRemover", "StructureRemover"), Thinning),
    "Rewinder": Rewinding,
}
