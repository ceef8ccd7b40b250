"""ONNX Runtime Web: which files a page needs of it, and where they come from: npm, once, into the user's cache."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgecompress.core import home
from edgecompress.core.errors import InputError, MissingDependency, StageFailed, brief
from edgecompress.core.model import sha256_of

NAME = "onnxruntime-web"
VERSION = "1.30.0"  # the newest release beside onnxruntime 1.31, which has none of its own
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
LOADER = "ort.wasm.bundle.min.mjs"  # 72 KB
# 14 MB (3.6 MB compressed): the one build for processors. It takes one thread where the page is not isolated.
WASM = "ort-wasm-simd-threaded.wasm"
FILES: Mapping[str, str] = {
    LOADER: "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
    WASM: "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
}
OFFLINE = "EDGECOMPRESS_OFFLINE"  # set: nothing may be fetched
TIMEOUT_S = 900
WANTED = f"packager 'web': {NAME} {VERSION}"


def files() -> dict[str, Path]:
    """The files by name, from the cache, or fetched into it.

    Raises MissingDependency without npm, InputError when nothing may be fetched, StageFailed when npm fails or what it
    brings is not the release that is pinned here.
    """
    if not cached():
        _check_can_fetch()
        _fetch(_folder())
    return {name: _folder() / name for name in FILES}


def cached() -> bool:
    """Whether the pinned files are in the cache."""
    folder = _folder()
    return all((folder / name).is_file() and sha256_of(folder / name) == pinned for name, pinned in FILES.items())


def _folder() -> Path:
    return home.cache() / NAME / VERSION


def _check_can_fetch() -> None:
    if os.environ.get(OFFLINE):
        raise InputError(
            f"{WANTED}: not in {_folder()}, and --offline allows no downloads; package once without --offline"
        )
    if not shutil.which("npm"):
        raise MissingDependency(f"{WANTED} is fetched by npm, not installed; install it (Debian: apt-get install npm)")


def _fetch(folder: Path) -> None:
    """Puts the files into `folder`: each is renamed into place, so that an interrupted fetch leaves none in part."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetch-") as work:
            archive = _packed(Path(work))
            _check_integrity(archive)
            _unpack(archive, Path(work))
            for name in FILES:
                (Path(work) / name).replace(folder / name)
    except (OSError, KeyError, tarfile.TarError) as error:
        raise StageFailed(f"{WANTED}: {folder}: {error}; set XDG_CACHE_HOME to a folder with 60 MB free") from error


def _packed(work: Path) -> Path:
    """npm's own archive of the release. Nothing of it is run: `npm pack` of a release has no scripts."""
    npm = shutil.which("npm") or "npm"
    words = [npm, "pack", f"{NAME}@{VERSION}", "--silent", "--ignore-scripts", "--pack-destination", str(work)]
    try:
        done = subprocess.run(
            words, cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired as error:
        raise StageFailed(
            f"{WANTED}: npm took more than {TIMEOUT_S} s; check the network and run the command again"
        ) from error
    archives = sorted(work.glob("*.tgz"))
    if done.returncode or len(archives) != 1:
        errors = [line.strip() for line in f"{done.stderr}\n{done.stdout}".splitlines() if "rror" in line] or [
            "no archive"
        ]
        raise StageFailed(
            f"{WANTED}: npm: {brief(errors[0])}; check the network and npm's settings and run the command again"
        )
    return archives[0]


def _check_integrity(archive: Path) -> None:
    with archive.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha512").digest()
    if f"sha512-{base64.b64encode(digest).decode()}" != INTEGRITY:
        raise StageFailed(
            f"{WANTED}: the files from npm are not those of the release (sha256 differs); check npm's registry setting"
        )


def _unpack(archive: Path, out: Path) -> None:
    """Only the named files, each read as a stream: no path of the archive is written to."""
    with tarfile.open(archive) as tar:
        for name, pinned in FILES.items():
            stream = tar.extractfile(f"package/dist/{name}")
            if stream is None:
                raise StageFailed(f"{WANTED}: {name} is not a file; report this as a bug")
            with (out / name).open("wb") as file:
                shutil.copyfileobj(stream, file)
            if sha256_of(out / name) != pinned:
                raise StageFailed(f"{WANTED}: {name} is not the pinned version; report this as a bug")
