"""Taps of ExecuTorch and Core ML files: what the layers answer, the own outputs untouched; and layers that are kept."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgecompress.core import config, registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.engines.coreml import compression
from edgecompress.engines.executorch import layer_outputs

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
ITEMS = 16
BATCH = Dim("batch", 1, 8)
SEQUENCES = np.random.default_rng(0).normal(size=(3, 5, 4)).astype("float32")
IMAGES = np.random.default_rng(0).normal(size=(ITEMS, 3, 8, 8)).astype("float32")


class Small(torch.nn.Module):
    """What CNNs are made of: batch norms, activations and a shortcut in place, a depthwise layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = torch.nn.Conv2d(3, 16, 3, padding=1, bias=False), torch.nn.BatchNorm2d(16)
        self.second, self.norm2 = torch.nn.Conv2d(16, 16, 3, padding=1, bias=False), torch.nn.BatchNorm2d(16)
        self.relu = torch.nn.ReLU(inplace=True)
        self.depthwise, self.clamp = torch.nn.Conv2d(16, 16, 3, groups=16), torch.nn.ReLU6()
        self.last = torch.nn.Linear(16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """[n, 3, 8, 8] -> [n, 10]."""
        first = self.relu(self.norm(self.stem(image)))
        second = self.norm2(self.second(first))
        second += first
        after = self.clamp(self.depthwise(self.relu(second)))
        return self.last(torch.nn.functional.adaptive_avg_pool2d(after, 1).flatten(1))

    def layers(self, image: torch.Tensor) -> dict[str, torch.Tensor]:
        """What each layer answers, by what is fused into its kernel."""
        with torch.no_grad():
            found = {"stem": torch.relu(self.norm(self.stem(image)))}
            found["second"] = self.norm2(self.second(found["stem"]))
            found["add"] = torch.relu(found["second"] + found["stem"])
            found["depthwise"] = self.clamp(self.depthwise(found["add"]))
            found["pool"] = torch.nn.functional.adaptive_avg_pool2d(found["depthwise"], 1)
            found["last"] = self.last(found["pool"].flatten(1))
        return found


class Sequences(torch.nn.Module):
    """An LSTM with its batch on axis 1, and heads that share axis 0 with it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.last = torch.nn.LSTM(4, 6), torch.nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 5, 4] -> [n, 15, 3]."""
        found = self.lstm(x.transpose(0, 1))[0].transpose(0, 1)
        heads = found.reshape(-1, 3, 5, 2).flatten(0, 1)
        scores = torch.bmm(heads, heads.transpose(1, 2)).reshape(-1, 75)
        return self.last(found).flatten(1) + scores[:, :15]


def small() -> Any:
    torch.manual_seed(0)
    net = Small()
    for norm in (net.norm, net.norm2):
        torch.nn.init.uniform_(norm.running_mean)
        torch.nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return net.eval()


NET = small()
LAYERS = {name: value.numpy() for name, value in NET.layers(torch.from_numpy(IMAGES[:1])).items()}


def program(folder: Path, net: Any = NET, batch: int | Dim = 1, example: np.ndarray = IMAGES) -> Artifact:
    folder.mkdir(parents=True)
    axis = None if isinstance(batch, int) else ({0: torch.export.Dim("batch", min=1, max=batch.max)},)
    given = torch.from_numpy(example[: batch if isinstance(batch, int) else 2])
    torch.export.save(torch.export.export(net, (given,), dynamic_shapes=axis), folder / "program.pt2")
    shape = net(given).shape[1:]
    ends = TensorSpec("image", (batch, *example.shape[1:])), TensorSpec("scores", (batch, *shape))
    return Artifact(folder, "program", ends[:1], ends[1:]).write()


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("samples")
    tensors.write_split(folder / "calibrate", {"image": IMAGES})
    specs = (TensorSpec("image", (Dim("batch", 1, ITEMS), 3, 8, 8)),)
    return Artifact(folder, "samples", specs, (), {"splits": {"calibrate": ITEMS}}).write()


def call(place: Path, plugin: str, function: str, inputs: Mapping[str, Artifact], **options: Any) -> Artifact:
    """A function of a plug-in ("runtimes.coreml"), in a folder of its own."""
    module = registry.load(*plugin.split("."))
    out = place / f"{plugin}-{len(list(place.iterdir()))}"
    out.mkdir()
    made = getattr(module, function)(Request(inputs, out, config.build(module.Options, options, "test"), Context()))
    assert isinstance(made, Artifact)
    return made


def answers(runtime: str, artifact: Artifact, image: np.ndarray = IMAGES[:1]) -> dict[str, np.ndarray]:
    session = registry.load("runtimes", runtime).open(artifact, 1)
    found = dict(session.run({"image": image}))
    session.close()
    for spec in artifact.outputs:
        assert found[spec.name].dtype == spec.dtype and found[spec.name].shape == spec.concrete(len(image))
    return found


def decibels(right: np.ndarray, other: np.ndarray) -> float:
    right, other = (np.asarray(a, "float64").reshape(-1) for a in (right, other))
    noise = ((right - other) ** 2).sum()
    return float(10 * np.log10((right**2).sum() / noise)) if noise else float("inf")


def check(runtime: str, model: Artifact, twin: Artifact, least_db: float) -> list[Mapping[str, str]]:
    """Own outputs first and equal, then as many taps as layers, each near to torch's; returns facts["taps"]."""
    rows = list(twin.facts["taps"])
    assert twin.outputs[: len(model.outputs)] == model.outputs and twin.kind == model.kind
    assert [row["output"] for row in rows] == [spec.name for spec in twin.outputs[len(model.outputs) :]]
    own, found = answers(runtime, model), answers(runtime, twin)
    for spec in model.outputs:
        assert (own[spec.name] == found[spec.name]).all()
    assert len(rows) == len(LAYERS)
    for row, (name, right) in zip(rows, LAYERS.items(), strict=True):
        assert decibels(right, found[row["output"]]) >= least_db, name
    return rows


# --------------------------------------------------------------------------- ExecuTorch


@pytest.mark.prove  # test_taps.py has it for another net
@pytest.mark.parametrize(("technique", "dtype", "least_db"), [("", "float32", 100), ("pt2e_int8", "int8", 20)])
def test_an_executorch_file_hands_out_its_layers(
    technique: str, dtype: str, least_db: float, samples: Artifact, tmp_path: Path
) -> None:
    """Also of a program that takes any batch."""
    pytest.importorskip("executorch")
    batch = 1 if technique else BATCH
    before = program(tmp_path / "net", batch=batch)
    if technique:
        before = call(tmp_path, f"techniques.{technique}", "apply", {"model": before, "samples": samples})
    model = call(tmp_path, "runtimes.executorch", "export", {"model": before})
    twin = call(tmp_path, "runtimes.executorch", "tapped", {"model": model, "before": before})
    rows = check("executorch", model, twin, least_db)
    assert [row["module"] for row in rows] == ["stem", "second", "", "depthwise", "", "last"]
    assert [row["type"] for row in rows] == ["conv2d", "conv2d", "add", "conv2d", "adaptive_avg_pool2d", "linear"]
    assert [row["dtype"] for row in rows] == [dtype] * len(rows)
    assert {name: twin.facts[name] for name in ("backend", "delegates", "fallback")} == model.facts
    assert {spec.shape[0] for spec in twin.outputs} == {batch}
    if batch == BATCH:
        one, three = (answers("executorch", twin, IMAGES[begin:3]) for begin in (2, 0))
        assert all(np.allclose(three[name][2:], one[name], atol=1e-5) for name in one)


@pytest.mark.parametrize("batch", [3, BATCH])
def test_a_layer_has_its_batch_on_axis_0(batch: int | Dim, tmp_path: Path) -> None:
    torch.manual_seed(0)
    before = program(tmp_path / "net", Sequences().eval(), batch, SEQUENCES)
    exported = torch.export.load(before.file(".pt2"))
    specs, rows = layer_outputs.add(exported, before)
    assert {row["type"]: spec.shape[1:] for row, spec in zip(rows, specs, strict=True)} == {
        "lstm": (5, 6),
        "bmm": (3, 5, 5),
        "linear": (5, 3),
        "add": (15,),
    }
    assert {spec.shape[0] for spec in specs} == {batch}
    found = exported.module()(torch.from_numpy(SEQUENCES))
    assert [tuple(answer.shape) for answer in found[1:]] == [spec.concrete(3) for spec in specs]


def test_an_executorch_file_needs_the_program_it_was_made_of(tmp_path: Path) -> None:
    pytest.importorskip("executorch")
    alone = Artifact(tmp_path, "pte", facts={"backend": "xnnpack"})
    with pytest.raises(InputError, match=r"cannot be read from a \.pte file; give the program"):
        call(tmp_path, "runtimes.executorch", "tapped", {"model": alone})


# --------------------------------------------------------------------------- Core ML


class Packages:
    """The net as Core ML packages."""

    def __init__(self, folder: Path, samples: Artifact) -> None:
        pytest.importorskip("coremltools")
        self.folder, self.samples = folder, samples
        self.full = call(folder, "runtimes.coreml", "export", {"model": program(folder / "net")})
        self.half = self.after("coreml_fp16", self.full)

    def after(self, technique: str, model: Artifact, **options: Any) -> Artifact:
        inputs = {"model": model, "samples": self.samples}
        return call(self.folder, f"techniques.{technique}", "apply", inputs, **options)

    def tapped(self, model: Artifact) -> Artifact:
        return call(self.folder, "runtimes.coreml", "tapped", {"model": model})


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory, samples: Artifact) -> Packages:
    return Packages(tmp_path_factory.mktemp("coreml"), samples)


