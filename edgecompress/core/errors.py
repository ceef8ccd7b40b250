"""Every error that a user can get: what is wrong, where, and what to do next.

EdgeError                 exit 3   the root; the command line prints it without a traceback
├── InputError            exit 2   the user's input: a file, an option, a shape, a name
│   ├── ConfigError                a TOML file or an option: file, key, suggestion
│   │   └── NoPath                 a variant that the source, or this machine, does not reach
│   ├── NotFound                   an unknown name, with "did you mean"
│   └── MissingDependency          a library that is not installed, with the command that installs it
├── CheckFailed           exit 1   a check failed: nothing ships
└── StageFailed           exit 3   a stage, or the process that ran it, broke
    ├── Unreachable                a device that does not answer, or whose link was lost for good
    ├── TooMuchMemory              a process held more memory than it may
    └── DiskFull                   no space left for the results

4 is no error. `compare` ends with it where no gate is broken and one is undecided: its interval holds the limit
(`--strict` makes it 1). So do `deploy` and `verify` where the accuracy is not above chance: it proves nothing.

Of several targets (`--target x86,web`) it is the gravest of theirs, in the order 0, 4, 1, 2, 3; 0: all of them shipped.
A target that is refused (no way leads there, a library is not installed, its file is wrong) or fails does not stop the
others, and what these shipped stays; a name that no target has stops all. The last lines name each that did not ship
and why, then whose the exit code is; so does `not_shipped` of `--json`.
"""

from __future__ import annotations

import errno
import functools
import os
import re
from collections.abc import Callable
from typing import ParamSpec, TypeVar

T = TypeVar("T")
P = ParamSpec("P")
FULL = (errno.ENOSPC, errno.EDQUOT)
FAULTS = (*FULL, errno.EIO, errno.EROFS, errno.EINTR, errno.ESTALE, errno.ENFILE, errno.EMFILE)  # no user's mistake
# In what engines say: status numbers and places in their own source; lines that say nothing else
PLACE = re.compile(
    r"\[ONNXRuntimeError\] : \d+ : \w+ : |Load model from \S+ failed:|/\S+\.(?:cc|h):\d+ .*?\) "
    r"|Exception from \S+:\d+:|Check '.*' failed at \S+:\d+:|\[ONNX Frontend\] |^-- (?=No )|\x1b\[\d*m"
    r"|Could not translate MLIR to FlatBuffer\.?|(?:/\S+|<unknown>):\d+:\d+: (?:error: )?|(?:loc\(.*\): )"
    r"|(?<='): %\w+ = .*"  # the dump of an operator
)
NOTHING = re.compile(
    r"Summary:|FrontEnd API failed|Model wasn't fully converted|-- \S+ with a message:|Conversion failed for"
)
# It says where an exporter was, and no word of what is wrong, which its cause says
STEP = re.compile(r"This is step .* of exporting the model|Error when translating node")
UNDECIDED = 4  # the exit code of what cannot be decided: no error
BROKE = (2, 3)  # exit codes of errors: what was asked for was not done
GRAVITY = (0, UNDECIDED, 1, *BROKE)  # exit codes, the gravest last


class EdgeError(Exception):
    """The root: `str(error)` is one line that says what, where, and what next."""

    exit_code = 3


class InputError(EdgeError):
    """The user's input is wrong: a file, an option, a shape, a name."""

    exit_code = 2


class ConfigError(InputError):
    """A TOML file or an option is wrong; the message starts with the file and the key."""


class NoPath(ConfigError):
    """A variant cannot be built from this source or machine: `what` is the reason without the variant's name."""

    def __init__(self, where: str, what: str) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what


class NotFound(InputError):
    """An unknown name."""


class MissingDependency(InputError):
    """A library that is not installed; the message ends with the command that installs it."""


class CheckFailed(EdgeError):
    """A check failed (parity, budget, fallback): nothing ships."""

    exit_code = 1


class StageFailed(EdgeError):
    """A stage, or the process that ran it, broke; the message names the log."""


