"""What a process can do from now on: Landlock for files and programs, seccomp for the network, limits for CPU and disk.

All of it is inherited by threads and programs that start later, holds for native code, needs no privileges and cannot
be undone. The kernel of Linux keeps it: Landlock since 5.13, seccomp since 3.17. Other systems have the limits alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import resource
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from edgecompress.core import syscall_filter
from edgecompress.core.errors import InputError

MEMORY = "EDGECOMPRESS_MEMORY"  # GiB that a process may hold resident, where the limit by size is too low
SMALLER = f"check it, give a smaller one, or more memory with {MEMORY}=GIB"  # what to do with a file
MIB, GIB = 1 << 20, 1 << 30
LEAST_BYTES = 100 * MIB
READ_BYTES = 1700 * MIB  # what the libraries need that read and run a small model
READ_PER_BYTE = 8  # beside that, for each byte of the file
PER_BYTE = 32  # for each byte of the inputs, where they are computed with
FILE_BYTES = 8 * GIB
THREAD_BYTES = 16 * MIB  # that a thread of a library's pool reserves; there is one for each core
LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")  # what starts a program that is linked
OWN = ("/proc/self/task",)  # the names of its threads

ALL = 1 << 62  # as much as there is

# <linux/landlock.h>: its three system calls have the same numbers on all architectures
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
RULESET_VERSION = 1
PATH_BENEATH = 1
EXECUTE, WRITE_FILE = 1 << 0, 1 << 1
REMOVE_AND_MAKE = 0b1_1111_1111 << 4  # remove a folder or a file; make a device, folder, file, socket, pipe, link
REFER, TRUNCATE = 1 << 13, 1 << 14  # from versions 2 and 3 of its interface
SCOPES = 0b11  # from version 6: abstract Unix sockets, and signals to processes outside
NOTHING = ("/dev/null", "/dev/zero", "/dev/full")
ACCELERATORS = (
    "/dev/nvidia*",
    "/dev/nvhost*",
    "/dev/nvmap",
    "/dev/dxg",
    "/dev/dri/render*",
    "/dev/kfd",
    "/dev/accel/*",
)
DEVICES = (*NOTHING, *(f"/dev/{name}" for name in ACCELERATORS))  # files that can be written to


@dataclass(frozen=True)
class Limits:
    """What is left to a process. A `writes` or `programs` of None leaves all files, all programs."""

    writes: tuple[str, ...] | None = None  # folders and files that it can change, with all below them
    programs: tuple[str, ...] | None = None  # programs that it can start
    network: bool = True
    sockets: bool = True  # Unix sockets, through which a service could act for it
    cpu_s: int = ALL  # of each process
    file_bytes: int = ALL  # of each file
    data_bytes: int = ALL  # that each process may allocate: what no look from outside sees in time
    resident_bytes: int = ALL  # of each process, of all together where `programs` are named; watched from outside


entered = Limits()  # those of this process


def reading(size: int, folders: tuple[str, ...], seconds: float) -> Limits:
    """Those of a process that reads a file of a stranger, of so many bytes: it starts no program but Python."""
    resident, cores = resident_bytes(READ_BYTES, size, READ_PER_BYTE), os.cpu_count() or 1
    return Limits(
        writes=(*folders, *OWN),
        programs=(os.path.realpath(sys.executable), *map(os.path.realpath, LOADERS)),
        network=False,
        sockets=False,
        cpu_s=int(cores * seconds) + 1,
        file_bytes=FILE_BYTES + PER_BYTE * size,
        data_bytes=resident + THREAD_BYTES * cores,
        resident_bytes=resident,
    )


def resident_bytes(least: int, size: int, per_byte: int = PER_BYTE) -> int:
    """The memory for inputs of so many bytes: what the environment says, or by their size."""
    if given := os.environ.get(MEMORY):
        try:
            most = int(float(given) * GIB)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{MEMORY}={given}: not a number of GiB; give one, such as {MEMORY}=8") from error
        if most < LEAST_BYTES:
            raise InputError(f"{MEMORY}={given}: less than Python needs; give at least {LEAST_BYTES / GIB:.1f} (GiB)")
        return most
    return least + per_byte * size


def enter(limits: Limits) -> None:
    """Limits this process and all that it starts. Called before other threads exist: Landlock limits the caller's."""
    global entered
    entered = limits
    for what, most in (
        (resource.RLIMIT_CPU, limits.cpu_s),
        (resource.RLIMIT_FSIZE, limits.file_bytes),
        (resource.RLIMIT_DATA, limits.data_bytes),
    ):
        hard = resource.getrlimit(what)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        if most < ALL:
            resource.setrlimit(what, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux" or (limits.network and limits.writes is None and limits.programs is None):
        return
    _libc().prctl(syscall_filter.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if landlock_version():
        _restrict_files(limits)
    if not limits.network:
        syscall_filter.refuse(limits.sockets)


def missing() -> str:
    """Why processes cannot be limited fully here, or ""."""
    if sys.platform != "linux":
        return "this system has neither Landlock nor seccomp: a stage can write files and reach the network"
    if not landlock_version():
        return "this kernel has no Landlock (Linux 5.13, security module 'landlock'): a stage can write all your files"
    if platform.machine() not in syscall_filter.MACHINES:
        return f"no seccomp filter for {platform.machine()}: a stage can reach the network"
    return ""


@cache
def landlock_version() -> int:
    """The version of the kernel's Landlock interface; 0 where there is none, or it is switched off."""
    if sys.platform != "linux":
        return 0
    return max(0, int(_libc().syscall(CREATE_RULESET, None, ctypes.c_size_t(0), RULESET_VERSION)))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(what: str, number: int, *arguments: object) -> int:
    """A system call; raises OSError when it fails."""
    result: int = _libc().syscall(number, *arguments)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


# --------------------------------------------------------------------------- files and programs


def _restrict_files(limits: Limits) -> None:
    version = landlock_version()
    changes = WRITE_FILE | REMOVE_AND_MAKE | (REFER if version > 1 else 0) | (TRUNCATE if version > 2 else 0)
    handled = (changes if limits.writes is not None else 0) | (EXECUTE if limits.programs is not None else 0)
    scoped = SCOPES if version > 5 and not limits.sockets else 0
    if not handled and not scoped:
        return
    attributes = struct.pack("=QQQ", handled, 0, scoped)[: 24 if version > 5 else 8]
    ruleset = _call("landlock_create_ruleset", CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    try:
        _allow(ruleset, limits.writes or (), changes)
        if limits.writes is not None:
            devices = (str(path) for pattern in DEVICES for path in Path("/").glob(pattern[1:]))
            _allow(ruleset, devices, WRITE_FILE | (changes & TRUNCATE))
        _allow(ruleset, limits.programs or (), EXECUTE)
        _call("landlock_restrict_self", RESTRICT_SELF, ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, paths: Iterable[str], access: int) -> None:
    """Adds a rule for each path; one that is not there, or not reachable, needs none."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError, PermissionError):
            there = os.open(path, os.O_PATH | os.O_CLOEXEC)
            try:
                kept = access if os.path.isdir(path) else access & (EXECUTE | WRITE_FILE | TRUNCATE)
                rule = struct.pack("=Qi", kept, there)
                _call("landlock_add_rule", ADD_RULE, ruleset, PATH_BENEATH, rule, 0)
            finally:
                os.close(there)


# --------------------------------------------------------------------------- a program within limits


def confined(limits: Limits, argv: Sequence[str]) -> list[str]:
    """The command that runs a program within limits."""
    return [sys.executable, "-P", "-m", "edgecompress.core.sandbox", json.dumps(asdict(limits)), *argv]


def main() -> int:
    """`python -m edgecompress.core.sandbox LIMITS PROGRAM...`: becomes the program."""
    enter(Limits(**json.loads(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
