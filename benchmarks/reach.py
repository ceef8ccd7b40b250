"""Which targets strangers' nets reach: an fp32 artifact for each, verified by the deploy and judged by raw runtimes.

For `any_source.py --reach`: the files of shared data's wild/, three Keras nets, and the nets of strangers_nets.py.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import strangers
import strangers_nets
from strangers_nets import ITEMS, SEEN, Made

import edgecompress
from edgecompress.commands import deploy
from edgecompress.core.errors import EdgeError
from edgecompress.core.model import Artifact
from edgecompress.pipeline import job, plan

TARGETS = {"android": ("fp32",), "ios": ("fp32",), "arm64": ("fp32", "onnx-fp32", "executorch-fp32")}
LOOSE = strangers.TOLERANCE["fp32"], strangers.TOLERANCE["int8"]  # of a source that is quantized already the latter
STATE = {"speech_state_scalar": {"source.state": {"state": "stateN"}, "source.sequence": 4}}
KERAS = ("keras_functional", "keras_lstm", "keras_mobile")


@dataclass(frozen=True)
class Reach:
    """What became of a net's fp32 variant. `off`: by the raw runtimes, None where none runs it (Core ML)."""

    net: str
    target: str
    variant: str
    outcome: str  # "reached", "WRONG" or "no"
    says: str = ""
    db: float | None = None  # None: identical
    off: float | None = None
    seconds: float = 0.0


def cases(only: Sequence[str], work: Path) -> Iterator[Reach]:
    """Every net on every target, each net in a process of its own."""
    wild = Path(os.environ["EDGECOMPRESS_SHARED"]) / "wild"
    every = [*(f.stem for f in sorted(wild.glob("*.*")) if f.suffix != ".md"), *KERAS]
    for name in [n for n in (*every, *strangers_nets.NETS) if not only or n in only]:
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            try:
                found = pool.submit(of_net, name, work / name, wild).result()
            except Exception as error:  # whatever making it raises, or its process ended
                found = [Reach(name, target, "", "no", f"not tried: {error!r}"[:200]) for target in TARGETS]
        yield from found


