"""Files that somebody else made: regular ones of a limited size, opened without waiting for anybody."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import IO

from edgecompress.core.errors import InputError, StageFailed

MIB = 1 << 20
UNTOLD = 16 * MIB  # that a file without a size may hold
KINDS = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}


def check(path: Path, most: int | None = None) -> os.stat_result:
    """What `stat` says of a regular file of at most so many bytes, links followed.

    Raises InputError for anything else that stands there, and OSError where nothing can be told of it.
    """
    return _checked(os.stat(path), path, most)


def opened(path: Path, most: int | None = None) -> IO[bytes]:
    """The file, open to be read. Raises as `check`: a pipe without a writer is refused, and not waited for."""
    check(path, most)  # some devices do something when they are opened
    stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb")
    try:
        _checked(os.fstat(stream.fileno()), path, most)  # it may be another by now
    except BaseException:
        stream.close()
        raise
    return stream


def read(path: Path, most: int) -> bytes:
    """Its bytes. Raises as `check`, for a file that grows meanwhile too."""
    with opened(path, most) as stream:
        # A buffer of the size asked for is allocated at once; the kernel's own files say that they have 0 bytes.
        most = min(most, max(os.fstat(stream.fileno()).st_size, UNTOLD))
        data: bytes | None = stream.read(most + 1)
    if data is None:  # the kernel's own files may wait for more
        raise InputError(f"{path}: has nothing to read now; give a file")
    if len(data) > most:
        raise _too_large(path, most)
    return data


def check_tree(folder: Path, who: str) -> None:
    """Raises StageFailed for what is neither a folder nor a regular file in what `who` made; links are not followed."""
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                what = "a link" if stat.S_ISLNK(mode) else KINDS.get(stat.S_IFMT(mode), "no file")
                raise StageFailed(f"{who}: it left {what} among its results: {name}; results are files and folders")


def _checked(found: os.stat_result, path: Path, most: int | None) -> os.stat_result:
    if not stat.S_ISREG(found.st_mode):
        what = KINDS.get(stat.S_IFMT(found.st_mode), "no file")
        raise InputError(f"{path}: is {what}, not a regular file; give a file")
    if most is not None and found.st_size > most:
        raise _too_large(path, most)
    return found


def _too_large(path: Path, most: int) -> InputError:
    size = f"{most // MIB} MiB" if most >= MIB else f"{most} bytes"
    return InputError(f"{path}: is larger than {size}; give a smaller file")
