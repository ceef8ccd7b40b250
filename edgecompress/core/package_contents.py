"""The data types of packaging: the input of a packager and the result of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.package_names import Names

CARD = "model_card.json"  # in the payload, and at the package's root
PAYLOAD = ("model", "golden", "labels.json", CARD)  # what a payload folder holds

LEVELS = {"graph_optimization_level": ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")}
Card = Mapping[str, Any]  # packaging/model_card.schema.json


@dataclass(frozen=True)
class Contents:
    """One shipped artifact, ready to be wrapped.

    `payload` is a folder with `model/` (the artifact's files), `golden/` (raw little-endian numbers of one test item:
    as it came, as the model takes it, as the model answered), `labels.json` and the card. Every package carries those
    files with these bytes; only where they lie differs. `options` is the packager's own Options.
    """

    card: Card
    names: Names
    payload: Path
    options: Any = None
    platforms: tuple[str, ...] = ()  # of the target's devices, as shell patterns; empty: any


@dataclass(frozen=True)
class PackageCheck:
    """A check of `package verify`. `reason`: what is wrong, or why the check was skipped."""

    name: str
    status: Literal["pass", "fail", "skipped"]
    reason: str = ""


def check_settings(card: Card, possible: Mapping[str, Sequence[Json]]) -> None:
    """Raises InputError for a session setting that the runtime's interface in a package cannot have."""
    for name, value in card["runtime"].get("settings", {}).items():
        if name in possible and value not in possible[name]:
            known = " or ".join(map(str, possible[name]))
            raise InputError(
                f"the model was verified with {name} = {value}, but in this package its runtime can have {known} only; "
                "deploy it with that"
            )


def settings(card: Card) -> str:
    """What a README says of the settings that the model was verified with; empty where its runtime has none."""
    chosen = card["runtime"].get("settings") or {}
    listed = ", ".join(f"{name} = {value}" for name, value in sorted(chosen.items()))
    if not listed:
        return ""
    return (
        f"The model was verified and measured by {card['runtime']['name']} with the settings {listed}; a session with "
        "other settings may answer otherwise, or take longer."
    )
