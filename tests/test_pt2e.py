"""PT2E: what is quantized and what is not, that it stays near, and that another process can go on with it."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core import registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

BATCH = Dim("batch", 1, 8)


def program(net: Any, example: tuple[Any, ...], names: tuple[str, ...], folder: Path, batch: int | Dim = 1) -> Artifact:
    """The net as a program with those inputs, and one output "output"."""
    folder.mkdir(parents=True)
    axis = {} if isinstance(batch, int) else {0: torch.export.Dim("batch", min=1, max=8)}
    made = torch.export.export(net.eval(), example, dynamic_shapes=tuple(axis for _ in example))
    torch.export.save(made, folder / "program.pt2")
    ends = [(n, x) for n, x in (*zip(names, example, strict=True), ("output", net(*example)))]
    specs = [TensorSpec(n, (batch, *x.shape[1:]), str(x.dtype).removeprefix("torch.")) for n, x in ends]
    return Artifact(folder, "program", tuple(specs[:-1]), tuple(specs[-1:])).write()


def quantized(model: Artifact, folder: Path, technique: str = "pt2e_int8", **options: Any) -> Artifact:
    module = registry.load("techniques", technique)
    out = folder / f"{technique}-{len(list(folder.iterdir()))}"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.samples(model, folder)}
    return module.apply(Request(inputs, out, module.Options(**options)))  # type: ignore[no-any-return]


def operators(artifact: Artifact) -> list[str]:
    """What a program calls, in order."""
    import torch.ao.quantization.fx._decomposed

    made = torch.export.load(artifact.file(".pt2"))
    return [str(n.target).removesuffix(".default") for n in made.graph.nodes if n.op == "call_function"]


def answers(artifact: Artifact, samples: Artifact) -> np.ndarray:
    """What the program answers to the test split, by torch."""
    import torch.ao.quantization.fx._decomposed

    net = torch.export.load(artifact.file(".pt2")).module()
    found = []
    with torch.no_grad():
        for item in tensors.batches(samples, "test", 1):
            answer = net(*(torch.from_numpy(item[spec.name]) for spec in artifact.inputs))
            found.append((answer[0] if isinstance(answer, tuple) else answer).numpy())
    return np.concatenate(found)


def sqnr_db(model: Artifact, other: Artifact, folder: Path) -> float:
    wanted, found = (answers(a, conformance.samples(model, folder)) for a in (model, other))
    return float(10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()))


def convolutions(clamp: Any) -> Any:
    """Two convolutions, each with a clamp behind it that cuts most of its range, a pool and a head."""
    from torch import nn

    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), clamp, nn.Conv2d(16, 16, 3, padding=1), clamp)
    with torch.no_grad():
        for parameter in body.parameters():
            parameter *= 20
    return nn.Sequential(body, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Relu6(torch.nn.Module):
    """The function: it is traced as another operator than the module."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """min(max(x, 0), 6)."""
        return torch.nn.functional.relu6(x)


IMAGE = (torch.randn(1, 3, 8, 8),)


# --------------------------------------------------------------------------- what it keeps


@pytest.mark.parametrize("technique", ["pt2e_int8", "pt2e_dynamic"])
@pytest.mark.parametrize("quantizer", ["xnnpack", "litert"])
def test_int8_answers_nearly_as_the_program_does(technique: str, quantizer: str, tmp_path: Path) -> None:
    if quantizer == "litert":
        pytest.importorskip("litert_torch")
    model = conformance.net("program", tmp_path / "net")
    made = quantized(model, tmp_path, technique, quantizer=quantizer)
    assert (made.inputs, made.outputs) == (model.inputs, model.outputs)
    assert any("dequantize" in name for name in operators(made))
    assert 28 < sqnr_db(model, made, tmp_path) < 80


@pytest.mark.parametrize("calibrator", [pytest.param("mse", marks=pytest.mark.prove), "minmax"])
def test_ranges_come_from_the_samples_that_were_asked_for(calibrator: str, tmp_path: Path) -> None:
    model = conformance.net("program", tmp_path / "net")
    few = quantized(model, tmp_path, calibrator=calibrator, samples=2)
    every = quantized(model, tmp_path, calibrator=calibrator, samples=None)
    assert (few.facts["samples"], every.facts["samples"]) == (2, conformance.ITEMS)
    assert sqnr_db(model, every, tmp_path) > sqnr_db(model, few, tmp_path) - 3
    assert few.sha256 != every.sha256


def test_a_dynamic_batch_stays_dynamic(tmp_path: Path) -> None:
    net = convolutions(torch.nn.ReLU())
    model = program(net, (torch.randn(2, 3, 8, 8),), ("image",), tmp_path / "net", BATCH)
    made = torch.export.load(quantized(model, tmp_path).file(".pt2")).module()
    assert [len(made(torch.randn(n, 3, 8, 8))) for n in (1, 5, 8)] == [1, 5, 8]


# --------------------------------------------------------------------------- what is quantized


@pytest.mark.parametrize("clamp", ["relu6", "hardtanh"])
@pytest.mark.prove
def test_relu6_is_quantized_behind_its_convolution_not_before_it(clamp: str, tmp_path: Path) -> None:
    """Before it, the range of what it cuts off takes most of the 256 levels."""
    model = program(
        convolutions(Relu6() if clamp == "relu6" else torch.nn.ReLU6()), IMAGE, ("image",), tmp_path / "net"
    )
    made = quantized(model, tmp_path)
    found = operators(made)
    behind = [found[i + 1] for i, name in enumerate(found) if name == "aten.conv2d"]
    assert behind == [f"aten.{clamp}"] * 2
    assert sqnr_db(model, made, tmp_path) > 30


@pytest.mark.prove
def test_modules_that_are_skipped_stay_in_float(tmp_path: Path) -> None:
    model = program(convolutions(torch.nn.ReLU()), IMAGE, ("image",), tmp_path / "net")
    count = Counter(operators(quantized(model, tmp_path)))["quantized_decomposed.dequantize_per_channel"]
    kept = Counter(operators(quantized(model, tmp_path, skip=("0.*",))))["quantized_decomposed.dequantize_per_channel"]
    assert (count, kept) == (3, 1)  # the head
    with pytest.raises(InputError, match=r"skip: no module is called '7', did you mean|skip: no module is called '7';"):
        quantized(model, tmp_path, skip=("7",))


class Masked(torch.nn.Module):
    """Picks rows by whole numbers, as the masks of language models do, and adds whole numbers on the way."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = torch.nn.Embedding(20, 16), torch.nn.Linear(16, 10)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """[1, 8], [1, 8] -> [1, 10]."""
        place = (mask + ids * 0).cumsum(1) - 1
        rows = torch.arange(1)[:, None]
        return self.head(self.table(ids)[rows, place]).mean(1)


def test_whole_numbers_are_left_alone(tmp_path: Path) -> None:
    """A quantizer that observes them makes floats of indices: "tensors used as indices must be long"."""
    example = (torch.zeros(1, 8, dtype=torch.long), torch.ones(1, 8, dtype=torch.long))
    model = program(Masked(), example, ("ids", "mask"), tmp_path / "net")
    made = quantized(model, tmp_path)
    assert "quantized_decomposed.dequantize_per_channel" in operators(made)
    assert sqnr_db(model, made, tmp_path) > 25


# --------------------------------------------------------------------------- another process


AGAIN = """
import sys
from pathlib import Path
from edgecompress.core import registry
from edgecompress.core.model import Artifact, Request
model = Artifact.read(Path(sys.argv[1]))
runtime = registry.load("runtimes", sys.argv[2])
options = runtime.Options() if hasattr(runtime, "Options") else None
print(runtime.export(Request({"model": model}, Path(sys.argv[3]), options)).sha256)
"""


@pytest.mark.prove  # as every deploy of int8 does, in test_every_target.py
@pytest.mark.parametrize(("runtime", "quantizer"), [("executorch", "xnnpack"), ("litert", "litert")])
def test_another_process_exports_it(runtime: str, quantizer: str, tmp_path: Path) -> None:
    if quantizer == "litert":
        pytest.importorskip("litert_torch")
    model = conformance.net("program", tmp_path / "net")
    made = quantized(model, tmp_path, quantizer=quantizer)
    out = tmp_path / "out"
    out.mkdir()
    argv = [sys.executable, "-c", AGAIN, str(made.path), runtime, str(out)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert Artifact.read(out).sha256 == done.stdout.split()[-1]
    assert Artifact.read(out).size_bytes < 0.9 * made.size_bytes


TWICE = """
import sys
from pathlib import Path
from edgecompress.core import registry
from edgecompress.core.model import Artifact, Request
model, samples = (Artifact.read(Path(p)) for p in sys.argv[1:3])
technique = registry.load("techniques", "pt2e_int8")
print(technique.apply(Request({"model": model, "samples": samples}, Path(sys.argv[3]), technique.Options())).sha256)
"""


@pytest.mark.prove  # test_conformance.py makes them twice in one
def test_another_process_makes_the_same_bytes(tmp_path: Path) -> None:
    model = conformance.net("program", tmp_path / "net")
    here = quantized(model, tmp_path)
    out = tmp_path / "out"
    out.mkdir()
    places = [str(model.path), str(conformance.samples(model, tmp_path).path), str(out)]
    done = subprocess.run([sys.executable, "-c", TWICE, *places], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-1] == here.sha256
