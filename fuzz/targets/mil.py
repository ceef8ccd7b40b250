"""A stranger's .mlpackage: a length in two bytes, that many of its weights, and the rest its program."""

from __future__ import annotations

from pathlib import Path
from random import Random

from edgecompress.core.errors import StageFailed
from edgecompress.engines.coreml import mil, package
from edgecompress.engines.coreml.mil import ops
from edgecompress.engines.coreml.mil.dtypes import ALL
from edgecompress.formats import mlpackage
from fuzz import trees

WORDS = (*(name.encode() for name in ops.REGISTRY), *(dtype.name.encode() for dtype in ALL), b"const", b"val", b"name")
LIMITS = "support"  # what we do not know of a sound program is a limit of ours: StageFailed says so


def check(data: bytes, folder: Path) -> None:
    """What can be loaded can have its layers as outputs, and be loaded again."""
    size = int.from_bytes(data[:2], "little")
    model = folder / "net" / mlpackage.MODEL
    model.parent.joinpath("weights").mkdir(parents=True)
    model.parent.joinpath(package.WEIGHTS).write_bytes(data[2 : 2 + size])
    model.write_bytes(data[2 + size :])
    try:
        mil.load(folder / "net")
        mil.write_with_layer_outputs(folder / "net", folder / "more")
        mil.load(folder / "more")
    except StageFailed as error:
        if LIMITS not in str(error):
            raise


def changed(data: bytes, random: Random) -> bytes:
    """The program with one field of its messages changed."""
    weights = data[: 2 + int.from_bytes(data[:2], "little")]
    return weights + trees.message(package.messages("Model_pb2").Model(), data[len(weights) :], random)
