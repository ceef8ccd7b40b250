"""What the packager of Swift packages is given, made by hand: any of its formats, no runtime, any name and labels."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress import __version__
from edgecompress.core.model import Quantization, TensorSpec, sha256_of
from edgecompress.core.package_contents import Contents
from edgecompress.core.package_names import names
from edgecompress.core.settings import Preprocess
from edgecompress.data import preprocess, tensors
from edgecompress.extras.apps import model_card as cards
from edgecompress.extras.apps import pack
from edgecompress.extras.apps.packagers import ios

LABELS = ("cat", "dog", "fox", "owl")
PICTURE = Preprocess(
    resize=9, crop=8, scale=1 / 255, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), layout="NCHW"
)
INT8 = Quantization((0.02,), (-3,))
MAIN = {
    "onnx": "model.onnx",
    "tflite": "model.tflite",
    "pte": "model.pte",
    "mlpackage": "model.mlpackage/Data/com.apple.CoreML/model.mlmodel",
}
RUNTIMES = {
    "onnx": ("onnx", "1.31.1"),
    "tflite": ("litert", "2.3.0"),
    "pte": ("executorch", "1.5.1+cpu"),
    "mlpackage": ("coreml", "9.0"),
}
MANIFEST = {
    "fileFormatVersion": "1.0.0",
    "itemInfoEntries": {"A": {"path": "com.apple.CoreML/model.mlmodel", "name": "model.mlmodel"}},
    "rootModelIdentifier": "A",
}


def contents(
    folder: Path,
    kind: str = "onnx",
    name: str = "Small pets",
    labels: Sequence[str] = LABELS,
    declared: Preprocess | None = PICTURE,
    quantized: bool = False,
    **changes: Any,
) -> Contents:
    """A classifier of pictures (of numbers [1, 3, 8, 8], where no processing is declared), input and output int8 or
    float32. `changes`: keys of the card."""
    payload = folder / "payload"
    (payload / "golden").mkdir(parents=True)
    how = INT8 if quantized else None
    dtype = "int8" if quantized else "float32"
    image = TensorSpec("image", (1, 3, 8, 8), dtype, "NCHW" if declared else "", how)
    scores = TensorSpec("scores", (1, len(labels) or 4), dtype, "", how)
    raw = np.random.default_rng(7).integers(0, 256, (12, 10, 3)).astype(np.uint8)
    real = (
        preprocess.numbers(preprocess.geometry(raw, declared)[None], declared)
        if declared
        else np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)
    )
    answer = np.linspace(-1, 2, scores.concrete()[1], dtype=np.float32)[None]
    stored = tensors.quantized(answer, INT8, "int8") if quantized else answer
    files = _model(payload, kind)
    golden = {
        "raw": _item(payload, "raw", "image", raw) if declared else None,
        "inputs": [_item(payload, "input-0", "image", tensors.fitted(real.astype(np.float32), image))],
        "outputs": [_item(payload, "output-0", "scores", tensors.real(stored, scores))],
        "tolerance": 0.05,
        "processing": {"float": 1e-6, "int8": 1},
    }
    (payload / "labels.json").write_text(json.dumps(list(labels)), encoding="utf-8")
    told = {
        "schema": cards.SCHEMA,
        "name": cards.shortened(name, cards.NAME_CHARS),
        "description": "",
        "version": "1.0.0",
        "slug": names(cards.shortened(name, cards.NAME_CHARS)).slug,
        "packager": "ios",
        "packaged": {"by": __version__, "options": {}, "platforms": []},
        "runtime": dict(zip(("name", "version"), RUNTIMES[kind], strict=True)),
        "model": {
            "format": kind,
            "main": "model/model.mlpackage" if kind == "mlpackage" else f"model/{MAIN[kind]}",
            "files": files,
        },
        "inputs": [cards.spec(image)],
        "outputs": [cards.spec(scores)],
        "preprocess": _declared(declared),
        "postprocess": {"task": "classify", "output": "scores", "probabilities": False, "top_k": 2},
        "labels": {"file": "labels.json", "count": len(labels), "sha256": sha256_of(payload / "labels.json")},
        "golden": golden,
        "compression": [],
        "versions": {},
        "quality": None,
        "profile": [],
        "licence": "",
        "source": {"name": "", "model": "pets.nets:build"},
        "created": "2026-11-22T03:00:40Z",
        **changes,
    }
    cards.check(told, "the card")
    (payload / "model_card.json").write_text(cards.text(told), encoding="utf-8")
    return Contents(told, names(told["name"]), payload, ios.Options())


def _model(payload: Path, kind: str) -> list[dict[str, Any]]:
    """A file, or two, that only look like a model."""
    parts = {MAIN[kind]: b"\x08\x08" + bytes(range(200))}
    if kind == "mlpackage":
        parts["model.mlpackage/Manifest.json"] = json.dumps(MANIFEST).encode()
    found = []
    for name, data in sorted(parts.items()):
        (payload / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (payload / "model" / name).write_bytes(data)
        found.append({"path": f"model/{name}", "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})
    return found


def _item(payload: Path, stem: str, name: str, array: np.ndarray[Any, Any]) -> dict[str, Any]:
    file = payload / "golden" / f"{stem}.bin"
    file.write_bytes(array.tobytes())
    shape = [int(size) for size in array.shape]
    where = {"name": name, "file": f"golden/{stem}.bin"}
    return {**where, "shape": shape, "dtype": str(array.dtype), "sha256": sha256_of(file)}


def _declared(declared: Preprocess | None) -> Mapping[str, Any] | None:
    if declared is None:
        return None
    told = dataclasses.asdict(declared)
    return {**told, "mean": list(declared.mean), "std": list(declared.std), "input": "image"}


def detector(folder: Path, **how: Any) -> Contents:
    """The same net as a detector: its one output is [1, 5, 7], corners in pixels with scores of three classes."""
    given = contents(folder, labels=LABELS[:3], **how)
    card, payload = given.card, given.payload
    rows = np.array([[x, x, x + 3, x + 2, 0.1, 0.9 - x / 10, 0.2] for x in range(5)], np.float32)[None]
    golden = {**card["golden"], "outputs": [_item(payload, "output-0", "scores", rows)]}
    boxes, scores = ({"name": "scores", "axis": 2, "first": first, "end": end} for first, end in ((0, 4), (4, 7)))
    how_read: dict[str, Any] = {"boxes": boxes, "scores": scores, "classes": None, "kind": "shares", "background": None}
    how_read |= {"anything": False, "listed": False, "format": "xyxy", "unit": "pixels", "least": 0.5, "overlap": 0.5}
    task = {"task": "detect", "output": "scores", "probabilities": True, "top_k": 100}
    told = {**card, "outputs": [cards.spec(TensorSpec("scores", (1, 5, 7)))], "golden": golden}
    told["postprocess"] = {**task, "detect": {**how_read, "size": [8, 8]}}
    checked = cards.check(told, "the card")
    (payload / "model_card.json").write_text(cards.text(checked), encoding="utf-8")
    return dataclasses.replace(given, card=checked)


def segmenter(folder: Path, **how: Any) -> Contents:
    """The same net as one of segmentation: its one output is [1, 4, 2, 2], scores of four classes."""
    given = contents(folder, **how)
    card, payload = given.card, given.payload
    scores = np.random.default_rng(5).normal(size=(1, 4, 2, 2)).astype(np.float32)
    golden = {**card["golden"], "outputs": [_item(payload, "output-0", "scores", scores)]}
    task = {"task": "segment", "output": "scores", "probabilities": False, "top_k": 5}
    told = {**card, "outputs": [cards.spec(TensorSpec("scores", scores.shape))], "golden": golden}
    told["postprocess"] = {**task, "segment": {"axis": 1, "single": "", "size": [8, 8]}}
    checked = cards.check(told, "the card")
    (payload / "model_card.json").write_text(cards.text(checked), encoding="utf-8")
    return dataclasses.replace(given, card=checked)


TASKS: dict[str, Callable[..., Contents]] = {"classify": contents, "detect": detector, "segment": segmenter}


def built(folder: Path, packed: bool = False, task: str = "classify", **how: Any) -> tuple[Path, Contents]:
    """A package's tree, without what packaging adds, and what it was made of; `packed`: with a packed model."""
    if packed:
        how["packaged"] = {"by": __version__, "options": {"packed": True}, "platforms": []}
    given = TASKS[task](folder, **how)
    if packed:
        given = pack.packed_model(dataclasses.replace(given, options=ios.Options(packed=True)), folder / "carried")
    root = folder / f"{given.names.slug}-ios"
    root.mkdir()
    ios.build(given, root)
    return root, given
