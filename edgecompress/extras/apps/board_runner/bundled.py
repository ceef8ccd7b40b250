"""On the machine that packs: `run.pyz`, the one file that a board package carries."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core import registry
from edgecompress.device import bundle

MAIN = "edgecompress.extras.apps.board_runner.main"
CARD = "edgecompress/extras/apps/board_runner/card.json"  # in the file


def write(file: Path, runtime: str, card: bytes) -> Path:
    """The command line, the runtime's plug-in and what they import, with the card compiled in; the same bytes again."""
    module = registry.load("runtimes", runtime).__name__
    main = f'import sys\n\nfrom {MAIN} import main\n\nsys.exit(main("{module}"))\n'
    return bundle.pack(file, [MAIN, module], main, {CARD: card})


def opens_with(runtime: str) -> tuple[str, ...] | None:
    """The distributions that the runtime needs on a board, the engine first; None where it has none for boards."""
    return registry.runtime(runtime).opens_with
