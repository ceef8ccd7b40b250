"""Calibration does not hold its samples: ten times as many cost at most 16 MiB more, for each calibrator."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import prove
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgecompress.core.model import Artifact, Dim, TensorSpec
from edgecompress.data import tensors

pytestmark = pytest.mark.slow

LIMIT_BYTES = 16 << 20
FEW, ITEMS = (200, 2000) if prove.WHOLE else (20, 200)
CHILD = """
import json, sys
from pathlib import Path
from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx.techniques import ptq_int8
model, samples, out, calibrator, count = sys.argv[1:]
Path(out).mkdir()
inputs = {"model": Artifact.read(Path(model)), "samples": Artifact.read(Path(samples))}
options = ptq_int8.Options(calibrator=calibrator, samples=int(count))
facts = ptq_int8.apply(Request(inputs, Path(out), options)).facts
status = Path("/proc/self/status").read_text()
peak = int(status.split("VmHWM:")[1].split()[0]) * 1024
print("RESULT", json.dumps({"peak": peak, "samples": facts["samples"]}))
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Eight convolutions at the resolution and width of ResNet-20's first stage: 1 MiB of activations per item."""
    rng = np.random.default_rng(0)
    nodes, weights, channels = [], [], 3
    for i in range(8):
        weight = (rng.standard_normal((16, channels, 3, 3)) / (3 * channels**0.5)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{i}"))
        nodes.append(helper.make_node("Conv", [f"r{i}", f"w{i}"], [f"c{i}"], f"conv{i}", pads=[1, 1, 1, 1]))
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i + 1}"], f"relu{i}"))
        channels = 16
    shapes = [("r0", (1, 3, 32, 32)), ("r8", (1, 16, 32, 32))]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], weights)
    folder = tmp_path_factory.mktemp("net")
    opset = [helper.make_opsetid("", 20)]
    onnx.save_model(helper.make_model(graph, opset_imports=opset, ir_version=10), folder / "model.onnx")
    specs = [(TensorSpec(name, shape),) for name, shape in shapes]
    return Artifact(folder, "onnx", *specs).write()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("samples")
    data = np.random.default_rng(1).standard_normal((ITEMS, 3, 32, 32)).astype(np.float32)
    tensors.write_split(folder / "calibrate", {"r0": data})
    spec = TensorSpec("r0", (Dim("batch", 1, ITEMS), 3, 32, 32))
    return Artifact(folder, "samples", (spec,), (), {"splits": {"calibrate": ITEMS}}).write()


def peak(net: Artifact, samples: Artifact, out: Path, calibrator: str, count: int) -> int:
    """VmHWM in bytes of a fresh process that calibrates with `count` samples."""
    argv = [sys.executable, "-c", CHILD, str(net.path), str(samples.path), str(out), calibrator, str(count)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
    result = json.loads(done.stdout.split("RESULT")[1])
    assert result["samples"] == count
    return int(result["peak"])


@pytest.mark.parametrize("calibrator", prove.some(["mse", "minmax", "percentile", "entropy"], 1))
@pytest.mark.prove
def test_ten_times_the_samples_take_no_more_memory(
    net: Artifact, samples: Artifact, tmp_path: Path, calibrator: str
) -> None:
    few = peak(net, samples, tmp_path / "few", calibrator, FEW)
    many = peak(net, samples, tmp_path / "many", calibrator, ITEMS)
    assert many - few <= LIMIT_BYTES, (
        f"{calibrator}: {(many - few) / 2**20:.1f} MiB more for {ITEMS} samples than for {FEW}"
    )
    print(f"{calibrator}: {few / 2**20:.0f} MiB, then {(many - few) / 2**20:+.1f} MiB")
