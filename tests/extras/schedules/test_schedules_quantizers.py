"""Distiller's quantizers: the grids by their formulas, training on float copies, what ships, what is refused."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED
from hypothesis import given, settings
from hypothesis import strategies as st
from test_schedules_loop import Run

from edgecompress.core.errors import ConfigError, InputError
from edgecompress.extras.schedules import grids, reader
from edgecompress.extras.schedules.grids import Statistics
from edgecompress.extras.schedules.runtimes import runtimes_for
from edgecompress.extras.schedules.scheduler import CompressionScheduler
from edgecompress.formats import torch_edits

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow


def net() -> Any:
    """Two layers with a ReLU between them."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))


def written(folder: Path, cls: str, more: dict[str, Any] | None = None, **given: Any) -> Path:
    """A schedule of one quantizer, at three epochs."""
    text = {
        "quantizers": {"q": {"class": cls, **given}},
        "policies": [
            {"quantizer": {"instance_name": "q"}, "starting_epoch": 0, "ending_epoch": 3, "frequency": 1},
            *(more or {}).pop("policies", []),
        ],
        **(more or {}),
    }
    (folder / "q.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return folder / "q.yaml"


def near(actual: Any, *expected: float) -> bool:
    """Whether a tensor has these elements."""
    return torch.allclose(actual.detach(), torch.tensor(expected, dtype=actual.dtype), atol=1e-6)


# --------------------------------------------------------------------------- grids


def test_dorefa_is_the_formula_of_its_paper() -> None:
    """2 Q_k(tanh w / (2 max|tanh w|) + 1/2) - 1; of 2 bits -1, -1/3, 1/3 and 1."""
    assert near(grids.dorefa(torch.tensor([-0.5, -0.3, 0.25, 1.0]), 2), -1 / 3, -1 / 3, 1 / 3, 1)
    assert near(grids.dorefa(torch.tensor([-2.0, -0.3, 0.25, 1.0]), 3), -1, -3 / 7, 1 / 7, 5 / 7)


def test_one_bit_is_the_sign_times_the_mean_magnitude() -> None:
    """XNOR's, with + for zero, and the gradient straight through."""
    weight = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    for quantized in (grids.dorefa(weight, 1), grids.wrpn(weight, 1)):
        assert near(quantized, -1, 1, 1)
        (gradient,) = torch.autograd.grad(quantized, weight, torch.tensor([1.0, 2.0, 3.0]))
        assert near(gradient, 1, 2, 3)


def test_wrpn_clips_and_has_one_level_less() -> None:
    """Of 3 bits: thirds; what is clipped has no gradient."""
    weight = torch.tensor([-2.0, -0.6, 0.2, 0.6], requires_grad=True)
    quantized = grids.wrpn(weight, 3)
    assert near(quantized, -1, -2 / 3, 1 / 3, 2 / 3)
    (gradient,) = torch.autograd.grad(quantized.sum(), weight)
    assert near(gradient, 0, 1, 1, 1)


@pytest.mark.parametrize(
    ("mode", "step", "low", "high"),
    [
        ("SYMMETRIC", 1.5 / 127.5, -128, 127),
        ("SYMMETRIC_RESTRICTED", 1.5 / 127, -127, 127),
        ("ASYMMETRIC_UNSIGNED", 2 / 255, -64, 191),
        ("ASYMMETRIC_SIGNED", 2 / 255, -64, 191),
    ],
)
def test_linear_grids_have_zero_and_the_range(mode: Any, step: float, low: int, high: int) -> None:
    """Of 8 bits over [-0.5, 1.5]."""
    found = grids.fitted(8, mode, torch.tensor(-0.5), torch.tensor(1.5))
    assert [float(part) for part in found] == pytest.approx([step, low, high])


@given(
    st.lists(st.floats(-1e3, 1e3, width=32), min_size=2, max_size=12),
    st.integers(2, 12),
    st.sampled_from(["SYMMETRIC", "SYMMETRIC_RESTRICTED", "ASYMMETRIC_UNSIGNED"]),
)
@settings(max_examples=60, deadline=None)
def test_a_linear_grid_keeps_zeros_and_moves_nothing_far(values: list[float], bits: int, mode: Any) -> None:
    """At most half a step, at the ends of the range a whole one; twice is once."""
    weight = torch.tensor([*values, 0.0])
    rounded = grids.linear(weight, bits, mode, per_channel=False)
    step, _, _ = grids.fitted(bits, mode, weight.min(), weight.max())
    assert (rounded - weight).abs().max() <= step * 1.001
    assert not rounded[weight == 0].any()
    assert len(rounded.unique()) <= 2**bits


def test_per_channel_each_row_has_its_range() -> None:
    """A row of small weights is not lost beside one of large ones."""
    weight = torch.tensor([[100.0, -50.0], [0.01, -0.003]])
    assert not grids.linear(weight, 4, "SYMMETRIC", per_channel=False)[1].any()
    assert grids.linear(weight, 4, "SYMMETRIC", per_channel=True)[1].all()


SEEN = Statistics(min=-4, max=8, avg_min=-1, avg_max=3, mean=0.5, std=1.5, b=1.0)


@pytest.mark.parametrize(
    ("clip", "mode", "more", "expected"),
    [
        ("NONE", "SYMMETRIC", {}, (-4, 8)),
        ("AVG", "SYMMETRIC", {}, (-1, 3)),
        ("N_STD", "ASYMMETRIC_SIGNED", {"stds": 2}, (-2.5, 3.5)),
        ("GAUSS", "SYMMETRIC", {}, (-0.5 - 1.5 * 2.55, 0.5 + 1.5 * 2.55)),
        ("LAPLACE", "SYMMETRIC_RESTRICTED", {}, (-5.53, 5.53)),
        ("GAUSS", "ASYMMETRIC_UNSIGNED", {}, (-1, -1 + 2 * 1.5 * 2.55)),
        ("LAPLACE", "ASYMMETRIC_UNSIGNED", {"half": True}, (-1, -1 + 6.2)),
    ],
)
def test_clip_modes(clip: Any, mode: Any, more: dict[str, Any], expected: tuple[float, float]) -> None:
    """Of 4 bits: the whole range, its mean over items, deviations, and the alphas of ACIQ's tables."""
    assert grids.ends(SEEN, 4, mode, clip, **more) == pytest.approx(expected)


def test_a_scale_is_approximated_by_a_multiplication_and_a_shift() -> None:
    """0.3 of 3 bits: 4 / 16."""
    assert grids.approximated(0.3, 3) == 4 / 16


# --------------------------------------------------------------------------- training


def plain(quantized: Callable[[Any], Any], clipped: Callable[[Any], Any], batches: list[Any], epochs: int) -> Any:
    """The same net, trained by autograd alone: its weights are functions of the optimizer's."""
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in batches * epochs:
        weights = {n: quantized(p) if n.endswith("weight") else p for n, p in model.named_parameters()}
        hidden = clipped(nn.functional.linear(x, weights["0.weight"], weights["0.bias"]))
        out = nn.functional.linear(hidden, weights["2.weight"], weights["2.bias"])
        optimizer.zero_grad()
        nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
    return model


def ladder(x: Any, top: float, parts: int) -> Any:
    """A clip to [0, top], rounded straight through."""
    clip = x.clamp(0, top)
    return clip + (torch.round(clip * parts / top) * top / parts - clip).detach()


@pytest.mark.parametrize(
    ("cls", "rule"), [("DorefaQuantizer", lambda w: grids.dorefa(w, 3)), ("WRPNQuantizer", lambda w: grids.wrpn(w, 3))]
)
def test_training_changes_float_copies_as_autograd_would(tmp_path: Path, cls: str, rule: Any) -> None:
    """Through tanh and its maximum, and the clip; outside of the step the model holds rounded weights."""
    run = Run(written(tmp_path, cls, bits_weights=3, bits_activations=4))
    run.train(0, 1)
    expected = plain(rule, lambda x: ladder(x, 1, 15), run.batches, 2)
    floats = run.scheduler.state_dict()["quantized"]
    assert set(floats) == {"0.weight", "2.weight"}
    for name, weight in floats.items():
        assert torch.allclose(weight, expected.get_parameter(name), atol=1e-6)
        assert torch.equal(run.net.get_parameter(name), rule(weight))
    assert list(run.net.state_dict()) == list(net().state_dict())
    assert torch.allclose(run.net[0].bias, expected[0].bias, atol=1e-6)


def test_the_clip_of_pact_is_trained(tmp_path: Path) -> None:
    """Its gradient is that of what it clips, its decay its own."""
    run = Run(written(tmp_path, "PACTQuantizer", bits_activations=4, act_clip_init_val=8.0, act_clip_decay=0.01))
    relu = run.net[1]
    x = torch.tensor([-1.0, 2.0, 9.0], requires_grad=True)
    out = relu(x)
    assert near(out, 0, 4 * 8 / 15, 8)
    gradients = torch.autograd.grad(out, [x, relu.clip_val], torch.tensor([1.0, 2.0, 3.0]))
    assert near(gradients[0], 0, 2, 0)
    assert near(gradients[1], 3)
    group = run.optimizer.param_groups[-1]
    assert (group["params"][0] is relu.clip_val, group["weight_decay"]) == (True, 0.01)
    run.train(0)
    assert relu.clip_val.item() < 8


def test_ranges_follow_what_is_seen_in_training(tmp_path: Path) -> None:
    """The bias of the moving average is taken out: after two batches, weights 0.9 and 1 of 1.9."""
    given = {"mode": {"activations": "ASYMMETRIC_UNSIGNED", "weights": "SYMMETRIC"}, "ema_decay": 0.9}
    run = Run(written(tmp_path, "QuantAwareTrainRangeLinearQuantizer", bits_activations=4, **given))
    relu = run.net[1]
    values = [torch.tensor([-1.0, 2.0]), torch.tensor([0.0, 4.0])]
    assert torch.equal(relu.eval()(values[1]), values[1])  # no batch yet
    relu.train()
    for each in values:
        relu(each)
    top = (0.9 * 2 + 4) / 1.9
    assert near(relu.eval()(torch.tensor([9.0, 0.3])), top, round(0.3 * 15 / top) * top / 15)


def test_a_state_goes_on_bit_for_bit(tmp_path: Path) -> None:
    """Float weights, clips and ranges are in it; the state of another quantizer is an error."""
    for number, (cls, options) in enumerate(
        [("PACTQuantizer", {}), ("QuantAwareTrainRangeLinearQuantizer", {"mode": "ASYMMETRIC_SIGNED", "bits_bias": 8})]
    ):
        file = written(tmp_path, cls, bits_activations=4, bits_weights=4, **options)
        whole, half, rest = Run(file), Run(file), Run(file)
        whole.train(0, 1)
        half.train(0)
        half.scheduler.save(tmp_path / str(number))
        rest.net.load_state_dict(half.net.state_dict())
        rest.optimizer.load_state_dict(copy.deepcopy(half.optimizer.state_dict()))
        rest.scheduler.load(tmp_path / str(number))
        rest.train(1)
        for left, right in zip(whole.net.parameters(), rest.net.parameters(), strict=True):
            assert torch.equal(left, right)
        for name, each in whole.scheduler.state_dict()["quantized"].items():
            assert torch.equal(each, rest.scheduler.state_dict()["quantized"][name])
    with pytest.raises(InputError, match="another quantizer"):
        rest.scheduler.load(tmp_path / "0")


def test_a_quantized_net_is_thinned_and_goes_on_from_its_state(tmp_path: Path) -> None:
    """The float copies have the new shapes, those of a state too."""
    ranked = {"class": "L1RankedStructureParameterPruner", "group_type": "Filters", "desired_sparsity": 0.5}
    remover = {"class": "FilterRemover", "thinning_func_str": "remove_filters", "arch": "x", "dataset": "y"}
    when = {"epochs": [0]}
    more = {
        "pruners": {"p": {**ranked, "weights": ["0.weight"]}},
        "extensions": {"r": remover},
        "policies": [{"pruner": {"instance_name": "p"}, **when}, {"extension": {"instance_name": "r"}, **when}],
    }
    file = written(tmp_path, "PACTQuantizer", more, bits_weights=3, bits_activations=4)
    x, y = torch.randn(8, 3, 6, 6), torch.arange(8) % 4

    def made() -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        return model, optimizer, CompressionScheduler(model, optimizer, file, [x])

    def train(model: Any, optimizer: Any, scheduler: Any, *epochs: int) -> None:
        for epoch in epochs:
            scheduler.on_epoch_begin(epoch)
            scheduler.on_minibatch_begin(epoch, 0, 1)
            optimizer.zero_grad()
            scheduler.before_backward_pass(nn.functional.cross_entropy(model(x), y)).backward()
            scheduler.before_parameter_optimization()
            optimizer.step()
            scheduler.on_minibatch_end()
            scheduler.on_epoch_end()

    whole, half, rest = made(), made(), made()
    train(*whole, 0, 1)
    train(*half, 0)
    half[2].save(tmp_path / "state")
    rest[2].load(tmp_path / "state")
    rest[0].load_state_dict(half[0].state_dict())
    rest[1].load_state_dict(half[1].state_dict())
    train(*rest, 1)
    assert whole[0][0].weight.shape == whole[2].state_dict()["quantized"]["0.weight"].shape == (4, 3, 3, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole[0].parameters(), rest[0].parameters(), strict=True))


