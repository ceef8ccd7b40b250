"""Every test in its long form, every check, every promised ratio: `make prove`.

Each part that has passed on these very files is left out of the next run: a run that was interrupted goes on. A file
of tests is a file of its own part, and of those that name it. The whole log is kept in benchmarks/. JOBS files of
tests run at once, 2 unless said otherwise; what is measured runs alone, after them. What was skipped is listed; with
EDGECOMPRESS_REQUIRE, as CI sets it, a skip is a failure.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import time
from collections.abc import Container, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LONG = {"EDGECOMPRESS_PROVE": "1", "EDGECOMPRESS_KILLS": "6", "EDGECOMPRESS_FLIPS": "200"}  # 20 kills by hand: > 1 h
LONGEST = ("test_fuzz", "test_faults", "test_kill", "test_parity", "test_zoo")  # begun first: the last to end
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TF_NUM_INTRAOP_THREADS")
LOGS = "benchmarks/prove-"  # written by this script, so not part of what it tests
MEASURED = (
    "parity",
    "coverage",
    "noise",
    "agent_overhead",
    "arena",
    "agreement",
    "sensitivity",
    "sparsity",
    "safety_cost",
)
REMEASURED = ("pruning", "bench")
TESTS = re.compile(r"\btest_\w+")
SKIPPED = re.compile(r"^SKIPPED (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Part:
    """A command that must exit with 0. Parts that are tests run in parallel, each with its share of the cores."""

    name: str
    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)


def jobs(text: str) -> int:
    """How many files of tests run at once. Raises SystemExit unless it is a whole number of at least 1."""
    if not re.fullmatch(r"0*[1-9][0-9]*", text):
        raise SystemExit(f"prove: JOBS={text}: must be a whole number of at least 1")
    return int(text)


def plan(root: Path, count: int) -> tuple[list[Part], list[Part], list[Part]]:
    """What comes first, the files of tests, and what runs alone after them."""
    share = dict.fromkeys(THREADS, str(-(-(os.cpu_count() or 1) // count)))
    here, python = Path(sys.executable).parent, sys.executable
    pytest = (python, "-P", "-m", "pytest", "--timeout=0", "--durations=5", "-rs", "--no-fold-skipped")
    names = sorted(file.stem for file in root.glob("tests/test_*.py"))
    names.sort(key=lambda name: LONGEST.index(name) if name in LONGEST else len(LONGEST))
    tests = [Part(name, (*pytest, f"tests/{name}.py"), share) for name in names]
    alone = [Part("check", ("make", "--no-print-directory", "check"))]
    alone += [Part(name, (python, f"benchmarks/{name}.py")) for name in MEASURED]
    alone += [Part(name, (python, f"benchmarks/{name}.py", "--remeasure")) for name in REMEASURED]
    return [Part("doctor", (str(here / "edgecompress"), "doctor"))], tests, alone


def files(root: Path) -> dict[str, str]:
    """The files of the repository, new ones too -> a digest of each."""
    told = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, text=True)
    names = sorted({name for name in told.split("\0") if name and not name.startswith(LOGS)})
    return {name: _digest(root / name) for name in names}


def _digest(file: Path) -> str:
    content = b"-> " + os.readlink(file).encode() if file.is_symlink() else None
    if content is None and file.is_file():
        content = (b"x" if os.access(file, os.X_OK) else b"-") + file.read_bytes()
    return hashlib.sha256(content).hexdigest() if content is not None else "gone"


def around() -> list[str]:
    """What decides a result besides files: the libraries, the settings."""
    installed = sorted({f"{each.name}=={each.version}" for each in importlib.metadata.distributions()})
    own = sorted(path.name for path in Path(sys.prefix).glob("edgecompress-envs/*/complete"))
    settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("EDGECOMPRESS_"))
    return [sys.version, *installed, *own, *settings]


def key(state: tuple[Mapping[str, str], Sequence[str]], without: Container[str] = ()) -> str:
    """A digest of the files, without these, and of what is around them."""
    told, surroundings = state
    lines = [f"{name}\0{content}" for name, content in told.items() if name not in without]
    return hashlib.sha256("\n".join([*lines, *surroundings]).encode()).hexdigest()[:16]


def named(root: Path) -> dict[str, set[str]]:
    """A file of tests -> those that it names, itself, and what those name: what they hold may decide its result."""
    texts = {file.stem: file.read_text(encoding="utf-8") for file in root.glob("tests/*.py")}
    tests = {stem for stem in texts if stem.startswith("test_")}
    helpers = " ".join(texts[stem] for stem in texts.keys() - tests)
    found = {stem: {stem, *TESTS.findall(texts[stem] + helpers)} & tests for stem in tests}
    for _ in found:
        found = {stem: set().union(*(found[each] for each in those)) for stem, those in found.items()}
    return found


class Run:
    """The parts that have passed, each on one state of the files."""

    def __init__(self, root: Path) -> None:
        """Takes the lock. Raises SystemExit where another run has it."""
        self.root, self.begun, self.named = root, (files(root), around()), named(root)
        self.key, self.state = key(self.begun), root / "build" / "prove"
        self.state.mkdir(parents=True, exist_ok=True)
        self.lock = (self.state / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("prove: another run is in progress in this folder; wait for it to end") from None

    def passed(self, part: Part) -> Path:
        """The file that says that a part has passed, and in what time."""
        others = self.named.keys() - self.named.get(part.name, self.named.keys())
        return self.state / f"{part.name}-{key(self.begun, {f'tests/{stem}.py' for stem in others})}.passed"

    def log(self, part: Part) -> Path:
        """What a part printed."""
        return self.state / f"{part.name}.log"

    def do(self, part: Part) -> None:
        """Runs a part unless it has passed. Raises SystemExit where the files are no longer those it began with."""
        if self.passed(part).exists():
            return
        self.unchanged()
        print(f"prove: {part.name}", flush=True)
        begin = time.monotonic()
        with self.log(part).open("w", encoding="utf-8") as log:
            print(f"== {part.name}: {' '.join(part.command)}", file=log, flush=True)
            env = {**os.environ, **part.env}
            code = subprocess.run(
                part.command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            ).returncode
        self.unchanged()
        if code:
            print("\n".join(self.log(part).read_text(encoding="utf-8", errors="replace").splitlines()[-20:]))
        else:
            took = round(time.monotonic() - begin)
            self.passed(part).write_text(f"{took // 60} min {took % 60} s\n", encoding="utf-8")

    def unchanged(self) -> None:
        """Raises SystemExit where the files, the libraries or the settings have changed since the run began."""
        if (files(self.root), around()) != self.begun:
            raise SystemExit("prove: files, libraries or settings changed during the run; start it again")

    def end(self, parts: list[Part]) -> tuple[Path, list[str]]:
        """The log of all, and what was skipped. Raises SystemExit where a part has not passed."""
        self.unchanged()
        failed = [part.name for part in parts if not self.passed(part).exists()]
        if failed or not parts:
            raise SystemExit(f"prove: failed: {' '.join(failed) or 'nothing ran'}; the logs are in {self.state}")
        commit = subprocess.check_output(["git", "describe", "--always", "--dirty"], cwd=self.root, text=True).strip()
        log = self.root / f"{LOGS}{datetime.now(UTC):%Y-%m-%d}.log"
        told, skipped = [], []
        for part in parts:
            text = self.log(part).read_text(encoding="utf-8", errors="replace")
            told.append(f"{text.rstrip()}\n== took {self.passed(part).read_text(encoding='utf-8')}")
            skipped += SKIPPED.findall(text)
        told += [f"== skipped: {line}\n" for line in skipped]
        log.write_text(f"== {commit}, files {self.key}\n" + "".join(told), encoding="utf-8")
        return log, skipped


def proved(root: Path, count: int, parts: tuple[list[Part], list[Part], list[Part]]) -> str:
    """Runs all that has not passed yet, and says what it came to."""
    begin = time.monotonic()
    run = Run(root)
    first, tests, alone = parts
    for part in first:
        run.do(part)
    with ThreadPoolExecutor(count) as pool:
        doing = [pool.submit(run.do, part) for part in tests]
        try:
            for each in doing:
                each.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    for part in alone:
        run.do(part)
    log, skipped = run.end([*first, *tests, *alone])
    listed = "".join(f"\n  {line}" for line in skipped)
    minutes = int((time.monotonic() - begin) / 60)
    return f"prove: all passed, {len(skipped)} skipped, this run in {minutes} min; the log is {log}{listed}"


if __name__ == "__main__":
    at_once = jobs(os.environ.get("JOBS", "2"))
    os.environ.update(LONG)
    print(proved(ROOT, at_once, plan(ROOT, at_once)))
