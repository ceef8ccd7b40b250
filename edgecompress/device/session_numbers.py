"""What a round tells of each variant: the stage that measures writes it, the race reads it."""

from __future__ import annotations

from edgecompress.core.session_stats import SessionStatistics
from edgecompress.device.agent.measuring_round import TurnsTaken
from edgecompress.device.agent.session import SessionFacts, SessionMemory


class VariantMemory(SessionMemory):
    """The memory of a session, and the size of its artifact."""

    artifact_bytes: int


class SessionNumbers(SessionStatistics, SessionFacts, TurnsTaken):
    """What a round tells of a session of a variant; where it was too noisy, no statistics."""

    memory: VariantMemory
    items_per_s: float
    flags: list[str]
