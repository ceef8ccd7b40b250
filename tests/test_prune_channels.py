"""Channel pruning: targets met from below and near, scores of the published formulas, nets that rebuild as they are."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import prove
import pytest
import torch
from torch import nn

from edgecompress.core import config
from edgecompress.core.errors import ConfigError, InputError, StageFailed
from edgecompress.core.model import Artifact, Context, Dim, Goal, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.techniques import prune_channels
from edgecompress.techniques._pruning import criteria
from edgecompress.techniques._pruning.channels import CoupledChannels, Slot, without
from edgecompress.techniques._pruning.work import PruningWork, best
from edgecompress.testing import zoo

pytestmark = pytest.mark.slow
ITEMS = 32
WEIGHTED = ("l1", "l2", "bn_scale", "fpgm", "lamp")
CRITERIA = (*WEIGHTED, "taylor", "fisher", "shapley", "activation")


def folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


class Case:
    """A net of a factory with random data, and where things are made of it."""

    def __init__(self, reference: str, arrays: Mapping[str, Any], out: Path) -> None:
        self.out, self.made = out, 0
        for split in ("calibrate", "select", "test"):
            tensors.write_split(out / "samples" / split, arrays)
        batch = Dim("batch", 1, 1 << 20)
        named = {n: a for n, a in arrays.items() if n != tensors.LABELS}
        specs = tuple(TensorSpec(n, (batch, *a.shape[1:]), str(a.dtype)) for n, a in named.items())
        facts = {"splits": dict.fromkeys(("calibrate", "select", "test"), ITEMS)}
        self.samples = Artifact(out / "samples", "samples", specs, (), facts).write()
        asked = Request({"samples": self.samples}, folder(out / "dense"), {"source": {"model": reference}})
        self.dense = trace.load(asked)

    def request(self, model: Artifact | None = None, **options: Any) -> Request:
        self.made += 1
        inputs = {"model": model or self.dense, "dense": self.dense, "samples": self.samples}
        built = config.build(prune_channels.Options, options, "prune_channels")
        return Request(inputs, folder(self.out / f"made-{self.made}"), built, Context())

    def pruned(self, model: Artifact | None = None, **options: Any) -> Artifact:
        return prune_channels.apply(self.request(model, **options))

    def outputs(self, model: Artifact) -> list[torch.Tensor]:
        named = torch_module.example(model, self.samples, 4)
        return list(torch_module.outputs(torch_module.rebuild(model), model, named).values())


def drawn(name: str) -> dict[str, Any]:
    arrays = zoo.draw(zoo.NETS[name], ITEMS, 0)
    return {**arrays, tensors.LABELS: np.random.default_rng(0).integers(0, zoo.CLASSES, ITEMS)}


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case("edgecompress.testing.zoo:residual_cnn", drawn("residual_cnn"), tmp_path / "case")


def kept(model: Artifact) -> dict[str, int]:
    return {group["name"]: group["kept"] for group in model.facts["groups"]}


# --------------------------------------------------------------------------- strengths


@pytest.mark.parametrize("scope", ["sensitivity", "global", "isomorphic", "local"])
def test_macs_are_met_from_below_and_near(case: Case, scope: str) -> None:
    found = case.pruned(macs=0.6, scope=scope)
    macs = found.facts["macs"]
    assert 0.54 * macs["source"] <= macs["after"] <= 0.6 * macs["source"]
    assert sum(p.numel() for p in torch_module.rebuild(found).parameters()) == found.facts["parameters"]["after"]


@pytest.mark.parametrize("criterion", [*CRITERIA, "random"])
def test_every_criterion_leaves_the_share_of_channels_that_was_asked_for(case: Case, criterion: str) -> None:
    found = case.pruned(ratio=0.5, scope="global", criterion=criterion)
    channels = sum(group["channels"] for group in found.facts["groups"])
    assert 0.5 * channels - 1 <= sum(kept(found).values()) <= 0.5 * channels
    json.dumps(dict(found.facts), allow_nan=False)


def test_without_a_strength_half_of_the_channels_stay(case: Case) -> None:
    found = case.pruned(scope="local")
    assert all(g["kept"] == g["channels"] // 2 for g in found.facts["groups"])


@pytest.mark.parametrize("align", [4, 8])
def test_channels_kept_are_multiples_of_the_block(case: Case, align: int) -> None:
    found = case.pruned(macs=0.5, align=align)
    assert found.facts["align"] == align
    for group in found.facts["groups"]:
        assert group["kept"] % align == 0 or group["kept"] == group["channels"]


def test_widths_are_as_given_by_name_and_by_pattern(case: Case) -> None:
    found = case.pruned(widths={"body.2.*": 8, "body.1.first.0": 3})
    assert kept(found) == {"body.0.0": 8, "body.1.first.0": 3, "body.2.first.0": 8, "body.2.second.0": 8}
    assert torch_module.rebuild(found).body[2].shortcut.out_channels == 8


def test_what_a_pruned_net_computes_is_what_the_dense_one_does_when_nothing_reads_the_rest(case: Case) -> None:
    found = case.pruned(widths={"body.1.first.0": 3}, settle=False, criterion="random")
    work = PruningWork(case.request(criterion="random"))
    group = work.group("body.1.first.0")
    stays = best(work.scores[group.name], 3)
    wanted = without(work.net, group, set(range(8)) - set(stays))
    with torch.no_grad():
        answer = wanted(torch_module.example(found, case.samples, 4)["image"])
    torch.testing.assert_close(case.outputs(found)[0], answer, rtol=1e-4, atol=1e-5)


def test_a_skipped_layer_stays_and_is_named(case: Case) -> None:
    found = case.pruned(ratio=0.5, skip=("body.0.*", "body.2.second.0"))
    assert set(kept(found)) == {"body.1.first.0", "body.2.first.0"}
    assert found.facts["refused"]["body.0.0"] == "it is to be skipped"
    assert "head" in found.facts["refused"]


def test_a_block_goes_whole_and_nothing_else_changes(case: Case) -> None:
    found = case.pruned(widths={"body.1.first.0": 0}, settle=False)
    dense = torch_module.rebuild(case.dense)
    nn.init.zeros_(dense.body[1].second[1].weight)
    nn.init.zeros_(dense.body[1].second[1].bias)
    with torch.no_grad():
        wanted = dense(torch_module.example(found, case.samples, 4)["image"])
    assert torch.equal(case.outputs(found)[0], wanted)
    (group,) = [g for g in found.facts["groups"] if g["name"] == "body.1.first.0"]
    assert group["whole_block"] and group["kept"] == 0


def test_no_block_goes_where_blocks_are_to_stay(case: Case) -> None:
    found = case.pruned(ratio=0.9, whole_blocks=False, scope="global")
    assert min(kept(found).values()) > 0


def test_batch_norms_count_anew(case: Case) -> None:
    settled, as_is = (case.pruned(widths={"body.1.first.0": 4}, settle=settle) for settle in (True, False))
    one, other = (torch_module.rebuild(model) for model in (settled, as_is))
    assert settled.facts["settled"] and not as_is.facts["settled"]
    assert torch.equal(one.body[1].second[0].weight, other.body[1].second[0].weight)
    images = torch.from_numpy(np.array(tensors.load(case.samples, "calibrate", "image")))
    with torch.no_grad():
        before = one.body[0][0](images)
    torch.testing.assert_close(one.body[0][1].running_mean, before.mean((0, 2, 3)), rtol=1e-4, atol=1e-5)


def test_biases_take_up_the_mean_of_what_goes(tmp_path: Path) -> None:
    case = Case("edgecompress.testing.zoo:int64", drawn("int64"), tmp_path / "case")
    settled, as_is = (case.pruned(widths={"table": 4}, settle=settle) for settle in (True, False))
    items = torch.from_numpy(np.array(tensors.load(case.samples, "calibrate", "ids")))
    dense, one, other = (torch_module.rebuild(model) for model in (case.dense, settled, as_is))
    with torch.no_grad():
        wanted, found, worse = (net(items).mean(0) for net in (dense, one, other))
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)  # on average nothing is missed
    assert (worse - wanted).abs().max() > 0.01


@pytest.mark.parametrize("name", prove.some(["transformer", "lstm", "depthwise_cnn"], 1))
def test_a_pruned_net_computes_the_same_in_a_fresh_process(name: str, tmp_path: Path) -> None:
    case = Case(f"edgecompress.testing.zoo:{name}", drawn(name), tmp_path / "case")
    found = case.pruned(ratio=0.5)
    code = (
        "import sys, numpy, torch\nfrom pathlib import Path\nfrom edgecompress.formats import torch_module\n"
        "from edgecompress.core.model import Artifact\n"
        "model, samples = (Artifact.read(Path(p)) for p in sys.argv[1:3])\n"
        "named = torch_module.example(model, samples, 4)\n"
        "(answer,) = torch_module.outputs(torch_module.rebuild(model), model, named).values()\n"
        "numpy.save(sys.argv[3], answer.numpy(), allow_pickle=False)\n"
    )
    out = tmp_path / "answer.npy"
    subprocess.run([sys.executable, "-c", code, found.path, case.samples.path, out], check=True, timeout=120)
    there, here = np.load(out, allow_pickle=False), case.outputs(found)[0].numpy()
    np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-5)  # it may compute with other threads
    assert found.facts["parameters"]["after"] < found.facts["parameters"]["before"]


def test_pruning_twice_counts_macs_in_the_source(case: Case) -> None:
    once = case.pruned(macs=0.7, scope="local")
    twice = case.pruned(once, macs=0.49, scope="local")
    macs = twice.facts["macs"]
    assert macs["source"] == once.facts["macs"]["source"] and macs["before"] == once.facts["macs"]["after"]
    assert 0.42 * macs["source"] <= macs["after"] <= 0.49 * macs["source"]
    assert case.outputs(twice)[0].shape == (4, zoo.CLASSES)


@pytest.mark.shared
def test_resnet20_loses_least_where_it_minds_least(shared_data: Path, tmp_path: Path) -> None:
    with np.load(shared_data / "data/cifar10_dev.npz", allow_pickle=False) as file:
        images, labels = file["train_x"][:64], file["train_y"][:64]
    mean, std = (np.array(v, np.float32) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    arrays = {"image": ((images / 255 - mean) / std).transpose(0, 3, 1, 2).astype(np.float32), "labels": labels}
    example = Path(__file__).resolve().parent.parent / "examples" / "resnet20"
    spec = importlib.util.spec_from_file_location("resnet20_to_prune", example / "net.py")
    assert spec is not None and spec.loader is not None
    sys.modules["resnet20_to_prune"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    case = Case("resnet20_to_prune:build", {n: a[:ITEMS] for n, a in arrays.items()}, tmp_path / "case")
    found = case.pruned(macs=0.6, align=16)
    assert found.facts["macs"]["source"] == 40_551_040
    assert found.facts["macs"]["after"] <= 0.6 * 40_551_040
    assert all(width % 16 == 0 for width in kept(found).values())
    assert "conv1" in found.facts["refused"]
    harms = found.facts["sensitivity"]["layer1.0.conv1"]
    assert [width for width, _ in harms] == [16, 0] and harms[0][1] < harms[1][1]


# --------------------------------------------------------------------------- by latency


def test_cells_narrow_each_class_alone_and_their_savings_choose(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = prune_channels.cells(case.request(latency_ratio=0.6, align=4)).facts
    cells = facts["cells"]
    assert cells["body.0.0@4"] == {"widths": {"body.0.0": 4}}
    assert cells["body.1.first.0@0"] == {"widths": {"body.1.first.0": 0}}
    saved = {label: 0.2 * (1 - next(iter(cell["widths"].values())) / 16) for label, cell in cells.items()}
    found = case.pruned(saved=saved, keep=0.6, align=4)
    assert 0.5 < found.facts["predicted"] <= 0.6
    with monkeypatch.context() as patch:
        patch.setattr(PruningWork, "harms", None)  # what each width does is not tried once more
        again = case.pruned(saved=saved, keep=0.6, align=4, **facts["known"])
        fewer = {label: share for label, share in saved.items() if not label.endswith("@0")}  # a cell that failed
        assert case.pruned(saved=fewer, keep=0.7, align=4, **facts["known"]).facts["predicted"] <= 0.7
    assert again.facts["groups"] == found.facts["groups"]
    with pytest.raises(StageFailed, match=r"keep is out of reach: the narrowest widths leave 0\.\d+, not 0.1"):
        case.pruned(saved=saved, keep=0.1)


def test_the_more_classes_a_net_has_the_fewer_widths_of_each_are_measured(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    def widths() -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for cell in prune_channels.cells(case.request(latency_ratio=0.6, align=2, scope="local")).facts["cells"]:
            label, _, width = cell.rpartition("@")
            found.setdefault(label, []).append(int(width))
        return found

    many = widths()
    assert max(len([w for w in each if w]) for each in many.values()) == prune_channels.CELLS
    monkeypatch.setattr(prune_channels, "ALL_CELLS", len(many))
    assert widths() == {label: sorted(each, reverse=True)[-1 - (0 in each) :] for label, each in many.items()}


def test_what_a_class_saves_is_shared_by_its_layers(case: Case) -> None:
    work = PruningWork(case.request(saved={"body.1.first.0@0": 0.2, "body.1.first.0@4": 0.05}, keep=0.9))
    assert work._saved()["body.1.first.0"] == {8: 0.0, 0: 0.2, 4: 0.05}
    with pytest.raises(InputError, match=r"saved: no groups 'body.1', did you mean"):
        PruningWork(case.request(saved={"body.1@4": 0.1}, keep=0.9))._saved()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"latency_ratio": 0.6}, Goal("ratio", 0.6)),
        ({"speedup": 1.6}, Goal("ratio", 0.625)),
        ({"latency_ms": 8.0}, Goal("latency_ms", 8.0)),
        ({"macs": 0.5}, None),
        ({"saved": {"a@1": 0.1}, "keep": 0.5}, None),
    ],
)
def test_latencies_are_goals(options: Mapping[str, Any], wanted: Goal | None) -> None:
    assert prune_channels.goal(prune_channels.Options(**options)) == wanted


def test_several_steps_are_trained_between() -> None:
    options = prune_channels.Options(macs=0.25, steps=2, between={"epochs": 3}, settle=False)
    prune = {"settle": False}
    assert prune_channels.expand(options) == [
        ("prune_channels", {**prune, "macs": 0.5}),
        ("finetune", {"epochs": 3}),
        ("prune_channels", {**prune, "macs": 0.25}),
    ]
    thrice = prune_channels.expand(prune_channels.Options(ratio=0.875, steps=3))
    assert thrice is not None
    assert [o["ratio"] for name, o in thrice if name == "prune_channels"] == pytest.approx([0.5] * 3)
    assert prune_channels.expand(prune_channels.Options()) is None


# --------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ratio": 1.0}, "ratio must be between 0 and 1"),
        ({"macs": 0.0}, "macs must be between 0 and 1"),
        ({"ratio": 0.5, "speedup": 2.0}, "give one strength, not ratio and speedup"),
        ({"speedup": 1.0}, "speedup must be above 1"),
        ({"align": 0}, "align, samples and steps must be at least 1"),
        ({"widths": {"a": -1}}, "widths must be at least 0"),
        ({"steps": 2, "latency_ms": 8.0}, "several steps need a ratio or macs"),
        ({"between": {"epochs": 1}}, "between needs steps of at least 2"),
        ({"criterion": "l3"}, "did you mean 'l"),
    ],
)
def test_options_that_are_wrong_are_refused(options: Mapping[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        config.build(prune_channels.Options, options, "compress[0]")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"widths": {"body.1.frist.0": 4}}, r"widths: body.1.frist.0: no such layer, did you mean 'body.1.first.0'"),
        ({"widths": {"head": 4}}, r"widths: head: with channels removed, an output has"),
        ({"widths": {"body.2.first.0": 0}}, r"widths: body.2.first.0 cannot be 0"),
        ({"widths": {"body.0.0": 9}}, r"has 8 channels, in units of 1; 9 is not a possible width"),
        ({"macs": 0.01, "whole_blocks": False}, r"macs is out of reach: the narrowest widths leave 0\.\d+, not 0.01"),
        ({"align": 64, "whole_blocks": False}, r"nothing can be pruned: the channels of no layer \(16 at most\)"),
        ({"skip": ("*",)}, r"nothing can be pruned: head: .*; body.0.0: it is to be skipped"),
        ({"latency_ms": 8.0}, r"latency_ms needs measurements"),
    ],
)
def test_what_cannot_be_done_is_told(case: Case, options: Mapping[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        case.pruned(**options)


def test_layers_without_batch_norm_are_refused_where_its_scales_decide(tmp_path: Path) -> None:
    case = Case("edgecompress.testing.zoo:depthwise_cnn", drawn("depthwise_cnn"), tmp_path / "case")
    found = case.pruned(ratio=0.25, criterion="bn_scale", scope="global")
    assert set(kept(found)) == {"body.0.0"}
    assert found.facts["refused"]["body.1.expand"] == "it has no batch norm with scales (criterion bn_scale)"


# --------------------------------------------------------------------------- scores


def units(dead: bool = False) -> tuple[nn.Module, CoupledChannels]:
    """Two convolutions with eight channels between them, the third of which may be dead."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 2, 3)).eval()
    net[1].weight.data.uniform_(0.5, 1.5)
    if dead:
        for tensor in (net[0].weight, net[0].bias, net[1].weight, net[1].bias):
            tensor.data[2] = 0.0
        net[3].weight.data[:, 2] = 0.0
    each = tuple((i,) for i in range(8))
    carried = [Slot(name, 0, each, False) for name in ("0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean")]
    return net, CoupledChannels("0", ("0",), 8, 8, (*carried, Slot("3.weight", 1, each, True)), ())


