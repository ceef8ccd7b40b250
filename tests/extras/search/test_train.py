"""`deploy --train`: what shipped is narrowed and trained, level after level, and the better ships."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import edgecompress
from edgecompress.core.errors import InputError
from edgecompress.core.settings import Variant
from edgecompress.extras.search import train
from edgecompress.pipeline import plan
from edgecompress.pipeline.job import job
from edgecompress.reporting import training as told
from edgecompress.reporting.model import Report

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize(
    ("text", "minutes"), [("30m", 30.0), ("2h", 120.0), ("90s", 1.5), ("45", 45.0), ("0.5h", 30.0)]
)
def test_a_time_has_a_unit_or_is_in_minutes(text: str, minutes: float) -> None:
    assert train.minutes_of(text) == pytest.approx(minutes)


@pytest.mark.parametrize("text", ["", "m", "0", "-5m", "5 parsecs", "nan", "inf", "1e9h"])
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="give how long to train"):
        train.minutes_of(text)


def refused(model: str, data: str | None = None) -> str:
    made = job(model, "x86", data=data)
    with pytest.raises(InputError) as caught:
        train.run(made, plan.deploy(made), edgecompress.Options(), 1.0)
    return str(caught.value)


def test_no_time_to_train_is_told_before_anything_runs() -> None:
    with pytest.raises(InputError, match="--train: minutes is -1; give how long to train, above 0"):
        edgecompress.train("edgecompress.demo.net:build", data="edgecompress.demo.net:data", minutes=-1)


def test_what_cannot_be_trained_is_told_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(b"TFL3")
    file = str(tmp_path / "net.tflite")
    assert "random data has nothing to learn from" in refused(file, "random")
    assert refused(file, "edgecompress.demo.net:data").startswith("--train: no path from tflite")


def reported(command: str, **changes: Any) -> list[str]:
    kind, random = changes.get("kind", "module"), changes.get("random", False)
    report = Report(
        schema="edgecompress/stages/report/1",
        command=command,
        source={"artifact": {"kind": kind, "sha256": "0" * 64, "size_bytes": 1}},
        data={"random": random},
        variants=[],
    )
    return [*told.offer(report)]


def test_the_report_offers_the_command_of_a_training() -> None:
    (note,) = reported("edgecompress deploy m:f --data m:d --target arm64")
    assert note.endswith("edgecompress deploy m:f --data m:d --target arm64 --train 30m")


@pytest.mark.parametrize(
    ("command", "changes"),
    [
        ("edgecompress deploy --target x86,arm64", {}),
        ("edgecompress search --target x86", {}),
        ("edgecompress deploy --from-search 1234", {}),
        ("edgecompress deploy net.tflite", {"kind": "tflite"}),
        ("edgecompress deploy m:f --data random", {"random": True}),
        ("", {}),
    ],
)
def test_nothing_is_offered_where_nothing_can_be_trained(command: str, changes: dict[str, Any]) -> None:
    assert reported(command, **changes) == []


def climbed(monkeypatch: pytest.MonkeyPatch, inside: dict[str, bool], reached: bool = True) -> tuple[list[str], Any]:
    """The nets that are trained, and the best, where those of a technique and a level are `inside` the limits."""
    seen: list[str] = []

    def narrowed(self: Any, before: Any) -> Any:
        self.levels += 1
        factored = self.narrows == train.FACTORS
        return (*([] if factored else before), {"use": self.narrows}) if reached or not factored else ()

    def tried(self: Any, compress: Any, number: int) -> train.Trained:
        name = f"{[step['use'] for step in compress if step['use'] != train.TRAINS][-1]} {number}"
        seen.append(name)
        return train.Trained(compress, level=number, excess=-1.0 if inside.get(name) else 1.0)

    monkeypatch.setattr(train._Climb, "_narrowed", narrowed)
    monkeypatch.setattr(train._Climb, "_try", tried)
    monkeypatch.setattr(train._Climb, "_is_rounded", lambda self: False)
    monkeypatch.setattr(train.plan, "front", lambda job: [])
    monkeypatch.setattr(train.plan, "golden", lambda *given: None)
    walk, job = SimpleNamespace(stages=lambda steps: None), SimpleNamespace(unmeasured="")
    best = train._Climb(job, walk, Variant("int8"), 5.0, lambda words: None).best()  # type: ignore[arg-type]
    return seen, best


def test_levels_follow_while_they_keep_the_limits_and_then_are_trained_further(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, best = climbed(monkeypatch, {"prune_channels 1": True})
    assert seen == ["prune_channels 1", "prune_channels 2", "prune_channels 2", "prune_channels 2"]
    assert best.level == 1


def test_where_the_first_level_does_not_do_layers_of_the_source_become_low_rank(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen, best = climbed(monkeypatch, {"low_rank 1": True})
    assert seen == ["prune_channels 1", "low_rank 1", "low_rank 2", "low_rank 2"]
    assert [step["use"] for step in best.compress] == ["low_rank", "finetune"]


def test_where_no_layer_can_be_of_low_rank_the_first_level_is_trained_further(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, best = climbed(monkeypatch, {}, reached=False)
    assert seen == ["prune_channels 1"] * 4 and best is None


@pytest.mark.prove
def test_the_demo_is_narrowed_trained_and_ships_inside_its_limits(tmp_path: Path) -> None:
    heard: list[str] = []
    result = edgecompress.train(
        target="x86",
        minutes=0.5,
        profile="quick",
        only="litert-int8,litert-fp32",
        options=edgecompress.Options(out=tmp_path / "out", store=tmp_path / "store"),
        told=heard.append,
    )
    report = result.read_report()
    assert result.exit_code == 0
    assert heard[0] == "training for 30 s in all, 6 s at a time; making each net comes on top"
    assert heard[1].startswith("level 1: ")
    names = [v["name"] for v in report["variants"]]
    best = [words for words in heard if words.endswith("inside the limits")]
    assert ("pruned-litert-int8" in names) == bool(best)
    made = next(v for v in report["variants"] if v["name"] == "pruned-litert-int8")
    assert made["training"][0]["epochs"]
    assert report["choice"]["variant"] in names
