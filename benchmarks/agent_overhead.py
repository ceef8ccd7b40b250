"""Does the agent's loop cost anything? ONNX Runtime's latency by the agent and by a bare loop over the same session.

    python benchmarks/agent_overhead.py [--rounds 12] [--seconds 0.5] [--threads 1] [--channels 32]

The two take turns, the order changing each round; the ratio of their medians is printed with its interval and the
machine. Exit 1 when the median ratio is more than 3 % from 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from edgecompress import agent, statistic
from edgecompress.model import Artifact, TensorSpec
from edgecompress.runtimes import onnx as runtime
from edgecompress.transports import host

LIMIT = 0.03
INPUTS = 8


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--channels", type=int, default=32, help="of the two convolutions: the size of the net")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        session = runtime.open(convolutions(Path(folder), asked.channels), asked.threads)
        ours, bare = turns(session, asked.rounds, asked.seconds)
    ratio = statistic.ratio(ours, bare)
    report = {
        "agent_ms": statistics.median(ours),
        "bare_ms": statistics.median(bare),
        "ratio": ratio.median,
        "interval": [ratio.low, ratio.high],
        "rounds": ratio.n,
        "limit": LIMIT,
        "machine": host.connect({}).facts(),
    }
    print(json.dumps(report, indent=1))
    return 0 if abs(ratio.median - 1) <= LIMIT else 1


def convolutions(folder: Path, channels: int) -> Artifact:
    """Two 3x3 convolutions over 3 x 32 x 32, seeded, as an artifact."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(0)
    shapes = {"w0": (channels, 3, 3, 3), "w1": (channels, channels, 3, 3)}
    weights = [numpy_helper.from_array(draw.normal(0, 0.1, s).astype(np.float32), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Conv", ["x", "w0"], ["h"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Conv", ["r", "w1"], ["y"], pads=[1, 1, 1, 1]),
    ]
    specs = TensorSpec("x", (1, 3, 32, 32)), TensorSpec("y", (1, channels, 32, 32))
    ends = [helper.make_tensor_value_info(s.name, TensorProto.FLOAT, list(s.shape)) for s in specs]
    graph = helper.make_graph(nodes, "convolutions", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return Artifact(folder, "onnx", specs[:1], specs[1:]).write()


def turns(session: Any, rounds: int, seconds: float) -> tuple[list[float], list[float]]:
    """The median of each turn in ms: the agent's way, the bare way."""
    draw = np.random.default_rng(1)
    inputs = [{"x": draw.normal(size=(1, 3, 32, 32)).astype(np.float32)} for _ in range(INPUTS)]
    ways: dict[str, Callable[[], Sequence[int]]] = {
        "agent": lambda: agent.timed(session.run, inputs, seconds, 1),
        "bare": lambda: bare(session.session, inputs, seconds),
    }
    for way in ways.values():  # warm-up
        way()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in sorted(ways, reverse=bool(turn % 2)):
            found[name].append(statistics.median(ways[name]()) / 1e6)
    return found["agent"], found["bare"]


def bare(session: Any, inputs: Sequence[dict[str, Any]], seconds: float) -> list[int]:
    """What anybody would write: nanoseconds of each run of the engine's own session."""
    times: list[int] = []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    for given in itertools.cycle(inputs):
        begin = time.perf_counter_ns()
        session.run(None, given)
        times.append(time.perf_counter_ns() - begin)
        if time.perf_counter_ns() >= end:
            return times
    return times


if __name__ == "__main__":
    sys.exit(main())
