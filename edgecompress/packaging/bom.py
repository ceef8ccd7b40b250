"""bom.cdx.json: what a package is made of, as CycloneDX 1.6."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from edgecompress.packaging.contents import Card

FILE = "bom.cdx.json"


def text(card: Card, module: ModuleType) -> str:
    """The bill of materials; the same for the same card."""
    told: dict[str, Any] = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": []}
    return json.dumps(told, indent=1) + "\n"
