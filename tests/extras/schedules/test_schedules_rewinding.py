"""Rewinding in schedules: lottery tickets round by round, learning rates alone, and going on from a saved state."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from test_schedules_loop import Run

from edgecompress.core.errors import InputError
from edgecompress.extras.schedules.scheduler import CompressionScheduler

torch = pytest.importorskip("torch")
yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow

TICKET = """
pruners:
  ticket: {class: SparsityLevelParameterPruner, levels: {0.weight: 0.5}}
lr_schedulers:
  falls: {class: StepLR, step_size: 2, gamma: 0.1}
extensions:
  back: {class: Rewinder, epoch: 1, what: both}
policies:
  - {pruner: {instance_name: ticket}, epochs: [4]}
  - {pruner: {instance_name: ticket, args: {levels: {0.weight: 0.75}}}, epochs: [7]}
  - {extension: {instance_name: back}, epochs: [4, 7]}
  - {lr_scheduler: {instance_name: falls}, starting_epoch: 0, ending_epoch: 30, frequency: 1}
"""


def run(folder: Path, text: str = TICKET) -> Run:
    """A run under this schedule."""
    (folder / "s.yaml").write_text(text, encoding="utf-8")
    return Run(folder / "s.yaml")


def trained(one: Run, *epochs: int) -> tuple[list[float], dict[int, Any]]:
    """The learning rate of each epoch, and the weights before its first forward pass."""
    rates, weights = [], {}
    for epoch in epochs:
        for number, _ in enumerate(one.steps(epoch)):
            if number == 1:
                rates.append(one.lr())
                weights[epoch] = copy.deepcopy(one.net.state_dict())
    return rates, weights


def test_each_round_of_a_lottery_ticket_begins_with_the_early_weights_and_learning_rate(tmp_path: Path) -> None:
    one = run(tmp_path)
    rates, weights = trained(one, *range(9))
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.01, 0.1, 0.01, 0.01, 0.1, 0.01])
    early = weights[1]
    for epoch, zeros in ((4, 30), (7, 45)):
        kept = weights[epoch]["0.weight"] != 0
        assert int((~kept).sum()) == zeros
        assert torch.equal(weights[epoch]["0.weight"], early["0.weight"] * kept)
        assert torch.equal(weights[epoch]["2.weight"], early["2.weight"])
    assert not weights[7]["0.weight"][weights[4]["0.weight"] == 0].any(), "a round goes on from the one before"
    assert one.zeros() == 45


def test_masks_of_earlier_epochs_hold(tmp_path: Path) -> None:
    one = run(tmp_path, TICKET.replace("[4, 7]", "[6]"))
    _, weights = trained(one, *range(7))
    assert int((weights[6]["0.weight"] == 0).sum()) == 30 and torch.equal(
        weights[6]["2.weight"], weights[1]["2.weight"]
    )


def test_masks_are_chosen_by_the_trained_weights(tmp_path: Path) -> None:
    one = run(tmp_path)
    trained(one, 0, 1, 2, 3)
    sizes = one.net[0].weight.detach().abs().flatten()
    _, weights = trained(one, 4)
    assert torch.equal((weights[4]["0.weight"] == 0).flatten(), sizes <= sizes.kthvalue(30).values)


def test_the_optimizer_begins_anew_with_the_weights(tmp_path: Path) -> None:
    one = run(tmp_path, TICKET.replace("both", "weights"))
    rates, _ = trained(one, *range(4))
    one.scheduler.on_epoch_begin(4)
    one.scheduler.on_minibatch_begin(4, 0, 3)
    assert not one.optimizer.state and rates == pytest.approx([0.1, 0.1, 0.01, 0.01])
    assert one.lr() == pytest.approx(0.001), "learning rates go on"


def test_learning_rates_alone_leave_the_weights(tmp_path: Path) -> None:
    one = run(tmp_path, TICKET.replace("both", "lr"))
    trained(one, *range(4))
    before = copy.deepcopy(one.net.state_dict())
    rates, weights = trained(one, 4, 5)
    assert rates == pytest.approx([0.1, 0.01])
    assert torch.equal(weights[4]["2.weight"], before["2.weight"]) and one.optimizer.state


def test_a_plateau_is_as_it_was(tmp_path: Path) -> None:
    one = run(tmp_path, TICKET.replace("StepLR, step_size: 2, gamma: 0.1", "ReduceLROnPlateau, mode: max, patience: 0"))
    rates, _ = trained(one, *range(6))
    assert rates == pytest.approx([0.1, 0.1, 0.01, 0.001, 0.1, 0.01])


@pytest.mark.parametrize("epoch", [3, 5])  # before the first round, and in it
def test_a_run_goes_on_from_a_saved_state(epoch: int, tmp_path: Path) -> None:
    straight, stopped, again = run(tmp_path), run(tmp_path), run(tmp_path)
    trained(straight, *range(9))
    trained(stopped, *range(epoch))
    stopped.scheduler.save(tmp_path / "state")
    again.net.load_state_dict(stopped.net.state_dict())
    again.optimizer.load_state_dict(stopped.optimizer.state_dict())
    again.scheduler.load(tmp_path / "state")
    trained(again, *range(epoch, 9))
    assert all(torch.equal(a, b) for a, b in zip(again.net.parameters(), straight.net.parameters(), strict=True))
    assert again.lr() == straight.lr()


def test_what_cannot_be_gone_back_to_is_an_error(tmp_path: Path) -> None:
    one = run(tmp_path)
    with pytest.raises(InputError, match=r"line \d+: back: epoch 1 was not trained under this schedule"):
        trained(one, 4)
    with pytest.raises(InputError, match=r"line \d+: .*back: it goes back to epoch 4, so it acts at a later one"):
        run(tmp_path, TICKET.replace("epoch: 1", "epoch: 4"))
    second = TICKET.replace("policies:", "  more: {class: Rewinder, epoch: 1}\npolicies:", 1)
    with pytest.raises(InputError, match="at most one Rewinder"):
        run(tmp_path, second + "  - {extension: {instance_name: more}, epochs: [5]}\n")
    one = run(tmp_path)
    trained(one, 0, 1)
    state = one.scheduler.state_dict()
    state["rewound"].pop("0.bias")
    with pytest.raises(InputError, match="goes back to weights that do not fit the model"):
        one.scheduler.load_state_dict(state)
    state["numbers"]["rewinding"]["rates"]["groups"].append(0.1)
    with pytest.raises(InputError, match="goes back to learning rates of another optimizer"):
        one.scheduler.load_state_dict(state)


def test_weights_do_not_go_back_to_before_thinning(tmp_path: Path) -> None:
    text = yaml.safe_load(TICKET)
    text["pruners"]["ticket"]["levels"] = {"conv1.weight": 0.5}
    text["policies"][1]["pruner"].pop("args")
    text["extensions"]["thin"] = {"class": "FilterRemover", "thinning_func_str": "remove_filters"}
    text["extensions"]["thin"] |= {"arch": "", "dataset": ""}
    text["policies"].append({"extension": {"instance_name": "thin"}, "epochs": [5]})
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(text), encoding="utf-8")
    from edgecompress.extras.schedules.nets import simplenet_mnist

    net = simplenet_mnist()
    with pytest.raises(InputError, match="weights do not go back to sizes before thinning; take `what: lr`"):
        CompressionScheduler(
            net, torch.optim.SGD(net.parameters(), lr=0.1), tmp_path / "s.yaml", (torch.zeros(1, 1, 28, 28),)
        )
