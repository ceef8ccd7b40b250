"""AOTInductor: the package computes what the net computes, byte for byte the same each time, and names its kernels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from edgecompress.core import registry
from edgecompress.core.errors import MissingDependency, StageFailed
from edgecompress.core.model import Artifact, Dim, Request
from edgecompress.data import tensors
from edgecompress.engines.torchinductor.runtimes import torchinductor
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.techniques import torch_fp16
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow


def program(folder: Path) -> Artifact:
    """The conformance net with a batch of 1 to 8."""
    inputs = {"model": conformance.net("module", folder), "samples": conformance.nets.image_samples(folder)}
    out = folder / "program"
    out.mkdir()
    return trace.run(Request(inputs, out, {"dynamic": {"input": {"0": "batch:1..8"}}}))


def compiled(model: Artifact, out: Path, device: str = "cpu") -> Artifact:
    out.mkdir(parents=True)
    return torchinductor.export(Request({"model": model}, out, torchinductor.Options(device=device)))


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    """A program and its package, made in a folder whose name has a space."""
    folder = tmp_path_factory.mktemp("aoti")
    model = program(folder)
    return model, compiled(model, folder / "a folder" / "out")


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.prove
def test_a_package_computes_what_the_program_computes(pair: tuple[Artifact, Artifact], batch: int) -> None:
    model, package = pair
    assert package.inputs[0].shape == (Dim("batch", 1, 8), 3, 8, 8)
    image = np.random.default_rng(0).normal(size=(batch, 3, 8, 8)).astype(np.float32)
    found = torchinductor.open(package, 1).run({"input": image})["output"]
    wanted = torch_module.outputs(torch_module.rebuild(model), model, {"input": torch.from_numpy(image)})[
        "output"
    ].numpy()
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) >= 100


@pytest.mark.prove
def test_a_package_is_the_same_wherever_it_is_made_and_holds_no_path(
    pair: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    model, package = pair
    again = compiled(model, tmp_path / "elsewhere")
    assert again.sha256 == package.sha256
    text = package.file(".pt2").read_bytes()
    for path in (tmp_path.parent, Path(torch.__file__).parent, Path(conformance.__file__).parent):
        assert str(path).encode() not in text
    assert sorted(p.name for p in again.path.iterdir()) == ["artifact.json", "model.pt2"]


@pytest.mark.prove
def test_a_package_in_half_precision_is_near_the_program(pair: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    model, _ = pair
    out = tmp_path / "half"
    out.mkdir()
    inputs = {"model": model, "samples": conformance.nets.image_samples(tmp_path)}
    half = compiled(torch_fp16.apply(Request(inputs, out, torch_fp16.Options())), tmp_path / "package")
    image = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
    found = torchinductor.open(half, 1).run({"input": image})["output"]
    wanted = torch_module.outputs(torch_module.rebuild(model), model, {"input": torch.from_numpy(image)})[
        "output"
    ].numpy()
    assert found.dtype == np.float32
    assert 50 <= 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) < 90


@pytest.mark.prove
def test_the_kernels_are_named_with_what_made_them(pair: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    _, package = pair
    item = next(tensors.batches(conformance.samples(package, tmp_path), "test", 1))
    table = torchinductor.open(package, 1, profile=True).ops(item, 5)
    names = [op["name"] for op in table["ops"]]
    assert table["fallback"] == []
    assert len(names) == len(set(names))
    assert {op["where"] for op in table["ops"]} == {"cpu aten", "cpu inductor"}
    assert sum("convolution" in op["type"] and op["where"] == "cpu aten" for op in table["ops"]) == 2
    assert "without its profile" in torchinductor.open(package, 1).ops(item, 5)["why"]


@pytest.mark.prove
def test_a_damaged_package_is_one_line(pair: tuple[Artifact, Artifact], tmp_path: Path) -> None:
    _, package = pair
    data = package.file(".pt2").read_bytes()
    (tmp_path / "model.pt2").write_bytes(data[: len(data) // 2])
    with pytest.raises(StageFailed, match="runtime torchinductor cannot load the package") as caught:
        torchinductor.open(Artifact(tmp_path, "aoti", package.inputs, package.outputs), 1)
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_package_for_one_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(StageFailed, match="PyTorch finds no GPU") as caught:
        compiled(program(tmp_path), tmp_path / "out", "cuda")
    assert "\n" not in str(caught.value)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_a_package_for_a_gpu_computes_what_the_program_computes(
    pair: tuple[Artifact, Artifact], tmp_path: Path
) -> None:
    model, _ = pair
    package = compiled(model, tmp_path / "out", "cuda")
    session = torchinductor.open(package, 1, profile=True)
    image = np.random.default_rng(0).normal(size=(3, 3, 8, 8)).astype(np.float32)
    found = session.run({"input": image})["output"]
    wanted = torch_module.outputs(torch_module.rebuild(model), model, {"input": torch.from_numpy(image)})[
        "output"
    ].numpy()
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) >= 60
    assert session.ops({"input": image}, 3)["ops"]


def test_without_a_compiler_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(tmp_path / "no-such-compiler"))
    with pytest.raises(MissingDependency, match=r"needs a C\+\+ compiler.*apt-get install g\+\+"):
        compiled(program(tmp_path), tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []


def test_packages_of_strangers_are_not_read() -> None:
    assert registry.runtime("torchinductor").read is None
