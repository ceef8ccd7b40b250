"""What a deploy doubts of a source and its data: few warnings, and right ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_onnx import conv_net, images

import edgecompress
from edgecompress.cli import main
from edgecompress.core.model import Artifact, Dim, TensorSpec
from edgecompress.core.settings import Preprocess
from edgecompress.data import chance, metrics, preprocess, tensors
from edgecompress.stages import batch_axis, box_doubts, doubts

BYTES, SHARES, SIXTEENTHS = (np.linspace(0, end, 48).reshape(1, 4, 4, 3) for end in (255, 1, 16))
IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
SCALE = 1 / 255


@pytest.mark.parametrize(
    ("raw", "declared"),
    [
        (BYTES, Preprocess(**IMAGENET)),
        (SHARES, Preprocess(scale=SCALE, **IMAGENET)),
        (SHARES, Preprocess(mean=(127.5,), std=(127.5,))),
        (SHARES, Preprocess(mean=(104.0, 117.0, 123.0))),
        (BYTES, Preprocess(scale=SCALE, mean=(104.0, 117.0, 123.0), std=(1.0,))),
    ],
)
def test_values_that_mean_and_std_contradict_are_told(raw: np.ndarray, declared: Preprocess) -> None:
    (warning,) = doubts.of_range(preprocess.numbers(raw, declared), declared)
    assert "check scale" in warning


@pytest.mark.parametrize(
    ("raw", "declared"),
    [
        (BYTES, Preprocess(scale=SCALE, **IMAGENET)),
        (BYTES / 8, Preprocess(scale=SCALE, mean=(0.1,), std=(0.2,))),  # pictures of the night
        (BYTES, Preprocess(scale=2 / 255, mean=(1.0,), std=(1.0,))),
        (BYTES, Preprocess(mean=(104.0, 117.0, 123.0), std=(1.0, 1.0, 1.0))),
        (SIXTEENTHS, Preprocess(scale=0.0625, mean=(0.3,), std=(0.37,))),
        (BYTES, Preprocess(scale=SCALE)),
        (BYTES, Preprocess(scale=0.017, mean=(2.1,))),
        (np.log(np.maximum(SHARES, 1e-3)), Preprocess(mean=(-4.8,), std=(2.6,))),
    ],
)
def test_values_that_fit_are_not_doubted(raw: np.ndarray, declared: Preprocess) -> None:
    assert doubts.of_range(preprocess.numbers(raw, declared), declared) == []


@pytest.mark.parametrize(
    ("metric", "classes", "right", "items", "says", "proof"),
    [
        ("top1", 10, 12, 100, "top-1 of 12.0 % is not above chance (10.0 %), as far as 100 items tell", False),
        ("top1", 2, 59, 100, "not above chance (50.0 %)", False),
        ("top5", 10, 50, 100, "top-5 of 50.0 % is not above chance (50.0 %)", False),
        ("top1", 1000, 0, 500, "not above chance", False),
        ("top1", 10, 2, 30, "not above chance", True),
        ("top1", 10, 25, 30, "30 test items are few: one of them is 3.3 % of all", True),
        ("top1", 10, 20, 100, "", True),
        ("top1", 2, 61, 100, "", True),
        ("top1", 1000, 8, 500, "", True),
        ("top5", 5, 100, 100, "", True),
    ],
)
def test_answers_near_chance_are_no_proof_and_few_items_are_told(
    metric: str, classes: int, right: int, items: int, says: str, proof: bool
) -> None:
    judge, answers = metrics.find(metric), {"y": np.zeros((items, classes), np.float32)}
    assert judge is not None
    labels, scores = np.random.default_rng(0).integers(0, classes, items), np.arange(items) < right
    told, no_proof = doubts.of_answers(judge, scores.astype(float), answers, labels, "the source's")
    assert len(told) == bool(says) and all(says in text for text in told), told
    assert (no_proof == "") is proof


def of_labels(metric: str, outputs: np.ndarray, labels: np.ndarray) -> str:
    """Why answers are no proof."""
    judge = metrics.find(metric)
    assert judge is not None
    return doubts.of_answers(judge, metrics.scores(judge, {"y": outputs}, labels), {"y": outputs}, labels, "its")[1]


@pytest.mark.parametrize(
    ("metric", "by", "items", "says"),
    [
        ("top1", 0, 60, ""),
        ("top1", 1, 60, "the labels are off by one, as with 1 taken from each it is 100.0 %"),
        ("top1", 1, 20, "the labels are off by one, as with 1 taken from each it is 100.0 %"),
        ("top1", -1, 60, "the labels are off by one, as with 1 added to each it is 100.0 %"),
        ("top2", -1, 60, "the labels are off by one, as with 1 added to each it is 100.0 %"),
        ("top1", 4, 60, "check the labels, the order of the classes, and [preprocess]"),
    ],
)
def test_labels_that_are_off_by_one_are_named(metric: str, by: int, items: int, says: str) -> None:
    truth = np.random.default_rng(0).integers(1, 9, items)
    outputs = np.eye(10, dtype=np.float32)[truth] - np.arange(10, dtype=np.float32) * (1e-3 if by >= 0 else -1e-3)
    said = of_labels(metric, outputs, (truth + by) % 10)
    assert says in said and bool(said) == bool(says), said


@pytest.mark.parametrize("items", [30, 600])
@pytest.mark.parametrize(
    ("classes", "labels", "net"),
    [
        (2, (0, 1), lambda truth, seeded: np.full_like(truth, 1)),
        (2, (0, 1), lambda truth, seeded: np.full_like(truth, 0)),
        (2, (0, 1), lambda truth, seeded: 1 - truth),
        (4, (0, 3), lambda truth, seeded: (truth + 1) % 4),  # another order: no label may be left out
        (4, (1, 1), lambda truth, seeded: np.full_like(truth, 2)),
        (4, (1, 2), lambda truth, seeded: np.full_like(truth, 2)),
        (4, (1, 2), lambda truth, seeded: np.where(seeded.random(len(truth)) < 0.36, truth + 1, 0)),  # untrained
        (10, (1, 8), lambda truth, seeded: np.where(seeded.random(len(truth)) < 0.4, truth + 1, truth)),
    ],
)
def test_labels_are_not_called_off_by_one_where_that_is_not_sure(
    classes: int, labels: tuple[int, int], net: Callable[[np.ndarray, np.random.Generator], np.ndarray], items: int
) -> None:
    seeded, judge = np.random.default_rng(5), metrics.find("top1")
    truth = seeded.integers(labels[0], labels[1] + 1, items)
    answers = {"y": np.eye(classes, dtype=np.float32)[net(truth, seeded)]}
    assert judge is not None and chance.off_by_one(judge, answers, truth) == (0, 0.0)


RANDOM = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("metric", "answers"),
    [
        ("auc", lambda: (RANDOM.random((200, 1)), None, np.arange(200) % 2)),
        ("miou", lambda: (np.zeros((60, 4, 4), np.int64), None, np.arange(960).reshape(60, 4, 4) % 4)),
        ("iou", lambda: (np.ones((60, 4, 4), np.int64), None, np.arange(960).reshape(60, 4, 4) % 2)),
        ("perplexity", lambda: (RANDOM.normal(size=(60, 5)), None, np.arange(60) % 5)),
        ("mse", lambda: (np.ones((60, 1)), None, RANDOM.normal(size=(60, 1)))),
        ("mae", lambda: (np.ones((60, 1)), None, RANDOM.normal(size=(60, 1)))),
    ],
)
def test_each_metric_with_a_level_of_chance_doubts_answers_at_it(metric: str, answers: Callable[[], Any]) -> None:
    outputs, _, labels = answers()
    assert "chance" in of_labels(metric, outputs, labels) or "no better than" in of_labels(metric, outputs, labels)
    best = np.eye(5)[labels] * 9 if metric == "perplexity" else labels if outputs.ndim > 2 else labels.reshape(-1, 1)
    assert of_labels(metric, best.astype(outputs.dtype), labels) == ""


@pytest.mark.parametrize(
    ("metric", "scores", "proof"),
    [
        ("map", [0.0] * 60, False),
        ("map", [0.3] * 30 + [0.2] * 30, True),
        ("wer", [1.1] * 60, False),
        ("wer", [0.4] * 60, True),
    ],
)
def test_detections_of_nothing_and_transcripts_of_as_many_errors_as_words_are_no_proof(
    metric: str, scores: list[float], proof: bool
) -> None:
    judge = metrics.find(metric)
    assert judge is not None
    told = doubts.of_answers(judge, np.array(scores), {"y": np.zeros((60, 1))}, np.zeros((60, 1)), "its")[1]
    assert (told == "") is proof


@pytest.mark.parametrize(
    ("net", "mixes"),
    [
        (lambda x: x @ np.ones((4, 3)), False),
        (lambda x: x - x.mean(axis=0), True),
        (lambda x: (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) * 0.9 + 0.3, True),
        (lambda x: np.round(x / np.abs(x).max() * 127) * np.abs(x).max() / 127, False),  # ranges of the batch at hand
    ],
)
def test_a_net_in_training_mode_is_told_from_one_that_is_quantized_as_it_runs(
    net: Callable[[np.ndarray], np.ndarray], mixes: bool
) -> None:
    x = np.random.default_rng(0).normal(size=(8, 4))
    assert batch_axis.mixed(lambda inputs: {"y": net(inputs["x"])}, {"x": x}, {"y": net(x)}) is mixes


def test_missing_labels_are_told_unless_nothing_asks_for_them(tmp_path: Path) -> None:
    (tmp_path / "test").mkdir()
    x, label = TensorSpec("x", (Dim("batch"), 4)), TensorSpec("label", (Dim("batch"),))
    model = Artifact(tmp_path, "null", (x,))
    given, drawn = (Artifact(tmp_path, "samples", (x,), facts={"random": random}) for random in (False, True))
    asked = ((given, "top1"), (given, "none"), (drawn, "top1"))
    assert [len(doubts.of_labels(samples, metric, model)) for samples, metric in asked] == [1, 0, 0]
    (says,) = doubts.of_labels(Artifact(tmp_path, "samples", (x, label)), "mse", model)
    assert says.endswith("; if its 'label' are the labels, call that labels; else give labels, or --metric none")


@pytest.mark.parametrize("metric", ["mse", "mae"])
def test_a_regression_no_better_than_one_answer_for_all_is_told(metric: str) -> None:
    labels = np.array([[-1.0], [0.5], [-0.5], [1.0], [2.0], [-2.0]] * 10)
    constant = float(np.square(labels).mean() if metric == "mse" else np.abs(labels).mean())
    judge, quality = metrics.find(metric), metrics.find("psnr")
    assert judge is not None and quality is not None

    def told(of: metrics.Metric, each: float) -> list[str]:
        return doubts.of_answers(of, np.full(60, each), {"y": labels}, labels, "the source's")[0]

    assert told(judge, 0.9 * constant) == told(quality, 40.0) == []
    (says,) = told(judge, 1.1 * constant)
    assert f"is no better than that of the labels' {'mean' if metric == 'mse' else 'median'} ({constant:.4g})" in says


@pytest.mark.slow
def test_the_source_is_told_before_any_variant_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    conv_net(tmp_path / "net.onnx")
    images(tmp_path / "images.npz")
    words = ["net.onnx", "--data", "images.npz", "--until", "golden", "--only", "fp32"]
    assert main.main(["deploy", *words, "--target", "x86,web"]) == 0
    told = capsys.readouterr().out
    assert told.count("source      25.0 % top-1 of 16 test items\n") == 1
    assert told.count("warning: ") == told.count("is not above chance (10.0 %)") == 1
    assert main.main(["deploy", *words, "--data", "random"]) == 0
    assert "warning" not in capsys.readouterr().out


NET = """
import numpy as np, torch

