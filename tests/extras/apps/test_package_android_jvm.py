"""The Android wrapper on a JVM, the real runtime behind a pipe: its self-test, and all that makes it fail."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import android_packages
import numpy as np
import package_inputs
import pytest
from android_packages import PASSES, Jvm, Opened, packed, values

from edgecompress.extras.apps.packagers import _android_classes, _android_engines, _android_java
from edgecompress.reporting import external_results

pytestmark = [pytest.mark.slow, pytest.mark.jdk]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """A classifier of pictures in ONNX, packed."""
    folder = tmp_path_factory.mktemp("android")
    return packed(package_inputs.shipped(folder / "shipped"), folder)


@pytest.fixture(scope="module")
def run(small: Opened, tmp_path_factory: pytest.TempPathFactory) -> Jvm:
    """Its wrapper on a JVM."""
    return android_packages.jvm(small, tmp_path_factory.mktemp("jvm"), "onnx")


def test_the_self_test_passes_with_the_real_runtime_mapped_and_compressed(small: Opened, run: Jvm) -> None:
    for command in ("selftest", "selftest-compressed"):
        assert [android_packages.steps(line) for line in run(command, [small.assets])] == [PASSES]


@pytest.mark.parametrize("runtime", ["litert", pytest.param("executorch", marks=pytest.mark.prove)])
def test_the_self_test_passes_in_other_runtimes(runtime: str, tmp_path: Path) -> None:
    opened = packed(android_packages.shipped(tmp_path / "shipped", runtime), tmp_path)
    run = android_packages.jvm(opened, tmp_path / "jvm", runtime)
    for command in ("selftest", "selftest-compressed"):
        assert [android_packages.steps(line) for line in run(command, [opened.assets])] == [PASSES]
    assert run("settings", [opened.assets]) == ["{asked.xnnpack=true}" if runtime == "litert" else "{}"]
    broken = android_packages.copied(opened, tmp_path / "changed")
    package_inputs.flip(next((broken / "small-pets/model").iterdir()))
    assert not android_packages.steps(run("selftest", [broken])[0])["files"]


@pytest.mark.qnn
@pytest.mark.parametrize("cpu_allowed", [False, True])
def test_a_model_for_an_npu_says_where_it_ran_and_fails_on_the_cpu_unless_that_is_allowed(
    cpu_allowed: bool, tmp_path: Path
) -> None:
    shipped = android_packages.shipped(tmp_path / "shipped", "qnn")
    opened = packed(shipped, tmp_path, cpu_allowed=cpu_allowed)
    assert opened.card["runtime"]["compiled"]["chip"] == "SM8650"
    run = android_packages.jvm(opened, tmp_path / "jvm", "qnn")
    told = {
        phone: json.loads(run("selftest", [opened.assets], phone=[f"phone.npu={phone}"] if phone else ())[0])[-1]
        for phone in ("true", "false", "")
    }
    assert {each["step"] for each in told.values()} == {"accelerator"}
    assert told["true"] == {"step": "accelerator", "ok": True, "detail": "it ran on the HTP v75 of SM8650"}
    for phone, why in (("false", "this phone has no NPU"), ("", "libonnxruntime_providers_qnn.so not found")):
        assert told[phone]["ok"] == cpu_allowed and "on the CPU, not on the HTP v75" in told[phone]["detail"]
        assert why in told[phone]["detail"]
    here = android_packages.steps(run("selftest", [opened.assets], phone=["phone.npu=true"])[0])
    assert here == {**PASSES, "accelerator": True}  # by Qualcomm's emulator
    assert "says nothing of the accelerator" in run("benchmark", [opened.assets])[0]


@pytest.mark.prove
def test_a_session_has_the_settings_that_the_model_was_verified_with(small: Opened, run: Jvm, tmp_path: Path) -> None:
    known = "{asked.arena=true, asked.level=ALL_OPT, asked.mode=SEQUENTIAL, asked.session.intra_op.allow_spinning=0}"
    assert run("settings", [small.assets]) == [known]
    folder = package_inputs.shipped(tmp_path / "shipped")
    package_inputs.set_settings(folder, {"graph_optimization_level": "ORT_ENABLE_BASIC", "enable_cpu_mem_arena": False})
    other = packed(folder, tmp_path)
    chosen = android_packages.jvm(other, tmp_path / "jvm", "onnx")("settings", [other.assets])
    assert chosen == ["{asked.arena=false, asked.level=BASIC_OPT}"]


def test_a_packed_model_is_unpacked_once_and_again_where_the_system_cleared_the_cache(tmp_path: Path) -> None:
    opened = packed(package_inputs.shipped(tmp_path / "shipped"), tmp_path, packed=True)
    assert [file.name for file in (opened.slug / "model").iterdir()] == ["model.onnx.packed"]
    run = android_packages.jvm(opened, tmp_path / "jvm", "onnx")
    assert [android_packages.steps(line) for line in run("selftest", [opened.assets, opened.assets])] == [
        PASSES,
        PASSES,
    ]
    (folder,) = (tmp_path / "jvm" / "cache").iterdir()
    whole = (folder / "model" / "model.onnx").read_bytes()
    assert hashlib.sha256(whole).hexdigest() == opened.card["model"]["files"][0]["sha256"]
    shutil.rmtree(folder)
    changed = android_packages.copied(opened, tmp_path / "changed")
    package_inputs.flip(changed / "small-pets/model/model.onnx.packed")
    first, second = run("selftest", [changed, opened.assets])
    assert first.startswith("broken: java.io.IOException: the packed model is damaged")
    assert android_packages.steps(second) == PASSES


def test_a_picture_is_classified_as_python_does(small: Opened, run: Jvm) -> None:
    scores = np.frombuffer((small.slug / "golden/output-0.bin").read_bytes(), np.float32)
    found = re.findall(r"(\w+) ([0-9.E-]+)[,\]]", run("classify", [small.assets])[0])
    assert len(found) == 8  # the picture's four, and the processed input's
    wanted = sorted(zip(android_packages.softmax(scores), package_inputs.LABELS, strict=True), reverse=True)
    for (label, score), (sure, name) in zip(found, [*wanted, *wanted], strict=True):
        assert label == name
        assert abs(float(score) - sure) < 1e-5


@pytest.mark.prove
def test_a_clip_becomes_the_golden_spectrogram_and_its_wrapper_takes_samples(tmp_path: Path) -> None:
    opened = packed(android_packages.audio(tmp_path / "shipped"), tmp_path)
    run = android_packages.jvm(opened, tmp_path / "jvm", "onnx")
    assert android_packages.steps(run("selftest", [opened.assets])[0]) == PASSES
    changed = android_packages.copied(opened, tmp_path / "changed")
    package_inputs.flip(changed / opened.card["slug"] / "golden/raw.bin")
    assert not android_packages.steps(run("selftest", [changed])[0])["files"]
    wrapper = _android_classes.jar(opened.aar / "classes.jar")[f"{opened.namespace}.SpokenWordModel"]
    assert "android.graphics.Bitmap" not in wrapper.uses
    assert "classifyAudio(samples)" in (opened.root / "README.md").read_text()


def test_quantized_ends_and_a_state_are_real_numbers_outside(tmp_path: Path) -> None:
    opened = packed(android_packages.stateful(tmp_path / "shipped"), tmp_path)
    run = android_packages.jvm(opened, tmp_path / "jvm", "onnx")
    assert android_packages.steps(run("selftest", [opened.assets])[0]) == PASSES
    y, state = json.loads(run("run", [opened.assets])[0])
    assert np.array_equal(np.float32(y), np.fromfile(opened.slug / "golden/output-0.bin", np.float32))
    assert len(state) == 4
    assert np.abs(np.float32(state) - np.float32(y)).max() <= 0.026 or np.abs(state).max() > 6  # half a step


def test_the_benchmark_is_what_report_reads(small: Opened, run: Jvm, tmp_path: Path) -> None:
    file = tmp_path / "measured.json"
    file.write_text(run("benchmark", [small.assets])[0])
    found = external_results.read(file)
    assert (found.model.sha256, len(found.latencies_ns), found.self_test) == (
        hashlib.sha256(f"model/model.onnx\0{small.card['model']['files'][0]['sha256']}\n".encode()).hexdigest(),
        25,
        "pass",
    )
    assert (found.device.platform, found.device.name) == ("android-arm64", 'Acme Phone "7"')


def carded(assets: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes the card among the assets."""
    file = assets / "small-pets/model_card.json"
    card = json.loads(file.read_text())
    change(card)
    file.write_text(json.dumps(card))


