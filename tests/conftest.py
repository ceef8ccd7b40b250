"""What the tests share: where the real data is, what is skipped where, and that CI skips nothing it promised."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib.util
import json
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import adbd
import prove
import pytest
import sshd
import swiftlang
import turns
import vectors

if TYPE_CHECKING:
    from edgecompress.core.model import Stage

ROOT = Path(__file__).resolve().parent.parent
gc.set_threshold(50_000)  # as in a worker
if "PYTEST_XDIST_WORKER" not in os.environ:  # stores of tests are not told to the user's own register
    os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="edgecompress-state-")
    atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)
os.environ.setdefault("EDGECOMPRESS_JOBS", "1")  # tests are side by side themselves; test_side_by_side asks for more
if "PYTEST_XDIST_WORKER" in os.environ:  # a process has its share of the cores: threads that wait for one are slower
    SHARE = max(1, (os.cpu_count() or 1) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    for library in ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "TF_NUM_INTRAOP"):
        os.environ.setdefault(f"{library}_THREADS", str(SHARE))

# What CI is to have: there a skip is a failure, but for what no installation changes, and what a marker leaves out.
REQUIRED = frozenset(name.strip() for name in os.environ.get("EDGECOMPRESS_REQUIRE", "").split(",")) - {""}
HERE_NOT = {  # how a reason begins, and why CI may have it; of each pair of tests one is skipped wherever they run
    vectors.WHY: "the processor",
    "oneDNN has no LSTM in bf16 for this processor": "the processor",
    "qnn needs onnxruntime-qnn": "Qualcomm's emulator, which CI says it has not",
    "nvidia-ml-py is not installed": "the machine has no GPU",
    "no GPU: ": "the machine has no GPU",
    "there is no GPU": "the machine has no GPU",
    "there is a GPU": "the test of a machine that has none",
    "this onnxruntime has no GPU provider": "the one for CPUs is installed",
    "this onnxruntime has a GPU provider": "the test of the one for CPUs",
    "zsh is not installed": "a machine has the shell of whoever works there",
    "tf2onnx is installed": "the test of a Python without it",
}
MINUTES, SEED = os.environ.get("EDGECOMPRESS_MINUTES", ""), os.environ.get("EDGECOMPRESS_SEED", "")
BEGAN = time.monotonic()
SECONDS = Path(__file__).parent / "golden" / "seconds.json"
SHARED = Path(os.environ.get("EDGECOMPRESS_SHARED") or ROOT.parent / "shared" / "data")


def _no_shared() -> str:
    return "" if (SHARED / "manifest.json").is_file() else f"no real data at {SHARED}: set `EDGECOMPRESS_SHARED=FOLDER`"


def _no_browser() -> str:
    missing = [name for name in ("chromium", "chromedriver") if not shutil.which(name)]
    return (
        f"{' and '.join(missing)} not installed (Debian: apt-get install chromium chromium-driver)" if missing else ""
    )


@functools.cache
def _no_qemu() -> str:
    """Where CI promises the emulated machine it is built; elsewhere nothing is fetched for a test."""
    from edgecompress.core.errors import EdgeError
    from edgecompress.device.emulation import build

    if build.find() is None and "qemu" in REQUIRED:
        try:
            build.build(lambda step: None)
        except EdgeError as error:
            return str(error)
    return "" if build.find() else f"the emulated arm64 machine is not built: run `{build.COMMAND}`"


def _no_valgrind() -> str:
    missing = [name for name in ("valgrind", "setpriv", "setarch") if not shutil.which(name)]
    return f"{' and '.join(missing)} not installed (Debian: apt-get install valgrind util-linux)" if missing else ""


def _no_strace() -> str:
    if not shutil.which("strace"):
        return "strace not installed (Debian: apt-get install strace)"
    tried = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return f"strace cannot trace here: {tried.stderr.strip()[:200]}" if tried.returncode else ""


def _no_jdk() -> str:
    missing = [name for name in ("javac", "java") if not shutil.which(name)]
    return f"{' and '.join(missing)} not installed (Debian: apt-get install openjdk-17-jdk-headless)" if missing else ""


def _no_android() -> str:
    framework = Path("/usr/share/android-framework-res/framework-res.apk")
    missing = [name for name in ("aapt2", "zipalign", "apksigner") if not shutil.which(name)]
    missing += [] if framework.is_file() else [framework.name]
    packages = "aapt zipalign apksigner android-framework-res"
    return f"{' and '.join(missing)} not installed (Debian: apt-get install {packages})" if missing else ""


def _no_node() -> str:
    return "" if shutil.which("node") else "node not installed (Debian: apt-get install nodejs)"


@functools.cache
def _no_ortweb() -> str:
    """As with the emulated machine: fetched where CI promises it, and nowhere else for a test."""
    from edgecompress.core.errors import EdgeError
    from edgecompress.extras.apps.packagers import _web_ort

    if not _web_ort.cached() and "ortweb" in REQUIRED:
        try:
            _web_ort.files()
        except EdgeError as error:
            return str(error)
    command = "edgecompress package FOLDER --as web"
    return "" if _web_ort.cached() else f"no ONNX Runtime Web in the cache: `{command}` fetches it"


def _no_qnn() -> str:
    found = importlib.util.find_spec("onnxruntime_qnn")
    return "" if found else "onnxruntime-qnn is not installed (make setup TARGET=snapdragon)"


NEEDS: dict[str, Callable[[], str]] = {
    "shared": _no_shared,
    "qemu": _no_qemu,
    "valgrind": _no_valgrind,
    "strace": _no_strace,
    "browser": _no_browser,
    "ortweb": _no_ortweb,
    "jdk": _no_jdk,
    "android": _no_android,
    "node": _no_node,
    "qnn": _no_qnn,
    "adbd": adbd.unavailable,
    "sshd": sshd.unavailable,
    "swift": swiftlang.unavailable,
}


def pytest_configure(config: pytest.Config) -> None:
    """A name that nothing is marked with would require nothing."""
    if unknown := REQUIRED - NEEDS.keys():
        raise pytest.UsageError(f"EDGECOMPRESS_REQUIRE: {', '.join(sorted(unknown))}: none of {', '.join(NEEDS)}")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips a test that needs what is not here, and says what that is."""
    if MINUTES and time.monotonic() - BEGAN > 60 * float(MINUTES):
        pytest.skip("the minutes are over")
    for marker, why_not in NEEDS.items():
        if item.get_closest_marker(marker) and (reason := why_not()):
            pytest.skip(reason)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Long files first, so that several processes end together, new ones before them; without the proof.

    Files with tests marked `alone` come last: who waits for the others to pause waits for short ones.
    """
    left_out = {item for item in items if not prove.WHOLE and item.get_closest_marker("prove")}
    if MINUTES:
        left_out |= {item for item in items if not hasattr(item.module, "prove")}  # type: ignore[attr-defined]
    if left_out:
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    if MINUTES:  # a sample: files in an order of the seed, as many as the minutes allow
        return items.sort(key=lambda item: random.Random(f"{SEED} {item.path.name}").random())
    seconds: dict[str, float] = json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.is_file() else {}
    alone = {item.path.name for item in items if item.get_closest_marker("alone")}
    items.sort(key=lambda item: (item.path.name in alone, -seconds.get(item.path.name, float("inf"))))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """EDGECOMPRESS_GOLDEN=seconds renews the seconds that each file takes, of a run of all tests."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("EDGECOMPRESS_GOLDEN") == "seconds" and reporter and SECONDS.is_file():
        taken: Counter[str] = Counter()
        for report in (report for reports in reporter.stats.values() for report in reports):
            if isinstance(report, pytest.TestReport):
                taken[Path(report.fspath).name] += report.duration
        SECONDS.write_text(json.dumps({name: round(s) for name, s in sorted(taken.items())}, indent=1) + "\n")
    if (log := os.environ.get("EDGECOMPRESS_LOG")) and reporter:
        counts = ", ".join(f"{len(found)} {how}" for how, found in sorted(reporter.stats.items()) if how)
        took = f"{(time.monotonic() - BEGAN) / 60:.0f} min, exit {session.exitstatus:d}"
        sample = f" (of {MINUTES} min, seed {SEED})" if MINUTES else ""
        with Path(log).open("a", encoding="utf-8") as file:
            print(f"{time.strftime('%F %R')} {counts}; {took}{sample}", file=file)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any) -> Generator[None, None, None]:
    """After the reasons, one line of what to install or run for it: packages, and what stands in `backquotes`."""
    yield
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = "\n".join(report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple))
    packages = {name for names in re.findall(r"apt-get install ([\w .+-]+)", reasons) for name in names.split()}
    ways = [f"apt-get install {' '.join(sorted(packages))}"] if packages else []
    if ways := ways + sorted(set(re.findall(r"`([^`]+)`", reasons))):
        terminalreporter.write_line(f"{len(skipped)} skipped; to run more of them: {'; '.join(ways)}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Where several processes run the tests, one marked `alone` runs while no other does."""
    worker = getattr(item.config, "workerinput", None)
    if worker is None:
        return (yield)
    with turns.taken(worker["testrunuid"], bool(item.get_closest_marker("alone"))):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Where EDGECOMPRESS_REQUIRE names markers ("shared,browser"), a skip is a failure unless HERE_NOT has its reason.

    A test with a marker that is not named stays skipped where that marker's need is not met.
    """
    report = yield
    left_out = [name for name in NEEDS.keys() - REQUIRED if item.get_closest_marker(name)]
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail") and not any(NEEDS[name]() for name in left_out):
        promised(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file that skips itself whole, before it has tests, is held to the same."""
    report = yield
    if REQUIRED and report.skipped:
        promised(report)
    return report


def promised(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Makes a failure of a skip whose reason is not one of HERE_NOT."""
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if not reason.removeprefix("Skipped: ").startswith(tuple(HERE_NOT)):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped, but EDGECOMPRESS_REQUIRE is set: {reason}"


@pytest.fixture(autouse=True, scope="module")
def libraries_are_no_garbage() -> Iterator[None]:
    """Libraries that a file of tests has loaded are not searched for garbage in the next: a fifth of the time."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets and weights; for tests marked `shared`."""
    return SHARED


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that the deploys of the demo share, over all files and processes of a run: what is made once is found."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "results"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A browser for the tests of one file."""
    from report_browser import open_browser

    opened = open_browser(tmp_path_factory.mktemp("chromium"))
    yield opened
    opened.quit()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder for results that no other test sees."""
    return tmp_path / ".edgecompress"


@pytest.fixture
def technique(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Stage]]:
    """A stage that calls a technique with the given body."""
    import plugins

    from edgecompress.core import registry
    from edgecompress.core.model import Stage

    folder = tmp_path / "plugins"
    folder.mkdir()
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.syspath_prepend(folder)

    def write(body: str) -> Stage:
        plugins.technique(folder, "probe", body)
        registry.entry_points.cache_clear()
        return Stage("probe", "techniques.probe:apply", {"model": "source"}, timeout_s=60)

    yield write
    registry.entry_points.cache_clear()
