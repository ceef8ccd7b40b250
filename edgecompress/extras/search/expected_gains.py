"""What a variant may be expected to gain: from recorded deploys of the nets that are most like the one in question.

A gain is how many times faster, smaller or cheaper than the best uncompressed variant of the same net on the same
device. Nets are alike by their features: decades of MACs, weights and activations, and which layers do the work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgecompress.core.json import parsed

if TYPE_CHECKING:
    from edgecompress.reporting.model import Report

PRIOR = Path(__file__).with_suffix(".json")  # made by benchmarks/advise.py
NEIGHBOURS = 5  # recorded nets that an interval covers
FAR = 3.0  # decades: a net that is less like ours tells nothing of it
MOSTLY = 0.5  # of the records: a variant that kept its limits more rarely comes after the others
KINDS = ("convolutions", "matrix products", "recurrent layers")
RECURRENT = ("lstm", "gru", "rnn")
BYTES = {"fp32": 4.0, "fp16": 2.0, "int8": 1.0, "int8-dynamic": 1.0, "int8-weights": 1.0, "palette": 0.75, "int4": 0.5}
OPERATOR_BYTES = 1024  # that scales and quantizers add to a file, for each of its operators, at most
OBJECTIVES = ("latency", "size", "energy")
NUMBERS = {"latency": "latency", "size": "size", "energy": "energy_gross"}  # of a report
LOST = ("lost", "failed", "unreached")

Features = Mapping[str, float]  # a decade is as far as a whole share
Gains = Mapping[str, float]  # by objective; none: it did not keep its limits, or could not be built


@dataclass(frozen=True)
class Record:
    """A net that was deployed: `gains` by variant (`key`), `pace`: seconds it took over those that its plan told."""

    net: str
    source: str  # the report or the file that says so
    platform: str
    features: Features
    gains: Mapping[str, Gains]
    pace: float | None = None
    sha256: str = ""  # of the net, where that is known
    one_session: bool = False  # its times have no interval


@dataclass(frozen=True)
class Interval:
    """A gain that is expected: `middle` within `low` to `high`."""

    low: float
    middle: float
    high: float

    def times(self, factor: Interval) -> Interval:
        """With another gain on top."""
        return Interval(self.low * factor.low, self.middle * factor.middle, self.high * factor.high)


@dataclass(frozen=True)
class Expected:
    """What the records tell of a variant: `kept`: the share of them, by likeness, in which it kept its limits.

    `records`: the nets, and the report or the file that tells of each; `of`: the variant there, as `key` has it.
    `one_session`: it is one record alone, and that of one session.
    """

    gain: Interval | None = None
    kept: float | None = None
    records: Mapping[str, str] = field(default_factory=dict)
    of: str = ""
    one_session: bool = False

    def times(self, factor: Interval | None) -> Expected:
        """With a gain on top; it is not known where that is not."""
        return replace(self, gain=self.gain.times(factor) if self.gain and factor else None)


@dataclass(frozen=True)
class Prior:
    """What ships with the package: records, and what techniques gain on top of the precision that follows them."""

    records: Sequence[Record]
    factors: Mapping[str, Interval] = field(default_factory=dict)


def key(runtime: str, steps: Iterable[str]) -> str:
    """What a variant is called in records: "litert int8", "onnx prune_channels+int8"."""
    return f"{runtime} {'+'.join(steps) or 'fp32'}"


@cache
def prior() -> Prior:
    """The table that ships."""
    document: Any = parsed(PRIOR.read_text(encoding="utf-8"))
    factors = {name: Interval(*row["gain"]) for name, row in document["factors"].items()}
    return Prior([Record(**row) for row in document["records"]], factors)


# --------------------------------------------------------------------------- what a net is like


def kind(layer: str) -> str:
    """Which of KINDS a type of layer is, as any format calls it."""
    word = layer.lower()
    if "conv" in word:
        return KINDS[0]
    return KINDS[2] if any(each in word for each in RECURRENT) else KINDS[1]


def shares(layers: Sequence[Mapping[str, Any]], of: str) -> dict[str, float]:
    """Each kind's part of the "macs" or "parameters" of the layers that multiply, of an analysis."""
    sums = dict.fromkeys(KINDS, 0.0)
    for row in layers:
        if row["macs"]:
            sums[kind(str(row["type"]))] += float(row[of] or 0)
    whole = sum(sums.values())
    return {name: part / whole if whole else 0.0 for name, part in sums.items()}


def features(analysis: Mapping[str, Any]) -> dict[str, float]:
    """The features of a net, from what `analyze` found."""
    macs = sum(row["macs"] or 0 for row in analysis["layers"])
    total = analysis["total"]
    amounts = {"macs": macs, "weights": total["parameters"], "activations": total["activation_bytes"]}
    return {name: math.log10(max(1.0, n)) for name, n in amounts.items()} | shares(analysis["layers"], "macs")


