"""Swift packages under a real Swift: compiled, tested by XCTest, their processing against Python's; runtimes replayed.

What stands in for Apple's frameworks and the runtimes' Swift packages has their signatures and is in data/swift.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import box_cases
import numpy as np
import prove
import pytest
import swiftlang
from ios_contents import INT8, PICTURE, built

from edgecompress.core.model import TensorSpec
from edgecompress.core.package_contents import Contents, artifact
from edgecompress.core.settings import Preprocess, Spectrogram
from edgecompress.data import preprocess, tensors
from edgecompress.extras.apps.packagers import ios
from edgecompress.reporting import external_results

pytestmark = [pytest.mark.slow, pytest.mark.swift]

DATA = Path(__file__).with_name("data") / "swift"
SYSTEM = ("CryptoKit", "CoreML")
SOURCES = Path(ios.__file__).with_name("templates") / "ios" / "sources"
PURE = (
    "Boxes",
    "Numbers",
    "Picture",
    "Processing",
    "Resize",
    "Segments",
    "Spectrogram",
    "Engine",
)  # nothing of Apple's, no constants
STRICT = ("-swift-version", "5", "-warnings-as-errors")
STRICTLY = ("-Xswiftc", "-strict-concurrency=complete")


def swift(work: Path, tool: str, *arguments: str) -> str:
    """What a tool says that succeeds."""
    done = swiftlang.swift(work, tool, *arguments)
    assert done.returncode == 0, f"{tool}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


# --------------------------------------------------------------------------- the whole package


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Modules in the place of Apple's, compiled."""
    work = tmp_path_factory.mktemp("system")
    for file in (DATA / "Replay.swift", *(DATA / "system").iterdir()):
        shutil.copy(file, work)
    for name in SYSTEM:
        sources = [f"/given/{name}.swift", *(["/given/Replay.swift"] if name == "CoreML" else [])]
        made = ("-emit-module-path", f"/given/{name}.swiftmodule", "-o", f"/given/lib{name}.a")
        how = ("-parse-as-library", "-emit-module", "-emit-library", "-static", "-module-name", name)
        swift(work, "swiftc", *how, *made, *sources)
    return work


def laid(work: Path, system: Path, kind: str, **how: Any) -> tuple[Path, Contents]:
    """A package whose runtime's Swift package is the local one, beside the answers that its runtime replays."""
    root, given = built(work, kind=kind, **how)
    shutil.copytree(system, work / "system")
    _answers(work / "replay", given)
    for package in (DATA / "packages").iterdir():
        shutil.copytree(package, work / "packages" / package.name)
        shutil.copy(DATA / "Replay.swift", next((work / "packages" / package.name / "Sources").iterdir()))
    swiftlang.put_zlib(work / "zlib")
    shutil.copy(DATA / "Tasks.swift", root / "Tests" / "SmallPetsTests")
    (call,) = re.findall(r"```swift\n *import SmallPets\n(.*?)```", (root / "README.md").read_text(), re.S)
    (root / "Sources/benchmark/Readme.swift").write_text(f"import SmallPets\n\nfunc readme() throws {{{call}}}\n")
    manifest = root / "Package.swift"
    text = re.sub(
        r'\.package\(\s*url: "[^"]*/([^"/]+)",[^)]*\)', r'.package(path: "/given/packages/\1")', manifest.read_text()
    )
    manifest.write_text(text.replace("-all_load", "--no-as-needed"))  # GNU's linker knows no -all_load
    return root, given


def _answers(folder: Path, given: Contents) -> None:
    """What the runtime is asked and answers: the golden items, as the model stores them."""
    folder.mkdir()
    model = artifact(given.card, given.payload)
    for side, specs in (("input", model.inputs), ("output", model.outputs)):
        (folder / f"{side}s.txt").write_text("\n".join(spec.name for spec in specs))
        for index, spec in enumerate(specs):
            item = given.card["golden"][f"{side}s"][index]
            array = np.fromfile(given.payload / item["file"], item["dtype"])
            (folder / f"{side}-{index}.bin").write_bytes(tensors.fitted(array, spec).tobytes())


