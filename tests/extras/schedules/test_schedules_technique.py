"""Distiller's schedules as a technique of a target: what is pruned, what a kill costs, where the file is looked for."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from test_finetune import Case, assert_equal, assert_segments, folder, one_thread, segmenting, weights, zoo_case

from edgecompress.core import extras, registry
from edgecompress.core.errors import InputError, MissingDependency
from edgecompress.core.model import Request
from edgecompress.extras.schedules import reader
from edgecompress.extras.schedules.techniques import schedule
from edgecompress.formats import torch_edits, torch_module
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.techniques import finetune

pytestmark = pytest.mark.slow
__all__ = ["one_thread"]  # a fixture of fine-tuning's tests

HYBRID = """
pruners:
  gradual: {class: AutomatedGradualPruner, initial_sparsity: 0.1, final_sparsity: 0.6, weights: [module.WEIGHT]}
  draws: {class: RandomRankedFilterPruner, group_type: Filters, desired_sparsity: 0.25, weights: [SECOND]}
regularizers:
  lasso: {class: L1Regularizer, reg_regims: {WEIGHT: 0.001}}
lr_schedulers:
  falls: {class: ExponentialLR, gamma: 0.5}
policies:
  - {pruner: {instance_name: gradual}, starting_epoch: 0, ending_epoch: 3, frequency: 1}
  - {pruner: {instance_name: draws}, starting_epoch: 1, ending_epoch: 4, frequency: 1}
  - {regularizer: {instance_name: lasso}, starting_epoch: 0, ending_epoch: 4, frequency: 1}
  - {lr_scheduler: {instance_name: falls}, starting_epoch: 0, ending_epoch: 4, frequency: 1}
"""


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return zoo_case(tmp_path_factory.mktemp("residual"), "residual_cnn")


def convolutions(case: Case) -> list[str]:
    """Their weights, in the net's order."""
    return [name for name, weight in torch_module.rebuild(case.model).named_parameters() if weight.ndim == 4]


def written(case: Case, place: Path) -> Path:
    first, second, *_ = convolutions(case)
    place.write_text(HYBRID.replace("WEIGHT", first).replace("SECOND", second), encoding="utf-8")
    return place


def request(case: Case, file: Path, keep: Path | None = None, **options: Any) -> Request:
    made = schedule.Options(file=str(file), **{"epochs": 4, "batch_size": 32, "lr": 0.01, **options})
    return dataclasses.replace(case.request(keep), options=made)


def test_it_prunes_as_the_file_says_and_training_that_follows_keeps_the_zeros(case: Case, tmp_path: Path) -> None:
    made = schedule.apply(request(case, written(case, tmp_path / "s.yaml")))
    epochs = made.facts["epochs"]
    assert [epoch["lr"] for epoch in epochs] == pytest.approx([0.01, 0.005, 0.0025, 0.00125])
    assert epochs[0]["sparsity"] < epochs[2]["sparsity"] == epochs[3]["sparsity"]
    first, second, *_ = convolutions(case)
    rows = {row["name"]: row for row in made.facts["weights"]}
    assert rows[first]["fine_pct"] == pytest.approx(60, abs=1)
    assert rows[second]["filters_pct"] == 25
    assert torch_edits.zeros(torch_module.edits(made)) == [first, second]
    after = finetune.apply(dataclasses.replace(case, model=made).request())
    zero = weights(made)[first] == 0
    assert zero.mean() > 0.5 and not weights(after)[first][zero].any()


