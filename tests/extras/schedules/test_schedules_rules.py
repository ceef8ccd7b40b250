"""What Distiller's pruners and regularizers compute, by the published formulas and by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import groups, pruners, reader, regularizers
from edgecompress.extras.schedules.rates import Moment, agp, baidu

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow

# --------------------------------------------------------------------------- rates


@pytest.mark.parametrize(
    ("initial", "final", "when", "expected"),
    [
        (0.05, 0.70, (2, 20, 1), {2: 0.05, 3: 0.158091, 6: 0.409332, 10: 0.603552, 15: 0.691533, 19: 0.70}),
        (
            *(0.05, 0.85, (3, 26, 3)),
            {3: 0.05, 6: 0.34621, 9: 0.558455, 12: 0.700729, 15: 0.787026, 18: 0.831341, 21: 0.847668, 24: 0.85},
        ),
        (0.10, 0.50, (0, 30, 2), {14: 0.45, 28: 0.50}),
    ],
)
def test_agp_is_the_cubic_ramp(
    initial: float, final: float, when: tuple[int, int, int], expected: dict[int, float]
) -> None:
    for epoch, share in expected.items():
        assert agp(initial, final, Moment(epoch, *when)) == pytest.approx(share, abs=1e-6)


def test_baidu_is_two_straight_lines() -> None:
    expected = {4: 0.007083, 7: 0.0425, 10: 0.085, 13: 0.1275, 16: 0.17, 19: 0.2125}
    for epoch, threshold in expected.items():
        assert baidu(0.17, 3, 2, Moment(epoch, 4, 21, 3)) == pytest.approx(threshold, abs=1e-6)


# --------------------------------------------------------------------------- groups

CASES: list[tuple[str, tuple[int, ...], Callable[[Any], Any]]] = [
    ("2D", (3, 2, 2, 2), lambda w: w.reshape(6, 4)),
    ("3D", (3, 2, 2, 2), lambda w: w.reshape(3, 8)),
    ("Filters", (3, 2, 5), lambda w: w.reshape(3, 10)),
    ("4D", (3, 2, 2, 2), lambda w: w.reshape(1, 24)),
    ("Channels", (3, 2, 2, 2), lambda w: torch.stack([w[:, c].flatten() for c in range(2)])),
    ("Channels", (3, 2), lambda w: w.T),
    ("Rows", (3, 2), lambda w: w),
    ("Cols", (3, 2), lambda w: w.T),
]


@pytest.mark.parametrize(("structure", "shape", "by_hand"), CASES)
def test_groups_are_rows_of_their_elements(
    structure: str, shape: tuple[int, ...], by_hand: Callable[[Any], Any]
) -> None:
    weight = torch.randn(shape)
    found = groups.of(structure, shape)
    assert torch.equal(found.rows(weight), by_hand(weight))
    numbers = torch.arange(found.count).float()
    assert torch.equal(found.rows(found.spread(numbers)), numbers[:, None].expand(found.rows(weight).shape))


@pytest.mark.parametrize(
    ("block", "shape"), [((1, 2, 1, 1), (3, 4, 3, 3)), ((2, 2, 1, 1), (4, 2)), ((2, 1, 3, 1), (4, 2, 3, 3))]
)
def test_blocks_span_filters_and_channels(block: tuple[int, ...], shape: tuple[int, ...]) -> None:
    weight = torch.randn(shape)
    found = groups.blocks(block, shape)
    sides = [slice(0, side) for side in block[: len(shape)]]
    assert torch.equal(found.rows(weight)[0], weight[tuple(sides)].flatten())
    mask = found.spread((torch.arange(found.count) > 0).float())
    assert (mask == 0).sum() == found.rows(weight).shape[1] and not mask[tuple(sides)].any()


# --------------------------------------------------------------------------- pruners


class Net(nn.Module):
    """Two convolutions and a Linear, called as Distiller's nets call theirs."""

    def __init__(self, filters: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(2, filters, 3, padding=1)
        self.relu1 = nn.ReLU()
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1)
        self.fc = nn.Linear(filters, 5)

    def forward(self, x: Any) -> Any:
        x = self.conv2(self.relu1(self.conv1(x)))
        return self.fc(x.mean((2, 3)))


