"""Golden outputs and the verdict on an artifact, with the null runtime: no torch, a child process for each verdict."""

from __future__ import annotations

import dataclasses
import importlib
import json
import math
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from edgecompress.core import registry
from edgecompress.core.errors import InputError, StageFailed
from edgecompress.core.model import Artifact, Context, Dim, Request, TensorSpec
from edgecompress.core.settings import Limits
from edgecompress.data import output_error, tensors
from edgecompress.device import operator_sketches
from edgecompress.engines.null.runtimes import null
from edgecompress.stages import golden, shipped_items

pytestmark = pytest.mark.slow

verify = importlib.import_module("edgecompress.stages.verify")

N = 37
BATCH = Dim("batch", 1, 64)
LABELS = np.arange(N) % 2  # of a null net of positive mean and scale every item is class 3


@pytest.fixture
def samples(tmp_path: Path) -> Artifact:
    """N items of positive mean, labels 3 for the even ones and 2 for the odd ones."""
    values = np.random.default_rng(0).random((N, 5)).astype(np.float32) + 0.5
    return made(tmp_path / "samples", {"input": values, "labels": 3 - LABELS})


def made(folder: Path, arrays: dict[str, Any]) -> Artifact:
    tensors.write_split(folder / "test", arrays)
    given = arrays["input"]
    spec = TensorSpec("input", (Dim("batch", 1, len(given)), *given.shape[1:]), str(given.dtype))
    facts = {"splits": {"test": len(given)}, "labelled": "labels" in arrays}
    return Artifact(folder, "samples", (spec,), facts=facts).write()


def net(folder: Path, batch: int | Dim = BATCH, outputs: int = 1, **more: Any) -> Artifact:
    """A null net of 5 numbers in, 4 out."""
    folder.mkdir(parents=True)
    inputs = (TensorSpec("x", (batch, 5)),)
    named = tuple(TensorSpec(f"y{i}" if i else "y", (batch, 4)) for i in range(outputs))
    null.write(folder / "model.null", null.NullNet(inputs, named, **more))
    return Artifact(folder, "null", inputs, named).write()


def ask_golden(folder: Path, model: Artifact, samples: Artifact, batch: int = 1, **options: Any) -> Artifact:
    folder.mkdir()
    parts = {"model": model, "samples": samples}
    return golden.run(Request(parts, folder, {"splits": ["test"], **options}, Context(batch=batch)))


def ask_verdict(
    folder: Path, parts: dict[str, Artifact], metric: str = "top1", runtime: str = "null", **limits: Any
) -> Artifact:
    folder.mkdir()
    options = {"runtime": runtime, "metric": metric, "limits": dataclasses.asdict(Limits(**limits))}
    found = verify.run(Request(parts, folder, options, Context(batch=8)))
    assert isinstance(found, Artifact)
    json.loads((folder / "artifact.json").read_text(), parse_constant=pytest.fail)
    return found


def check(verdict: Artifact, name: str) -> dict[str, Any]:
    return next(c for c in verdict.facts["checks"] if c["name"] == name)


# --------------------------------------------------------------------------- golden


def test_a_detector_that_is_declared_wrongly_is_told_before_anything_is_made_of_it(
    tmp_path: Path, samples: Artifact
) -> None:
    detect = {"boxes": "boxes", "scores": "y", "format": "xyxy"}
    with pytest.raises(InputError, match=r"detect\.boxes: the source has no output 'boxes'"):
        ask_golden(tmp_path / "golden", net(tmp_path / "net"), samples, detect=detect)


@pytest.mark.parametrize("batch", [BATCH, 1, 8, Dim("batch", 1, 3)])
def test_golden_is_item_by_item_whatever_the_batch(tmp_path: Path, samples: Artifact, batch: int | Dim) -> None:
    asked = batch if isinstance(batch, int) else 1
    found = ask_golden(tmp_path / "golden", net(tmp_path / "net", batch), samples, asked, metric="top1")
    means = tensors.load(samples, "test", "input").mean(axis=1, dtype=np.float64)
    assert np.allclose(tensors.load(found, "test", "y"), means[:, None] * [1, 2, 3, 4])
    assert found.facts["n"] == {"test": N}
    assert found.facts["metric"] == {"name": "top1", "value": 19 / 37, "unit": "fraction", "n": N}
    assert [spec.name for spec in found.outputs] == ["y"]


