"""A stranger's JSON: a report as it is read, compared and shown; the card of an artifact; a measurement."""

from __future__ import annotations

from pathlib import Path
from random import Random

from edgecompress.commands import compare
from edgecompress.core.model import CARD, Artifact
from edgecompress.extras.apps import model_card
from edgecompress.reporting import compare_output, external_results, read, terminal
from fuzz import trees

WORDS = tuple(f'"{word}"'.encode() for word in ("schema", "variants", "numbers", "value", "unit", "choice", "kind"))


def check(data: bytes, folder: Path) -> None:
    """What is read as a report can be shown and compared; a measurement is the same however it was written."""
    for name in ("report.json", CARD, "card.json"):
        (folder / name).write_bytes(data)
    if b"edgecompress/measured/" in data:
        measurement = external_results.parsed(data, "measured.json")
        assert external_results.parsed(measurement.canonical, "again") == measurement, "written again, it differs"
    elif b"edgecompress/stages/report/" in data:
        _shown(folder)
    elif b'"packager"' in data:
        model_card.read(folder / "card.json")
    else:
        Artifact.read(folder).write()


def _shown(folder: Path) -> None:
    """A report in a terminal, and beside itself."""
    with read.rendering(folder):
        terminal.render(read.report(folder))
    compared = compare.compare([folder, folder / "report.json"])
    compare_output.render(compared)
    compare_output.data(compared)


def changed(data: bytes, random: Random) -> bytes:
    """The document with one value changed."""
    return trees.document(data, random)
