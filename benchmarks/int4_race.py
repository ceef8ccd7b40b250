"""Eight layers of 2048 x 2048 with weights of few bits, by engine: ours beside each runtime's own recipe by hand.

    python benchmarks/int4_race.py [--rounds 40] [--json FILE]

Random weights: nothing is said of accuracy. Batch 1, one thread, measured in turns: in each round every file runs for
50 ms, in an order drawn anew. Told is the time of ONNX Runtime fp32 over that of the file, the median of the rounds
and its 95 % interval (bootstrap). Run it on a quiet machine.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import int4
import numpy as np
import torch
from torch import nn

from edgecompress.core import config, registry
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec

WIDTH, LAYERS, SECONDS, DRAWS = 2048, 8, 0.05, 1000
OURS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "onnx": (
        ("onnx_int4", {}),
        ("onnx_int4", {"group": 128, "symmetric": True}),
        ("onnx_int8_weights", {}),
        ("int8_dynamic", {}),
    ),
    "openvino": (("nncf_int4", {}), ("nncf_int4", {"group": 128, "symmetric": True}), ("nncf_int8_weights", {})),
    "litert": (("litert_int4", {}), ("litert_int4", {"group": 128}), ("litert_dynamic", {})),
    "executorch": (("torchao_int4", {}), ("torchao_int4", {"group": 128}), ("torchao_int4", {"int8": ("*",)})),
}
Run = Callable[[], object]


def main() -> int:
    """Prints the table; exit 1 where the fastest of ours is slower than the fastest by hand, or below 3 times fp32."""
    parser = figures.flags(__doc__, "json")
    parser.add_argument("--rounds", type=int, default=40)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = made(Path(folder))
        times = raced(runs, asked.rounds)
    base = np.array(times["onnx fp32"])
    told = {name: ratio(base, np.array(each)) for name, each in times.items()}
    for name, (middle, low, high) in sorted(told.items(), key=lambda entry: -entry[1][0]):
        print(f"{name:48}{np.median(times[name]) * 1e3:9.3f} ms  {middle:6.2f}x ({low:.2f}-{high:.2f})")
    best, by_hand = (max(v[0] for n, v in told.items() if ("by hand" in n) == hand) for hand in (False, True))
    print(f"the fastest of ours {best:.2f}x, by hand {by_hand:.2f}x")
    rows = [{"file": n, "ratio": m, "low": a, "high": b} for n, (m, a, b) in told.items()]
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "rows": rows})
    return int(best < 3 or best < 0.97 * by_hand)


def made(work: Path) -> dict[str, Run]:
    """Each file, opened."""
    source = program(work)
    x = np.random.default_rng(0).normal(size=(1, WIDTH)).astype(np.float32)
    samples = calibrating(x, work)
    runs: dict[str, Run] = {}
    for engine, ways in OURS.items():
        runtime = registry.load("runtimes", engine)
        own = int4.exported(engine, source, work)
        runs[f"{engine} fp32"] = opened(runtime, int4.finished(engine, own, work), x)
        for name, options in ways:
            technique = registry.load("techniques", name)
            request = Request(
                {"model": own, "samples": samples}, int4.fresh(work), config.build(technique.Options, options, "")
            )
            says = " ".join([name, *(f"{k}={v}" for k, v in options.items())])
            runs[says] = opened(runtime, int4.finished(engine, technique.apply(request), work), x)
        if engine == "onnx":
            runs |= by_hand_onnx(own.file(".onnx"), work, x)
        if engine == "openvino":
            runs |= by_hand_openvino(own.file(".xml"), x)
    return runs


def opened(runtime: Any, artifact: Artifact, x: np.ndarray) -> Run:
    session = runtime.open(artifact, 1)
    given = {"x": x}
    return lambda: session.run(given)


def program(work: Path) -> Artifact:
    torch.manual_seed(0)
    net = nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU()))).eval()
    out = int4.fresh(work)
    torch.export.save(torch.export.export(net, (torch.zeros(1, WIDTH),)), out / "program.pt2")
    return Artifact(out, "program", (TensorSpec("x", (1, WIDTH)),), (TensorSpec("y", (1, WIDTH)),)).write()


def calibrating(x: np.ndarray, work: Path) -> Artifact:
    from edgecompress.data import tensors

    tensors.write_split(work / "samples" / "calibrate", {"x": x})
    spec = TensorSpec("x", (Dim("batch", 1, 1), WIDTH))
    return Artifact(work / "samples", "samples", (spec,), (), {"splits": {"calibrate": 1}}).write()


def by_hand_onnx(file: Path, work: Path, x: np.ndarray) -> dict[str, Run]:
    """ONNX Runtime's quantizer as its documentation has it, and quantize_dynamic."""
    import onnx
    import onnxruntime
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    def run(path: Path) -> Run:
        how = onnxruntime.SessionOptions()
        how.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(path, how, providers=["CPUExecutionProvider"])
        return lambda: session.run(None, {session.get_inputs()[0].name: x})

    runs = {}
    matmuls = work / "matmuls.onnx"
    from edgecompress.engines.onnx import block_weights

    names = [node.name for node in onnx.load(file).graph.node]
    onnx.save(block_weights.without_biases(onnx.load(file), names), matmuls)  # it takes no Gemm
    for bits, level in ((4, 4), (4, 0), (8, 4)):
        work_ = MatMulNBitsQuantizer(
            onnx.load(matmuls), bits=bits, block_size=128, is_symmetric=True, accuracy_level=level
        )
        work_.process()
        path = work / f"hand-{bits}-{level}.onnx"
        work_.model.save_model_to_file(str(path), False)
        runs[f"onnx by hand: MatMulNBits {bits} bits, accuracy {level}"] = run(path)
    quantize_dynamic(file, work / "hand-dynamic.onnx", weight_type=QuantType.QInt8)
    runs["onnx by hand: quantize_dynamic"] = run(work / "hand-dynamic.onnx")
    return runs


def by_hand_openvino(file: Path, x: np.ndarray) -> dict[str, Run]:
    """NNCF's compress_weights with its defaults, for OpenVINO."""
    import nncf
    import openvino

    core, runs = openvino.Core(), {}
    for mode in ("INT4_SYM", "INT4_ASYM", "INT8_ASYM"):
        more = {"all_layers": True} if mode.startswith("INT4") else {}
        net = nncf.compress_weights(core.read_model(file), mode=nncf.CompressWeightsMode[mode], **more)
        request = core.compile_model(net, "CPU", {"INFERENCE_NUM_THREADS": 1}).create_infer_request()
        runs[f"openvino by hand: {mode}"] = lambda r=request: r.infer([x])
    return runs


def raced(runs: dict[str, Run], rounds: int) -> dict[str, list[float]]:
    """Seconds of one run of each file, by round."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    order = random.Random(0)
    for number in range(rounds + 2):
        for name in order.sample(list(runs), len(runs)):
            began, count = time.perf_counter(), 0
            while (spent := time.perf_counter() - began) < SECONDS:
                runs[name]()
                count += 1
            if number >= 2:  # warm
                times[name].append(spent / count)
    return times


def ratio(base: np.ndarray, each: np.ndarray) -> tuple[float, float, float]:
    """The median of base / each over rounds, and its interval."""
    ratios = base / each
    draws = np.random.default_rng(0).integers(0, len(ratios), (DRAWS, len(ratios)))
    low, high = np.percentile(np.median(ratios[draws], axis=1), (2.5, 97.5))
    return float(np.median(ratios)), float(low), float(high)


if __name__ == "__main__":
    sys.exit(main())
