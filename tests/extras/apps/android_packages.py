"""What the tests of Android packages share: a package opened, its wrapper on a JVM, the real runtime behind a pipe."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import package_inputs

from edgecompress.core.model import Artifact, Dim, Quantization, Request, TensorSpec
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.data import preprocess, tensors
from edgecompress.extras.apps import package, shipped_sample
from edgecompress.extras.apps.packagers import _android_java

HERE = Path(__file__).resolve().parent
JVM = HERE / "android_jvm"  # Android's and the runtimes' classes, over folders and pipes
PASSES = {"files": True, "processing": True, "inference": True, "labels": True}  # a self-test
ENGINES = {
    "onnx": "ai/onnxruntime",
    "qnn": "ai/onnxruntime",
    "litert": "org/tensorflow/lite",
    "executorch": "org/pytorch/executorch",
}


@dataclass(frozen=True)
class Opened:
    """A package, unpacked."""

    file: Path
    root: Path
    aar: Path  # the folder of the library's entries
    assets: Path  # the folder that an app's assets are
    card: dict[str, Any]

    @property
    def slug(self) -> Path:
        """The model's own assets."""
        return self.assets / str(self.card["slug"])

    @property
    def namespace(self) -> str:
        """The package of the wrapper's classes."""
        found = re.search(r'package="([^"]+)"', (self.aar / "AndroidManifest.xml").read_text())
        assert found
        return found[1]


def packed(shipped: Path, into: Path, **settings: Any) -> Opened:
    """Packs a shipped folder for Android and opens it."""
    into.mkdir(parents=True, exist_ok=True)
    file = package.package(shipped, "android", into / "package.zip", settings=settings)
    with zipfile.ZipFile(file) as archive:
        archive.extractall(into / "opened")
    root = next((into / "opened").iterdir())
    with zipfile.ZipFile(next((root / "maven").rglob("*.aar"))) as archive:
        archive.extractall(into / "aar")
    card = json.loads((root / "model_card.json").read_text(encoding="utf-8"))
    return Opened(file, root, into / "aar", into / "aar" / "assets", card)


def values(opened: Opened, **changes: Any) -> dict[str, Any]:
    """What the templates of an opened package were given."""
    flags = dict.fromkeys(("picture", "audio", "classifies", "detects", "segments", "single", "cpu_allowed"), True)
    texts = {"camel": "SmallPets", "name": "x", "version": "1.0.0", "runtime": "onnx", "runtime_version": "1"}
    texts |= {"namespace": opened.namespace, "model_sha256": "0", "engine_name": "X", "engine": "OnnxEngine"}
    parts = _android_java.parts(_android_java.facts(opened.card))
    return {**flags, **texts, "threads": 1, "rate": 16000, "top_k": 5, "ends": ["a"], "parts": parts, **changes}


# --------------------------------------------------------------------------- on a JVM


