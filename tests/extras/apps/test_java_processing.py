"""What apps compute before and after a model, in Java and in JavaScript, number for number what Python computes.

All cases go to one process per language: data/java has the two small programs that run them.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import importlib.util
import itertools
import json
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import box_cases
import numpy as np
import pytest
from PIL import Image

from edgecompress.core import config, settings
from edgecompress.core.errors import InputError
from edgecompress.core.model import Quantization
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.data import preprocess, tensors

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
PROGRAMS = Path(__file__).parent / "data" / "java"
TEMPLATES = ROOT / "edgecompress" / "extras" / "apps" / "packagers" / "templates"
JAVA, JS = TEMPLATES / "android" / "java" / "processing", TEMPLATES / "web" / "processing.js"
ITEMS = 6  # of each model's test split
REFUSED = "refused"

Array = np.ndarray[Any, np.dtype[Any]]
Answers = Callable[[str], bytes]


@dataclasses.dataclass(frozen=True)
class Case:
    """One question to both programs, and Python's answer: an array, a text, or REFUSED."""

    do: str
    given: bytes
    wanted: Any
    more: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def little(array: Array) -> bytes:
    return array.astype(array.dtype.newbyteorder("<")).tobytes()


# --------------------------------------------------------------------------- the models of this repository


def _sources() -> dict[str, Path]:
    """Every source that declares how raw data becomes its model's input."""
    files = [ROOT / "edgecompress" / "demo" / "source.toml", *sorted(ROOT.glob("examples/*/*.toml"))]
    return {
        f"{file.parent.name}-{file.stem}": file
        for file in files
        if "[preprocess]" in file.read_text(encoding="utf-8") and config.read_toml(file).get("data")
    }


SOURCES = _sources()
MODELS = [
    pytest.param(name, marks=pytest.mark.shared)
    if any("shared_data" in code.read_text(encoding="utf-8") for code in file.parent.glob("*.py"))
    else name
    for name, file in SOURCES.items()
]


def raw_items(file: Path, count: int) -> list[Array]:
    """The first of the source's test split, as its author gives them."""
    module, function = config.read_toml(file)["data"].split(":")
    beside = file.parent / f"{module}.py"
    if beside.is_file():
        spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{module}", beside)
        assert spec is not None and spec.loader is not None
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
    else:
        loaded = importlib.import_module(module)
    return [np.asarray(raw) for raw, _ in itertools.islice(getattr(loaded, function)("test"), count)]


def of_model(name: str) -> Iterator[tuple[str, Case]]:
    file = SOURCES[name]
    declared = config.build(settings.Source, config.read_toml(file), str(file)).preprocess
    assert declared is not None
    for i, raw in enumerate(raw_items(file, ITEMS)):
        yield from processed(f"model-{name}-{i}", raw, declared)


def processed(name: str, raw: Array, declared: Preprocess) -> Iterator[tuple[str, Case]]:
    """One raw item as the model takes it: real, int8 and uint8."""
    more = {"dtype": str(raw.dtype), "shape": raw.shape, "declared": dataclasses.asdict(declared), "as": "float32"}
    try:
        x = preprocess.numbers(preprocess.geometry(raw, declared)[None], declared)[0].astype(np.float32)
    except InputError:
        yield f"{name}-float32", Case("preprocess", little(raw), REFUSED, more)
        return
    yield f"{name}-float32", Case("preprocess", little(raw), x, more)
    for dtype in ("int8", "uint8"):
        how = ranged(x, dtype)
        stored = {"as": dtype, "scale": how.scale[0], "zero_point": how.zero_point[0]}
        wanted = tensors.quantized(x, how, dtype)
        yield f"{name}-{dtype}", Case("preprocess", little(raw), wanted, {**more, **stored})


def ranged(x: Array, dtype: str) -> Quantization:
    """Scale and zero point that a calibrator finds for these numbers."""
    low, high = min(float(x.min()), 0.0), max(float(x.max()), 0.0)
    scale = float(np.float32((high - low) / 255)) or 1.0
    return Quantization((scale,), (round(np.iinfo(dtype).min - low / scale),))


