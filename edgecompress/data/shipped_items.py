"""What of a deploy's test items ships with an artifact."""

from __future__ import annotations

ITEMS = 16  # test items that ship with the artifact, inputs and outputs: what devices and apps check against
ANSWERS = "answers"  # the folder of a verdict that holds what the artifact answered to them when it was verified