def test_zeros_of_a_pruner_stay_zeros(tmp_path: Path) -> None:
    """On DoReFa's grid, which has no zero, too; of 1 bit it is one line."""
    pruner = {
        "pruners": {"p": {"class": "SparsityLevelParameterPruner", "levels": {"0.weight": 0.5}}},
        "policies": [{"pruner": {"instance_name": "p"}, "starting_epoch": 0, "ending_epoch": 3, "frequency": 1}],
    }
    run = Run(written(tmp_path, "DorefaQuantizer", copy.deepcopy(pruner), bits_weights=2))
    run.train(0, 1)
    assert int((run.net[0].weight == 0).sum()) == int((run.scheduler.masks["0.weight"].values == 0).sum()) == 30
    assert len(run.net[0].weight.unique()) <= 2**2 + 1
    with pytest.raises(InputError, match=r"q\.yaml: line 2: q: 0\.weight is pruned, and of 1 bit no value is zero"):
        Run(written(tmp_path, "DorefaQuantizer", pruner, bits_weights=1))


# --------------------------------------------------------------------------- what is chosen, what is refused


def test_the_first_pattern_of_overrides_counts(tmp_path: Path) -> None:
    """A null is floating point; one that matches no module is warned of."""
    overrides = {"2": {"bits_weights": None}, "[0-9]": {"bits_weights": 2, "bits_activations": None}, "fc": {}}
    with pytest.warns(UserWarning) as warned:
        run = Run(written(tmp_path, "DorefaQuantizer", bits_weights=8, bits_activations=8, overrides=overrides))
    assert [str(each.message).partition(": q: ")[2] for each in warned] == [
        "overrides: 'fc' matches no module",
        "the model has no nn.ReLU to quantize: activations stay as they are",
    ]
    assert torch.equal(run.net[2].weight, net()[2].weight)
    assert len(run.net[0].weight.unique()) <= 4
    assert float(run.net[1](torch.tensor(3.0))) == 3


