"""An engine for null nets, answering with the mean of what it hears: a runtime in one file, in its own distribution."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request, TensorSpec

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.formats import op_counts

REQUIRES = ("numpy",)
EXTRA = ""
FORMAT = "echo"  # the kind that it runs
READS: tuple[str, ...] = ("null",)  # the kinds that `export` makes it of: "program" is a torch one, ...
SUFFIX = ".echo"  # of the files that `read` takes


def export(request: Request) -> Artifact:
    """A null net as an echo net: the same table, another engine."""
    return _copy(request.model.file(".null"), request.out)


def read(request: Request) -> Artifact:
    """The user's `.echo` file, checked and copied."""
    return _copy(Path(request.options["path"]), request.out)


def _copy(file: Path, out: Path) -> Artifact:
    inputs, outputs, _ = _parse(file)
    shutil.copyfile(file, out / "model.echo")
    return Artifact(out, FORMAT, inputs, outputs).write()


def _parse(file: Path) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...], float]:
    try:
        net = json.loads(file.read_text(encoding="utf-8"))
        inputs, outputs = (tuple(TensorSpec.from_json(s) for s in net[key]) for key in ("inputs", "outputs"))
        return inputs, outputs, float(net["scale"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file}: not an echo net: {error}; export one from a null net") from error


def open(artifact: Artifact, threads: int, profile: bool = False) -> Session:
    """A session on one thread, whatever `threads` says."""
    return Session(*_parse(artifact.file(".echo")))


def count(artifact: Artifact, batch: int) -> op_counts.Graph:
    """The operators of one run: one echo, which multiplies each value of each output once."""
    from edgecompress.formats import op_counts

    inputs, outputs, _ = _parse(artifact.file(".echo"))
    reads, writes = (
        tuple(op_counts.Tensor(s.name, s.concrete(batch), s.dtype) for s in side) for side in (inputs, outputs)
    )
    macs = sum(math.prod(tensor.shape) for tensor in writes)
    return op_counts.Graph((op_counts.Op("echo", "Echo", macs, reads, writes),), (*reads, *writes))


def weights(artifact: Artifact) -> Iterator[tuple[str, np.ndarray | None]]:
    """The slope of each output, as a matrix of one row."""
    import numpy as np

    _, outputs, scale = _parse(artifact.file(".echo"))
    for spec in outputs:
        ramp = scale * np.arange(1, math.prod(spec.concrete()[1:]) + 1, dtype=np.float32)
        yield f"{spec.name}.ramp", ramp.reshape(1, -1)


class Session:
    """Each output is scale * (the item's mean) * (1, 2, 3, ... along its elements)."""

    def __init__(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], scale: float) -> None:
        import numpy as np

        self.input = inputs[0].name
        shapes = {spec: spec.concrete()[1:] for spec in outputs}
        self.ramps = {
            spec: scale * np.arange(1, math.prod(s) + 1, dtype=np.float64).reshape(s) for spec, s in shapes.items()
        }

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference: {input: array [batch, ...]} -> {output: array [batch, ...]}."""
        import numpy as np

        means = [float(np.mean(item, dtype=np.float64)) for item in inputs[self.input]]
        return {s.name: np.stack([m * ramp for m in means]).astype(s.dtype) for s, ramp in self.ramps.items()}

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> Mapping[str, object]:
        """One operator: the echo."""
        begin = time.perf_counter()
        for _ in range(runs):
            self.run(inputs)
        each_ms = (time.perf_counter() - begin) * 1000 / runs
        return {"ops": [{"name": "echo", "type": "Echo", "ms": each_ms, "where": "python"}], "why": "", "fallback": []}

    def close(self) -> None:
        """Nothing to free."""
