"""The runtimes that an Android package can be of: their coordinates, the class that calls them, what they take."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.package_contents import LEVELS, check_settings

if TYPE_CHECKING:
    from edgecompress.core.model_card import Card, Spec

NUMBERS = ("float32", "int8", "uint8", "int32", "int64")  # what every engine takes
STORED = ("int8", "uint8")  # what a quantized input or output is stored as
LARGEST = (1 << 31) - 1  # bytes of a file that Java maps


@dataclass(frozen=True)
class Engine:
    """A runtime's library for Android. `min_sdk`: the API level that it needs, at least.

    `beside`: another library that it needs, as (group, artifact, the distribution whose version it has).
    """

    words: str
    group: str
    artifact: str
    java: str  # the class that calls it; its source lies in templates/android/java, in one of `folders`
    folders: tuple[str, ...]
    package: str  # of its own classes
    min_sdk: int
    dtypes: tuple[str, ...] = NUMBERS
    beside: tuple[str, str, str] | None = None


ENGINES: Mapping[str, Engine] = {
    "litert": Engine(
        words="LiteRT", group="com.google.ai.edge.litert", artifact="litert",
        java="LiteRtEngine", folders=("litert",), package="org.tensorflow.lite", min_sdk=24,
    ),
    "tflite": Engine(
        words="TensorFlow Lite", group="org.tensorflow", artifact="tensorflow-lite",
        java="LiteRtEngine", folders=("litert",), package="org.tensorflow.lite", min_sdk=21,
    ),
    "executorch": Engine(
        words="ExecuTorch", group="org.pytorch", artifact="executorch-android",
        java="ExecuTorchEngine", folders=("executorch",), package="org.pytorch.executorch", min_sdk=23,
        dtypes=(*NUMBERS, "float64"),
    ),
    "onnx": Engine(
        words="ONNX Runtime", group="com.microsoft.onnxruntime", artifact="onnxruntime-android",
        java="OnnxEngine", folders=("onnx",), package="ai.onnxruntime", min_sdk=24,
        dtypes=(*NUMBERS, "float64", "bool"),
    ),
    "qnn": Engine(
        words="ONNX Runtime QNN", group="com.qualcomm.qti", artifact="onnxruntime-android-qnn",
        java="QnnEngine", folders=("onnx", "qnn"), package="ai.onnxruntime", min_sdk=27,
        dtypes=(*NUMBERS, "float64", "bool"),
        beside=("com.microsoft.onnxruntime", "onnxruntime-android", "onnxruntime"),
    ),
}  # fmt: skip


def engine(card: Card) -> Engine:
    """The one of a card, which it can run. Raises InputError."""
    name = card["runtime"]["name"]
    if name not in ENGINES:
        raise InputError(f"runtime '{name}' is not supported in Android packages; deploy with {' or '.join(ENGINES)}")
    runtime = ENGINES[name]
    if not card["runtime"]["version"]:
        raise InputError(f"the version of {runtime.words} that verified the model is not known; deploy it again")
    check_settings(card, LEVELS)
    for spec in (*card["inputs"], *card["outputs"]):
        _check_end(spec, runtime)
    for file in card["model"]["files"]:
        if file["bytes"] > LARGEST:
            raise InputError(
                f"{file['path']}: {file['bytes']} bytes, but an app can map at most {LARGEST}; compress the model "
                "further"
            )
        if any(part.startswith((".", "_")) or part.endswith("~") for part in file["path"].split("/")):
            raise InputError(
                f"{file['path']}: Android's build tools skip files with such a name; rename it and deploy again"
            )
    _check_raw(card)
    return runtime


def libraries(card: Card) -> list[tuple[str, str, str]]:
    """What an app needs beside the package, its runtime first: (group, artifact, version). Raises InputError."""
    runtime = engine(card)
    found = [(runtime.group, runtime.artifact, card["runtime"]["version"])]
    if runtime.beside:
        group, artifact, package = runtime.beside
        if not (version := card["versions"].get(package, "")):
            raise InputError(f"the version of {package} that verified the model is not known; deploy it again")
        found.append((group, artifact, version))
    return found


def _check_end(spec: Spec, runtime: Engine) -> None:
    how, where = spec["quantization"], f"'{spec['name']}'"
    if spec["dtype"] not in runtime.dtypes:
        raise InputError(
            f"{where} is {spec['dtype']}; the wrapper of {runtime.words} takes {', '.join(runtime.dtypes)}: "
            "export it so"
        )
    if how and (len(how["scale"]) != 1 or spec["dtype"] not in STORED):
        raise InputError(
            f"{where} is quantized per channel, or not to 8 bits; the wrapper supports 8 bits with one scale only"
        )


def _check_raw(card: Card) -> None:
    """Raises InputError for raw items that the Java processing cannot take."""
    how, raw = card["preprocess"], card["golden"]["raw"]
    if how is None or raw is None or raw["dtype"] == "uint8" or how["spectrogram"]:
        return
    if how["resize"] or how["crop"] or how["layout"] or how["colour"] != "RGB":
        raise InputError(
            f"the raw images are {raw['dtype']}, but the preprocessing on a phone takes uint8; give uint8 images, "
            "and set [preprocess] scale"
        )


def picture(card: Card) -> bool:
    """Whether raw data is a picture: bytes [height, width], or [height, width, 1 or 3]."""
    how, raw = card["preprocess"], card["golden"]["raw"]
    if how is None or raw is None or how["spectrogram"] or raw["dtype"] != "uint8":
        return False
    return len(raw["shape"]) == 2 or (len(raw["shape"]) == 3 and raw["shape"][2] in (1, 3))


def audio(card: Card) -> bool:
    """Whether raw data is samples of a clip."""
    return bool(card["preprocess"] and card["preprocess"]["spectrogram"])