# --------------------------------------------------------------------------- random and edge cases


def picture(random: np.random.Generator, height: int, width: int, channels: int) -> Array:
    """Noise, or 0 and 255 only, or one corner lit."""
    shape = (height, width, channels)[: 3 if channels != 2 else 2]
    kind = int(random.integers(3))
    if kind == 0:
        return random.integers(0, 256, shape).astype(np.uint8)
    if kind == 1:
        return (random.integers(0, 2, shape) * 255).astype(np.uint8)
    found = np.zeros(shape, np.uint8)
    found[0, 0] = 255
    return found


def sizes(random: np.random.Generator) -> Iterator[tuple[int, int, int, int]]:
    yield from [(1, 1, 1, 1), (1, 1, 7, 5), (9, 7, 1, 1), (1, 97, 64, 3), (2, 3, 2, 3), (255, 3, 3, 255), (5, 5, 5, 9)]
    yield from [(480, 640, 224, 299), (375, 500, 256, 341), (33, 31, 32, 32), (640, 3, 7, 3), (8, 8, 224, 224)]
    for _ in range(60):
        height, width, to_height, to_width = (int(n) for n in random.integers(1, 130, 4))
        yield height, width, to_height, to_width


def resizes() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(1)
    for i, (height, width, to_height, to_width) in enumerate(sizes(random)):
        channels = (1, 3)[i % 2]
        raw = picture(random, height, width, channels)
        pillows = Image.fromarray(raw[:, :, 0] if channels == 1 else raw)
        rows = pillows.resize((to_width, height), Image.Resampling.BILINEAR)  # Pillow 13 may take columns first
        wanted = np.asarray(rows.resize((to_width, to_height), Image.Resampling.BILINEAR)).reshape(-1)
        more = {"shape": raw.shape, "height": to_height, "width": to_width}
        yield f"resize-{i}", Case("resize", raw.tobytes(), wanted, more)


FITS: tuple[Literal["shorter", "stretch", "letterbox"], ...] = ("shorter", "stretch", "letterbox")


def pictures() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(2)
    for i in range(80):
        height, width = (int(n) for n in random.integers(1, 90, 2))
        channels = int(random.choice([1, 2, 3, 3]))
        stats = (1, 3)[int(random.integers(2))] if channels == 3 else 1
        declared = Preprocess(
            resize=(resize := int(random.integers(1, 80)) if random.random() < 0.6 else None),
            fit=(fit := FITS[int(random.integers(3))] if resize else "shorter"),
            bars=int(random.choice([0, 114, 255])),
            crop=int(random.integers(1, 60)) if random.random() < 0.5 and fit == "shorter" else None,
            colour=("RGB", "BGR", "GRAY")[int(random.integers(3))],
            scale=float(random.choice([1.0, 1 / 255, 0.0078125, 2.5])),
            mean=tuple(random.normal(0, 60, stats).tolist()) if random.random() < 0.7 else (),
            std=tuple(random.uniform(0.1, 70, stats).tolist()) if random.random() < 0.7 else (),
            layout=("NCHW", "NHWC", "")[int(random.integers(3))],
        )
        yield from processed(f"picture-{i}", picture(random, height, width, channels), declared)


