"""A source that is a file: its own taps are the layers. What a layer alone adds is not known there."""

from __future__ import annotations

from itertools import pairwise

from edgecompress.stages.diagnose import align
from edgecompress.stages.diagnose.noise import Power, Tally
from edgecompress.stages.diagnose.passes import ALIGNED, Passed
from edgecompress.stages.diagnose.rows import Found, Place
from edgecompress.stages.diagnose.taps import Answers, Tap

UNKNOWN = "own error and effect need a torch source: a file cannot be computed layer by layer"


def against(source: Answers, artifact: Answers) -> Passed:
    """The layers of a file against those of an artifact, both tapped."""
    wanted, given = ([_value(tap) for tap in side.taps] for side in (source, artifact))
    matches = align.align(given, wanted)
    found = {m.source: (tap, m) for tap, m in zip(artifact.taps, matches, strict=True) if m}
    layers = [_found(tap, found.get(index)) for index, tap in enumerate(source.taps)]
    known = [index for index, layer in enumerate(layers) if layer.tap]
    for before, after in pairwise(known):
        layers[after].place.before = (before,)
    outputs = {name: Power() for name in source.outputs}
    for power, ours, theirs in zip(outputs.values(), source.outputs.values(), artifact.outputs.values(), strict=True):
        if ours.dtype.kind == "f":
            power.add(ours, theirs.reshape(ours.shape))
    unmatched = [str(tap.row["operator"]) for tap, match in zip(artifact.taps, matches, strict=True) if match is None]
    return Passed(layers, {name: power for name, power in outputs.items() if power.signal}, unmatched)


def _value(tap: Tap) -> align.Value:
    return align.Value(tap.values[:ALIGNED], tap.row.get("layout", ""), tap.row.get("module", ""))


def _found(tap: Tap, matched: tuple[Tap, align.Match] | None) -> Found:
    operator, kind = str(tap.row["operator"]), str(tap.row["type"])
    shape = tap.values.shape[1:]
    place = Place(operator, operator, kind.lower(), tap.row.get("module", ""), tuple(shape))
    if matched is None:
        return Found(place)
    theirs, match = matched
    tally = Tally(*theirs.extremes, axis=-1 if tap.row.get("layout") == "NHWC" or len(shape) < 4 else 1)
    for ours, other in zip(tap.values, theirs.values, strict=True):
        tally.add(ours, align.reordered(other, match.axes, shape))
    return Found(place, theirs.row, tally, reasons=[UNKNOWN])
