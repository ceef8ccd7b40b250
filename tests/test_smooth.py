"""SmoothQuant: the published example, attention nets of several builds, the same function, what is left alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import vectors
from hypothesis import given, settings
from hypothesis import strategies as st
from test_equalize import answers, sqnr_db
from test_low_rank import source
from torch import nn
from torch.nn import functional as F

from edgecompress.core.errors import StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module
from edgecompress.techniques import _torch_graph, smooth

pytestmark = pytest.mark.slow
STEPS, WIDTH = 6, 16


class Attention(nn.Module):  # type: ignore[misc]
    """Attention of two heads with four products; `mixed`: its heads lie in another order behind it."""

    def __init__(self, mixed: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.mixed = mixed

    def forward(self, x: Any) -> Any:
        q, k, v = (
            layer(x).reshape(-1, STEPS, 2, WIDTH // 2).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        seen = (torch.softmax(q @ k.transpose(2, 3) / 3, dim=3) @ v).transpose(1, 2)
        seen = seen.transpose(2, 3) if self.mixed else seen
        return self.out(seen.reshape(-1, STEPS, WIDTH))


class Encoder(nn.Module):  # type: ignore[misc]
    """Norms before (GPT's way) or behind the shortcuts (BERT's), a channel of the first norm that stands out."""

    def __init__(self, before: bool, mixed: bool = False) -> None:
        super().__init__()
        self.before = before
        self.norm1, self.norm2, self.attention = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH), Attention(mixed)
        self.wide, self.narrow = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)
        with torch.no_grad():
            self.norm1.weight[3] = 60
            for layer in (self.attention.query, self.attention.key, self.attention.value):
                layer.weight[:, 3] /= 60

    def forward(self, image: Any) -> Any:
        if self.before:
            x = image + self.attention(self.norm1(image))
            return x + self.narrow(F.gelu(self.wide(self.norm2(x))))
        x = self.norm1(image + self.attention(image))
        return self.norm2(x + self.narrow(F.gelu(self.wide(x))))


class Scales(nn.Module):  # type: ignore[misc]
    """A scale of each feature before a product, and a product before a ReLU before a product."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(WIDTH) + 0.5)
        self.first, self.second = nn.Linear(WIDTH, 24), nn.Linear(24, 8)

    def forward(self, image: Any) -> Any:
        return self.second(torch.relu(self.first(torch.tanh(image) * self.scale)))


def seeded(build: Any) -> nn.Module:
    torch.manual_seed(0)
    return build().eval()  # type: ignore[no-any-return]


def norms_before() -> nn.Module:
    return seeded(lambda: Encoder(True))


def norms_behind() -> nn.Module:
    return seeded(lambda: Encoder(False))


def other_order() -> nn.Module:
    return seeded(lambda: Encoder(True, mixed=True))


def scaled() -> nn.Module:
    return seeded(Scales)


def torchs_own() -> nn.Module:
    return seeded(lambda: nn.TransformerEncoderLayer(WIDTH, 2, 32, norm_first=True, batch_first=True))


def convolutions() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Conv1d(STEPS, 4, 3), nn.ReLU(), nn.Conv1d(4, 2, 3)))


def made(net: str, folder: Path, **options: Any) -> tuple[Artifact, dict[str, Artifact]]:
    arrays = {"image": np.random.default_rng(0).normal(size=(32, STEPS, WIDTH)).astype(np.float32)}
    inputs = source(f"{__name__}:{net}", folder, arrays)
    (folder / "made").mkdir()
    return smooth.apply(Request(inputs, folder / "made", smooth.Options(**options))), inputs


# --------------------------------------------------------------------------- the formula


def test_factors_are_those_of_the_papers_example() -> None:
    """Xiao et al. 2023, figure 5: X, W, and what they are smoothed to with alpha 0.5."""
    x = torch.tensor([[1.0, -16, 2, 6], [-2, 8, -1, -9]])
    w = torch.tensor([[2.0, 1, -2], [1, -1, -1], [2, -1, -2], [-1, -1, 1]])
    s = smooth.factors(x.abs().amax(0), w.abs().amax(1), 0.5)
    assert s.tolist() == [1.0, 4.0, 1.0, 3.0]
    assert (x / s).tolist() == [[1, -4, 2, 2], [-2, 2, -1, -3]]
    assert (w * s[:, None]).tolist() == [[2, 1, -2], [4, -4, -4], [2, -1, -2], [-3, -3, 3]]