@pytest.mark.parametrize(
    ("batch", "asked", "says"),
    [(1, 4, "is fixed to 1; use --batch 1"), (8, 1, "is fixed to 8; use --batch 8"), (Dim("b", 1, 3), 4, "is 1 to 3")],
)
def test_a_batch_that_the_source_does_not_take_is_refused_before_anything_is_compressed(
    tmp_path: Path, samples: Artifact, batch: int | Dim, asked: int, says: str
) -> None:
    with pytest.raises(InputError, match=f"--batch {asked}: the batch of the source {says}"):
        ask_golden(tmp_path / "golden", net(tmp_path / "net", batch), samples, asked)


@pytest.mark.filterwarnings("ignore:overflow")
def test_an_output_that_is_not_finite_is_named_with_its_item(tmp_path: Path, samples: Artifact) -> None:
    values = np.array(tensors.load(samples, "test", "input"))
    values[29] = 3e38
    broken = made(tmp_path / "broken", {"input": values})
    with pytest.raises(InputError, match="the source's output 'y' is NaN or infinite for item 29 of split 'test'"):
        ask_golden(tmp_path / "golden", net(tmp_path / "net"), broken)


def test_labels_out_of_range_are_found_before_anything_is_compressed(tmp_path: Path, samples: Artifact) -> None:
    values = tensors.load(samples, "test", "input")
    wrong = made(tmp_path / "wrong", {"input": values, "labels": np.where(np.arange(N) == 11, 4, 0)})
    with pytest.raises(InputError, match="item 11: label 4 is out of range: the model has classes 0 to 3"):
        ask_golden(tmp_path / "golden", net(tmp_path / "net"), wrong, metric="top1")


def test_a_split_that_is_not_there(tmp_path: Path, samples: Artifact) -> None:
    (tmp_path / "golden").mkdir()
    asked = Request({"model": net(tmp_path / "net"), "samples": samples}, tmp_path / "golden", {"splits": ["select"]})
    with pytest.raises(InputError, match="no split 'select', only: test"):
        golden.run(asked)


def test_data_of_another_shape_is_refused(tmp_path: Path) -> None:
    wrong = made(tmp_path / "wrong", {"input": np.ones((3, 6), np.float32)})
    with pytest.raises(InputError, match="takes batch x 5, the data gives batch x 6"):
        ask_golden(tmp_path / "golden", net(tmp_path / "net"), wrong)


# --------------------------------------------------------------------------- how far outputs are apart

PAIR = npst.arrays(np.float32, (150, 3), elements=st.floats(-100, 100, width=32))


@given(PAIR, PAIR)
def test_the_stream_agrees_with_the_formulas(a: np.ndarray, b: np.ndarray) -> None:
    found = output_error.compare(a, b, "y").facts()
    x, y = a.astype(float), b.astype(float)
    noise, signal = ((x - y) ** 2).sum(), (x**2).sum()
    assert found["max_abs_error"] == pytest.approx(np.abs(x - y).max())
    assert found["agreement"] == pytest.approx((a.argmax(1) == b.argmax(1)).mean())
    if noise and signal:
        assert found["sqnr_db"] == pytest.approx(10 * math.log10(signal / noise))
    if (x**2).sum() > 1e-9 and (y**2).sum() > 1e-9:
        assert found["cosine"] == pytest.approx((x * y).sum() / np.sqrt((x**2).sum() * (y**2).sum()), abs=1e-9)


@given(PAIR.filter(lambda a: bool(a.any())), st.floats(0.001, 0.5))
def test_a_relative_error_has_its_decibels(a: np.ndarray, error: float) -> None:
    x = a.astype(float)
    assert output_error.compare(x, x * (1 + error), "y").facts()["sqnr_db"] == pytest.approx(
        -20 * math.log10(error), abs=1e-6
    )


def test_what_has_no_number_has_a_reason() -> None:
    ones, zeros = np.ones((4, 2)), np.zeros((4, 2))
    same = output_error.compare(ones, ones, "y").facts()
    assert (same["sqnr_db"], same["reason"], same["cosine"]) == (None, "identical", pytest.approx(1))
    silent = output_error.compare(zeros, ones, "y").facts()
    assert (silent["sqnr_db"], silent["cosine"], silent["reason"]) == (None, None, "the source's output is zero")
    bad = output_error.compare(ones, np.where(np.arange(4)[:, None] == 2, np.nan, ones), "y").facts()
    assert (bad["max_abs_error"], bad["reason"]) == (None, "1 of 4 items hold NaN or infinite values")


