"""The settings of a session: those of the artifact's card, so that it is opened everywhere as it was verified."""

from __future__ import annotations

from collections.abc import Mapping

from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.model import SETTINGS, Artifact


def of(artifact: Artifact, known: Mapping[str, Json]) -> Mapping[str, Json]:
    """The settings in the card, else `known`; empty: the engine's own defaults. Raises InputError for one not known."""
    chosen = artifact.facts.get(SETTINGS, known)
    if not isinstance(chosen, Mapping):
        raise InputError(f"{artifact.path}: {SETTINGS} is {chosen!r:.60}, but must be a table")
    for name, value in chosen.items():
        if name not in known:
            raise InputError(f"{artifact.path}: setting '{name}' is unknown; known: {', '.join(known) or 'none'}")
        if type(value) is not type(known[name]):
            raise InputError(f"{artifact.path}: setting '{name}' is {value!r}, but must be like {known[name]!r}")
    return dict(chosen)
