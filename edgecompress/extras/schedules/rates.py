"""How much goes at an epoch: the two ramps of Distiller's gradual pruners."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Moment:
    """An epoch of a policy that begins at `starting` and has ended at `ending`."""

    epoch: int
    starting: int
    ending: int
    frequency: int

    @property
    def span(self) -> int:
        """Epochs between the first and the last at which it acts."""
        return (self.ending - self.starting - 1) // self.frequency * self.frequency


def agp(initial: float, final: float, now: Moment) -> float:
    """The share that goes: s_f + (s_i - s_f) (1 - t / n)^3 (Zhu and Gupta 2017, arXiv:1710.01878, eq. 1)."""
    return final + (initial - final) * (1 - (now.epoch - now.starting) / now.span) ** 3


def baidu(q: float, ramp_epoch_offset: int, ramp_slope_mult: float, now: Moment) -> float:
    """The threshold: a straight line, from the ramp on a steeper one (Narang et al. 2017, arXiv:1704.05119, eq. 1).

    q is the 90th percentile of the magnitudes of a trained dense model.
    """
    ramp = now.starting + ramp_epoch_offset
    slope = 2 * q * now.frequency / (2 * (ramp - now.starting) + 3 * (now.ending - ramp))
    if now.epoch < ramp:
        return slope * (now.epoch - now.starting + 1) / now.frequency
    steep = slope * ramp_slope_mult
    return (slope * (ramp - now.starting + 1) + steep * (now.epoch - ramp + 1)) / now.frequency