def package(root: Path, tool: str, *arguments: str) -> Any:
    """`swift build` and the like, of a package."""
    linked = [f"-Xlinker=-l{name}" for name in SYSTEM]
    zlib = ["-Xcc", "-I/given/zlib", "-Xlinker", "-L/given/zlib"]
    flags = [*STRICTLY, "-Xswiftc", "-I/given/system", "-Xlinker", "-L/given/system", *zlib, *linked]
    flags = [part for flag in flags for part in (flag.split("=") if flag.startswith("-Xlinker=") else [flag])]
    place = f"/given/{root.name}"
    return swiftlang.swift(root.parent, "swift", tool, "--disable-sandbox", "--package-path", place, *flags, *arguments)


def steps(done: Any) -> dict[str, bool]:
    """What the benchmark command says of the self-test."""
    found = re.findall(r"^(pass|FAIL)  (\w+): ", done.stderr, re.M)
    return {name: said == "pass" for said, name in found}


def benchmark(root: Path) -> Any:
    return swiftlang.swift(
        root.parent, f"/given/{root.name}/.build/debug/{root.name.removesuffix('-ios')}-benchmark", "25"
    )


@dataclasses.dataclass(frozen=True)
class Tested:
    """A package, what is in it, and how `swift test` of it ended."""

    root: Path
    given: Contents
    done: Any


@pytest.fixture(scope="module")
def built_and_tested(tmp_path_factory: pytest.TempPathFactory, system: Path) -> Callable[[str], Tested]:
    """A package of a kind, built and tested once."""

    @functools.cache
    def made(kind: str) -> Tested:
        root, given = laid(
            tmp_path_factory.mktemp(kind), system, kind, quantized=kind == "tflite", packed=kind == "pte"
        )
        return Tested(root, given, package(root, "test"))

    return made


@pytest.mark.parametrize("kind", prove.some(ios.FORMATS, 1))
@pytest.mark.prove
def test_a_package_builds_and_tests_itself_and_measures(built_and_tested: Callable[[str], Tested], kind: str) -> None:
    one = built_and_tested(kind)
    root, given, done = one.root, one.given, one.done
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Executed 3 tests, with 0 failures" in done.stdout + done.stderr
    assert "warning:" not in done.stdout.replace("warning: 'system'", "")
    told = benchmark(root)
    assert told.returncode == 0 and steps(told) == dict.fromkeys(("files", "processing", "inference", "labels"), True)
    found = external_results.parsed(told.stdout.encode(), "the benchmark")
    assert found.model.sha256 == external_results.digest(artifact(given.card, given.payload))
    assert found.self_test == "pass" and len(found.latencies_ns) == 25
    assert found.clock == "ContinuousClock" and found.device.platform.startswith("linux-")


@pytest.mark.parametrize("declared", [PICTURE, None], ids=["picture", "numbers"])
@pytest.mark.parametrize("task", ["detect", "segment"])
@pytest.mark.prove
def test_the_package_of_what_finds_things_builds_and_tests_itself(
    tmp_path: Path, system: Path, task: str, declared: Preprocess | None
) -> None:
    root, _ = laid(tmp_path, system, "onnx", task=task, declared=declared)
    done = package(root, "test")
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert steps(benchmark(root)) == dict.fromkeys(("files", "processing", "inference", "labels"), True)


@pytest.fixture(scope="module")
def tested(built_and_tested: Callable[[str], Tested]) -> Path:
    """A built package whose self-test passes."""
    root = built_and_tested("mlpackage").root
    assert all(steps(benchmark(root)).values())
    return root


