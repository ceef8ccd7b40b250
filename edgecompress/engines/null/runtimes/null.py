"""The null engine: runs nets described in JSON that compute almost nothing, to test the pipeline without torch.

`model.null` is `{"inputs": [spec], "outputs": [spec], "scale": 1.0, "spin_ms": 0, "sleep_ms": 0, "work": 0,
"touch_bytes": 0}`. Each output is scale * (the item's mean) * (1, 2, 3, ... along its elements). A run can sleep, spin
until a time is over, and do `work` steps of a loop, which is time of the processor; at load it can touch memory. With
EDGECOMPRESS_NULL_LOG set it appends its own elapsed milliseconds to that file, a line per run: what a profiler is
tested against. (An environment variable, because a model file may come from a stranger.)
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from edgecompress.core.errors import InputError, blamed
from edgecompress.core.json import read_json
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import declared_ends, tensors
from edgecompress.formats import empty_model

if TYPE_CHECKING:
    import numpy as np

    from edgecompress.core.protocols import OperatorTimes

REQUIRES = ("numpy",)
OPENS_WITH: tuple[str, ...] = ()
EXTRA = ""
FORMAT = "null"
NO_ARENA = "a null net plans no memory"
READS: tuple[str, ...] = ()
SUFFIX = ".null"
FOR_TESTS = True

DTYPES = ("float16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
LARGEST = 1 << 20  # bytes of a file
LIMITS = {"spin_ms": 60_000, "sleep_ms": 60_000, "work": 10**10, "touch_bytes": 4 << 30}


@dataclass(frozen=True)
class NullNet:
    """The content of `model.null`."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    scale: float = 1.0
    spin_ms: float = 0.0
    sleep_ms: float = 0.0
    work: int = 0  # steps, of some nanoseconds each
    touch_bytes: int = 0


def parse(file: Path) -> NullNet:
    """The net in `file`; raises InputError with what is wrong."""
    try:
        table = read_json(file, LARGEST)
        inputs, outputs = (tuple(TensorSpec.from_json(s) for s in table.pop(key)) for key in ("inputs", "outputs"))
        net = NullNet(inputs, outputs, **table)
        tensors.check_specs((*net.inputs, *net.outputs), str(file))
        # numbers that are none, or that would take longer than anybody waits
        if not math.isfinite(net.scale):
            raise ValueError("a null net needs inputs, outputs and a finite scale")
        for name, most in LIMITS.items():
            if not 0 <= getattr(net, name) <= most:
                raise ValueError(f"{name} must be 0 to {most}")
        for spec in (*net.inputs, *net.outputs):
            if spec.dtype not in DTYPES:
                raise ValueError(f"'{spec.name}' is of an unknown type")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise blamed(error)(f"{file}: not a null net: {error}; see the docstring of runtimes/null.py") from error
    if not net.inputs or not net.outputs:
        raise InputError(f"{file}: a null net needs inputs, outputs and a finite scale")
    return net


def export(request: Request) -> Artifact:
    """Copies a null net; raises for any other model."""
    raise InputError(f"runtime null: cannot convert {request.model.kind} to null")


def read(request: Request) -> Artifact:
    """The user's `.null` file, checked and copied."""
    file = Path(request.options["path"])
    net = parse(file)
    inputs, outputs = declared_ends.of(net.inputs, net.outputs, request.options.get("state", {}), str(file))
    shutil.copyfile(file, request.out / "model.null")
    return Artifact(request.out, FORMAT, inputs, outputs).write()


def empty(folder: Path) -> Artifact:
    """The smallest net, in an empty folder."""
    write(folder / "model.null", NullNet(*empty_model.SPECS))
    return Artifact(folder, FORMAT, *empty_model.SPECS).write()


def open(artifact: Artifact, threads: int, profile: bool = False) -> NullSession:
    """A session on one thread, whatever `threads` says; it sleeps for its part of `sleep_ms` alone."""
    return NullSession(parse(artifact.file(".null")), threads)


class NullSession:
    """Runs a null net."""

    def __init__(self, net: NullNet, threads: int = 1) -> None:
        self.net, self.threads = net, threads
        self.log = os.environ.get("EDGECOMPRESS_NULL_LOG", "")
        self.touched = bytearray(b"\1") * net.touch_bytes

    def run(self, inputs: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
        """One inference: {input: array [batch, ...]} -> {output: array [batch, ...]}."""
        begin = time.perf_counter()
        result = {spec.name: self._output(spec, inputs[self.net.inputs[0].name]) for spec in self.net.outputs}
        if self.net.sleep_ms:
            time.sleep(self.net.sleep_ms / 1000 / self.threads)
        while (time.perf_counter() - begin) * 1000 < self.net.spin_ms:
            pass
        for _ in itertools.repeat(None, self.net.work):
            pass
        if self.log:
            with Path(self.log).open("a") as log:
                log.write(f"{(time.perf_counter() - begin) * 1000}\n")
        return result

    def _output(self, spec: TensorSpec, values: np.ndarray) -> np.ndarray:
        import numpy as np

        shape = spec.concrete()[1:]
        mean = np.asarray(values, dtype=np.float64).reshape(len(values), -1).mean(axis=1)
        ramp = np.arange(1, math.prod(shape) + 1, dtype=np.float64)
        output: np.ndarray = (self.net.scale * mean[:, None] * ramp).astype(spec.dtype)
        return output.reshape(len(values), *shape)

    def ops(self, inputs: Mapping[str, np.ndarray], runs: int) -> OperatorTimes:
        """One operator: the net itself."""
        if not runs:
            return {"ops": [], "why": "no run was asked for", "fallback": []}
        edges = [time.perf_counter()]
        for _ in range(runs):
            self.run(inputs)
            edges.append(time.perf_counter())
        each_ms = 1e3 * statistics.median(b - a for a, b in itertools.pairwise(edges))
        return {"ops": [{"name": "null", "type": "Null", "ms": each_ms, "where": "python"}], "why": "", "fallback": []}

    def close(self) -> None:
        """Gives the memory back."""
        self.touched = bytearray()


def write(file: Path, net: NullNet) -> None:
    """`net` as a `.null` file: what tests and demos start from."""
    file.write_text(json.dumps(dataclasses.asdict(net)), encoding="utf-8")