NORMALISATION: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mean": lambda p: p["mean"].__setitem__(1, p["mean"][1] + 1e-3),
    "std": lambda p: p["std"].__setitem__(2, p["std"][2] * 1.001),
    "scale": lambda p: p.update(scale=p["scale"] * 1.001),
    "resize": lambda p: p.update(resize=10),
    "colour": lambda p: p.update(colour="BGR"),
    "layout": lambda p: p.update(layout="NHWC"),
}


@pytest.mark.prove
def test_any_changed_golden_byte_weight_byte_label_or_card_fails(small: Opened, run: Jvm, tmp_path: Path) -> None:
    changed: dict[str, tuple[Path, str]] = {}
    files = sorted(p.relative_to(small.slug) for p in small.slug.rglob("*") if p.is_file())
    for file in files:
        if file.name == "model_card.json":
            continue
        for where in (0.0, 0.37, 0.81, 1.0):
            assets = android_packages.copied(small, tmp_path / f"{len(changed)}")
            package_inputs.flip(assets / "small-pets" / file, where)
            changed[f"{file} at {where}"] = (assets, "files")
        assets = android_packages.copied(small, tmp_path / f"{len(changed)}")
        (assets / "small-pets" / file).write_bytes((assets / "small-pets" / file).read_bytes()[:-1])
        changed[f"{file} cut off"] = (assets, "files")
    for name, change in NORMALISATION.items():
        assets = android_packages.copied(small, tmp_path / f"{len(changed)}")
        carded(assets, lambda card, change=change: change(card["preprocess"]))  # type: ignore[misc]
        changed[f"card: {name}"] = (assets, "processing")
    assets = android_packages.copied(small, tmp_path / f"{len(changed)}")
    carded(assets, lambda card: card["golden"].update(tolerance=1.0))
    changed["card: tolerance"] = (assets, "files")
    lines = run("selftest", [assets for assets, _ in changed.values()])
    assert len(lines) == len(changed) > 30
    for (name, (_, step)), line in zip(changed.items(), lines, strict=True):
        assert line.startswith("broken: ") or not android_packages.steps(line)[step], (name, line)


@pytest.mark.parametrize("constant", sorted(NORMALISATION))
def test_a_changed_constant_that_is_compiled_in_fails(constant: str, small: Opened, run: Jvm, tmp_path: Path) -> None:
    """Also where the card was changed with it: then the golden items tell."""
    card = json.loads(json.dumps(small.card))
    NORMALISATION[constant](card["preprocess"])
    source = tmp_path / "src"
    found = _android_engines.ENGINES["onnx"]
    _android_java.write(
        source, small.namespace, found, values(small, parts=_android_java.parts(_android_java.facts(card)))
    )
    spec = next(source.rglob("ModelSpec.java"))
    _android_java.compile([spec], tmp_path / "classes", [str(small.aar / "classes.jar")])
    assets = android_packages.copied(small, tmp_path / "assets")
    carded(assets, lambda told: told.update(preprocess=card["preprocess"]))
    assert not android_packages.steps(run("selftest", [assets], [tmp_path / "classes"])[0])["processing"]
