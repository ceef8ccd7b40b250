"""Distiller's YAML schedules in a plain training loop: when masks act, what lasts, and going on from a saved state."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules import arguments, rate_arguments, reader
from edgecompress.extras.schedules.rates import Moment, agp
from edgecompress.extras.schedules.scheduler import FILE, CompressionScheduler

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow
STEPS = 3  # of an epoch


def written(folder: Path, policies: list[tuple[str, dict[str, Any], dict[str, Any], Any]]) -> Path:
    """A schedule: of each policy its kind, its instance, its args, and its epochs as (start, end, frequency)."""
    text: dict[str, Any] = {"policies": []}
    for number, (kind, instance, args, (start, end, frequency)) in enumerate(policies):
        text.setdefault(reader.KINDS[kind][0], {})[f"i{number}"] = instance
        named = {"instance_name": f"i{number}"} | ({"args": args} if args else {})
        when = {"starting_epoch": start, "ending_epoch": end, "frequency": frequency}
        text["policies"].append({kind: named, **when})
    (folder / "s.yaml").write_text(yaml.safe_dump(text, sort_keys=False), encoding="utf-8")
    return folder / "s.yaml"


def level(share: float, name: str = "0.weight") -> dict[str, Any]:
    """A pruner of so much of one weight."""
    return {"class": "SparsityLevelParameterPruner", "levels": {name: share}}


class Run:
    """A small net in training, epoch by epoch."""

    def __init__(self, schedule: Path | None, lr: float = 0.1) -> None:
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9)
        self.batches = [(torch.randn(8, 6), torch.randint(3, (8,))) for _ in range(STEPS)]
        self.scheduler = CompressionScheduler(self.net, self.optimizer, schedule) if schedule else None

    def steps(self, epoch: int) -> Iterator[str]:
        """Where an epoch stands: before its first step, and of each step before the forward pass and at its end."""
        assert self.scheduler is not None
        self.scheduler.on_epoch_begin(epoch)
        yield "epoch"
        for step, (x, y) in enumerate(self.batches):
            self.scheduler.on_minibatch_begin(epoch, step, STEPS)
            yield "forward"
            loss = self.scheduler.before_backward_pass(nn.functional.cross_entropy(self.net(x), y))
            self.optimizer.zero_grad()
            loss.backward()
            yield "backward"
            self.scheduler.before_parameter_optimization()
            self.optimizer.step()
            self.scheduler.on_minibatch_end()
            yield "end"
        self.scheduler.on_epoch_end({"min": float(loss.detach()), "max": 0.5})

    def train(self, *epochs: int) -> None:
        """Whole epochs."""
        for epoch in epochs:
            for _ in self.steps(epoch):
                pass

    def zeros(self, name: str = "0.weight") -> int:
        """Of a weight."""
        return int((self.net.get_parameter(name) == 0).sum())

    def lr(self) -> float:
        return float(self.optimizer.param_groups[0]["lr"])


# --------------------------------------------------------------------------- masks


def test_masks_hold_after_the_last_epoch_in_spite_of_momentum(tmp_path: Path) -> None:
    run = Run(written(tmp_path, [("pruner", level(0.5), {}, (1, 2, 1))]))
    run.train(0)
    assert run.zeros() == 0
    run.train(1, 2, 3)
    assert run.zeros() == 30
    assert run.scheduler is not None and not run.scheduler.masks["2.weight"].values


def test_a_gradual_pruner_and_a_regularizer_work_in_five_lines(tmp_path: Path) -> None:
    gradual = {"class": "AutomatedGradualPruner", "initial_sparsity": 0.1, "final_sparsity": 0.8, "weights": "0.weight"}
    lasso = {"class": "L1Regularizer", "reg_regims": {"module.2.weight": 0.05}}
    run = Run(written(tmp_path, [("pruner", gradual, {}, (0, 7, 2)), ("regularizer", lasso, {}, (0, 8, 1))]))
    assert run.scheduler is not None
    for epoch in range(8):
        run.scheduler.on_epoch_begin(epoch)
        for step, (x, y) in enumerate(run.batches):
            run.scheduler.on_minibatch_begin(epoch, step, len(run.batches))
            loss = run.scheduler.before_backward_pass(nn.functional.cross_entropy(run.net(x), y))
            run.optimizer.zero_grad()
            loss.backward()
            run.scheduler.before_parameter_optimization()
            run.optimizer.step()
            run.scheduler.on_minibatch_end()
        run.scheduler.on_epoch_end()
        assert run.zeros() == int(60 * agp(0.1, 0.8, Moment(min(epoch // 2 * 2, 6), 0, 7, 2)))
    plain = Run(written(tmp_path, []))
    plain.train(*range(8))
    assert run.net[2].weight.abs().sum() < 0.8 * plain.net[2].weight.abs().sum()


def test_a_mask_of_the_forward_pass_alone_is_gone_after_the_step_unless_it_is_kept(tmp_path: Path) -> None:
    for keep, last in ((False, 0), (True, 30)):
        args = {"mask_on_forward_only": True, "keep_mask": keep}
        run = Run(written(tmp_path, [("pruner", level(0.5), args, (0, 2, 1))]))
        zeros = [(where, run.zeros()) for where in run.steps(0)]
        assert {count for where, count in zeros if where == "forward"} == {30}
        assert max(count for where, count in zeros if where == "end") < 30
        run.train(1)
        run.train(2)
        assert (run.zeros() == 30) == keep and (last or run.zeros() < 30)


def test_two_copies_update_the_weights_as_they_were_without_the_mask(tmp_path: Path) -> None:
    run = Run(
        written(
            tmp_path, [("pruner", level(0.5), {"use_double_copies": True, "mask_on_forward_only": True}, (0, 2, 1))]
        )
    )
    before = run.net[0].weight.detach().clone()
    for where in itertools.islice(run.steps(0), 4):
        if where == "forward":
            assert run.zeros() == 30
        if where == "backward":
            moved = 0.1 * run.net[0].weight.grad
    assert torch.allclose(run.net[0].weight, before - moved)


@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_masked_where_the_policy_says_so(tmp_path: Path, masked: bool) -> None:
    args = {"mask_on_forward_only": True, "mask_gradients": masked}
    run = Run(written(tmp_path, [("pruner", level(0.5), args, (0, 1, 1))]))
    for where in itertools.islice(run.steps(0), 3):
        if where == "backward":
            gone = run.net[0].weight == 0
            assert (not run.net[0].weight.grad[gone].any()) == masked
    run.train(0)
    run.net(run.batches[0][0]).sum().backward()
    assert run.net[0].weight.grad[gone].any(), "after the last epoch they are as they are"


def test_what_is_masked_for_good_has_no_gradient_where_the_loop_clips_them(tmp_path: Path) -> None:
    plain, clipping = (Run(written(tmp_path, [("pruner", level(0.5), {}, (0, 1, 1))])) for _ in range(2))
    assert clipping.scheduler is not None
    clipping.scheduler.mask_gradients()
    for where in clipping.steps(0):
        if where == "backward":
            gone = clipping.net[0].weight == 0
            assert gone.any() and not clipping.net[0].weight.grad[gone].any()
            assert clipping.net[0].weight.grad[~gone].all()
    plain.train(0, 1, 2)
    clipping.train(1, 2)
    assert (plain.net[0].weight == 0).equal(clipping.net[0].weight == 0)
    clipping.scheduler.finish()
    clipping.net(clipping.batches[0][0]).sum().backward()
    assert clipping.net[0].weight.grad[gone].any(), "nothing holds on to the model any more"


def test_masks_are_chosen_anew_every_few_steps_and_may_be_discarded(tmp_path: Path) -> None:
    args = {"mini_batch_pruning_frequency": 2, "mask_on_forward_only": True}
    run = Run(written(tmp_path, [("pruner", level(0.5), args, (0, 9, 1))]))
    chosen: list[int] = []
    rule = run.scheduler._pruning[0].pruner.rule  # type: ignore[union-attr]
    rule.mask = lambda *given: chosen.append(steps) or None  # type: ignore[func-returns-value,assignment]
    steps = 0
    for epoch in range(3):
        for where in run.steps(epoch):
            steps += where == "end"
    assert chosen == [0, 2, 3, 4, 6, 8]  # at each epoch's begin, and at every second step of all but the first
    run = Run(written(tmp_path, [("pruner", level(0.5), {**args, "discard_masks_at_minibatch_end": True}, (0, 9, 1))]))
    zeros = [run.zeros() >= 30 for where in run.steps(0) if where == "forward"]
    assert zeros == [True, False, True]


def test_the_first_step_of_all_may_go_without_a_mask(tmp_path: Path) -> None:
    run = Run(written(tmp_path, [("pruner", level(0.5), {"skip_first_minibatch": True}, (0, 2, 1))]))
    assert [run.zeros() for where in run.steps(0) if where == "forward"] == [0, 30, 30]


def test_what_is_below_the_strength_is_zero_after_each_step_and_stays_so_only_if_kept(tmp_path: Path) -> None:
    lasso = {"class": "L1Regularizer", "reg_regims": {"0.weight": 0.2}, "threshold_criteria": "Max"}
    for keep in (False, True):
        run = Run(written(tmp_path, [("regularizer", lasso, {"keep_mask": keep}, (0, 2, 1))]))
        run.train(0, 1)
        zeros = run.zeros()
        assert zeros > 10 and (run.net[0].weight[run.net[0].weight != 0].abs() > 0.2).all()
        run.train(2)
        assert (run.zeros() == zeros) == keep


def test_the_threshold_leaves_the_mask_of_a_pruner_as_it_is(tmp_path: Path) -> None:
    lasso = {"class": "L1Regularizer", "reg_regims": {"0.weight": 1e-6}, "threshold_criteria": "Max"}
    run = Run(written(tmp_path, [("pruner", level(0.5), {}, (0, 1, 1)), ("regularizer", lasso, {}, (0, 1, 1))]))
    run.train(0, 1)
    assert run.zeros() == 30


def test_after_its_last_epoch_a_pruner_has_no_hook_in_the_model(tmp_path: Path) -> None:
    apoz = {
        "class": "ActivationAPoZRankedFilterPruner",
        "group_type": "Filters",
        "desired_sparsity": 0.5,
        "weights": ["conv1.weight"],
    }
    net = stub({"conv1.weight": (4, 2, 3, 3)})
    schedule = written(tmp_path, [("pruner", apoz, {}, (1, 4, 2))])
    scheduler = CompressionScheduler(net, torch.optim.SGD(net.parameters(), lr=0.1), schedule)
    hooks = []
    for epoch in range(4):
        scheduler.on_epoch_begin(epoch)
        net.eval()
        net.relu1(torch.randn(1, 4, 2, 2))
        scheduler.on_epoch_end()
        hooks.append(len(net.relu1._forward_hooks))
    assert hooks == [1, 1, 1, 0] and int((scheduler.masks["conv1.weight"].values == 0).sum()) == 2 * 2 * 9


def test_filters_may_be_ranked_as_the_batch_norm_that_follows_makes_them(tmp_path: Path) -> None:
    ranked = {
        "class": "L1RankedStructureParameterPruner",
        "group_type": "Filters",
        "desired_sparsity": 0.5,
        "weights": ["0.weight", "2.weight"],
    }
    net = nn.Sequential(nn.Conv2d(1, 4, 1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1))
    net[0].weight.data.copy_(torch.tensor([1.0, 2, 3, 4]).reshape(4, 1, 1, 1))
    net[1].weight.data.copy_(torch.tensor([-8.0, 1, 1, 1]))  # folded: 8, 2, 6, 4
    net[1].running_var.copy_(torch.tensor([1.0, 1, 0.25, 1]))
    net[2].weight.data.copy_(torch.tensor([4.0, 3, 2, 1]).reshape(4, 1, 1, 1).expand(4, 4, 1, 1))
    schedule = written(tmp_path, [("pruner", ranked, {"fold_batchnorm": True}, (0, 2, 1))])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    scheduler = CompressionScheduler(net, optimizer, schedule)
    scheduler.on_epoch_begin(0)
    masks = scheduler.state_dict()["masks_dict"]
    assert [masks[name][:, 0, 0, 0].tolist() for name in ("0.weight", "2.weight")] == [[1, 0, 1, 0], [1, 1, 0, 0]]

    class Branches(nn.Sequential):
        def forward(self, x: Any) -> Any:
            return super().forward(x if x.sum() > 0 else -x)

    with pytest.raises(InputError, match=r"s.yaml: line \d+: fold_batchnorm: the model cannot be traced: TraceError: "):
        CompressionScheduler(Branches(*net), optimizer, schedule)


# --------------------------------------------------------------------------- learning rates

RATES: list[tuple[dict[str, Any], list[float]]] = [  # of 1.0, in the epochs 0 to 5; epoch 2 is the first
    ({"class": "ExponentialLR", "gamma": 0.9}, [1, 1, 1, 0.9**3, 0.9**4, 0.9**5]),
    ({"class": "StepLR", "step_size": 2, "gamma": 0.1}, [1, 1, 1, 0.1, 0.01, 0.01]),
    ({"class": "MultiStepLR", "milestones": [1, 5], "gamma": 0.5}, [1, 1, 1, 0.5, 0.5, 0.25]),
    ({"class": "MultiStepMultiGammaLR", "milestones": [1, 4], "gammas": [0.5, 3]}, [1, 1, 1, 0.5, 1.5, 1.5]),
    ({"class": "PolynomialLR", "T_max": 5, "power": 2}, [1, 1, 1, 0.4**2, 0.2**2, 0]),
    ({"class": "CosineAnnealingLR", "T_max": 6}, [1, 1, 1, 0.5, 0.25, (1 - 3**0.5 / 2) / 2]),
    ({"class": "CosineAnnealingWarmRestarts", "T_0": 4}, [1, 1, 1, (1 - 0.5**0.5) / 2, 1, (1 + 0.5**0.5) / 2]),
]


@pytest.mark.parametrize(("instance", "expected"), RATES, ids=[str(rate["class"]) for rate, _ in RATES])
def test_a_rate_is_that_of_the_absolute_epoch(tmp_path: Path, instance: dict[str, Any], expected: list[float]) -> None:
    run = Run(written(tmp_path, [("lr_scheduler", instance, {}, (2, 9, 1))]), lr=1.0)
    rates = []
    for epoch in range(6):
        rates.append(run.lr())
        run.train(epoch)
    assert rates == pytest.approx(expected)


def test_a_plateau_is_of_the_metric_of_its_mode(tmp_path: Path) -> None:
    plateau = {"class": "ReduceLROnPlateau", "mode": "max", "patience": 1, "factor": 0.5, "verbose": True}
    run = Run(written(tmp_path, [("lr_scheduler", plateau, {}, (0, 9, 1))]), lr=1.0)
    run.train(0, 1, 2)
    assert run.lr() == 0.5
    assert run.scheduler is not None
    with pytest.raises(InputError, match=r"s.yaml: line 8: i0: on_epoch_end needs the metric 'max'"):
        run.scheduler.on_epoch_end({"min": 1.0})


def test_every_learning_rate_of_the_table_is_one_that_torch_has() -> None:
    own = {"MultiStepMultiGammaLR", "PolynomialLR"}
    assert all(hasattr(torch.optim.lr_scheduler, name) for name in rate_arguments.LR_SCHEDULERS.keys() - own)
    torchs = {n for n, c in vars(torch.optim.lr_scheduler).items() if n.endswith(("LR", "Plateau", "Restarts"))}
    assert torchs - rate_arguments.LR_SCHEDULERS.keys() == {"LambdaLR", "MultiplicativeLR", "SequentialLR"}


# --------------------------------------------------------------------------- state


def test_a_run_that_goes_on_from_a_saved_state_is_the_same(tmp_path: Path) -> None:
    splicing = {
        "class": "SplicingPruner",
        "sensitivities": {"2.weight": 0.2},
        "low_thresh_mult": 0.9,
        "hi_thresh_mult": 1.1,
    }
    leader = {
        "class": "L1RankedStructureParameterPruner_AGP",
        "initial_sparsity": 0.1,
        "final_sparsity": 0.6,
        "group_type": "Channels",
        "group_dependency": "Leader",
        "weights": ["0.weight"],
    }
    forward = {"mask_on_forward_only": True, "mask_gradients": True, "keep_mask": True}
    schedule = written(
        tmp_path,
        [
            ("pruner", splicing, forward, (0, 6, 1)),
            ("pruner", leader, {}, (0, 9, 4)),
            ("lr_scheduler", {"class": "ReduceLROnPlateau", "patience": 0}, {}, (0, 9, 1)),
            ("lr_scheduler", {"class": "ExponentialLR", "gamma": 0.9}, {}, (0, 9, 1)),
        ],
    )
    whole, first, second = Run(schedule), Run(schedule), Run(schedule)
    whole.train(*range(9))
    first.train(*range(3))
    assert first.scheduler is not None and second.scheduler is not None
    first.scheduler.save(tmp_path / "state")
    second.net.load_state_dict(first.net.state_dict())
    second.optimizer.load_state_dict(first.optimizer.state_dict())
    second.scheduler.load(tmp_path / "state")
    second.train(*range(3, 9))
    for name, tensor in whole.net.state_dict().items():
        assert torch.equal(tensor, second.net.state_dict()[name]), name
    assert second.lr() == whole.lr() and second.zeros("2.weight") == whole.zeros("2.weight") > 0


def test_a_state_of_another_model_or_schedule_is_refused(tmp_path: Path) -> None:
    run = Run(written(tmp_path, [("pruner", level(0.5), {}, (0, 2, 1))]))
    run.train(0)
    assert run.scheduler is not None
    run.scheduler.save(tmp_path)
    other = CompressionScheduler(nn.Sequential(nn.Linear(6, 9)), run.optimizer, written(tmp_path, []))
    with pytest.raises(InputError, match=r"a mask of '0.weight' that does not fit the model"):
        other.load(tmp_path)
    again = Run(written(tmp_path, []))
    assert again.scheduler is not None
    with pytest.raises(InputError, match=r"the state is not of the schedule .*s.yaml"):
        again.scheduler.load(tmp_path)
    (tmp_path / FILE).write_bytes(b"x" * 99)
    with pytest.raises(InputError, match=r"schedule.safetensors: cannot be read as the state of a schedule"):
        again.scheduler.load(tmp_path)
    with pytest.raises(InputError, match=r"schedule.safetensors: cannot be read"):
        again.scheduler.load(tmp_path / "none")


# --------------------------------------------------------------------------- what is refused, or warned of


def test_what_is_odd_in_a_schedule_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"s.yaml: line \d+: policies: i0: keep_mask does nothing: epoch 3, the last"):
        Run(written(tmp_path, [("pruner", level(0.5), {"keep_mask": True}, (0, 4, 2))]))


def test_mistakes_of_the_loop_are_one_line(tmp_path: Path) -> None:
    run = Run(written(tmp_path, [("pruner", level(0.5), {}, (0, 2, 1))]))
    assert run.scheduler is not None
    with pytest.raises(InputError, match=r"call on_epoch_begin\(0\) before the first step of the epoch"):
        run.scheduler.on_minibatch_begin(0, 0, 3)
    run.net[0].weight.data.zero_()
    with pytest.raises(InputError, match=r"s.yaml: line \d+: i0 at epoch 0: 0.weight: all elements would go"):
        run.scheduler.on_epoch_begin(0)


# --------------------------------------------------------------------------- the published ones


def resnet20() -> dict[str, tuple[int, ...]]:
    """The sizes of the weights of Distiller's ResNet-20."""
    from safetensors import safe_open

    with safe_open(SHARED / "models" / "distiller_resnet20_cifar.safetensors", "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def small(names: set[str]) -> dict[str, tuple[int, ...]]:
    """Sizes for weights of these names."""
    flat = ("fc.", "classifier", "rnn", "encoder")
    return {name: (16, 8) if name.startswith(flat) else (8,) if ".bn" in name else (8, 8, 2, 2) for name in names}


def stub(shapes: dict[str, tuple[int, ...]]) -> nn.Module:
    """A net that has these weights, and behind each convolution an activation."""
    net = nn.Module()
    for name, shape in shapes.items():
        *path, last = name.split(".")
        module = net
        for part in path:
            if part.startswith("conv"):
                module.add_module(part.replace("conv", "relu"), nn.ReLU())
            if part not in dict(module.named_children()):
                module.add_module(part, nn.Module())
            module = module.get_submodule(part)
        module.register_parameter(last, nn.Parameter(torch.randn(shape)))
    return net


def named(instance: Any) -> set[str]:
    """The weights that an instance names, without `module.`."""
    from edgecompress.extras.schedules.parameters import normalized

    tables = ("weights", "sensitivities", "reg_regims")
    return {normalized(name) for table in tables for name in getattr(instance.arguments, table, ())}


@pytest.mark.shared
def test_the_published_schedules_run_unmodified() -> None:
    ran = []
    for file in sorted((SHARED / "distiller_schedules").rglob("*.yaml")):
        schedule = reader.read(file)
        if "quantizers" in schedule.instances:
            continue
        policies = [each for each in schedule.policies if each.kind != "extension"]  # they need a net that computes
        schedule = dataclasses.replace(schedule, policies=tuple(policies))
        names = {name for kind in schedule.instances.values() for each in kind.values() for name in named(each)}
        if file.name.startswith("resnet20") or "ssl" in file.name:
            assert names <= resnet20().keys(), "they are those of the net that is here"
        net = stub(small(names))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scheduler = CompressionScheduler(net, optimizer, schedule)
        for epoch in (0, 1, 2, 3, 4, 5, 20, 30):
            net.eval()
            for name, module in net.named_modules():
                if "relu" in name:
                    module(torch.randn(1, net.get_parameter(f"{name.replace('relu', 'conv')}.weight").shape[0], 2, 2))
            net.train()
            scheduler.on_epoch_begin(epoch)
            scheduler.on_minibatch_begin(epoch, 0, 1)
            optimizer.zero_grad()
            scheduler.before_backward_pass(sum(p.square().sum() for p in net.parameters()) * 1e-3).backward()
            scheduler.before_parameter_optimization()
            optimizer.step()
            scheduler.on_minibatch_end()
            scheduler.on_epoch_end({"min": 1.0, "max": 1.0})
        ran.append(file.name)
    assert len(ran) == 13


def test_the_page_names_every_class_and_shows_the_loop_of_the_docstring() -> None:
    page = (Path(__file__).parents[3] / "docs" / "schedules.md").read_text(encoding="utf-8")
    for _, classes, _ in reader.KINDS.values():
        for name in classes:
            assert f"`{name.removesuffix(arguments.GRADUALLY)}`" in page, name
    loop = str(CompressionScheduler.__doc__).partition("\n\n")[2].rstrip()
    for line in loop.splitlines():
        assert line.strip() in page
