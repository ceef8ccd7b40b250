"""How many test items ship with an artifact."""

from __future__ import annotations

ITEMS = 16  # test items that ship with the artifact, inputs and outputs: what devices and apps check against
