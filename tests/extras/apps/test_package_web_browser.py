"""A web package in a real browser: self-test, picture, benchmark; what is changed is found, nothing is injected."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import package_inputs
import prove
import pytest
import report_browser
import vectors
from package_web import Page, Served, changed, drop, opened, packed, serving, wait, wrong_byte

from edgecompress.commands import deploy, report
from edgecompress.commands.shipped_folder import shipped as found_in
from edgecompress.core.package_contents import artifact
from edgecompress.pipeline.job_request import Options
from edgecompress.reporting import external_results

pytestmark = [*report_browser.needed, pytest.mark.ortweb, pytest.mark.slow]
VARIANTS = ("int8", "fp32")
HOSTILE = {
    "quotes": "\"'`${alert(1)}\\",
    "script": "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">",
    "newlines": "one\r\ntwo\u2028three\u2029four\0five",
    "right to left": "\u202egpj.exe\u2066\u202b",
    "markup": "<!--<script>]]>{{ 7 * 7 }}{% raw %}",
}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory, shared_store: Path) -> dict[str, Path]:
    """The embedded demo as the target `web` ships it, int8 and fp32."""
    place = tmp_path_factory.mktemp("shipped")
    outs = {}
    for variant in VARIANTS:
        options = Options(store=shared_store, out=place / variant)
        assert deploy.deploy(target="web", only=(variant,), profile="quick", options=options).exit_code == 0
        outs[variant] = place / variant
    return outs


@pytest.fixture(scope="module")
def roots(shipped: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The opened packages of the demo."""
    place = tmp_path_factory.mktemp("packages")
    return {variant: packed(folder, place / variant) for variant, folder in shipped.items()}


@pytest.fixture(scope="module")
def served(roots: dict[str, Path]) -> Iterator[Served]:
    with serving() as server:
        for variant, root in roots.items():
            server.add(variant, root)
        yield server


@pytest.fixture(scope="module", params=VARIANTS)
def page(request: pytest.FixtureRequest, browser: Any, served: Served) -> Page:
    return opened(browser, f"{served.address}/{request.param}/")


def pets(place: Path, **changes: Any) -> Path:
    """The opened package of a small net that resizes, crops and normalises."""
    return packed(package_inputs.shipped(place / "shipped", **changes), place / "package")


def golden(root: Path, which: str) -> tuple[dict[str, Any], np.ndarray[Any, Any]]:
    card = json.loads((root / "model_card.json").read_text())
    item = card["golden"][which] if which == "raw" else card["golden"][which][0]
    return card, np.frombuffer((root / item["file"]).read_bytes(), item["dtype"]).reshape(item["shape"])


# --------------------------------------------------------------------------- what the page does by itself


INT8 = pytest.mark.skipif(vectors.adds_in_16_bits(), reason=vectors.WHY)


def exact_here(page: Page) -> None:
    """Skips int8 where this machine's kernels saturate: the browser's do not."""
    if page.address.endswith("/int8/") and vectors.adds_in_16_bits():
        pytest.skip(vectors.WHY)


def test_the_self_test_passes(page: Page) -> None:
    exact_here(page)
    assert page.text("#verdict") == "This browser computes what was verified."
    assert page.texts("#steps .name") == ["files", "processing", "inference", "labels"]
    assert page.texts("#steps .mark") == ["✓"] * 4
    assert page.browser.execute_script("return document.getElementById('self-test').dataset.state") == "pass"


@pytest.mark.skipif(vectors.adds_in_16_bits(), reason=vectors.WHY)
def test_a_packed_model_is_unpacked_in_memory(
    browser: Any, shipped: dict[str, Path], served: Served, tmp_path: Path
) -> None:
    root = packed(shipped["int8"], tmp_path, packed=True)
    assert not (root / "model" / "model.onnx").exists()
    sound = opened(browser, served.add("packed", root))
    assert sound.texts("#steps .mark") == ["✓"] * 4 and sound.console == []
    damaged = opened(browser, served.add("damaged", root, {"model/model.onnx.packed": wrong_byte(60)}))
    assert damaged.text("#verdict").startswith("The model does not load: the packed model ")


