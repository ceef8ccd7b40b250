"""Signs of noise in a variant's sessions: why another run might give other results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from edgecompress.core.stats import SPREAD, spread, trend
from edgecompress.reporting.formatting import plural
from edgecompress.reporting.model_numbers import Session

ELSEWHERE = ("outliers", "not warm")  # flags that the report tells of already


def between(medians_ms: Sequence[float]) -> list[str]:
    """How the sessions lie to each other, where that is worth a word."""
    if len(medians_ms) < 2:
        return []
    apart, drift = spread(medians_ms), trend(medians_ms)
    signs = [f"its sessions are {apart:.1%} apart"] if apart > SPREAD else []
    return signs + ([f"drifting: {drift:+.0%} over the sessions".replace("-", "−")] if drift else [])


def sentence(name: str, sessions: Sequence[Session]) -> str:
    """The noise that was seen while a variant was measured, in one sentence, or ""."""
    medians = [s.median_ms for s in sessions if s.median_ms is not None]
    signs = between(medians)
    # Each kind of flag with the number of sessions that it was raised in, the first one as it was said.
    flags = [flag for s in sessions for flag in s.flags or () if not flag.startswith(ELSEWHERE)]
    for kind, count in Counter(flag.partition(":")[0] for flag in flags).items():
        first = next(flag for flag in flags if flag.startswith(kind))
        signs.append(f"{first} (in {count} of {plural(len(sessions), 'session')})")
    return f"Noise was seen in {name}: {'; '.join(signs)}; another run may not agree." if signs else ""
