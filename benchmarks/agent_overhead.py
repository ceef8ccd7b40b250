"""Does measuring cost anything? An engine's latency by the agent, under each sampler, and in the tightest loop.

    python benchmarks/agent_overhead.py [--runtime onnx] [--rounds 12] [--seconds 0.5] [--threads 1] [--channels 32]

The loop is written for the engine alone: it copies a fresh input into a bound buffer, runs, and copies the output out.
All run the same net in turns, the order changing each round. The samplers are those of a profile, at their own
rates: RAPL's counters and a power monitor of hwmon below a made-up /sys, and the memory of this process. Printed: the
median of each, its ratio to the loop (of the samplers: to the agent without any) with its interval, the same of
the means, the machine.
Exit 1 when an interval lies above the promise of 3 %; a median above it alone is said to be "not shown".
"""

from __future__ import annotations

import contextlib
import itertools
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

from edgecompress.core import registry, stats
from edgecompress.core.model import Artifact, Context, Request, TensorSpec
from edgecompress.device.agent import timing
from edgecompress.plugins.profilers import memory
from edgecompress.plugins.sensors import hwmon, rapl
from edgecompress.plugins.transports import host

LIMIT = 0.03
INPUTS = 8
MEMORY_S = memory.Options().every_ms / 1e3
TREE = {
    "sys/class/powercap/intel-rapl:0/name": "package-0",
    "sys/class/powercap/intel-rapl:0/energy_uj": "123456789",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "262143328850",
    "sys/class/hwmon/hwmon0/name": "ina226",
    "sys/class/hwmon/hwmon0/update_interval": "1",
    "sys/class/hwmon/hwmon0/power1_input": "4200000",
}
Turn = tuple[float, float]  # median and mean in ms
Sampler = Callable[[], contextlib.AbstractContextManager[object]]
Call = Callable[[np.ndarray], None]


def main() -> int:
    parser = figures.flags(__doc__)
    parser.add_argument("--runtime", choices=CALLS, default="onnx")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--channels", type=int, default=32, help="of the two convolutions: the size of the net")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = artifact(asked.runtime, Path(folder), asked.channels)
        session = registry.load("runtimes", asked.runtime).open(model, asked.threads)
        times = turns(session, CALLS[asked.runtime](session), samplers(Path(folder)), asked.rounds, asked.seconds)
    alone = times.pop("bare")
    found = {name: compared(each, alone if name == "agent" else times["agent"]) for name, each in times.items()}
    report = {"runtime": asked.runtime, "bare_ms": statistics.median(m for m, _ in alone), "ways": found}
    about = {"ratio": found["agent"]["ratio"], "rounds": asked.rounds, "limit": LIMIT}
    print(json.dumps({**report, **about, "machine": host.connect({}).facts()}, indent=1))
    return 1 if any(way["promise"] == "broken" for way in found.values()) else 0


def compared(each: Sequence[Turn], beside: Sequence[Turn]) -> dict[str, Any]:
    """A way beside another, round by round: the medians, and the means, which a rare interruption moves too."""
    ratio, mean = (stats.ratio([t[k] for t in each], [t[k] for t in beside]) for k in (0, 1))
    broken = ratio.low is not None and ratio.low > 1 + LIMIT
    promise = "broken" if broken else "kept" if ratio.median <= 1 + LIMIT else "not shown"
    found = {"ms": statistics.median(m for m, _ in each), "ratio": ratio.median, "interval": [ratio.low, ratio.high]}
    return {**found, "mean_ratio": mean.median, "mean_interval": [mean.low, mean.high], "promise": promise}


def samplers(root: Path) -> Mapping[str, Sampler]:
    """What may run beside the timed loop."""
    for name, text in TREE.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    zone = root / "sys/class/powercap/intel-rapl:0"
    return {
        "agent": contextlib.nullcontext,
        "rapl": lambda: running(rapl.meter([zone])),
        "hwmon": lambda: running(hwmon.open({}, root)),
        "memory": lambda: memory.Sampler(MEMORY_S),
    }


@contextlib.contextmanager
def running(meter: Any) -> Iterator[None]:
    """A meter, started."""
    meter.start()
    try:
        yield
    finally:
        meter.stop()


def artifact(runtime: str, folder: Path, channels: int) -> Artifact:
    """The net in the format of the runtime."""
    net = convolutions(folder, channels)
    if runtime == "onnx":
        return net
    out = folder / runtime
    out.mkdir()
    exported: Artifact = registry.load("runtimes", runtime).export(Request({"model": net}, out, {}, Context()))
    return exported


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


def turns(
    session: Any, call: Call, beside: Mapping[str, Sampler], rounds: int, seconds: float
) -> dict[str, list[Turn]]:
    """Each turn: bare, and the agent's loop beside each sampler."""
    draw = np.random.default_rng(1)
    inputs = [draw.normal(size=(1, 3, 32, 32)).astype(np.float32) for _ in range(INPUTS)]
    named = [{"x": array} for array in inputs]
    ways: dict[str, Callable[[], Sequence[int]]] = {
        "bare": lambda: bare(call, inputs, seconds),
        **dict.fromkeys(beside, lambda: timing.timed(session.run, named, seconds, 1)),
    }
    found: dict[str, list[Turn]] = {name: [] for name in ways}
    for turn in range(-1, rounds):  # the first one warms up
        for name in [*ways][turn % len(ways) :] + [*ways][: turn % len(ways)]:
            with beside.get(name, contextlib.nullcontext)():
                times = ways[name]()
            if turn >= 0:
                found[name].append((statistics.median(times) / 1e6, statistics.fmean(times) / 1e6))
    return found


# --------------------------------------------------------------------------- the tightest call of each engine


def onnx_call(session: Any) -> Call:
    """The input bound to a buffer, the output to memory of ONNX Runtime's."""
    engine, binding = session.session, session.session.io_binding()
    buffer, copy = np.zeros((1, 3, 32, 32), np.float32), np.copyto
    binding.bind_input("x", "cpu", 0, np.float32, buffer.shape, buffer.ctypes.data)
    binding.bind_output("y")

    def call(given: np.ndarray) -> None:
        copy(buffer, given)
        engine.run_with_iobinding(binding)
        binding.copy_outputs_to_cpu()

    return call


def openvino_call(session: Any) -> Call:
    """The request's own tensors as they are."""
    request = session.request.get_compiled_model().create_infer_request()
    buffer, output, copy = request.get_input_tensor(0).data, request.get_output_tensor(0).data, np.copyto

    def call(given: np.ndarray) -> None:
        copy(buffer, given)
        request.infer(share_outputs=True)
        output.copy()

    return call


CALLS: Mapping[str, Callable[[Any], Call]] = {"onnx": onnx_call, "openvino": openvino_call}


def bare(call: Call, inputs: Sequence[np.ndarray], seconds: float) -> list[int]:
    """What anybody would write: nanoseconds of each call."""
    times: list[int] = []
    end = time.perf_counter_ns() + int(seconds * 1e9)
    for given in itertools.cycle(inputs):
        begin = time.perf_counter_ns()
        call(given)
        times.append(time.perf_counter_ns() - begin)
        if time.perf_counter_ns() >= end:
            return times
    return times


if __name__ == "__main__":
    sys.exit(main())