def test_a_session_has_the_settings_that_the_model_was_verified_with(page: Page) -> None:
    asked = "const { options } = await import('./session.js'); const { default: spec } = await import('./spec.js');"
    known = page.asked(asked + "return options(spec.settings);")
    assert known == {
        "executionProviders": ["wasm"],
        "graphOptimizationLevel": "all",
        "executionMode": "sequential",
        "enableCpuMemArena": True,
        "extra": {"session.intra_op.allow_spinning": "0"},
    }
    other = {"graph_optimization_level": "ORT_ENABLE_BASIC", "execution_mode": "ORT_PARALLEL"}
    chosen = page.asked(asked + "return options(given[0]);", {**other, "enable_cpu_mem_arena": False})
    assert (chosen["graphOptimizationLevel"], chosen["executionMode"]) == ("basic", "parallel")
    assert chosen["enableCpuMemArena"] is False and chosen["extra"] == {}


def test_the_golden_picture_has_the_golden_label(page: Page, roots: dict[str, Path]) -> None:
    card, answer = golden(roots[page.address.rstrip("/").rpartition("/")[2]], "outputs")
    assert page.texts("#classes .name")[0] == str(answer.argmax())  # the demo's labels are its digits
    assert card["labels"]["count"] == 10
    assert len(page.texts("#classes li")) == 5
    assert float(page.texts("#classes .score")[0].removesuffix(" %")) > 90


def test_no_request_leaves_and_the_console_is_clean(page: Page) -> None:
    assert page.console == []
    assert [url for url in page.requests if not url.startswith((page.address, "data:,"))] == []
    assert f"{page.address}ort/ort-wasm-simd-threaded.wasm" in page.requests


def test_its_policy_refuses_another_host(page: Page) -> None:
    said = page.asked("return fetch('http://127.0.0.2:9/').then(() => 'went', e => `${e}`)")
    assert "Failed to fetch" in said
    assert any("Content Security Policy" in entry["message"] for entry in page.browser.get_log("browser"))


def test_it_answers_what_the_runtime_answered_here(page: Page, roots: dict[str, Path]) -> None:
    """Not only the golden item: the wrapper's `run`, of an input of its own."""
    exact_here(page)
    from edgecompress.engines.onnx.runtimes import onnx

    root = roots[page.address.rstrip("/").rpartition("/")[2]]
    card, taken = golden(root, "inputs")
    other = np.random.default_rng(1).normal(size=taken.shape).astype(np.float32)
    given = base64.b64encode(other.tobytes()).decode()
    found = page.asked(
        "const bytes = Uint8Array.from(atob(given[0]), c => c.charCodeAt(0));"
        "const model = await wrapper.default.load();"
        "return [...Object.values(await model.run(new Float32Array(bytes.buffer)))[0]];",
        given,
    )
    session = onnx.open(artifact(card, root), 1)
    wanted = next(iter(session.run({card["inputs"][0]["name"]: other}).values()))
    session.close()
    assert np.abs(np.ravel(wanted) - found).max() < 0.02 * np.abs(wanted).max()


# --------------------------------------------------------------------------- pictures that the user brings


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    from PIL import Image

    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "PNG")
    return held.getvalue()