def test_a_package_hands_out_its_layers(packages: Packages) -> None:
    rows = check("coreml", packages.full, packages.tapped(packages.full), 100)
    assert [row["type"] for row in rows] == ["conv", "conv", "add", "conv", "reduce_mean", "linear"]
    assert {row["dtype"] for row in rows} == {"float32"}


def test_a_package_in_half_precision_hands_out_its_layers(packages: Packages) -> None:
    twin = packages.tapped(packages.half)
    rows = check("coreml", packages.half, twin, 50)
    assert {row["dtype"] for row in rows} == {"float16"} == {spec.dtype for spec in twin.outputs[1:]}


@pytest.mark.parametrize(
    ("technique", "word"), [("coreml_int8", "int8"), ("coreml_palette", "palettized"), ("coreml_sparse", "sparse")]
)
def test_a_layer_says_how_its_weights_are_held_and_can_be_kept_as_it_is(
    technique: str, word: str, packages: Packages
) -> None:
    """What the diagnosis of a half-precision package calls a layer is what the technique, before or after, skips."""
    small = packages.after(technique, packages.half, min_size=1000)
    (row,) = [row for row in check("coreml", small, packages.tapped(small), 3) if row["dtype"] == word]
    plugin = registry.load("techniques", technique)
    options = plugin.kept({"min_size": 100}, [row])
    for model in (packages.half, packages.full):
        both = packages.after(technique, model, min_size=100)
        kept = packages.after(technique, model, **options)
        assert kept.facts["compressed"] == both.facts["compressed"] - 1
    held = {
        r["operator"]: r["dtype"]
        for r in packages.tapped(packages.after(technique, packages.half, **options)).facts["taps"]
    }
    assert held[row["operator"]] == "float16" and word in held.values()


