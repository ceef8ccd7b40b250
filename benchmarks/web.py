"""How fast a net answers in a browser, int8 and fp32: its web package, served on loopback, in headless Chromium.

    python benchmarks/web.py [--only demo,resnet20,...] [--rounds 5] [--inferences 200] [--store FOLDER] [--json FILE]

Each net is deployed for the target `web`, as int8 (textgenrnn as int8-dynamic) and as fp32, each alone; both packages
are served by their own serve.py. Then they take turns: int8, fp32, int8, fp32, ..., each turn in a new Chromium, which
runs the self-test and the benchmark of the package (one thread, each inference timed alone). A latency is the median
over the rounds of a turn's median; a ratio is one of two turns of the same round. Exit 1 where a self-test fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import figures

import edgecompress
from edgecompress.core.errors import CheckFailed
from edgecompress.device import machine
from edgecompress.extras.apps import archive
from edgecompress.reporting import external_results

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
SMALL = {"demo": "int8", "resnet20": "int8", "mobilenetv2": "int8", "textgenrnn": "int8-dynamic"}  # held against fp32
FEWEST = 3  # rounds
PATIENCE_S = 300  # of a turn
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update"
)

READY = "return document.documentElement.dataset.ready === 'yes'"  # the page has done what it does by itself
# In the page: a model of its own beside the page's, so that what the page shows costs nothing here.
TURN = """
const [n, done] = arguments;
(async () => {
  const { default: Model } = await import("./model.js");
  const model = await Model.load();
  const steps = await model.selfTest();
  const told = await model.benchmark(n);
  await model.close();
  return { steps, told };
})().then((value) => done({ value }), (error) => done({ error: `${error}` }));
"""


@dataclass(frozen=True)
class Packed:
    """A variant's package, opened."""

    variant: str
    root: Path
    model_bytes: int  # of the download of the model alone


@dataclass(frozen=True)
class Turn:
    """What one Chromium answered about one package."""

    latency_ms: float  # the median of its inferences
    failed: Sequence[str]  # steps of the self-test, with what they say
    answer: str  # how near the golden answer is, in the self-test's words
    where: str  # runtime, browser and clock


@dataclass(frozen=True)
class Side:
    """A variant of a net, over its rounds; latency_ms is the median of those of the rounds."""

    variant: str
    latency_ms: float
    rounds_ms: Sequence[float]
    model_bytes: int
    failed: Sequence[str]
    answer: str


@dataclass(frozen=True)
class Row:
    """A net: fp32's latency over int8's, as the median, the least and the most of its rounds."""

    net: str
    int8: Side
    fp32: Side
    ratio: float
    low: float
    high: float
    where: str


def main() -> int:
    """Deploys, packs, serves and measures the nets one after the other, and prints a line of each."""
    asked = arguments()
    rows = [measure(net, asked) for net in SMALL if not asked.only or net in asked.only.split(",")]
    here = machine.facts(machine.here())
    told = {"rounds": asked.rounds, "inferences": asked.inferences, "machine": figures.machine(here)}
    found = {**told, "rows": [asdict(row) for row in rows]}
    show(rows, found)
    figures.write(asked.json, found)
    return 1 if any(row.int8.failed or row.fp32.failed for row in rows) else 0


def arguments() -> argparse.Namespace:
    """The command line's; ends the process where it, or a browser, is not as it must be."""
    parser = figures.flags(__doc__, "store", "json")
    parser.add_argument("--only", default="", help=f"of {', '.join(SMALL)}, separated by commas")
    parser.add_argument("--rounds", type=int, default=5, help=f"at least {FEWEST} (default: 5)")
    parser.add_argument("--inferences", type=int, default=200, help="of a turn, at least 20 (default: 200)")
    parser.add_argument("--out", type=Path, default=Path("dist/web-benchmark"))
    asked = parser.parse_args()
    if unknown := sorted({*asked.only.split(",")} - {*SMALL, ""}):
        parser.error(f"--only: no {', '.join(unknown)}; there are {', '.join(SMALL)}")
    if asked.rounds < FEWEST or asked.inferences < external_results.FEWEST:
        parser.error(f"at least {FEWEST} rounds of {external_results.FEWEST} inferences")
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        parser.error("no Chromium: apt-get install chromium chromium-driver")
    return asked


def measure(net: str, asked: argparse.Namespace) -> Row:
    """Both packages of a net, in turns."""
    with contextlib.ExitStack() as stack:
        packages = [packed(net, variant, asked) for variant in (SMALL[net], "fp32")]
        addresses = [stack.enter_context(served(package.root)) for package in packages]
        rounds = [[turn(address, asked.inferences) for address in addresses] for _ in range(asked.rounds)]
    int8, fp32 = (side(package, turns) for package, turns in zip(packages, zip(*rounds, strict=True), strict=True))
    ratios = [slow / fast for fast, slow in zip(int8.rounds_ms, fp32.rounds_ms, strict=True)]
    return Row(net, int8, fp32, statistics.median(ratios), min(ratios), max(ratios), rounds[-1][-1].where)


