"""Analysis: counts against published ones and hand counts, zeros as Distiller tells them, what the layers mind."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import nulls
import numpy as np
import pytest

from edgecompress.cli import main
from edgecompress.commands import analyze as analysis
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.core.settings import Roof
from edgecompress.data import tensors
from edgecompress.formats import sparsity, torch_module
from edgecompress.pipeline.job import job
from edgecompress.pipeline.job_request import Options
from edgecompress.stages import analyze, trace
from edgecompress.stages.analyze import page, sensitivity

slow = pytest.mark.slow
Told = pytest.CaptureFixture[str]

# --------------------------------------------------------------------------- the sparsity table


def holed(weight: Any, kernels: int, kept: int) -> Any:
    """Weights with so many kernels (or stored rows) all zero and so many elements left, of ones with holes already."""
    flat = weight.reshape(weight.shape[0] * weight.shape[1] if weight.ndim > 2 else weight.shape[0], -1)
    whole = np.flatnonzero(flat.any(axis=1))
    more = kernels - (len(flat) - len(whole))
    flat[whole[np.linspace(0, len(whole) - 1, more).astype(int)]] = 0  # spread: no filter becomes all zero
    spare = flat.copy()
    spare[np.arange(len(flat)), flat.argmax(axis=1)] = 0  # one of each stays: nothing else becomes all zero
    surplus = np.count_nonzero(flat) - kept
    np.put(flat, np.random.default_rng(0).choice(np.flatnonzero(spare), surplus, replace=False), 0)
    return weight


# Distiller's schedules, the tables in their heads: resnet20.network_surgery, alexnet.schedule_sensitivity.
PUBLISHED = [
    ((16, 16, 3, 3), (1, 1), 50, 641, (None, None, "6.25000", "19.53125", "0.00000", "72.17882")),
    ((32, 32, 3, 3), (1, 0), 102, 2738, (None, None, "0.00000", "9.96094", "0.00000", "70.29080")),
    ((1000, 4096), (1, 139), 0, 993134, ("3.39355", "0.00000", None, "0.00000", None, "75.75356")),
]


@pytest.mark.parametrize(("shape", "hole", "kernels", "kept", "shares"), PUBLISHED, ids=str)
def test_a_row_of_a_published_table_comes_out_to_its_last_digit(
    shape: tuple[int, ...], hole: tuple[int, int], kernels: int, kept: int, shares: tuple[str | None, ...]
) -> None:
    weight = np.ones(shape, np.float32)
    np.moveaxis(weight, hole[0], 0)[: hole[1]] = 0
    row = sparsity.row("w", holed(weight, kernels, kept))
    assert (row["dense"], row["sparse"]) == (weight.size, kept)
    assert tuple(row[key] if row[key] is None else f"{row[key]:.5f}" for key in sparsity.SHARES) == shares


def test_rows_and_columns_of_a_matrix_are_those_that_are_stored() -> None:
    """As in Distiller's published tables, where 2D of a fully connected layer is Rows, not Cols."""
    weight = np.ones((8, 10))
    weight[[1, 2]] = weight[:, [0]] = 0
    row = sparsity.row("fc", weight)
    assert (row["rows_pct"], row["cols_pct"], row["kernels_pct"], row["fine_pct"]) == (25, 10, 25, 32.5)
    assert row["filters_pct"] is row["channels_pct"] is None


@pytest.mark.parametrize("shape", [(6, 4, 3), (6, 4, 3, 3), (6, 4, 2, 3, 3)])
def test_filters_and_channels_of_a_convolution_are_found_whatever_its_kernel(shape: tuple[int, ...]) -> None:
    weight = np.ones(shape)
    weight[[0, 5]] = 0
    weight[:, 1] = 0
    row = sparsity.row("conv", weight)
    assert row["filters_pct"] == pytest.approx(100 / 3)
    assert row["channels_pct"] == 25
    assert row["kernels_pct"] == row["fine_pct"] == 50


def test_the_last_columns_are_those_of_torch() -> None:
    row = sparsity.row("w", np.array([[1.0, -2.0], [0.0, 4.0]], np.float32))
    assert (row["mean"], row["abs_mean"]) == (0.75, 1.75)
    assert row["std"] == pytest.approx(2.5)  # torch.std: over n - 1
    assert sparsity.row("w", np.array([[3.0]]))["std"] is None


def test_the_total_is_of_all_rows() -> None:
    rows = [sparsity.row("a", np.eye(2)), sparsity.row("b", np.ones((2, 3)))]
    assert sparsity.total(rows) == {"dense": 10, "sparse": 8, "fine_pct": pytest.approx(20)}
    assert sparsity.total([])["fine_pct"] is None


# --------------------------------------------------------------------------- pruning and quantizing


