"""The emulated arm64 machine: how it is built and what stops that, what it says of itself, and a deploy to it."""

from __future__ import annotations

import dataclasses
import json
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pins
import prove
import psutil
import pytest
import vectors

from edgecompress.core import catalog
from edgecompress.core.errors import DiskFull, InputError, StageFailed, Unreachable
from edgecompress.device.emulation import build, cpus, emulator
from edgecompress.device.emulation.emulator import PYTHON
from edgecompress.engines.executorch import native
from edgecompress.engines.executorch.runtimes import executorch
from edgecompress.plugins.transports import qemu, valgrind
from edgecompress.testing import conformance

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
EDGECOMPRESS = [sys.executable, "-m", "edgecompress.cli.main"]


A53 = {"options": {"cpu": "cortex-a53"}}


def device(name: str) -> dict[str, Any]:
    return dataclasses.asdict(catalog.device(name).value)


# --------------------------------------------------------------------------- as any transport


@pytest.mark.qemu
def test_it_conforms(tmp_path: Path) -> None:
    conformance.check_transport("qemu", tmp_path, device("qemu-cortex-a76"))


@pytest.mark.valgrind
def test_valgrind_conforms_and_shows_no_wider_vectors_than_it_knows(tmp_path: Path) -> None:
    conformance.check_transport("valgrind", tmp_path, device("valgrind-x86"))
    assert set(valgrind.connect({}).facts()["features"]) <= {"avx2"}


def test_valgrind_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(Unreachable, match=r"transport valgrind: (valgrind is not installed|it simulates Linux)"):
        valgrind.connect({})


@pytest.mark.qemu
@pytest.mark.parametrize(
    ("name", "cpu", "features"),
    [
        ("cortex-a53", "Cortex-A53", set()),
        ("cortex-a76", "Cortex-A76", {"asimddp", "asimdhp"}),
        ("neoverse-v1", "Neoverse-V1", {"asimddp", "asimdhp", "sve", "i8mm", "bf16"}),
    ],
)
def test_facts_are_those_of_the_core_and_none_of_this_machine(name: str, cpu: str, features: set[str]) -> None:
    facts = qemu.connect(device(f"qemu-{name}")).facts()
    assert (facts["cpu"], facts["platform"], facts["cores"]) == (cpu, "linux-aarch64", cpus.CORES)
    assert set(facts["features"]) == {"asimd", *features}
    assert facts["memory_bytes"] is facts["governor"] is facts["now"]["cpu_mhz"] is None
    assert facts["virtual"].startswith("QEMU ") and facts["emulator"]["onnxruntime"] == build.WHEELS["onnxruntime"]


@pytest.mark.qemu
def test_a_program_sees_the_core_and_an_environment_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHOME", str(tmp_path))  # would break any Python that heeded it
    shell, log = qemu.connect(device("qemu-cortex-a72")), tmp_path / "log"
    code = "import os, platform; print(platform.machine(), open('/proc/cpuinfo').read(), sorted(os.environ))"
    assert shell.run([shell.facts()["python"], "-c", code], 60, log) == 0
    said = log.read_text()
    assert said.startswith("aarch64") and said.count("0xd08") == cpus.CORES and "PYTHONHOME" not in said


@pytest.mark.qemu
@pytest.mark.parametrize("name", [path.stem for path in sorted(catalog.shipped("devices").glob("qemu-*.toml"))])
def test_the_vectors_of_a_core_are_as_long_as_its_device_says(name: str, tmp_path: Path) -> None:
    shell, log, asked = (
        qemu.connect(device(name)),
        tmp_path / "log",
        "import ctypes; print(ctypes.CDLL(None).prctl(51))",
    )
    assert shell.run([shell.facts()["python"], "-c", asked], 60, log) == 0  # PR_SVE_GET_VL
    told = int(log.read_text())
    assert (8 * (told & 0xFFFF) if told > 0 else 128) == catalog.device(name).value.vector_bits


@pytest.mark.qemu
def test_nothing_outlives_the_process_that_runs_it(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path\nfrom edgecompress.plugins.transports import qemu\n"
        "shell = qemu.connect({'options': {'cpu': 'cortex-a53'}})\n"
        f"shell.run(['sleep', '600'], 600, Path({str(tmp_path / 'log')!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", code])
    end = time.monotonic() + 20
    while not (children := psutil.Process(parent.pid).children()) and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(1.0)  # it is tied by the first program of its chain
    parent.kill()
    parent.wait()
    assert children
    _, alive = psutil.wait_procs(children, timeout=5)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_a_core_that_there_is_not_is_the_users_error() -> None:
    with pytest.raises(InputError, match=r"options.cpu 'cortex-a75', did you mean 'cortex-a53' or 'cortex-a7"):
        qemu.connect({"options": {"cpu": "cortex-a75"}})


