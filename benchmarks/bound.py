"""Does the report name what holds a net back? Nets made so that one cause does, each deployed with the profile quick.

    python benchmarks/bound.py [--runtimes onnx,openvino] [--only memory,...] [--json FILE]

The nets: one product of a vector with a matrix of 128 MiB (memory), three large convolutions (arithmetic), a product
of 4 x 4 (calls), transpositions that nothing cancels (conversions). Beside quick's one session the profiler roofline
measures the roofs. Printed: the sentence of each, and whether its cause is the one that was planted; exit 1 when not.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import edgecompress
from edgecompress.reporting import model

if TYPE_CHECKING:
    import onnx

TARGET = """description = "a net that one cause holds back"
runtime = "{runtime}"

[[variant]]
name = "fp32"
reference = true
"""
TRIES = 5
MACHINE = ("cpu", "microarchitecture", "cores", "features", "caches", "clock_mhz", "kernel", "virtual")


def main() -> int:
    """Deploys each net in each runtime."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runtimes", default="onnx,openvino")
    parser.add_argument("--only", default=",".join(NETS), help="causes, separated by commas")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = [row(cause, runtime) for cause in asked.only.split(",") for runtime in asked.runtimes.split(",")]
    right = sum(r["found"] == r["planted"] for r in rows)
    print(f"{right} of {len(rows)} right")
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if right == len(rows) else 1


def row(cause: str, runtime: str) -> dict[str, Any]:
    """A net deployed: the cause that was planted, the one that was found, the sentence."""
    make, shape = NETS[cause]
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "planted.toml"
        target.write_text(TARGET.format(runtime=runtime), encoding="utf-8")
        for _ in range(TRIES):  # a single session that other work disturbed gives no latency
            result = edgecompress.deploy(
                make(shape),
                str(target),
                data=np.random.default_rng(0).normal(size=(64, *shape)).astype(np.float32),
                profile="quick",
                settings={"profile.profilers.roofline.seconds": 0.5},
                options=edgecompress.Options(out=Path(folder) / "dist", store=Path(folder) / "store", remeasure=True),
            )
            report = model.of(result.read_report())
            if found := report.variants[0].bottleneck:
                break
    if found is None:
        raise SystemExit(f"{cause}, {runtime}: nothing is told: {report.variants[0].numbers['latency'].reason}")
    sign = "right" if found.cause == cause else "WRONG"
    print(f"{sign}  {cause:12} {runtime:9} {found.says}", flush=True)
    machine = {key: report.environment.get(key) for key in MACHINE}
    shares = {name: round(share, 4) for name, share in found.shares.items()}
    return {
        "planted": cause,
        "found": found.cause,
        "runtime": runtime,
        "says": found.says,
        "shares": shares,
        "latency_ms": report.variants[0].numbers["latency"].value,
        "machine": machine,
    }


# --------------------------------------------------------------------------- the nets


def net(shape: Sequence[int], nodes: Sequence[onnx.NodeProto], weights: Sequence[np.ndarray]) -> onnx.ModelProto:
    """A graph from "x" [1, *shape] to "y", its weights "w0", "w1", ..."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, *shape])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    constants = [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)]
    made = helper.make_model(
        helper.make_graph(nodes, "planted", [x], [y], constants), opset_imports=[helper.make_opsetid("", 17)]
    )
    made.ir_version = 9
    return onnx.shape_inference.infer_shapes(made)


def seeded(*shape: int) -> np.ndarray:
    """Weights that keep the scale of what they multiply."""
    drawn: np.ndarray = np.random.default_rng(1).normal(size=shape) / np.sqrt(np.prod(shape[1:]))
    return drawn.astype(np.float32)


def product(columns: int) -> Callable[[Sequence[int]], onnx.ModelProto]:
    """A vector times a matrix."""

    def make(shape: Sequence[int]) -> onnx.ModelProto:
        from onnx import helper

        return net(shape, [helper.make_node("MatMul", ["x", "w0"], ["y"])], [seeded(shape[0], columns)])

    return make


def convolutions(shape: Sequence[int]) -> onnx.ModelProto:
    """Three of 3 x 3, with as many channels as come in."""
    from onnx import helper

    names, c = ["x", "a", "b", "y"], shape[0]
    nodes = [helper.make_node("Conv", [names[i], f"w{i}"], [names[i + 1]], pads=[1] * 4) for i in range(3)]
    return net(shape, nodes, [seeded(c, c, 3, 3)] * 3)


def transpositions(shape: Sequence[int]) -> onnx.ModelProto:
    """The sum of a cube in all orders of its axes."""
    from onnx import helper

    orders = ((0, 2, 1, 3), (0, 3, 2, 1), (0, 1, 3, 2), (0, 2, 3, 1), (0, 3, 1, 2))
    nodes = [helper.make_node("Transpose", ["x"], [f"t{i}"], perm=order) for i, order in enumerate(orders)]
    nodes.append(helper.make_node("Sum", [f"t{i}" for i in range(len(orders))], ["y"]))
    return net(shape, nodes, [])


NETS: dict[str, tuple[Callable[[Sequence[int]], Any], Sequence[int]]] = {
    "memory": (product(8192), (4096,)),
    "arithmetic": (convolutions, (128, 64, 64)),
    "calls": (product(4), (4,)),
    "conversions": (transpositions, (96, 96, 96)),
}

if __name__ == "__main__":
    sys.exit(main())