AT = Moment(2, 0, 9, 2)


def pruner(net: nn.Module, folder: Path, cls: str, args: dict[str, Any] | None = None, **given: Any) -> pruners.Pruner:
    """The pruner of a schedule with nothing else."""
    when = {"starting_epoch": AT.starting, "ending_epoch": AT.ending, "frequency": AT.frequency}
    text = yaml.safe_dump(
        {
            "pruners": {"it": {"class": cls, **given}},
            "policies": [{"pruner": {"instance_name": "it", "args": args or {}}, **when}],
        }
    )
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    return pruners.build(reader.read(folder / "s.yaml").policies[0], net)


def masked(made: pruners.Pruner, name: str, before: Any = None, now: Moment = AT) -> Any:
    """The mask of a parameter."""
    return made.rule.mask(name, made.parameters[name], before, now)


def filled(net: Any, name: str, values: Any) -> Any:
    """Sets a parameter of the net."""
    parameter = net.get_parameter(name)
    parameter.data.copy_(torch.as_tensor(values).expand(parameter.shape))
    return parameter


def filters(net: Any, name: str, sizes: list[float]) -> None:
    """Filters of these sizes, of both signs."""
    signs = torch.tensor([1.0, -1.0, 1.0]).expand(net.get_parameter(name).shape)
    filled(net, name, torch.tensor(sizes).reshape(-1, 1, 1, 1) * signs)


def kept(mask: Any) -> list[int]:
    """The filters that stay."""
    assert all(len(set(each.flatten().tolist())) == 1 for each in mask)
    return [number for number, each in enumerate(mask) if each.any()]


def test_magnitude_keeps_what_is_strictly_above_in_every_parameter(tmp_path: Path) -> None:
    net = Net()
    filled(net, "fc.bias", [0.1, -0.2, 0.2, -0.3, 0.0])
    made = pruner(net, tmp_path, "MagnitudeParameterPruner", thresholds={"*": 0.2, "module.conv1.weight": 9})
    assert made.parameters.keys() == dict(net.named_parameters()).keys()
    assert masked(made, "fc.bias").tolist() == [0, 0, 0, 1, 0] and not masked(made, "conv1.weight").any()


def test_level_prunes_the_smallest_and_all_that_equal_them(tmp_path: Path) -> None:
    net = Net()
    filled(net, "fc.bias", [3.0, -1.0, 2.0, -2.0, 5.0])
    made = pruner(net, tmp_path, "SparsityLevelParameterPruner", levels={"fc.bias": 0.4})
    assert masked(made, "fc.bias").tolist() == [1, 0, 0, 0, 1]
    again = pruner(net, tmp_path, "SparsityLevelParameterPruner", {"levels": {"*": 0.1}}, levels={"fc.bias": 0.4})
    assert masked(again, "fc.bias") is None and masked(again, "conv1.weight").sum() == 72 - 7


def test_agp_prunes_to_the_level_of_the_epoch(tmp_path: Path) -> None:
    net = Net()
    made = pruner(
        net, tmp_path, "AutomatedGradualPruner", initial_sparsity=0.1, final_sparsity=0.5, weights="fc.weight"
    )
    assert (masked(made, "fc.weight") == 0).sum() == int(agp(0.1, 0.5, AT) * 20) == 6


