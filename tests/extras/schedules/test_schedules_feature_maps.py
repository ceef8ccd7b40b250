"""Channels that go, and weights fitted to what a layer computed: the same where what stays has all that went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules.scheduler import CompressionScheduler

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow

LAYERS = {
    "padded": lambda: nn.Conv2d(6, 4, 3, stride=2, padding=1),
    "same": lambda: nn.Conv2d(6, 4, 3, padding="same", dilation=2, bias=False),
    "points": lambda: nn.Conv2d(6, 4, 1),
    "Linear": lambda: nn.Linear(6, 4),
}


def net(layer: Any) -> Any:
    """Every second input of the layer is a multiple of the one before, and matters less."""
    torch.manual_seed(0)
    first = nn.Conv2d(3, 6, 1, bias=False) if isinstance(layer, nn.Conv2d) else nn.Linear(3, 6, bias=False)
    with torch.no_grad():
        first.weight[1::2] = 2 * first.weight[::2]
        layer.weight[:, 1::2] *= 0.1
    return nn.Sequential(first, layer)


def items(layer: Any, count: int = 40) -> Any:
    """What goes into the net."""
    return torch.randn(count, 3, 7, 7) if isinstance(layer, nn.Conv2d) else torch.randn(count, 3)


def scheduler(folder: Path, model: Any, weights: str = "1.weight") -> CompressionScheduler:
    """Half of the channels go at epoch 0."""
    pruner = {"class": "FMReconstructionChannelPruner", "group_type": "Channels", "desired_sparsity": 0.5}
    policy = {"pruner": {"instance_name": "fits"}, "epochs": [0]}
    text = {"pruners": {"fits": {**pruner, "weights": [weights]}}, "policies": [policy]}
    (folder / "s.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    return CompressionScheduler(model, torch.optim.SGD(model.parameters(), lr=0.1), folder / "s.yaml")


@pytest.mark.parametrize("kind", LAYERS)
def test_what_stays_makes_up_for_what_went(kind: str, tmp_path: Path) -> None:
    layer = LAYERS[kind]()
    model = net(layer)
    started, inputs = scheduler(tmp_path, model), items(layer)
    model.eval()
    for batch in inputs.split(20):
        expected = model(batch).detach()
    model.train()
    started.on_epoch_begin(0)
    started.on_minibatch_begin(0, 0, 1)
    assert (layer.weight.transpose(0, 1).flatten(1) != 0).any(1).tolist() == [True, False] * 3
    torch.testing.assert_close(model(batch), expected, rtol=1e-4, atol=1e-5)


def test_it_is_fitted_to_the_validation_before_the_epoch(tmp_path: Path) -> None:
    layer = nn.Linear(6, 4)
    model = net(layer)
    started = scheduler(tmp_path, model)
    with pytest.raises(InputError, match=r"line \d+: no feature maps of '1' were seen; run the validation"):
        started.on_epoch_begin(0)
    model.eval()(items(layer))  # of an earlier epoch, when the layer computed something else
    layer.weight.data.mul_(2)
    model.train()(items(layer))
    inputs = items(layer)
    expected = model.eval()(inputs).detach()
    started.on_epoch_begin(0)
    started.on_minibatch_begin(0, 0, 1)
    torch.testing.assert_close(model(inputs), expected, rtol=1e-4, atol=1e-5)
    assert len(started._maps()["0 1"].products) == 6
    started.finish()
    assert not layer._forward_hooks


def test_a_saved_state_has_what_was_seen(tmp_path: Path) -> None:
    weights = []
    for resumes in (False, True):
        torch.manual_seed(1)
        layer = nn.Linear(6, 4)
        model = net(layer)
        started = scheduler(tmp_path, model)
        if resumes:
            started.load(tmp_path / "state")
        else:
            model.eval()(items(layer))
            started.save(tmp_path / "state")
        started.on_epoch_begin(0)
        weights.append(layer.weight.detach().clone())
    assert torch.equal(*weights)
    other = scheduler(tmp_path, nn.Sequential(nn.Linear(3, 6), nn.Linear(6, 5)))
    with pytest.raises(InputError, match="feature maps that do not fit '1'"):
        other.load(tmp_path / "state")


def test_a_layer_that_cannot_be_fitted_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="fits: '0' is neither a Linear nor a Conv2d without groups"):
        scheduler(tmp_path, nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)), "0.weight")
