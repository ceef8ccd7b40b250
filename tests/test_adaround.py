"""AdaRound: the published formulas, patches that are the convolution, weights on the grid, going on after a kill."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from test_equalize import answers, conv, images, rounded
from test_low_rank import source
from torch import nn

from edgecompress.core.model import Artifact, Request
from edgecompress.engines.onnx.runtimes import onnx as ort
from edgecompress.engines.onnx.techniques import ptq_int8
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.techniques import _im2col, _torch_graph, adaround, equalize
from edgecompress.techniques._batch_walk import BatchWalk

pytestmark = pytest.mark.slow
CONVOLUTIONS: dict[str, nn.Module] = {
    "plain": nn.Conv2d(4, 6, 3),
    "strided": nn.Conv2d(4, 6, (5, 3), stride=(1, 2), padding=(2, 0), dilation=(1, 2)),
    "groups": nn.Conv2d(4, 6, 3, padding=1, groups=2),
    "depthwise": nn.Conv2d(4, 8, 3, groups=4),
    "same": nn.Conv2d(4, 6, (4, 3), padding="same", dilation=2),
    "valid": nn.Conv2d(4, 6, 2, padding="valid"),
    "reflected": nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
    "one axis": nn.Conv1d(32, 6, 3, stride=2, padding=2, groups=2),
    "one axis, same": nn.Conv1d(32, 6, 4, padding="same"),
    "product": nn.Linear(8, 5),
}


class Beside(nn.Module):  # type: ignore[misc]
    """Every convolution on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name.replace(" ", "_"): layer for name, layer in CONVOLUTIONS.items()})

    def forward(self, image: Any) -> Any:
        return {n: m(image.flatten(1, 2) if isinstance(m, nn.Conv1d) else image) for n, m in self.layers.items()}


