"""Islands of fp32 in half precision: an overflow planted in the middle of a net costs its own layers and no others."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edgecompress.core import registry
from edgecompress.core.model import Artifact, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.coreml import convert
from edgecompress.engines.coreml import macs as coreml_macs
from edgecompress.engines.coreml.techniques import coreml_fp16
from edgecompress.engines.onnx.techniques import onnx_fp16
from edgecompress.formats import op_counts, torch_module
from edgecompress.techniques import torch_fp16
from edgecompress.techniques._pruning import macs as counts
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

ITEMS = 4
UP = 3e5  # what the planted layer makes is so much too large; the one behind it takes it back
SHAPE = (1, 3, 12, 12)


class Planted(nn.Module):
    """Six convolutions; between the third and the fourth a pair of small ones goes far above 65,504 and comes back."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.ModuleList(nn.Conv2d(3 if i == 0 else 16, 16, 3, padding=1) for i in range(3))
        self.up, self.down = nn.Conv2d(16, 16, 1), nn.Conv2d(16, 16, 1)
        self.last = nn.ModuleList(nn.Conv2d(16, 16, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(16, 10)
        with torch.no_grad():
            for layer in (*self.first, self.up, self.down, *self.last):
                nn.init.kaiming_normal_(layer.weight)  # numbers keep their size from layer to layer
            self.up.weight *= UP
            self.down.weight /= UP

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 12, 12] -> [n, 10]."""
        for conv in self.first:
            image = torch.relu(conv(image))
        image = self.down(torch.relu(self.up(image)))
        for conv in self.last:
            image = torch.relu(conv(image))
        return self.head(image.mean((2, 3)))


MACS = 144 * (9 * 3 * 16 + 5 * 9 * 16 * 16 + 2 * 16 * 16) + 160  # of the net
ISLAND = 144 * 2 * 16 * 16  # of those, in the planted pair


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    torch.manual_seed(0)
    net = Planted().eval()
    out = tmp_path_factory.mktemp("planted")
    torch.export.save(torch.export.export(net, (torch.randn(SHAPE),)), out / "program.pt2")
    return Artifact(out, "program", (TensorSpec("image", SHAPE),), (TensorSpec("scores", (1, 10)),)).write()


@dataclass(frozen=True)
class Halved:
    """What a technique makes of the planted net: the artifact in fp32, shipped, and with no island at all."""

    full: Any
    shipped: Any
    plain: Any
    facts: dict[str, Any]


def data(model: Artifact, folder: Path) -> tuple[Artifact, list[dict[str, Any]]]:
    samples = conformance.samples(model, folder)
    return samples, list(tensors.batches(samples, "test", 1, ITEMS))


def in_torch(program: Artifact, folder: Path) -> Halved:
    samples, items = data(program, folder)
    half = torch_fp16.apply(Request({"model": program, "samples": samples}, made(folder), torch_fp16.Options()))

    def run(artifact: Artifact) -> Any:
        net = torch_module.rebuild(artifact)
        given = ({name: torch.from_numpy(array) for name, array in item.items()} for item in items)
        return np.concatenate([torch_module.outputs(net, artifact, each)["scores"].detach().numpy() for each in given])

    blind = torch_module.rebuild(program).half()
    with torch.no_grad():
        plain = [blind(torch.from_numpy(item["image"]).half()).float().numpy() for item in items]
    return Halved(run(program), run(half), np.concatenate(plain), dict(half.facts))


def in_onnx(program: Artifact, folder: Path) -> Halved:
    """As a device computes it that stores every tensor as it is typed; ONNX Runtime's CPU would hide an overflow."""
    import onnxruntime

    runtime = registry.load("runtimes", "onnx")
    model = runtime.export(Request({"model": program}, made(folder / "fp32")))
    samples, items = data(model, folder)
    half = onnx_fp16.apply(Request({"model": model, "samples": samples}, made(folder), onnx_fp16.Options()))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def run(proto: Any) -> Any:
        stored = onnx_fp16._stored(proto).SerializeToString()
        session = onnxruntime.InferenceSession(stored, options, providers=["CPUExecutionProvider"])
        return np.concatenate([session.run(None, item)[0] for item in items])

    full, shipped = (onnx.load_model(artifact.file(".onnx")) for artifact in (model, half))
    plain = onnx_fp16.converted(full, ())
    session = runtime.open(half, 1)
    assert all(np.isfinite(session.run(item)["scores"]).all() for item in items)
    assert op_counts.total(half)["macs"] == MACS
    return Halved(run(full), run(shipped), run(plain), dict(half.facts))


def in_coreml(program: Artifact, folder: Path) -> Halved:
    runtime = registry.load("runtimes", "coreml")
    model = runtime.export(Request({"model": program}, made(folder / "fp32"), runtime.Options()))
    samples, items = data(model, folder)
    request = Request({"model": model, "samples": samples}, made(folder), coreml_fp16.Options())
    half = coreml_fp16.apply(request)
    blind = made(folder / "plain")
    convert.save(coreml_fp16._CoremlTrial(request, [[0]]).halved(()), blind)

    def run(artifact: Artifact) -> Any:
        session = runtime.open(artifact, 1)
        return np.concatenate([session.run(item)["scores"] for item in items])

    plain = Artifact(blind, "mlpackage", half.inputs, half.outputs, half.facts).write()
    assert sum(coreml_macs.by_dtype(convert.program(half.path / convert.FILE)).values()) == MACS
    return Halved(run(model), run(half), run(plain), dict(half.facts))


def made(folder: Path) -> Path:
    out = folder / "made"
    out.mkdir(parents=True)
    return out


@pytest.mark.parametrize("road", [in_torch, in_onnx, in_coreml], ids=["torch_fp16", "onnx_fp16", "coreml_fp16"])
def test_an_overflow_in_the_middle_becomes_an_island_of_fp32(road: Any, program: Artifact, tmp_path: Path) -> None:
    found: Halved = road(program, tmp_path)
    assert not np.isfinite(found.plain).all(), "without the island it must break, else this test shows nothing"
    assert np.isfinite(found.shipped).all()
    noise = ((found.shipped - found.full) ** 2).sum() / (found.full**2).sum()
    assert 10 * np.log10(noise) < -50
    assert "lost" not in found.facts
    assert found.facts["kept"]
    assert found.facts["macs_half"] == pytest.approx(1 - ISLAND / MACS)
    assert found.facts["macs_half"] >= 0.9


def test_macs_of_the_nodes_are_those_of_the_net(program: Artifact) -> None:
    net = torch.export.load(program.file(".pt2")).run_decompositions({}).module(check_guards=False)
    macs = counts.per_node(net, [torch.zeros(SHAPE)])
    assert sum(macs.values()) == MACS == counts.count(net, lambda net: net(torch.zeros(SHAPE)))
    assert len(macs) == 9


def test_recurrent_cells_count_in_each_step() -> None:
    net = torch.export.export(nn.LSTM(8, 16, batch_first=True), (torch.zeros(2, 5, 8),)).run_decompositions({})
    macs = counts.per_node(net.module(check_guards=False), [torch.zeros(2, 5, 8)])
    assert sum(macs.values()) == 2 * 5 * 4 * 16 * (8 + 16)


def test_a_net_that_multiplies_nothing_has_no_share(tmp_path: Path) -> None:
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) + x

    made(tmp_path)
    torch.export.save(torch.export.export(Sums(), (torch.zeros(1, 8),)), tmp_path / "made" / "program.pt2")
    spec = TensorSpec("x", (1, 8))
    model = Artifact(tmp_path / "made", "program", (spec,), (TensorSpec("y", (1, 8)),)).write()
    inputs = {"model": model, "samples": conformance.samples(model, tmp_path)}
    facts = torch_fp16.apply(Request(inputs, made(tmp_path / "half"), torch_fp16.Options())).facts
    assert facts["macs_half"] is None
    assert facts["macs_half_why"]
