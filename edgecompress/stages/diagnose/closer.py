"""The layers that harm most, looked at more closely: how large their channels are, how their values are spread."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from edgecompress.stages.diagnose.noise import Tally
from edgecompress.stages.diagnose.rows import Found

LAYERS, CHANNELS, BINS = 6, 512, 64


def rows(layers: Sequence[Found], culprits: Collection[str]) -> list[dict[str, Any]]:
    """The rows of facts["closer"]: those at fault, then by what they do at the output, at most LAYERS.

    Each is of the source: {"name", "channels": the channels' largest magnitudes, the largest first, of more than
    CHANNELS so many evenly spaced, "histogram": {"counts": [BINS], "edges": [BINS + 1]} of values at a few places}.
    """
    known = [(found, found.tally) for found in layers if found.tally]
    known.sort(key=lambda at: (at[0].place.name not in culprits, -(at[0].effect or 0.0), -(at[0].ratio or 0.0)))
    return [
        {"name": found.place.name, "channels": _channels(tally), "histogram": _histogram(tally)}
        for found, tally in known[:LAYERS]
    ]


def _channels(tally: Tally) -> list[float]:
    import numpy as np

    if tally.channels is None or tally.channels.size < 2:
        return []
    ranked = np.sort(tally.channels)[::-1]
    at = np.linspace(0, ranked.size - 1, min(ranked.size, CHANNELS)).round().astype(int)
    return [float(size) for size in ranked[at]]


def _histogram(tally: Tally) -> dict[str, list[float]]:
    import numpy as np

    values = np.concatenate(tally.points) if tally.points else np.zeros(0)
    ends = (tally.least, tally.most) if tally.least < tally.most else None
    if not values.size or ends is None:
        return {"counts": [], "edges": []}
    counts, edges = np.histogram(values.astype(np.float64), BINS, ends)
    return {"counts": counts.tolist(), "edges": edges.tolist()}
