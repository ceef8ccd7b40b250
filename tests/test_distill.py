"""Distillation: what a student learns from whom, what a kill costs, which nets are refused; the losses, worked out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import students
from hypothesis import given, settings
from hypothesis import strategies as st
from test_finetune import (
    Case,
    agreement,
    assert_equal,
    digits,
    folder,
    killed,
    logits,
    one_thread,
    unlabelled,
    weights,
    zoo_case,
)

from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Request
from edgecompress.formats import torch_module
from edgecompress.stages import trace
from edgecompress.techniques import distill
from edgecompress.techniques._training import checkpoint, features, log, losses

pytestmark = pytest.mark.slow
__all__ = ["digits", "one_thread", "unlabelled"]  # fixtures of fine-tuning's tests

QUICK = {"epochs": 2, "batch_size": 32, "lr": 0.01}
LAYERS = (("first", "body.0"), ("second", "body.2"))  # of students:small and the zoo's residual_cnn
SMALL = "students:small"


@pytest.fixture(scope="module")
def residual(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return zoo_case(tmp_path_factory.mktemp("distilled"), "residual_cnn")


def request(case: Case, keep: Path | None = None, **options: Any) -> Request:
    """The source itself is what is to be compressed."""
    asked = dataclasses.replace(case, model=case.dense).request(keep)
    return dataclasses.replace(asked, options=distill.Options(**{**QUICK, **options}))


def distilled(case: Case, keep: Path | None = None, **options: Any) -> Artifact:
    return distill.apply(request(case, keep, **options))


# --------------------------------------------------------------------------- every way to learn

WAYS: Mapping[str, dict[str, Any]] = {
    "the net itself": {},
    "labels alone": {"student": SMALL, "hard": 1.0, "soft": 0.0},
    "answers": {"student": SMALL},
    "small to large": {"student": "students:wide", "hints": 1.0, "layers": LAYERS},
    "an ensemble": {"student": SMALL, "teachers": ("students:wide", "students:seeded")},
    "hints": {"student": SMALL, "hints": 1.0, "layers": LAYERS, "soft": 0.0},
    "attention": {"student": SMALL, "attention": 10.0, "layers": LAYERS},
    "relations of answers": {"student": SMALL, "distances": 1.0, "angles": 2.0, "soft": 0.0, "hard": 0.0},
    "relations of layers": {"student": SMALL, "angles": 2.0, "layers": LAYERS[1:]},
    "a peer like it": {"student": SMALL, "scheme": "online", "temperature": 1.0},
    "named peers": {"student": SMALL, "scheme": "online", "teachers": ("students:wide", "students:seeded")},
    "two of the net itself": {"scheme": "online"},
    "generations of the net": {"scheme": "self", "generations": 2},
    "generations of the student": {
        "student": SMALL,
        "scheme": "self",
        "generations": 2,
        "hints": 1.0,
        "layers": LAYERS,
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_learn_gives_the_same_student_twice_with_the_ends_of_the_source(residual: Case, way: str) -> None:
    options = {**WAYS[way], "epochs": 1}
    first, second = distilled(residual, **options), distilled(residual, **options)
    assert_equal(first, second)
    assert (first.inputs, first.outputs) == (residual.dense.inputs, residual.dense.outputs)
    assert torch_module.reference(first) == (options.get("student") or torch_module.reference(residual.dense))
    assert logits(residual, first).shape == (96, 10)
    assert all(math.isfinite(epoch["loss"]) for epoch in first.facts["epochs"])
    assert len(first.facts["generations"]) == options.get("generations", 1)


def test_the_facts_say_who_taught(residual: Case) -> None:
    ensemble = distilled(residual, **WAYS["an ensemble"], epochs=1).facts
    assert (ensemble["student"], ensemble["scheme"]) == (SMALL, "offline")
    assert ensemble["teachers"] == ["source", "students:wide", "students:seeded"]
    assert ensemble["distill"] == pytest.approx(0.9)
    assert distilled(residual, **WAYS["named peers"], epochs=1).facts["teachers"] == [
        "students:wide",
        "students:seeded",
    ]
    alone = distilled(residual, **WAYS["labels alone"], epochs=1).facts
    assert (alone["teachers"], alone["distill"]) == ([], 0.0)


def test_a_student_begins_with_the_weights_of_its_teacher(residual: Case) -> None:
    import torch

    given = torch_module.factory("students:seeded").state_dict()
    asked = {"student": "students:wide", "teacher": "students:seeded"}
    whole = distill._pupil(request(residual, **{**asked, "student": SMALL}, inherit=(("", ""),)), torch.device("cpu"))
    assert all(tensor.equal(given[name]) for name, tensor in whole.state_dict().items())
    part = distill._pupil(request(residual, **asked, inherit=(("", ""),)), torch.device("cpu")).state_dict()
    assert [name for name, tensor in part.items() if tensor.shape == given[name].shape] == ["head.bias"]
    assert part["head.bias"].equal(given["head.bias"])
    assert distilled(residual, **asked, inherit=(("", ""),), epochs=1).facts["teachers"] == ["students:seeded"]


def test_a_student_is_traced_as_any_other_net(residual: Case, tmp_path: Path) -> None:
    import torch

    student = distilled(residual, student=SMALL, epochs=1)
    program = trace.run(Request({"model": student, "samples": residual.samples}, folder(tmp_path / "program"), {}))
    item = torch_module.example(student, residual.samples, 1)
    found, wanted = (torch_module.outputs(torch_module.rebuild(each), each, item) for each in (program, student))
    torch.testing.assert_close(found, wanted)


def test_a_student_of_sequences_takes_hints_from_the_steps_of_another_kind_of_layer(tmp_path: Path) -> None:
    case = zoo_case(tmp_path, "lstm")
    options = {"student": "students:steps", "layers": (("rnn", "rnn"),), "hints": 1.0, "attention": 1.0}
    trained = distilled(case, **options, optimizer="adamw", lr=0.01, epochs=4)
    first, *_, last = (epoch["loss"] for epoch in trained.facts["epochs"])
    assert last < first


@pytest.mark.prove
def test_unlabelled_digits_are_labelled_by_the_teacher(digits: Case, unlabelled: Case) -> None:
    trained = distilled(unlabelled, student="students:digits", epochs=8, lr=0.1, loss="cross_entropy")
    assert agreement(digits, trained) > 0.85
    assert (trained.facts["metric"], trained.facts["distill"]) == ("agreement", 1.0)


def test_another_seed_gives_another_student(residual: Case) -> None:
    asked = request(residual, student=SMALL, epochs=1)
    other = dataclasses.replace(asked.context, seed=1)
    again = dataclasses.replace(request(residual, student=SMALL, epochs=1), context=other)
    assert distill.apply(asked).sha256 != distill.apply(again).sha256


def test_a_peer_of_a_factory_that_seeds_begins_with_other_weights(residual: Case) -> None:
    import torch

    asked = request(residual, student="students:seeded", scheme="online")
    student = students.seeded()
    (twin,) = distill._peers(asked, torch.device("cpu"), student)
    assert not torch.equal(twin.first.weight, student.first.weight)


def test_a_generation_begins_anew_and_zeros_stay(tmp_path: Path) -> None:
    edits = [{"edit": "zeros", "parameters": ["body.1.second.0.weight"]}]
    sparse = zoo_case(tmp_path, "residual_cnn", edits=edits)
    options = distill.Options(**{**QUICK, "scheme": "self", "lr": 1e-30})
    before = weights(sparse.model)
    after = weights(distill.apply(dataclasses.replace(sparse.request(), options=options)))
    name = "body.1.second.0.weight"
    assert ((before[name] == 0) == (after[name] == 0)).all() and (before[name] == 0).any()
    assert abs(after["head.weight"] - before["head.weight"]).min() > 0


# --------------------------------------------------------------------------- kill -9

BORN_AGAIN = {**QUICK, **WAYS["generations of the student"]}


def test_killed_in_its_second_generation_it_ends_with_the_same_student(residual: Case, tmp_path: Path) -> None:
    keep = folder(tmp_path / "keep")
    straight = distilled(residual, **BORN_AGAIN)
    killed(request(residual, keep, **BORN_AGAIN), BORN_AGAIN, "generation 2 of 2, epoch 2", "distill")
    said: list[tuple[float, str]] = []
    again = dataclasses.replace(request(residual, keep, **BORN_AGAIN), progress=lambda f, what: said.append((f, what)))
    assert_equal(distill.apply(again), straight)
    words = [what for _, what in said]
    assert words[:2] == [f"resuming after epoch {done} of 2, from its checkpoint" for done in (2, 1)]
    assert words[-1].startswith("generation 2 of 2, after epoch 2 of 2, loss ")
    fractions = [fraction for fraction, _ in said]
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    kept = [keep / log.FOLDER / f"generation-{part}" / log.FILE for part in (1, 2)]
    assert all(file.exists() for file in kept)


@pytest.mark.parametrize("way", ["hints", "named peers"])
def test_what_learns_beside_the_student_is_part_of_a_checkpoint(residual: Case, tmp_path: Path, way: str) -> None:
    keep = folder(tmp_path / "keep")
    straight = distilled(residual, **WAYS[way])

    def stop(fraction: float, what: str) -> None:
        if "select" in what:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distill.apply(dataclasses.replace(request(residual, keep, **WAYS[way]), progress=stop))
    assert (keep / checkpoint.FILE).exists()
    assert_equal(distilled(residual, keep, **WAYS[way]), straight)


# --------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"student": "students:smal"}, r"students has no function 'smal', did you mean 'small'\?"),
        (
            {"student": "students:of_twelve"},
            r"the student students:of_twelve returns float32 \[2, 12\], the source float32 \[2, 10\] \(output\); give",
        ),
        (
            {"student": SMALL, "teachers": ("students:of_twelve",)},
            r"the teacher students:of_twelve returns float32 \[2, 12\]",
        ),
        (
            {"student": SMALL, "teachers": ("students:of_twelve",), "scheme": "online"},
            r"the peer students:of_twelve returns float32 \[2, 12\]",
        ),
        (
            {"student": "students:renamed"},
            r"students:renamed does not take the source's inputs \(image \[2, 3, 16, 16\]\)",
        ),
        (
            {"student": SMALL, "hints": 1.0, "layers": (("secnd", "body.2"),)},
            r"layers: the student has no layer 'secnd', did you mean 'second'\?",
        ),
        (
            {"student": SMALL, "hints": 1.0, "layers": (("second", "bdy.2"),)},
            r"layers: the teacher has no layer 'bdy.2', did you mean 'body.2'\?",
        ),
        (
            {"student": SMALL, "hints": 1.0, "layers": (("second", "head"),)},
            r"the student's 'second' returns \[2, 8, 4, 4\], the teacher's 'head' \[2, 10\], which cannot be compared",
        ),
        (
            {"student": SMALL, "attention": 1.0, "layers": (("head", "head"),)},
            "which cannot be compared; name two layers that both return images, or the same number of steps",
        ),
        ({"student": SMALL, "inherit": (("firt", ""),)}, r"the student has no module 'firt', did you mean 'first'\?"),
        ({"student": SMALL, "inherit": (("first", "bdy.0"),)}, r"the teacher has no module 'bdy.0', did you mean"),
        ({"student": SMALL, "inherit": (("head", "body.0"),)}, "no weight of the same name and shape"),
        (
            {"student": SMALL, "angles": 1.0, "batch_size": 2},
            "angles need batches of at least 3 items, but a batch has 2",
        ),
    ],
)
def test_nets_that_do_not_fit_are_refused_in_one_line(residual: Case, options: Any, said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        distilled(residual, **options)
    assert "\n" not in str(caught.value)


def test_peers_without_labels_are_refused(unlabelled: Case) -> None:
    with pytest.raises(InputError, match=r"the split 'train' has no labels: peers are trained on labels"):
        distilled(unlabelled, student="students:digits", scheme="online")


def test_a_student_in_the_place_of_a_changed_net_is_refused(tmp_path: Path) -> None:
    case = zoo_case(tmp_path, "residual_cnn", edits=[{"edit": "zeros", "parameters": ["head.weight"]}])
    asked = dataclasses.replace(case.request(), options=distill.Options(student=SMALL))
    with pytest.raises(InputError, match=r"students:small replaces the net, so the 'zeros' of an earlier step"):
        distill.apply(asked)


def test_a_layer_that_cannot_begin_anew_is_named() -> None:
    with pytest.raises(InputError, match=r"the layer '' \(Scaled\) has no reset_parameters"):
        distill._begin_anew(students.scaled())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"hard": -1.0}, "at least 0"),
        ({"soft": math.nan}, "at least 0"),
        ({"hard": 0.0, "soft": 0.0}, "at least one above 0"),
        ({"epochs": 0}, "at least 1"),
        ({"temperature": 0.0}, "temperature above 0"),
        ({"generations": 2}, "more than 1 needs scheme = 'self'"),
        ({"generations": 0, "scheme": "self"}, "generations must be at least 1"),
        ({"hints": 1.0}, "hints and attention compare layers"),
        ({"layers": LAYERS}, "layers need a loss that compares them"),
        ({"scheme": "online", "angles": 1.0}, "compares outputs only"),
    ],
)
def test_options_that_cannot_be_are_refused(options: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        distill.Options(**options)


# --------------------------------------------------------------------------- the losses


def tensor(values: Any) -> Any:
    import torch

    return torch.tensor(values, dtype=torch.float64)


def test_a_hint_is_half_the_squared_distance() -> None:
    """Romero et al. 2015, eq. 3, per number: (1 + 4) / 2 / 2."""
    assert float(features.hint(tensor([[1.0, 2]]), tensor([[0.0, 4]]))) == pytest.approx(1.25)


def test_attention_is_where_the_squares_of_all_channels_lie() -> None:
    """Zagoruyko & Komodakis 2017, eq. 2: maps (3, 4) / 5 and (4, 3) / 5, half of 0.2^2 + 0.2^2."""
    student = tensor([[[[1.0, 2]], [[1, 0]], [[1, 0]]]])  # [1, 3, 1, 2]: 1 + 1 + 1 and 4
    teacher = tensor([[[[2.0, 3**0.5]]]])  # [1, 1, 1, 2]: 4 and 3
    assert float(features.attention(student, teacher)) == pytest.approx(0.04)
    steps = [each.flatten(2).transpose(1, 2) for each in (student, teacher)]  # [1, 2, channels]
    assert float(features.attention(*steps)) == pytest.approx(0.04)


def test_distances_are_those_of_pairs_over_their_mean() -> None:
    """Park et al. 2019, eq. 5 to 8: 1/2, 3/2, 1 against 1, 1, 1; Huber's loss of a half is an eighth."""
    teacher = tensor([[0.0], [1], [3]])
    student = tensor([[0.0, 0], [2, 0], [1, 3**0.5]])  # all 2 apart
    assert float(features.distances(student, teacher)) == pytest.approx((0.125 + 0.125 + 0) / 3)


