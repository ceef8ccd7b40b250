"""Half precision on the HTP: the file stays as it is, and its floats are computed and stored in half precision."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.qnn import htp, static_graph
from edgecompress.formats.precision import facts

REQUIRES = ("onnx", "onnxruntime>=1.31")
EXTRA = "qnn"
READS: tuple[str, ...] = ("onnx",)
WRITES = htp.KIND
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ("samples",)  # their sizes


@dataclass(frozen=True)
class Options:
    """None: all floats of the HTP are of half precision."""


def promises(options: Options) -> Promise:
    """Half-precision weights, and operators that multiply them as such."""
    return Promise("fp16", "fp16")


def apply(request: Request) -> Artifact:
    """The model as it is, for the HTP; inputs: "model", "samples", whose sizes its open axes get."""
    if facts.whole(facts.of(request.model)):
        raise InputError("the source is of whole numbers already: nothing of it is to be half precision; see int8")
    with tempfile.TemporaryDirectory(dir=request.out, prefix="work-") as folder:
        ends = static_graph.fixed(request, Path(folder) / "fixed.onnx")
        static_graph.prepared(Path(folder) / "fixed.onnx", request.out / htp.FILE)
    return Artifact(request.out, htp.KIND, *ends).write()
