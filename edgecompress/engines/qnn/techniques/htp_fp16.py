"""Half precision on the HTP: the file stays as it is, and its floats are computed and stored in half precision."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

from edgecompress.core.model import CARD, Artifact, Promise, Request
from edgecompress.engines.qnn import htp

REQUIRES = ("onnx", "onnxruntime>=1.31")
EXTRA = "qnn"
READS: tuple[str, ...] = ("onnx",)
WRITES = htp.KIND
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """None: all floats of the HTP are of half precision."""


def promises(options: Options) -> Promise:
    """Half-precision weights, and operators that multiply them as such."""
    return Promise("fp16", "fp16")


def apply(request: Request) -> Artifact:
    """The model as it is, for the HTP; input: "model"."""
    model = request.model
    shutil.copytree(model.path, request.out, ignore=shutil.ignore_patterns(CARD), dirs_exist_ok=True)
    return Artifact(request.out, htp.KIND, model.inputs, model.outputs).write()
