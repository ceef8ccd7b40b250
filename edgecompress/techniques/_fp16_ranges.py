"""Half precision: what it does to the tensors of a graph, which nodes stay in fp32 for it, and what is left to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Request
from edgecompress.techniques._calibration import check_samples, used

if TYPE_CHECKING:
    import numpy as np

LARGEST = 65504.0  # of a half-precision number
TRIALS = 64  # of a search at most
FEW = 8  # samples that a search looks at
MARGIN_DB = 3.0  # that a search reaches above the floor: other data fare a little worse
ROUNDING_DB = 50.0  # a tensor loses more only where its numbers are too small for half precision: else it is 70


@dataclass
class PrecisionTally:
    """One tensor over all samples, in fp32 and in half precision; numbers that fp32 has not either do not count."""

    largest: float = 0.0
    signal: float = 0.0
    noise: float = 0.0
    broken: int = 0  # numbers that half precision made infinite or NaN

    def add(self, full: np.ndarray, half: np.ndarray) -> None:
        """One more sample."""
        import numpy as np

        finite = np.isfinite(full)
        numbers, other = full[finite].astype(np.float64), half[finite].astype(np.float64)
        kept = np.isfinite(other)
        self.broken += int((~kept).sum())
        self.largest = max(self.largest, float(np.abs(numbers).max(initial=0.0)))
        self.signal += float((numbers**2).sum())
        self.noise += float(((numbers - other)[kept] ** 2).sum())

    @property
    def db(self) -> float:
        """Signal to noise: infinite where nothing was lost, minus infinity where numbers broke."""
        if self.broken:
            return -math.inf
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


Tallies = Mapping[str, PrecisionTally]  # by tensor


def rounded(arrays: Iterable[Mapping[str, np.ndarray]]) -> dict[str, PrecisionTally]:
    """The tensors of each sample against themselves, rounded to half precision."""
    import numpy as np

    def halved(values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            return values.astype(np.float16)

    return tallied({name: (values, halved(values)) for name, values in each.items()} for each in arrays)


def tallied(pairs: Iterable[Mapping[str, tuple[np.ndarray, np.ndarray]]]) -> dict[str, PrecisionTally]:
    """The tensors of each sample, in fp32 and in half precision, sample by sample."""
    tallies: dict[str, PrecisionTally] = {}
    for each in pairs:
        for name, (full, half) in each.items():
            tallies.setdefault(name, PrecisionTally()).add(full, half)
    return tallies


def unfit(tallies: Tallies, headroom: float) -> set[str]:
    """The tensors that half precision cannot hold: too near its end for other data, or too small for its steps."""
    return {n for n, t in tallies.items() if t.largest * headroom > LARGEST or t.db < ROUNDING_DB}


def too_large(peaks: Mapping[str, float], headroom: float) -> str:
    """Why a net whose operators answer numbers up to these cannot be in half precision as a whole, or ""."""
    name = max(peaks, key=lambda each: peaks[each], default="")
    if not name or peaks[name] * headroom <= LARGEST:
        return ""
    return (
        f"operator '{name}' answers {peaks[name]:.4g} on the calibration data; times headroom ({headroom:g}) that is "
        f"beyond half precision, {LARGEST:g}"
    )


def largest(tallies: Tallies) -> dict[str, str | float]:
    """The tensor with the largest number, for the facts."""
    name = max(tallies, key=lambda n: tallies[n].largest, default="")
    return {"tensor": name, "value": tallies[name].largest} if name else {}


def share(halves: int, total: int, why: str = "") -> dict[str, Json]:
    """For the facts: {"macs_half": the share of the MACs in half precision}; None, with the reason, without any."""
    if total:
        return {"macs_half": halves / total}
    return {"macs_half": None, "macs_half_why": why or "nothing in the net multiplies and adds"}


# --------------------------------------------------------------------------- which nodes

Loss = Callable[[Sequence[str], int | None], Tallies]  # nodes in fp32, samples at most -> what each output loses


@dataclass
class NodeSearch:
    """The fewest nodes that must stay in fp32 for every output to be finite and above the floor.

    QuickXplain (Junker, AAAI 2004): a few culprits among many nodes are found in some multiple of their number times
    log(nodes) trials. When the trials are spent, what is not decided yet stays in fp32.
    """

    loss: Loss
    floor_db: float
    limit: int | None
    trials: int = 0

    def good(self, kept: Sequence[str]) -> bool:
        """Whether these suffice."""
        self.trials += 1
        return all(tally.db >= self.floor_db for tally in self.loss(kept, self.limit).values())

    def fewest(self, kept: Sequence[str], others: Sequence[str]) -> list[str]:
        """Those of `others` that are needed beside `kept`, provided that all of them suffice."""
        if self.trials >= TRIALS or len(others) == 1:
            return list(others)
        half = len(others) // 2
        for part in (others[:half], others[half:]):
            if self.good([*kept, *part]):
                return self.fewest(kept, part)
        second = self.fewest([*kept, *others[:half]], others[half:])
        return [*self.fewest([*kept, *second], others[:half]), *second]


def settle(loss: Loss, kept: Sequence[str], others: Sequence[str], floor_db: float) -> tuple[list[str], Tallies]:
    """The nodes that stay in fp32: `kept`, and those of `others` that it takes; and what the outputs lose then."""
    full, tallies = list(kept), loss(kept, None)
    for limit in (FEW, None):  # few samples find the nodes, all of them verify
        if all(tally.db >= floor_db for tally in tallies.values()):
            break
        full = [*kept, *NodeSearch(loss, floor_db + MARGIN_DB, limit).fewest(kept, others)]
        tallies = loss(full, None)
    return full, tallies


def why_lost(tallies: Tallies, floor_db: float) -> str:
    """The output that half precision cannot give, or nothing."""
    for name, tally in tallies.items():
        if tally.broken:
            return f"half precision makes the output '{name}' infinite or NaN on the calibration data"
        if tally.db < floor_db:
            return f"half precision leaves the output '{name}' {tally.db:.1f} dB (floor_db is {floor_db:g})"
    return ""


# --------------------------------------------------------------------------- a net in half precision


def check(samples: int | None, headroom: float) -> None:
    """Raises ValueError for options that cannot be."""
    check_samples(samples)
    if headroom < 1:
        raise ValueError("headroom must be at least 1")


class Trial(Protocol):
    """A net on batches of samples, in fp32 and in half precision, by the names of its nodes."""

    @property
    def names(self) -> Sequence[str]:
        """Of the nodes, in the order of computing."""

    @property
    def batches(self) -> Sequence[list[int]]:
        """The items of each batch."""

    def ranges(self) -> Tallies:
        """Every tensor of the fp32 net, and what rounding it would lose."""

    def fixed(self, ranges: Tallies) -> Collection[str]:
        """The nodes that stay in fp32 whatever the outputs lose."""

    def loss(self, kept: Sequence[str], limit: int | None) -> Tallies:
        """What each output loses with only `kept` in fp32, on at most `limit` batches."""

    def write(self, kept: Sequence[str]) -> Mapping[str, Json]:
        """Writes the net with only `kept` in fp32 into request.out; the facts of `share`, and "lost"."""


def halved(request: Request, trial: Trial) -> Artifact:
    """The model in half precision, but for the nodes that cannot be.

    facts: {"kept": nodes in fp32, "macs_half": share of the MACs in half precision, "largest": {"tensor", "value"},
    "samples"}; "lost" where that does not mend it.
    """
    ranges, model = trial.ranges(), request.model
    fixed = trial.fixed(ranges)
    request.progress(0.4, "half precision")
    kept, others = ([n for n in trial.names if (n in fixed) is side] for side in (True, False))
    kept, outputs = settle(trial.loss, kept, others, request.options.floor_db)
    facts: dict[str, Json] = {
        "kept": [name for name in trial.names if name in kept],
        **trial.write(kept),
        "largest": largest(ranges),
        "samples": used(trial.batches),
    }
    none = "every operator would have to stay in fp32" if len(kept) == len(trial.names) else ""
    if lost := why_lost(outputs, request.options.floor_db) or facts.get("lost") or none:
        facts["lost"] = lost
    return Artifact(request.out, model.kind, model.inputs, model.outputs, facts).write()
