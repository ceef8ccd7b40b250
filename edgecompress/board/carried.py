"""On the machine that packs: `run.pyz`, the one file that a board package carries."""

from __future__ import annotations

from pathlib import Path

from edgecompress import bundle, registry

MAIN = "edgecompress.board.main"
CARD = "edgecompress/board/card.json"  # in the file


def write(file: Path, runtime: str, card: bytes) -> Path:
    """The command line, the runtime's plug-in and what they import, with the card compiled in; the same bytes again."""
    module = registry.load("runtimes", runtime).__name__
    main = f'import sys\n\nfrom {MAIN} import main\n\nsys.exit(main("{module}"))\n'
    return bundle.pack(file, [MAIN, module], main, {CARD: card})


def opens_with(runtime: str) -> tuple[str, ...] | None:
    """The distributions that the runtime needs on a board, the engine first; None where it has none for boards."""
    found: tuple[str, ...] | None = getattr(registry.load("runtimes", runtime), "OPENS_WITH", None)
    return found
