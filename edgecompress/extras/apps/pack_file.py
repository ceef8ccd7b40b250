"""`edgecompress pack` and `unpack`: a model's file in the packed form, and back."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgecompress.commands.shipped_folder import shipped
from edgecompress.core import atomic_file, output_place, plain_file, registry
from edgecompress.core.errors import InputError, blamed, edge_errors
from edgecompress.core.model import Artifact
from edgecompress.formats import packed_file, stored_tensors
from edgecompress.pipeline.job_request import Name

LARGEST = (1 << 32) - 1  # bytes of a file


@dataclass(frozen=True)
class PackedFile:
    """What was written to `out`: a file of `bytes`, which has `packed_bytes` in its packed form."""

    out: Path
    bytes: int
    packed_bytes: int

    def facts(self) -> dict[str, str | int]:
        """It as JSON."""
        return {"out": str(self.out), "bytes": self.bytes, "packed_bytes": self.packed_bytes}

    def __str__(self) -> str:
        return f"{self.out}: {self.bytes:,} bytes, {self.packed_bytes:,} packed"


@edge_errors
def pack(path: Name, out: Name | None = None) -> PackedFile:
    """Packs a model's file, or the one that a deploy shipped, to `out` (in the current folder). Raises EdgeError."""
    file = _only_file(Path(path)) if Path(path).is_dir() else Path(path)
    place = Path(out or file.name + packed_file.SUFFIX)
    _check_place(place, file)
    data = _read(file)
    if data.startswith(packed_file.MAGIC):
        raise InputError(f"{file}: is packed already; give a model's file")
    packed = packed_file.pack(data, _tensors(file))
    return _written(place, packed, PackedFile(place, len(data), len(packed)))


@edge_errors
def unpack(path: Name, out: Name | None = None) -> PackedFile:
    """Writes the file that was packed to `out` (its name without .packed), to the bit. Raises EdgeError."""
    file = Path(path)
    if out is None and file.suffix != packed_file.SUFFIX:
        raise InputError(f"{file}: has no name that ends in {packed_file.SUFFIX}; give the file to write with --out")
    place = Path(out or file.stem)
    _check_place(place, file)
    packed = _read(file)
    try:
        data = packed_file.unpack(packed)
    except InputError as error:
        raise InputError(f"{file}: {error}") from error
    return _written(place, data, PackedFile(place, len(data), len(packed)))


def _check_place(place: Path, file: Path) -> None:
    output_place.check_file(place, "--out")
    if place.resolve() == file.resolve():
        raise InputError(f"{file}: is the file itself; give another --out")


def _only_file(folder: Path) -> Path:
    artifact = shipped(folder)[0]
    files = artifact.files()
    if len(files) != 1:
        raise InputError(
            f"{folder}: the model is {len(files)} files; give one of them, or pack all of them with "
            f"edgecompress package {folder} --set packed=true"
        )
    return files[0]


def _read(file: Path) -> bytes:
    try:
        return plain_file.read(file, LARGEST)
    except OSError as error:
        raise blamed(error)(f"{file}: {error.strerror or error}; give a model's file") from error


def _written(place: Path, content: bytes, told: PackedFile) -> PackedFile:
    with atomic_file.told(place, "--out"):
        atomic_file.write(place, content)
    return told


def _tensors(file: Path) -> list[packed_file.Tensor]:
    """Those that the runtime of its suffix reads in the file, alone in a folder; none where it reads none."""
    kind = next((each.format for each in registry.runtimes() if each.suffix and file.name.endswith(each.suffix)), "")
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / file.name).symlink_to(file.resolve())
        return list(stored_tensors.of(Artifact(Path(folder), kind)))