def clips() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(3)
    plain = Spectrogram(rate=16000, length=2000, frame=400, hop=160, fft=512)
    for i, declared in enumerate(
        (
            plain,
            dataclasses.replace(plain, bins=40, floor=1e-3),
            dataclasses.replace(plain, frame=512, hop=512, length=512),
            Spectrogram(rate=8000, length=333, frame=5, hop=7, fft=8, bins=2, floor=1e-9),
            Spectrogram(rate=8000, length=2, frame=1, hop=1, fft=2),
        )
    ):
        one = Preprocess(spectrogram=declared, scale=0.5, mean=(-4.0,), std=(2.5,), layout="NHWC")
        bins = declared.bins or declared.fft // 2 + 1
        each = Preprocess(spectrogram=declared, mean=tuple(random.normal(-4, 1, bins)), std=tuple(np.ones(bins)))
        for j, samples in enumerate((0, 1, declared.length, declared.length + 100, declared.length // 2)):
            loud = random.integers(-32768, 32768, samples).astype(np.int16)
            tone = (0.3 * np.sin(0.1 * np.arange(samples))).astype(np.float32)
            yield from processed(f"clip-{i}-{j}-loud", loud, (one, each)[j % 2])
            yield from processed(f"clip-{i}-{j}-tone", tone, (each, one)[j % 2])


def arithmetic() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(4)
    for i, dtype in enumerate(("float32", "int16", "float32")):
        x = (random.normal(0, 100, (7, 3))).astype(dtype)
        declared = Preprocess(scale=1 / 3, mean=((1.5,), (1.0, 2.0, 3.0), ())[i], std=((7.0,), (), (1.0, 0.1, 3.3))[i])
        yield from processed(f"arithmetic-{i}", x, declared)


def quantized() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(5)
    halves = (np.arange(-600, 600) / 2).astype(np.float32)
    wide = np.concatenate([random.normal(0, 200, 500), [1e30, -1e30, np.inf, -np.inf, 0.0, -0.0]]).astype(np.float32)
    for i, (x, scale, zero) in enumerate(
        itertools.product((halves, wide), (1.0, 0.5, 0.0235294122248888), (-128, 0, 127))
    ):
        for dtype in ("int8", "uint8"):
            shift = zero + (128 if dtype == "uint8" else 0)
            more = {"dtype": "float32", "as": dtype, "scale": scale, "zero_point": shift}
            wanted = tensors.quantized(x, Quantization((scale,), (shift,)), dtype)
            yield f"quantize-{i}-{dtype}", Case("quantize", little(x), wanted, more)


def dequantized() -> Iterator[tuple[str, Case]]:
    for i, (dtype, scale, zero) in enumerate((("int8", 0.1, -128), ("int8", 1e-3, 5), ("uint8", 0.0235294122, 131))):
        x = np.arange(256).astype(np.uint8).view(dtype)
        wanted = (x.astype(np.float32) - zero) * np.float32(scale)
        yield f"real-{i}", Case("real", x.tobytes(), wanted, {"dtype": dtype, "scale": scale, "zero_point": zero})


def scores() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(6)
    rows = [[0.0], [1.0, 1.0, 1.0], [1e4, -1e4, 9999.0], [-np.inf, 0.0, 1.0], [-1e38, -1e38], [0.0, -0.0, 0.0]]
    rows += [random.normal(0, 10, 1000).tolist(), random.integers(0, 5, 50).tolist()]
    for i, row in enumerate(rows):
        x = np.array(row, np.float32)
        powers = np.exp(x.astype(np.float64) - x.max())
        yield (
            f"softmax-{i}",
            Case("softmax", little(x), (powers / powers.sum()).astype(np.float32), {"dtype": "float32"}),
        )
        yield from best(f"top-{i}", x)
    yield from best("top-nan", np.array([np.nan, 1, np.nan, 3, -np.inf], np.float32))
    yield from best("top-none", np.array([], np.float32))


def best(name: str, x: Array) -> Iterator[tuple[str, Case]]:
    order = sorted(range(len(x)), key=lambda i: (bool(np.isnan(x[i])), 0.0 if np.isnan(x[i]) else -float(x[i]), i))
    for k in (0, 1, 3, 5, 2000):
        yield (
            f"{name}-{k}",
            Case("top", little(x), json.dumps(order[:k]).replace(" ", ""), {"dtype": "float32", "k": k}),
        )


def stored() -> Iterator[tuple[str, Case]]:
    random = np.random.default_rng(7)
    for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"):
        limits = np.iinfo(name)
        x = random.integers(limits.min, limits.max, 200, dtype=name, endpoint=True)
        x[:2] = limits.min, limits.max
        yield f"numbers-{name}", Case("numbers", little(x), x.astype(np.float64), {"dtype": name})
    every = np.arange(65536, dtype=np.uint16).view(np.float16)
    yield "numbers-float16", Case("numbers", little(every), every.astype(np.float64), {"dtype": "float16"})
    for name in ("float32", "float64"):
        x = np.append(random.normal(0, 1, 200), [np.inf, -np.inf, np.nan, 0.0, 1e-40]).astype(name)
        yield f"numbers-{name}", Case("numbers", little(x), x.astype(np.float64), {"dtype": name})
    yield "numbers-bool", Case("numbers", b"\0\1\1", np.array([0.0, 1.0, 1.0]), {"dtype": "bool"})
    yield "numbers-cut", Case("numbers", b"\0\1\1", REFUSED, {"dtype": "int16"})
    yield "numbers-text", Case("numbers", b"abc", REFUSED, {"dtype": "str"})
    yield "sha256-0", Case("sha256", b"", hashlib.sha256(b"").hexdigest())
    yield "sha256-1", Case("sha256", bytes(range(256)), hashlib.sha256(bytes(range(256))).hexdigest())


def far() -> Iterator[tuple[str, Case]]:
    for i, (wanted, found, rms, largest) in enumerate(
        (
            ([3.0, 4.0], [3.0, 4.0], 0.0, 0.0),
            ([3.0, 4.0], [3.0, 4.5], 0.1, 0.5),
            ([0.0, 0.0], [0.0, 0.0], 0.0, 0.0),
            ([0.0, 0.0], [0.0, 1.0], math.inf, 1.0),
            ([1.0, 1.0], [1.0, math.nan], math.inf, math.inf),
            ([1.0, math.inf], [1.0, math.inf], math.inf, math.inf),
            ([1.0, 1.0], [1.0, -math.inf], math.inf, math.inf),
        )
    ):
        both = np.array([*wanted, *found], np.float32)
        yield f"rms-{i}", Case("rms", little(both), np.array([rms, largest]), {"dtype": "float32"})


def boxes() -> Iterator[tuple[str, Case]]:
    for name, one in box_cases.cases():
        more = {"how": one.how, "outputs": one.outputs, "picture": one.picture, "declared": one.declared}
        yield name, Case("boxes", one.given, one.wanted, more)


def regions() -> Iterator[tuple[str, Case]]:
    for name, one in box_cases.region_cases():
        more = {"how": one.how, "shape": one.shape, "picture": one.picture, "declared": one.declared}
        yield name, Case("regions", one.given, one.wanted, more)


HOSTILE = '"\\</script>\u202e\u2028\0\x7f\ud83d\ude00'
TEXTS = {
    **{f"ok-{i}": text for i, text in enumerate(("null", " [ ] ", "{}", "-0.5e-3", "[1,2.5,true,false,null]", "12"))},
    "ok-labels": json.dumps(["cat", 'a "dog"', "\u0627\u0644", HOSTILE], ensure_ascii=True),
    "ok-nested": json.dumps({"a": [{"b": {"c": [1, 2, {"d": None}]}}], "e": 2**62, "f": 1e30, "g": -2.5, "": 1}),
    "ok-escapes": r'"\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00"',
    "ok-deep": "[" * 60 + "]" * 60,
}
WRONG = (
    *("", "[1,]", "[,1]", '{"a":1,}', "{a:1}", "01", "+1", "1.", ".5", "1e", "nul", "nulls", "NaN", "[1 2]", '{"a" 1}'),
    *('"\t"', r'"\x"', r'"\u12g4"', '"', "[", "]", "{", "1 1", "'a'", '{"a":1,"a":2}', "[1]//", "/**/1", "[" * 100),
    *("\ufeff1", "Infinity", "-", "\u0661"),
)


def texts() -> Iterator[tuple[str, Case]]:
    for name, text in TEXTS.items():
        yield f"json-{name}", Case("json", text.encode(), text)
    for i, text in enumerate(WRONG):
        yield f"json-wrong-{i}", Case("json", text.encode(), REFUSED)


GROUPS = (resizes, pictures, boxes, regions, clips, arithmetic, quantized, dequantized, scores, stored, far, texts)

# --------------------------------------------------------------------------- asking both languages


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> tuple[Path, dict[str, Case]]:
    """All of them, written for the programs; those of models with real data where that is here."""
    real = (shared_data / "manifest.json").is_file()
    names = [m if isinstance(m, str) else str(m.values[0]) for m in MODELS if real or isinstance(m, str)]
    found = dict(itertools.chain(*(of_model(name) for name in names), *(group() for group in GROUPS)))
    folder = tmp_path_factory.mktemp("cases")
    for name, case in found.items():
        (folder / f"{name}.in").write_bytes(case.given)
    told = [{"name": name, "do": case.do, **case.more} for name, case in found.items()]
    (folder / "cases.json").write_text(json.dumps(told), encoding="utf-8")
    return folder, found


def run(*command: str | Path) -> None:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def by_java(folder: Path) -> None:
    classes = folder / "classes"
    sources = [*sorted(JAVA.glob("*.java")), PROGRAMS / "Driver.java"]
    run("javac", "--release", "8", "-Xlint:all,-options", "-Werror", "-d", classes, *sources)
    run("java", "-Xmx512m", "-cp", classes, "Driver", folder)


def by_js(folder: Path) -> None:
    module = shutil.copy(JS, folder / "processing.mjs")
    run("node", PROGRAMS / "driver.mjs", module, folder)


LANGUAGES = [pytest.param("java", marks=pytest.mark.jdk), pytest.param("js", marks=pytest.mark.node)]


@pytest.fixture(scope="module", params=LANGUAGES)
def answers(request: pytest.FixtureRequest, cases: tuple[Path, dict[str, Case]]) -> Answers:
    """What the language answered to a case."""
    folder, _ = cases
    {"java": by_java, "js": by_js}[request.param](folder)
    return lambda name: (folder / f"{name}.{request.param}").read_bytes()


@pytest.fixture
def asked(cases: tuple[Path, dict[str, Case]], answers: Answers) -> Callable[[str], list[tuple[str, Case, bytes]]]:
    """The cases whose names begin so, with the answers."""

    def those(prefix: str) -> list[tuple[str, Case, bytes]]:
        found = [(name, case, answers(name)) for name, case in cases[1].items() if name.startswith(prefix)]
        assert found, prefix
        return found

    return those


Asked = Callable[[str], list[tuple[str, Case, bytes]]]


def error(case: Case, answer: bytes) -> float:
    """The largest difference from Python's answer: of real numbers relative to the largest of them, else absolute."""
    assert not answer.startswith(b"refused"), answer
    wanted = np.asarray(case.wanted)
    found = np.frombuffer(answer, wanted.dtype.newbyteorder("<"))
    assert found.size == wanted.size
    apart = np.abs(found.astype(np.float64) - wanted.reshape(-1))
    scale = np.abs(wanted).max(initial=1.0) if wanted.dtype.kind == "f" else 1.0
    return float(apart.max(initial=0.0) / scale)


def numbers_of(answer: bytes) -> Array:
    return np.array([float(line) for line in answer.decode().split()])


# --------------------------------------------------------------------------- what is promised


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_this_repository_is_fed_as_python_feeds_it(asked: Asked, name: str) -> None:
    found = asked(f"model-{name}-")
    assert len(found) == 3 * ITEMS
    audio = found[0][1].more["declared"]["spectrogram"] is not None
    for case_name, case, answer in found:
        whole = case.more["as"] != "float32"
        assert error(case, answer) <= (0 if not audio else 1 if whole else 1e-6), case_name


def test_resizing_is_pillows_to_the_bit(asked: Asked) -> None:
    for name, case, answer in asked("resize-"):
        assert answer == case.wanted.tobytes(), (name, case.more)


@pytest.mark.parametrize("group", ["picture-", "arithmetic-"])
def test_any_declared_processing_is_pythons_to_the_bit_or_refused_by_both(asked: Asked, group: str) -> None:
    for name, case, answer in asked(group):
        if isinstance(case.wanted, str):
            assert answer.startswith(b"refused: "), (name, case.more)
        else:
            assert error(case, answer) == 0, (name, case.more)


def test_random_pictures_are_processed_and_refused(cases: tuple[Path, dict[str, Case]]) -> None:
    refused = [isinstance(c.wanted, str) for n, c in cases[1].items() if n.startswith("picture-") and "float" in n]
    assert 10 < sum(refused) < 60


def test_spectrograms_are_within_a_millionth(asked: Asked) -> None:
    for name, case, answer in asked("clip-"):
        assert error(case, answer) <= (1e-6 if case.more["as"] == "float32" else 1), (name, case.more)


@pytest.mark.parametrize("group", ["quantize-", "real-", "softmax-"])
def test_numbers_are_pythons(asked: Asked, group: str) -> None:
    for name, case, answer in asked(group):
        assert error(case, answer) <= (1e-6 if group == "softmax-" else 0), (name, case.more)


@pytest.mark.parametrize("group", ["numbers-", "rms-"])
def test_stored_numbers_and_their_errors_are_read_alike(asked: Asked, group: str) -> None:
    for name, case, answer in asked(group):
        if isinstance(case.wanted, str):
            assert answer.startswith(b"refused: "), name
        else:
            assert np.allclose(numbers_of(answer), case.wanted, rtol=1e-15, atol=0, equal_nan=True), name


def test_boxes_are_pythons_one_by_one(asked: Asked) -> None:
    """Of 1,000 outputs the same boxes in the same order; scores and corners to the last digits of an exponential."""
    for name, case, answer in asked("boxes-"):
        assert not answer.startswith(b"refused"), (name, answer)
        found = numbers_of(answer)
        assert found.size == case.wanted.size and np.allclose(found, case.wanted, rtol=1e-12, atol=1e-9), (
            name,
            case.more,
        )


def test_random_boxes_are_many_few_and_none() -> None:
    found = [one for _, one in box_cases.cases()]
    counts = [one.count for one in found]
    assert counts.count(0) > 50 and counts.count(1) > 50 and counts.count(100) > 20 and len(counts) == 1003
    marked = [(one.how["points"]["name"], one.how["point"], one.how["format"]) for one in found if one.how["points"]]
    assert {*marked} == {*itertools.product(("y", "points"), (2, 3), box_cases.FORMATS)}


def test_the_class_of_each_pixel_is_pythons(asked: Asked) -> None:
    for name, case, answer in asked("regions-"):
        assert answer == case.wanted.tobytes(), (name, case.more)


def test_random_regions_are_of_each_kind() -> None:
    found = [one for _, one in box_cases.region_cases()]
    assert {(one.how["axis"], one.how["single"]) for one in found} == {
        *itertools.product((1, 3), ("", "probability", "logit")),
        (None, ""),
    }
    unseen = sum(bool((one.wanted == 255).any()) for one in found)
    assert 20 < unseen < 180 and sum(len(np.unique(one.wanted)) > 2 for one in found) > 80


@pytest.mark.parametrize("group", ["top-", "sha256-"])
def test_best_classes_and_hashes_are_pythons(asked: Asked, group: str) -> None:
    for name, case, answer in asked(group):
        assert answer.decode() == case.wanted, name


@pytest.mark.parametrize("answers", [pytest.param("java", marks=pytest.mark.jdk)], indirect=True)
def test_javas_json_is_strict_and_plain(asked: Asked) -> None:
    for name, case, answer in asked("json-"):
        if name.startswith("json-wrong-"):
            assert answer.startswith(b"refused: not JSON: "), case.given
        else:
            assert json.loads(answer) == json.loads(case.wanted), name
            assert all(32 <= byte < 127 for byte in answer), name


def test_the_java_sources_need_nothing_but_java_and_no_newer_bytecode() -> None:
    for source in JAVA.glob("*.java"):
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", source.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert all(name.startswith("java.") for name in re.findall(r"^import (\S+);", code, flags=re.MULTILINE))
        assert "->" not in code, f"{source.name}: old tools that make dex files know no lambdas"
