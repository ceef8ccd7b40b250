"""`edgecompress cache`: what the store holds, and why a stage ran again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from edgecompress.core.errors import InputError, did_you_mean
from edgecompress.core.plain_text import Row, fitted
from edgecompress.pipeline import store_place
from edgecompress.pipeline.store import Store

# --------------------------------------------------------------------------- the store


def opened(named: Path | None) -> Store:
    """The store that is named, or that of the working folder; raises InputError when there is none. Creates none."""
    root = store_place.root(named)
    if not (root / "store").is_dir():
        raise InputError(f"{named or store_place.DEFAULT}: no store of results here; give --store, or deploy first")
    return Store(root)


def stored(named: Path | None) -> list[Row]:
    """Every stored result, the newest first."""
    return [
        {
            "stage": entry.receipt["stage"],
            "kind": entry.artifact.kind,
            "size_bytes": entry.artifact.size_bytes,
            "age_h": round(max(0.0, entry.age_s) / 3600, 2),
            "took_s": round(entry.receipt["wall_s"], 2),
            "lost": str(entry.artifact.facts.get("lost") or ""),
            "key": entry.key[:16],
        }
        for entry in opened(named).entries()
    ]


def reasons(named: Path | None, stage: str) -> list[Row]:
    """The parts of a stage's key the last time it ran, for each model and target it ran for."""
    store = opened(named)
    known = store.remembered()
    rows = [r for r in known if r["name"].rpartition(":")[2] == stage]
    if not rows:
        names = {r["name"].rpartition(":")[2] for r in known}
        raise InputError(f"{store.root}: no stage '{stage}' has run{did_you_mean(stage, names)}")
    return [{"for": r["name"].rpartition(":")[0], **r} for r in rows]


def reasons_text(rows: Sequence[Row], width: int) -> str:
    """The same as text: a change of any of these lines makes the stage run again."""
    paragraphs = []
    for row in rows:
        parts = [(f"  {key}", str(value)) for key, value in sorted(row["parts"].items())]
        parts += [(f"  file {path}", f"sha256 {digest[:16]}…") for path, digest in sorted(row.get("files", {}).items())]
        paragraphs.append("\n".join([f"{row['name']} runs again when one of these changes:", *fitted(parts, width)]))
    return "\n\n".join(paragraphs)
