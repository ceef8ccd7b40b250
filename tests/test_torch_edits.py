"""A module's edits, replayed on what its factory builds: the same net in a fresh process, and nothing runs but it."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_edits, torch_module
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow


def net() -> nn.Module:
    """A net with one of each layer that has a size."""
    torch.manual_seed(0)
    layers = {
        "conv": nn.Conv2d(3, 8, 3, padding=1),
        "bn": nn.BatchNorm2d(8),
        "depthwise": nn.Conv2d(8, 8, 3, padding=1, groups=8),
        "flat": nn.Flatten(2),
        "rnn": nn.LSTM(64, 12, batch_first=True),
        "norm": nn.LayerNorm(12),
        "head": nn.Linear(12, 5),
    }
    return nn.ModuleDict(layers)


def run(layers: Any, x: torch.Tensor) -> torch.Tensor:
    y = layers["flat"](layers["depthwise"](torch.relu(layers["bn"](layers["conv"](x)))))
    return layers["head"](layers["norm"](layers["rnn"](y)[0]))


def narrowed() -> nn.Module:
    """The same, narrower everywhere."""
    layers = copy.deepcopy(net())
    layers["conv"], layers["bn"] = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
    layers["depthwise"] = nn.Conv2d(4, 4, 3, padding=1, groups=4)
    layers["rnn"], layers["norm"], layers["head"] = nn.LSTM(64, 6, batch_first=True), nn.LayerNorm(6), nn.Linear(6, 5)
    return layers.eval()


def test_a_net_of_other_sizes_is_rebuilt_from_its_edits() -> None:
    after = narrowed()
    edits = json.loads(json.dumps(torch_edits.resized(net(), after)))
    rebuilt = net().eval()
    torch_edits.apply(rebuilt, edits)
    rebuilt.load_state_dict(after.state_dict())
    x = torch.randn(2, 3, 8, 8)
    assert torch.equal(run(rebuilt, x), run(after, x))
    assert (
        rebuilt["conv"].out_channels == 4
        and rebuilt["depthwise"].groups == 4
        and rebuilt["norm"].normalized_shape == (6,)
    )
    assert {e["module"] for e in edits} == {"conv", "bn", "depthwise", "rnn", "norm", "head"}


def test_what_has_not_changed_has_no_edit() -> None:
    assert torch_edits.resized(net(), net()) == []


def test_a_layer_becomes_several() -> None:
    rebuilt = net()
    pair = [
        ["Linear", {"in_features": 12, "out_features": 2, "bias": False}],
        ["Linear", {"in_features": 2, "out_features": 5}],
    ]
    torch_edits.apply(rebuilt, [{"edit": "replace", "module": "head", "by": pair}])
    assert [type(layer).__name__ for layer in rebuilt["head"]] == ["Linear", "Linear"]
    torch_edits.apply(rebuilt, [{"edit": "replace", "module": "head", "by": [["Identity", {}]]}])
    assert isinstance(rebuilt["head"], nn.Identity)


def test_the_parameters_whose_zeros_stay_are_told_once() -> None:
    edits = [
        {"edit": "zeros", "parameters": ["a", "b"]},
        {"edit": "resize"},
        {"edit": "zeros", "parameters": ["b", "c"]},
    ]
    assert torch_edits.zeros(edits) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "edit",
    [
        {"edit": "run", "code": "print(1)"},
        {"edit": "keep", "module": "conv", "items": [0]},
        {"edit": "resize", "module": "nowhere", "attributes": {}, "shapes": {}},
        {"edit": "resize", "module": "conv", "attributes": {"forward": 3}, "shapes": {}},
        {"edit": "resize", "module": "conv", "attributes": {"out_channels": "os.system"}, "shapes": {}},
        {"edit": "resize", "module": "conv", "attributes": {}, "shapes": {"weight": [1 << 40]}},
        {"edit": "resize", "module": "conv", "attributes": {}, "shapes": {"forward": [1]}},
        {"edit": "replace", "module": "head", "by": [["Module", {}]]},
        {"edit": "replace", "module": "head", "by": [["Linear", {"in_features": {"a": 1}, "out_features": 1}]]},
        {"edit": "replace", "module": "nowhere", "by": [["Identity", {}]]},
        {"edit": "zeros", "parameters": ["nothing.weight"]},
    ],
)
def test_an_edit_that_is_no_edit_is_refused(edit: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="does not fit the factory's net"):
        torch_edits.apply(net(), [edit])


# --------------------------------------------------------------------------- on disk


def halved(folder: Path) -> Artifact:
    """The conformance suite's net with its second convolution narrowed, saved as a technique does."""
    model = conformance.net("module", folder)
    before = torch_module.rebuild(model)
    after = copy.deepcopy(before)
    after[3] = nn.Conv2d(16, 8, 3, padding=1)
    after[7] = nn.Linear(8, 16)
    out = folder / "halved"
    out.mkdir()
    return torch_module.save(after, Request({"model": model}, out), torch_edits.resized(before, after), {"said": 1})


def test_a_saved_net_computes_the_same_in_a_fresh_process_without_pickle(tmp_path: Path) -> None:
    saved = halved(tmp_path)
    x = torch.randn(2, 3, 8, 8)
    np.save(tmp_path / "x.npy", x.numpy())
    code = (
        "import sys, pickle, numpy, torch\n"
        "def refuse(*_, **__): raise SystemExit('pickle')\n"
        "pickle.load = pickle.loads = pickle.Unpickler = torch.load = refuse\n"
        "from pathlib import Path\n"
        "from edgecompress.formats import torch_module\n"
        "from edgecompress.core.model import Artifact\n"
        "model = Artifact.read(Path(sys.argv[1]))\n"
        "given = {'input': torch.from_numpy(numpy.load(sys.argv[2]))}\n"
        "answer = torch_module.outputs(torch_module.rebuild(model), model, given)['output']\n"
        "numpy.save(sys.argv[3], answer.numpy())\n"
    )
    files = [str(saved.path), str(tmp_path / "x.npy"), str(tmp_path / "y.npy")]
    subprocess.run([sys.executable, "-c", code, *files], check=True)
    here = torch_module.outputs(torch_module.rebuild(saved), saved, {"input": x})["output"].numpy()
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), here)
    assert {p.suffix for p in saved.files()} == {".json", ".safetensors"}


def test_edits_of_one_technique_follow_those_of_another(tmp_path: Path) -> None:
    saved = halved(tmp_path)
    out = tmp_path / "again"
    out.mkdir()
    again = torch_module.save(
        torch_module.rebuild(saved), Request({"model": saved}, out), [{"edit": "zeros", "parameters": ["3.weight"]}]
    )
    assert [e["edit"] for e in torch_module.edits(again)] == ["resize", "resize", "zeros"]


def test_a_technique_that_broke_the_weights_is_told(tmp_path: Path) -> None:
    model = conformance.net("module", tmp_path)
    broken = torch_module.rebuild(model)
    broken[0].weight.data[0, 0, 0, 0] = float("nan")
    with pytest.raises(StageFailed, match=r"weight '0\.weight' holds 1 NaN and 0 infinite values"):
        torch_module.save(broken, Request({"model": model}, tmp_path), [])