def build():
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)
    return torch.nn.Sequential(torch.nn.Flatten(), *layers).eval()

def data(split):
    seeded = np.random.default_rng(len(split))
    for label in seeded.integers(0, 4, 240):
        picture = seeded.normal(size=(1, 8, 8)).astype("float32")
        picture[0, 2 * label : 2 * label + 2] += 2
        yield picture, label
"""


@pytest.mark.slow
@pytest.mark.parametrize(("epochs", "code"), [(20, 0), (1, 4)])
def test_of_what_is_trained_the_accuracy_counts_that_ships(
    epochs: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "untrained.py").write_text(NET)
    lr = 1e-2 if code == 0 else 1e-9
    (tmp_path / "own.toml").write_text(
        f"""
description = "own"
runtime = "onnx"
limits = {{ items_lost = 0.01 }}
variant = [{{ name = "trained", compress = [{{ use = "finetune", epochs = {epochs}, lr = {lr}, distill = 0.0 }}] }}]
"""
    )
    words = ["untrained:build", "--data", "untrained:data", "--target", "own.toml", "--profile", "quick"]
    assert main.main(["deploy", *words, "--out", "out"]) == code
    told = capsys.readouterr().out
    assert "warning: the source's top-1" in told and "off by one" not in told
    assert ("OK trained ships" in told) is (code == 0) and ("accuracy is not above chance" in told) is (code == 4)
    assert main.main(["verify", "out"]) == code
    assert "within the limits, trained further than its source" in capsys.readouterr().out
    assert main.main(["compare", "out", "out", "--fail-if", "accuracy_drop>0.5"]) == code


@pytest.mark.slow
@pytest.mark.prove
def test_a_report_and_a_result_of_python_tell_the_doubts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    conv_net(tmp_path / "net.onnx")
    images(tmp_path / "images.npz")
    result = edgecompress.deploy("net.onnx", "web", data="images.npz", only="fp32", profile="quick")
    assert isinstance(result, edgecompress.Result) and result.report
    (warning,) = [text for text in result.warnings if "is not above chance" in text]
    assert warning.startswith("The source's top-1 of 25.0 %")
    assert (result.report / "report.html").read_text(encoding="utf-8").count("is not above chance") == 1


@pytest.mark.slow
def test_the_demo_raises_no_doubt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.main(["deploy", "--until", "golden"]) == 0
    told = capsys.readouterr().out
    assert "source      99.4 % top-1 of 500 test items\n" in told and "warning" not in told


@pytest.mark.slow
@pytest.mark.parametrize(("by", "code"), [(0, 0), (1, 4)])
def test_labels_off_by_one_end_undecided_in_each_command(
    by: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ort = pytest.importorskip("onnxruntime")
    monkeypatch.chdir(tmp_path)
    conv_net(tmp_path / "net.onnx")
    session, seeded, splits = ort.InferenceSession("net.onnx"), np.random.default_rng(1), {}
    for split in ("calibrate", "select", "test"):
        x = seeded.normal(size=(400, 3, 8, 8)).astype("float32")
        answers = session.run(None, {"image": x})[0].argmax(1)
        kept = np.concatenate([np.flatnonzero(answers == number)[:30] for number in range(1, 9)])
        splits |= {f"{split}.image": x[kept], f"{split}.labels": answers[kept] + by * (np.arange(len(kept)) > 2)}
    np.savez("images.npz", **splits)
    words = ["--data", "images.npz", "--target", "x86", "--profile", "quick"]
    assert main.main(["deploy", "net.onnx", *words, "--only", "fp32"]) == code
    told = capsys.readouterr().out
    report = (tmp_path / "dist/x86/report.html").read_text(encoding="utf-8")
    assert ("\nOK fp32 ships" in told) is (code == 0) and ("\n? fp32 ships undecided" in told) is (code == 4)
    assert (">Undecided<" in report) is (code == 4) and ("off by one" in told) is (code == 4)
    assert main.main(["verify", "dist/x86"]) == code
    assert main.main(["report", "dist/x86"]) == 0
    assert ("\nOK " in capsys.readouterr().out) is (code == 0)
    assert main.main(["compare", "dist/x86", "dist/x86", "--fail-if", "accuracy_drop>0.5"]) == code


def test_splits_whose_labels_hold_no_thing_are_told(tmp_path: Path) -> None:
    things = np.full((4, 2, 5), -1.0)
    things[0, 0] = 0, 1, 1, 9, 9
    for split, rows in (("calibrate", things[1:]), ("test", things)):
        tensors.write_split(tmp_path / split, {"labels": rows, "x": np.zeros((len(rows), 3))})
    x = TensorSpec("x", (1, 3))
    samples = Artifact(tmp_path, "samples", (x,), (), {"splits": {"calibrate": 3, "select": 0, "test": 4}}).write()
    (said,) = box_doubts.of_splits(samples)
    assert said.startswith("the labels of calibrate hold no thing")