def test_sensitivity_is_of_the_first_standard_deviation(tmp_path: Path) -> None:
    net = Net()
    filled(net, "fc.bias", [1.0, -1.0, 0.5, 2.0, 0.0])
    made = pruner(net, tmp_path, "SensitivityPruner", sensitivities={"fc.bias": 0.8})
    assert masked(made, "fc.bias").tolist() == [1, 1, 0, 1, 0]  # the threshold is 0.8 x 1.1180
    filled(net, "fc.bias", [1.0, -1.0, 0.95, 9.0, 0.0])
    assert masked(made, "fc.bias").tolist() == [1, 1, 1, 1, 0]


def test_splicing_keeps_what_lies_between_as_it_was(tmp_path: Path) -> None:
    net = Net()
    filled(net, "fc.bias", [1.0, -2.0, 3.0, -4.0, 5.0])  # mean 3, deviation 1.5811
    given = {"sensitivities": {"fc.bias": 0.5}, "low_thresh_mult": 0.9, "hi_thresh_mult": 1.1}
    made = pruner(net, tmp_path, "SplicingPruner", **given)
    assert masked(made, "fc.bias").tolist() == [0, 0, 0, 1, 1]  # a 3.4115, b 4.1696
    assert masked(made, "fc.bias", torch.tensor([1.0, 1, 1, 0, 0])).tolist() == [0, 0, 0, 0, 1]
    grown = pruner(net, tmp_path, "SplicingPruner", sensitivity_multiplier=0.5, **given)
    assert masked(grown, "fc.bias").tolist() == [0, 0, 0, 0, 1]  # s is 0.5 x (2 x 0.5 + 1): a 4.1230


@pytest.mark.parametrize(("criterion", "stays"), [("Max", [1, 2, 3]), ("Mean_Abs", [2, 3])])
def test_a_structure_is_judged_by_its_largest_or_mean_magnitude(
    tmp_path: Path, criterion: str, stays: list[int]
) -> None:
    net = Net()
    filters(net, "conv1.weight", [0.1, 0.1, 0.5, 0.6])
    net.conv1.weight.data[1, 0, 0, 0] = -9.0 * 0.05
    regims = {"conv1.weight": [0.2, "Filters"]}
    made = pruner(net, tmp_path, "StructureParameterPruner", reg_regims=regims, threshold_criteria=criterion)
    assert kept(masked(made, "conv1.weight")) == stays


RANKED = {"weights": ["conv1.weight"], "group_type": "Filters"}


@pytest.mark.parametrize(("norm", "stays"), [("L1", [1, 3]), ("L2", [0, 3])])
def test_filters_of_the_smallest_norm_go(tmp_path: Path, norm: str, stays: list[int]) -> None:
    net = Net()
    filters(net, "conv1.weight", [0.0, 0.3, 0.1, 0.9])
    net.conv1.weight.data[0, 0, 0, 0] = 3.0  # its L1 norm is 3 of 18 elements, its L2 norm 3
    made = pruner(net, tmp_path, f"{norm}RankedStructureParameterPruner", desired_sparsity=0.6, **RANKED)
    assert kept(masked(made, "conv1.weight")) == stays


def test_as_many_go_as_the_share_and_the_group_size_allow(tmp_path: Path) -> None:
    net = Net()
    filters(net, "conv1.weight", [0.1, 0.2, 0.3, 0.4])

    def stays(share: float, **more: Any) -> Any:
        cls = "L1RankedStructureParameterPruner"
        mask = masked(pruner(net, tmp_path, cls, desired_sparsity=share, **RANKED, **more), "conv1.weight")
        return None if mask is None else kept(mask)

    assert [stays(0.2), stays(0.25), stays(0.99), stays(1.0)] == [None, [1, 2, 3], [3], []]
    assert [stays(0.75, group_size=2), stays(0.3, rounding_fn="ceil"), stays(0.9, rounding_fn="ceil")] == [
        [2, 3]
    ] * 2 + [[3]]


