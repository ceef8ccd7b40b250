"""coremltools without its heavy imports, and packages written so that equal models have equal bytes."""

from __future__ import annotations

import importlib
import json
import sys
import uuid
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from edgecompress.engines.coreml import package
from edgecompress.formats import mlpackage

if TYPE_CHECKING:
    from coremltools.converters.mil import Program
    from coremltools.models import MLModel
    from coremltools.proto import Model_pb2

FILE = "model.mlpackage"
# coremltools loads them only to look at them.
UNUSED = ("tensorflow", "sklearn", "xgboost", "torchao", "transformers", "executorch")


def coremltools() -> ModuleType:
    """The library; TensorFlow and others are hidden from its first import, which would take them for half a minute."""
    if "coremltools" in sys.modules:
        return sys.modules["coremltools"]
    hidden = [name for name in UNUSED if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: an import of it fails
    try:
        return importlib.import_module("coremltools")
    finally:
        for name in hidden:
            del sys.modules[name]


def opened(file: Path) -> MLModel:
    """A saved package as coremltools' model, which cannot be run but can be compressed."""
    ct = coremltools()
    # not from the package's own path: coremltools would write its manifest anew
    return ct.models.MLModel(_spec(file), weights_dir=str(_weights(file)), skip_model_load=True)


def program(file: Path) -> Program:
    """The program of a saved package as coremltools changes it."""
    coremltools()
    from coremltools.converters.mil.frontend.milproto import load

    spec = _spec(file)
    return load.load(spec, spec.specificationVersion, str(_weights(file)))


def _spec(file: Path) -> Model_pb2.Model:
    return coremltools().proto.Model_pb2.Model.FromString((file / mlpackage.MODEL).read_bytes())


def _weights(file: Path) -> Path:
    """The folder of a package's weights, which need not exist."""
    return file / mlpackage.MODEL.parent / package.WEIGHTS.parent


def save(model: MLModel, folder: Path) -> None:
    """The coremltools model as `model.mlpackage` in `folder`, without dates, versions and random identifiers."""
    file = folder / FILE
    model.save(str(file))
    message, _ = package.read(file)
    message.description.metadata.ClearField("userDefined")
    message.mlProgram.attributes.pop("buildInfo", None)
    data = message.SerializeToString(deterministic=True)
    (file / mlpackage.MODEL).write_bytes(data)
    # identifiers made from the names of what they identify; the rest as coremltools writes it
    manifest = file / "Manifest.json"
    text = manifest.read_text(encoding="utf-8")
    known = json.loads(text)["itemInfoEntries"]
    for identifier, entry in known.items():
        text = text.replace(identifier, str(uuid.uuid5(uuid.NAMESPACE_OID, entry["name"])))
    manifest.write_text(json.dumps(json.loads(text), indent=4, sort_keys=True) + "\n", encoding="utf-8")
