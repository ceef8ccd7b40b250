"""Thinning under Distiller's schedules: which filters and channels go, what goes along, and what is left as it is."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import reader, thinning
from edgecompress.extras.schedules.scheduler import CompressionScheduler
from edgecompress.formats import torch_edits

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow

IMAGE = (2, 3, 8, 8)


def written(folder: Path, how: str, *pruners: dict[str, Any], at: int = 0) -> Path:
    """A schedule whose pruners act at epoch 0, and which thins at an epoch."""
    text: dict[str, Any] = {
        "pruners": {f"p{number}": pruner for number, pruner in enumerate(pruners)},
        "extensions": {"thinner": {"class": "StructureRemover", "thinning_func_str": how, "arch": "", "dataset": ""}},
        "policies": [{"pruner": {"instance_name": f"p{number}"}, "epochs": [0]} for number in range(len(pruners))],
    }
    text["policies"].append({"extension": {"instance_name": "thinner"}, "epochs": [at]})
    (folder / "s.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return folder / "s.yaml"


def half(*weights: str, group: str = "Filters", **more: Any) -> dict[str, Any]:
    """A pruner of half of the structures of each weight."""
    return {
        "class": "L1RankedStructureParameterPruner",
        "group_type": group,
        "desired_sparsity": 0.5,
        "weights": list(weights),
        **more,
    }


class Kinds(nn.Module):
    """A layer of each kind that makes channels, carries them or reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.slope = nn.PReLU(8)
        self.left = nn.Conv2d(8, 6, 1)
        self.right = nn.Conv2d(8, 4, 1, bias=False)
        self.joined = nn.Conv2d(10, 4, 3)
        self.head = nn.Linear(4 * 3 * 3, 5)

    def forward(self, x: Any) -> Any:
        """[n, 3, 8, 8] -> [n, 5]."""
        x = self.slope(self.depthwise(torch.relu(self.norm(self.stem(x)))))
        x = torch.cat([torch.relu(self.left(x)), self.right(x)], dim=1)
        x = nn.functional.max_pool2d(torch.relu(self.joined(x)), 2)
        return self.head(x.view(x.size(0), -1))


class Residual(nn.Module):
    """A sum of a stem and a branch."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.conv1 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.last = nn.Conv2d(8, 4, 1, bias=False)

    def forward(self, x: Any) -> Any:
        """[n, 3, 8, 8] -> [n, 4]."""
        x = self.stem(x)
        x = x + self.conv2(torch.relu(self.conv1(x)))
        return self.last(torch.relu(x)).mean((2, 3))


def started(net: Any, schedule: Path, optimizer: Any = None, image: Any = IMAGE) -> CompressionScheduler:
    """A scheduler before its first step, with a net in training."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return CompressionScheduler(net.train(), optimizer, schedule, (torch.zeros(image),))


def begun(scheduler: CompressionScheduler, epoch: int = 0) -> None:
    """Up to the first forward pass of an epoch."""
    scheduler.on_epoch_begin(epoch)
    scheduler.on_minibatch_begin(epoch, 0, 2)


def thinned(scheduler: CompressionScheduler, net: Any, inputs: Any) -> Any:
    """Thins the net at its first step; what it answered with the masks alone."""
    scheduler.on_epoch_begin(0)
    for mask in scheduler.masks.values():
        mask.apply()
    expected = copy.deepcopy(net).eval()(inputs)
    scheduler.on_minibatch_begin(0, 0, 2)
    return expected


def assert_same(net: Any, inputs: Any, expected: Any) -> None:
    torch.testing.assert_close(net.eval()(inputs), expected, rtol=1e-5, atol=1e-5)


def trained(scheduler: CompressionScheduler, net: Any, optimizer: Any) -> Any:
    """A step of training from its forward pass on; its loss."""
    loss = scheduler.before_backward_pass(net(torch.randn(IMAGE)).square().mean())
    optimizer.zero_grad()
    loss.backward()
    scheduler.before_parameter_optimization()
    optimizer.step()
    scheduler.on_minibatch_end()
    return loss


