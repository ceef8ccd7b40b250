"""An engine for null nets, answering with the mean of what it hears: a runtime in one file, in its own distribution."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgecompress.errors import InputError
from edgecompress.model import Artifact, Request, TensorSpec

REQUIRES = ("numpy",)
EXTRA = ""
FORMAT = "echo"
READS: tuple[str, ...] = ("null",)
SUFFIX = ".echo"


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


def open(artifact: Artifact, threads: int, profile: bool = False) -> EchoSession:
    """A session on one thread, whatever `threads` says."""
    return EchoSession(*_parse(artifact.file(".echo")))


class EchoSession:
    """Each output is scale * (the item's mean) * (1, 2, 3, ... along its elements)."""

    def __init__(self, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], scale: float) -> None:
        import numpy as np

        self.input = inputs[0].name
        shapes = {spec: spec.concrete()[1:] for spec in outputs}
        self.ramps = {
            spec: scale * np.arange(1, math.prod(s) + 1, dtype=np.float64).reshape(s) for spec, s in shapes.items()
        }

    def run(self, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
        """One inference: {input: array [batch, ...]} -> {output: array [batch, ...]}."""
        import numpy as np

        means = [float(np.mean(item, dtype=np.float64)) for item in inputs[self.input]]
        return {s.name: np.stack([m * ramp for m in means]).astype(s.dtype) for s, ramp in self.ramps.items()}

    def ops(self, inputs: Mapping[str, Any], runs: int) -> Mapping[str, Any]:
        """One operator: the echo."""
        begin = time.perf_counter()
        for _ in range(runs):
            self.run(inputs)
        each_ms = (time.perf_counter() - begin) * 1000 / runs
        return {"ops": [{"name": "echo", "type": "Echo", "ms": each_ms, "where": "python"}], "why": "", "fallback": []}

    def close(self) -> None:
        """Nothing to free."""
