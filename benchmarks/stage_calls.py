"""A stage or a technique, called as its worker calls it: what several benchmarks make their artifacts by."""

from __future__ import annotations

import contextlib
import io
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgecompress.core import registry
from edgecompress.core.model import CARD, Artifact, Context, Request


def made(call: str, inputs: Mapping[str, Artifact], out: Path, options: Any, batch: int = 1) -> Artifact:
    """What a stage or a technique makes in a folder, or made there before."""
    if (out / CARD).exists():
        return Artifact.read(out)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    module, function = registry.call(call)
    with quiet():
        return getattr(module, function)(Request(inputs, out, options, Context(batch=batch)))  # type: ignore[no-any-return]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hides what converters print and warn of."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