def batches() -> Any:
    seeded = torch.Generator().manual_seed(0)
    return iter([torch.randn(4, 3, 8, 8, generator=seeded) for _ in range(2)])


def scored(criterion: str, net: nn.Module, group: CoupledChannels) -> list[float]:
    if criterion in ("taylor", "fisher"):
        found = criteria.by_gradient(net, [group], batches, lambda net, x: net(x).square().mean(), criterion)
    elif criterion == "shapley":
        found = criteria.by_taking_away(net, [group], batches, lambda net, x: net(x).square().mean(), 0)
    elif criterion == "activation":
        found = criteria.by_activation(net, [group], batches, lambda net, x: net(x))
    else:
        found = criteria.by_weights(net, [group], criterion)
    return found["0"]


@pytest.mark.parametrize("criterion", [c for c in CRITERIA if c != "shapley"])  # what does harm is worth less there
def test_a_dead_channel_is_worth_least(criterion: str) -> None:
    found = scored(criterion, *units(dead=True))
    assert len(found) == 8 and min(found) == found[2] < sorted(found)[1]


def test_chance_knows_nothing_of_the_weights() -> None:
    alive, dead = ([units(dead)[1]] for dead in (False, True))
    assert criteria.at_random(alive, 0) == criteria.at_random(dead, 0) != criteria.at_random(alive, 1)


