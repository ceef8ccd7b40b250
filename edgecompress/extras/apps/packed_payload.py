"""A payload whose model's files are packed, .packed behind their names, as packages carry it. It runs on boards too."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core import atomic_file
from edgecompress.core.errors import InputError
from edgecompress.formats import packed_file

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card


def unpack(card: Card, payload: Path) -> None:
    """Writes the model's files beside their packed forms in `payload`, each whole or not at all; once.

    Raises InputError for one that is damaged, or whose bytes are not those of the card.
    """
    for file, told in zip(_files(card, payload), card["model"]["files"], strict=True):
        if file.is_file() and file.stat().st_size == told["bytes"]:
            continue
        try:
            data = packed(file).read_bytes()
            if packed_file.size(data) != told["bytes"]:
                raise InputError(f"unpacks to another size than the {told['bytes']:,} bytes of the card")
            with atomic_file.told(file, "folder"):
                atomic_file.write(file, packed_file.unpack(data))
        except FileNotFoundError as error:
            raise InputError(f"{packed(file)}: is missing") from error
        except InputError as error:
            raise InputError(f"{packed(file)}: {error}") from error


def opened(card: Card, carried: Path, payload: Path) -> None:
    """That payload with the model's files as they were, in the new folder `payload`. Raises as `unpack`."""
    shutil.copytree(carried, payload)
    unpack(card, payload)
    for file in _files(card, payload):
        packed(file).unlink()


def _files(card: Card, payload: Path) -> list[Path]:
    return [payload / file["path"] for file in card["model"]["files"]]


def packed(file: Path) -> Path:
    """Where a file of the model lies packed."""
    return file.with_name(file.name + packed_file.SUFFIX)