class Small(nn.Module):  # type: ignore[misc]
    """Convolutions with norms of either sign, a product."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = conv(3, 16), conv(16, 16, groups=16), nn.Conv2d(16, 24, 1)
        self.head = nn.Linear(24, 10)
        with torch.no_grad():
            self.first[1].weight[::3] *= -1
            self.third.weight[:, ::4] = 0  # pruned

    def forward(self, image: Any) -> Any:
        x = torch.relu(self.second(torch.relu(self.first(image))))
        return self.head(torch.relu(self.third(x)).mean(dim=(2, 3)))


def beside() -> nn.Module:
    return Beside().eval()


def small() -> nn.Module:
    torch.manual_seed(0)
    return Small().eval()


def volumes() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 3)), nn.Conv3d(1, 2, 3)).eval()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    return source(f"{__name__}:small", tmp_path_factory.mktemp("small"), images())


def made(inputs: Mapping[str, Artifact], out: Path, keep: Path | None = None, **options: Any) -> Artifact:
    out.mkdir(parents=True)
    few = {"iterations": 200, "batch": 128, "samples": 32, **options}
    return adaround.apply(Request(inputs, out, adaround.Options(**few), keep=keep))


# --------------------------------------------------------------------------- the formulas


def test_the_rectified_sigmoid_is_the_papers() -> None:
    """Nagel et al. 2020, eq. 23 with zeta 1.1, gamma -0.1: 0 where the sigmoid is 1/12, 1 where it is 11/12."""
    v = torch.logit(torch.tensor([1 / 12, 1 / 2, 11 / 12, 0.001, 0.999, 1 / 3]))
    torch.testing.assert_close(adaround.rectified(v), torch.tensor([0, 0.5, 1, 0, 1, 0.3]), rtol=1e-5, atol=1e-6)


def test_the_regularizer_is_the_papers() -> None:
    """Eq. 24: 1 - |2 h - 1|^beta."""
    assert float(adaround.regularizer(torch.tensor([0.0, 1.0]), 2.0)) == 0
    assert float(adaround.regularizer(torch.tensor([0.5]), 20.0)) == 1
    assert float(adaround.regularizer(torch.tensor([0.75, 0.25]), 2.0)) == pytest.approx(0.75)
    assert float(adaround.regularizer(torch.tensor([0.9]), 20.0)) == pytest.approx(1 - 0.8**20)


def test_beta_falls_from_20_to_2_after_the_warm_start() -> None:
    assert [adaround.beta(done) for done in (0, 0.2, 0.6, 1)] == pytest.approx([20, 20, 11, 2])


@given(st.floats(0, 1), st.floats(0, 1))
@settings(deadline=None)
def test_beta_never_rises(a: float, b: float) -> None:
    assert adaround.beta(max(a, b)) <= adaround.beta(min(a, b))


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
@settings(deadline=None)
def test_it_begins_with_the_float_weights(rests: list[float]) -> None:
    rest = torch.tensor(rests)
    torch.testing.assert_close(adaround.rectified(adaround.begun(rest)), rest, rtol=1e-5, atol=1e-6)


# --------------------------------------------------------------------------- a layer as rows


def test_patches_times_weights_are_what_each_layer_answers(tmp_path: Path) -> None:
    arrays = {"image": np.random.default_rng(0).normal(size=(4, 4, 8, 8)).astype(np.float32)}
    found = source(f"{__name__}:beside", tmp_path, arrays)
    flow = _torch_graph.Flow(torch_module.rebuild(found["model"]), Request(found, tmp_path))
    walk = BatchWalk(flow, flow.batches(None))
    layers = {layer.node: layer for layer in flow.layers}
    assert len(layers) == len(CONVOLUTIONS)
    for node in flow.nodes:
        given = walk.of(node.args[0])[0][0] if node in layers else None
        walk.step(node)
        if given is None:
            continue
        layer = layers[node]
        weight, bias = (flow.tensor(name).detach() for name in (layer.weight, layer.bias))
        rows = _im2col._one(layer, given).T.unflatten(1, (layer.groups, -1)).movedim(1, 0)
        task = adaround.Task(weight, layer.groups, torch.ones(len(weight)), bias, lambda x: x, rows, None)
        expected = walk.of(node)[0][0].movedim(layer.axis - 1, -1).flatten(0, -2)
        torch.testing.assert_close(task.output(weight), expected, rtol=1e-4, atol=1e-4)


def test_the_places_are_the_same_for_both_nets(inputs: Mapping[str, Artifact], tmp_path: Path) -> None:
    flow = _torch_graph.Flow(torch_module.rebuild(inputs["model"]), Request(inputs, tmp_path))
    values = [torch.randn(4, 16, 8, 8)]
    once, twice = (_im2col.rows(flow.layers[1], [v * n for v in values], 0) for n in (1, 2))
    torch.testing.assert_close(once * 2, twice)


# --------------------------------------------------------------------------- whole nets


@pytest.mark.parametrize("bits", [8, 4])
def test_weights_lie_on_the_grid_and_answer_better_than_rounded_to_nearest(
    bits: Any, inputs: Mapping[str, Artifact], tmp_path: Path
) -> None:
    found = made(inputs, tmp_path / "made", weight_bits=bits)
    before, after = (torch_module.rebuild(each) for each in (inputs["model"], found))
    for name, weight in before.state_dict().items():
        new = after.state_dict()[name]
        if weight.ndim < 2:
            assert torch.equal(new, weight)
            continue
        step = _torch_graph.steps(weight, bits)
        torch.testing.assert_close(new / step, (new / step).round(), rtol=0, atol=1e-3)
        torch.testing.assert_close(_torch_graph.steps(new, bits), step)  # the grid that a quantizer finds
        assert ((new - weight).abs() < step * 1.001).all()
        assert (new[weight == 0] == 0).all()
    assert [each["name"] for each in found.facts["layers"]] == ["first.0", "second.0", "third", "head"]
    assert all(each["error"][1] <= each["error"][0] for each in found.facts["layers"])
    exact = answers(inputs["model"], inputs["samples"])
    errors = [float((answers_of(net, found, inputs) - exact).square().mean()) for net in (rounded(before, bits), after)]
    assert errors[1] < (0.7 if bits == 4 else 1.0) * errors[0]


def answers_of(net: nn.Module, artifact: Artifact, inputs: Mapping[str, Artifact]) -> torch.Tensor:
    items = torch_module.example(artifact, inputs["samples"], 32)
    return torch_module.outputs(net, artifact, items)["output"]


def test_a_bias_that_makes_up_for_rounding_to_nearest_spoils_it(inputs: Mapping[str, Artifact], tmp_path: Path) -> None:
    exact, errors = answers(inputs["model"], inputs["samples"]), []
    for name, options in (("as it is", {}), ("in the guard", equalize.UNROUNDED)):
        (tmp_path / name).mkdir()
        options = equalize.Options(weight_bits=4, samples=32, **options)
        net = equalize.apply(Request(inputs, tmp_path / name, options))
        found = made({**inputs, "model": net}, tmp_path / name / "made", weight_bits=4)
        errors.append(float((answers_of(torch_module.rebuild(found), found, inputs) - exact).square().mean()))
    assert errors[1] < 0.9 * errors[0]


def test_a_later_quantizer_finds_the_same_grid(inputs: Mapping[str, Artifact], tmp_path: Path) -> None:
    found = made(inputs, tmp_path / "made", iterations=20)
    for step in ("program", "onnx", "int8"):
        (tmp_path / step).mkdir()
    samples = inputs["samples"]
    program = trace.run(Request({"model": found, "samples": samples}, tmp_path / "program", {}))
    exported = ort.export(Request({"model": program, "samples": samples}, tmp_path / "onnx"))
    given = {"model": exported, "samples": samples}
    int8 = ptq_int8.apply(Request(given, tmp_path / "int8", ptq_int8.Options(samples=8)))
    exact, codes_of = (constants(each) for each in (exported, int8))
    quantized = [name.removesuffix("_quantized") for name, a in codes_of.items() if a.dtype == np.int8 and a.ndim > 1]
    assert len(quantized) == 4
    for name in quantized:
        codes, scale = codes_of[f"{name}_quantized"], codes_of[f"{name}_scale"]
        axis = codes.shape.index(len(scale))
        back = codes * np.expand_dims(scale, [i for i in range(codes.ndim) if i != axis])
        np.testing.assert_allclose(back, exact[name], atol=1e-5 * np.abs(exact[name]).max())


def constants(artifact: Artifact) -> dict[str, Any]:
    graph = onnx.load_model(artifact.file(".onnx")).graph
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}


def test_what_was_killed_goes_on_with_the_next_layer_to_the_same_result(
    inputs: Mapping[str, Artifact], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = made(inputs, tmp_path / "whole")
    keep, save, learned = tmp_path / "keep", adaround.Checkpoints.save, []
    keep.mkdir()

    def killed(self: Any, number: int, *rest: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt
        save(self, number, *rest)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(adaround.Checkpoints, "save", killed)
        made(inputs, tmp_path / "killed", keep)
    assert len(list(keep.iterdir())) == 2
    learn = adaround.learn
    monkeypatch.setattr(adaround, "learn", lambda *args: learned.append(1) or learn(*args))
    assert made(inputs, tmp_path / "again", keep).sha256 == whole.sha256
    assert len(learned) == 2
    made(inputs, tmp_path / "other", keep, iterations=3)  # another request: nothing of it is taken
    assert len(learned) == 6


def test_a_damaged_checkpoint_is_done_anew(inputs: Mapping[str, Artifact], tmp_path: Path) -> None:
    (tmp_path / "keep").mkdir()
    whole = made(inputs, tmp_path / "whole", tmp_path / "keep", iterations=5)
    for file in (tmp_path / "keep").iterdir():
        file.write_bytes(file.read_bytes()[:60])
    assert made(inputs, tmp_path / "again", tmp_path / "keep", iterations=5).sha256 == whole.sha256


def test_nothing_to_round_is_lost(tmp_path: Path) -> None:
    arrays = {"image": np.zeros((4, 3, 8, 8), np.float32)}
    found = made(source(f"{__name__}:volumes", tmp_path, arrays), tmp_path / "made")
    assert found.facts["lost"] == "no weight to round: 1: a convolution of three axes"


@pytest.mark.parametrize("wrong", [{"weight_bits": 3}, {"iterations": 0}, {"batch": 0}, {"samples": 0}])
def test_options_out_of_range_are_refused(wrong: Mapping[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        adaround.Options(**wrong)
