"""What is run and read of strangers' nets: a command, its data, and the raw engines that judge what it made.

Source and artifact run in their own engines on the HIDDEN items, which no deploy saw, and the RMS of what differs is
held against the spread of the source's output (TOLERANCE; of whole numbers the share that differs counts).
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from strangers_nets import HIDDEN, SEEN, Made

LIMIT_S = 480  # of a command
TOLERANCE = {"int8": 0.15, "fp32": 0.005}

Array = Any  # numpy's
Run = Callable[[Sequence[Array]], Sequence[Array]]  # an item's inputs with a batch axis -> its outputs


def ended(command: Sequence[str], folder: Path) -> tuple[int | None, str]:
    """A command's exit code, None where it had to be ended, and all that it printed."""
    run = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    try:
        told, _ = run.communicate(timeout=LIMIT_S)
        return run.returncode, told
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        return None, f"{run.communicate()[0]}\nended after {LIMIT_S} s"


def data_of(made: Made, folder: Path, form: int) -> str:
    """The items of a deploy: an .npz of one set, one of three splits, or a folder of .npy."""
    splits = {"calibrate": slice(0, 100), "select": slice(100, 150), "test": slice(150, SEEN)}
    arrays = {**made.items, **({} if made.labels is None else {"labels": made.labels})}
    if form == 0:
        np.savez(folder / "data.npz", **{name: a[:SEEN] for name, a in arrays.items()})
        return "data.npz"
    if form == 1:
        parts = {f"{split}.{name}": a[at] for split, at in splits.items() for name, a in arrays.items()}
        np.savez(folder / "data.npz", **parts)
        return "data.npz"
    for split, at in splits.items():
        (folder / "data" / split).mkdir(parents=True, exist_ok=True)
        for name, array in arrays.items():
            np.save(folder / "data" / split / f"{name}.npy", array[at])
    return "data"


def last_line(told: str) -> str:
    lines = [line.strip() for line in told.splitlines() if line.strip()]
    return next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")


# --------------------------------------------------------------------------- raw runtimes


@dataclass(frozen=True)
class Raw:
    """A file in its own engine: its ends by name, and how to run it."""

    inputs: Sequence[str]
    outputs: Sequence[str]
    run: Run
    shapes: Sequence[Sequence[Any]] = ()  # of the inputs, where the file fixes them
    quantized: Sequence[tuple[float, int, Any]] = ()  # of the inputs: scale (0.0: real), zero point, dtype


def source_of(made: Made, folder: Path) -> Raw:
    path, names = folder / made.model, list(made.items)
    if path.suffix == ".onnx":
        return raw_onnx(path)
    if path.suffix == ".tflite":
        return raw_tflite(path)
    if path.suffix == ".pt2":
        import torch

        return Raw(names, (), raw_torch(torch.export.load(path).module()))
    if path.is_dir():
        import tensorflow as tf

        saved = tf.saved_model.load(str(path)).signatures["serving_default"]
        ends = sorted(saved.structured_outputs)

        def served(items: Sequence[Array]) -> list[Array]:
            found = saved(**{name: tf.constant(item) for name, item in zip(names, items, strict=True)})
            return [found[end].numpy() for end in ends]

        return Raw(names, ends, served)
    if path.suffix in (".keras", ".h5"):
        import keras

        net = keras.models.load_model(path)
        named = not isinstance(net, keras.Sequential) and isinstance(net.output, dict)
        ends = sorted(net.output) if named else []

        def keras_run(items: Sequence[Array]) -> list[Array]:
            found = net(list(items) if len(items) > 1 else items[0], training=False)
            return [np.asarray(part) for part in ([found[end] for end in ends] if ends else [found])]

        return Raw(names, ends, keras_run)
    sys.path.insert(0, str(folder))
    module, function = made.model.split(":")
    return Raw(names, (), raw_torch(getattr(importlib.import_module(module), function)(), names))


def raw_torch(net: Any, names: Sequence[str] = ()) -> Run:
    """`names`: of the arguments, where they go by name."""
    import torch

    def flat(found: Any) -> Iterator[Array]:
        if isinstance(found, torch.Tensor):
            yield found.detach().numpy()
        elif hasattr(found, "layers"):  # a cache of transformers
            for layer in found.layers:
                yield from flat((layer.keys, layer.values))
        else:
            for part in found.values() if isinstance(found, Mapping) else found:
                yield from flat(part)

    def run(items: Sequence[Array]) -> list[Array]:
        tensors = [torch.from_numpy(item) for item in items]
        with torch.no_grad():
            return list(flat(net(**dict(zip(names, tensors, strict=True))) if names else net(*tensors)))

    return run


