"""ExecuTorch: what the delegate takes and what it leaves, what cannot run here says so, and real data through it."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import test_examples

from edgecompress.core import config, registry
from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.executorch.runtimes import executorch

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("executorch")

EXAMPLES = Path(__file__).parents[1] / "examples"


class Pooled(torch.nn.Module):
    """Two convolutions; between them `softmax`, `cumsum`, which XNNPACK leaves, or `sort`, which nothing computes."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Conv2d(8, 8, 3, padding=1)
        self.what = what

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 8, 8] -> [n, 8, 8, 8]."""
        x = torch.relu(self.first(image))
        if self.what == "cumsum":
            x = x.cumsum(1)
        if self.what == "reduce":
            places = torch.zeros(x.shape, dtype=torch.int64)
            x = x.scatter_reduce(1, places, x, "amax")
        if self.what == "softmax":
            x = x.softmax(1)
        return torch.relu(self.second(x))


def program(folder: Path, what: str = "", batch: int | Dim = 1) -> Artifact:
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    size = batch if isinstance(batch, int) else 2
    axis = None if isinstance(batch, int) else ({0: torch.export.Dim("batch", min=1, max=batch.max)},)
    example = (torch.randn(size, 3, 8, 8),)
    torch.export.save(torch.export.export(Pooled(what).eval(), example, dynamic_shapes=axis), folder / "program.pt2")
    ends = (TensorSpec("image", (batch, 3, 8, 8)),), (TensorSpec("scores", (batch, 8, 8, 8)),)
    return Artifact(folder, "program", *ends).write()


def lowered(model: Artifact, folder: Path, backend: str = "xnnpack") -> Artifact:
    out = folder / f"{backend}-{len(list(folder.iterdir()))}"
    out.mkdir()
    return executorch.export(Request({"model": model}, out, config.build(executorch.Options, {"backend": backend}, "")))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Artifact]:
    """The net with what is between its convolutions, lowered to XNNPACK once."""

    @functools.cache
    def one(what: str = "") -> Artifact:
        folder = tmp_path_factory.mktemp("made")
        return lowered(program(folder / "net", what), folder)

    return one


@pytest.mark.parametrize("what", ["", "softmax"])
def test_the_pattern_of_attention_is_traced_where_a_net_has_a_softmax(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    from executorch.backends.xnnpack.partition.graphs import sdpa

    traced: list[str] = []
    monkeypatch.setattr(sdpa, "get_graphs", lambda: traced.append(what) or [])
    lowered(program(tmp_path / "program", what), tmp_path)
    assert bool(traced) == bool(what)


IMAGE = {"image": np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)}


def table(artifact: Artifact) -> dict[str, Any]:
    session = executorch.open(artifact, 1, profile=True)
    found = dict(session.ops(IMAGE, 3))
    session.close()
    return found


# --------------------------------------------------------------------------- what the delegate leaves


def test_without_a_delegate_every_operator_is_told_and_with_it_none(
    made: Callable[..., Artifact], tmp_path: Path
) -> None:
    """The silent disaster: the same program, a thousand times slower; removing the cause empties the list."""
    alone, helped = table(lowered(program(tmp_path / "net"), tmp_path, "portable")), table(made())
    assert alone["fallback"] == [
        "aten::convolution.out #1",
        "aten::relu.out #1",
        "aten::convolution.out #2",
        "aten::relu.out #2",
    ]
    assert [op["name"] for op in alone["ops"]] == alone["fallback"]
    assert {op["where"] for op in alone["ops"]} == {"portable"}
    assert helped["fallback"] == []
    assert {op["where"] for op in helped["ops"]} == {"XnnpackBackend"}
    assert sum(op["type"].startswith("Convolution") for op in helped["ops"]) == 2


def test_an_operator_that_the_delegate_leaves_is_named_until_it_is_gone(made: Callable[..., Artifact]) -> None:
    with_it, without = table(made("cumsum")), table(made())
    assert with_it["fallback"] == ["aten::cumsum.out #1"]
    told = {op["name"]: op["where"] for op in with_it["ops"]}
    assert told["aten::cumsum.out #1"] == "portable"
    assert set(told.values()) == {"portable", "XnnpackBackend"}
    assert without["fallback"] == []


class Recurrent(torch.nn.Module):
    """An LSTM of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[1, n, 8] -> [1, n, 16]."""
        return self.lstm(x)[0]


@pytest.mark.prove
def test_an_lstm_is_one_delegate_however_long(tmp_path: Path) -> None:
    """As PyTorch unrolls it, XNNPACK leaves the split of each step: 2 n delegates, and minutes to lower."""
    (tmp_path / "net").mkdir()
    torch.manual_seed(0)
    net, x = Recurrent().eval(), torch.randn(1, 5, 8)
    torch.export.save(torch.export.export(net, (x,)), tmp_path / "net" / "program.pt2")
    ends = (TensorSpec("x", (1, 5, 8)),), (TensorSpec("y", (1, 5, 16)),)
    found = lowered(Artifact(tmp_path / "net", "program", *ends).write(), tmp_path)
    assert found.facts["delegates"] == ["XnnpackBackend"]
    assert not {left.split(" ")[0] for left in found.facts["fallback"]} - {"aten::full.out"}  # the first state
    answer = executorch.open(found, 1).run({"x": x.numpy()})["y"]
    assert np.allclose(answer, net(x).detach().numpy(), atol=1e-6)


def test_the_export_says_what_the_file_says(made: Callable[..., Artifact]) -> None:
    found = made("cumsum")
    assert found.facts["delegates"] == ["XnnpackBackend", "XnnpackBackend"]
    assert found.facts["fallback"] == table(found)["fallback"]


def test_names_of_operators_are_their_own(made: Callable[..., Artifact]) -> None:
    names = [op["name"] for op in table(made())["ops"]]
    assert len(set(names)) == len(names) > 2


# --------------------------------------------------------------------------- runs


def test_any_batch_of_the_range_runs(tmp_path: Path) -> None:
    model = program(tmp_path / "net", batch=Dim("batch", 1, 4))
    session = executorch.open(lowered(model, tmp_path), 1)
    image = np.repeat(IMAGE["image"], 4, 0)
    all_four = session.run({"image": image})["scores"]
    assert all_four.shape == (4, 8, 8, 8)
    assert np.allclose(session.run(IMAGE)["scores"], all_four[:1], atol=1e-5)


def test_an_answer_is_not_written_over_by_the_next_run(made: Callable[..., Artifact]) -> None:
    session = executorch.open(made(), 1)
    first = session.run(IMAGE)["scores"]
    kept = first.copy()
    session.run({"image": -IMAGE["image"]})
    assert (first == kept).all()


def test_another_shape_is_refused_in_one_line(made: Callable[..., Artifact]) -> None:
    session = executorch.open(made(), 1)
    with pytest.raises(StageFailed, match=r"^runtime executorch: model\.pte: RuntimeError: .*$"):
        session.run({"image": np.zeros((1, 3, 9, 9), np.float32)})


def test_a_damaged_file_is_refused_in_one_line(made: Callable[..., Artifact], tmp_path: Path) -> None:
    artifact = Artifact.read(Path(shutil.copytree(made().path, tmp_path / "net")))
    file = artifact.file(".pte")
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(StageFailed, match=r"^runtime executorch: model\.pte: RuntimeError: .*$"):
        executorch.open(artifact, 1)


# --------------------------------------------------------------------------- what does not run here


def test_what_executorch_has_no_kernel_for_is_named(tmp_path: Path) -> None:
    words = r"model\.pte: it has no kernel for aten::scatter_reduce\.two_out; write the model without it$"
    with pytest.raises(StageFailed, match=words):
        executorch.open(lowered(program(tmp_path / "net", "reduce"), tmp_path), 1)


@pytest.mark.parametrize(
    ("backend", "delegate", "where"),
    [
        pytest.param("vulkan", "VulkanBackend", "Android", marks=pytest.mark.prove),
        ("coreml", "CoreMLBackend", "macOS"),
    ],
)
def test_a_program_for_another_machine_is_lowered_here_and_never_passes(
    backend: str, delegate: str, where: str, tmp_path: Path
) -> None:
    if backend == "coreml":
        pytest.importorskip("coremltools")
    model = program(tmp_path / "net")
    first, second = (lowered(model, tmp_path, backend) for _ in range(2))
    assert first.facts == {"backend": backend, "delegates": [delegate], "fallback": []}
    assert first.sha256 == second.sha256
    with pytest.raises(
        StageFailed, match=rf"^runtime executorch: model\.pte: {delegate} is not in .* {where}.*, not here$"
    ):
        executorch.open(first, 1)


# --------------------------------------------------------------------------- real data


@pytest.fixture(scope="module")
def resnet(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact, np.ndarray]:
    """ResNet-20 as a program, its data, and what torch answers to the 500 test images."""
    made = test_examples.traced(tmp_path_factory.mktemp("resnet20"))
    wanted = made["golden"]
    return made["program"], made["samples"], np.array(tensors.load(wanted, "test", wanted.outputs[0].name))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("technique", "least_db", "most_apart"),
    [("", 100, 0), *(pytest.param(name, 28, 2, marks=pytest.mark.prove) for name in ("pt2e_int8", "pt2e_dynamic"))],
)
@pytest.mark.prove
def test_resnet20_keeps_its_answers(
    resnet: tuple[Artifact, Artifact, np.ndarray], technique: str, least_db: float, most_apart: int, tmp_path: Path
) -> None:
    model, samples, wanted = resnet
    if technique:
        module = registry.load("techniques", technique)
        (tmp_path / "int8").mkdir()
        model = module.apply(Request({"model": model, "samples": samples}, tmp_path / "int8", module.Options()))
    artifact = lowered(model, tmp_path)
    session, name = executorch.open(artifact, 1), artifact.outputs[0].name
    found = np.concatenate([session.run(item)[name] for item in tensors.batches(samples, "test", 1, None, artifact)])
    labels = tensors.labels(samples, "test")
    assert labels is not None and len(labels) == 500
    assert 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum()) >= least_db
    assert abs(int((wanted.argmax(1) == labels).sum()) - int((found.argmax(1) == labels).sum())) <= most_apart
    assert all("convolution" not in left for left in artifact.facts["fallback"])


def test_an_input_whose_axis_of_one_has_no_stride_is_lowered(tmp_path: Path) -> None:
    """NumPy's x[:, None], as an example of torch.export."""
    (tmp_path / "net").mkdir()
    x = torch.from_numpy(np.zeros((1, 16), np.float32)[:, None])
    assert 0 in x.stride()
    torch.export.save(torch.export.export(torch.nn.Conv1d(1, 2, 3).eval(), (x,)), tmp_path / "net" / "program.pt2")
    ends = (TensorSpec("x", (1, 1, 16)),), (TensorSpec("y", (1, 2, 14)),)
    made = lowered(Artifact(tmp_path / "net", "program", *ends).write(), tmp_path)
    assert made.facts["delegates"]