@dataclass(frozen=True)
class Jvm:
    """The wrapper's own classes.jar, with the device's and the runtime's classes of the tests."""

    classes: Path
    jar: Path
    work: Path

    def __call__(
        self, command: str, folders: Sequence[Path], first: Sequence[Path] = (), phone: Sequence[str] = ()
    ) -> list[str]:
        """What it answers to a command for each folder of assets; `first`: classes that win over the jar's.

        `phone`: what the phone has, as properties.
        """
        cache = self.work / "cache"
        cache.mkdir(exist_ok=True)
        places = os.pathsep.join(map(str, [*first, self.classes, self.jar]))
        pipe = [f"-Dpipe.python={sys.executable}", f"-Dpipe.script={HERE / 'android_pipe.py'}"]
        pipe += [f"-D{each}" for each in phone]
        done = subprocess.run(
            ["java", "-Xshare:auto", *pipe, "-cp", places, "app.Run", command, str(cache), *map(str, folders)],
            capture_output=True, encoding="utf-8", timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()


def jvm(opened: Opened, work: Path, engine: str) -> Jvm:
    """Compiles what stands in for the phone, and the app that calls the wrapper."""
    app = (JVM / "app" / "Run.java").read_text(encoding="utf-8")
    camel = next(p.stem for p in classes(opened) if p.stem.endswith("Model") and p.stem != "Model")
    main = work / "src" / "Run.java"
    main.parent.mkdir(parents=True, exist_ok=True)
    main.write_text(_android_java.moved(app, opened.namespace).replace("WRAPPER", camel), encoding="utf-8")
    folders = ("android", "pipe", ENGINES[engine])
    sources = [main, *(p for folder in folders for p in sorted((JVM / folder).rglob("*.java")))]
    jar = opened.aar / "classes.jar"
    stubs = _android_java.TEMPLATES / "stubs"
    replaced = {p.name for p in sources}  # what these tests need not replace is as its signature
    sources += [stubs / "android" / "content" / "Context.java"]
    sources += [
        p
        for p in sorted((stubs / ENGINES["onnx"]).glob("*.java"))
        if ENGINES[engine] == ENGINES["onnx"] and p.name not in replaced
    ]
    _android_java.compile(sources, work / "jvm", [str(jar)])
    return Jvm(work / "jvm", jar, work)


def classes(opened: Opened) -> list[Path]:
    """The entries of classes.jar."""
    with zipfile.ZipFile(opened.aar / "classes.jar") as archive:
        return [Path(name) for name in archive.namelist()]


def steps(line: str) -> dict[str, bool]:
    """A self-test's line as {step: ok}."""
    return {step["step"]: step["ok"] for step in json.loads(line)}


def copied(opened: Opened, into: Path) -> Path:
    """The assets again, to be changed."""
    shutil.copytree(opened.assets, into)
    return into


# --------------------------------------------------------------------------- the same net for other runtimes


def _for_npu(folder: Path) -> Path:
    """The net in half precision, compiled for an NPU, with the answers of its emulator."""
    from edgecompress.engines.qnn.runtimes import qnn
    from edgecompress.engines.qnn.techniques import htp_fp16

    before, report = Artifact.read(folder / "artifact"), json.loads((folder / "report.json").read_text())
    inputs = np.load(folder / "excerpt" / "test" / "input.npy")
    raw = np.load(folder / "excerpt" / "raw" / "input.npy")
    place = folder.parent / "npu"
    for each in (place / "half", place / "artifact"):
        each.mkdir(parents=True)
    given = {"model": before, "samples": Artifact.read(folder / "excerpt")}
    half = htp_fp16.apply(Request(given, place / "half", htp_fp16.Options()))
    artifact = qnn.export(Request({"model": half}, place / "artifact", qnn.Options()))
    session = qnn.open(artifact, 1)
    found = np.concatenate([np.asarray(session.run({"image": x[None]})["scores"]) for x in inputs])
    session.close()
    source = {**report["source"], "preprocess": report["data"]["preprocess"]}
    shipped_sample.write(artifact, "qnn", {"input": inputs}, {"scores": found}, source)
    shipped_sample.keep_raw(place, "input", raw)
    package_inputs.report(place, versions={"onnxruntime-qnn": "2.7.0", "onnxruntime": "1.31.1"})
    return place


def shipped(folder: Path, runtime: str) -> Path:
    """package_inputs' net, shipped for `runtime`."""
    package_inputs.shipped(folder)
    if runtime == "onnx":
        return folder
    if runtime == "qnn":
        return _for_npu(folder)
    before = Artifact.read(folder / "artifact")
    shutil.move(folder / "artifact", folder / "old")
    (folder / "artifact").mkdir()
    net, example = _torch(folder / "old" / "model.onnx")
    kind = "tflite" if runtime == "litert" else "pte"
    (_tflite if runtime == "litert" else _pte)(net, example, folder / "artifact" / f"model.{kind}")
    artifact = Artifact(folder / "artifact", kind, before.inputs, before.outputs).write()
    report = json.loads((folder / "report.json").read_text())
    package_inputs.write_report(folder, artifact, runtime, report["source"], report["data"]["preprocess"])
    versions = {"onnx": "onnxruntime", "litert": "ai-edge-litert", "executorch": "executorch"}
    package_inputs.report(folder, versions={versions[runtime]: "1.2.3"})
    shutil.rmtree(folder / "old")
    return folder


def _torch(file: Path) -> tuple[Any, Any]:
    import onnx
    import torch
    from onnx import numpy_helper

    weights = {w.name: torch.from_numpy(numpy_helper.to_array(w).copy()) for w in onnx.load(file).graph.initializer}

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w1, self.w2 = torch.nn.Parameter(weights["w1"]), torch.nn.Parameter(weights["w2"])

        def forward(self, image: Any) -> Any:
            found = torch.relu(torch.nn.functional.conv2d(image, self.w1, padding=1))
            return found.mean((2, 3)) @ self.w2

    return Net().eval(), (torch.zeros(1, 3, package_inputs.SIDE, package_inputs.SIDE),)


def _tflite(net: Any, example: Any, file: Path) -> None:
    import litert_torch

    litert_torch.convert(net, example).export(str(file))


def _pte(net: Any, example: Any, file: Path) -> None:
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    program = to_edge_transform_and_lower(torch.export.export(net, example), partitioner=[XnnpackPartitioner()])
    file.write_bytes(program.to_executorch().buffer)


# --------------------------------------------------------------------------- other nets


def audio(folder: Path) -> Path:
    """A classifier of clips of 400 samples: [1, 9, 12] numbers of a spectrogram -> [1, 3] scores."""
    from onnx import TensorProto

    heard = Spectrogram(rate=8000, length=400, frame=80, hop=40, fft=128, bins=12)
    declared = Preprocess(spectrogram=heard, scale=0.5, mean=(-2.0,), std=(3.0,))
    raw = np.random.default_rng(5).normal(scale=4000, size=(1, 400)).astype(np.int16)
    taken = preprocess.numbers(np.stack([preprocess.geometry(item, declared) for item in raw]), declared)
    weights = np.random.default_rng(6).normal(size=(9 * 12, 3)).astype(np.float32)
    nodes = [("Flatten", ["clip"], ["flat"]), ("MatMul", ["flat", "w"], ["scores"])]
    ends = (("clip", TensorProto.FLOAT, (1, 9, 12)),), (("scores", TensorProto.FLOAT, (1, 3)),)
    specs = (TensorSpec("clip", (1, 9, 12)),), (TensorSpec("scores", (1, 3)),)
    _made(folder, nodes, ends, {"w": weights}, specs, {"clip": taken}, declared)
    tensors.write_split(folder / "excerpt" / "raw", {"clip": raw[0]})
    Artifact.read(folder / "excerpt").write()
    return folder


def stateful(folder: Path) -> Path:
    """x [1, 4] and y [1, 4] stored in 8 bits, a state that y's real numbers become: not a classifier."""
    from onnx import TensorProto

    scale, zero = np.float32(0.05), np.int8(-3)
    nodes = [
        ("DequantizeLinear", ["x", "scale", "zero"], ["real"]),
        ("MatMul", ["real", "w"], ["turned"]),
        ("Add", ["turned", "state"], ["next"]),
        ("QuantizeLinear", ["next", "scale", "zero"], ["y"]),
    ]
    ends = (
        (("x", TensorProto.INT8, (1, 4)), ("state", TensorProto.FLOAT, (1, 4))),
        (("y", TensorProto.INT8, (1, 4)), ("next", TensorProto.FLOAT, (1, 4))),
    )
    weights = {"w": np.random.default_rng(8).normal(size=(4, 4)).astype(np.float32), "scale": scale, "zero": zero}
    stored = Quantization((float(scale),), (int(zero),))
    ins = (TensorSpec("x", (1, 4), "int8", quantization=stored), TensorSpec("state", (1, 4)))
    outs = (TensorSpec("y", (1, 4), "int8", quantization=stored), TensorSpec("next", (1, 4), feeds="state"))
    x = np.random.default_rng(9).uniform(-4, 4, size=(1, 4)).astype(np.float32)
    _made(folder, nodes, ends, weights, (ins, outs), {"x": x}, None)
    return folder


def _made(
    folder: Path, nodes: Any, ends: Any, weights: Any, specs: Any, inputs: dict[str, Any], declared: Preprocess | None
) -> None:
    """A folder as a deploy writes it, of an ONNX net out of its parts."""
    import onnx
    from onnx import helper, numpy_helper

    (folder / "artifact").mkdir(parents=True)
    values = [[helper.make_tensor_value_info(*end) for end in side] for side in ends]
    constants = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph([helper.make_node(*node) for node in nodes], "net", *values, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    onnx.save_model(model, folder / "artifact" / "model.onnx")
    artifact = Artifact(folder / "artifact", "onnx", *specs).write()
    answers = _answers(artifact, inputs)
    batched = tuple(TensorSpec(n, (Dim("batch"), *a.shape[1:])) for n, a in inputs.items())
    given = tuple(TensorSpec(n, (Dim("batch"), *a.shape[1:])) for n, a in answers.items())
    tensors.write_split(folder / "excerpt" / "test", inputs)
    tensors.write_split(folder / "excerpt" / "golden", answers)
    Artifact(folder / "excerpt", "excerpt", batched, given, {"splits": {"test": 1}}).write()
    tensors.write_split(folder / "verdict" / "answers", answers)
    Artifact(folder / "verdict", "verdict", facts={"n": 1}).write()
    metric = "top1" if declared else "mse"
    labels = ["yes", "no", "maybe"] if declared else []
    source = {"name": "Spoken \u00b7 word", "model": "x:y", "labels": labels, "metric": metric, "licence": ""}
    told = dataclasses.asdict(declared) if declared else None
    package_inputs.write_report(folder, artifact, "onnx", source, told)


def _answers(artifact: Artifact, inputs: dict[str, Any]) -> dict[str, Any]:
    """What it answers, in real numbers; states start at zero."""
    from edgecompress.engines.onnx.runtimes import onnx

    session = onnx.open(artifact, 1)
    given = {s.name: tensors.fitted(inputs[s.name], s) for s in artifact.inputs if s.name in inputs}
    given |= {s.name: np.zeros(s.concrete(), s.dtype) for s in artifact.inputs if s.name not in inputs}
    found = session.run(given)
    session.close()
    return {s.name: tensors.real(np.asarray(found[s.name]), s) for s in artifact.outputs if not s.feeds}


def softmax(scores: Any) -> Any:
    """Probabilities of scores."""
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()
