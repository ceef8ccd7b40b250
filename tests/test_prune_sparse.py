"""Sparse weights: how many go and which, where groups lie, and that they stay zero."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from edgecompress.core import config
from edgecompress.core.errors import ConfigError, InputError
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.core.settings import Target, Variant
from edgecompress.data import tensors
from edgecompress.formats import torch_edits, torch_module
from edgecompress.pipeline import conversion
from edgecompress.stages import trace
from edgecompress.techniques import _sparsity, prune_nm, prune_unstructured

slow = pytest.mark.slow
few = st.integers(0, 3).map(float)  # many of them equal

# --------------------------------------------------------------------------- which go


@given(
    sizes=arrays.arrays(np.float64, arrays.array_shapes(max_dims=3, max_side=8), elements=few), share=st.floats(0, 1)
)
def test_as_many_go_as_asked_and_of_equals_the_first(sizes: Any, share: float) -> None:
    count = round(share * sizes.size)
    gone = _sparsity.smallest(sizes, count)
    assert gone.shape == sizes.shape and gone.sum() == count
    order = sorted(range(sizes.size), key=lambda i: (sizes.reshape(-1)[i], i))
    assert np.flatnonzero(gone).tolist() == sorted(order[:count])


shapes = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(0, 2))


@given(data=st.data(), m=st.integers(2, 6), parts=shapes)
def test_every_group_keeps_its_n_largest(data: st.DataObject, m: int, parts: tuple[int, int, int]) -> None:
    n = data.draw(st.integers(1, m - 1))
    rows, groups, kernel = parts
    shape = (rows, groups * m, *[2] * kernel)
    sizes = data.draw(arrays.arrays(np.float64, shape, elements=few))
    gone = prune_nm.pattern(sizes, n, m, 1)
    for at in np.ndindex(rows, groups, *[2] * kernel):
        lane = (at[0], slice(at[1] * m, at[1] * m + m), *at[2:])
        assert gone[lane].sum() == m - n
        assert sizes[lane][gone[lane]].max() <= sizes[lane][~gone[lane]].min()


def test_two_of_four_of_a_row_are_those_that_one_marks_by_hand() -> None:
    row = np.array([[0.3, 0.1, 0.2, 0.9, 1.0, 1.0, 1.0, 1.0]])
    assert prune_nm.pattern(row, 2, 4, 1).tolist() == [[False, True, True, False, True, True, False, False]]


def test_a_threshold_of_all_layers_empties_the_small_ones_and_a_local_one_does_not() -> None:
    sizes = {"small": np.arange(4.0) / 100, "large": np.arange(1.0, 5.0)}
    local = prune_unstructured.gone(sizes, 0.5, "local")
    assert [part.tolist() for part in local.values()] == [[True, True, False, False]] * 2
    whole = prune_unstructured.gone(sizes, 0.625, "global")
    assert whole["small"].all() and whole["large"].tolist() == [True, False, False, False]


# --------------------------------------------------------------------------- gradually


def test_the_schedule_is_the_cubic_one() -> None:
    """Zhu and Gupta 2017, equation 1, from 0 to 0.875 in 4 steps: 0.875 (1 - (1 - t / 4)^3)."""
    found = prune_unstructured.gradual(0.875, 4)
    assert found == [round(0.875 * k / 64, 6) for k in (37, 56, 63)] + [0.875]
    assert found == sorted(set(found))


def test_steps_stand_for_pruning_with_training_between() -> None:
    options = prune_unstructured.Options(0.9, "global", ("conv*",), steps=3, between={"epochs": 2})
    steps = prune_unstructured.expand(options)
    assert steps is not None
    assert [name for name, _ in steps] == ["prune_unstructured", "finetune"] * 2 + ["prune_unstructured"]
    assert steps[1][1] == {"epochs": 2}
    last = config.build(prune_unstructured.Options, steps[-1][1], "here")
    assert (last.sparsity, last.scope, last.layers, last.steps) == (0.9, "global", ("conv*",), 1)
    assert prune_unstructured.expand(last) is None


def test_a_recipe_is_expanded_by_the_planner() -> None:
    table = {"use": "prune_unstructured", "sparsity": 0.8, "steps": 2, "between": {"epochs": 1}}
    variant = Variant("v", compress=(table,))
    calls = [call for call, _ in conversion.steps(Target("t", "onnx", (variant,)), variant, "module", "here")]
    assert calls[:3] == [f"techniques.{n}:apply" for n in ("prune_unstructured", "finetune", "prune_unstructured")]


@pytest.mark.parametrize(
    ("module", "given", "says"),
    [
        (prune_nm, {"n": 4}, "n must be at least 1 and below m"),
        (prune_nm, {"n": 0}, "n must be at least 1 and below m"),
        (prune_unstructured, {"sparsity": 1.0}, "sparsity must be between 0 and 1"),
        (prune_unstructured, {"steps": 0}, "steps must be at least 1"),
        (prune_unstructured, {"between": {"epochs": 1}}, "at least 2 with between"),
        (prune_unstructured, {"scope": "both"}, "scope"),
    ],
)
def test_options_that_cannot_be_are_refused(module: Any, given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        config.build(module.Options, given, "here")


# --------------------------------------------------------------------------- on nets

NETS = '''
import torch
from torch import nn


class Layers(nn.Module):
    """Every layer that has a weight, each so small that its groups can be counted."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.first = nn.Conv1d(3, 8, 3, padding=1)
        self.grouped = nn.Conv1d(8, 8, 3, padding=1, groups=2)
        self.depthwise = nn.Conv1d(8, 8, 3, padding=1, groups=8)
        self.up = nn.ConvTranspose1d(8, 6, 2, groups=2)
        self.lstm = nn.LSTM(6, 4, batch_first=True)
        self.head = nn.Linear(4, 5)
        self.scale = nn.Parameter(torch.ones(1, 5))

    def forward(self, x, ids):
        y = self.depthwise(self.grouped(self.first(x))) + self.embedding(ids).mT
        return self.head(self.lstm(self.up(y).mT)[0][:, -1]) * self.scale


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x))