def test_channels_rows_and_blocks_go(tmp_path: Path) -> None:
    net = Net()
    given = {"desired_sparsity": 0.25, "weights": ["fc.weight"]}
    filled(net, "fc.weight", torch.tensor([4.0, 1.0, 2.0, 3.0]))
    for structure in ("Rows", "Channels"):  # rows of the transposed matrix are columns of the one that is stored
        mask = masked(
            pruner(net, tmp_path, "L1RankedStructureParameterPruner", group_type=structure, **given), "fc.weight"
        )
        assert mask.tolist() == [[1, 0, 1, 1]] * 5
    block = {"group_type": "Blocks", "kwargs": {"block_shape": [1, 2, 1, 1]}}
    given |= {"desired_sparsity": 0.5, "weights": ["conv2.weight"]}
    mask = masked(pruner(net, tmp_path, "L2RankedStructureParameterPruner", **block, **given), "conv2.weight")
    assert (mask == 0).sum() == 72 and torch.equal(mask[:, 0], mask[:, 1]) and not torch.equal(mask[:, 1], mask[:, 2])


def test_followers_lose_what_the_leader_loses_until_the_share_changes(tmp_path: Path) -> None:
    net = Net()
    filters(net, "conv1.weight", [0.1, 0.9, 0.2, 0.8])
    given = {"weights": ["conv1.weight", "conv2.weight"], "group_type": "3D", "group_dependency": "Leader"}
    cls = "L1RankedStructureParameterPruner_AGP"
    made = pruner(net, tmp_path, cls, initial_sparsity=0.4, final_sparsity=0.6, **given)
    assert kept(masked(made, "conv2.weight")) == [1, 3]
    filters(net, "conv1.weight", [0.9, 0.1, 0.8, 0.2])
    assert kept(masked(made, "conv1.weight")) == kept(masked(made, "conv2.weight")) == [1, 3]
    assert kept(masked(made, "conv1.weight", now=Moment(8, 0, 9, 2))) == [0, 2]
    with pytest.raises(
        InputError, match=r"s.yaml: line \d+: it: 'fc.weight' has 4 structures, its leader 'conv1.weight' 2"
    ):
        given |= {"weights": ["conv1.weight", "fc.weight"], "group_type": "Channels"}
        pruner(net, tmp_path, cls, initial_sparsity=0.4, final_sparsity=0.6, **given)


def test_a_random_level_lies_in_its_range(tmp_path: Path) -> None:
    net = Net(filters=20)
    made = pruner(net, tmp_path, "RandomLevelStructureParameterPruner", sparsity_range=[0.2, 0.6], **RANKED)
    gone = {20 - len(kept(masked(made, "conv1.weight"))) for _ in range(40)}
    assert len(gone) > 3 and min(gone) >= 4 and max(gone) <= 12


@pytest.mark.parametrize(("ranking", "stays"), [("APoZ", [0, 2]), ("Mean", [0, 3])])
def test_filters_are_ranked_by_their_activations_in_validation(tmp_path: Path, ranking: str, stays: list[int]) -> None:
    net = Net()
    made = pruner(net, tmp_path, f"Activation{ranking}RankedFilterPruner", desired_sparsity=0.5, **RANKED)
    with pytest.raises(InputError, match="no activations of 'relu1' were seen; run the validation, in eval mode"):
        masked(made, "conv1.weight")
    seen = torch.zeros(2, 4, 3, 3)  # the share of zeros: 0, 1, 0.5, 0.75; the means: 1, 0, 0.1, 4
    seen[:, 0], seen[0, 2], seen[1, 3, 0], seen[0, 3, 0, 0] = 1.0, 0.2, 24.0, 0.0
    seen[0, 3, 1] = 0.0
    net.eval()
    net.relu1(seen)
    assert kept(masked(made, "conv1.weight")) == stays
    net.train()
    net.relu1(torch.ones(2, 4, 3, 3))
    assert kept(masked(made, "conv1.weight")) == stays
    net.eval()
    net.relu1(torch.tensor([0.0, 0.0, 1.0, 2.0]).reshape(1, 4, 1, 1).expand(1, 4, 3, 3))
    assert kept(masked(made, "conv1.weight")) == [2, 3]
    other = {**RANKED, "weights": ["conv2.weight"]}
    with pytest.raises(
        InputError, match="the activations of 'conv2' are the outputs of 'relu2', which the model lacks, did"
    ):
        pruner(net, tmp_path, f"Activation{ranking}RankedFilterPruner", desired_sparsity=0.5, **other)


