"""A stranger's .tflite file: checked, read, counted."""

from __future__ import annotations

from pathlib import Path

from edgecompress.core.model import Artifact
from edgecompress.engines.litert import model_file
from edgecompress.formats import op_counts
from edgecompress.formats.precision import facts

WORDS = b"TFL3 serving_default CONVERSION_METADATA min_runtime_version".split()
FILE = "net.tflite"


def check(data: bytes, folder: Path) -> None:
    """What has passed the check has ends, operators and a cost."""
    (folder / FILE).write_bytes(data)
    model_file.check(data, FILE)
    inputs, outputs = model_file.inputs_and_outputs(data, FILE)
    model_file.operators(data)
    op_counts.total(Artifact(folder, "tflite", inputs, outputs))
    facts.of(Artifact(folder, "tflite"))