@pytest.mark.parametrize("criterion", [*WEIGHTED, "taylor"])
def test_scores_that_are_no_numbers_are_refused(criterion: str) -> None:
    net, group = units()
    for name in ("0.weight", "1.weight"):
        net.get_parameter(name).data[1] = float("nan")
    with pytest.raises(StageFailed, match=f"{criterion} scores of 0 are not finite"):
        scored(criterion, net, group)


def test_lamp_is_a_weight_over_all_that_are_at_least_as_large() -> None:
    """Lee et al. 2021, arXiv:2010.07611, equation 1: w^2 / the sum of the squares from it on, in order."""
    found = criteria.lamp(torch.tensor([9.0, 1.0, 4.0]))
    assert found.tolist() == pytest.approx([1.0, 1 / 14, 4 / 13])


def test_fpgm_is_the_distance_to_all_other_filters() -> None:
    """He et al. 2019, arXiv:1811.00250, equation 5."""
    found = criteria.fpgm(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    root = float(np.hypot(3, 3))
    assert found.tolist() == pytest.approx([6.0, 5 + root, 1 + root])


def test_apoz_is_the_share_of_zeros_of_a_channel() -> None:
    """Hu et al. 2016, arXiv:1607.03250, equation 1."""
    maps = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 2.0], [0.0, 3.0]]])  # [items, channels, positions]
    assert criteria.apoz(maps).tolist() == [0.5, 0.75]