def layers():
    torch.manual_seed(0)
    return Layers()


def tied():
    torch.manual_seed(0)
    return Tied()
'''
STEPS = 6
INPUTS = {"layers": {"x": (3, STEPS), "ids": (STEPS,)}, "tied": {"x": (8,)}}


@pytest.fixture
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The module `sparse_nets` in the working folder."""
    (tmp_path / "sparse_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "sparse_nets", raising=False)
    return tmp_path


def loaded(folder: Path, net: str) -> tuple[Artifact, Artifact]:
    """A factory of NETS as a module, and its samples."""
    seeded = np.random.default_rng(0)
    data: dict[str, Any] = {n: seeded.normal(size=(4, *shape)).astype(np.float32) for n, shape in INPUTS[net].items()}
    if "ids" in data:
        data["ids"] = seeded.integers(0, 10, (4, STEPS))
    out = folder / f"{net}-samples"
    tensors.write_split(out / "select", data)
    specs = tuple(TensorSpec(n, (Dim("batch", 1, 4), *a.shape[1:]), str(a.dtype)) for n, a in data.items())
    samples = Artifact(out, "samples", specs, (), {"splits": {"select": 4}}).write()
    (folder / net).mkdir()
    asked = {"source": {"model": f"sparse_nets:{net}"}}
    return trace.load(Request({"samples": samples}, folder / net, asked)), samples


def pruned(module: Any, model: Artifact, out: Path, **options: Any) -> Artifact:
    out.mkdir()
    result: Artifact = module.apply(Request({"model": model}, out, module.Options(**options)))
    return result


def rows(artifact: Artifact) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in artifact.facts["sparsity"]["rows"]}


@slow
def test_of_each_layer_the_groups_lie_along_what_is_summed(nets: Path) -> None:
    model, _ = loaded(nets, "layers")
    made = pruned(prune_nm, model, nets / "out")
    state = torch_module.rebuild(made).state_dict()
    told = rows(made)
    assert {name: row["why"] for name, row in told.items() if not row["pruned"]} == {
        "embedding": "its rows are looked up",
        "first": "it sums over 3 inputs, not a multiple of 4",
        "depthwise": "it sums over 1 inputs, not a multiple of 4",
        "lstm.weight_ih_l0": "it sums over 6 inputs, not a multiple of 4",
        "scale": "it is not the weight of a layer",
    }
    assert all(row["zeros"] == row["elements"] // 2 for row in told.values() if row["pruned"])
    assert (state["grouped.weight"].reshape(8, 1, 4, 3) != 0).sum(2).unique().tolist() == [2]
    assert (state["up.weight"].reshape(2, 4, 3, 2) != 0).sum(1).unique().tolist() == [2]
    assert (state["head.weight"].reshape(5, 1, 4) != 0).sum(2).unique().tolist() == [2]
    assert (state["lstm.weight_hh_l0"].reshape(16, 1, 4) != 0).sum(2).unique().tolist() == [2]
    assert made.facts["sparsity"]["kind"] == "2:4"


@slow
@pytest.mark.parametrize("scope", ["local", "global"])
def test_exactly_as_many_weights_are_zero_as_asked(nets: Path, scope: str) -> None:
    model, _ = loaded(nets, "layers")
    made = pruned(prune_unstructured, model, nets / "out", sparsity=0.7, scope=scope)
    told = [row for row in rows(made).values() if row["pruned"]]
    wanted = [round(0.7 * row["elements"]) for row in told]
    if scope == "local":
        assert [row["zeros"] for row in told] == wanted
    else:
        assert sum(row["zeros"] for row in told) == round(0.7 * sum(row["elements"] for row in told))
        assert [row["zeros"] for row in told] != wanted
    total = made.facts["sparsity"]["total"]
    assert total["zeros"] == sum(row["zeros"] for row in told) < total["elements"]


@slow
def test_what_is_kept_is_as_it_was_and_what_is_zero_is_marked_to_stay(nets: Path) -> None:
    model, samples = loaded(nets, "layers")
    made = pruned(prune_unstructured, model, nets / "out", layers=("head", "emb*"))
    before, after = (torch_module.rebuild(artifact).state_dict() for artifact in (model, made))
    for name, tensor in after.items():
        kept = tensor != 0
        assert (tensor[kept] == before[name][kept]).all()
    assert torch_edits.zeros(torch_module.edits(made)) == ["embedding.weight", "head.weight"]
    assert (made.inputs, made.outputs) == (model.inputs, model.outputs)
    inputs = torch_module.example(made, samples, 2)
    found = torch_module.outputs(torch_module.rebuild(made), made, inputs)
    assert all(tensor.isfinite().all() for tensor in found.values())
    assert json.loads((made.path / torch_module.MODULE).read_text())["edits"][-1]["edit"] == "zeros"


@slow
def test_pruning_more_keeps_what_is_zero_already(nets: Path) -> None:
    model, _ = loaded(nets, "layers")
    once = pruned(prune_unstructured, model, nets / "once", sparsity=0.5, scope="global")
    twice = pruned(prune_unstructured, once, nets / "twice", sparsity=0.8, scope="global")
    straight = pruned(prune_unstructured, model, nets / "straight", sparsity=0.8, scope="global")
    states = [torch_module.rebuild(artifact).state_dict() for artifact in (twice, straight)]
    assert all((states[0][name] == states[1][name]).all() for name in states[0])


@slow
def test_a_shared_weight_is_pruned_once_and_stays_shared(nets: Path) -> None:
    model, _ = loaded(nets, "tied")
    made = pruned(prune_nm, model, nets / "out", n=1, m=4)
    net = torch_module.rebuild(made)
    assert net.one.weight is net.two.weight
    assert (net.two.weight == 0).sum() == 48
    assert list(rows(made)) == ["one"] and made.facts["sparsity"]["total"] == {"elements": 64, "zeros": 48}


@slow
def test_layers_that_are_not_there_or_have_no_groups_are_refused(nets: Path) -> None:
    model, _ = loaded(nets, "layers")
    with pytest.raises(InputError, match="layers: 'haed' is not a layer with a weight, did you mean 'head'"):
        pruned(prune_nm, model, nets / "a", layers=("haed",))
    with pytest.raises(InputError, match="no layer can keep 2 of each 4 weights: first: it sums over 3"):
        pruned(prune_nm, model, nets / "b", layers=("first", "depthwise"))
