"""Core ML inside of ExecuTorch programs: names that follow from the content, where Core ML's tools draw them by lot."""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.engines.coreml import translations

if TYPE_CHECKING:
    from edgecompress.core.json import Json

MANIFEST, METADATA, MODEL = "Manifest.json", "metadata.json", "model.mlmodel"
SPACE = uuid.UUID(int=0)


def partitioner() -> object:
    """What decides which operators Core ML takes."""
    sys.modules.setdefault("tensorflow", None)  # type: ignore[arg-type]  # coremltools would load it, for nothing
    from executorch.backends.apple.coreml.partition import CoreMLPartitioner

    translations.teach()
    return CoreMLPartitioner()


@contextmanager
def reproducible() -> Iterator[None]:
    """Inside, each Core ML model is packed with names that follow from its content."""
    from executorch.backends.apple.coreml.compiler import coreml_preprocess

    packer = coreml_preprocess.executorchcoreml
    pack = packer.flatten_directory_contents

    def renamed(folder: str) -> object:
        rename(Path(folder))
        return pack(folder)

    packer.flatten_directory_contents = renamed
    try:
        yield
    finally:
        packer.flatten_directory_contents = pack


def rename(folder: Path) -> None:
    """The package's items named by their paths, and the model, which devices cache by its name, by its content."""
    from coremltools.proto import Model_pb2

    for file in folder.rglob(MODEL):
        # the model's message with its maps in the order of their keys: protobuf leaves it to each process
        message = Model_pb2.Model()
        message.ParseFromString(file.read_bytes())
        file.write_bytes(message.SerializeToString(deterministic=True))
    for file in folder.rglob(MANIFEST):
        manifest = json.loads(file.read_text(encoding="utf-8"))
        items = manifest["itemInfoEntries"]
        names = {old: str(uuid.uuid5(SPACE, item["path"])) for old, item in items.items()}
        entries = {names[old]: item for old, item in items.items()}
        root = names[manifest["rootModelIdentifier"]]
        _rewrite(file, {**manifest, "itemInfoEntries": entries, "rootModelIdentifier": root})
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p != folder / METADATA)
    digest = hashlib.sha256(b"".join(hashlib.sha256(p.read_bytes()).digest() for p in files)).hexdigest()
    metadata = json.loads((folder / METADATA).read_text(encoding="utf-8"))
    _rewrite(folder / METADATA, {**metadata, "identifier": f"executorch_{uuid.uuid5(SPACE, digest)}"})


def _rewrite(file: Path, content: dict[str, Json]) -> None:
    file.write_text(json.dumps(content, indent=4, sort_keys=True), encoding="utf-8")
