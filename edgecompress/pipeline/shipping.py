"""The folder that a deploy ships into: it replaces what a deploy wrote and nothing else, whole or not at all."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from edgecompress.core import atomic_file, home, output_place, work_folder
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import CARD, Artifact
from edgecompress.reporting import external_results, read

ORIGIN = "deploy.json"  # beside the artifact: what it was made from
REPORT = ("report.html", "report.json", "report.md")
ARTIFACTS = ("artifact", "excerpt", "verdict")
# What `report --add` writes: a measurement is called by its content; and what is left of it by a kill.
_ADDED = re.compile(
    rf"{external_results.FOLDER}/([0-9a-f]{{12}}\.json|\.[0-9a-f]{{12}}(\.json)?\.\d+\.part)|\.report\.\w+(\.\d+)?\.part"
)


def check(out: Path, store: Path) -> None:
    """Raises InputError for a place that cannot be shipped into; what a killed deploy moved aside is moved back."""
    for folder in (out, out.parent):  # in which it is exchanged
        output_place.check_folder(folder, "--out")
    work_folder.sweep(out)
    for kept, what in ((Path.cwd(), "the folder you are in"), (home.home(), "your home folder"), (store, "the store")):
        if kept.resolve().is_relative_to(out):
            raise InputError(
                f"--out {out}: is or contains {what}, which a deploy would replace; give another folder, such as "
                f"{out / 'shipped'}"
            )
    if foreign := next(_foreign(out), None):
        raise InputError(
            f"{foreign}: was not written by edgecompress, and a deploy replaces the whole of {out}; give another --out"
        )


def ship(out: Path, fill: Callable[[Path], None]) -> None:
    """Replaces `out` by a folder that `fill` writes into. Raises StageFailed where there is no room, or no right."""
    with atomic_file.told(out, "--out"), work_folder.folder(out) as work:
        (work / "new").mkdir()
        fill(work / "new")
        atomic_file.sync_tree(work / "new")
        _swap(work / "new", out, work / work_folder.OLD)


def copied(artifact: Artifact, place: Path) -> None:
    """Copies a stage's result; raises StageFailed unless the copy has the very bytes that the stage gave.

    The bytes alone: who may read the copy is for the umask to say, as of any file that a program makes.
    """
    for file in (*artifact.files(), artifact.path / CARD):
        there = place / file.relative_to(artifact.path)
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, there)
    copy = dataclasses.replace(Artifact.read(place), path=artifact.path)
    if copy != artifact or Artifact.read(place).digest() != artifact.sha256:
        raise StageFailed(f"{artifact.path}: changed after it was verified; deploy again")


def sound(folder: Path) -> Artifact:
    """The artifact in a folder that shipped; raises InputError when its bytes are others."""
    artifact = Artifact.read(folder)
    if artifact.digest() != artifact.sha256:
        raise InputError(f"{folder}: changed after it was shipped (sha256 differs); deploy again, to another --out")
    return artifact


def files(folder: Path) -> list[str]:
    """Every file below a folder, by its path in it; links too."""
    return sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_symlink() or not p.is_dir())


def _swap(part: Path, out: Path, old: Path) -> None:
    """Puts `part` where `out` is, at once where the file system can exchange two folders."""
    if not (out.exists() and atomic_file.exchange(part, out)):
        if out.exists():
            out.rename(old)
        part.rename(out)
    atomic_file.sync(out.parent)


# --------------------------------------------------------------------------- whose files they are


def _foreign(out: Path) -> Iterator[Path]:
    """The files in a folder that no deploy wrote there, or that changed since; a list of names would prove nothing."""
    ours = {ORIGIN, *REPORT, *_sealed(out)} if read.is_report(out) else set()
    yield from (out / name for name in files(out) if name not in ours and not _ADDED.fullmatch(name))


def _sealed(out: Path) -> Iterator[str]:
    """The files of the artifacts whose sha256 says that nothing was added or changed."""
    for folder in (out / name for name in ARTIFACTS if (out / name).is_dir()):
        with contextlib.suppress(InputError):
            artifact = sound(folder)
            yield from (file.relative_to(out).as_posix() for file in (*artifact.files(), folder / CARD))