@pytest.mark.parametrize("bits", [0, 33])
@pytest.mark.parametrize("name", ["bits_weights", "bits_activations"])
def test_bits_out_of_range_are_one_line(tmp_path: Path, bits: int, name: str) -> None:
    """Of the quantizer, and of an override."""
    for options in ({name: bits}, {"overrides": {"fc": {name: bits}}}):
        with pytest.raises(ConfigError, match=rf"line \d+: quantizers\.q.*{name} must be from 1 to 32.*not {bits}$"):
            reader.read(written(tmp_path, "DorefaQuantizer", **options))


@pytest.mark.parametrize(
    ("cls", "given", "line"),
    [
        ("PostTrainLinearQuantizer", {}, "does not train; give the file to post_training.quantize"),
        ("QuantAwareTrainRangeLinearQuantizer", {"bits_weights": 1}, "SYMMETRIC needs at least 2 bits"),
        ("DorefaQuantizer", {"overrides": {"0": {"clip_acts": "AVG"}}}, "overrides take bits alone, not clip_acts"),
    ],
)
def test_what_cannot_be_run_is_one_line(tmp_path: Path, cls: str, given: dict[str, Any], line: str) -> None:
    """With the file's line."""
    with pytest.raises(InputError, match=rf"q\.yaml: line \d+: q: .*{line}"):
        Run(written(tmp_path, cls, **given))


