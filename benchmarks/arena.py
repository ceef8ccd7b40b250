"""Is the planned arena the memory that activations take? Plans beside what a run really writes.

    python benchmarks/arena.py [--runtimes litert,executorch,onnx,openvino] [--nets residual_cnn,lstm,...]

Each net of the zoo is exported in fp32 and int8 (for ExecuTorch without a delegate too), opened, and run in a process
with a counter of allocations (arena_trace.c, by LD_PRELOAD; it needs Linux and gcc). What was allocated since then, and
changes when other inputs are run, holds activations: the sum of those allocations is compared with `arena_bytes`.
Printed: both, their ratio, the tensor at the peak; or why a runtime tells no plan.
Exit 1 when a plan is more than 5 % off.
"""

from __future__ import annotations

import argparse
import ctypes
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

from edgecompress.core import registry
from edgecompress.core.model import Artifact
from edgecompress.device.agent import session as agent_session
from edgecompress.testing import zoo
from edgecompress.testing.conformance import zoo_cells

LIMIT = 0.05
LEAST, MOST = 64, 262_144  # bytes of an allocation that may hold activations; allocations
RUNS = 4
TRACE = Path(__file__).with_name("arena_trace.c")
WAYS = (("fp32", {}), ("int8", {}))
PORTABLE = ("portable", {"backend": "portable"})


def main() -> int:
    parser = figures.flags(__doc__)
    parser.add_argument("--runtimes", default="litert,executorch,onnx,openvino")
    parser.add_argument("--nets", default=",".join(zoo.NETS))
    parser.add_argument("--traced", nargs=2, metavar=("RUNTIME", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.traced:
        print(json.dumps(traced(asked.traced[0], Artifact.read(Path(asked.traced[1])))))
        return 0
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "trace.so"
        subprocess.run(["gcc", "-O1", "-shared", "-fPIC", TRACE, "-o", library], check=True)
        for runtime, name, way, artifact in artifacts(asked.runtimes.split(","), asked.nets.split(","), Path(folder)):
            rows.append({"runtime": runtime, "net": name, "way": way, **measured(runtime, artifact, library)})
            print(line(rows[-1]), flush=True)
    off = [row for row in rows if row["ratio"] is not None and abs(row["ratio"] - 1) > LIMIT]
    planned = [row for row in rows if row["ratio"] is not None]
    print(f"{len(planned)} plans of {len(rows)}, {len(off)} of them more than {LIMIT:.0%} off")
    return 1 if off or not planned else 0


def artifacts(runtimes: Sequence[str], names: Sequence[str], folder: Path) -> Iterator[tuple[str, str, str, Artifact]]:
    """Runtime, net, way, and the net exported so."""
    for name in names:
        source = zoo_cells.zoo_source(name, (), folder / name)
        for runtime in runtimes:
            for way, options in (*WAYS, *([PORTABLE] if runtime == "executorch" else [])):
                calls = zoo_cells.zoo_road(runtime, "int8" if way == "int8" else "fp32")
                calls = [*calls[:-1], (calls[-1][0], {**calls[-1][1], **options})]
                place = dataclasses.replace(source, folder=folder / f"{name}-{runtime}-{way}")
                yield runtime, name, way, zoo_cells.travelled(place, calls, 1)


def measured(runtime: str, artifact: Artifact, library: Path) -> dict[str, Any]:
    """What the plan says and what a run writes, in a process of its own."""
    command = [sys.executable, __file__, "--traced", runtime, str(artifact.path)]
    environment = {**os.environ, "LD_PRELOAD": str(library), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise SystemExit(f"{artifact.path}: {done.stderr.strip().splitlines()[-1:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    planned = found["arena_bytes"]
    return {**found, "ratio": planned / found["written"] if planned and found["written"] else None}


def line(row: dict[str, Any]) -> str:
    """A row as text."""
    what = f"{row['runtime']:11} {row['net']:14} {row['way']:9}"
    if row["ratio"] is None:
        return f"{what} {row['written']:>8} written; no plan: {row['arena_reason']}"
    return (
        f"{what} {row['written']:>8} written, {row['arena_bytes']:>8} planned, {row['ratio']:.3f}; {row['arena_peak']}"
    )


# --------------------------------------------------------------------------- in the process with the counter


def traced(name: str, artifact: Artifact) -> dict[str, Any]:
    """The plan, and the bytes of allocations that other inputs change."""
    module = registry.load("runtimes", name)
    for library in module.IMPORTS:
        __import__(library)
    counter, inputs = ctypes.CDLL(None), [drawn(artifact, seed) for seed in range(RUNS)]
    counter.trace_begin()
    session = module.open(artifact, 1)
    session.run(inputs[0])
    places, sizes = (ctypes.c_void_p * MOST)(), (ctypes.c_size_t * MOST)()
    count = counter.trace_end(places, sizes, MOST)
    own = [array.ctypes.data for array in getattr(getattr(session, "inputs", None), "arrays", {}).values()]
    blocks = [(places[i] or 0, sizes[i]) for i in range(count) if sizes[i] >= LEAST]
    blocks = [(at, size) for at, size in blocks if not any(at <= address < at + size for address in own)]
    states = [contents(blocks)]
    for each in inputs[1:]:
        session.run(each)
        states.append(contents(blocks))
    written = sum(size for i, (_, size) in enumerate(blocks) if len({state[i] for state in states}) > 1)
    return {"written": written, **agent_session.arena(session, module)}


def contents(blocks: Sequence[tuple[int, int]]) -> list[bytes]:
    """What lies in each block now."""
    return [ctypes.string_at(at, size) for at, size in blocks]


def drawn(artifact: Artifact, seed: int) -> dict[str, np.ndarray]:
    """Inputs that reach every activation: wide numbers, or whole ones."""
    seeded = np.random.default_rng(seed)
    return {
        spec.name: (
            seeded.normal(0, 20, spec.concrete())
            if spec.dtype.startswith("float")
            else seeded.integers(0, 2, spec.concrete())
        ).astype(spec.dtype)
        for spec in artifact.inputs
    }


if __name__ == "__main__":
    sys.exit(main())