@pytest.mark.parametrize(
    ("file", "fails"),
    [
        ("golden/raw.bin", {"files", "processing"}),
        ("golden/input-0.bin", {"files", "inference", "labels", "processing"}),
        ("golden/output-0.bin", {"files", "inference", "labels"}),
        ("model/model.mlpackage/Data/com.apple.CoreML/model.mlmodel", {"files"}),
        ("model/model.mlpackage/Manifest.json", {"files"}),
        ("labels.json", {"files"}),
    ],
)
@pytest.mark.prove
def test_the_self_test_fails_for_any_changed_byte(tested: Path, file: str, fails: set[str]) -> None:
    place = next(tested.glob(".build/debug/*.resources")) / file
    whole = place.read_bytes()
    place.chmod(0o644)
    try:
        place.write_bytes(whole[:3] + bytes([whole[3] ^ 0x40]) + whole[4:])
        done = benchmark(tested)
    finally:
        place.write_bytes(whole)
    failed = {name for name, ok in steps(done).items() if not ok}
    assert done.returncode != 0
    assert "files" in failed and failed <= fails


@pytest.mark.prove  # it is built twice; test_package_ios.py finds the same in the package
def test_the_self_test_fails_for_a_changed_constant_of_the_normalisation(tested: Path) -> None:
    spec = tested / "Sources" / "SmallPets" / "ModelSpec.swift"
    whole = spec.read_text()
    try:
        spec.write_text(whole.replace("0.485", "0.4851"))
        assert package(tested, "build").returncode == 0
        assert steps(benchmark(tested))["processing"] is False
    finally:
        spec.write_text(whole)
        assert package(tested, "build").returncode == 0
    card = next(tested.glob(".build/debug/*.resources")) / "model_card.json"
    told = card.read_text()
    card.chmod(0o644)
    card.write_text(told.replace("0.485", "0.4851"))
    assert steps(benchmark(tested))["processing"] is False
    card.write_text(told)


# --------------------------------------------------------------------------- its processing against Python's


@dataclasses.dataclass(frozen=True)
class Case:
    """Raw data and what is declared of them."""

    name: str
    raw: np.ndarray[Any, Any]
    declared: Preprocess


def pictures() -> list[Case]:
    """Sizes that shrink and grow, odd crops, each colour, with and without normalisation."""
    random = np.random.default_rng(11)
    sizes = ((12, 10, 3), (57, 31, 3), (31, 57, 3), (8, 8, 3), (300, 401, 3), (33, 33, 1), (224, 224, 3), (7, 5, 3))
    raws = [random.integers(0, 256, size).astype(np.uint8) for size in sizes]
    declared = [
        PICTURE,
        Preprocess(resize=20, crop=17, colour="BGR", scale=1 / 127.5, mean=(1.0,), layout="NHWC"),
        Preprocess(resize=23, colour="GRAY", scale=0.0625, mean=(0.3,), std=(0.37,), layout="NCHW"),
        Preprocess(crop=5, layout="NCHW", scale=1 / 255),
        Preprocess(resize=64, crop=63, layout="NHWC", scale=1 / 255, mean=(0.5,) * 3, std=(0.25, 0.3, 0.4)),
        Preprocess(resize=40, fit="letterbox", layout="NCHW", scale=1 / 255),
        Preprocess(resize=33, fit="stretch", layout="NHWC", scale=1 / 255),
    ]
    fits = [(raw, how) for raw in raws for how in declared if raw.shape[2] == 3 or how.colour == "GRAY"]
    return [Case(f"picture {raw.shape} {i}", raw, how) for i, (raw, how) in enumerate(fits)]


def sounds() -> list[Case]:
    """With and without mel bands, clips that are cut and filled, 16 bits and real numbers."""
    random = np.random.default_rng(12)
    clips = [random.normal(0, 0.2, length).astype(np.float32) for length in (700, 1000, 1500)]
    raws = [*clips, (clips[1] * 32768).clip(-32768, 32767).astype(np.int16)]
    how = [
        Preprocess(spectrogram=Spectrogram(rate=8000, length=1000, frame=256, hop=128, fft=256)),
        Preprocess(
            spectrogram=Spectrogram(rate=8000, length=1000, frame=200, hop=80, fft=512, bins=20, floor=1e-4),
            mean=(-3.0,),
            std=(2.5,),
        ),
    ]
    return [Case(f"sound {i} {j}", raw, declared) for i, raw in enumerate(raws) for j, declared in enumerate(how)]