def test_filters_are_ranked_by_weight_times_gradient(tmp_path: Path) -> None:
    net = Net()
    made = pruner(net, tmp_path, "GradientRankedFilterPruner", desired_sparsity=0.5, **RANKED)
    assert masked(made, "conv1.weight", now=Moment(0, 0, 9, 2)) is None
    with pytest.raises(ValueError, match="no gradient as the epoch begins"):
        masked(made, "conv1.weight")
    filled(net, "conv1.weight", 2.0)
    net.conv1.weight.grad = torch.tensor([1.0, -1.0, 2.0, -2.0]).reshape(4, 1, 1, 1).expand(4, 2, 3, 3)
    assert kept(masked(made, "conv1.weight")) == [0, 2]


def test_random_filters_go_as_many_as_the_share(tmp_path: Path) -> None:
    net = Net(filters=10)
    given = {"initial_sparsity": 0.3, "final_sparsity": 0.8, **RANKED}
    made = pruner(net, tmp_path, "RandomRankedFilterPruner_AGP", **given)
    masks = [kept(masked(made, "conv1.weight")) for _ in range(9)]
    assert {len(mask) for mask in masks} == {10 - int(10 * agp(0.3, 0.8, AT))} and len({*map(tuple, masks)}) > 1


def test_filters_dropped_by_chance_are_made_up_for(tmp_path: Path) -> None:
    net = Net(filters=200)
    made = pruner(net, tmp_path, "BernoulliFilterPruner", desired_sparsity=0.25, **RANKED)
    mask = masked(made, "conv1.weight")
    assert 0.6 < len(kept(mask)) / 200 < 0.9 and float(mask.mean()) == pytest.approx(1, abs=1e-5)


TO_HALF = {"desired_sparsity": 0.5}
THREE = {"weights": "conv1.weight", "group_type": "Blocks", "kwargs": {"block_shape": [3, 1, 1, 1]}}
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (
        "SensitivityPruner",
        {"sensitivities": {"fc.wieght": 1}},
        "the model has no parameter 'fc.wieght', did you mean 'fc.weight'",
    ),
    (
        "L1RankedStructureParameterPruner",
        {**RANKED, **TO_HALF, "weights": ["fc.weight"]},
        "it: Filters needs a weight of 3 or 4 axes, not of shape [5, 4]",
    ),
    (
        "L1RankedStructureParameterPruner",
        {**THREE, **TO_HALF},
        "it: blocks of [3, 1, 1, 1] do not divide a weight of shape [4, 2, 3, 3]",
    ),
    (
        "StructureParameterPruner",
        {"reg_regims": {"fc.weight": [1, "2D"]}, "threshold_criteria": "Max"},
        "it: 2D needs a weight of 4 axes, not of shape [5, 4]",
    ),
]