def test_taylor_is_the_square_of_what_a_channel_moves() -> None:
    """Molchanov et al. 2019, arXiv:1906.10771, equation 8, of the filter, the bias and the norm's scale and shift."""
    net, group = units()
    x = next(batches())
    net(x).square().mean().backward()
    parts = [p.grad * p for p in (net[0].weight, net[0].bias, net[1].weight, net[1].bias)]
    wanted = sum(part.detach().flatten(1).sum(1) if part.ndim > 1 else part.detach() for part in parts).double() ** 2
    found = criteria.by_gradient(net, [group], lambda: iter([x]), lambda net, x: net(x).square().mean())["0"]
    assert found == pytest.approx((wanted / wanted.mean()).tolist(), rel=1e-4)


def test_shapley_values_of_a_loss_that_is_a_sum_are_its_parts() -> None:
    """Of independent units each order gives the same: what a unit adds alone (Ancona et al. 2020, axiom of dummies)."""
    net, group = units()
    alone = []
    for unit in range(8):
        with criteria._without(net, group, [unit]):
            alone.append(-float(net[0].weight.abs().sum()))
    found = criteria.by_taking_away(net, [group], batches, lambda net, x: -net[0].weight.abs().sum(), 0)["0"]
    whole = -float(net[0].weight.abs().sum())
    assert found == pytest.approx([rest - whole for rest in alone], rel=1e-4)


def test_shapley_leaves_the_net_as_it_was() -> None:
    net, group = units()
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    criteria.by_taking_away(net, [group], batches, lambda net, x: net(x).square().mean(), 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.parametrize(("criterion", "p"), [("l1", 1), ("l2", 2)])
def test_magnitudes_are_those_of_torch_pruning(criterion: str, p: int) -> None:
    import torch_pruning as tp

    net, group = units()
    graph = tp.DependencyGraph().build_dependency(net, torch.randn(1, 3, 8, 8))
    theirs = graph.get_pruning_group(net[0], tp.prune_conv_out_channels, list(range(8)))
    wanted = tp.importance.GroupMagnitudeImportance(p=p, group_reduction="mean", normalizer="mean")(theirs)
    assert criteria.by_weights(net, [group], criterion)["0"] == pytest.approx(wanted.tolist(), rel=1e-5)