def packed(net: str, variant: str, asked: argparse.Namespace) -> Packed:
    """One variant, deployed alone, packed and opened; raises CheckFailed where it does not ship."""
    place = asked.out / net / variant
    options = edgecompress.Options(store=asked.store, out=place / "shipped")
    source = None if net == "demo" else str(EXAMPLES / net / "source.toml")
    result = edgecompress.deploy(source, "web", only=(variant,), profile="quick", options=options)
    if result.exit_code:
        raise CheckFailed(f"{net}, {variant}: {result.message}")
    file = edgecompress.package(place / "shipped", "web", place / "package.zip")
    shutil.rmtree(place / "opened", ignore_errors=True)
    (place / "opened").mkdir()
    archive.unpack(file, place / "opened")
    (root,) = (place / "opened").iterdir()
    files = json.loads((root / "model_card.json").read_text(encoding="utf-8"))["model"]["files"]
    return Packed(variant, root, sum(told["bytes"] for told in files))


@contextlib.contextmanager
def served(root: Path) -> Iterator[str]:
    """The address at which the package's own serve.py has its page."""
    words = [sys.executable, "serve.py", "--port", "0"]
    with subprocess.Popen(words, cwd=root, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def turn(address: str, inferences: int) -> Turn:
    """A new Chromium opens the page, and tells; raises CheckFailed where the model does not even run."""
    from selenium.webdriver.support.ui import WebDriverWait

    with browser() as chromium:
        chromium.get(address)
        WebDriverWait(chromium, PATIENCE_S).until(lambda page: page.execute_script(READY))
        answer = chromium.execute_async_script(TURN, inferences)
    if "error" in answer:
        raise CheckFailed(f"{address}: {answer['error']}")
    steps = {step["step"]: step for step in answer["value"]["steps"]}
    told = external_results.parsed(json.dumps(answer["value"]["told"]).encode(), address)
    failed = [f"{name}: {step['detail']}" for name, step in steps.items() if not step["ok"]]
    return Turn(
        statistics.median(told.latencies_ns) / 1e6,
        failed or ([] if told.self_test == "pass" else ["before the benchmark"]),
        re.sub("^the golden output, ", "", steps["inference"]["detail"]),
        f"{told.runtime.name} {told.runtime.version}, {told.device.browser}, clock of {told.clock_step_ns / 1000:g} µs",
    )


@contextlib.contextmanager
def browser() -> Iterator[Any]:
    """Headless Chromium with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        chromium = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        chromium.set_script_timeout(PATIENCE_S)
        try:
            yield chromium
        finally:
            chromium.quit()


def side(package: Packed, turns: Sequence[Turn]) -> Side:
    """A variant's turns as one."""
    rounds = [each.latency_ms for each in turns]
    failed = list(dict.fromkeys(said for each in turns for said in each.failed))
    answer = "; ".join(dict.fromkeys(each.answer for each in turns))
    return Side(package.variant, statistics.median(rounds), rounds, package.model_bytes, failed, answer)


def show(rows: Sequence[Row], found: Mapping[str, Any]) -> None:
    """A line per net, the steps that failed, and the machine."""
    title = f"Medians of {found['rounds']} rounds of {found['inferences']} inferences, one thread"
    cells = []
    names = ("net", "int8 ms", "fp32 ms", "fp32 / int8", "self-test", "model, KB", "int8 against the golden answer")
    for r in rows:
        net = r.net if r.int8.variant == "int8" else f"{r.net} ({r.int8.variant})"
        ratio = f"{r.ratio:.2f} [{r.low:.2f}, {r.high:.2f}]"
        passed = "FAILS" if r.int8.failed or r.fp32.failed else "passes"
        sizes = f"{r.int8.model_bytes / 1000:.1f}, {r.fp32.model_bytes / 1000:.1f}"
        times = (f"{s.latency_ms:#.3g}" for s in (r.int8, r.fp32))
        cells.append((net, *times, ratio, passed, sizes, r.int8.answer))
    failed = [f"FAILED: {r.net}, {s.variant}: {said}" for r in rows for s in (r.int8, r.fp32) for said in s.failed]
    where = sorted({r.where for r in rows})
    figures.show(f"{title}; models int8, fp32", names, cells, *failed, *where, found["machine"])


if __name__ == "__main__":
    sys.exit(main())