def silent(net: Any) -> Any:
    """The net, with biases and norms that make nothing of the channels of a filter of zeros."""
    torch.manual_seed(0)
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    for name, parameter in net.named_parameters():
        if name.endswith("bias") and "head" not in name:
            nn.init.zeros_(parameter)
    return net.eval()


def widths(net: Any) -> dict[str, list[int]]:
    """The shapes of the weights of layers."""
    return {name.removesuffix(".weight"): list(p.shape[:2]) for name, p in net.named_parameters() if p.dim() > 1}


# --------------------------------------------------------------------------- what goes


def test_filters_go_with_all_that_carries_and_reads_them_and_the_net_computes_the_same(tmp_path: Path) -> None:
    net = silent(Kinds())
    inputs = torch.randn(IMAGE)
    pruner = half("stem.weight", "left.weight", "right.weight", "joined.weight")
    scheduler = started(net, written(tmp_path, "remove_filters", pruner))
    expected = thinned(scheduler, net, inputs)
    assert widths(net) == {"stem": [4, 3], "depthwise": [4, 1], "left": [3, 4], "right": [2, 4], "joined": [2, 5]} | {
        "head": [5, 18]
    }
    assert (net.norm.num_features, net.slope.num_parameters) == (4, 4) and len(net.norm.running_mean) == 4
    assert (net.depthwise.groups, net.depthwise.in_channels, net.depthwise.out_channels) == (4, 4, 4)
    assert (net.joined.in_channels, net.joined.out_channels, net.head.in_features) == (5, 2, 18)
    assert_same(net, inputs, expected)