class Unreachable(StageFailed):
    """A device does not answer, or its link was lost for good; the message says which, and what to check."""


class TooMuchMemory(StageFailed):
    """A process held more memory than it may, and was ended."""


class DiskFull(StageFailed):
    """No space left for the results."""


def place_of(error: OSError) -> str:
    """The file that an error is about, or ""; of two, where one was copied, the one that takes nothing."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
    place = (error.filename2 if full else None) or error.filename
    return os.fsdecode(place) if isinstance(place, (str, bytes, os.PathLike)) else ""


def of_system(error: OSError) -> EdgeError | None:
    """What the system refused, in one line; None where the fault is ours, not that of the disk or of a name."""
    place = place_of(error)
    where, code = f"{place}: " if place else "", error.errno
    another = "choose another place with --store or --out"
    if code in FULL:
        room = "no space left on the device; free some room, run `edgecompress cache gc`, or"
        return DiskFull(f"{where}{room} {another}")
    if code == errno.EROFS:
        return StageFailed(f"{where}the file system is read-only; {another}")
    if code in (errno.EIO, errno.EFBIG, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE):
        return StageFailed(f"{where}{error.strerror}; check the disk and the limits of this machine, or {another}")
    if code == errno.ENAMETOOLONG:
        return InputError(f"{place[:80]}…: the name is too long; give a shorter one")
    if code in (errno.EACCES, errno.EPERM):
        return InputError(f"{where}you have no right to it; change its permissions, or give another path")
    if code in (errno.ENOTDIR, errno.EISDIR, errno.ELOOP):
        return InputError(f"{where}{error.strerror}; give another path")
    return None


def edge_errors(call: Callable[P, T]) -> Callable[P, T]:
    """The function, raising EdgeError in the place of OSError where the system refused something."""

    @functools.wraps(call)
    def told(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return call(*arguments, **named)
        except OSError as error:
            if fault := of_system(error):
                raise fault from error
            raise

    return told


def blamed(error: BaseException, user: type[InputError] = InputError) -> type[EdgeError]:
    """What is raised for a file that cannot be read: StageFailed where the disk is at fault, else the user's error."""
    return StageFailed if isinstance(error, OSError) and error.errno in FAULTS else user


def kind_of(name: str) -> type[EdgeError]:
    """The error class called `name`, so that an error keeps its class across a process boundary."""
    cls = globals().get(name)
    if isinstance(cls, type) and issubclass(cls, EdgeError) and cls is not NoPath:  # which is made of two texts
        return cls
    return StageFailed


def did_you_mean(name: str, known: object) -> str:
    """`, did you mean 'x'?`, or of several equally near ones `'x' or 'y'?`, or the known names, or ""."""
    import difflib

    names = sorted(str(k) for k in known)  # type: ignore[attr-defined]
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        ratios = [difflib.SequenceMatcher(None, each, name).ratio() for each in near]
        alike = sorted(each for each, ratio in zip(near, ratios, strict=True) if ratio == ratios[0])
        return f", did you mean {' or '.join(map(repr, alike))}?"
    return f"; known: {', '.join(filter(None, names))}" if names else ""


def brief(text: str, most: int = 300) -> str:
    """A text on one line; of a longer one the first `most` characters, cut between words, with "..." behind."""
    line = " ".join(text.split())
    if len(line) <= most:
        return line
    words = line[: most - 2].rpartition(" ")[0]
    return f"{words if len(words) > most // 2 else line[: most - 3]}..."  # a word may be as long as all of it


def first_line(error: BaseException) -> str:
    """`ValueError: what it says`: the first line of an engine's error that tells something, its places left out."""
    while STEP.search(str(error)) and error.__cause__ is not None:
        error = error.__cause__
    lines = [PLACE.sub("", line).strip() for line in str(error).splitlines()]
    told = [line for line in lines if line and not NOTHING.match(line)]
    says = " ".join(told[: 2 if told[:1] and told[0].endswith(":") else 1])  # a heading says nothing alone
    return f"{type(error).__name__}: {brief(says.rstrip('.')) or 'no message'}"