def test_the_machine_tells_the_engine_where_executorch_is() -> None:
    told = emulator.Emulator(Path("m"), {}).environment(Path("counts"))
    assert told[native.LIBRARY] == "m/native/executorch.so"


@pytest.mark.qemu
def test_executorch_without_torch_says_why_it_refuses_a_file(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    model = executorch.empty(tmp_path / "model")
    file = model.file(".pte")
    file.write_bytes(file.read_bytes()[:-8])
    code = (
        f"import sys; sys.path.append({str(ROOT)!r})\nfrom pathlib import Path\n"
        "from edgecompress.core.model import Artifact\n"
        "from edgecompress.engines.executorch.runtimes import executorch\n"
        f"executorch.open(Artifact.read(Path({str(model.path)!r})), 1)"
    )
    shell, log = qemu.connect(device("qemu-cortex-a76")), tmp_path / "log"
    assert shell.run([PYTHON, "-P", "-c", code], 60, log) == 1
    assert "StageFailed: runtime executorch: model.pte: ExecuTorch's error Invalid" in log.read_text()


# --------------------------------------------------------------------------- building it


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place where nothing is built yet, on a machine that could."""
    monkeypatch.setenv(emulator.PLACE, str(tmp_path / "machine"))
    monkeypatch.delenv(build.OFFLINE, raising=False)
    monkeypatch.setattr(platform, "system", lambda: "Linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(build, "KEYRING", tmp_path)
    monkeypatch.setattr(Path, "is_file", Path.exists)
    return tmp_path / "machine"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that were taken, each of them an empty one."""
    taken: list[str] = []

    def taking(name: str) -> Any:
        return lambda *given: taken.append(name)

    for name in ("_lists", "_unpack", "_userland", "_wheels", "_native", "_plugin", "_cpus", "_first_run"):
        monkeypatch.setattr(build, name, taking(name))
    monkeypatch.setattr(build, "_versions", lambda state: {"qemu": "0", **build.WHEELS})
    return taken


def test_it_is_built_beside_and_then_put_in_place(empty: Path, steps: list[str]) -> None:
    said: list[str] = []
    assert qemu.unavailable(A53) == "not built: run `edgecompress device build qemu-arm64`"
    assert build.build(said.append) == empty
    assert qemu.unavailable(A53) == "" and len(steps) == len(said) == 8
    assert [p.name for p in empty.parent.iterdir() if "machine" in p.name and p != empty] == [".machine.lock"]
    build.build(said.append)
    assert len(steps) == 8, "what is built is not built again"


def test_an_interrupted_build_goes_on_where_it_was(
    empty: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(out: Path) -> None:
        raise StageFailed("no network")

    with monkeypatch.context() as patch:
        patch.setattr(build, "_wheels", broken)
        with pytest.raises(StageFailed, match="no network"):
            build.build(lambda step: None)
    assert not empty.exists()
    del steps[:]
    build.build(lambda step: None)
    assert steps == ["_wheels", "_native", "_plugin", "_cpus", "_first_run"]


def test_another_recipe_is_built_anew_and_replaces_the_old(
    empty: Path, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build.build(lambda step: None)
    (empty / "old").touch()
    monkeypatch.setattr(build, "SUITE", "another")
    assert qemu.unavailable(A53)
    build.build(lambda step: None)
    assert not (empty / "old").exists() and qemu.unavailable(A53) == ""


def test_a_device_that_is_not_built_is_built_when_it_is_first_needed(
    empty: Path, steps: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert qemu.connect(device("qemu-cortex-a72")).facts()["cpu"] == "Cortex-A72"
    assert capsys.readouterr().err.count("\n") == 1


MISSING = {
    "offline": (
        {"env": "1"},
        InputError,
        "--offline allows no downloads; run `edgecompress device build qemu-arm64`",
    ),
    "macOS": ({"system": "Darwin"}, InputError, "built on Linux x86_64 only, and this is Darwin x86_64"),
    "arm": ({"machine": "aarch64"}, InputError, "built on Linux x86_64 only, and this is Linux aarch64"),
    "gcc": ({"lacks": "gcc"}, InputError, "needs gcc; install it"),
    "apt": ({"lacks": "apt-get"}, InputError, "needs apt-get; install it"),
    "disk": ({"mib": 10**12}, DiskFull, "MiB free, 1000000000000 are needed; set EDGECOMPRESS_EMULATED"),
}


@pytest.mark.parametrize("what", MISSING)
def test_what_is_missing_is_one_line(what: str, empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lacking, kind, says = MISSING[what]
    if "env" in lacking:
        monkeypatch.setenv(build.OFFLINE, "1")
    for name in {"system", "machine"} & set(lacking):
        monkeypatch.setattr(platform, name, lambda: lacking[name])  # noqa: B023 (there is one)
    if "lacks" in lacking:
        monkeypatch.setattr(shutil, "which", lambda name: None if name == lacking["lacks"] else name)
    monkeypatch.setattr(build, "NEEDS_MIB", lacking.get("mib", 0))
    with pytest.raises(kind, match=re.escape(says)):
        build.build(lambda step: None)
    with pytest.raises(Unreachable, match=re.escape(says)):
        qemu.connect(device("qemu-cortex-a53"))


@pytest.mark.skipif(not shutil.which("apt-get") or not build.KEYRING.is_file(), reason="needs Debian's apt")
@pytest.mark.skipif(not shutil.which("gcc"), reason="gcc not installed (Debian: apt-get install gcc)")
def test_a_mirror_that_does_not_answer_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(emulator.PLACE, str(tmp_path / "machine"))
    monkeypatch.delenv(build.OFFLINE, raising=False)
    monkeypatch.setenv(build.MIRROR, "http://127.0.0.1:9/debian")
    with pytest.raises(StageFailed, match=r"apt-get: E: .*127\.0\.0\.1.*run the command again, it resumes$") as caught:
        build.build(lambda step: None)
    assert "\n" not in str(caught.value) and not (tmp_path / "machine").exists()


def test_the_wheels_are_the_versions_that_run_here() -> None:
    assert {name: pins.PINS[name] for name in build.WHEELS} == build.WHEELS


# --------------------------------------------------------------------------- end to end


# test_ssh_emulated.py runs the other runtimes.
OTHERS = ("onnx", "executorch") if prove.WHOLE else ()
VARIANTS = ("int8", *(f"{name}-int8" for name in OTHERS), "fp32")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory, shared_store: Path) -> Iterator[Path]:
    """The embedded demo, deployed to an emulated Cortex-A76."""
    folder = tmp_path_factory.mktemp("emulated")
    words = f"deploy --target arm64 --device qemu-cortex-a76 --profile quick --only {','.join(VARIANTS)} --quiet"
    settings = ["--set", "profile.count_runs=3"]
    (folder / "store").symlink_to(shared_store)
    shared_store.mkdir(exist_ok=True)
    done = ran([*words.split(), *settings, "--store", "store", "--out", "a76"], folder)
    assert done.returncode == 0, done.stderr
    yield folder


def ran(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*EDGECOMPRESS, *words], cwd=folder, capture_output=True, text=True, timeout=500)


def variants(report: Path) -> dict[str, dict[str, Any]]:
    return {v["name"]: v for v in json.loads(report.read_text())["variants"]}


@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.prove
def test_a_deploy_ships_the_variant_with_the_fewest_instructions(shipped: Path) -> None:
    found = variants(shipped / "a76" / "report.json")
    counts = {name: v["count"]["instructions"] for name, v in found.items()}
    assert set(counts) == {*VARIANTS} and found[min(counts, key=counts.__getitem__)]["verdict"] == "shipped"
    for variant in found.values():
        assert variant["count"]["identical"] and len(set(variant["count"]["processes"])) == 1
        assert variant["numbers"]["latency"]["value"] is None, "an emulator's seconds are never told"
    sums = {name: v["count"]["classes"]["SDOT"] for name, v in found.items()}
    assert {name: count > 100_000 for name, count in sums.items()} == {name: name != "fp32" for name in VARIANTS}


@pytest.mark.prove  # in the short form test_ssh_emulated.py has a net answer there as here
@pytest.mark.qemu
@pytest.mark.slow
@pytest.mark.skipif(vectors.adds_in_16_bits(), reason=vectors.WHY)
def test_it_answers_there_as_here(shipped: Path) -> None:
    cards = [json.loads(card.read_text()) for card in shipped.glob("store/store/*/artifact/artifact.json")]
    every = [card["facts"] for card in cards if card["kind"] == "agreement"]
    agreements = [facts for facts in every if facts["environment"]["machine"] == "aarch64"]
    assert {facts["environment"]["runtime"] for facts in agreements} == {"litert", *OTHERS}
    for facts in agreements:
        assert [output["moved"] <= 0.02 for output in facts["outputs"]] == [True]


@pytest.mark.prove
@pytest.mark.qemu
@pytest.mark.slow
def test_what_shipped_uses_another_kernel_on_a_core_without_dot_products(shipped: Path) -> None:
    words = "profile a76 --device qemu-cortex-a72 --profile quick --set profile.count_runs=3 --json --store store"
    done = ran(words.split(), shipped)
    assert done.returncode == 0, done.stderr
    (profiled,) = variants(Path(json.loads(done.stdout)["report"]) / "report.json").values()
    here = variants(shipped / "a76" / "report.json")["int8"]["count"]
    there = profiled["count"]
    assert there["identical"] and there["classes"].get("SDOT", 0) == 0 < there["classes"]["MLAL"]
    assert there["instructions"] > 1.5 * here["instructions"]