class Parallel(nn.Module):
    """Dilated branches and a pooled one, resized to their height and width, joined and read by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Conv2d(6, 4, 3, padding=d, dilation=d, bias=False), nn.BatchNorm2d(4)) for d in (1, 2)
        )
        self.pooled = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(6, 4, 1), nn.ReLU())
        self.join, self.head = nn.Conv2d(12, 5, 1), nn.Conv2d(5, 3, 1)

    def forward(self, x: Any) -> Any:
        """[n, 3, 8, 8] -> [n, 3, 8, 8]."""
        x = torch.relu(self.stem(x))
        resized = nn.functional.interpolate(self.pooled(x), size=x.shape[2:], mode="bilinear", align_corners=True)
        return self.head(torch.relu(self.join(torch.cat([*(branch(x) for branch in self.branches), resized], 1))))


@pytest.mark.parametrize("resized", [False, True])
def test_branches_that_are_joined_lose_their_filters_and_what_reads_them_its_inputs(
    resized: bool, tmp_path: Path
) -> None:
    net, inputs = silent(Parallel()), torch.randn(IMAGE)
    weights = ["branches.0.0.weight", "branches.1.0.weight", *["pooled.1.weight"] * resized]
    scheduler = started(net, written(tmp_path, "remove_filters", half(*weights)))
    expected = thinned(scheduler, net, inputs)
    narrow = widths(net)
    assert (narrow["branches.0.0"], narrow["branches.1.0"]) == ([2, 6], [2, 6])
    assert net.join.in_channels == narrow["join"][1] == (6 if resized else 8)
    assert_same(net, inputs, expected)


def test_channels_go_with_the_filters_that_only_zeros_read(tmp_path: Path) -> None:
    net = silent(Kinds())
    scheduler = started(net, written(tmp_path, "remove_channels", half("joined.weight", group="Channels")))
    expected = thinned(scheduler, net, torch.ones(IMAGE))
    assert widths(net)["joined"] == [4, 5] and widths(net)["left"][0] + widths(net)["right"][0] == 5
    assert widths(net)["stem"] == [8, 3]
    assert_same(net, torch.ones(IMAGE), expected)


def test_contracting_removes_filters_and_then_channels(tmp_path: Path) -> None:
    net = silent(Residual())
    pruners = (half("last.weight"), half("conv2.weight", group="Channels"))
    scheduler = started(net, written(tmp_path, "contract_model", *pruners))
    with pytest.warns(UserWarning, match="the net's output needs all"):
        begun(scheduler)
    assert widths(net) == {"stem": [8, 3], "conv1": [4, 8], "conv2": [8, 4], "last": [4, 8]}, "last is the output"


def test_channels_stay_that_another_layer_reads(tmp_path: Path) -> None:
    net = silent(Residual())
    begun(started(net, written(tmp_path, "remove_channels", half("conv1.weight", group="Channels"))))
    assert widths(net) == {"stem": [8, 3], "conv1": [8, 8], "conv2": [8, 8], "last": [4, 8]}


# --------------------------------------------------------------------------- what stays


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (["last.weight"], "filters of zeros of last stay in the net: the net's output needs all"),
        (["stem.weight"], "filters of zeros of stem stay in the net: add needs all"),
        (["conv2.weight"], "filters of zeros of conv2 stay in the net: add needs all"),
    ],
)
def test_filters_stay_that_something_needs_and_a_warning_says_so(weights: list[str], says: str, tmp_path: Path) -> None:
    net = silent(Residual())
    scheduler = started(net, written(tmp_path, "remove_filters", half(*weights)))
    with pytest.warns(UserWarning, match=says):
        begun(scheduler)
    assert widths(net) == widths(Residual())


def test_filters_of_a_depthwise_convolution_stay_and_a_warning_says_so_before_and_after(tmp_path: Path) -> None:
    schedule, net = written(tmp_path, "remove_filters", half("depthwise.weight")), silent(Kinds())
    [told] = thinning.conflicts(net, reader.read(schedule), (torch.zeros(IMAGE),))
    assert "the filters of zeros of depthwise stay in the net" in told
    scheduler = started(net, schedule)
    with pytest.warns(UserWarning, match="filters of zeros of depthwise stay in the net: the convolution before it"):
        begun(scheduler)
    assert widths(net) == widths(Kinds())


def test_both_sides_of_a_sum_that_lose_other_filters_are_added_as_they_are_left(tmp_path: Path) -> None:
    schedule = written(tmp_path, "remove_filters", half("stem.weight", "conv2.weight"))
    net = silent(Residual())
    scheduler = started(net, schedule)
    with pytest.warns(UserWarning, match=r"line \d+: thinner: stem, conv2 lose different filters.*Leader"):
        begun(scheduler)
    assert widths(net) == {"stem": [4, 3], "conv1": [8, 4], "conv2": [4, 8], "last": [4, 4]}
    [told] = thinning.conflicts(Residual(), reader.read(schedule), (torch.zeros(IMAGE),))
    assert "stem, conv2 lose different filters" in told


def test_a_leader_keeps_both_sides_of_a_sum_together(tmp_path: Path) -> None:
    schedule = written(tmp_path, "remove_filters", half("stem.weight", "conv2.weight", group_dependency="Leader"))
    net, inputs = silent(Residual()), torch.randn(IMAGE)
    scheduler = started(net, schedule)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = thinned(scheduler, net, inputs)
    assert_same(net, inputs, expected)
    assert widths(net) == {"stem": [4, 3], "conv1": [8, 4], "conv2": [4, 8], "last": [4, 4]}
    assert thinning.conflicts(Residual(), reader.read(schedule), (torch.zeros(IMAGE),)) == []


# --------------------------------------------------------------------------- training goes on


@pytest.mark.parametrize("kind", ["SGD", "Adam"])
def test_training_goes_on_as_that_of_the_masked_net_does(kind: str, tmp_path: Path) -> None:
    schedules = [written(tmp_path / name, "remove_filters", half("conv1.weight"), at=at) for name, at in FOLDERS]
    nets, parameters = [], []
    for schedule in schedules:
        net = silent(Residual())
        optimizer = getattr(torch.optim, kind)(
            net.parameters(), lr=0.01, **({"momentum": 0.9} if kind == "SGD" else {})
        )
        scheduler, loss = started(net, schedule, optimizer), None
        parameters.append([id(p) for p in net.parameters()])
        torch.manual_seed(1)
        for epoch in (0, 1):
            scheduler.on_epoch_begin(epoch)
            for step in (0, 1):
                scheduler.on_minibatch_begin(epoch, step, 2)
                assert all(p.grad is None or p.grad.shape == p.shape for p in net.parameters())
                assert (epoch, step) == (0, 0) or net.conv1.weight.grad is not None
                loss = trained(scheduler, net, optimizer)
            scheduler.on_epoch_end()
        assert loss is not None, "its graph is alive as the net is thinned"
        assert parameters[-1] == [id(p) for p in net.parameters()]
        nets.append(net)
    thin, masked = nets
    assert widths(thin)["conv1"] == [4, 8] and widths(masked)["conv1"] == [8, 8]
    inputs = torch.randn(IMAGE)
    torch.testing.assert_close(thin(inputs), masked(inputs), rtol=1e-5, atol=1e-5)
    assert len(thin.conv2.weight.grad[0]) == 4


FOLDERS = (("thin", 1), ("masked", 9))  # and when each thins


@pytest.fixture(autouse=True)
def folders(tmp_path: Path) -> None:
    for name, _ in FOLDERS:
        (tmp_path / name).mkdir()


def test_pruners_choose_anew_among_what_is_left(tmp_path: Path) -> None:
    schedule = written(tmp_path, "remove_filters", half("stem.weight", "conv2.weight", group_dependency="Leader"))
    text = yaml.safe_load(schedule.read_text(encoding="utf-8"))
    text["policies"][0]["epochs"] = [0, 1]
    schedule.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    net = silent(Residual())
    scheduler = started(net, schedule)
    begun(scheduler)
    begun(scheduler, 1)
    assert int((net.stem.weight.flatten(1) != 0).any(1).sum()) == 2
    assert torch.equal((net.stem.weight.flatten(1) != 0).any(1), (net.conv2.weight.flatten(1) != 0).any(1))


def test_a_saved_state_thins_a_dense_net_again(tmp_path: Path) -> None:
    schedule = written(tmp_path, "remove_filters", half("stem.weight", "joined.weight", "left.weight"))
    net = silent(Kinds())
    scheduler = started(net, schedule)
    begun(scheduler)
    scheduler.on_epoch_end()
    scheduler.save(tmp_path / "state")
    fresh = silent(Kinds())
    optimizer = torch.optim.SGD(fresh.parameters(), lr=0.1, momentum=0.9)
    resumed = started(fresh, schedule, optimizer)
    resumed.load(tmp_path / "state")
    fresh.load_state_dict(net.state_dict(), strict=True)
    assert torch.equal(fresh.eval()(torch.ones(IMAGE)), net.eval()(torch.ones(IMAGE)))
    assert all(mask.values is None or mask.values.shape == mask.parameter.shape for mask in resumed.masks.values())
    assert fresh.norm.num_features == 4
    dense = Kinds()
    torch_edits.apply(dense, resumed.finish())
    dense.load_state_dict(net.state_dict(), strict=True)
    assert torch.equal(dense.eval()(torch.ones(IMAGE)), net.eval()(torch.ones(IMAGE)))


@pytest.mark.parametrize("gone", [{"nothing": [0]}, {"stem": [8]}, {"stem": [-1]}, {"stem": list(range(8))}])
def test_a_state_with_other_filters_is_an_error(gone: dict[str, list[int]], tmp_path: Path) -> None:
    net = silent(Kinds())
    scheduler = started(net, written(tmp_path, "remove_filters", half("stem.weight")))
    state = scheduler.state_dict()
    state["numbers"]["thinned"] = [gone]
    with pytest.raises(InputError, match="that the model lacks; load that model's"):
        scheduler.load_state_dict(state)
    assert widths(net) == widths(Kinds())


# --------------------------------------------------------------------------- errors


def test_a_convolution_of_zeros_is_an_error(tmp_path: Path) -> None:
    net = silent(Residual())
    pruner = half("conv1.weight") | {"desired_sparsity": 1.0}
    scheduler = started(net, written(tmp_path, "remove_filters", pruner))
    with pytest.raises(InputError, match=r"line \d+: thinner: conv1.weight: all of its filters are zero"):
        begun(scheduler)
    pruner |= {"group_type": "Channels", "weights": ["conv2.weight"]}
    scheduler = started(silent(Residual()), written(tmp_path, "remove_channels", pruner))
    with pytest.raises(InputError, match=r"conv1.weight: all that reads it is zero"):
        begun(scheduler)


def test_thinning_needs_example_inputs(tmp_path: Path) -> None:
    net, schedule = Residual(), written(tmp_path, "remove_filters", half("conv1.weight"))
    with pytest.raises(InputError, match=r"line \d+: thinner: StructureRemover needs example_inputs"):
        CompressionScheduler(net, torch.optim.SGD(net.parameters(), lr=0.1), schedule)


def test_a_wrapper_that_holds_sizes_is_an_error(tmp_path: Path) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(Residual())
        with pytest.raises(InputError, match="thinner: DistributedDataParallel holds the sizes of the model"):
            started(wrapped, written(tmp_path, "remove_filters", half("conv1.weight")))
    finally:
        torch.distributed.destroy_process_group()


class Untraceable(Residual):
    """Its way depends on its values."""

    def forward(self, x: Any) -> Any:
        """As the other."""
        return super().forward(x if x.sum() > 0 else -x)


class Mixing(Residual):
    """Channels depend on each other."""

    def forward(self, x: Any) -> Any:
        """As the other."""
        return super().forward(x) + self.last(torch.softmax(self.stem(x), 1)).mean((2, 3))


@pytest.mark.parametrize(
    ("net", "says"), [(Untraceable, "cannot be traced: "), (Mixing, "mixes channels as thinning cannot follow")]
)
def test_a_net_that_cannot_be_followed_is_an_error(net: Any, says: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"thinner: .*{says}"):
        started(net(), written(tmp_path, "remove_filters", half("conv1.weight")))


# --------------------------------------------------------------------------- Distiller's own nets and numbers


def macs(net: Any, image: tuple[int, ...] = (1, 3, 32, 32)) -> int:
    """For one image."""
    from edgecompress.techniques._pruning.macs import count

    return count(net.eval(), lambda each: each(torch.zeros(image)))


def test_distillers_nets_are_as_large_as_its_files_say() -> None:
    from edgecompress.extras.schedules import nets

    assert macs(nets.resnet20_cifar()) == 40_813_184
    assert macs(nets.resnet56_cifar()) == 125_747_840
    assert macs(nets.simplenet_cifar()) == 6 * 28**2 * 75 + 16 * 10**2 * 150 + 400 * 120 + 120 * 84 + 84 * 10
    assert macs(nets.simplenet_mnist(), (1, 1, 28, 28)) == 20 * 24**2 * 25 + 50 * 8**2 * 500 + 800 * 500 + 500 * 10
    sizes = sum(p.numel() for p in nets.resnet56_cifar().parameters() if p.dim() > 1)
    assert sizes == 851_504


@pytest.mark.shared
def test_distillers_weights_are_those_of_its_net() -> None:
    from safetensors.torch import load_file

    from edgecompress.extras.schedules import nets

    weights = load_file(SHARED / "models" / "distiller_resnet20_cifar.safetensors")
    net = nets.resnet20_cifar()
    missing, surplus = net.load_state_dict(weights, strict=False)
    assert not surplus and all(name.endswith("num_batches_tracked") for name in missing)


@pytest.mark.parametrize(("name", "image"), [("simplenet_cifar", (1, 3, 32, 32)), ("simplenet_mnist", (1, 1, 28, 28))])
def test_a_simple_net_is_thinned_down_to_its_first_linear_layer(
    name: str, image: tuple[int, ...], tmp_path: Path
) -> None:
    from edgecompress.extras.schedules import nets

    net = getattr(nets, name)()
    begun(started(net, written(tmp_path, "remove_filters", half("conv1.weight", "conv2.weight")), image=image))
    expected = {
        "simplenet_cifar": 3 * 28**2 * 75 + 8 * 10**2 * 75 + 200 * 120 + 120 * 84 + 84 * 10,
        "simplenet_mnist": 10 * 24**2 * 25 + 25 * 8**2 * 250 + 400 * 500 + 500 * 10,
    }
    assert macs(net, image) == expected[name]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "name", "left", "nonzero"),
    [
        ("agp-pruning/resnet20_filters.schedule_agp.yaml", "resnet20_cifar", 30_655_104, 120_000),
        ("agp-pruning/resnet20_filters.schedule_agp_4.yaml", "resnet20_cifar", 24_723_776, 78_776),
        (
            "pruning_filters_for_efficient_convnets/resnet56_cifar_filter_rank.yaml",
            "resnet56_cifar",
            78_856_832,
            634_640,
        ),
    ],
)
def test_published_schedules_leave_as_many_macs_and_weights_as_they_say(
    file: str, name: str, left: int, nonzero: int
) -> None:
    from edgecompress.extras.schedules import nets

    torch.manual_seed(0)  # some draw a zero
    net = getattr(nets, name)()
    scheduler = started(net, SHARED / "distiller_schedules" / file, image=(1, 3, 32, 32))
    for epoch in (0, 14, 28, 30, 32, 48):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            begun(scheduler, epoch)
        scheduler.on_minibatch_end()
        scheduler.on_epoch_end()
    assert macs(net) == left
    assert sum(int((weight != 0).sum()) for weight in net.parameters() if weight.dim() > 1) == nonzero


def test_a_quantizer_beside_it_rounds_what_is_left(tmp_path: Path) -> None:
    schedule = written(tmp_path, "remove_filters", half("conv1.weight"), at=1)
    text = yaml.safe_load(schedule.read_text(encoding="utf-8"))
    text["quantizers"] = {"q": {"class": "PACTQuantizer", "bits_weights": 3, "bits_activations": 4}}
    text["policies"].append(
        {"quantizer": {"instance_name": "q"}, "starting_epoch": 0, "ending_epoch": 2, "frequency": 1}
    )
    schedule.write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    torch.manual_seed(1)
    net = Rectified()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.0001, momentum=0.9)
    scheduler = started(net, schedule, optimizer)
    for epoch in (0, 1):
        begun(scheduler, epoch)
        trained(scheduler, net, optimizer)
        scheduler.on_epoch_end()
    edits = scheduler.finish()
    assert widths(net)["conv1"] == [4, 8] and len(net.conv1.weight.unique()) <= 8
    fresh, inputs = Rectified(), torch.randn(IMAGE)
    torch_edits.apply(fresh, edits)
    fresh.load_state_dict(net.state_dict(), strict=True)
    assert torch.equal(fresh.eval()(inputs), net.eval()(inputs))


class Rectified(Residual):
    """With a module whose outputs a quantizer rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.relu = nn.ReLU()

    def forward(self, x: Any) -> Any:
        """As the other."""
        x = self.stem(x)
        return self.last(x + self.conv2(self.relu(self.conv1(x)))).mean((2, 3))