@pytest.mark.parametrize("structure", sparsity.STRUCTURES)
@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.25, 0.5, 0.99, 1.0])
def test_pruning_takes_the_smallest_and_as_many_as_asked(structure: str, ratio: float) -> None:
    weight = np.random.default_rng(1).normal(size=(12, 8, 3, 3))
    before = weight.copy()
    found = sparsity.pruned(weight, ratio, structure)
    axis = {"element": (), "filter": (1, 2, 3), "channel": (0, 2, 3)}[structure]
    gone = (found == 0).all(axis=axis)
    assert gone.sum() == int(ratio * gone.size)
    sizes = np.abs(weight).mean(axis=axis)
    assert sizes[gone].max(initial=0) <= sizes[~gone].min(initial=np.inf)
    assert (weight == before).all()
    kept = np.broadcast_to(~gone if structure == "element" else np.expand_dims(~gone, axis), weight.shape)
    assert (found[kept] == weight[kept]).all()


def test_of_equal_weights_as_many_are_pruned_as_of_others() -> None:
    assert np.count_nonzero(sparsity.pruned(np.ones((4, 5)), 0.5, "element")) == 10


@pytest.mark.parametrize("bits", [2, 3, 4, 8, 16])
def test_quantized_weights_lie_on_a_grid_of_their_row(bits: int) -> None:
    weight = np.random.default_rng(2).normal(size=(5, 40))
    found = sparsity.quantized(weight, bits)
    most = 2 ** (bits - 1) - 1
    step = np.abs(weight).max(axis=1, keepdims=True) / most
    assert np.allclose(found / step, np.round(found / step))
    assert (np.abs(found - weight) <= step / 2 + 1e-12).all()
    assert np.allclose(np.abs(found).max(axis=1), np.abs(weight).max(axis=1))
    assert np.allclose(sparsity.quantized(found, bits), found)


def test_quantizing_has_the_values_that_one_computes_by_hand() -> None:
    found = sparsity.quantized(np.array([[7.0, 3.4, -0.6], [0.0, 0.0, 0.0], [-14.0, 5.0, 1.0]], np.float32), 4)
    assert found.tolist() == [[7.0, 3.0, -1.0], [0.0, 0.0, 0.0], [-14.0, 4.0, 0.0]]  # halves to the even neighbour
    assert found.dtype == np.float32


# --------------------------------------------------------------------------- devices


ROWS = [
    {"name": "a", "type": "Conv", "macs": 900, "flops_per_byte": 9.0},
    {"name": "b", "type": "Linear", "macs": 100, "flops_per_byte": 0.5},
    {"name": "c", "type": "Relu", "macs": 0, "flops_per_byte": None},
]


def test_layers_left_of_the_corner_wait_for_memory() -> None:
    found = analysis.bound("board", Roof(80.0, 10.0, "its data sheet"), ROWS)
    assert (found["ridge_flops_per_byte"], found["memory_bound"], found["share_of_macs"]) == (8.0, ["b"], 0.1)
    assert (found["layers"], found["why"]) == (2, "")


def test_a_device_without_a_roof_says_how_it_is_measured() -> None:
    found = analysis.bound("host", None, ROWS)
    assert found["memory_bound"] is None
    assert "profile FOLDER --profile throughput --device host" in found["why"]


def test_a_roof_is_above_zero() -> None:
    with pytest.raises(ValueError, match="above 0"):
        Roof(0.0, 1.0, "")


