"""Windows by turns: whose is next, which is repeated because something disturbed it, and when that ends."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from edgecompress.core.errors import EdgeError
from edgecompress.device.agent.disturbance import Window

Take = Callable[[], Window]


@dataclass
class Taken:
    """The windows of one session: of each turn the last one taken, its number in the session, and its cause of doubt.

    Each `windows[k]` was taken beside those of the other sessions with the same k.
    """

    windows: list[Window] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    repeated: int = 0
    crashed: str = ""

    @property
    def noisy(self) -> str:
        """Why nothing can be said of the session: what disturbed half of its windows or more; "" where less were."""
        disturbed = [cause for cause in self.causes if cause]
        if 2 * len(disturbed) < len(self.causes):
            return ""
        return f"{disturbed[-1]} ({len(disturbed)} of {len(self.causes)} windows, each repeated)" if disturbed else ""

    @property
    def kept(self) -> list[int]:
        """The turns whose windows count: those that nothing disturbed, or all where the session is noisy."""
        return [k for k, cause in enumerate(self.causes) if self.noisy or not cause]


def take(sessions: Mapping[str, Take], turns: int, seed: int, doubt: Callable[[Window], str]) -> dict[str, Taken]:
    """`turns` windows of each session, in an order drawn anew for each turn; a doubtful window is taken again at once.

    All together at most as many are repeated as were to be taken: then they stay doubtful. A session whose process ends
    costs only itself.
    """
    draw, spare = random.Random(seed), turns * len(sessions)
    taken = {label: Taken() for label in sessions}
    for _ in range(turns):
        for label in draw.sample(list(sessions), len(sessions)):
            spare -= _turn(sessions[label], taken[label], spare, doubt)
    return taken


def _turn(take: Take, into: Taken, spare: int, doubt: Callable[[Window], str]) -> int:
    """One turn of a session; the windows that it repeated, at most half of those to `spare`."""
    if into.crashed:
        return 0
    repeated, most = 0, -(-spare // 2)
    try:
        window = take()
        while (cause := doubt(window)) and repeated < most:
            window, repeated = take(), repeated + 1
    except EdgeError as error:
        into.crashed = str(error)
        return repeated
    into.windows.append(window)
    into.causes.append(cause)
    into.repeated += repeated
    into.numbers.append(len(into.numbers) + into.repeated)
    return repeated