def of_net(name: str, folder: Path, wild: Path) -> list[Reach]:
    """A net's cases, in the order of the targets."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(3)  # of raw sessions, whose warnings are of no use here
    folder.mkdir(parents=True, exist_ok=True)
    file = next(wild.glob(f"{name}.*"), None)
    made = from_wild(file) if file else globals()[name](folder) if name in KERAS else strangers_nets.build(name, folder)
    os.chdir(folder)
    given = {**made.items, **({} if made.labels is None else {"labels": made.labels})}
    np.savez(folder / "data.npz", **{key: array[:SEEN] for key, array in given.items()})
    return [case for target in TARGETS for case in of_target(name, target, made, folder)]


def of_target(name: str, target: str, made: Made, folder: Path) -> Iterator[Reach]:
    """Each fp32 variant of a target."""
    how: Any = {"settings": STATE.get(name), "only": TARGETS[target], "profile": "quick", "samples": 16}
    metric = None if made.labels is not None else "none"
    began = time.monotonic()
    try:
        wanted = job.job(made.model, target, data=str(folder / "data.npz"), metric=metric, **how)
        steps = plan.deploy(wanted)
        options = edgecompress.Options(store=folder / "store", until=steps.stages[-1].name)
        found = deploy.run(wanted, steps, options).outcomes
    except EdgeError as error:
        yield Reach(name, target, "", "no", str(error), seconds=time.monotonic() - began)
        return
    for variant in TARGETS[target]:
        verdict = found.get(f"{variant}/verify")
        spent = time.monotonic() - began
        if verdict is None:
            why = steps.race.left_out.get(variant, "no stage verifies it")
            yield Reach(name, target, variant, "no", why, seconds=spent)
        elif verdict.status != "ok" or verdict.artifact is None:
            yield Reach(name, target, variant, "no", verdict.reason, seconds=spent)
        else:
            at = next(stage for stage in steps.stages if stage.name == f"{variant}/verify").inputs["model"]
            yield judged(
                Reach(name, target, variant, "reached", seconds=spent), made, found[at].artifact, verdict.facts
            )


def judged(case: Reach, made: Made, artifact: Artifact | None, facts: Mapping[str, Any]) -> Reach:
    """A case that was verified, by its own items and the raw runtimes."""
    db = min((o["sqnr_db"] for o in facts["outputs"] if o["sqnr_db"] is not None), default=None)
    case = dataclasses.replace(case, db=db)
    raw = strangers.artifact_of(artifact.path) if artifact and case.net not in STATE else None
    if raw is None:
        return case
    try:
        off = max(strangers.differences(strangers.source_of(made, Path.cwd()), raw, made).values())
    except Exception as error:  # any engine's
        return dataclasses.replace(case, outcome="WRONG", says=f"{type(error).__name__}: {str(error)[:200]}")
    loose = LOOSE[bool(artifact and artifact.facts.get("given")) or "int8" in case.net or "uint8" in case.net]
    return dataclasses.replace(case, off=off, outcome="WRONG" if off > loose else case.outcome)


# --------------------------------------------------------------------------- files, and nets of Keras


def from_wild(file: Path) -> Made:
    """A file of strangers with drawn items: whole numbers of all values, or small real ones."""
    rng = np.random.default_rng(17)
    if file.suffix == ".onnx":
        import onnxruntime

        ends = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).get_inputs()
        shapes = {end.name: [512 if n == "sequence" else n for n in end.shape[1:]] for end in ends}
        shapes.pop("state", None)
        return Made(str(file), {name: real(rng, ITEMS, *shape) for name, shape in shapes.items()})
    raw = strangers.raw_tflite(file)
    items = {}
    for name, shape, (_, _, kind) in zip(raw.inputs, raw.shapes, raw.quantized, strict=True):
        whole = np.dtype(kind).kind in "iu"
        limits = np.iinfo(kind) if whole else None
        sizes = (ITEMS, *shape[1:])
        items[name] = rng.integers(limits.min, limits.max, sizes).astype(kind) if limits else real(rng, *sizes)
    return Made(str(file), items)


def real(rng: np.random.Generator, *shape: int) -> Any:
    return rng.normal(0, 0.5, shape).astype(np.float32)


def keras_functional(folder: Path) -> Made:
    """Two branches that are joined, one of them a shortcut."""
    from keras import Model, layers, utils

    utils.set_random_seed(0)
    start = layers.Input((32, 32, 3), name="image")
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(16, 3, padding="same", use_bias=False)(start)))
    y = layers.Conv2D(16, 3, padding="same", activation="relu")(x)
    x = layers.MaxPooling2D(2)(layers.Add()([x, layers.Conv2D(16, 3, padding="same")(y)]))
    x = layers.Concatenate()([x, layers.AveragePooling2D(2)(y)])
    net = Model(start, layers.Dense(10)(layers.Flatten()(layers.Conv2D(8, 3, 2, padding="same", activation="elu")(x))))
    return saved(net, folder, {"image": real(np.random.default_rng(18), ITEMS, 32, 32, 3)})


def keras_lstm(folder: Path) -> Made:
    """Two LSTMs, the first of which gives its sequence."""
    from keras import Sequential, layers, utils

    utils.set_random_seed(0)
    ends = [layers.Input((12, 16), name="x"), layers.LSTM(24, return_sequences=True), layers.LSTM(24), layers.Dense(10)]
    return saved(Sequential(ends), folder, {"x": real(np.random.default_rng(19), ITEMS, 12, 16)})


def keras_mobile(folder: Path) -> Made:
    """Inverted bottlenecks with ReLU6 and a squeeze-and-excite."""
    from keras import Model, layers, utils

    utils.set_random_seed(0)
    start = layers.Input((32, 32, 3), name="image")
    x = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(16, 3, 2, "same", use_bias=False)(start)))
    for stride in (1, 2):
        y = layers.ReLU(6.0)(layers.BatchNormalization()(layers.Conv2D(64, 1, use_bias=False)(x)))
        y = layers.DepthwiseConv2D(3, stride, "same", use_bias=False)(y)
        y = layers.ReLU(6.0)(layers.BatchNormalization()(y))
        gate = layers.Dense(64, "sigmoid")(layers.Dense(8, "relu")(layers.GlobalAveragePooling2D(keepdims=True)(y)))
        y = layers.BatchNormalization()(layers.Conv2D(16, 1, use_bias=False)(layers.Multiply()([y, gate])))
        x = layers.Add()([x, y]) if stride == 1 else y
    net = Model(start, layers.Dense(10, "softmax")(layers.GlobalAveragePooling2D()(x)))
    return saved(net, folder, {"image": real(np.random.default_rng(20), ITEMS, 32, 32, 3)})


def saved(net: Any, folder: Path, items: Mapping[str, Any]) -> Made:
    """A net of random weights, but with what batch norms learn of the data drawn too."""
    import keras

    rng = np.random.default_rng(21)
    for layer in net.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.moving_mean.assign(rng.normal(0, 0.1, layer.moving_mean.shape))
            layer.moving_variance.assign(rng.uniform(0.5, 1.5, layer.moving_variance.shape))
    net.save(folder / "net.keras")
    return Made(str(folder / "net.keras"), items)