# --------------------------------------------------------------------------- what is asked


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"levels": (0.5, 1.0)}, "--levels 1: levels of --sensitivity ratio must be between 0 and 1"),
        ({"by": "bits", "levels": (4, 2.5)}, "levels of --sensitivity bits must be whole numbers from 2 to 16"),
        ({"items": 0}, "and at least 1 item"),
        ({"by": "bits", "structure": "filter"}, "--structure filter works with --sensitivity ratio only"),
        ({"by": "bits", "file": "a.csv"}, "--csv is of --sensitivity ratio"),
    ],
)
def test_levels_that_cannot_be_are_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        analysis.SensitivityRequest(**how)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--sensitivity", "ratio", "--levels", "a,b"], "--levels a,b: write numbers with commas"),
        (["--levels", "0.5"], "--layers and --levels need --sensitivity; add --sensitivity ratio"),
        (["--csv", "a.csv"], "--csv is of a sensitivity; add --sensitivity ratio"),
        (
            ["--summary", "percentil"],
            "--summary percentil: give sparsity, compute, model, modules, percentile, did you",
        ),
        (["--summary", "percentile", "--percentile", "90"], "--percentile 90: must be above 0, at most 1"),
        (["--device", "rpi55"], "no device 'rpi55', did you mean 'rpi5'?"),
    ],
)
def test_what_cannot_be_meant_is_the_users_mistake(words: list[str], says: str, capsys: Told) -> None:
    assert main.main(["analyze", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_file_is_analyzed_without_data_but_not_its_sensitivity(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").touch()
    wanted = job(str(tmp_path / "net.onnx"))
    assert [s.name for s in analysis.stages(wanted, analysis.AnalysisRequest())] == ["source", "analysis"]
    with pytest.raises(InputError, match="no data to calibrate and verify with"):
        analysis.stages(wanted, analysis.AnalysisRequest(sensitivity=analysis.SensitivityRequest()))


def test_a_torch_net_is_loaded_with_its_data() -> None:
    made = analysis.stages(job(), analysis.AnalysisRequest(sensitivity=analysis.SensitivityRequest("bits")))
    assert [s.name for s in made] == ["data", "source", "analysis", "sensitivity"]
    assert made[-1].options["levels"] == [8, 4, 3, 2]


def test_levels_go_from_the_weakest_to_the_strongest() -> None:
    asked = {"ratio": (0.9, 0.1), "bits": (2, 8)}
    requests = {by: analysis.SensitivityRequest(by, levels=levels) for by, levels in asked.items()}
    made = {by: analysis.stages(job(), analysis.AnalysisRequest(sensitivity=each))[-1] for by, each in requests.items()}
    assert {by: stage.options["levels"] for by, stage in made.items()} == {"ratio": [0.1, 0.9], "bits": [8, 2]}


def test_a_kind_that_is_not_read_is_refused_by_name(tmp_path: Path) -> None:
    made = nulls.make(tmp_path)
    with pytest.raises(InputError, match=r"analyze reads torch nets, \.onnx and \.tflite files, not kind 'null'"):
        analysis.analyze(made["model"], options=Options(store=tmp_path / "store"))


# --------------------------------------------------------------------------- what is told

POINTS = {
    "calm": [{"level": 0.5, "metric": 0.9, "sqnr_db": 30.0, "reason": ""}],
    "quiet": [{"level": 0.5, "metric": 0.9, "sqnr_db": None, "reason": "identical"}],
    "touchy": [{"level": 0.5, "metric": 0.2, "sqnr_db": 3.0, "reason": ""}],
    "broken": [{"level": 0.5, "metric": 0.2, "sqnr_db": None, "reason": "1 of 8 items hold NaN or infinite values"}],
}


def test_the_most_sensitive_layer_comes_first() -> None:
    assert sensitivity.order(POINTS) == ["broken", "touchy", "calm", "quiet"]
    once = [{**POINTS["calm"][0], "sqnr_db": db} for db in (10.0, 50.0)]  # more noise than twice 20 dB
    twice = [{**POINTS["calm"][0], "sqnr_db": 20.0}] * 2
    assert sensitivity.order({"twice": twice, "once": once}) == ["once", "twice"]


def minded(**more: Any) -> dict[str, Any]:
    known = {"by": "ratio", "structure": "filter", "metric": "top1", "unit": "fraction", "baseline": 0.95, "items": 8}
    order = sensitivity.order(POINTS)
    return {**known, "split": "select", "layers": POINTS, "order": order, **more}


def test_the_picture_has_a_dot_with_words_for_each_number() -> None:
    svg = page.picture(minded())
    for name, said in (("calm", "90.0 % (30.0 dB)"), ("quiet", "90.0 % (identical)"), ("broken", "20.0 % (no number)")):
        assert f"<title>{name} at 50 %: {said}</title>" in svg


def test_without_a_metric_the_picture_is_of_the_noise() -> None:
    points = {name: [{**p, "metric": None} for p in each] for name, each in POINTS.items()}
    svg = page.picture(minded(metric=None, baseline=None, unit="", layers=points))
    assert "SQNR, dB" in svg and "calm at 50 %: 30.0 dB" in svg and "quiet at" not in svg
    assert "nothing is said of accuracy" in page.scored_on(minded(metric=None))


FACTS = {
    "batch": 1,
    "layers": [
        {
            "name": "<b>",
            "type": "X",
            "parameters": 3,
            "macs": None,
            "activation_bytes": 8,
            "bytes": 20,
            "flops_per_byte": None,
        }
    ],
    "total": {
        "parameters": 3,
        "macs": None,
        "activation_bytes": 8,
        "bytes": 20,
        "flops_per_byte": None,
        "unknown": ["<b>"],
        "unsized": [],
    },
    "sparsity": {"rows": [], "total": sparsity.total([])},
    "weights": [],
}


WATCHED = {
    "split": "select",
    "items": 4,
    "layers": [
        {
            **dict.fromkeys(("mean", "std", "max"), 1.0),
            **dict.fromkeys(("not_finite", "dead"), 0),
            "name": "<b>",
            "type": "ReLU",
            "elements": 8,
            "zeros": 0.5,
            "channels": 2,
            "apoz": 0.5,
            "min": 0.0,
            "percentiles": [0.0, 0.0, 1.0],
            "histogram": [1, 0, 3],
        }
    ],
}


def test_the_page_escapes_names_and_asks_nobody_for_anything() -> None:
    devices = [analysis.bound("host", None, [])]
    text = page.page(FACTS, {"title": "<script>", "devices": devices}, minded(), None, WATCHED)
    assert "<script>" not in text and "<b>" not in text
    assert "http://www.w3.org/2000/svg" in text and "https://" not in text
    assert "not known" in text


def test_macs_that_nobody_knows_are_not_zero() -> None:
    assert "MACs not known (<b>)" in page.sentence(FACTS)


def test_tensors_of_unknown_sizes_are_named() -> None:
    told = page.sentence({**FACTS, "total": {**FACTS["total"], "unsized": ["a", "b", "c", "d"]}})
    assert told.endswith("; without a, b, c and 1 more, of sizes known only at run time")


# --------------------------------------------------------------------------- counts, in torch

NETS = '''
import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = nn.Conv2d(o, o, 3, 1, 1, bias=False), nn.BatchNorm2d(o)
        self.downsample = None
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(i, o, 1, stride, bias=False), nn.BatchNorm2d(o))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """He et al. 2015 for CIFAR-10, its shortcuts 1 x 1 convolutions (option B)."""

    def __init__(self, depth):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.layers, i = nn.Sequential(), 16
        for o in (16, 32, 64):
            for _ in range((depth - 2) // 6):
                self.layers.append(Block(i, o, 1 if i == o else 2))
                i = o
        self.fc = nn.Linear(64, 10)

    def forward(self, image):
        return self.fc(self.layers(F.relu(self.bn1(self.conv1(image)))).mean((2, 3)))


class Cut(nn.Module):
    """A layer, what its forward cuts off twice, and a module that does."""

    def __init__(self):
        super().__init__()
        self.wide, self.act = nn.Conv2d(2, 3, 1), nn.ReLU()

    def forward(self, x):
        y = F.relu(self.wide(x))
        return self.act(F.relu(y - 0.5) - 0.25)


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))
        self.plain = nn.Linear(8, 3)

    def forward(self, x):
        return self.plain(self.part(x))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.grouped = nn.Conv2d(8, 12, 3, padding=1, groups=4)
        self.depthwise = nn.Conv2d(12, 24, (5, 3), stride=2, groups=12, bias=False)
        self.transposed = nn.ConvTranspose2d(24, 6, 4, stride=2, groups=3)

    def forward(self, x):
        return self.transposed(self.depthwise(self.grouped(x)))


class Sequence(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.gru = nn.LSTM(5, 7, num_layers=2, batch_first=True), nn.GRU(7, 4, batch_first=True)

    def forward(self, x):
        return self.gru(self.rnn(x)[0])[0]


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)

    def forward(self, x):
        return self.encoder(x)


class Tied(nn.Module):
    """The same matrix twice, once by hand."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(4, 4, bias=False)
        self.two = nn.Linear(4, 4, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x)) @ self.one.weight


class Heads(nn.Module):
    """Only "loud" decides; what "mute" says is nearly nothing."""

    def __init__(self):
        super().__init__()
        self.mute, self.loud = nn.Linear(4, 3, bias=False), nn.Linear(4, 3, bias=False)
        nn.init.orthogonal_(self.loud.weight)
        nn.init.constant_(self.mute.weight, 1e-6)

    def forward(self, x):
        return self.loud(x) + self.mute(x)


def resnet20(): return ResNet(20)
def resnet56(): return ResNet(56)
def convolutions(): return Convolutions()
def scripted(): return Scripted()
def sequence(): return Sequence()
def attention(): return Attention()
def tied(): return Tied()
def cut(): torch.manual_seed(0); return Cut()
def heads(): torch.manual_seed(0); return Heads()
'''


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module `looked_at` in the working folder."""
    (tmp_path / "looked_at.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "looked_at", raising=False)
    return tmp_path


def made(folder: Path, name: str) -> Path:
    (folder / name).mkdir(parents=True)
    return folder / name


def loaded(folder: Path, net: str, data: Any, labels: Any = None) -> dict[str, Artifact]:
    """A factory of NETS as a module, with its samples."""
    out = made(folder, "samples")
    arrays = {"x": data} if labels is None else {"x": data, tensors.LABELS: labels}
    tensors.write_split(out / "select", arrays)
    spec = TensorSpec("x", (Dim("batch", 1, len(data)), *data.shape[1:]), str(data.dtype))
    samples = Artifact(out, "samples", (spec,), (), {"splits": {"select": len(data)}}).write()
    asked = {"source": {"model": net if ":" in net else f"looked_at:{net}"}}
    return {"model": trace.load(Request({"samples": samples}, made(folder, "source"), asked)), "samples": samples}


def looked(folder: Path, net: str, *shape: int) -> dict[str, Any]:
    """The facts of the stage on one item of this shape."""
    data = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    return dict(analyze.run(Request(loaded(folder, net, data), made(folder, "out"))).facts)


def macs(facts: dict[str, Any]) -> dict[str, int]:
    return {row["name"]: row["macs"] for row in facts["layers"]}


@slow
@pytest.mark.parametrize(("net", "published"), [("resnet20", 40_813_184), ("resnet56", 125_747_840)])
def test_the_macs_of_a_known_net_are_the_published_ones(net: str, published: int, nets: Path) -> None:
    facts = looked(nets, net, 3, 32, 32)
    assert facts["total"]["macs"] == published
    assert facts["total"]["unknown"] == []
    if net == "resnet20":  # "# of parameters" in Distiller's resnet20 schedules: no biases, no batch norm
        assert facts["sparsity"]["total"]["dense"] == 270_896
        assert facts["total"]["parameters"] == 270_896 + 10 + 2 * 784


@slow
def test_grouped_depthwise_and_transposed_convolutions_have_the_macs_of_a_hand_count(nets: Path) -> None:
    facts = looked(nets, "convolutions", 8, 10, 12)
    assert macs(facts) == {
        "grouped": (12 * 10 * 12) * (8 // 4) * 9,  # output values x channels of a group x kernel
        "depthwise": (24 * 3 * 5) * 1 * 15,
        "transposed": (24 * 3 * 5) * (6 // 3) * 16,  # input values x output channels of a group x kernel
    }
    rows = {row["name"]: row for row in facts["layers"]}
    grouped = rows["grouped"]
    assert grouped["parameters"] == 12 * 2 * 9 + 12
    assert grouped["activation_bytes"] == 4 * 12 * 10 * 12
    assert grouped["bytes"] == 4 * (8 * 10 * 12 + 12 * 10 * 12 + 12 * 2 * 9 + 12)
    assert grouped["flops_per_byte"] == 2 * grouped["macs"] / grouped["bytes"]


@slow
def test_recurrent_layers_and_attention_are_counted_whatever_kernel_runs_them(nets: Path) -> None:
    steps, batch = 6, 1
    found = macs(looked(nets / "a", "sequence", steps, 5))
    assert found == {
        "rnn": batch * steps * 4 * (7 * 5 + 7 * 7 + 7 * 7 + 7 * 7),
        "gru": batch * steps * 3 * (4 * 7 + 4 * 4),
    }
    total = looked(nets / "b", "attention", steps, 8)["total"]["macs"]
    assert total == steps * (4 * 8 * 8 + 2 * 8 * 16) + 2 * steps * steps * 8


@slow
def test_a_tied_weight_is_one_parameter_and_a_functional_product_belongs_to_its_module(nets: Path) -> None:
    facts = looked(nets, "tied", 4)
    assert facts["total"]["parameters"] == 16
    assert macs(facts) == {"one": 16, "two": 16, "": 16}
    assert facts["sparsity"]["total"]["dense"] == 32  # as Distiller's table has it: a row for each name


@slow
def test_a_program_has_the_layers_and_the_macs_of_its_module(nets: Path) -> None:
    given = loaded(nets, "convolutions", np.zeros((2, 8, 10, 12), np.float32))
    program = trace.run(Request(given, made(nets, "program"), {"dynamic": {}}))
    before, after = (
        analyze.run(Request({**given, "model": model}, made(nets, f"out-{model.kind}"))).facts
        for model in (given["model"], program)
    )
    for key in ("parameters", "macs", "activation_bytes", "bytes"):
        assert after["total"][key] == before["total"][key]
    assert [r["name"].removeprefix("net.") for r in after["layers"]] == ["grouped", "depthwise", "transposed"]
    assert after["sparsity"]["total"] == before["sparsity"]["total"]


@slow
def test_a_scripted_part_counts_as_what_calls_it(nets: Path) -> None:
    facts = looked(nets, "scripted", 8)
    assert [(row["name"], row["macs"]) for row in facts["layers"] if row["macs"]] == [("", 64), ("plain", 24)]


# --------------------------------------------------------------------------- files


@slow
def test_what_only_a_run_sizes_is_left_out_and_named(tmp_path: Path) -> None:
    """A sequence of tensors, a product whose size its data decide, one of known sizes."""
    import onnx
    from onnx import helper

    weights = [onnx.numpy_helper.from_array(np.ones(shape, np.float32), name) for name, shape in SIZED.items()]
    numbers = [onnx.numpy_helper.from_array(np.array(n, np.int64), f"n{n}") for n in (1, 4)]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], "known"),
        helper.make_node("SplitToSequence", ["y", "n4"], ["parts"], "split", axis=1),
        helper.make_node("SequenceAt", ["parts", "n1"], ["part"], "at"),
        helper.make_node("MatMul", ["part", "v"], ["z"], "product", domain="elsewhere"),
        helper.make_node("MatMul", ["z", "v"], ["out"], "last"),
    ]
    ends = [helper.make_tensor_value_info(n, 1, shape) for n, shape in (("x", [1, 8]), ("out", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [*weights, *numbers])
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("elsewhere", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets, ir_version=8), tmp_path / "model.onnx")
    model = Artifact(tmp_path, "onnx", (TensorSpec("x", (1, 8)),), (TensorSpec("out", (1, 4)),)).write()
    facts = analyze.run(Request({"model": model}, made(tmp_path, "out"))).facts
    assert {row["name"]: row["macs"] for row in facts["layers"]} == {
        "known": 64,
        "split": 0,
        "at": 0,
        **dict.fromkeys(("product", "last"), None),
    }
    assert facts["total"]["unknown"] == ["product", "last"] and "parts" in facts["total"]["unsized"]
    assert facts["total"]["parameters"] == 64 + 16


SIZED = {"w": (8, 8), "v": (4, 4)}


@slow
def test_an_onnx_file_has_the_macs_and_weights_of_the_net_it_came_from(nets: Path) -> None:
    from edgecompress.engines.onnx.runtimes import onnx

    given = loaded(nets, "resnet20", np.zeros((2, 3, 32, 32), np.float32))
    program = trace.run(Request(given, made(nets, "program"), {"dynamic": {}}))
    exported = onnx.export(Request({"model": program}, made(nets, "onnx"), {}))
    facts = analyze.run(Request({"model": exported}, made(nets, "out"))).facts
    assert facts["total"]["macs"] == 40_813_184
    assert facts["sparsity"]["total"]["dense"] == 270_896
    assert [10, 64] in [row["shape"] for row in facts["sparsity"]["rows"]]


@slow
@pytest.mark.shared
def test_a_tflite_file_is_analyzed_without_data(nets: Path, shared_data: Path, capsys: Told) -> None:
    file = shared_data / "models" / "vww_96_float.tflite"
    assert main.main(["analyze", str(file), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["total"]["macs"] == 7_489_664  # MLPerf Tiny's visual wake words, by edgecompress.formats.op_counts
    shapes = {tuple(row["shape"]) for row in facts["sparsity"]["rows"]}
    assert (8, 3, 3, 3) in shapes and (8, 1, 3, 3) in shapes


# --------------------------------------------------------------------------- sensitivity


def sensed(folder: Path, other: dict[str, Artifact] | None = None, **asked: Any) -> dict[str, Any]:
    """The facts of the stage on the net of two heads, whose labels are what it says itself."""
    import torch

    data = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    given = loaded(folder, "heads", data, np.zeros(20, np.int64))
    net = torch_module.rebuild(given["model"])
    with torch.no_grad():
        np.save(given["samples"].path / "select" / "labels.npy", net(torch.from_numpy(data)).argmax(1).numpy())
    known = {
        "by": "ratio",
        "structure": "element",
        "layers": [],
        "levels": [0.25, 0.75],
        "items": 16,
        "metric": "top1",
        "csv": False,
    }
    return dict(analyze.sense(Request({**given, **(other or {})}, made(folder, "out"), {**known, **asked})).facts)


def watched(folder: Path, net: str, data: Any, **asked: Any) -> dict[str, Any]:
    given = loaded(folder, net, data)
    return dict(analyze.watch(Request(given, made(folder, "out"), {"layers": [], "items": 16, **asked})).facts)


@slow
def test_what_layers_give_is_counted_with_what_a_forward_cuts_off(nets: Path) -> None:
    import torch

    data = np.random.default_rng(0).normal(size=(20, 2, 4, 4)).astype(np.float32)
    facts = watched(nets, "cut", data)
    rows = {row["name"]: row for row in facts["layers"]}
    assert list(rows) == ["wide", "Cut: relu", "Cut: relu 2", "act"]
    assert (facts["items"], facts["split"]) == (16, "select")
    torch.manual_seed(0)
    wide = torch.nn.Conv2d(2, 3, 1)
    with torch.no_grad():
        given = wide(torch.from_numpy(data[:16]))
    first, second = given.relu(), (given.relu() - 0.5).relu()
    assert rows["wide"]["mean"] == pytest.approx(float(given.mean()), abs=1e-6)
    assert rows["wide"]["std"] == pytest.approx(float(given.std(correction=0)), rel=1e-5)
    assert (rows["wide"]["min"], rows["wide"]["max"]) == pytest.approx((float(given.min()), float(given.max())))
    expected = np.percentile(given.numpy(), [1, 50, 99], method="inverted_cdf")
    assert rows["wide"]["percentiles"] == pytest.approx(list(expected), abs=float(given.max() - given.min()) / 500)
    for row, made_of in ((rows["Cut: relu"], first), (rows["Cut: relu 2"], second)):
        zeros = made_of == 0
        assert row["zeros"] == pytest.approx(float(zeros.float().mean()))
        assert row["apoz"] == pytest.approx(float(zeros.transpose(0, 1).flatten(1).float().mean(1).max()))
        assert sum(row["histogram"]) == int((~zeros).sum())
        assert row["percentiles"][0] == 0
    assert rows["act"]["type"] == "ReLU"


@slow
def test_features_of_a_sequence_are_its_channels(nets: Path) -> None:
    rows = {r["name"]: r for r in watched(nets, "sequence", np.ones((4, 6, 5), np.float32))["layers"]}
    assert (rows["rnn"]["channels"], rows["gru"]["channels"]) == (7, 4)


@slow
def test_layers_whose_activations_are_asked_for_are_named(nets: Path) -> None:
    data = np.ones((4, 2, 4, 4), np.float32)
    chosen = watched(nets, "cut", data, layers=["*relu*"])["layers"]
    assert [row["name"] for row in chosen] == ["Cut: relu", "Cut: relu 2"]
    with pytest.raises(InputError, match="--layers widde: no such layer, did you mean 'wide'"):
        watched(nets / "b", "cut", data, layers=["widde"])


@slow
def test_the_layer_that_decides_is_the_sensitive_one(nets: Path) -> None:
    facts = sensed(nets)
    assert facts["order"] == ["loud", "mute"]
    assert (facts["baseline"], facts["items"], facts["split"]) == (1.0, 16, "select")
    loud, mute = (facts["layers"][name] for name in ("loud", "mute"))
    assert loud[1]["metric"] < mute[1]["metric"] == 1.0
    assert loud[1]["sqnr_db"] < loud[0]["sqnr_db"] < mute[1]["sqnr_db"]


@slow
def test_the_rows_of_distillers_file_begin_with_the_net_as_it_is(nets: Path) -> None:
    rows = sensed(nets, csv=True, layers=["loud"])["csv"]
    assert [row[:2] for row in rows] == [["loud.weight", 0.0], ["loud.weight", 0.25], ["loud.weight", 0.75]]
    assert rows[0][2:4] == [100.0, 100.0] and rows[2][2] < 100.0 < 101.0 > rows[2][3]
    assert rows[0][4] < rows[2][4]


@slow
def test_distillers_file_has_each_word_of_a_language_model() -> None:
    bench = object.__new__(sensitivity._Bench)
    bench.labels = np.array([[0, 1, 2], [2, 2, 0]])
    logits = np.eye(4, dtype=np.float32)[[[0, 1, 1], [2, 2, 2]]] * 5
    top1, top4, loss = bench.of_classes({"output": logits})
    right = 5 - np.log(np.exp(5) + 3)
    assert (top1, top4) == (pytest.approx(100 * 4 / 6), 100.0)
    assert loss == pytest.approx(-(4 * right + 2 * (right - 5)) / 6, abs=1e-5)
    assert bench.of_classes({"output": logits.transpose(0, 2, 1)}) == [top1, top4, loss]


SIMPLENET = {"conv1": 352_800, "conv2": 240_000, "fc1": 48_000, "fc2": 10_080, "fc3": 840}  # of Distiller's own tests


@slow
def test_distillers_summaries_have_its_figures(nets: Path) -> None:
    import torch

    given = loaded(nets, "edgecompress.schedules.nets:simplenet_cifar", np.zeros((2, 3, 32, 32), np.float32))
    asked = {"names": ["compute", "modules", "percentile", "model"], "percentile": 0.9}
    facts = dict(analyze.summarize(Request(given, made(nets, "out"), asked)).facts)
    assert {row["name"]: row["macs"] for row in facts["compute"]} == SIMPLENET
    first = facts["compute"][0]
    assert (first["attrs"], first["ifm"], first["ofm"]) == ("k=(5, 5)", [1, 3, 32, 32], [1, 6, 28, 28])
    assert first["weights"] == 450
    assert facts["modules"][:3] == [
        {"name": "conv1", "type": "Conv2d"},
        {"name": "relu_conv1", "type": "ReLU"},
        {"name": "pool1", "type": "MaxPool2d"},
    ]
    assert facts["model"] == str(torch_module.rebuild(given["model"]))
    weight = torch_module.rebuild(given["model"]).fc1.weight.detach().abs().flatten()
    below = torch.topk(weight, int(0.9 * weight.numel()), largest=False).values  # as its tutorial finds q
    assert facts["percentile"]["fc1.weight"] == float(below[-1])
    again = loaded(nets / "b", "edgecompress.schedules.nets:resnet20_cifar", np.zeros((2, 3, 32, 32), np.float32))
    found = analyze.summarize(Request(again, made(nets, "b/out"), {"names": ["compute"], "percentile": 0.9})).facts
    assert sum(row["macs"] for row in found["compute"]) == 40_813_184


@slow
def test_the_histogram_of_a_weight_is_of_what_is_not_zero(nets: Path) -> None:
    weight = np.array([[0.0, 1.0], [2.0, np.nan]], np.float32)
    row = analyze.weights.histogram("w", weight)
    assert (row["elements"], row["zeros"], row["min"], row["max"]) == (4, 0.25, 1.0, 2.0)
    assert (row["histogram"][0], row["histogram"][-1], sum(row["histogram"])) == (1, 1, 2)
    assert not any(analyze.weights.histogram("w", np.ones((2, 2)))["histogram"])


@slow
def test_a_layer_is_itself_again_before_the_next_is_tried(nets: Path) -> None:
    alone = sensed(nets / "a", layers=["mute"])
    assert sensed(nets / "b")["layers"]["mute"] == alone["layers"]["mute"]
    assert list(alone["layers"]) == ["mute"]


@slow
def test_fewer_bits_make_more_noise(nets: Path) -> None:
    points = sensed(nets, by="bits", levels=[8, 4, 2], layers=["lou*"])["layers"]["loud"]
    noise = [point["sqnr_db"] for point in points]
    assert noise == sorted(noise, reverse=True) and noise[0] > 35


@slow
def test_a_layer_that_is_not_there_is_refused_with_the_nearest(nets: Path) -> None:
    with pytest.raises(InputError, match="--layers lowd: no such layer with a weight, did you mean 'loud'"):
        sensed(nets, layers=["lowd"])


@slow
def test_the_sensitivity_of_a_tflite_file_is_refused_by_name(nets: Path) -> None:
    given = loaded(nets, "heads", np.zeros((2, 4), np.float32))
    model = dataclasses.replace(given["model"], kind="tflite")
    with pytest.raises(InputError, match=r"--sensitivity needs a factory, a \.pt2 or an \.onnx, not kind 'tflite'"):
        analyze.sense(Request({**given, "model": model}, nets, {}))


@slow
@pytest.mark.parametrize("structure", sparsity.STRUCTURES)
def test_an_onnx_file_minds_as_its_net_does(nets: Path, structure: str) -> None:
    """Its matrices are stored the other way round: filters and channels must not change places."""
    import onnx

    points = sensed(nets / "torch", structure=structure)["layers"]
    given = loaded(nets / "onnx", "heads", np.zeros((2, 4), np.float32))
    state = torch_module.rebuild(given["model"]).state_dict()
    helper = onnx.helper
    weights = [
        onnx.numpy_helper.from_array(state[f"{n}.weight"].numpy().T.copy(), f"{n}.weight") for n in ("mute", "loud")
    ]
    nodes = [helper.make_node("MatMul", ["x", w.name], [w.name[:4]]) for w in weights]
    nodes.append(helper.make_node("Add", ["loud", "mute"], ["output"]))
    x, y = (helper.make_tensor_value_info(n, 1, ["batch", size]) for n, size in (("x", 4), ("output", 3)))
    graph = helper.make_graph(nodes, "g", [x], [y], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10),
        made(nets, "file") / "model.onnx",
    )
    model = Artifact(nets / "file", "onnx", given["model"].inputs, given["model"].outputs).write()
    found = sensed(nets / "again", {"model": model}, structure=structure)["layers"]
    for layer in points:
        for before, after in zip(points[layer], found[layer], strict=True):
            assert after["sqnr_db"] == pytest.approx(before["sqnr_db"], abs=0.5)


# --------------------------------------------------------------------------- the command


@slow
def test_the_demo_is_analyzed_through_the_store_and_found_there_again(
    nets: Path, shared_store: Path, capsys: Told
) -> None:
    words = ["analyze", "--sensitivity", "ratio", "--layers", "head", "--levels", "0.5", "--items", "8"]
    words += ["--store", str(shared_store)]
    assert main.main([*words, "--html", "out/a.html", "--json", "--device", "host,rpi5"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["total"]["macs"] == 14_193_280
    assert [device["name"] for device in facts["devices"]] == ["host", "rpi5"]
    assert facts["devices"][1]["memory_bound"] == ["stem", "head"]
    assert (nets / "out" / "a.html").read_text().startswith("<!doctype html>")
    assert main.main([*words, "-v"]) == 0
    told = capsys.readouterr().out
    assert "hit   analysis" in told and "hit   sensitivity" in told
    assert "Handwritten digits: 223,306 parameters, 14,193,280 MACs" in told
    assert "top1 on 8 items of split 'select'" in told