def test_new_parameters_come_before_a_wrapper(tmp_path: Path) -> None:
    """DistributedDataParallel would not share their gradients."""
    model = nn.DataParallel(net())
    file = written(tmp_path, "PACTQuantizer", bits_activations=4)
    with pytest.raises(InputError, match="PACTQuantizer adds parameters; make the scheduler before"):
        CompressionScheduler(model, torch.optim.SGD(model.parameters(), lr=0.1), file)


# --------------------------------------------------------------------------- what ships


@pytest.mark.parametrize(
    ("cls", "given"),
    [
        ("DorefaQuantizer", {}),
        ("PACTQuantizer", {}),
        ("QuantAwareTrainRangeLinearQuantizer", {"mode": "ASYMMETRIC_UNSIGNED", "per_channel_wts": True}),
        ("NCFQuantAwareTrainQuantizer", {"mode": "SYMMETRIC"}),
    ],
)
def test_what_is_left_is_the_factorys_net_with_levels(tmp_path: Path, cls: str, given: dict[str, Any]) -> None:
    """Its tensors have the factory's names, its outputs are those of the end of training, exactly; it exports."""
    run = Run(written(tmp_path, cls, bits_weights=4, bits_activations=4, **given))
    run.train(0)
    x, _ = run.batches[0]
    expected = run.net.eval()(x)
    edits = run.scheduler.finish()
    fresh = net().eval()
    torch_edits.apply(fresh, edits)
    fresh.load_state_dict(run.net.state_dict())
    assert torch.equal(run.net(x), expected)
    assert torch.equal(fresh(x), expected)
    assert torch.equal(fresh(input=x), expected)
    program = torch.export.export(fresh, (x,))
    assert torch.equal(program.module()(x), expected)
    assert "aten.round.default" in str(program.graph)
    assert len(run.net[1](torch.linspace(-9, 9, 99)).unique()) <= 2**4


