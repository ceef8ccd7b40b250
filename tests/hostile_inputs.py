"""Hostile inputs: files that a stranger gives, each with the command that reads it and the exit codes that are right.

Made by a seed, the same bytes each time. `CORPUS` has all of them; `place` is a folder for one, whose own modules and
programs leave a mark when they are run.
"""

from __future__ import annotations

import importlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nulls

GONE = ("data", "net.null", "null.toml")  # what `place` puts into a folder, and a case may replace
MARK = "executed"
PROGRAMS = ("gs", "gswin32c", "ssh", "scp", "sftp", "sh", "convert", "git", "ld", "cc")  # of a hostile working folder
# The import names of what this package, its plug-ins and their libraries import.
_IMPORTED = """
PIL _pytest absl ai_edge_litert ai_edge_quantizer argparse array ast base64 collections concurrent contextlib copy
coremltools ctypes csv cyclonedx dataclasses datetime difflib email enum executorch fcntl flatbuffers fnmatch fractions
functools glob google gzip hashlib html http importlib inspect io itertools jax jinja2 json jsonschema keras keyword
litert_torch locale logging lzma math mimetypes minisign ml_dtypes multiprocessing nncf numbers numpy onnx onnxruntime
onnxscript openvino operator packaging pathlib pickle platform pygments pynvml queue random re resource rich safetensors
sched secrets select shlex shtab shutil signal sitecustomize socket sqlite3 ssl statistics string struct subprocess
sympy sysconfig tarfile tempfile tensorflow tensorly textwrap tf2onnx threading tokenize tomllib torch torchao
torch_pruning traceback tree_sitter types typing typing_extensions unicodedata urllib usercustomize uuid vl_convert
warnings weakref xml yaml zipfile zipimport zlib zoneinfo zstandard edgecompress _distutils_hack pkg_resources
"""
SHADOWS = _IMPORTED.split()

DATA = ("deploy", "net.null", "--target", "null.toml", "--until", "data", "--untrusted")
MODEL = ("deploy", "--data", "random", "--until", "source", "--untrusted")


@dataclass(frozen=True)
class Hostile:
    """One input: what writes it into a folder, the command line that reads it there, and how that may end.

    `slow`: it is ended after minutes, or a library of many seconds is imported for it.
    """

    name: str
    words: tuple[str, ...]
    make: Callable[[Path], None]
    codes: tuple[int, ...] = (2,)
    slow: bool = False

    @property
    def kind(self) -> str:
        """What the input is: the first part of its name."""
        return self.name.partition("/")[0]


@cache
def corpus() -> tuple[Hostile, ...]:
    """Every input, by kind."""
    modules = (importlib.import_module(name) for name in ("hostile_models", "hostile_data", "hostile_texts"))
    return tuple(case for module in modules for case in module.cases())


def place(folder: Path) -> Path:
    """A stranger's folder: a sound null net with its data, and modules and programs that leave MARK when they run."""
    nulls.make(folder)
    (folder / "bin").mkdir()
    mark = str(folder / MARK)
    for name in SHADOWS:
        (folder / f"{name}.py").write_text(f"open({mark!r}, 'a').write('{name}.py ')\n")
    for name in PROGRAMS:
        program(folder / "bin" / name, f"echo {name} >> {mark}")
        program(folder / name, f"echo ./{name} >> {mark}")
    for runtime in ("onnx", "litert"):
        (folder / f"{runtime}.toml").write_text(nulls.TARGET.replace('"null"', f'"{runtime}"'))
    return folder


def executed(folder: Path) -> str:
    """What of the folder ran."""
    mark = folder / MARK
    return mark.read_text() if mark.exists() else ""


def program(file: Path, script: str) -> None:
    """A program of the shell."""
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


def written(name: str, data: bytes) -> Callable[[Path], None]:
    """What writes these bytes as a file of the folder."""

    def make(folder: Path) -> None:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    return make


def irregular(name: str) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """What stands where a file should: each with its word."""
    yield "fifo", lambda folder: os.mkfifo(_free(folder / name))
    yield "device", lambda folder: _free(folder / name).symlink_to("/dev/zero")
    yield "terminal", lambda folder: _free(folder / name).symlink_to("/dev/tty")
    yield "stdin", lambda folder: _free(folder / name).symlink_to("/dev/stdin")
    yield "socket", lambda folder: os.mknod(_free(folder / name), 0o600 | stat.S_IFSOCK)
    yield "folder", lambda folder: _free(folder / name).mkdir()
    yield "link-to-itself", lambda folder: _free(folder / name).symlink_to(Path(name).name)
    yield "link-to-nothing", lambda folder: _free(folder / name).symlink_to("nothing")
    yield "sparse-100-gib", lambda folder: sparse(_free(folder / name), 100 << 30)


def pipes(name: str) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Those of them that a reader would wait for."""
    return (each for each in irregular(name) if each[0] in ("fifo", "device", "socket"))


def sparse(file: Path, size: int, head: bytes = b"") -> None:
    """A file of a size that takes no room."""
    file.write_bytes(head)
    os.truncate(file, size)


def _free(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    return file