@pytest.mark.parametrize(
    ("shown", "given"),
    [
        ("op_54_cast_fp16", "var_54"),
        ("op_55_cast_fp16_cast_uint16_cast_uint16", "var_55"),
        ("op_58_batch_first_cast_fp16_0", "var_58_batch_first_0"),
        ("inner_last_weight_to_fp16", "inner_last_weight"),
        ("drop_5_op_6", "drop_5_op_6"),
    ],
)
def test_names_are_those_that_the_conversion_gave(shown: str, given: str) -> None:
    assert compression.plain(shown) == given


def test_weights_are_skipped_by_their_own_names_and_unknown_names_refused(packages: Packages) -> None:
    every, one = (), ("inner_last_weight",)
    counts = [
        packages.after("coreml_int8", packages.full, min_size=100, skip=s).facts["compressed"] for s in (every, one)
    ]
    assert counts[0] - counts[1] == 1
    assert "kept" in packages.after("coreml_int8", packages.full, skip=("*",)).facts["lost"]
    with pytest.raises(InputError, match="skip: no operator and no weight is called 'convolution'"):
        packages.after("coreml_int8", packages.full, skip=("convolution",))


# --------------------------------------------------------------------------- half precision, layers kept


def test_a_layer_of_a_package_stays_in_fp32_when_asked(packages: Packages) -> None:
    row = packages.tapped(packages.half).facts["taps"][1]
    options = registry.load("techniques", "coreml_fp16").kept({}, [row])
    half = packages.after("coreml_fp16", packages.full, **options)
    assert half.facts["kept"] == options["skip"] == ["var_54"], "the package in half precision says op_54_cast_fp16"
    dtypes = [row["dtype"] for row in packages.tapped(half).facts["taps"]]
    assert dtypes[0] == "float16" and dtypes[1] == "float32"


@pytest.mark.parametrize("name", ["second", "conv2d_1"])
def test_a_module_or_node_of_a_program_stays_in_fp32_when_asked(name: str, samples: Artifact, tmp_path: Path) -> None:
    options = registry.load("techniques", "torch_fp16").kept({"skip": ["last"]}, [{"module": name, "node": "n"}])
    assert options == {"skip": ["last", name]}
    inputs = {"model": program(tmp_path / "net"), "samples": samples}
    assert call(tmp_path, "techniques.torch_fp16", "apply", inputs, **options).facts["kept"] == ["conv2d_1", "linear"]


def test_a_layer_of_an_onnx_model_is_kept_by_its_node(tmp_path: Path) -> None:
    kept = registry.load("techniques", "onnx_fp16").kept({"headroom": 2.0}, [{"operator": "/a/Conv[0]"}])
    assert kept == {"headroom": 2.0, "skip": ["/a/Conv[[]0]"]}