def test_angles_are_those_of_triplets() -> None:
    """Park et al. 2019, eq. 9 to 11: 90, 45 and 45 degrees against three of 60."""
    teacher = tensor([[0.0, 0], [1, 0], [0, 1]])
    student = tensor([[0.0, 0], [2, 0], [1, 3**0.5]])
    expected = ((0.5 - 0) ** 2 / 2 + 2 * (0.5**0.5 - 0.5) ** 2 / 2) / 3
    assert float(features.angles(student, teacher)) == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(0.1, 10), items=st.integers(3, 8), width=st.integers(2, 5))
def test_relations_mind_no_moving_turning_and_scaling(seed: int, scale: float, items: int, width: int) -> None:
    import torch

    generator = torch.Generator().manual_seed(seed)
    found = torch.randn(items, width, dtype=torch.float64, generator=generator)
    turned, _ = torch.linalg.qr(torch.randn(width, width, dtype=torch.float64, generator=generator))
    moved = scale * found @ turned + 3
    assert float(features.distances(found, moved)) == pytest.approx(0, abs=1e-9)
    assert float(features.angles(found, moved)) == pytest.approx(0, abs=1e-9)


def test_items_in_one_place_have_no_direction_and_break_no_gradient() -> None:
    import torch

    student = tensor([[1.0, 1], [1, 1], [2, 0]]).requires_grad_(True)
    teacher = tensor([[0.0, 0], [1, 0], [0, 1]])
    (features.angles(student, teacher) + features.distances(student, teacher)).backward()
    assert torch.isfinite(student.grad).all()
    assert student.grad.abs().max() < 10


def test_an_ensemble_is_the_mean_of_softened_probabilities() -> None:
    import torch

    first, second = tensor([[2.0, 0, 0]]), tensor([[0.0, 4, 0]])
    objective = losses.Objective("cross_entropy", 1.0, 2.0, ("y", "z"))
    found = objective.together([{"y": first, "z": first}, {"y": second, "z": second}])
    mean = (torch.softmax(first / 2, -1) + torch.softmax(second / 2, -1)) / 2
    torch.testing.assert_close(torch.softmax(found["y"] / 2, -1), mean)
    torch.testing.assert_close(found["z"], (first + second) / 2)
    assert objective.together([{"y": first}]) == {"y": first}


def test_features_of_two_sizes_are_compared_at_the_smaller() -> None:
    import torch

    one, other = torch.rand(2, 3, 8, 4), torch.rand(2, 5, 4, 8)
    assert [list(t.shape) for t in features.evened(one, other)] == [[2, 3, 4, 4], [2, 5, 4, 4]]
    assert list(features.regressor(one, other)(one).shape) == [2, 5, 8, 4]
    assert list(features.embedding(one).shape) == [2, 3]