def test_an_untrained_range_does_not_ship(tmp_path: Path) -> None:
    """One line says what has learned none."""
    run = Run(written(tmp_path, "QuantAwareTrainRangeLinearQuantizer", bits_activations=4))
    with pytest.raises(InputError, match="the activations of '1' have learned no range"):
        run.scheduler.finish()


@pytest.mark.parametrize(
    "wrong", [{"step": 0.0}, {"step": math.inf}, {"low": 3, "high": 2}, {"low": 0.5}, {"input": -1}, {"module": "9"}]
)
def test_levels_of_a_stranger_are_checked(wrong: dict[str, Any]) -> None:
    """As all edits are."""
    edit: Any = {"edit": "levels", "module": "1", "step": 0.1, "low": 0, "high": 15} | wrong
    with pytest.raises(InputError, match="does not fit the factory's net"):
        torch_edits.apply(net(), [edit])


def test_the_runtimes_of_so_many_bits() -> None:
    """One line each."""
    assert runtimes_for(8, 8) == runtimes_for(6, 8) == "int8 in every runtime"
    assert "MatMulNBits" in runtimes_for(4, 8)
    assert "MatMulNBits" in runtimes_for(4, None)
    assert "none has kernels of 1 or 2 bits" in runtimes_for(1, 2)
    assert runtimes_for(None, None).startswith("floating point") and runtimes_for(32, 8).startswith("floating point")


@pytest.mark.shared
def test_a_published_schedule_of_any_net_trains(tmp_path: Path) -> None:
    """8 bits of weights and activations by their ranges, its policy of 300 epochs."""
    assert SHARED is not None
    folder = SHARED / "distiller_schedules/quantization/quant_aware_train"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = Run(folder / "quant_aware_train_linear_quant.yaml")
    run.train(0, 1)
    assert [edit["module"] for edit in run.scheduler.finish()] == ["1", ""]
