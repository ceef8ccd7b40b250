"""What a package holds: the input of a packager, what its card lists, the result of a check. It runs on boards too."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.model import SETTINGS, Artifact, TensorSpec
from edgecompress.core.package_names import Names

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card, Item

CARD = "model_card.json"  # in the payload, and at the package's root
MODEL = "model"  # the folder of the artifact's files
TOKENS = "tokenizer"  # the folder of the tokenizer's files
PAYLOAD = (MODEL, "golden", TOKENS, "labels.json", CARD)  # what a payload folder holds

LEVELS = {"graph_optimization_level": ("ORT_DISABLE_ALL", "ORT_ENABLE_BASIC", "ORT_ENABLE_EXTENDED", "ORT_ENABLE_ALL")}


@dataclass(frozen=True)
class Contents:
    """One shipped artifact, ready to be wrapped.

    `payload` is a folder with `model/` (the artifact's files), `golden/` (raw little-endian numbers of one test item:
    as it came, as the model takes it, as the model answered), `labels.json`, `tokenizer/` where the source has one,
    and the card. Every package carries those files with these bytes; only where they lie differs. `options` is the
    packager's own Options. `carried` is the folder that goes into the package: the payload, or, where the options have
    packed = true, the same with the files of `model/` packed, .packed behind their names (formats.packed_file).
    """

    card: Card
    names: Names
    payload: Path
    options: Any = None
    platforms: tuple[str, ...] = ()  # of the target's devices, as shell patterns; empty: any
    packed: Path | None = None  # that folder, where it is not the payload

    @property
    def carried(self) -> Path:
        """What goes into the package."""
        return self.packed or self.payload


@dataclass(frozen=True)
class PackageCheck:
    """A check of `package verify`. `reason`: what is wrong, or why the check was skipped."""

    name: str
    status: Literal["pass", "fail", "skipped"]
    reason: str = ""


def artifact(card: Card, payload: Path) -> Artifact:
    """The artifact that a payload holds, with the specs that the card says."""
    inputs, outputs = (tuple(map(TensorSpec.from_json, specs)) for specs in (card["inputs"], card["outputs"]))
    facts = {SETTINGS: card["runtime"]["settings"]} if "settings" in card["runtime"] else {}
    return Artifact(payload / MODEL, card["model"]["format"], inputs, outputs, facts)


def digest(card: Card) -> str:
    """The sha256 of the model: over "path, NUL, sha256, newline" of each of its files, in order."""
    lines = (f"{file['path']}\0{file['sha256']}\n" for file in card["model"]["files"])
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def is_packed(card: Card) -> bool:
    """Whether the package carries the model's files packed."""
    return card["packaged"]["options"].get("packed") is True


def listed(card: Card) -> dict[str, str]:
    """The sha256 of each file of the payload, without the card's own."""
    files = {file["path"]: file["sha256"] for file in card["model"]["files"]}
    items = {item["file"]: item["sha256"] for item in golden_items(card)}
    items |= {file["path"]: file["sha256"] for file in card.get("tokenizer", ())}
    return files | items | {card["labels"]["file"]: card["labels"]["sha256"]}


def golden_items(card: Card) -> list[Item]:
    """The raw item, where there is one, the inputs, the outputs."""
    golds = card["golden"]
    return [*([golds["raw"]] if golds["raw"] else []), *golds["inputs"], *golds["outputs"]]


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
    """What a README says of the settings that the model was verified with, and of runtimes that do not run it."""
    runtime, told = card["runtime"], []
    if chosen := runtime.get("settings"):
        listed = ", ".join(f"{name} = {value}" for name, value in sorted(chosen.items()))
        told.append(
            f"The model was verified and measured by {runtime['name']} with the settings {listed}; a session with "
            "other settings may answer otherwise, or take longer."
        )
    right = [runtime["name"], *(name for name, says in sorted(runtime.get("also", {}).items()) if says == "ok")]
    for name, says in sorted(runtime.get("also", {}).items()):
        if says != "ok":
            told.append(f"Not for {name}, but {', '.join(right)} {runtime['version']} or newer: {says}.")
    return " ".join(told)
