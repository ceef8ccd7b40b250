"""Session settings: in the card of an artifact, applied wherever it is opened, told, and held against the defaults."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from edgecompress.core import engine_settings as chosen
from edgecompress.core import package_contents, registry
from edgecompress.core.errors import InputError
from edgecompress.core.model import SETTINGS, Artifact
from edgecompress.reporting import engine_settings, model_variant
from edgecompress.stages import engine_defaults
from edgecompress.testing.conformance.nets import net

KNOWN = {"precision": "f32", "streams": 1, "arena": True}


def notes(variant: dict[str, Any]) -> list[str]:
    return list(engine_settings.notes(msgspec.convert(variant, model_variant.Variant)))


def card(facts: dict[str, Any]) -> Artifact:
    return Artifact(Path("artifact"), "any", facts=facts)


# --------------------------------------------------------------------------- what a session is opened with


def test_a_card_without_settings_means_the_runtimes_own_and_an_empty_one_the_engines() -> None:
    assert chosen.of(card({}), KNOWN) == KNOWN
    assert chosen.of(card({SETTINGS: {}}), KNOWN) == {}
    assert chosen.of(card({SETTINGS: {"streams": 2}}), KNOWN) == {"streams": 2}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"CACHE_DIR": "/etc"}, "setting 'CACHE_DIR' is unknown; known: precision, streams, arena"),
        ({"streams": "1"}, "setting 'streams' is '1', but must be like 1"),
        ({"streams": True}, "setting 'streams' is True, but must be like 1"),
        (["streams"], "settings is ['streams'], but must be a table"),
        ("streams", "settings is 'streams', but must be a table"),
    ],
)
def test_a_strangers_setting_is_refused(settings: Any, says: str) -> None:
    with pytest.raises(InputError, match=re.escape(says)):
        chosen.of(card({SETTINGS: settings}), KNOWN)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("runtime", "name", "value"),
    [
        ("onnx", "graph_optimization_level", "ORT_DISABLE_ALL"),
        ("onnx", "enable_cpu_mem_arena", False),
        ("openvino", "PERFORMANCE_HINT", "THROUGHPUT"),
        ("litert", "xnnpack", False),
    ],
)
def test_a_setting_of_the_card_reaches_the_engine(runtime: str, name: str, value: Any, tmp_path: Path) -> None:
    module = registry.load("runtimes", runtime)
    plain = net(module.FORMAT, tmp_path)
    chosen = replace(plain, facts={SETTINGS: {**module.SETTINGS, name: value}})
    effects = {
        "onnx": lambda s: {
            "graph_optimization_level": s.session.get_session_options().graph_optimization_level.name,
            "enable_cpu_mem_arena": s.session.get_session_options().enable_cpu_mem_arena,
        },
        "openvino": lambda s: s.in_effect,
        "litert": lambda s: {"xnnpack": "DELEGATE" in {op["op_name"] for op in s.interpreter._get_ops_details()}},
    }
    for artifact, right in ((plain, module.SETTINGS[name]), (chosen, value)):
        session = module.open(artifact, 1)
        assert effects[runtime](session)[name] == right
        session.close()


@pytest.mark.slow
def test_an_optimisation_level_that_onnx_runtime_has_not_is_refused(tmp_path: Path) -> None:
    module = registry.load("runtimes", "onnx")
    wrong = replace(net("onnx", tmp_path), facts={SETTINGS: {"graph_optimization_level": "most"}})
    with pytest.raises(InputError, match="graph_optimization_level is 'most'; use ORT_DISABLE_ALL"):
        module.open(wrong, 1)


def test_every_runtime_with_settings_takes_each_of_them_and_none() -> None:
    for runtime in registry.runtimes():
        assert all(isinstance(value, (str, int, float, bool)) for value in runtime.settings.values())
        assert chosen.of(card({SETTINGS: {}}), runtime.settings) == {}
    formats = {runtime.format for runtime in registry.runtimes() if runtime.settings}
    assert formats == {"mnn", "onnx", "openvino", "tflite"}
    for kind in formats:  # one card serves every runtime of its format
        assert len({json.dumps(r.settings, sort_keys=True) for r in registry.runtimes() if r.format == kind}) == 1


# --------------------------------------------------------------------------- where it is told


def test_a_package_tells_the_settings_and_opens_the_model_with_them() -> None:
    assert package_contents.settings({"runtime": {"name": "null"}}) == ""
    told = package_contents.settings({"runtime": {"name": "openvino", "settings": {"NUM_STREAMS": 1, "A": "f32"}}})
    assert "by openvino with the settings A = f32, NUM_STREAMS = 1;" in told
    table = {"inputs": [], "outputs": [], "model": {"format": "openvino"}, "runtime": {"settings": {"A": "f32"}}}
    assert package_contents.artifact(table, Path("payload")).facts == {SETTINGS: {"A": "f32"}}
    assert package_contents.artifact({**table, "runtime": {}}, Path("payload")).facts == {}


def answers(folder: Path, outputs: np.ndarray, defaults: np.ndarray) -> Path:
    for place, array in ((folder, outputs), (folder / "defaults", defaults)):
        (place / "test").mkdir(parents=True)
        np.save(place / "test" / "y.npy", array)
    return folder


def test_what_the_defaults_answer_is_held_against_the_source_over_the_same_items(tmp_path: Path) -> None:
    golden = np.arange(1, 13, dtype=np.float32).reshape(6, 2)
    place = answers(tmp_path / "answers", golden * 1.001, golden[:4] * 1.1)
    source = Artifact(answers(tmp_path / "golden", golden, golden), "golden")
    told = {"items": 4, "settings": {"precision": "bf16"}, "reason": ""}
    facts = engine_defaults.facts(told, place, "test", source, {"y": "y"})["defaults"]
    assert facts["outputs"][0]["sqnr_db"] == pytest.approx(20, abs=0.01)
    assert facts["outputs"][0]["shipped_sqnr_db"] == pytest.approx(60, abs=0.1)
    assert not facts["outputs"][0]["same"]
    variant = {
        "name": "int8",
        "runtime": "openvino",
        "verify": {"defaults": facts},
        "artifact": {"kind": "any", "sha256": 64 * "0", "size_bytes": 1, "settings": {"precision": "f32"}},
    }
    (note,) = notes(variant)
    assert note == (
        "int8, opened with openvino's own defaults instead of its settings, answers otherwise (precision is bf16): "
        "y has SQNR 20.0 dB to the source, 60.0 dB as it ships."
    )


def test_defaults_that_answer_the_same_are_not_mentioned_and_those_that_do_not_run_are(tmp_path: Path) -> None:
    golden = np.ones((3, 2), np.float32)
    place = answers(tmp_path / "answers", golden, golden)
    told = {"items": 3, "settings": {}, "reason": ""}
    facts = engine_defaults.facts(told, place, "test", Artifact(place, "golden"), {"y": "y"})["defaults"]
    variant = {"name": "v", "runtime": "r", "verify": {"defaults": facts}, "artifact": None}
    assert facts["outputs"][0]["same"] and not notes(variant)
    broken = engine_defaults.facts({**told, "reason": "RuntimeError: no"}, place, "test", Artifact(place, "golden"), {})
    (note,) = notes({**variant, "verify": broken})
    assert note == "v, opened with r's own defaults instead of its settings, does not run: RuntimeError: no."
    assert engine_defaults.facts(None, place, "test", Artifact(place, "golden"), {}) == {}
    assert not notes({**variant, "verify": {}})