def test_another_shape_is_no_match() -> None:
    with pytest.raises(StageFailed, match=r"output 'y' has shape \[4, 3\], but the source's has \[4, 2\]"):
        output_error.compare(np.ones((4, 2)), np.ones((4, 3)), "y")


# --------------------------------------------------------------------------- the verdict


@pytest.fixture
def parts(tmp_path: Path, samples: Artifact) -> dict[str, Artifact]:
    """What verify gets, but for the artifact."""
    source = net(tmp_path / "source")
    return {"samples": samples, "golden": ask_golden(tmp_path / "golden", source, samples), "model": source}


def test_the_source_itself_keeps_every_limit(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    limits = {"items_lost": 0, "sqnr_db": 100.0, "cosine": 0.999999, "size_bytes": 10_000, "fallback_ops": 0}
    found = ask_verdict(tmp_path / "verdict", parts, **limits)
    assert "lost" not in found.facts
    assert found.facts["n"] == N
    assert found.facts["fallback"] == []
    assert {c["name"]: c["ok"] for c in found.facts["checks"]} == dict.fromkeys(["finite", *limits], True)
    assert found.facts["metric"]["before"] == found.facts["metric"]["after"] == pytest.approx(19 / 37)
    assert np.load(found.path / "before.npy").tolist() == (1.0 - LABELS).tolist()


@pytest.mark.parametrize(("scale", "word"), [(1.0, "inside"), (1 + 1e-6, "inside"), (1.001, "undecided")])
def test_outputs_that_are_the_sources_own_to_rounding_leave_nothing_undecided(
    tmp_path: Path, parts: dict[str, Artifact], scale: float, word: str
) -> None:
    found = ask_verdict(tmp_path / "verdict", {**parts, "model": net(tmp_path / "net", scale=scale)}, items_lost=0)
    assert (check(found, "items_lost")["value"], check(found, "items_lost")["decision"]) == (0, word)


def test_one_percent_of_error_is_forty_decibels(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    found = ask_verdict(tmp_path / "verdict", {**parts, "model": net(tmp_path / "net", scale=1.01)}, sqnr_db=45.0)
    assert found.facts["outputs"][0]["sqnr_db"] == pytest.approx(40, abs=0.01)
    assert found.facts["outputs"][0]["agreement"] == 1
    assert found.facts["lost"] == check(found, "sqnr_db")["says"] == "output 'y': sqnr_db 40 dB, limit 45 dB"


def test_lost_items_are_counted_and_lose_the_variant(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    upside_down = {**parts, "model": net(tmp_path / "net", scale=-1.0)}
    found = ask_verdict(tmp_path / "verdict", upside_down, items_lost=2)
    metric = found.facts["metric"]
    assert (metric["items_lost"], metric["items_gained"], metric["after"]) == (19, 0, 0)
    assert metric["low"] < -19 / 37 < metric["high"] < 0
    assert found.facts["lost"] == (
        "net 19 of 37 items lost (19 became wrong, 0 became right): "
        "at least 9.22 with 95 % confidence, beyond the limit of 2"
    )


def test_an_artifact_that_answers_infinity_is_lost_whatever_the_limits(
    tmp_path: Path, parts: dict[str, Artifact]
) -> None:
    found = ask_verdict(tmp_path / "verdict", {**parts, "model": net(tmp_path / "net", scale=1e39)})
    assert found.facts["lost"] == "output 'y': 37 items hold NaN or infinite values"
    assert found.facts["outputs"][0]["sqnr_db"] is None


def test_a_ratio_limit_judges_an_error(tmp_path: Path, samples: Artifact) -> None:
    values = tensors.load(samples, "test", "input")
    targets = np.ones((N, 4), np.float32)
    data = made(tmp_path / "regression", {"input": values, "labels": targets})
    source = net(tmp_path / "source")
    given = {"samples": data, "golden": ask_golden(tmp_path / "golden", source, data), "model": source}
    same = ask_verdict(tmp_path / "a", given, "mse", metric_ratio=1.01, items_lost=0)
    assert [c["name"] for c in same.facts["checks"]] == ["finite", "metric_ratio"]
    assert same.facts["metric"]["ratio"] == 1
    worse = ask_verdict(tmp_path / "b", {**given, "model": net(tmp_path / "net", scale=1.1)}, "mse", metric_ratio=1.01)
    assert worse.facts["lost"].startswith("mse ")
    assert worse.facts["metric"]["low"] > 1


def test_without_labels_a_limit_is_not_judged_and_says_why(tmp_path: Path, samples: Artifact) -> None:
    data = made(tmp_path / "plain", {"input": tensors.load(samples, "test", "input")})
    source = net(tmp_path / "source")
    given = {"samples": data, "golden": ask_golden(tmp_path / "golden", source, data, metric="top1"), "model": source}
    found = ask_verdict(tmp_path / "verdict", given, items_lost=0)
    assert found.facts["metric"] is None
    assert found.facts["reasons"]["metric"] == "the data has no labels"
    assert check(found, "items_lost")["ok"] is None
    assert check(found, "items_lost")["says"] == "items_lost is not judged: the data has no labels"
    assert found.facts["fallback"] == []


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with metrics of the user's."""
    module = types.ModuleType("users_score")
    module.__dict__["height"] = lambda outputs, labels: outputs["y"][:, 3]
    module.__dict__["one"] = lambda outputs, labels: np.ones(len(labels))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


def test_the_users_metric_has_a_drop(tmp_path: Path, parts: dict[str, Artifact], users: str) -> None:
    given = {**parts, "model": net(tmp_path / "net", scale=0.5)}
    found = ask_verdict(tmp_path / "verdict", given, f"{users}:height", metric_drop=0.1)
    assert found.facts["metric"]["after"] == pytest.approx(found.facts["metric"]["before"] / 2)
    assert check(found, "metric_drop")["ok"] is False


def test_without_labels_the_outputs_alone_refuse_what_answers_otherwise(tmp_path: Path, samples: Artifact) -> None:
    data = made(tmp_path / "plain", {"input": tensors.load(samples, "test", "input")})
    source = net(tmp_path / "source")
    given = {"samples": data, "golden": ask_golden(tmp_path / "golden", source, data), "model": source}
    same = ask_verdict(tmp_path / "same", given)
    assert "lost" not in same.facts and check(same, "channel_error")["value"] == 0
    wrong = ask_verdict(tmp_path / "wrong", {**given, "model": net(tmp_path / "net", scale=1.2)}, cosine=0.95)
    assert check(wrong, "cosine")["ok"] is True
    assert "of its own spread, limit 10 %; worst items" in wrong.facts["lost"]


def test_a_metric_that_is_the_same_for_all_items_leaves_the_outputs_to_be_judged(
    tmp_path: Path, parts: dict[str, Artifact], users: str
) -> None:
    given = {**parts, "model": net(tmp_path / "net", scale=1.5)}
    found = ask_verdict(tmp_path / "verdict", given, f"{users}:one")
    assert check(found, "metric_loss")["ok"] is True
    assert check(found, "channel_error")["ok"] is False


def test_a_metric_without_a_limit_of_its_own_may_lose_one_percent(
    tmp_path: Path, parts: dict[str, Artifact], users: str
) -> None:
    for scale, ok in ((0.995, True), (0.98, False)):
        given = {**parts, "model": net(tmp_path / f"net{scale}", scale=scale)}
        found = ask_verdict(tmp_path / str(scale), given, f"{users}:height")
        assert (check(found, "metric_loss")["ok"], check(found, "metric_loss")["limit"]) == (ok, 0.01)
        assert "metric_loss" not in [c["name"] for c in ask_verdict(
            tmp_path / f"own{scale}", given, f"{users}:height", metric_drop=9.0
        ).facts["checks"]]  # fmt: skip


def test_outputs_that_the_metric_does_not_read_are_judged_by_themselves(tmp_path: Path, samples: Artifact) -> None:
    source = net(tmp_path / "source", outputs=2)
    given = {"samples": samples, "golden": ask_golden(tmp_path / "golden", source, samples), "model": source}
    found = ask_verdict(tmp_path / "a", {**given, "model": net(tmp_path / "net", outputs=2, scale=1.2)}, items_lost=0)
    assert check(found, "items_lost")["ok"] is True
    assert {c["says"].split("'")[1] for c in found.facts["checks"] if c["name"] == "channel_error"} == {"y1"}


def test_an_artifact_over_its_size_is_lost(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    found = ask_verdict(tmp_path / "verdict", parts, size_bytes=100)
    assert found.facts["lost"] == f"{parts['model'].size_bytes:,} bytes, limit 100"


def test_outputs_of_other_names_are_paired_by_position_and_other_numbers_are_not(
    tmp_path: Path, parts: dict[str, Artifact]
) -> None:
    one = net(tmp_path / "one")
    renamed = dataclasses.replace(one, outputs=(TensorSpec("logits", (BATCH, 4)),))
    null.write(one.path / "model.null", null.NullNet(one.inputs, renamed.outputs))
    found = ask_verdict(tmp_path / "a", {**parts, "model": renamed.write()}, items_lost=0)
    assert "lost" not in found.facts
    two = dataclasses.replace(net(tmp_path / "two", outputs=2), outputs=(TensorSpec("a", (BATCH, 4)),) * 2)
    with pytest.raises(StageFailed, match="the source has the outputs y, but the artifact has a, a"):
        verify.pairs(parts["golden"], two)


def test_a_damaged_artifact_fails_and_does_not_pass(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    broken = net(tmp_path / "net")
    (broken.path / "model.null").write_text("{")
    with pytest.raises(InputError, match=r"model\.null: not a null net"):
        ask_verdict(tmp_path / "verdict", {**parts, "model": broken})


# --------------------------------------------------------------------------- what left the accelerator

ENGINE = """
from edgecompress.engines.null.runtimes.null import *
from edgecompress.engines.null.runtimes import null

def open(artifact, threads, profile=False):
    return Session(null.parse(artifact.file(".null")))

class Session(null.NullSession):
    def ops(self, inputs, runs):
        {ops}

    def trace(self, inputs):
        mean = inputs[self.net.inputs[0].name].mean(axis=1, keepdims=True)
        yield "mean", "Mean", mean
        yield "scaled", "Mul", self.net.scale * mean
        yield from [("words", "Text", "no number"), *((n, "Out", y) for n, y in self.run(inputs).items())]
"""
TIMES = {"a1": 6.0, "a2": 1.0, "b1": 2.0, "b2": 1.0}
FOUR = str([{"name": name, "type": name[0], "ms": ms, "where": ""} for name, ms in TIMES.items()])


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A runtime like null whose `ops` has the given body, and which can be traced."""

    def make(ops: str) -> str:
        (tmp_path / "engine").mkdir(exist_ok=True)
        (tmp_path / "engine" / "engine_of_the_test.py").write_text(ENGINE.format(ops=ops))
        monkeypatch.syspath_prepend(tmp_path / "engine")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "engine"))
        load = registry.load
        found = importlib.import_module("engine_of_the_test")
        monkeypatch.setattr(registry, "load", lambda kind, name: found if name == "engine" else load(kind, name))
        return "engine"

    yield make
    sys.modules.pop("engine_of_the_test", None)


def test_operators_that_left_are_told_with_their_share_of_the_time(
    tmp_path: Path, parts: dict[str, Artifact], engine: Callable[[str], str]
) -> None:
    runtime = engine(f"return {{'ops': {FOUR}, 'why': '', 'fallback': ['a2', 'b1']}}")
    found = ask_verdict(tmp_path / "a", parts, runtime=runtime, fallback_share=0.25, fallback_ops=2)
    assert found.facts["fallback"] == [
        {"name": "a2", "type": "a", "ms": 1.0, "share": 0.1},
        {"name": "b1", "type": "b", "ms": 2.0, "share": 0.2},
    ]
    share = "operators that fell back take 30 % of the operators' time on this machine, limit 25 %"
    assert found.facts["lost"] == check(found, "fallback_share")["says"] == share
    assert check(found, "fallback_ops")["ok"] is True


def test_without_times_they_are_named_and_a_limit_on_the_share_is_not_judged(
    tmp_path: Path, parts: dict[str, Artifact], engine: Callable[[str], str]
) -> None:
    runtime = engine("return {'ops': [], 'why': 'it tells no times', 'fallback': ['conv', 'conv']}")
    found = ask_verdict(tmp_path / "a", parts, runtime=runtime, fallback_share=0.25, fallback_ops=1)
    assert found.facts["fallback"] == [{"name": "conv", "type": "", "ms": None, "share": None}] * 2
    assert check(found, "fallback_share")["says"] == "fallback_share is not judged: it tells no times"
    assert found.facts["lost"] == "2 operators fell back (conv, conv), limit 1"


def test_a_session_that_knows_that_none_left_is_not_profiled(
    tmp_path: Path, parts: dict[str, Artifact], engine: Callable[[str], str]
) -> None:
    none = "{'ops': [], 'why': 'without its profile', 'fallback': []}"
    runtime = engine(f"if not runs: return {none}\n        raise RuntimeError('no profile today')")
    found = ask_verdict(tmp_path / "a", parts, runtime=runtime, fallback_ops=0)
    assert found.facts["fallback"] == [] and "fallback" not in found.facts["reasons"]
    assert check(found, "fallback_ops")["ok"] is True


def test_a_profile_that_breaks_is_a_reason_unless_a_limit_needs_it(
    tmp_path: Path, parts: dict[str, Artifact], engine: Callable[[str], str]
) -> None:
    runtime = engine("raise RuntimeError('no profile today')")
    found = ask_verdict(tmp_path / "a", parts, runtime=runtime)
    assert "fallback" not in found.facts and "lost" not in found.facts
    assert found.facts["reasons"]["fallback"].endswith("cannot run the model: RuntimeError: no profile today")
    with pytest.raises(StageFailed, match="no profile today"):
        ask_verdict(tmp_path / "b", parts, runtime=runtime, fallback_ops=0)


# --------------------------------------------------------------------------- as it shipped


def shipped(tmp_path: Path, parts: dict[str, Artifact], **asked: Any) -> dict[str, Artifact]:
    """What ships beside an artifact: the first items, and the verdict with its answers to them."""
    (tmp_path / "excerpt").mkdir()
    first = Request({"samples": parts["samples"], "golden": parts["golden"]}, tmp_path / "excerpt", {"items": 16})
    return {"excerpt": shipped_items.run(first), "verdict": ask_verdict(tmp_path / "shipped", parts, **asked)}


def test_the_same_artifact_answers_as_it_shipped(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    along = shipped(tmp_path, parts)
    assert tensors.load(along["verdict"], "answers", "y").shape == (16, 4)
    found = ask_verdict(tmp_path / "again", {**parts, **along})
    assert check(found, "as_shipped")["says"] == "output 'y' changed by 0 % since it shipped, limit 0.5 %"
    assert "lost" not in found.facts


@pytest.mark.parametrize(("scale", "says"), [(1.004, ""), (1.006, "0.6 %"), (-1.0, "200 %")])
def test_an_output_that_moved_is_named(tmp_path: Path, parts: dict[str, Artifact], scale: float, says: str) -> None:
    along = shipped(tmp_path, parts)
    found = ask_verdict(tmp_path / "again", {**parts, **along, "model": net(tmp_path / "net", scale=scale)})
    wanted = f"output 'y' changed by {says} since it shipped, limit 0.5 %" if says else None
    assert found.facts.get("lost") == wanted


@pytest.mark.filterwarnings("ignore:overflow")
def test_an_output_that_is_infinite_now_is_named(tmp_path: Path, parts: dict[str, Artifact]) -> None:
    along = shipped(tmp_path, parts)
    found = ask_verdict(tmp_path / "again", {**parts, **along, "model": net(tmp_path / "net", scale=1e39)})
    assert found.facts["lost"] == "output 'y' holds NaN or infinite values, limit 0.5 %"


def test_a_traced_net_names_the_first_operator_that_moved(
    tmp_path: Path, parts: dict[str, Artifact], engine: Callable[[str], str]
) -> None:
    runtime = engine("return {'ops': [], 'why': 'none', 'fallback': []}")
    along = shipped(tmp_path, parts, runtime=runtime)
    changed = {**parts, **along, "model": net(tmp_path / "net", scale=1.1)}
    found = ask_verdict(tmp_path / "again", changed, runtime=runtime)
    operator = "first at operator scaled (Mul)"
    assert found.facts["lost"] == f"output 'y' changed by 10 % since it shipped, {operator}, limit 0.5 %"
    lines = json.loads((found.path / "trace.json").read_text())
    assert [(line["name"], line["size"]) for line in lines] == [("mean", 16), ("scaled", 16), ("y", 64)]


VECTOR = npst.arrays(np.float64, st.integers(1, 300), elements=st.floats(-100, 100))


@given(VECTOR, st.integers(0, 9))
def test_a_sketch_parts_what_differs_and_only_that(vector: np.ndarray, seed: int) -> None:
    def line(values: np.ndarray) -> Any:
        return operator_sketches.trace([[("op", "Op", values)]])

    noise = np.random.default_rng(seed).normal(size=vector.shape) * 0.5 * (np.sqrt(np.square(vector).mean()) or 1.0)
    assert operator_sketches.parted(line(vector), line(vector.copy()), 1e-9) is None
    assert operator_sketches.parted(line(vector), line(vector + noise), 0.01 if len(vector) > 4 else 0.0) is not None
    assert operator_sketches.parted(line(vector), line(np.append(vector, 1.0)), 0.01) is None  # of another size
    assert operator_sketches.parted(line(vector), line(np.full_like(vector, np.nan)), 0.01) is not None
