"""What the templates of the Swift package are given: the card's facts as Swift needs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.json import Json
from edgecompress.core.model import sha256_of
from edgecompress.core.package_contents import (
    LEVELS,
    Contents,
    check_settings,
    digest,
    golden_items,
    settings,
)
from edgecompress.extras.apps.escape import short
from edgecompress.formats import mlpackage

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card, Postprocess, Spec


@dataclass(frozen=True)
class SwiftEngine:
    """A runtime on Apple's systems: the Swift type that opens it, its Swift package, the oldest systems it runs on."""

    type: str
    title: str
    option: str = ""  # of the packager: the version of the Swift package
    package: str = ""
    products: tuple[str, ...] = ()
    version: str = ""  # the newest release known here; empty: that which verified the model
    ios: int = 16  # Swift's ContinuousClock is as old
    macos: int = 13


ENGINES = {
    "mlpackage": SwiftEngine("CoreMLEngine", "Core ML"),
    "pte": SwiftEngine(
        *("ExecuTorchEngine", "ExecuTorch", "executorch", "executorch"),
        ("executorch", "backend_xnnpack", "kernels_optimized", "kernels_quantized"),
        ios=17,
        macos=14,
    ),
    "tflite": SwiftEngine("LiteRTEngine", "LiteRT", "litert", "LiteRT", ("LiteRT",)),
    "onnx": SwiftEngine(
        *("ONNXEngine", "ONNX Runtime", "onnxruntime", "onnxruntime-swift-package-manager", ("onnxruntime",)),
        version="1.24.2",
        macos=14,
    ),
}
COREML_BACKEND = b"CoreMLBackend"  # in a .pte that delegates to Core ML
SPECIFICATION_OS = {6: 15, 7: 16, 8: 17, 9: 18, 10: 26}  # iOS by the version of Core ML's file format
MACOS_OF_IOS = {15: 12, 16: 13, 17: 14, 18: 15, 26: 26}
DTYPES = {  # numbers that an engine's Swift interface takes
    "mlpackage": ("float16", "float32", "float64", "int32"),
    "pte": ("float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool"),
    "tflite": ("float32", "int8", "uint8", "int16", "int32", "int64", "bool"),
    "onnx": ("float32", "int8", "uint8", "int32", "int64"),
}
# What the engines' Swift interfaces have no way to change.
FIXED: Mapping[str, Sequence[Json]] = {
    "execution_mode": ("ORT_SEQUENTIAL",),
    "enable_cpu_mem_arena": (True,),
    "xnnpack": (True,),
}
# Modules of Apple's, Swift's and the runtimes' that an app, or the package itself, may import beside the model's.
MODULES = (
    *("accelerate", "alamofire", "arkit", "avfoundation", "benchmark", "combine", "contacts", "coreaudio"),
    *("coredata", "coregraphics", "coreimage", "coreml", "cryptokit", "dispatch", "executorch", "foundation"),
    *("litert", "mapkit", "metal", "mlcompute", "naturallanguage", "observation", "onnxruntime"),
    *("onnxruntimebindings", "os", "pdfkit", "photos", "realitykit", "scenekit", "sound", "soundanalysis"),
    *("speech", "spritekit", "swift", "swiftdata", "swiftui", "testing", "translation", "uikit", "vision"),
    *("visionkit", "webkit", "xctest"),
)


def module(camel: str) -> str:
    """What the package's module is called: not as one that an app imports beside it."""
    return f"{camel}Package" if camel.lower() in MODULES else camel


def values(contents: Contents, versions: Mapping[str, str]) -> dict[str, object]:
    """All that the templates name. Raises InputError for a model that the runtime's Swift interface cannot take."""
    card, kind = contents.card, contents.card["model"]["format"]
    check_settings(card, {**LEVELS, **FIXED})
    inputs, outputs = ([spec["name"] for spec in specs] for specs in (card["inputs"], card["outputs"]))
    features = mlpackage.names(inputs, outputs) if kind == "mlpackage" else {"inputs": inputs, "outputs": outputs}
    prepared, task, golden, raw = _preprocess(card), card["postprocess"], card["golden"], card["golden"]["raw"]
    return {
        "card": card,
        "settings": settings(card),
        "format": kind,
        "name": short(card["name"]) or contents.names.slug,
        "description": card["description"],
        "slug": contents.names.slug,
        "camel": module(contents.names.camel),
        "engine": _engine(contents, versions),
        "os": _systems(contents),
        "digest": digest(card),
        "inputs": _features(card["inputs"], features["inputs"], "input", kind),
        "outputs": _features(card["outputs"], features["outputs"], "output", kind),
        "single": len(inputs) == 1,
        "classifies": task["task"] == "classify",
        "scores": outputs.index(task["output"]) if task["task"] == "classify" else 0,
        "detector": _detector(task, outputs),
        "segments": {**task["segment"], "output": outputs.index(task["output"])} if task["task"] == "segment" else None,
        "preprocess": prepared,
        "picture": bool(prepared and prepared["picture"]),
        "sound": bool(prepared and prepared["spectrogram"]),
        "labels": _file(contents.payload, card["labels"]["file"]),
        "golden": {
            "inputs": [{**item, "index": inputs.index(item["name"])} for item in golden["inputs"]],
            "outputs": [{**item, "index": outputs.index(item["name"])} for item in golden["outputs"]],
            "raw": {**raw, "index": inputs.index(raw["name"]) if raw["name"] in inputs else 0} if raw else None,
        },
        "golden_files": [
            *(_file(contents.payload, item["file"]) for item in golden_items(card)),
            *(_file(contents.payload, file["path"]) for file in card.get("tokenizer", ())),
        ],
    }


