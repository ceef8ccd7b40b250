"""Compares the code of a package with the code that this version writes for its card: packages are reproducible."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.core import config
from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import CARD, MODEL, is_packed, listed
from edgecompress.core.version import __version__
from edgecompress.extras.apps import archive, bom, pack, packed_payload

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card


def check(card: Card, payload: Path, carried: Path, module: ModuleType, root: Path, work: Path) -> int:
    """How many files are written for this card, in the empty folder `work`; raises InputError unless `root` has them.

    And nothing but them, the payload as it is `carried`, and what `module` says that it carries, which its own checks
    look at.
    """
    written, opened = (work / name for name in ("written", "opened"))
    written.mkdir()
    options = config.build(module.Options, card["packaged"]["options"], f"{CARD}: packaged: options")
    module.code(pack.contents(card, payload, options), written, root)
    files = {path.relative_to(written).as_posix(): path for path in written.rglob("*") if path.is_file()}
    for number, (name, file) in enumerate(sorted(files.items())):
        if not _same(file, root / name, opened / str(number)):
            shown = archive.shown(name)
            raise InputError(
                f"{shown}: is missing, or differs from what edgecompress {__version__} writes for this card"
            )
    if more := _more(root, {*files, *_places(card, carried, root)}, module.CARRIED):
        raise InputError(f"{archive.shown(more[0])}: this file does not belong in such a package")
    return len(files)


def _same(ours: Path, theirs: Path, work: Path) -> bool:
    """Equal bytes; of an archive equal files inside, for another zlib packs them otherwise."""
    if ours.suffix not in (".pyz", ".jar") or not theirs.is_file():
        return theirs.is_file() and ours.read_bytes() == theirs.read_bytes()
    for file, name in ((ours, "ours"), (theirs, "theirs")):
        (work / name).mkdir(parents=True)
        archive.unpack(file, work / name)
    return pack.sums(work / "ours") == pack.sums(work / "theirs")


def _places(card: Card, carried: Path, root: Path) -> set[str]:
    """Where the payload lies in the package, unless it is in an archive of its own."""
    if not carried.is_relative_to(root):
        return set()
    files = [carried / name for name in (*listed(card), CARD)]
    if is_packed(card):
        files = [packed_payload.packed(file) if file.parts[len(carried.parts)] == MODEL else file for file in files]
    return {file.relative_to(root).as_posix() for file in files}


def _more(root: Path, known: Collection[str], carried: Sequence[str]) -> list[str]:
    """What is neither known, nor in every package, nor carried."""
    there = sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
    strange = (name for name in there if name not in {*known, CARD, bom.FILE, pack.SUMS})
    return [name for name in strange if not any(fnmatch.fnmatchcase(name, pattern) for pattern in carried)]