def test_a_picture_that_is_chosen_is_classified_as_python_does_it(browser: Any, served: Served, tmp_path: Path) -> None:
    """A net that resizes and crops: the same pixels, the same probabilities."""
    root = pets(tmp_path)
    page = opened(browser, served.add("pets", root))
    card, _ = golden(root, "outputs")
    picture = np.random.default_rng(5).integers(0, 256, (50, 37, 3)).astype(np.uint8)
    (tmp_path / "chosen.png").write_bytes(png(picture))
    browser.find_element("id", "file").send_keys(str(tmp_path / "chosen.png"))
    wait(browser, "return document.getElementById('caption').textContent.startsWith('chosen.png')")
    wait(browser, "return document.querySelectorAll('#classes li').length === 4")
    found = page.asked("await new Promise(r => setTimeout(r, 200)); return true")
    assert found
    wanted = python_answers(root, card, picture)
    names = [package_inputs.LABELS[i] for i in np.argsort(-wanted, kind="stable")]
    assert page.texts("#classes .name") == names
    shares = [float(text.removesuffix(" %")) for text in page.texts("#classes .score")]
    assert np.abs(np.array(shares) - 100 * np.sort(wanted)[::-1]).max() <= 0.051  # one digit is shown
    assert "37 × 50 pixels" in page.text("#caption")


