"""A source that is a file: its own layer outputs are the layers. The own error of a layer is unknown."""

from __future__ import annotations

from itertools import pairwise

from edgecompress.stages.diagnose import align
from edgecompress.stages.diagnose.layer_outputs import LayerValues, NetOutputs
from edgecompress.stages.diagnose.noise import LayerNoise, Power
from edgecompress.stages.diagnose.noise_passes import ALIGNED, Measurements
from edgecompress.stages.diagnose.rows import LayerRecord, Place

UNKNOWN = "own error and effect need a torch source: a model file cannot be run layer by layer"


def against(source: NetOutputs, artifact: NetOutputs) -> Measurements:
    """The layers of a file against those of an artifact, both with their layers as outputs."""
    ours, theirs = ([_value(output) for output in side.layers] for side in (source, artifact))
    matches = align.align(theirs, ours)
    matched = {m.source: (output, m) for output, m in zip(artifact.layers, matches, strict=True) if m}
    layers = [_record(output, matched.get(index)) for index, output in enumerate(source.layers)]
    known = [index for index, layer in enumerate(layers) if layer.output]
    for previous, index in pairwise(known):
        layers[index].place.before = (previous,)
    outputs = {name: Power() for name in source.outputs}
    for power, before, after in zip(outputs.values(), source.outputs.values(), artifact.outputs.values(), strict=True):
        if before.dtype.kind == "f":
            power.add(before, after.reshape(before.shape))
    unmatched = [
        str(output.row["operator"]) for output, match in zip(artifact.layers, matches, strict=True) if match is None
    ]
    return Measurements(layers, {name: power for name, power in outputs.items() if power.signal}, unmatched)


def _value(output: LayerValues) -> align.Value:
    layout, module, name = (output.row.get(key, "") for key in ("layout", "module", "tensor"))
    return align.Value(output.values[:ALIGNED], layout, module, name)


def _record(output: LayerValues, matched: tuple[LayerValues, align.Match] | None) -> LayerRecord:
    operator, kind = str(output.row["operator"]), str(output.row["type"])
    shape = output.values.shape[1:]
    place = Place(operator, operator, kind.lower(), output.row.get("module", ""), tuple(shape))
    if matched is None:
        return LayerRecord(place)
    theirs, match = matched
    tally = LayerNoise(*theirs.extremes, axis=-1 if output.row.get("layout") == "NHWC" or len(shape) < 4 else 1)
    for ours, other in zip(output.values, theirs.values, strict=True):
        tally.add(ours, align.reordered(other, match.axes, shape))
    return LayerRecord(place, theirs.row, tally, reasons=[UNKNOWN])
