"""Filters of system calls, for seccomp: what a limited process may not do, and which files a process opens."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass

Step = tuple[int, int, int, int]  # code, steps to skip if true, if false, value

# <linux/filter.h>, <linux/seccomp.h>, <linux/audit.h>
LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, FAIL, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
SET_MODE_FILTER, TSYNC, SPEC_ALLOW, NEW_LISTENER = 1, 1 << 0, 1 << 2, 1 << 3  # of seccomp
PR_SET_NO_NEW_PRIVS = 38
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16  # of struct seccomp_data
X32 = 0x40000000
UNIX = 1  # AF_UNIX
NAMESPACES = 0x7E020000  # CLONE_NEW*, but for that of time, which only clone3 and unshare make


@dataclass(frozen=True)
class Machine:
    """An architecture: as seccomp calls it, and which of the two numbers of a call is its own."""

    audit: int
    column: int


MACHINES = {"x86_64": Machine(0xC000003E, 0), "aarch64": Machine(0xC00000B7, 1)}
SECCOMP, SOCKET, CLONE, IOCTL = (317, 277), (41, 198), (56, 220), (16, 29)
OPEN, OPENAT = (2, -1), (257, 56)
CLONE3, OPENAT2 = 435, 437  # from 424 on the numbers are the same everywhere

KERNEL = {  # what needs no privileges, and passes by the rules for files and by this filter
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    **{f"io_uring {number}": (number, number) for number in (425, 426, 427)},
}
ATTRIBUTES = {  # of files that are not its own: Landlock has no rule for them
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
OF_ONESELF = {  # a call -> its argument that is 0 for the process itself
    "prlimit64": ((302, 261), 0),
    "sched_setaffinity": ((203, 122), 0),
    "sched_setscheduler": ((144, 119), 0),
    "sched_setparam": ((142, 118), 0),
    "sched_setattr": ((314, 274), 0),
    "setpriority": ((141, 140), 1),
    "ioprio_set": ((251, 30), 1),
}
GROUPS = {"setsid": (112, 157), "setpgid": (109, 154)}  # by its group a worker and all that it starts are ended
REQUESTS = (  # of ioctl: typing into a terminal, changing it, the flags of a file
    *(0x5412, 0x541C, 0x5423),
    *(0x5402, 0x5403, 0x5404, 0x5406, 0x5407, 0x5408, 0x402C542B, 0x402C542C, 0x402C542D),
    *(0x40086602, 0x401C5820),
)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def refuse(sockets: bool) -> None:
    """Refuses calls to this process and all that it starts; nothing for an architecture that is not in MACHINES.

    With `sockets` those between processes of this machine are left. Raises OSError.
    """
    if machine := MACHINES.get(platform.machine()):
        _install(machine, _refusing(machine, sockets), TSYNC | SPEC_ALLOW)


def listener() -> int:
    """A descriptor that tells of each file which this process and all that it starts open; they wait for the answer.

    Raises OSError where there is no such thing.
    """
    machine = MACHINES.get(platform.machine())
    if sys.platform != "linux" or machine is None:
        raise OSError(errno.ENOSYS, "no notifications of system calls")
    opening = (OPEN[machine.column], OPENAT[machine.column], OPENAT2)
    steps = [step for number in opening if number >= 0 for step in _when(number, (RETURN, 0, 0, NOTIFY))]
    # a call of another architecture is no such call: it is left, and not heard
    head = [(LOAD, 0, 0, ARCHITECTURE), (JUMP_EQUAL, 1, 0, machine.audit), _ALLOW, (LOAD, 0, 0, NUMBER)]
    return _install(machine, (*head, *steps, _ALLOW), NEW_LISTENER)


def _install(machine: Machine, steps: Sequence[Step], flags: int) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = _Program(len(steps), b"".join(struct.pack("=HBBI", *step) for step in steps))
    result: int = libc.syscall(SECCOMP[machine.column], SET_MODE_FILTER, flags, ctypes.byref(program))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"seccomp: {os.strerror(code)}")
    return result


def _refusing(machine: Machine, sockets: bool) -> Sequence[Step]:
    """The filter that refuses.

    What is refused fails with EACCES. A new session or group is granted in words alone: libraries ask for one to end
    their children together, which the end of the whole group does as well.
    """
    steps: list[Step] = [
        (LOAD, 0, 0, ARCHITECTURE),
        (JUMP_EQUAL, 1, 0, machine.audit),  # the numbers of another architecture mean something else
        _fail(errno.EACCES),
        (LOAD, 0, 0, NUMBER),
        (JUMP_AT_LEAST, 0, 1, X32),
        _fail(errno.EACCES),
    ]
    for numbers in (*KERNEL.values(), *ATTRIBUTES.values()):
        steps += _when(numbers[machine.column], _fail(errno.EACCES))
    for numbers, argument in OF_ONESELF.values():
        steps += _when(numbers[machine.column], *_only(argument, (0,)))
    for numbers in GROUPS.values():
        steps += _when(numbers[machine.column], _fail(0))
    steps += _when(CLONE3, _fail(errno.ENOSYS))  # its flags lie in memory; libraries go on with clone
    steps += _when(CLONE[machine.column], _argument(0), (JUMP_ANY_BIT, 0, 1, NAMESPACES), _fail(errno.EACCES), _ALLOW)
    steps += _when(IOCTL[machine.column], *_none_of(1, REQUESTS))
    steps += _when(SOCKET[machine.column], *_only(0, (UNIX,) if sockets else ()))
    return (*steps, _ALLOW)


_ALLOW: Step = (RETURN, 0, 0, ALLOW)


def _fail(code: int) -> Step:
    return (RETURN, 0, 0, FAIL | code)


def _argument(number: int) -> Step:
    """Takes the low half of an argument: what is looked at here is a C int."""
    return (LOAD, 0, 0, ARGUMENTS + 8 * number)


def _when(number: int, *steps: Step) -> Sequence[Step]:
    """For the call of that number these steps, which end; the next ones for any other."""
    return [(JUMP_EQUAL, 0, len(steps), number), *steps]


def _only(argument: int, values: Sequence[int]) -> Sequence[Step]:
    """Refuses an argument that is none of the values."""
    pairs = [step for value in values for step in ((JUMP_EQUAL, 0, 1, value), _ALLOW)]
    return [_argument(argument), *pairs, _fail(errno.EACCES)]


def _none_of(argument: int, values: Sequence[int]) -> Sequence[Step]:
    """Refuses an argument that is one of the values."""
    pairs = [step for value in values for step in ((JUMP_EQUAL, 0, 1, value), _fail(errno.EACCES))]
    return [_argument(argument), *pairs, _ALLOW]