def artifact_of(folder: Path) -> Raw | None:
    """What shipped, or None where no engine of this machine runs it; names in the order of its card."""
    files = {p.suffix: p for p in sorted(folder.rglob("*"), reverse=True)}  # of two .tflite the one before Vela
    card = json.loads((folder / "artifact.json").read_text(encoding="utf-8"))
    inputs, outputs = ([end["name"] for end in card[side]] for side in ("inputs", "outputs"))
    if ".onnx" in files:
        return raw_onnx(files[".onnx"])
    if ".tflite" in files:
        return raw_tflite(files[".tflite"])
    if ".xml" in files:
        import openvino

        core = openvino.Core()
        net = core.compile_model(core.read_model(files[".xml"]), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        shapes = [[d.get_length() if d.is_static else None for d in end.partial_shape] for end in net.inputs]

        def infer(items: Sequence[Array]) -> list[Array]:
            found = net(list(items))
            return [np.array(found[i]) for i in range(len(net.outputs))]

        return Raw([i.any_name for i in net.inputs], [o.any_name for o in net.outputs], infer, shapes)
    if ".pte" in files:
        import torch
        from executorch.runtime import Runtime

        program = Runtime.get().load_program(files[".pte"].read_bytes())
        method = program.load_method("forward")  # is nothing without its program

        def executed(items: Sequence[Array]) -> list[Array]:
            assert program
            return [np.array(tensor) for tensor in method.execute([torch.from_numpy(item) for item in items])]

        shapes = [[d if isinstance(d, int) else None for d in end["shape"]] for end in card["inputs"]]
        return Raw(inputs, outputs, executed, shapes)
    return None


def raw_onnx(path: Path) -> Raw:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    inputs = [end.name for end in session.get_inputs()]
    outputs = [end.name for end in session.get_outputs() if end.type != "tensor(string)"]  # text cannot be deployed
    shapes = [end.shape for end in session.get_inputs()]

    def run(items: Sequence[Array]) -> list[Array]:
        found = session.run(outputs, dict(zip(inputs, items, strict=True)))
        return [np.array([[*row.values()] for row in end]) if isinstance(end, list) else end for end in found]

    return Raw(inputs, outputs, run, shapes)


def raw_tflite(path: Path) -> Raw:
    """Inputs as they are held, outputs as real numbers; names are the signature's where there is one."""
    from ai_edge_litert.interpreter import Interpreter

    net = Interpreter(str(path), num_threads=1)
    net.allocate_tensors()
    ins, outs = net.get_input_details(), net.get_output_details()
    names = [[end["name"] for end in side] for side in (ins, outs)]
    if signatures := net.get_signature_list():
        key = next(iter(signatures))
        runner = net.get_signature_runner(key)
        for side, found in enumerate((runner.get_input_details(), runner.get_output_details())):
            by_tensor = {end["name"]: name for name, end in found.items()}
            names[side] = [by_tensor.get(name, name) for name in names[side]]

    def run(items: Sequence[Array]) -> list[Array]:
        for end, item in zip(ins, items, strict=True):
            if tuple(end["shape"]) != item.shape:
                net.resize_tensor_input(end["index"], item.shape)
        net.allocate_tensors()
        for end, item in zip(ins, items, strict=True):  # ids of 64 bits have 32 in a file
            net.set_tensor(end["index"], item.astype(end["dtype"]) if item.dtype.kind == "i" else item)
        net.invoke()
        return [real(net.get_tensor(end["index"]), *end["quantization"]) for end in outs]

    shapes = [[None if s < 0 else int(s) for s in end["shape_signature"]] for end in ins]
    return Raw(names[0], names[1], run, shapes, [(*end["quantization"], end["dtype"]) for end in ins])


def real(array: Array, scale: float, zero: int) -> Array:
    return (array.astype(np.float64) - zero) * scale if scale else np.array(array)


def differences(source: Raw, artifact: Raw, made: Made) -> dict[str, float]:
    """By output, how far the artifact is off on the hidden items."""
    wanted, found = list[Sequence[Array]](), list[Sequence[Array]]()
    same = set(artifact.inputs) == set(made.items)
    order = list(artifact.inputs) if same else list(made.items)
    for i in range(SEEN, SEEN + HIDDEN):
        item = {name: batched(array[i], made.axes.get(name, 0)) for name, array in made.items.items()}
        wanted.append(source.run([item[name] for name in (source.inputs if set(source.inputs) == set(item) else item)]))
        found.append(artifact.run([fitted(item[name], k, source, artifact) for k, name in enumerate(order)]))
    names = list(source.outputs) or [str(i) for i in range(len(wanted[0]))]
    if len(found[0]) != len(names):
        raise ValueError(f"{len(names)} outputs became {len(found[0])}: {list(artifact.outputs)}")
    at = [list(artifact.outputs).index(n) for n in names] if set(names) == set(artifact.outputs) else range(len(names))
    return {
        name: off(np.stack([w[i] for w in wanted]), np.stack([f[j] for f in found]))
        for i, (name, j) in enumerate(zip(names, at, strict=True))
    }


def batched(item: Array, axis: int | None) -> Array:
    return np.array(item if axis is None else np.expand_dims(item, axis), order="C")


def fitted(item: Array, k: int, source: Raw, artifact: Raw) -> Array:
    """An input of the source as the artifact holds it: whole numbers by its scale, in its shape where that is fixed."""
    scale, zero, dtype = artifact.quantized[k] if artifact.quantized else (0.0, 0, None)
    before = source.quantized[k][:2] if source.quantized else (0.0, 0)
    if (scale, zero) != before:
        item = real(item, *before).astype(np.float32)
        if scale:
            item = np.clip(np.round(item / scale + zero), np.iinfo(dtype).min, np.iinfo(dtype).max).astype(dtype)
    shape = artifact.shapes[k] if artifact.shapes else None
    fixed = shape is not None and all(isinstance(size, int) for size in shape)
    return item.reshape(shape) if fixed and list(item.shape) != list(shape or ()) else item


def off(wanted: Array, found: Array) -> float:
    """RMS of the difference over the spread; of whole numbers the share that differs."""
    found = found.reshape(wanted.shape)
    if wanted.dtype.kind in "iub":
        return float(np.mean(wanted != np.round(found)))
    spread = float(np.std(wanted.astype(np.float64))) or 1.0
    return float(np.sqrt(np.mean((wanted.astype(np.float64) - found) ** 2)) / spread)
