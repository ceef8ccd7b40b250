"""Plug-ins written on the spot: a module and its entry point in a folder, as pip would leave them."""

from __future__ import annotations

from pathlib import Path

HEAD = '''"""A plug-in for a test."""
from dataclasses import dataclass
from pathlib import Path
from edgecompress.core.model import Artifact

REQUIRES = ()
EXTRA = ""
READS = ("null",)
WRITES = "null"
PROVIDES = "test"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    pass


def apply(request):
    {body}
'''


def technique(folder: Path, name: str, body: str) -> None:
    """A technique on null nets, called `name`, whose `apply(request)` runs `body`; `folder` goes on PYTHONPATH."""
    plugin(folder, "techniques", name, HEAD.format(body="\n    ".join(body.splitlines())))


def plugin(folder: Path, kind: str, name: str, code: str) -> None:
    """A plug-in of a kind, called `name`, that is `code`; `folder` goes on PYTHONPATH."""
    (folder / f"plugin_{name}.py").write_text(code, encoding="utf-8")
    info = folder / f"plugin_{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: plugin-{name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[edgecompress.{kind}]\n{name} = plugin_{name}\n", encoding="utf-8")