def _engine(contents: Contents, versions: Mapping[str, str]) -> dict[str, object]:
    """The engine with the version that this package asks for, and its products."""
    engine = ENGINES[contents.card["model"]["format"]]
    verified = contents.card["runtime"]["version"].partition("+")[0]
    version = (versions.get(engine.option) or engine.version or verified) if engine.option else ""
    if engine.option and not version:
        raise InputError(f"no version of {engine.title} is known; name one with --set {engine.option}=VERSION")
    products = list(engine.products)
    if contents.card["model"]["format"] == "pte" and COREML_BACKEND in _main(contents).read_bytes():
        products.append("backend_coreml")
    return {**vars(engine), "version": version, "products": products}


def _main(contents: Contents) -> Path:
    return contents.payload / contents.card["model"]["main"]


def _systems(contents: Contents) -> dict[str, str]:
    """The oldest iOS and macOS that runtime, model and wrapper run on."""
    engine = ENGINES[contents.card["model"]["format"]]
    needs = _specification(_main(contents)) if contents.card["model"]["format"] == "mlpackage" else 0
    if needs and needs not in SPECIFICATION_OS:
        raise InputError(f"{contents.card['model']['main']}: Core ML's file format {needs} is not supported")
    ios = SPECIFICATION_OS.get(needs, 0)
    return {"ios": f"{max(engine.ios, ios)}.0", "macos": f"{max(engine.macos, MACOS_OF_IOS.get(ios, 0))}.0"}


def _specification(package: Path) -> int:
    """The version of Core ML's file format: the first field of the first message, as protobuf writes it."""

    head = (package / mlpackage.MODEL).read_bytes()[:2]
    if len(head) < 2 or head[0] != 0x08 or head[1] >= 0x80:
        raise InputError(f"{package.name}: not a Core ML model; export it again")
    return head[1]


def _features(specs: Sequence[Spec], words: Sequence[str], side: str, kind: str) -> list[dict[str, object]]:
    """Inputs or outputs with what the runtime calls them. Raises InputError for one that its interface cannot take."""
    taken = [dtype for dtype in DTYPES[kind] if side == "output" or dtype != "float16"]
    for spec in specs:
        how = spec["quantization"]
        if spec["dtype"] not in taken:
            raise InputError(
                f"{side} '{short(spec['name'])}' is {spec['dtype']}; a Swift package of {ENGINES[kind].title} takes "
                f"{', '.join(taken)}"
            )
        if how and len(how["scale"]) != 1:
            raise InputError(f"{side} '{short(spec['name'])}' has {len(how['scale'])} scales; a package supports one")
    return [{**spec, "feature": feature} for spec, feature in zip(specs, words, strict=True)]


def _preprocess(card: Card) -> dict[str, object] | None:
    """What is declared, the input by its index, and whether raw data are pictures."""
    declared, raw = card["preprocess"], card["golden"]["raw"]
    if not declared:
        return None
    spec = next((s for s in card["inputs"] if s["name"] == declared["input"]), None)
    if spec is None:
        raise InputError(f"[preprocess] is of '{short(declared['input'])}', which is no input of the model")
    sound = declared["spectrogram"]
    shaped = declared["resize"] or declared["crop"] or declared["layout"] or declared["colour"] != "RGB"
    picture = bool(shaped) and not sound
    if picture and raw and raw["dtype"] != "uint8":
        raise InputError(f"the raw images are {raw['dtype']}; a Swift package takes uint8")
    changed = declared["scale"] != 1 or declared["mean"] or declared["std"] or sound
    stored = not changed and (raw["dtype"] if raw else "uint8") == spec["dtype"]
    return {
        **declared,
        "index": card["inputs"].index(spec),
        "picture": picture,
        "channels_first": picture and declared["layout"] == "NCHW",
        "gives": "stored" if stored else "real",
    }


def _detector(task: Postprocess, outputs: Sequence[str]) -> dict[str, object] | None:
    """How boxes are read, the outputs by their indices; None for a model that finds none."""
    if task["task"] != "detect":
        return None
    how = task["detect"]
    columns = {key: how[key] for key in ("boxes", "scores", "classes")} | {"points": how.get("points")}
    indexed = {key: one and {**one, "output": outputs.index(one["name"])} for key, one in columns.items()}
    return {**how, **indexed}


def _file(payload: Path, path: str) -> dict[str, object]:
    file = payload / path
    return {"path": path, "bytes": file.stat().st_size, "sha256": sha256_of(file)}