def distance(ours: Features, theirs: Features) -> float:
    """How unlike two nets are, in decades; what is not known of one counts as a decade."""
    return math.sqrt(sum((ours[n] - theirs[n]) ** 2 if n in theirs else 1.0 for n in ours))


# --------------------------------------------------------------------------- what is expected


def of_platform(records: Sequence[Record], platforms: Sequence[str]) -> list[Record]:
    """Those of devices that a target is for."""
    return [r for r in records if not platforms or any(fnmatch(r.platform, each) for each in platforms)]


def expected(name: str, ours: Features, records: Sequence[Record], objective: str, sha256: str) -> Expected:
    """What the nearest records that tell of a variant say, none of them FAR; of the same net (`sha256`), that alone."""
    told = [r for r in records if name in r.gains]
    near = sorted((r for r in told if distance(ours, r.features) <= FAR), key=lambda r: distance(ours, r.features))
    near = near[:NEIGHBOURS]
    if same := [r for r in told if sha256 and r.sha256 == sha256]:
        near, ours = same[:1], same[0].features  # the newest
    weights = [math.exp(-distance(ours, r.features)) for r in near]
    pairs = list(zip(weights, (r.gains[name] for r in near), strict=True))
    if not pairs:
        return Expected()
    kept = sum(w for w, gains in pairs if gains) / sum(weights)
    gain = _interval([(w, gains[objective]) for w, gains in pairs if objective in gains])
    return Expected(gain, kept, {r.net: r.source for r in near}, name, len(near) == 1 and near[0].one_session)


def place(kept: float | None, gain: Interval | None) -> tuple[bool, bool, float]:
    """What rows are sorted by: those that mostly kept their limits first, of these the ones that gain most."""
    return kept is not None and kept < MOSTLY, gain is None, -(gain.middle if gain else 0.0)


def _interval(weighted: Sequence[tuple[float, float]]) -> Interval | None:
    """From the least to the most, and the weighted geometric mean."""
    if not weighted:
        return None
    values = [value for _, value in weighted]
    mean = sum(w * math.log(value) for w, value in weighted) / sum(w for w, _ in weighted)
    return Interval(min(values), math.exp(mean), max(values))


def of_report(report: Report, source: str) -> Record:
    """A deploy of the user's own: a report tells the weights of its net, and where the time goes, but no MACs."""
    from edgecompress.reporting import shipped_headline

    held = report.source_artifact()
    plain = [v for v in report.variants if not v.compress and v.verdict not in LOST]
    near = {"weights": math.log10(max(1.0, held.size_bytes / BYTES["fp32"]))} if held else {}
    spent = next((v.ops for v in plain if v.ops and v.ops.total_ms), None)
    if spent and spent.total_ms:
        near |= {k: sum(op.ms for op in spent.ops if kind(op.type) == k) / spent.total_ms for k in KINDS}
    best = {o: min((n for v in plain if (n := v.numbers[NUMBERS[o]].value)), default=None) for o in OBJECTIVES}
    gains = {}
    for v in report.variants:
        values = {o: v.numbers[NUMBERS[o]].value for o in OBJECTIVES} if v.verdict not in LOST else {}
        gains[key(v.runtime, v.compress)] = {o: base / n for o, n in values.items() if (base := best[o]) and n}
    name = str(report.source.get("name") or report.source.get("model") or "")
    one = shipped_headline.one_session(report)
    return Record(name, source, "", near, gains, None, held.sha256 if held else "", one)


def pace(ours: Features, records: Sequence[Record]) -> float:
    """How many times as long as planned the deploys of the nearest nets took; 1 where there are none."""
    near = sorted((r for r in records if r.pace), key=lambda r: distance(ours, r.features))[:NEIGHBOURS]
    logs = [math.log(r.pace) for r in near if r.pace]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def size(word: str, parameters: int, quantized: float, operators: int) -> Interval:
    """How many times smaller a file of a precision is: `quantized`: the share of the weights that certainly becomes so.

    At best every weight does, at worst those alone, and each operator adds OPERATOR_BYTES.
    """
    whole, small = BYTES["fp32"] * max(1, parameters), BYTES.get(word, BYTES["fp32"])
    best = whole / (small * max(1, parameters))
    least = max(1, parameters) * (small * quantized + BYTES["fp32"] * (1 - quantized))
    added = OPERATOR_BYTES * operators if small < BYTES["fp32"] else 0
    worst = (whole + added / 8) / (least + added)
    return Interval(min(worst, best), math.sqrt(min(worst, best) * best), best)
