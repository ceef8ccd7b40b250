"""What a schedule may name: each class of Distiller's with its arguments, and those of a policy.

The tables at the end, and those of `quantizer_arguments` and `rate_arguments`, are all that is allowed: a name that is
in none of them is an error of the reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

Structure = Literal["2D", "3D", "Filters", "4D", "Rows", "Cols", "Channels"]
Lasso = Literal[Structure, "Rows+Cols", "Cols+Rows", "Channels+4D", "4D+Channels"]
Criterion = Literal["Max", "Mean_Abs"]
EVERY = "*"  # in a table by parameter: all that are not named


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
EXTENSIONS: dict[str, type] = {
    **dict.fromkeys(("FilterRemover", "ChannelRemover", "StructureRemover"), Thinning),
    "Rewinder": Rewinding,
}
