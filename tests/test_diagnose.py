"""What diagnose goes by: how taps are aligned, what is added up of a layer, which word and which layer it ends in."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgecompress.commands import diagnose
from edgecompress.core.errors import InputError
from edgecompress.core.model import Artifact, Outcome, Stage
from edgecompress.core.package_files import PACKAGE
from edgecompress.core.settings import Variant
from edgecompress.pipeline import diagnosis, plan, verification
from edgecompress.pipeline.diagnosis import DiagnosisSubject
from edgecompress.pipeline.job import job
from edgecompress.stages.diagnose import align, channel_detail
from edgecompress.stages.diagnose.advice import Clue, cause, faults, verdict
from edgecompress.stages.diagnose.align import Value
from edgecompress.stages.diagnose.noise import LayerNoise, Power, decibels, extremes, relative_rms
from edgecompress.stages.diagnose.rows import LayerRecord, Place

# --------------------------------------------------------------------------- the alignment

NUMBERS = st.floats(0, 2) | st.just(-np.inf)


def brute_force(scores: np.ndarray) -> float:
    """The largest sum over all pairings in which rows and columns rise together."""
    rows, columns = scores.shape
    best = 0.0
    for count in range(1, min(rows, columns) + 1):
        for chosen in itertools.combinations(range(rows), count):
            for places in itertools.combinations(range(columns), count):
                best = max(best, float(scores[list(chosen), list(places)].sum()))
    return best


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.data())
def test_the_pairing_is_the_best_monotone_one(rows: int, columns: int, data: Any) -> None:
    numbers = data.draw(st.lists(NUMBERS, min_size=rows * columns, max_size=rows * columns))
    scores = np.array(numbers).reshape(rows, columns)
    found = [(i, j) for i, j in enumerate(align.paired(scores)) if j is not None]
    assert [j for _, j in found] == sorted({j for _, j in found})
    assert sum(scores[i, j] for i, j in found) == pytest.approx(brute_force(scores))


def test_of_equal_values_the_last_one_is_the_taps() -> None:
    assert align.paired(np.ones((1, 3))) == [2]


def values(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.random.default_rng(i).normal(size=(2, *shape)).astype(np.float32) for i, shape in enumerate(shapes)]


def test_a_layer_of_garbage_is_matched_by_its_place() -> None:
    sources = values((1, 4, 6, 6), (1, 4, 6, 6), (1, 4, 6, 6), (1, 9))
    taps = [sources[0], np.random.default_rng(9).normal(size=(2, 1, 4, 6, 6)), sources[2], sources[3]]
    found = align.align([Value(t) for t in taps], [Value(s) for s in sources])
    assert [m and m.source for m in found] == [0, 1, 2, 3]


def test_a_tap_of_nothing_does_not_push_the_others_from_their_places() -> None:
    """Converters take layers apart: what is nearly a value comes before the value itself."""
    sources = values((1, 64), (1, 64), (1, 64))
    nearly = sources[2] + 0.05 * np.random.default_rng(8).normal(size=sources[2].shape)
    found = align.align([Value(t) for t in (sources[0], nearly, sources[2])], [Value(s) for s in sources[::2]])
    assert [m and m.source for m in found] == [0, None, 1]
    assert (align.nearness(-1), align.nearness(1)) == (align.PLACE, 1)


def test_branches_that_are_computed_in_another_order_are_matched_with_their_own_values() -> None:
    sources = values(*[(1, 64)] * 6)
    noisy = [source + 0.1 * np.random.default_rng(7).normal(size=source.shape) for source in sources]
    taps = [noisy[0], noisy[3], noisy[4], noisy[1], noisy[2], noisy[5]]
    found = align.align([Value(t) for t in taps], [Value(s) for s in sources])
    assert [m and m.source for m in found] == [0, 3, 4, 1, 2, 5]


def test_channels_last_are_turned_and_other_axes_only_where_that_is_sure() -> None:
    (source,) = values((1, 4, 6, 5))
    last, swapped = source.transpose(0, 1, 3, 4, 2), source.transpose(0, 1, 2, 4, 3)
    noise = np.random.default_rng(5).normal(size=last.shape)
    orders = [
        align.align([Value(tap, layout)], [Value(source)])[0]
        for tap, layout in ((last, "NHWC"), (last, ""), (swapped, ""), (noise, "NHWC"))
    ]
    assert [m and m.axes for m in orders] == [(0, 3, 1, 2), (0, 3, 1, 2), (0, 1, 3, 2), (0, 3, 1, 2)]
    first = orders[0]
    assert first and (align.reordered(last[0], first.axes, (1, 4, 6, 5)) == source[0]).all()


def test_a_known_module_decides_between_equals() -> None:
    (one,) = values((1, 8))
    found = align.align([Value(one, module="a")], [Value(one, module="a"), Value(one, module="b")])
    assert found[0] and found[0].source == 0


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3)])
def test_a_name_that_both_have_comes_before_values(order: tuple[int, ...]) -> None:
    """What is before an activation is matched with nothing, though it is like what is behind it."""
    conv, *rest = values(*[(1, 64)] * 4)
    behind = [conv.clip(0.1), *rest]  # the source's layers, their activation in them
    sources = [Value(value, name=f"act{i}") for i, value in enumerate(behind)]
    damaged = np.random.default_rng(2).normal(size=conv.shape)
    taps = [Value(conv, name="conv"), *(Value(damaged if i == 0 else behind[i], name=f"act{i}") for i in order)]
    assert [m and m.source for m in align.align(taps, sources)] == [None, *order]


def test_a_name_that_several_have_or_of_another_size_decides_nothing() -> None:
    one, other, large = values((1, 8), (1, 8), (1, 16))
    twice = [Value(other, name="a"), Value(one, name="a")]
    found = align.align([Value(one, name="a"), Value(large, name="b")], [*twice, Value(one, name="b"), Value(large)])
    assert [m and m.source for m in found] == [2, 3] or [m and m.source for m in found] == [1, 3]


def test_what_is_not_finite_has_no_angle() -> None:
    assert align.cosine(np.array([np.inf, np.nan]), np.array([1.0, 2.0])) == 0
    assert align.cosine(np.array([np.inf, 1.0]), np.array([1.0, 2.0])) == pytest.approx(1)


# --------------------------------------------------------------------------- what is added up


def test_noise_is_that_of_published_definitions() -> None:
    """SQNR of a uniform quantizer: 6.02 b + 1.76 dB for a full-scale sine (Bennett 1948; Oppenheim and Schafer)."""
    sine = np.sin(np.linspace(0, 2000, 200_001))
    power = Power()
    power.add(sine, np.round(sine * 127.5) / 127.5)
    assert power.sqnr_db == pytest.approx(6.02 * 8 + 1.76, abs=0.25)
    assert (Power().sqnr_db, Power().reason, decibels(0.1)) == (None, "identical", pytest.approx(-10))
    assert relative_rms([np.ones(4)], [np.full(4, 1.1)]) == pytest.approx(0.1)


def test_a_tally_tells_ranges_channels_and_what_was_cut() -> None:
    source = np.zeros((1, 4, 5, 5), np.float32)
    source[0] = np.linspace(-1, 1, 100, dtype=np.float32).reshape(4, 5, 5)
    source[0, 2] *= 50
    found = np.clip(source, -1, 1)
    tally = LayerNoise(*extremes([found]))
    tally.add(source, found)
    assert (tally.low, tally.high, tally.least, tally.bad) == (-1, 1, -1, 0)
    assert tally.most == source.max()
    assert 0.1 < tally.cut.share < 0.3 and tally.cut.part == pytest.approx(1)
    ratio, channel = tally.outlier
    assert channel == 2 and ratio and ratio > 20


def test_items_that_are_not_finite_are_counted_where_the_source_is() -> None:
    tally = LayerNoise(0, 1)
    tally.add(np.ones((1, 2)), np.array([[np.inf, 1.0]]))
    tally.add(np.array([[-np.inf, 1.0]]), np.array([[-np.inf, 1.0]]))
    assert (tally.runs, tally.bad, tally.whole.noise) == (2, 1, 0)
    assert extremes([np.array([np.nan, 2.0, -3.0])]) == (-3, 2)


def test_one_large_value_makes_a_range_wide() -> None:
    tally, values = LayerNoise(0, 1), np.random.default_rng(0).uniform(-1, 1, (1, 4, 1000)).astype(np.float32)
    tally.add(values, values)
    usual = tally.wide
    values[0, 0, 0] = 100
    tally.add(values, values)
    assert usual < 1.1 and tally.wide > 50


def found_layer(name: str, channels: int, effect: float) -> LayerRecord:
    """A layer whose channel i holds -i, 0 and i."""
    tally = LayerNoise(0, 1)
    tally.add(*[np.outer(np.arange(channels), [-1.0, 0.0, 1.0])[None]] * 2)
    return LayerRecord(Place(name, name, "conv2d"), {"operator": name}, tally, [Power(1.0, effect)])


def test_the_worst_layers_are_looked_at_more_closely() -> None:
    layers = [found_layer(f"l{i}", 2000 if i == 7 else 5, 0.1 * i) for i in range(9)]
    rows = channel_detail.rows([*layers, LayerRecord(Place("untapped", "", ""))], ["l2"])
    assert [row["name"] for row in rows] == ["l2", "l8", "l7", "l6", "l5", "l4"]
    assert rows[1]["channels"] == [4, 3, 2, 1, 0]
    assert (len(rows[2]["channels"]), rows[2]["channels"][0], rows[2]["channels"][-1]) == (512, 1999, 0)
    histogram = rows[1]["histogram"]
    assert (sum(histogram["counts"]), histogram["edges"][0], histogram["edges"][-1]) == (15, -4, 4)
    assert histogram["counts"][32] == 7 and len(histogram["counts"]) == 64


# --------------------------------------------------------------------------- the words


def clues(*effects: float, **more: Any) -> list[Clue]:
    """Layers a, b, c, ... of a convolutional net in eight bits."""
    names = "abcdefghijklmnopqrst"
    return [Clue(n, "conv2d", n.upper(), 1e-4, 1e-4, e, **more) for n, e in zip(names, effects, strict=False)]


def test_a_sound_artifact_is_told_so() -> None:
    assert verdict(clues(1e-4, 1e-4), 36.0).advice == ""
    assert verdict(clues(0.0, 0.0), None).first is None


def test_nothing_is_called_sound_that_verification_refuses() -> None:
    why = "output 'y', channel 0: off by 32.3 % of its own spread, limit 10 %"
    found = verdict([*clues(1e-4), Clue("x", "conv2d", "X", 1e-4, 1e-4, 0.1)], 41.4, why)
    assert (found.advice, found.culprits) == ("keep", ("x",))
    assert found.says.startswith(f"Verification refuses it: {why}. The outputs are 41.4 dB from the source's; x ")
    assert verdict(clues(0.0), None, why).says.startswith(f"Verification refuses it: {why}. ")


def test_a_refusal_is_the_first_check_of_the_answers_that_failed() -> None:
    def check(name: str, ok: bool | None, says: str) -> dict[str, Any]:
        return {"name": name, "ok": ok, "says": says}

    def refused(*checks: dict[str, Any]) -> str:
        return verification.refused(Outcome("v", "lost", Artifact(Path("v"), "verdict", facts={"checks": checks})))

    kept = [check("size_bytes", False, "too large"), check("cosine", True, "near"), check("channel_error", None, "?")]
    assert refused(*kept) == ""
    assert refused(*kept, check("items_lost", False, "9 lost"), check("dead", False, "dead")) == "9 lost"


def test_a_layer_far_beyond_its_precision_is_a_fault() -> None:
    layers = [*clues(1e-4, 1e-4, 1e-4), Clue("x", "linear", "X", own=0.1, explained=1e-4, effect=0.1)]
    found = verdict(layers, 9.0)
    assert (found.advice, found.first) == ("fault", "x")
    assert "30 dB above" in found.says


def test_a_file_of_four_bits_is_no_fault() -> None:
    layers = [Clue(n, "conv2d", n, own=0.02, explained=1e-4, effect=0.02) for n in "abcdef"]
    assert not faults(layers)
    assert verdict(layers, 12.0).advice == "train"


def test_a_float_file_has_its_fault_among_identical_layers() -> None:
    layers = [Clue(n, "conv2d", n, own=0.0, explained=1e-4, effect=0.0) for n in "abc"]
    layers.append(Clue("x", "conv2d", "X", own=0.5, explained=1e-4, effect=0.5))
    assert verdict(layers, 3.0).first == "x"


def test_values_that_are_not_finite_come_before_everything() -> None:
    layers = [*clues(1e-4, 0.5), Clue("x", "linear", "X", not_finite=3), Clue("y", "linear", "Y", not_finite=3)]
    found = verdict(layers, None)
    assert (found.advice, found.first) == ("overflow", "x")


@pytest.mark.parametrize(
    ("more", "advice"),
    [
        ({"clipped": 0.01, "clipped_effect": 0.9}, "calibrate"),
        ({"wide": 20.0}, "calibrate"),
        ({"outlier": 90.0, "channel": 3}, "equalize"),
        ({}, "keep"),
    ],
)
def test_one_layer_that_makes_the_noise_is_named_with_its_cause(more: dict[str, Any], advice: str) -> None:
    layers = [*clues(1e-4, 1e-4), Clue("x", "conv2d", "X", 1e-4, 1e-4, 0.1, **more), *clues(1e-4)]
    found = verdict(layers, 10.0)
    assert (found.advice, found.culprits) == (advice, ("x",))
    assert "x (conv2d; X in the file)" in found.says and "100%" in found.says


def test_noise_of_many_layers_alike_is_trained_away() -> None:
    found = verdict(clues(*[1e-2] * 15), 11.0)
    assert (found.advice, found.first) == ("train", "a")


def test_outliers_before_a_product_of_matrices_are_smoothed() -> None:
    layer = Clue("x", "layer_norm", "X", outlier=40.0, reads=frozenset({"linear"}))
    assert cause(layer) == "smooth"
    assert cause(Clue("x", "layer_norm", "X", outlier=40.0, reads=frozenset({"add"}))) == ""


# --------------------------------------------------------------------------- what is asked for


def subjects(target: str) -> dict[str, DiagnosisSubject]:
    """What would be diagnosed of each variant of the embedded demo."""
    wanted = job(None, target)
    steps = plan.deploy(wanted)
    return {c.name: diagnose.subject(c, steps) for c in steps.candidates}


@pytest.mark.slow  # the plan asks whether torch is there
def test_an_artifact_is_held_against_the_program_that_was_quantized() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("onnxruntime")
    found = subjects("x86")
    assert found["int8"] == DiagnosisSubject("onnx", "int8/ptq_int8", "trace", "program")
    assert found["fp32"].before == "trace"
    if "executorch-int8" in found:
        assert found["executorch-int8"].before == "executorch-int8/pt2e_int8"


def test_the_stages_of_a_diagnosis_are_the_twin_the_source_and_the_pass() -> None:
    wanted = job(str(PACKAGE / "demo" / "source.toml"), "x86")
    module = diagnosis.stages(wanted, "why", DiagnosisSubject("onnx", "made", "source", "module"))
    assert [stage.name for stage in module] == ["why/tapped", "why/program", "why"]
    file = diagnosis.stages(
        wanted, "why", DiagnosisSubject("litert", "made", "source", "file", "", "onnx"), 4, "select"
    )
    assert [stage.call for stage in file] == ["runtimes.litert:tapped", "runtimes.onnx:tapped", diagnosis.CALL]
    assert file[-1].options == {"runtime": "litert", "source_runtime": "onnx", "split": "select", "items": 4}
    for untold in (
        DiagnosisSubject("null", "made"),
        DiagnosisSubject("litert", "made", kind="file", reader="tensorflow"),
    ):
        assert diagnosis.stages(wanted, "why", untold) == []
    assert diagnosis.stages(wanted, "why", DiagnosisSubject("litert", "made", kind="saved_model")) == []


@pytest.mark.parametrize("wrong", [{"items": 0}, {"split": "train"}])
def test_what_cannot_be_run_is_said_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"--items 0|--split train"):
        diagnose.DiagnosisRequest(**wrong)


def test_a_file_that_nothing_reads_is_the_users_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.txt").touch()
    with pytest.raises(InputError, match=r"diagnose reads \.onnx"):
        diagnose.diagnose(None, diagnose.DiagnosisRequest(artifact=tmp_path / "net.txt"))


@pytest.mark.parametrize(
    ("compress", "technique", "says"),
    [
        (["int8"], "ptq_int8", "--set 'variant.v.skip=[\"mat[[]0]\"]'"),
        (["equalize", "int8"], "ptq_int8", "--set 'variant.v.int8.skip=[\"mat[[]0]\"]'"),
        (["int8"], "litert_int8", "--set 'variant.v.skip=[\"^mat\\\\[0\\\\]$\"]'"),
        (["int8"], "pt2e_int8", "--set 'variant.v.skip=[\"mm\"]'"),
        (["int4"], "onnx_int4", "--set 'variant.v.int8=[\"mat[[]0]\"]'"),
    ],
)
def test_the_remedy_is_written_as_the_command_line_takes_it(compress: list[str], technique: str, says: str) -> None:
    variant = Variant("v", compress=tuple({"use": use} for use in compress))
    rows = [
        {"name": "first", "operator": "mat[0]", "type": "matmul", "module": "net.first", "node": "mm"},
        {"name": "second", "operator": "mat[1]", "type": "matmul", "module": "net.second", "node": "mm_1"},
    ]
    quantizer = Stage("v/q", f"techniques.{technique}:apply", {}, {})
    facts = {"advice": "keep", "culprits": ["first"], "layers": rows}
    assert diagnose._keep(variant, quantizer, facts) == says
    assert diagnose._keep(variant, quantizer, {**facts, "advice": "train"}) == ""