def wanted(case: Case) -> np.ndarray[Any, Any]:
    """What Python makes of it."""
    item = preprocess.geometry(case.raw, case.declared)
    return preprocess.numbers(item[None], case.declared)[0]


def told(case: Case, index: int) -> dict[str, Any]:
    """A case as the driver reads it."""
    how, sound = case.declared, case.declared.spectrogram
    shape = [*case.raw.shape, 1][:3] if case.raw.ndim > 1 else []
    return {
        "raw": f"raw-{index}.bin", "dtype": str(case.raw.dtype), "shape": shape,
        "resize": how.resize, "fit": how.fit, "bars": how.bars, "crop": how.crop, "colour": how.colour,
        "scale": how.scale, "mean": list(how.mean), "std": list(how.std), "first": how.layout == "NCHW",
        "sound": [sound.rate, sound.frame, sound.hop, sound.fft, sound.bins or 0, sound.length] if sound else None,
        "floor": sound.floor if sound else 0,
    }  # fmt: skip


def run(work: Path, cases: Sequence[Case]) -> list[np.ndarray[Any, Any]]:
    """What Swift makes of them: of each the numbers, as float32 and quantized; and of box_cases.py all."""
    for name in PURE:
        shutil.copy(SOURCES / f"{name}.swift", work)
    shutil.copy(DATA / "vectors.swift", work / "main.swift")
    (work / "cases.json").write_text(json.dumps([told(case, i) for i, case in enumerate(cases)]))
    for i, case in enumerate(cases):
        (work / f"raw-{i}.bin").write_bytes(case.raw.tobytes())
    for file, found in (("boxes", box_cases.cases()), ("regions", box_cases.region_cases())):
        each = []
        for name, one in found:
            (work / f"{name}.in").write_bytes(one.given)
            shapes = {"shape": one.shape} if isinstance(one, box_cases.Regions) else {"outputs": one.outputs}
            sized = {key: one.declared[key] for key in ("resize", "fit", "crop")}
            each.append({"name": name, "how": one.how, "picture": one.picture, **shapes, **sized})
        (work / f"{file}.json").write_text(json.dumps(each))
    sources = [f"/given/{name}.swift" for name in (*PURE, "main")]
    swift(work, "swiftc", "-O", *STRICT, *sources, "-o", "/given/vectors")
    swift(work, "/given/vectors", str(INT8.scale[0]), str(INT8.zero_point[0]))
    return [np.fromfile(work / f"out-{i}.bin", np.float32) for i in range(len(cases))]


@pytest.mark.prove  # packed_files compiles Swift in the short form
def test_the_processing_is_pythons_and_so_are_boxes_and_regions(tmp_path: Path) -> None:
    cases = [*pictures(), *sounds()]
    assert len(cases) > 40
    spec = TensorSpec("x", (1,), "int8", "", INT8)
    for i, (case, found) in enumerate(zip(cases, run(tmp_path, cases), strict=True)):
        right = wanted(case).astype(np.float32).ravel()
        assert found.shape == right.shape, case.name
        assert np.abs(found - right).max() <= 1e-6 * max(1, np.abs(right).max()), case.name
        steps_off = np.fromfile(tmp_path / f"stored-{i}.bin", np.int8).astype(int) - tensors.fitted(right, spec)
        assert np.abs(steps_off).max() <= (1 if case.declared.spectrogram else 0), case.name
        if not case.declared.spectrogram:
            assert (found == right).all(), case.name
    for name, one in box_cases.cases():
        boxes = np.array([float(word) for word in (tmp_path / f"{name}.swift").read_text().split()])
        assert boxes.shape == one.wanted.shape and np.allclose(boxes, one.wanted, rtol=1e-12, atol=1e-9), name
    for name, region in box_cases.region_cases():
        assert (tmp_path / f"{name}.swift").read_bytes() == region.wanted.tobytes(), name
