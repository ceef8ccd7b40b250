"""Schedules in the Trainer of transformers, in two processes, and in a compiled net: what the plain loop gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("yaml")
nn = torch.nn
pytestmark = pytest.mark.slow
EPOCHS, BATCH, ITEMS = 3, 8, 32
TEXT = """
pruners:
  gradual: {class: AutomatedGradualPruner, initial_sparsity: 0.1, final_sparsity: 0.7, weights: [module.first.weight]}
  filters: {class: L1RankedStructureParameterPruner, group_type: Rows, desired_sparsity: 0.5, weights: [last.weight]}
regularizers:
  lasso: {class: L1Regularizer, reg_regims: {last.weight: 0.01}}
lr_schedulers:
  falls: {class: StepLR, step_size: 1, gamma: 0.5}
policies:
  - {pruner: {instance_name: gradual}, starting_epoch: 0, ending_epoch: 3, frequency: 1}
  - {pruner: {instance_name: filters}, epochs: [1]}
  - {regularizer: {instance_name: lasso}, starting_epoch: 0, ending_epoch: 3, frequency: 1}
  - {lr_scheduler: {instance_name: falls}, starting_epoch: 0, ending_epoch: 3, frequency: 1}
"""


class Net(nn.Module):  # type: ignore[misc, name-defined]
    """Two layers, with its loss, as the Trainer wants it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.last = nn.Linear(6, 10), nn.Linear(10, 3)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        logits = self.last(self.first(x).relu())
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def items() -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(ITEMS, 6, generator=generator)
    return [{"x": x, "labels": x.argmax() % 3} for x in drawn]


@pytest.fixture
def schedule(tmp_path: Path) -> Path:
    (tmp_path / "s.yaml").write_text(TEXT, encoding="utf-8")
    return tmp_path / "s.yaml"


def plain(schedule: Path, wrap: Any = lambda net: net, parts: int = 1, part: int = 0) -> Any:
    """The net after the loop of docs/schedules.md, on the items in their order."""
    from edgecompress.extras.schedules.scheduler import CompressionScheduler

    net = Net()
    model = wrap(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = CompressionScheduler(model, optimizer, schedule)
    batches = [items()[at : at + BATCH] for at in range(0, ITEMS, BATCH)]
    for epoch in range(EPOCHS):
        scheduler.on_epoch_begin(epoch)
        for step, batch in enumerate(batches):
            own = batch[part::parts]
            scheduler.on_minibatch_begin(epoch, step, len(batches))
            inputs = {key: torch.stack([item[key] for item in own]) for key in ("x", "labels")}
            loss = scheduler.before_backward_pass(model(**inputs)["loss"])
            optimizer.zero_grad()
            loss.backward()
            scheduler.before_parameter_optimization()
            optimizer.step()
            scheduler.on_minibatch_end()
        scheduler.on_epoch_end({"min": 0.0, "max": 0.0})
    return net, scheduler.finish()


def assert_same(net: Any, other: Mapping[str, Any]) -> None:
    for name, weight in net.state_dict().items():
        torch.testing.assert_close(weight, other[name], rtol=0, atol=1e-6)
        assert torch.equal(weight == 0, other[name] == 0)


# --------------------------------------------------------------------------- the Trainer


def trainer(schedule: Path, out: Path, **more: Any) -> Any:
    """A Trainer that takes the items in their order, and its callback."""
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")
    from edgecompress.extras.schedules.hugging_face import ScheduleCallback

    class InOrder(transformers.Trainer):  # type: ignore[misc, name-defined]
        def get_train_dataloader(self) -> Any:
            return torch.utils.data.DataLoader(items(), BATCH)

    settings = {"max_grad_norm": 0.0, "report_to": [], "disable_tqdm": True, "use_cpu": True, "save_strategy": "no"}
    args = transformers.TrainingArguments(
        str(out), num_train_epochs=EPOCHS, per_device_train_batch_size=BATCH, learning_rate=0.1, **{**settings, **more}
    )
    net, callback = Net(), ScheduleCallback(schedule)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    own = InOrder(net, args, train_dataset=items(), eval_dataset=items(), optimizers=(optimizer, None))
    own.add_callback(callback)
    return own, callback


@pytest.mark.parametrize("evaluated", ["no", "epoch"])
def test_the_trainer_gives_what_the_plain_loop_gives(schedule: Path, tmp_path: Path, evaluated: str) -> None:
    expected, edits = plain(schedule)
    own, callback = trainer(schedule, tmp_path / "out", eval_strategy=evaluated)
    own.train()
    assert_same(expected, own.model.state_dict())
    assert callback.edits == edits == [{"edit": "zeros", "parameters": ["first.weight", "last.weight"]}]


def test_the_trainer_goes_on_from_its_checkpoint_with_the_masks(schedule: Path, tmp_path: Path) -> None:
    straight, _ = trainer(schedule, tmp_path / "out", save_strategy="epoch")
    straight.train()
    again, _ = trainer(schedule, tmp_path / "out")
    again.train(resume_from_checkpoint=str(tmp_path / "out" / f"checkpoint-{2 * ITEMS // BATCH}"))
    assert_same(straight.model, again.model.state_dict())


def test_the_rate_that_the_trainer_logs_is_the_schedules(schedule: Path, tmp_path: Path) -> None:
    own, _ = trainer(schedule, tmp_path / "out", logging_strategy="steps", logging_steps=1)
    own.train()
    logged = [entry["learning_rate"] for entry in own.state.log_history if "learning_rate" in entry]
    assert logged == pytest.approx([0.1] * 4 + [0.05] * 4 + [0.025] * 4)


def test_the_trainer_clips_gradients_of_what_stays(schedule: Path, tmp_path: Path) -> None:
    """A gradient of what is masked would take its part of the norm."""
    own, callback = trainer(schedule, tmp_path / "out", max_grad_norm=1.0)
    own.train()
    assert callback.scheduler.masks["first.weight"].values is not None
    expected, _ = plain(schedule)
    assert torch.equal(own.model.first.weight == 0, expected.first.weight == 0)


# --------------------------------------------------------------------------- other wrappers

CHILD = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import torch
import test_schedules_hugging_face as own
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=int(sys.argv[4]), world_size=2)
wrap = torch.nn.parallel.DistributedDataParallel
net, edits = own.plain(Path(sys.argv[2]), wrap, parts=2, part=int(sys.argv[4]))
torch.distributed.destroy_process_group()
if sys.argv[4] == "0":
    print(json.dumps({"edits": edits, "net": {name: w.tolist() for name, w in net.state_dict().items()}}))
"""


@pytest.mark.prove
def test_two_processes_give_what_one_gives(schedule: Path, tmp_path: Path) -> None:
    expected, edits = plain(schedule)
    words = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(schedule), str(tmp_path / "meet")]
    running = [
        subprocess.Popen([*words, str(rank)], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
        for rank in range(2)
    ]
    said = [each.communicate(timeout=120)[0] for each in running]
    assert [each.returncode for each in running] == [0, 0]
    found = json.loads(said[0])
    assert_same(expected, {name: torch.tensor(weight) for name, weight in found["net"].items()})
    assert found["edits"] == edits


def test_a_compiled_net_is_pruned_by_the_names_of_the_net(schedule: Path) -> None:
    expected, edits = plain(schedule)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled, found = plain(schedule, lambda net: torch.compile(net, backend="eager"))
    assert_same(expected, compiled.state_dict())
    assert found == edits
