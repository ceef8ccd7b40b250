"""Equalization: the published scales, the same function, what is left alone, and a planted disaster mended."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from test_examples import net as example
from test_low_rank import source
from torch import nn
from torch.nn import functional as F

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import ptq_int8
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.techniques import _torch_graph, equalize

pytestmark = pytest.mark.slow


def conv(inputs: int, outputs: int, groups: int = 1, **options: Any) -> nn.Sequential:
    """A convolution and its norm, as if trained."""
    layer = nn.Conv2d(inputs, outputs, 3, padding=1, groups=groups, bias=False, **options)
    norm = nn.BatchNorm2d(outputs)
    for tensor, low, high in ((norm.weight, 0.5, 2), (norm.running_var, 0.5, 2), (norm.bias, -1, 1)):
        nn.init.uniform_(tensor, low, high)
    nn.init.normal_(norm.running_mean, std=0.2)
    return nn.Sequential(layer, norm)


class Depthwise(nn.Module):  # type: ignore[misc]
    """Expand, depthwise, project, a head; one channel 100 times as large, which what reads it makes up for."""

    def __init__(self, disaster: bool, cut: bool = False) -> None:
        super().__init__()
        self.act = F.relu6 if cut else F.relu
        self.expand, self.depthwise, self.project = conv(3, 16), conv(16, 16, groups=16), nn.Conv2d(16, 8, 1)
        self.head = nn.Linear(8 if cut else 8 * 9 * 9, 10)
        if disaster:
            with torch.no_grad():
                self.depthwise[1].weight[5] *= 100
                self.depthwise[1].bias[5] *= 100
                self.project.weight[:, 5] /= 100

    def forward(self, image: Any) -> Any:
        x = F.pad(self.act(self.expand(image)), (0, 1, 0, 1))
        x = self.act(self.project(self.act(self.depthwise(x))))
        return self.head(x.mean(dim=(2, 3)) if self.act is F.relu6 else x.flatten(1))


class Forks(nn.Module):  # type: ignore[misc]
    """What ends a chain: an addition, a concatenation, another activation; and one layer with two readers."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body, self.curved = conv(3, 8), conv(8, 8), nn.Conv2d(8, 8, 1)
        self.squeeze, self.left, self.right = (nn.Conv2d(8, 8, 1) for _ in range(3))
        self.tied, self.head = nn.Linear(16, 16), nn.Linear(16 * 64, 10)

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.stem(image))
        x = torch.sigmoid(self.curved(x + self.body(x)))
        x = torch.relu(self.squeeze(x))
        x = torch.cat([F.leaky_relu(self.left(x)), self.right(x)], dim=1).flatten(2).transpose(1, 2)
        return self.head(self.tied(self.tied(x)).flatten(1))