@pytest.mark.parametrize(("cls", "given", "says"), REFUSED, ids=[says for _, _, says in REFUSED])
def test_what_does_not_fit_the_model_is_one_line(tmp_path: Path, cls: str, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        pruner(Net(), tmp_path, cls, **given)
    assert str(caught.value).startswith(f"{tmp_path}/s.yaml: line 9: {says}") and "\n" not in str(caught.value)


def test_a_layer_of_zeros_is_not_ranked(tmp_path: Path) -> None:
    net = Net()
    filled(net, "conv1.weight", 0.0)
    level = pruner(net, tmp_path, "SparsityLevelParameterPruner", levels={"conv1.weight": 0.5})
    with pytest.raises(ValueError, match="all elements would go: none is larger than 0, the 36th smallest"):
        masked(level, "conv1.weight")
    ranked = pruner(net, tmp_path, "L1RankedStructureParameterPruner", desired_sparsity=0.5, **RANKED)
    with pytest.raises(ValueError, match="all structures would go"):
        masked(ranked, "conv1.weight")


# --------------------------------------------------------------------------- regularizers


def regularizer(
    net: nn.Module, folder: Path, cls: str, regims: dict[str, Any], **given: Any
) -> regularizers.Regularizer:
    """The regularizer of a schedule with nothing else."""
    text = yaml.safe_dump({"regularizers": {"it": {"class": cls, "reg_regims": regims, **given}}})
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    return regularizers.Regularizer(reader.read(folder / "s.yaml").instances["regularizers"]["it"], net)


SIZES = [3.0, 4.0, 0.0, 12.0]
LOSSES = [  # of a (4, 2, 3, 3) weight whose filters are of these sizes; an element count of 18 per filter
    ("3D", 18**0.5 * 19),
    ("Filters", 18**0.5 * 19),
    ("2D", 2 * 3 * 19),
    ("Channels", 2 * 9**0.5 * 13),
    ("4D", 18**0.5 * 13),
    ("Channels+4D", 2 * 9**0.5 * 13 + 18**0.5 * 13),
]


@pytest.mark.parametrize(("structure", "length"), LOSSES)
def test_group_lasso_is_the_sum_of_lengths(tmp_path: Path, structure: str, length: float) -> None:
    net = Net()
    filters(net, "conv1.weight", SIZES)
    made = regularizer(net, tmp_path, "GroupLassoRegularizer", {"module.conv1.weight": [0.1, structure]})
    loss = made.loss()
    loss.backward()
    assert loss.item() == pytest.approx(0.1 * length, abs=1e-3) and net.conv1.weight.grad.isfinite().all()


def test_rows_and_columns_are_of_the_matrix_that_is_stored(tmp_path: Path) -> None:
    net = nn.Linear(2, 2)
    filled(net, "weight", [[3.0, 4.0], [0.0, 0.0]])
    found = {
        structure: regularizer(net, tmp_path, "GroupLassoRegularizer", {"weight": [1, structure]}).loss().item()
        for structure in ("Rows", "Cols", "Rows+Cols", "Cols+Rows")
    }
    assert found == pytest.approx({"Rows": 5, "Cols": 7, "Rows+Cols": 12, "Cols+Rows": 12}, abs=1e-3)


def test_the_absolute_sum_and_the_variance_of_channels(tmp_path: Path) -> None:
    net = nn.Conv2d(2, 1, 1, bias=False)
    filled(net, "weight", [[[[3.0]], [[-4.0]]]])
    assert regularizer(net, tmp_path, "L1Regularizer", {"weight": 0.5}).loss().item() == 3.5
    variance = regularizer(net, tmp_path, "GroupVarianceRegularizer", {"weight": [0.5, "Channels"]})
    assert variance.loss().item() == pytest.approx(0.5 / 0.5)


def test_the_threshold_is_the_strength_and_what_equals_it_goes(tmp_path: Path) -> None:
    net = Net()
    filters(net, "conv1.weight", [0.5, 0.25, 0.75, 0.1])
    regims = {"conv1.weight": [0.25, "Filters"]}
    made = regularizer(net, tmp_path, "GroupLassoRegularizer", regims, threshold_criteria="Mean_Abs")
    assert kept(made.above("conv1.weight")) == [0, 2]
    with pytest.raises(InputError, match=r"line 2: it: fc.weight: Channels\+?4?D? ?needs|4D needs a weight of 4 axes"):
        regularizer(net, tmp_path, "GroupLassoRegularizer", {"fc.weight": [0.1, "Channels+4D"]})
