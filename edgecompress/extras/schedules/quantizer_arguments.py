"""What a schedule may say of quantizers: Distiller's classes with their arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Mode = Literal["SYMMETRIC", "SYMMETRIC_RESTRICTED", "ASYMMETRIC_UNSIGNED", "ASYMMETRIC_SIGNED"]
Clip = Literal["NONE", "None", "AVG", "N_STD", "GAUSS", "LAPLACE"]
BITS = ("bits_activations", "bits_weights", "bits_bias")
Default = Literal["default"]  # an override that says nothing of it; null says: in floating point


def _bits(given: Mapping[str, int | str | None]) -> None:
    for name, bits in given.items():
        if isinstance(bits, int) and not 1 <= bits <= 32:
            raise ValueError(f"{name} must be from 1 to 32, or null for floating point, not {bits}")


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


QUANTIZERS: dict[str, type] = {
    "WRPNQuantizer": LowBits,
    "DorefaQuantizer": LowBits,
    "PACTQuantizer": LearnedClip,
    "QuantAwareTrainRangeLinearQuantizer": Range,
    "NCFQuantAwareTrainQuantizer": Range,
    "PostTrainLinearQuantizer": PostTraining,
}
