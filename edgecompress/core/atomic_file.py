"""Files that a power cut leaves whole: what has a name afterwards has its bytes, the old ones or the new."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from edgecompress.core.errors import FULL, DiskFull, StageFailed, place_of

AT_FDCWD = -100
RENAME_EXCHANGE = 2  # of renameat2(2)
OTHERS = (BrokenPipeError, BlockingIOError, ChildProcessError, ProcessLookupError)  # OSErrors that tell of no disk


@contextlib.contextmanager
def told(place: Path, option: str) -> Iterator[None]:
    """What the disk refuses in the body is raised as StageFailed, in one line; `option` names another `place`."""
    try:
        yield
    except OTHERS:
        raise
    except OSError as error:
        where, why = place_of(error) or place, error.strerror or str(error)
        kind, what = (DiskFull, "free some room") if error.errno in FULL else (StageFailed, "check that disk")
        if error.errno in (errno.EACCES, errno.EPERM):
            what = "allow it there (in a store that is shared, in each of its folders)"
        raise kind(f"{where}: {why}; {what}, or give another {option}") from error


def write(path: Path, content: bytes) -> None:
    """Replaces a file by one with these bytes. Raises OSError; then the old file is still there."""
    part = path.with_name(f".{path.name[:100]}.{os.getpid()}.part")  # a name may have 255 bytes
    try:
        with part.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


def make_folder(folder: Path) -> None:
    """Makes a folder, and those above it, where there is none. Raises OSError."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for path in reversed(missing):
        sync(path.parent)


def sync(path: Path) -> None:
    """Waits until a file's bytes, or the names in a folder, are on the disk. Raises OSError where they cannot be."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that has nothing to wait for
            raise
    finally:
        os.close(descriptor)


def sync_tree(folder: Path) -> None:
    """`sync` for everything in a folder, and the folder."""
    for parent, _, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                sync(path)
        sync(Path(parent))


def exchange(one: Path, other: Path) -> bool:
    """Lets two paths change places at once; False where the system or the file system cannot do that.

    Raises OSError for other reasons, such as a path that does not exist.
    """
    with contextlib.suppress(AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        if not library.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE):
            return True
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
            raise OSError(code, os.strerror(code), str(one), None, str(other))
    return False
