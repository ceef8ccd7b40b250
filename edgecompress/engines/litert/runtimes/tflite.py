"""tflite-runtime 2.14, which many devices still have: runs LiteRT's files, in a separate environment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from edgecompress.core.errors import CheckFailed, StageFailed, brief
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.litert import layer_outputs, session

REQUIRES = ("tflite-runtime",)
ENVIRONMENT = ("tflite-runtime==2.14.0", "numpy==1.26.4")  # it was built against numpy 1 and breaks with numpy 2
IMPORTS = ("tflite_runtime.interpreter",)  # what `open` needs: loaded before a session's memory and load time count
EXTRA = ""
FORMAT = "tflite"
FIXED = True
SETTINGS = session.SETTINGS
READS: tuple[str, ...] = ()

NO_ARENA = "tflite-runtime 2.14 plans memory differently from current LiteRT and does not report its plan"
MISSING = re.compile(r"Didn't find op for builtin opcode '(\w+)' version '(\d+)'")
CUSTOM = re.compile(r"Encountered unresolved custom op: (\w+)")


def export(request: Request) -> Artifact:
    """Raises: it runs the files that runtime litert exports."""
    raise StageFailed("runtime tflite exports nothing: it runs the files that runtime litert exports")


def empty(folder: Path) -> Artifact:
    """The smallest model, in an empty folder."""
    return session.empty(folder)


def tapped(request: Request) -> Artifact:
    """The file once more, with the outputs of its layers as further outputs (see `_tflite_taps`)."""
    return layer_outputs.tapped(request)


def watched(request: Request) -> Artifact:
    """The file once more, with every real number that it computes as a further output."""
    return layer_outputs.watched(request)


def open(artifact: Artifact, threads: int, profile: bool = False) -> session.TfliteSession:
    """A session on `threads` threads of the CPU. Raises CheckFailed: the file needs a newer runtime, and for what."""
    from tflite_runtime import interpreter

    try:
        opened = session.TfliteSession(session.interpreter(interpreter, artifact, threads), artifact)
    except (ValueError, RuntimeError) as error:
        raise _load_error(str(error)) from error
    if kind := _one_scale(opened.interpreter):
        raise CheckFailed(
            f"wrong results in tflite-runtime 2.14: for a {kind} of dynamic int8 it uses the first channel's scale for "
            'all channels; the file needs a newer LiteRT on the device, or scales = "tensor" of int8-dynamic'
        )
    return opened


def _one_scale(interpreter: Any) -> str:
    """The type of an operator that makes real numbers of int8 weights with a scale per channel, or ""."""
    tensors = {tensor["index"]: tensor for tensor in interpreter.get_tensor_details()}
    for node in interpreter._get_ops_details():
        if node["op_name"] in ("FULLY_CONNECTED", "BATCH_MATMUL", "EMBEDDING_LOOKUP"):
            weights, made = tensors[node["inputs"][1]], tensors[node["outputs"][0]]
            if made["dtype"].__name__ == "float32" and len(weights["quantization_parameters"]["scales"]) > 1:
                return str(node["op_name"])
    return ""


def _load_error(message: str) -> CheckFailed | StageFailed:
    """What an error at load time means, in a line."""
    lacks: object
    if lacks := MISSING.search(message):
        what = f"does not support {lacks[1]} version {lacks[2]}"
    elif lacks := CUSTOM.search(message):
        what = f"does not support operator '{lacks[1]}'"
    else:
        return StageFailed(f"runtime tflite cannot load the file: {brief(message)}")
    return CheckFailed(
        f"tflite-runtime 2.14 {what}: the file needs a newer LiteRT on the device, "
        f"or a net without {lacks[1]} (for GATHER_ND: attention masks given as 4-D numbers)"
    )
