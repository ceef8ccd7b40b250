"""The demo to every target in one run: each ships, what they share is made once, and no library is loaded in vain."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import nulls
import prove
import pytest

import edgecompress
from edgecompress.commands import deploy
from edgecompress.commands.job_run import Result
from edgecompress.core import catalog, environments, registry
from edgecompress.core.model import Artifact
from edgecompress.pipeline import job, plan
from edgecompress.pipeline.store import Store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TARGETS = ("arm64", "android", "ios", "macos", "gpu", "jetson", "ethos-u55", "vector-avx512", "web", "x86")
EMULATED = {"vector-neon", "vector-sve", "snapdragon"}  # in test_vector_targets.py, test_qnn.py
TRAINED = {"variant.pruned-int8.finetune.epochs": 1, "variant.pruned-int8.finetune.distill": 0.0}
BRIEF = {target: {**nulls.FAST, **(TRAINED if target in ("ethos-u55", "vector-avx512") else {})} for target in TARGETS}
SEARCH, STRENGTH = (
    "latency_ratio = 0.6",
    "macs = 0.5, align = 16",
)  # what a search by measuring ends with is not the question here
SHARED = ("data", "source", "golden", "excerpt", "trace", "export-onnx")
# Libraries that take seconds and hundreds of megabytes, and the calls that need them. A check reads the tables of all
# converters that a program goes to in one process, which loads torch once.
READS = "stages.operations:"
HEAVY = {
    "tensorflow": ("runtimes.tensorflow:", "techniques.tf_int8:"),
    "coremltools": ("runtimes.coreml:", "techniques.coreml_", READS),
    "executorch": ("runtimes.executorch:", "techniques.pt2e_", READS),
    "litert_torch": ("runtimes.litert:", "techniques.pt2e_", "stages.channel_block:", READS),
    "openvino": ("runtimes.openvino:", "techniques.nncf_int8:"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("every")


@pytest.fixture(scope="module")
def results(folder: Path, shared_store: Path) -> dict[str, Result]:
    return deployed(folder, shared_store)


def deployed(folder: Path, store: Path) -> dict[str, Result]:
    jobs = [
        job.job(None, named(target, folder), profile="quick", settings=BRIEF[target], only=few(target))
        for target in TARGETS
    ]
    options = edgecompress.Options(store=store, out=folder / "dist")
    return deploy.run_all([(each, plan.deploy(each)) for each in jobs], options)


def named(target: str, folder: Path) -> str:
    """The target as it ships; its search for a strength goes with `make prove` alone."""
    text = (catalog.shipped("targets") / f"{target}.toml").read_text(encoding="utf-8")
    if prove.WHOLE or SEARCH not in text:
        return target
    (folder / f"{target}.toml").write_text(text.replace(SEARCH, STRENGTH), encoding="utf-8")
    return str(folder / f"{target}.toml")


def few(target: str) -> list[str]:
    """The first variant of each runtime and the first reference; all with `make prove`."""
    found = catalog.target(target).value
    if prove.WHOLE:
        return []
    first = {v.runtime or found.runtime: v.name for v in reversed(found.variant)}
    return [*first.values(), next(v.name for v in found.variant if v.reference)]


@pytest.mark.parametrize("target", TARGETS)
def test_the_demo_ships_to(target: str, results: dict[str, Result]) -> None:
    result = results[target]
    assert result.exit_code == 0, result.message
    assert result.out is not None
    shipped = json.loads((result.out / "deploy.json").read_text())
    verdict = result.outcomes[f"{shipped['variant']}/verify"]
    assert verdict.status == "ok"
    told = result.read_report()
    here = target in ("x86", "vector-avx512")
    assert bool(told["choice"]["unmeasured"]) is not here
    assert ("not measured on the target" in told["summary"]["remarks"]) is not here


def test_no_target_is_left_out() -> None:
    assert {*TARGETS, *EMULATED} == {p.stem for p in catalog.shipped("targets").glob("*.toml")}


def test_what_targets_share_is_made_once_and_a_second_run_makes_nothing(
    results: dict[str, Result], folder: Path, shared_store: Path
) -> None:
    for name in SHARED:
        ran = [t for t in TARGETS if name in results[t].outcomes and results[t].outcomes[name].why_run != "hit"]
        assert len(ran) <= 1, f"{name} ran for {ran}"
    again = deployed(folder, shared_store)
    broken = {(t, s) for t in TARGETS for s, o in again[t].outcomes.items() if o.status == "failed"}
    ran_again = {(t, s) for t in TARGETS for s, o in again[t].outcomes.items() if o.why_run not in ("hit", "")}
    assert ran_again <= broken


def calls(store: Store) -> Iterator[tuple[str, set[str]]]:
    """Each call that a worker made, and the top-level modules it had loaded at its end."""
    remembered = [*store.remembered()]  # first: other tests fill the store, too
    loaded = {entry.key: set(entry.receipt["modules"]) for entry in store.entries()}
    for stage in remembered:
        yield stage["parts"]["call"], loaded[stage["key"]]


def test_a_worker_loads_the_heavy_libraries_of_its_own_call_only(
    results: dict[str, Result], shared_store: Path
) -> None:
    seen = list(calls(Store(shared_store)))
    assert {"runtimes.coreml:export", "runtimes.executorch:export", "runtimes.litert:export"} <= {c for c, _ in seen}
    for call, loaded in seen:
        vain = {library for library, users in HEAVY.items() if library in loaded and not call.startswith(users)}
        assert not vain, f"{call} loaded {vain}"


OPEN = """
import json, sys
from pathlib import Path
from edgecompress.core import registry
from edgecompress.core.model import Artifact
runtime = registry.load("runtimes", sys.argv[1])
runtime.open(Artifact.read(Path(sys.argv[2])), 1).close()
print(json.dumps(sorted({m.split(".")[0] for m in sys.modules})))
"""


def test_a_session_loads_the_heavy_libraries_of_its_own_runtime_only(results: dict[str, Result], folder: Path) -> None:
    """TensorFlow and torch too: a session on a device needs neither converter nor framework."""
    opened = {}
    for result in results.values():
        assert result.out is not None
        origin = json.loads((result.out / "deploy.json").read_text())
        opened[origin["runtime"]] = Artifact.read(result.out / "artifact")
    for runtime, artifact in opened.items():
        argv = [sys.executable, "-c", OPEN, runtime, str(artifact.path)]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=True)
        loaded = set(json.loads(done.stdout.splitlines()[-1]))
        vain = {lib for lib, users in HEAVY.items() if lib in loaded and not f"runtimes.{runtime}:".startswith(users)}
        assert not vain, f"{runtime} loaded {vain}"


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_alone_needs_no_library_of_another(target: str) -> None:
    """What `make deploy TARGET=ios` installs holds no TensorFlow."""
    needed = {
        environments.package(r) for m in plan.conversion.plugins(catalog.target(target).value) for r in m.REQUIRES
    }
    assert "tensorflow-cpu" not in needed
    assert ("coremltools" in needed) is (target in ("ios", "macos"))
    assert ("executorch" in needed) is (target in ("x86", "arm64", "android"))
    assert ("openvino" in needed) is (target == "x86")
    assert all(m.REQUIRES is not None for _, m in registry.every("runtimes"))
