"""A stranger's .onnx file: parsed, checked, counted; ONNX Runtime itself runs elsewhere."""

from __future__ import annotations

from pathlib import Path
from random import Random

from edgecompress.core.model import Artifact
from edgecompress.engines.onnx import user_file
from edgecompress.formats import op_counts
from edgecompress.formats.precision import facts
from fuzz import trees

WORDS = b"Conv Gemm MatMul Loop If Constant location ../net offset length".split()


def check(data: bytes, folder: Path) -> None:
    """A file that is valid stays so, and the same, when it is written again."""
    file = folder / "net.onnx"
    file.write_bytes(data)
    model = user_file.checked(file)
    op_counts.total(Artifact(folder, "onnx"))
    facts.of(Artifact(folder, "onnx"))
    file.write_bytes(model.SerializeToString(deterministic=True))
    assert user_file.checked(file) == model, "writing changes what it is"


def changed(data: bytes, random: Random) -> bytes:
    """The file with one field of its messages changed."""
    from onnx import ModelProto

    return trees.message(ModelProto(), data, random)
