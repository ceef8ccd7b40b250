"""The versions of constraints.txt."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parent.parent / "constraints.txt").read_text(encoding="utf-8")
PINS: dict[str, str] = dict(re.findall(r"^([\w.-]+)==([^\s\\]+)", TEXT, re.MULTILINE))
