"""Resident memory of this process."""

from __future__ import annotations

import platform
import re
from pathlib import Path
from typing import TypedDict


class _Unread(TypedDict):
    peak_rss_bytes: int | None
    file_backed_bytes: int | None
    rss_reason: str


class ResidentMemory(_Unread, total=False):
    """What a session added to resident memory, None with the reason where nothing tells."""

    baseline_rss_bytes: int


class ProcessMemory:
    """Resident memory since the imports. Linux only: elsewhere None, with the reason.

    VmHWM is read in this process: the ru_maxrss of a child would hold the peak of its parent.
    """

    def __init__(self) -> None:
        self.fresh = _reset_peak()
        self.base, self.base_file = _status("VmRSS"), _status("RssFile")

    def peak(self) -> int | None:
        """The highest resident size so far."""
        return _status("VmHWM")

    def facts(self, before: int | None, buffer_bytes: int) -> ResidentMemory:
        """Peak over the baseline, less the window's own record (`before`: the peak when the window began)."""
        peak, file = self.peak(), _status("RssFile")
        if peak is None or self.base is None or before is None:
            reason = f"no /proc/self/status on {platform.system()}"
            return {"peak_rss_bytes": None, "file_backed_bytes": None, "rss_reason": reason}
        mine = min(buffer_bytes, peak - before)
        return {
            "peak_rss_bytes": max(0, peak - mine - self.base),
            "file_backed_bytes": None if file is None or self.base_file is None else max(0, file - self.base_file),
            "baseline_rss_bytes": self.base,
            "rss_reason": "" if self.fresh else "the peak could not be reset after the imports: it may be theirs",
        }


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(key: str) -> int | None:
    """Bytes of an entry of /proc/self/status."""
    try:
        text = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    entry = re.search(rf"^{key}:\s+(\d+) kB", text, re.MULTILINE)
    return int(entry.group(1)) * 1024 if entry else None
