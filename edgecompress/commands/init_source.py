"""What `init --source MODEL` writes: a source.toml for a model file, and a function that yields its data."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Sequence
from pathlib import Path

from edgecompress.commands import init, job_run
from edgecompress.core.errors import InputError
from edgecompress.core.model import Dim, TensorSpec
from edgecompress.core.settings import SPLITS
from edgecompress.data import channel_axis, raw_heads
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import Options

BOX = 4  # numbers
PLACES = 8  # times as many as there are numbers of each has an output that holds boxes and their scores
REAL, WHOLE = "rng.standard_normal({0}).astype({1})", "rng.integers(0, {2}, {0}).astype({1})"
HIGHEST = {"uint8": 256, "int8": 128}  # ids and masks: 0 and 1 are always there

DATA = '''\
"""Items of {model}: make `data` yield yours. Until then they are random, and say nothing about accuracy."""

import numpy as np


def data(split):
    """Yields (inputs, label) of "calibrate", "select" and "test": arrays of one item each, without the batch axis."""
    rng = np.random.default_rng({splits}.index(split))
    for _ in range(64):
        inputs = {{
{inputs}
        }}
        yield inputs, None  # the label, where there is one
'''


def write(model: str, name: str, place: tuple[Path | None, str], options: Options) -> tuple[Path, Path | None]:
    """Writes NAME.toml and, where `place` names no data beside the output, NAME_data.py; returns both.

    The model is read for it, in a process of its own. `name` empty: the file's. Raises InputError.
    """
    output, data = place
    if not Path(model).exists():
        raise InputError(f"--source {model}: no such file; give a model file (.onnx, .tflite, .keras, a SavedModel)")
    name = name or re.sub(r"\W", "_", Path(model).stem)
    file = output or init.place("source", name)
    module = "" if data else f"{file.stem}_data"
    if module and (not module.isidentifier() or keyword.iskeyword(module)):
        raise InputError(f"{file.stem}: cannot be the name of a module; give another NAME")
    code = file.with_name(f"{module}.py")
    for each in (file, *([code] if module else [])):
        init.check(each)
    inputs, outputs = described(model, options)
    path, folder = Path(model).resolve(), file.resolve().parent  # the TOML is read from its own folder
    named = path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)
    fields = {"name": name, "model": named, "data": data or f"{module}:data", "metric": "none"}
    init.write(file, init.text("source", fields) + _remarks(inputs, outputs))
    if data:
        return file, None
    lines = "\n".join(f"            {json.dumps(spec.name)}: {_numbers(spec)},  # {_words(spec)}" for spec in inputs)
    init.write(code, DATA.format(model=Path(model).name, splits=json.dumps(SPLITS), inputs=lines))
    return file, code


def described(model: str, options: Options) -> tuple[Sequence[TensorSpec], Sequence[TensorSpec]]:
    """The inputs that data must have, and the outputs, of a model file. Raises EdgeError."""
    asked = job(model, data="random")
    if asked.resolved.torch:
        raise InputError(
            f"--source {model}: the inputs of a torch net are known with its data alone; give init NAME --kind source "
            f"--model {model}"
        )
    walk = job_run.begin(asked, options, f"init>{model}")
    walk.stages([stage for stage in plan.front(asked) if stage.name == "source"])
    artifact = job_run.artifact_of(walk, "source")
    fed = {spec.feeds for spec in artifact.outputs}
    return [spec for spec in artifact.inputs if spec.name not in fed], artifact.outputs


def _remarks(inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> str:
    sides = (("Inputs", inputs), ("Outputs", outputs))
    lines = [
        f"\n# {side} of the model:\n" + "".join(f"# {s.name}: {_words(s)}\n" for s in each) for side, each in sides
    ]
    picture = channel_axis.picture(spec.concrete() for spec in inputs)
    shapes = {spec.name: spec.concrete() for spec in outputs}
    if table := raw_heads.proposal(shapes, picture) if picture else "":
        commented = "".join(f"# {line}\n" for line in table.splitlines())
        lines.append(
            f"\n# By their shapes these may be a detector's raw head, of which boxes are made so:\n{commented}"
        )
    elif boxes := _boxes(outputs):
        one = next((s.concrete() for s in outputs if s.name == boxes[0] == boxes[1]), ())
        other = raw_heads.joined(boxes[0], one, picture) if picture and len(one) == 3 else ""
        how = f'detect = {{ boxes = "{boxes[0]}", scores = "{boxes[1]}", format = "{boxes[2]}" }}'
        lines.append(
            f"\n# By their shapes these may be a detector's; write them so (or yxyx, xywh, xyxy, cxcywh):\n# {how}\n"
        )
        if other:
            commented = "".join(f"# {line}\n" for line in other.splitlines())
            lines.append(f"# or, where they are offsets in strides, of which boxes are made:\n{commented}")
    return "".join(lines)


def _boxes(outputs: Sequence[TensorSpec]) -> tuple[str, str, str] | None:
    """What may be boxes, what may be their scores, and how most nets with such outputs write boxes."""
    known = {s.name: [size for size in s.shape[1:] if isinstance(size, int)] for s in outputs}
    sizes = {s.name: known[s.name] for s in outputs if len(known[s.name]) == len(s.shape) - 1}
    for name, shape in sizes.items():
        if len(shape) == 2 and BOX in shape:
            places = shape[1 - shape.index(BOX)]
            for other, beside in sizes.items():
                if other != name and len(beside) in (1, 2) and places in beside:
                    return name, other, "xyxy"
    for name, shape in sizes.items():
        if len(shape) == 2 and (few := min(shape)) > BOX and max(shape) > PLACES * few:
            return name, name, "cxcywh"
    return None


def _numbers(spec: TensorSpec) -> str:
    """Code that draws one item of an input."""
    shape = tuple(spec.concrete()[1:])
    code = REAL if "float" in spec.dtype else WHOLE
    return code.format(shape, json.dumps(spec.dtype), HIGHEST.get(spec.dtype, 2))


def _words(spec: TensorSpec) -> str:
    axes = ", ".join(d.name if isinstance(d, Dim) else str(d) for d in spec.shape)
    order = ""
    if len(spec.shape) == 4:  # pictures, where one end alone can be their colours
        first, last = spec.shape[1] in channel_axis.COLOURS, spec.shape[3] in channel_axis.COLOURS
        order = "" if first == last else ", pictures as NCHW" if first else ", pictures as NHWC"
    return f"{spec.dtype} [{axes}]{order}"
