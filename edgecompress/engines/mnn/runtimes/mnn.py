"""MNN on the CPU: converts ONNX; it computes in fp16 on Arm CPUs that have the instructions."""

from __future__ import annotations

import base64
import re
import zlib
from dataclasses import replace
from pathlib import Path

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.mnn import session
from edgecompress.formats import empty_model

REQUIRES = ("mnn>=3.6", "onnx")
OPENS_WITH = ("mnn",)
IMPORTS = ("MNN",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = "mnn"
FORMAT = "mnn"
SETTINGS = session.SETTINGS
NO_ARENA = "MNN reports only the memory of a whole session, including its weights"
READS: tuple[str, ...] = ("onnx",)

QUANTIZED = re.compile(r"^QLinear|quantizeLinear$", re.IGNORECASE)  # operators of ONNX
EMPTY = (
    "eNptUD0LwjAUvKhtQnEoUqGDQ5AOXSyKII7+DEehBhdFsYv+ey8flVQ8uFzzeu/yEg1ggQqKOkWOAglSlKxJVjTVYoyDAGryyt2R3MNjQlbk"
    "OmD1Z+lh/SMyD32MwzvoK2hct94TWbqTZlTF2fo5JSsOQnMpSHuHVPh+8ZOPbwY9dA4z5qKOMpZRj58to9v2SH55KAzPAf+o8CJZuEdCbptd"
    "s3EzA+Z8Me399niarrPOD/8fFJE="
)  # a graph without operators; zlib, base64


def export(request: Request) -> Artifact:
    """The ONNX model as `model.mnn` in fp32; MNN may hold what is int64 in it as int32. Raises StageFailed."""
    import onnx

    from edgecompress.engines.mnn import convert

    model = request.model
    file = model.file(".onnx")
    # of a quantized model the converter makes one that answers otherwise, or not
    proto = onnx.load_model(file, load_external_data=False)
    operators = {node.op_type for node in proto.graph.node}
    if found := sorted(name for name in operators if QUANTIZED.search(name)):
        raise StageFailed(f"runtime mnn takes no quantized ONNX model ({', '.join(found)}); use fp16 with it, or fp32")
    types = convert.convert(file, "ONNX", request.out)
    if lacking := [s.name for s in (*model.inputs, *model.outputs) if s.name not in types]:
        raise StageFailed(f"runtime mnn: MNN's converter leaves '{lacking[0]}' out of this model")
    inputs, outputs = (tuple(replace(s, dtype=types[s.name]) for s in side) for side in (model.inputs, model.outputs))
    return Artifact(request.out, FORMAT, inputs, outputs).write()


def precision(artifact: Artifact) -> tuple[dict[str, int], dict[str, int]]:
    """Raises StageFailed: MNN packs weights in forms of its own, and its package has no reader of them."""
    raise StageFailed("MNN packs weights in forms of its own, and its Python package does not report their precision")


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return empty_model.written(folder, FORMAT, {"model.mnn": zlib.decompress(base64.b64decode(EMPTY))})


def open(artifact: Artifact, threads: int, profile: bool = False) -> session.MnnSession:
    """A session on `threads` threads of the CPU, by the artifact's settings. Raises StageFailed where it cannot run."""
    return session.MnnSession(artifact, threads)