def stopped(asked: Request, epoch: int) -> None:
    """Runs a request until so many epochs have ended."""

    def stop(fraction: float, what: str) -> None:
        if what.startswith(f"after epoch {epoch} of"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        schedule.apply(dataclasses.replace(asked, progress=stop))


@pytest.mark.parametrize("epoch", [1, 3])  # amid the pruning, and after a part of it
def test_stopped_and_started_again_it_ends_with_the_same_weights_and_masks(
    case: Case, tmp_path: Path, epoch: int
) -> None:
    file = written(case, tmp_path / "s.yaml")
    straight = schedule.apply(request(case, file))
    keep, said = folder(tmp_path / "keep"), list[str]()
    stopped(request(case, file, keep), epoch)
    again = dataclasses.replace(request(case, file, keep), progress=lambda _, what: said.append(what))
    assert_equal(schedule.apply(again), straight)
    assert said[0] == f"resuming after epoch {epoch} of 4, from its checkpoint"


QUANTIZED = """
quantizers:
  q: {class: PACTQuantizer, bits_weights: 4, bits_activations: 4, act_clip_init_val: 2.0}
policies:
  - {quantizer: {instance_name: q}, starting_epoch: 0, ending_epoch: 4, frequency: 1}
"""


def test_a_quantizer_leaves_weights_and_activations_on_levels_after_a_stop_too(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(QUANTIZED, encoding="utf-8")
    straight = schedule.apply(request(case, file, epochs=2))
    keep = folder(tmp_path / "keep")
    stopped(request(case, file, keep, epochs=2), 1)
    assert_equal(schedule.apply(request(case, file, keep, epochs=2)), straight)
    assert {edit["edit"] for edit in torch_module.edits(straight)} == {"levels"}
    assert all(len(set(weight.flat)) <= 16 for weight in weights(straight).values() if weight.ndim == 4)


THINNER = """
extensions:
  thinner: {class: FilterRemover, thinning_func_str: remove_filters, arch: any, dataset: any}
"""


def test_thinned_and_stopped_it_ends_with_the_same_narrower_net(case: Case, tmp_path: Path) -> None:
    file = written(case, tmp_path / "s.yaml")
    policy = "  - {extension: {instance_name: thinner}, epochs: [2]}\n"
    file.write_text(file.read_text(encoding="utf-8") + policy + THINNER, encoding="utf-8")
    straight = schedule.apply(request(case, file))
    second = convolutions(case)[1]
    assert len(weights(straight)[second]) < len(weights(case.model)[second])
    assert {edit["edit"] for edit in torch_module.edits(straight)} == {"resize", "zeros"}
    keep = folder(tmp_path / "keep")
    stopped(request(case, file, keep), 3)
    said: list[str] = []
    again = dataclasses.replace(request(case, file, keep), progress=lambda _, what: said.append(what))
    assert_equal(schedule.apply(again), straight)
    assert said[0] == "resuming after epoch 3 of 4, from its checkpoint"


def test_a_checkpoint_of_another_schedule_is_not_gone_on_from(
    case: Case, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, keep = written(case, tmp_path / "s.yaml"), folder(tmp_path / "keep")
    stopped(request(case, file, keep), 1)
    file.write_text(file.read_text(encoding="utf-8").replace("0.6", "0.7"), encoding="utf-8")
    schedule.apply(request(case, file, keep))
    assert "starting again from epoch 1" in capfd.readouterr().err


LOOPS = """
import torch

def plain(net, training):
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for epoch in range(training.resume(net, optimizer), training.options.epochs):
        for inputs, labels in training.batches(epoch):
            loss = training.loss(net, inputs, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        training.ended(net, optimizer)

def bare(net, training):
    list(training.batches(0))
"""


def test_the_schedule_acts_in_a_loop_of_the_users_own(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scheduled_loops.py").write_text(LOOPS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    file = written(case, tmp_path / "s.yaml")
    made = schedule.apply(request(case, file, loop="scheduled_loops:plain"))
    assert [epoch["lr"] for epoch in made.facts["epochs"]] == pytest.approx([0.01, 0.005, 0.0025, 0.00125])
    assert (weights(made)[convolutions(case)[0]] == 0).mean() == pytest.approx(0.6, abs=0.01)
    with pytest.raises(InputError, match=r"scheduled_loops:bare: call training\.resume"):
        schedule.apply(request(case, file, loop="scheduled_loops:bare"))


def test_a_teacher_may_be_another_net_than_the_uncompressed_one(case: Case, tmp_path: Path) -> None:
    file = written(case, tmp_path / "s.yaml")
    taught, same = (
        schedule.apply(request(case, file, epochs=2, distill=0.5, teacher=teacher))
        for teacher in ("", "edgecompress.testing.zoo:residual_cnn")
    )
    assert taught.facts["distill"] == 0.5
    assert (taught.facts["teachers"], same.facts["teachers"]) == ([], ["edgecompress.testing.zoo:residual_cnn"])
    assert_equal(taught, dataclasses.replace(same, facts={**same.facts, "teachers": []}))
    assert taught.sha256 != schedule.apply(request(case, file, epochs=2)).sha256


def test_a_training_that_ends_before_its_pruners_do_is_warned_of(case: Case, tmp_path: Path) -> None:
    file = written(case, tmp_path / "s.yaml")
    last = max(policy.epochs[-1] for policy in reader.read(file).policies) + 1
    short, whole = (schedule.apply(request(case, file, epochs=n)).facts["warnings"] for n in (last - 1, last))
    said = [f"{file}: its pruners act until epoch {last}, of which {last - 1} train"]
    assert [warning for warning in short if "act until" in warning] == said and not any("act until" in w for w in whole)


def test_without_learning_rates_in_the_file_the_rate_stays_or_falls_on_a_plateau(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("version: 1\n", encoding="utf-8")
    made = schedule.apply(request(case, file, epochs=2))
    assert [epoch["lr"] for epoch in made.facts["epochs"]] == [0.01, 0.01]
    assert not torch_module.edits(made)
    slower = schedule.apply(request(case, file, epochs=3, lr=1e-9, plateau=4.0))
    assert [epoch["lr"] for epoch in slower.facts["epochs"]] == pytest.approx([1e-9, 1e-9, 2.5e-10])


def test_names_that_the_net_lacks_are_one_line(case: Case, tmp_path: Path) -> None:
    file = written(case, tmp_path / "s.yaml")
    file.write_text(file.read_text(encoding="utf-8").replace(convolutions(case)[0], "nowhere.weight"), encoding="utf-8")
    with pytest.raises(InputError, match=r"s\.yaml: line .*: the model has no parameter 'module\.nowhere\.weight'"):
        schedule.apply(request(case, file))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file": "s.yaml", "momentum": 1.0}, "momentum"),
        ({"file": "s.yaml", "teacher": "nets:build"}, "teacher is used with distill"),
    ],
)
def test_options_that_cannot_be(options: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        schedule.Options(**options)


@pytest.mark.parametrize("axis", ["first", "last"])
def test_a_segmenter_is_trained_by_its_axis_of_classes(
    axis: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "still.yaml").write_text("version: 1\npolicies: []\n", encoding="utf-8")
    segmenter = segmenting(tmp_path, axis, monkeypatch)
    assert_segments(schedule, segmenter, file=str(tmp_path / "still.yaml"), distill=0.1)


TARGET = """
description = "a schedule"
runtime = "onnx"

[[variant]]
name = "pruned"
compress = [{ use = "schedule", file = "s.yaml", epochs = 2 }]
"""


def test_the_file_is_found_beside_the_target_and_from_the_command_line_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "t.toml").write_text(TARGET, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def read(**settings: Any) -> tuple[str, ...]:
        made = job(None, "there/t.toml", settings={f"variant.pruned.{key}": value for key, value in settings.items()})
        stages = {stage.name: stage for stage in plan.deploy(made).stages}
        return stages["pruned/schedule"].user_files  # type: ignore[union-attr]

    assert read() == (str(tmp_path / "there" / "s.yaml"),)
    assert read(file="s.yaml") == (str(tmp_path / "s.yaml"),)


def test_a_target_that_names_it_where_its_folder_is_not_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t.toml").write_text(TARGET, encoding="utf-8")
    made = job(None, str(tmp_path / "t.toml"))
    others = [name for name in registry.names("techniques") if name != "schedule"]
    names = registry.names
    monkeypatch.setattr(registry, "names", lambda kind: others if kind == "techniques" else names(kind))
    monkeypatch.setattr(extras, "PACKAGE", tmp_path)
    with pytest.raises(MissingDependency, match=r"pruned: .*: schedule: the extra 'schedules' is not here"):
        plan.deploy(made)