def python_answers(root: Path, card: dict[str, Any], picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from edgecompress.data import preprocess
    from edgecompress.engines.onnx.runtimes import onnx

    declared = package_inputs.PREPROCESS
    given = preprocess.numbers(preprocess.geometry(picture, declared)[None], declared)
    session = onnx.open(artifact(card, root), 1)
    scores = np.ravel(session.run({"image": given})["scores"]).astype(np.float64)
    session.close()
    powers = np.exp(scores - scores.max())
    return np.asarray(powers / powers.sum())


def test_a_picture_that_is_dropped_is_classified_and_the_golden_one_comes_back(page: Page) -> None:
    white = np.full((40, 60), 255, np.uint8)
    drop(page, "a picture.png", png(white))
    wait(page.browser, "return document.getElementById('caption').textContent.startsWith('a picture.png')")
    assert page.text("#caption") == "a picture.png: 60 × 40 pixels, brought to 8 × 8"
    page.browser.find_element("id", "golden").click()
    wait(page.browser, "return document.getElementById('caption').textContent.startsWith('The golden')")
    test_the_labels_are_full(page)


def test_the_labels_are_full(page: Page) -> None:
    wait(page.browser, "return document.querySelectorAll('#classes li').length === 5")
    assert sum(float(text.removesuffix(" %")) for text in page.texts("#classes .score")) <= 100.3


def test_what_is_no_picture_is_told(page: Page) -> None:
    drop(page, "<b>broken</b>.png", b"not a picture")
    wait(page.browser, "return document.getElementById('timing').textContent.includes('no picture')")
    assert page.text("#timing") == "<b>broken</b>.png: no picture that this browser opens"


# --------------------------------------------------------------------------- the benchmark


def test_the_benchmark_answers_what_the_report_reads(page: Page, shipped: dict[str, Path], tmp_path: Path) -> None:
    exact_here(page)
    runs, device = page.browser.find_element("id", "runs"), page.browser.find_element("id", "device")
    runs.clear()
    runs.send_keys("60")
    device.clear()
    device.send_keys("A <b>phone</b>")
    page.browser.find_element("id", "start").click()
    wait(page.browser, "return !document.getElementById('result').hidden && !document.getElementById('start').disabled")
    text = page.text("#json")
    found = external_results.parsed(text.encode(), "the page")
    assert (found.device.name, found.device.platform) == ("A <b>phone</b>", "web-x86_64")
    assert (found.runtime.name, found.runtime.version) == ("onnxruntime-web", "1.30.0")
    assert (found.self_test, found.clock, found.run.threads) == ("pass", "performance.now", 1)
    assert found.device.browser and "Chrom" in found.device.browser
    assert len(found.latencies_ns) == 60 and found.run.warmup >= 10
    assert 10_000 < float(np.median(found.latencies_ns)) < 1e9  # 10 µs to 1 s
    assert found.clock_step_ns <= 5_000  # the page is isolated
    variant = page.address.rstrip("/").rpartition("/")[2]
    assert found.model.sha256 == external_results.digest(found_in(shipped[variant])[0])
    assert page.browser.find_element("id", "download").get_attribute("href").startswith("blob:")
    (tmp_path / "measured.json").write_text(text, encoding="utf-8")
    told = report.add(shipped[variant], [tmp_path / "measured.json"], Options(store=tmp_path / "store"))
    assert "A <b>phone</b>" in json.dumps(told)


def test_too_few_inferences_are_refused(page: Page) -> None:
    said = page.asked(
        "const model = await wrapper.default.load();"
        "return model.benchmark(3).then(() => 'ran', error => error.message);"
    )
    assert said == "inferences: 20 to 100000, not 3"


# --------------------------------------------------------------------------- what is changed is found

TESTED = """
const {default: Model} = await import(given[0]);
const base = new URL('.', given[0]);
try {
  const model = await Model.load({base});
  const steps = await model.selfTest();
  await model.close();
  return steps.filter(step => !step.ok).map(step => step.step);
} catch (error) { return ['load']; }
"""


@INT8
@pytest.mark.prove
def test_the_self_test_fails_for_whatever_is_changed(browser: Any, served: Served, roots: dict[str, Path]) -> None:
    """Every golden byte's turn, weights, constants: in one page, on one copy of the runtime."""
    page = opened(browser, f"{served.address}/int8/")
    same = f'export * from "{served.address}/int8/ort/ort.wasm.bundle.min.mjs";'.encode()
    shared = {"ort/ort.wasm.bundle.min.mjs": lambda found: same}
    assert page.asked(TESTED, f"{served.add('as-it-is', roots['int8'], shared)}model.js") == []
    wrong = []
    cases = list(changed(roots["int8"]))
    for i, (name, file, change, step) in enumerate(cases):
        address = served.add(f"changed-{i}", roots["int8"], {**shared, file: change})
        failed = page.asked(TESTED, f"{address}model.js")
        if step not in failed and failed != ["load"]:
            wrong.append((name, failed))
    assert len(cases) > 50
    assert wrong == []


def test_the_page_says_that_the_self_test_failed(browser: Any, served: Served, roots: dict[str, Path]) -> None:
    address = served.add("golden-off", roots["fp32"], {"golden/output-0.bin": wrong_byte(3)})
    page = opened(browser, address)
    assert page.browser.execute_script("return document.getElementById('self-test').dataset.state") == "fail"
    assert page.text("#verdict").startswith("Do not use it here: files")
    assert "golden/output-0.bin: its sha256 is" in page.texts("#steps .detail")[0]
    broken = opened(browser, served.add("no-model", roots["fp32"], {"model/model.onnx": lambda found: b"no model"}))
    assert broken.text("#verdict").startswith("The model does not load: ")
    assert not broken.shown("#picture")
    assert not broken.browser.find_element("id", "start").is_enabled()


def test_a_page_without_the_browsers_sha256_computes_its_own(page: Page) -> None:
    """A phone that opens it over plain HTTP has no crypto.subtle."""
    lengths = (0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 100_003)
    same = page.asked(
        "const {computed, sha256} = await import('./files.js');"
        "const hex = bytes => [...bytes].map(b => b.toString(16).padStart(2, '0')).join('');"
        "const wrong = [];"
        "for (const n of given[0]) {"
        "  const bytes = Uint8Array.from({length: n}, (_, i) => i * 31 + n).buffer;"
        "  if (hex(computed(bytes)) !== await sha256(bytes)) wrong.push(n);"
        "} return wrong;",
        lengths,
    )
    assert same == []


# --------------------------------------------------------------------------- hostile names and labels


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_names_and_labels_are_shown_as_text(what: str, browser: Any, served: Served, tmp_path: Path) -> None:
    text = HOSTILE[what]
    labels = [f"{text} {i}" for i in range(package_inputs.CLASSES)]
    root = pets(tmp_path, name=text, labels=labels, description=text, licence=text)
    page = opened(browser, served.add(f"hostile-{list(HOSTILE).index(what)}", root))
    assert page.console == []
    assert page.text("#verdict") == "This browser computes what was verified."
    assert browser.execute_script("return document.querySelectorAll('script').length") == 1
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.title != "owned"
    shown = page.text("h1 bdi")
    assert "".join(shown.split()) == "".join(text.replace("\0", "\ufffd").split()) or what == "newlines"
    line = " ".join(labels[0].split())
    assert any(name.split()[0] == line.split()[0] for name in page.texts("#classes .name"))
    assert page.asked("return (await wrapper.default.load()).labels.length") == package_inputs.CLASSES
    assert page.asked("return (await wrapper.default.load()).labels[0]") == labels[0]
    assert [url for url in page.requests if not url.startswith((page.address, "data:,"))] == []


def test_ten_megabytes_of_label_do_not_break_the_page(browser: Any, served: Served, tmp_path: Path) -> None:
    labels = ["<b>" + "x" * 10_000_000, *package_inputs.LABELS[1:]]
    page = opened(browser, served.add("long", pets(tmp_path, name="n" * 10_000_000, labels=labels)))
    assert page.text("#verdict") == "This browser computes what was verified."
    assert all(len(name) <= 81 for name in page.texts("#classes .name"))
    assert len(page.text("h1")) <= 200
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 1200
    assert page.asked("return (await wrapper.default.load()).labels[0].length") == len(labels[0])


# --------------------------------------------------------------------------- how it looks, how it is served


@pytest.mark.parametrize("mode", prove.some(list(report_browser.MODES), 2))
def test_it_fits_and_is_readable(mode: str, browser: Any, served: Served) -> None:
    page = opened(browser, f"{served.address}/int8/", *report_browser.MODES[mode])
    width = report_browser.MODES[mode][1]
    browser.find_element("id", "start").click()
    wait(browser, "return !document.getElementById('result').hidden && !document.getElementById('start').disabled")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    wide = browser.execute_script(
        "return [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > innerWidth + 1)"
        ".map(e => e.outerHTML.slice(0, 80))"
    )
    assert wide == []
    measured_contrast = browser.execute_script(report_browser.CONTRAST)
    assert len(measured_contrast) > 50
    assert sorted((round(ratio, 2), text) for ratio, text in measured_contrast if ratio < 4.5) == []
    small = browser.execute_script(
        "return [...document.querySelectorAll('button, .button')].filter(e => e.offsetParent)"
        ".filter(e => e.getBoundingClientRect().height < 40).map(e => e.textContent)"
    )
    assert small == []  # a thumb hits them
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('input')].filter(e => !e.labels.length).map(e => e.id)"
    )
    assert unnamed == []
    assert page.console == []


@INT8
def test_the_readme_serves_it(browser: Any, roots: dict[str, Path]) -> None:
    assert "`python3 serve.py`" in (roots["int8"] / "README.md").read_text()
    words = [sys.executable, "serve.py", "--port", "0"]
    with subprocess.Popen(words, cwd=roots["int8"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout
            page = opened(browser, server.stdout.readline().strip())
            assert page.text("#verdict") == "This browser computes what was verified."
            assert page.browser.execute_script("return crossOriginIsolated") is True
            assert page.console == []
            assert page.asked("return (await wrapper.default.load()).threads") == 1
            refused = page.asked("return wrapper.default.load({threads: 2}).catch(error => error.message)")
            assert refused == "threads: the runtime has 1 on this page already"
            browser.get(f"{page.address}model_card.json")  # a page of its own
            more = "const model = await wrapper.default.load({threads: 2});"
            told = page.asked(more + "return [model.threads, (await model.selfTest()).every(step => step.ok)]")
            assert told == [2, True]
        finally:
            server.terminate()