maxima = st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=1, max_size=20)


@given(maxima, st.floats(0, 1))
@settings(deadline=None)
def test_smoothed_maxima_share_their_product_as_alpha_says(pairs: list[tuple[float, float]], alpha: float) -> None:
    x, w = torch.tensor(pairs, dtype=torch.float64).T
    s = smooth.factors(x, w, alpha)
    torch.testing.assert_close(x / s, (x * w) ** (1 - alpha))
    torch.testing.assert_close(w * s, (x * w) ** alpha)


def test_a_channel_that_is_never_used_is_left() -> None:
    zero, one = torch.zeros(1), torch.ones(1)
    assert smooth.factors(torch.cat([zero, one, zero]), torch.cat([one * 3, zero, zero]), 0.5).tolist() == [1, 1, 1]


# --------------------------------------------------------------------------- whole nets


@pytest.mark.parametrize(
    ("net", "places"),
    [
        (
            "norms_before",
            {
                "norm1": ["attention.query", "attention.key", "attention.value"],
                "attention.value": ["attention.out"],
                "norm2": ["wide"],
            },
        ),
        ("norms_behind", {"attention.value": ["attention.out"]}),
        ("other_order", {"norm1": ["attention.query", "attention.key", "attention.value"], "norm2": ["wide"]}),
        ("scaled", {"scale": ["first"], "first": ["second"]}),
        ("torchs_own", {"norm1": ["self_attn.in_proj_weight"], "norm2": ["linear1"], "linear1": ["linear2"]}),
    ],
)
def test_a_net_is_smoothed_where_it_can_be_and_computes_the_same(
    net: str, places: Mapping[str, Any], tmp_path: Path
) -> None:
    found, inputs = made(net, tmp_path)
    assert {each["by"]: each["layers"] for each in found.facts["smoothed"]} == places
    assert found.facts["moved"] < 1e-5
    before = answers(inputs["model"], inputs["samples"])
    torch.testing.assert_close(answers(found, inputs["samples"]), before, rtol=1e-4, atol=1e-4)
    assert all(each["outlier"][1] <= each["outlier"][0] for each in found.facts["smoothed"] if each["by"] == "norm1")


def test_the_maxima_of_what_several_products_share_are_smoothed_together(tmp_path: Path) -> None:
    found, inputs = made("norms_before", tmp_path, alpha=0.3)
    nets = [torch_module.rebuild(each) for each in (inputs["model"], found)]
    image = torch.from_numpy(np.random.default_rng(0).normal(size=(32, STEPS, WIDTH)).astype(np.float32))
    parts = ("query", "key", "value")
    x = nets[0].norm1(image).abs().amax((0, 1))
    w = torch.stack([getattr(nets[0].attention, part).weight.abs().amax(0) for part in parts]).amax(0)
    torch.testing.assert_close(nets[1].norm1(image).abs().amax((0, 1)), x / smooth.factors(x, w, 0.3))


def test_shortcuts_behind_a_norm_keep_it_as_it_is(tmp_path: Path) -> None:
    found, _ = made("norms_behind", tmp_path)
    assert found.facts["left"]["norm1"] == "add and linear read it"
    assert found.facts["left"]["norm2"] == "it is an output of the model"
    assert found.facts["left"]["wide"] == "'gelu' reads it"


def test_nothing_to_smooth_is_lost_and_the_weights_stay(tmp_path: Path) -> None:
    found, inputs = made("convolutions", tmp_path)
    assert found.facts["lost"] == "no matrix product to smooth: the net has no norm before one"
    before, after = (torch_module.rebuild(each).state_dict() for each in (inputs["model"], found))
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_net_whose_outputs_change_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_torch_graph.Flow, "divide", lambda flow, names, scale: None)
    with pytest.raises(StageFailed, match="rescaling changed the net's outputs"):
        made("scaled", tmp_path)


@pytest.mark.skipif(vectors.adds_in_16_bits(), reason=vectors.WHY)
def test_int8_loses_less_of_a_smoothed_net(tmp_path: Path) -> None:
    found, inputs = made("norms_before", tmp_path / "net")
    plain, mended = sqnr_db(inputs["model"], inputs, tmp_path / "plain"), sqnr_db(found, inputs, tmp_path / "mended")
    assert mended > plain + 3


@pytest.mark.parametrize("wrong", [{"alpha": 1.5}, {"samples": 0}])
def test_options_out_of_range_are_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        smooth.Options(**wrong)