class Recurrent(nn.Module):  # type: ignore[misc]
    """An LSTM, and two products behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.wide, self.head = nn.LSTM(8, 12, batch_first=True), nn.Linear(12, 24), nn.Linear(24, 4)

    def forward(self, image: Any) -> Any:
        return self.head(torch.relu(self.wide(self.rnn(image.flatten(1, 2))[0])))


def recurrent() -> nn.Module:
    torch.manual_seed(0)
    return Recurrent().eval()


def depthwise() -> nn.Module:
    torch.manual_seed(0)
    return Depthwise(False).eval()


def disaster() -> nn.Module:
    torch.manual_seed(0)
    return Depthwise(True).eval()


def cut() -> nn.Module:
    torch.manual_seed(0)
    net = Depthwise(False, cut=True)
    with torch.no_grad():  # most channels stay far below 6, one is cut
        net.expand[1].weight *= 0.2
        net.expand[1].bias[3] += 9
    return net.eval()


def forks() -> nn.Module:
    torch.manual_seed(0)
    return Forks().eval()


def sigmoids() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.Sigmoid(), nn.Conv2d(8, 4, 3)).eval()


def made(net: str, folder: Path, **options: Any) -> tuple[Artifact, dict[str, Artifact]]:
    inputs = source(f"{__name__}:{net}", folder, images())
    (folder / "made").mkdir()
    return equalize.apply(Request(inputs, folder / "made", equalize.Options(**options))), inputs


def images() -> dict[str, Any]:
    return {"image": np.random.default_rng(0).normal(size=(32, 3, 8, 8)).astype(np.float32)}


def answers(artifact: Artifact, samples: Artifact) -> torch.Tensor:
    items = torch_module.example(artifact, samples, 32)
    return torch_module.outputs(torch_module.rebuild(artifact), artifact, items)["output"]


# --------------------------------------------------------------------------- the formula


def test_scales_are_those_of_the_paper() -> None:
    """Nagel et al. 2019, eq. 11: s = sqrt(r1 r2) / r2; after it both ranges are sqrt(r1 r2)."""
    first, second = torch.tensor([8.0, 0.5, 0.0, 3.0]), torch.tensor([2.0, 2.0, 1.0, 0.0])
    assert equalize.scales(first, second).tolist() == [2.0, 0.5, 1.0, 1.0]


ranges = st.lists(st.tuples(st.floats(1e-6, 1e6), st.floats(1e-6, 1e6)), min_size=1, max_size=20)


@given(ranges)
@settings(deadline=None)
def test_scaled_ranges_are_alike_and_their_product_is_what_it_was(pairs: list[tuple[float, float]]) -> None:
    first, second = torch.tensor(pairs, dtype=torch.float64).T
    s = equalize.scales(first, second)
    torch.testing.assert_close(first / s, second * s)
    torch.testing.assert_close(first / s, (first * second).sqrt())


def test_how_far_channels_go_towards_a_cut() -> None:
    values = torch.tensor([[3.0, -9.0], [1.0, -0.5], [-1.0, -2.0]])
    assert equalize.reach(values, 0.0, 6.0).tolist() == [0.5, pytest.approx(1 / 6), 0.0]
    assert equalize.reach(values, -1.0, 2.0).tolist() == [9.0, 0.5, 2.0]


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.randoms())
@settings(deadline=None)
def test_a_grouped_weight_is_read_by_its_inputs(groups: int, outputs: int, inputs: int, random: Any) -> None:
    layer = nn.Conv2d(groups * inputs, groups * outputs, 3, groups=groups, bias=False)
    s = torch.tensor([random.uniform(0.1, 10) for _ in range(groups * inputs)])
    x = torch.randn(1, groups * inputs, 5, 5)
    expected = layer(x * s.reshape(1, -1, 1, 1))
    with torch.no_grad():
        view = _torch_graph.by_input(layer.weight, groups, groups * inputs)
        view *= s.reshape(groups, 1, inputs, 1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-4)


# --------------------------------------------------------------------------- whole nets


def test_a_chain_of_three_is_equalized_and_computes_the_same(tmp_path: Path) -> None:
    found, inputs = made("disaster", tmp_path, bias_correction=False)
    pairs = {pair["first"]: pair for pair in found.facts["pairs"]}
    assert {name: pair["readers"] for name, pair in pairs.items()} == {
        "expand.0": ["depthwise.0"],
        "depthwise.0": ["project"],
        "project": ["head"],
    }
    assert found.facts["left"] == {"head": "it is an output of the model"}
    assert pairs["depthwise.0"]["spread"][0] > 20 > 4 > pairs["depthwise.0"]["spread"][1]
    before = answers(inputs["model"], inputs["samples"])
    torch.testing.assert_close(answers(found, inputs["samples"]), before, rtol=1e-4, atol=1e-4)
    assert found.facts["moved"] < 1e-5
    flow = _torch_graph.Flow(torch_module.rebuild(found), Request({**inputs, "model": found}, tmp_path))
    first, second, third = (equalize._folded(flow, layer) for layer in flow.layers[:3])
    ranges = [w.abs().flatten(1).amax(1) for w in (first, second)] + [third.abs().amax((0, 2, 3))]
    torch.testing.assert_close(ranges[0], ranges[1], rtol=1e-2, atol=0)
    torch.testing.assert_close(ranges[1], ranges[2], rtol=1e-2, atol=0)


def test_a_channel_that_is_cut_is_left_and_the_others_stay_below(tmp_path: Path) -> None:
    found, inputs = made("cut", tmp_path, bias_correction=False)
    pair = found.facts["pairs"][0]
    assert pair["first"] == "expand.0"
    assert 1 <= pair["cut"] < 16
    assert pair["scaled"] <= 16 - pair["cut"]
    assert found.facts["moved"] < 1e-5
    net = torch_module.rebuild(found)
    highest = net.expand(torch.from_numpy(images()["image"])).amax(dim=(0, 2, 3))
    was = torch_module.rebuild(inputs["model"]).expand(torch.from_numpy(images()["image"])).amax(dim=(0, 2, 3))
    assert (highest[was < 6 / equalize.HEADROOM] < 6 / equalize.HEADROOM + 1e-3).all()
    torch.testing.assert_close(highest[was >= 6 / equalize.HEADROOM], was[was >= 6 / equalize.HEADROOM])


def test_what_ends_a_chain_is_named_and_two_readers_get_one_scale(tmp_path: Path) -> None:
    found, _ = made("forks", tmp_path, bias_correction=False)
    assert [(pair["first"], pair["readers"]) for pair in found.facts["pairs"]] == [("squeeze", ["left", "right"])]
    assert found.facts["left"] == {
        "stem.0": "add and conv2d read it",
        "body.0": "'add' reads it",
        "curved": "'sigmoid' reads it",
        "left": "'cat' reads it",
        "right": "'cat' reads it",
        "tied": "its weight is shared with other layers",
        "head": "it is an output of the model",
    }


def test_products_behind_an_lstm_are_equalized(tmp_path: Path) -> None:
    found, inputs = made("recurrent", tmp_path, bias_correction=False)
    assert [(pair["first"], pair["readers"]) for pair in found.facts["pairs"]] == [("wide", ["head"])]
    before = answers(inputs["model"], inputs["samples"])
    torch.testing.assert_close(answers(found, inputs["samples"]), before, rtol=1e-4, atol=1e-5)


def test_nothing_to_equalize_is_lost_and_the_weights_stay(tmp_path: Path) -> None:
    found, inputs = made("sigmoids", tmp_path, bias_correction=False)
    assert found.facts["lost"].startswith("no two layers to equalize: 0: 'sigmoid' reads it")
    before, after = (torch_module.rebuild(each).state_dict() for each in (inputs["model"], found))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_net_whose_outputs_change_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(equalize, "_outgoing", lambda layer: [])
    with pytest.raises(StageFailed, match="rescaling changed the net's outputs"):
        made("depthwise", tmp_path)


# --------------------------------------------------------------------------- bias correction


def test_after_bias_correction_the_rounded_net_has_the_means_of_the_exact_one(tmp_path: Path) -> None:
    found, inputs = made("depthwise", tmp_path, weight_bits=4)
    assert set(found.facts["corrected"]) == {"expand.0", "depthwise.0", "project", "head"}
    mean = answers(inputs["model"], inputs["samples"]).mean(0)

    def rounded_mean(artifact: Artifact) -> torch.Tensor:
        net = rounded(torch_module.rebuild(artifact), 4)
        return torch_module.outputs(net, artifact, torch_module.example(artifact, inputs["samples"], 32))[
            "output"
        ].mean(0)

    torch.testing.assert_close(rounded_mean(found), mean, rtol=1e-3, atol=1e-4)
    assert float((rounded_mean(inputs["model"]) - mean).abs().max()) > 0.01


def test_a_layer_without_a_bias_is_told(tmp_path: Path) -> None:
    inputs = source(f"{__name__}:sigmoids", tmp_path, images())
    net = torch_module.rebuild(inputs["model"])
    net[2].bias = None
    flow = _torch_graph.Flow(net, Request(inputs, tmp_path))
    facts = equalize.corrected(flow, flow.batches(8), 8)
    assert set(facts["corrected"]) == {"0"}
    assert facts["uncorrected"] == {"2": "it has no bias"}


@given(st.lists(st.lists(st.floats(-10, 10, width=32), min_size=4, max_size=4), min_size=1, max_size=5))
@settings(deadline=None)
def test_rounded_weights_keep_the_largest_of_each_channel_and_round_to_themselves(rows: list[list[float]]) -> None:
    weight = torch.tensor(rows)
    for bits in (8, 4):
        found = _torch_graph.rounded(weight, bits)
        torch.testing.assert_close(found.abs().amax(1), weight.abs().amax(1))
        torch.testing.assert_close(_torch_graph.rounded(found, bits), found)
        assert ((found - weight).abs() <= _torch_graph.steps(weight, bits) * 0.501).all()


def rounded(net: nn.Module, bits: int) -> nn.Module:
    """The net with its weights as a quantizer has them."""
    for layer in (each for each in net.modules() if isinstance(each, (nn.Conv2d, nn.Linear))):
        layer.weight.data = _torch_graph.rounded(layer.weight.data, bits)
    return net


@pytest.mark.shared
def test_resnet20_with_rounded_weights_comes_nearer_to_itself_on_images_it_has_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "example_resnet20", net := example("resnet20"))
    mean, std = (np.array(row)[:, None, None] for row in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    calibrate, unseen = (
        np.stack([((image / 255).transpose(2, 0, 1) - mean) / std for image, _ in itertools.islice(items, 64)])
        for items in (net.data("calibrate"), net.data("test"))
    )
    inputs = source("example_resnet20:build", tmp_path, {"image": calibrate.astype(np.float32)})
    (tmp_path / "made").mkdir()
    found = equalize.apply(Request(inputs, tmp_path / "made", equalize.Options()))
    assert {pair["first"]: pair["readers"] for pair in found.facts["pairs"]} == {
        f"layer{i}.{j}.conv1": [f"layer{i}.{j}.conv2"] for i in (1, 2, 3) for j in (0, 1, 2)
    }
    x = torch.from_numpy(unseen.astype(np.float32))
    with torch.no_grad():
        exact = torch_module.rebuild(inputs["model"])(x)
        errors = [
            float((rounded(torch_module.rebuild(each), 8)(x) - exact).square().mean())
            for each in (inputs["model"], found)
        ]
    assert errors[1] < 0.8 * errors[0]


@pytest.mark.parametrize("wrong", [{"weight_bits": 5}, {"samples": 0}])
def test_options_out_of_range_are_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        equalize.Options(**wrong)


# --------------------------------------------------------------------------- under int8


def sqnr_db(model: Artifact, inputs: Mapping[str, Artifact], folder: Path) -> float:
    """Of the net under ptq_int8, in ONNX Runtime, against the net as it came."""
    for step in ("program", "onnx", "int8"):
        (folder / step).mkdir(parents=True)
    samples = inputs["samples"]
    program = trace.run(Request({"model": model, "samples": samples}, folder / "program", {}))
    exported = ort.export(Request({"model": program, "samples": samples}, folder / "onnx"))
    quantized = {"model": exported, "samples": samples}
    artifact = ptq_int8.apply(Request(quantized, folder / "int8", ptq_int8.Options()))
    session = ort.open(artifact, 1)
    found = np.concatenate([session.run(item)["output"] for item in tensors.batches(samples, "test", model=artifact)])
    session.close()
    exact = answers(inputs["model"], samples).numpy()
    return float(10 * np.log10((exact**2).sum() / ((found - exact) ** 2).sum()))


@pytest.mark.skipif(vectors.adds_in_16_bits(), reason=vectors.WHY)
def test_equalize_mends_a_channel_that_was_blown_up_a_hundredfold(tmp_path: Path) -> None:
    found, inputs = made("disaster", tmp_path / "net")
    plain, mended = sqnr_db(inputs["model"], inputs, tmp_path / "plain"), sqnr_db(found, inputs, tmp_path / "mended")
    assert plain < 20
    assert mended > plain + 10
    assert mended > 25
