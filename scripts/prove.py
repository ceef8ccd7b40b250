"""Every test in its long form, every check, every promised ratio: `make prove`.

Each part that has passed whole on these very files, in this environment, is left out of the next run: a run that was
interrupted goes on. A part that skipped something runs again, as what it lacked may be there by then. The whole log is
kept in benchmarks/. JOBS files of tests run at once, 2 unless said otherwise; what is measured runs alone, after them.
What was skipped is listed; with EDGECOMPRESS_REQUIRE, as CI sets it, a skip is a failure.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import importlib.metadata
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
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
SKIPPED = re.compile(r"^SKIPPED (.+)$", re.MULTILINE)
# The variables that a part sees. Their values are a part of what decides a result; all others are dropped.
PASSES = re.compile(
    r"PATH|PYTHONPATH|LD_LIBRARY_PATH|HOME|USER|LOGNAME|LANG|LC_\w+|TZ|TMPDIR|XDG_(CACHE|CONFIG|DATA|STATE)_HOME|CI|CXX"
    r"|(EDGECOMPRESS|ANDROID|CUDA|JAVA|OMP|OPENBLAS|MKL|ONEDNN|TF|PIP|UV|SSL)_\w+|\w+_CA_(BUNDLE|CERTS)"
    r"|(?i:(https?|all|no)_proxy)"
)


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
    alone = [Part("check", ("make", "--no-print-directory", "check", f"PYTHON={python}"))]
    alone += [Part(name, (python, f"benchmarks/{name}.py")) for name in MEASURED]
    alone += [Part(name, (python, f"benchmarks/{name}.py", "--remeasure")) for name in REMEASURED]
    return [Part("doctor", (str(here / "edgecompress"), "doctor"))], tests, alone


def environment() -> dict[str, str]:
    """The variables with which every part runs."""
    return {**{name: value for name, value in os.environ.items() if PASSES.fullmatch(name)}, **LONG}


def _git(root: Path, *words: str) -> list[str]:
    told = subprocess.check_output(["git", *words], cwd=root, env=environment(), text=True)
    return [line for line in told.split("\0") if line]


def files(root: Path) -> list[str]:
    """The files of the repository, new ones too, with a digest of each; and what git has of them.

    Raises SystemExit where another repository lies inside: git does not list its files.
    """
    index = [line.split("\t", 1) for line in _git(root, "ls-files", "-sz")]
    names = sorted({*_git(root, "ls-files", "-coz", "--exclude-standard")})
    inside = [name for name in names if name.endswith("/")]
    inside += [name for mode, name in index if mode.startswith("160000 ")]
    if inside:
        raise SystemExit(f"prove: {inside[0]}: a repository inside this one; move it, or list it in .gitignore")
    lines = [(name, mode) for mode, name in index] + [(name, _digest(root / name)) for name in names]
    return [f"{name}\0{told}" for name, told in lines if not name.startswith(LOGS)]


def _digest(file: Path) -> str:
    link = os.readlink(file) if file.is_symlink() else ""
    content = file.read_bytes() if file.is_file() else b""
    told = (link, file.exists(), os.access(file, os.X_OK), hashlib.sha256(content).hexdigest())
    return repr(told)


def around() -> list[str]:
    """What decides a result besides files: Python, the libraries, the variables."""
    installed = sorted({f"{each.name}=={each.version}" for each in importlib.metadata.distributions()})
    own = sorted(path.parent.name for path in Path(sys.prefix).glob("edgecompress-envs/*/complete"))
    return [sys.version, *installed, *own, *sorted(f"{name}={value}" for name, value in environment().items())]


def key(state: list[str], part: Part | None = None) -> str:
    """A digest of the files and of what is around them, for one part or for all."""
    return hashlib.sha256("\0".join([*state, repr(part)]).encode(errors="surrogateescape")).hexdigest()[:16]


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")


class Run:
    """The parts that have passed, each on one state of the files."""

    def __init__(self, root: Path) -> None:
        """Takes the lock. Raises SystemExit where another run has it."""
        self.root, self.begun, self.state = root, [*files(root), *around()], root / "build" / "prove"
        self.state.mkdir(parents=True, exist_ok=True)
        self.lock = (self.state / "lock").open("w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SystemExit("prove: another run is in progress in this folder; wait for it to end") from None

    def passed(self, part: Part) -> Path:
        """What a part printed that has passed, and in what time; there is no such file before."""
        return self.state / f"{part.name}-{key(self.begun, part)}.passed"

    def do(self, part: Part) -> None:
        """Runs a part unless it has passed. Raises SystemExit where the files are no longer those it began with."""
        passed, log = self.passed(part), self.state / f"{part.name}.log"
        if passed.exists() and not SKIPPED.search(_text(passed)):
            return
        passed.unlink(missing_ok=True)
        self.unchanged()
        print(f"prove: {part.name}", flush=True)
        begin, env = time.monotonic(), {**environment(), **part.env}
        with log.open("w", encoding="utf-8") as file:
            print(f"== {part.name}: {' '.join(part.command)}", file=file, flush=True)
            code = subprocess.run(
                part.command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            ).returncode
            took = round(time.monotonic() - begin)
            print(f"== took {took // 60} min {took % 60} s", file=file)
        self.unchanged()
        if code:
            print("\n".join(_text(log).splitlines()[-20:]))
        else:
            log.replace(passed)

    def unchanged(self) -> None:
        """Raises SystemExit where the files, the libraries or the settings have changed since the run began."""
        if [*files(self.root), *around()] != self.begun:
            raise SystemExit("prove: files, libraries or settings changed during the run; start it again")

    def end(self, parts: list[Part]) -> tuple[Path, list[str]]:
        """The log of all, and what was skipped. Raises SystemExit where a part has not passed."""
        self.unchanged()
        failed = [part.name for part in parts if not self.passed(part).exists()]
        if failed or not parts:
            raise SystemExit(f"prove: failed: {' '.join(failed) or 'nothing ran'}; the logs are in {self.state}")
        (commit,) = _git(self.root, "describe", "--always", "--dirty")
        log, told = self.root / f"{LOGS}{datetime.now(UTC):%Y-%m-%d}.log", [_text(self.passed(part)) for part in parts]
        skipped = SKIPPED.findall("".join(told))
        told += [f"== skipped: {line}\n" for line in skipped]
        log.write_text(f"== {commit.strip()}, files {key(self.begun)}\n" + "".join(told), encoding="utf-8")
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
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    at_once = jobs(os.environ.get("JOBS", "2"))
    print(proved(ROOT, at_once, plan(ROOT, at_once)))
