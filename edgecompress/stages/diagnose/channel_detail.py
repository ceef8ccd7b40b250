"""The layers that harm most, looked at more closely: how large their channels are, how their values are spread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TypedDict

from edgecompress.stages.diagnose.noise import LayerNoise
from edgecompress.stages.diagnose.rows import LayerRecord

LAYERS, CHANNELS, BINS = 6, 512, 64


class ValueHistogram(TypedDict):
    """Counts of [BINS], between edges of [BINS + 1]; both empty where nothing is known."""

    counts: list[float]
    edges: list[float]


class Detail(TypedDict):
    """A layer of the source: the channels' largest magnitudes, the largest first, and values at a few places."""

    name: str
    channels: list[float]
    histogram: ValueHistogram


def rows(layers: Sequence[LayerRecord], culprits: Collection[str]) -> list[Detail]:
    """The rows of facts["closer"]: those at fault, then by what they do at the output, at most LAYERS.

    Of more than CHANNELS channels so many are listed, evenly spaced.
    """
    known = [(record, record.tally) for record in layers if record.tally]
    known.sort(key=lambda at: (at[0].place.name not in culprits, -(at[0].effect or 0.0), -(at[0].ratio or 0.0)))
    return [
        {"name": record.place.name, "channels": _channels(tally), "histogram": _histogram(tally)}
        for record, tally in known[:LAYERS]
    ]


def _channels(tally: LayerNoise) -> list[float]:
    import numpy as np

    if tally.channels is None or tally.channels.size < 2:
        return []
    ranked = np.sort(tally.channels)[::-1]
    at = np.linspace(0, ranked.size - 1, min(ranked.size, CHANNELS)).round().astype(int)
    return [float(size) for size in ranked[at]]


def _histogram(tally: LayerNoise) -> ValueHistogram:
    import numpy as np

    values = np.concatenate(tally.points) if tally.points else np.zeros(0)
    ends = (tally.least, tally.most) if tally.least < tally.most else None
    if not values.size or ends is None:
        return {"counts": [], "edges": []}
    counts, edges = np.histogram(values.astype(np.float64), BINS, ends)
    return {"counts": counts.tolist(), "edges": edges.tolist()}
