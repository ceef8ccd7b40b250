"""Faults planted in the code whose tests have a short form: what the short form finds, beside the long one.

    python benchmarks/planted.py [--only TEXT] [--jobs 2] [--keep FILE]

planted.toml lists the faults. Each is made in a copy of the repository, where its tests run until the first failure:
in the short form (`make test`), then in the long one (`make prove`) if the short one found nothing; every case of the
short form is one of the long one. The test that failed is to pass without the fault. Exit 1 where the long form finds a
fault that the short one misses. With --keep a run that was interrupted goes on: each outcome is a line of JSON in that
file, and none of this commit is tried again.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy
from rich.console import Console
from rich.table import Table

from edgecompress.core import environments, registry

ROOT = Path(__file__).resolve().parents[1]
LONG = {"EDGECOMPRESS_PROVE": "1", "EDGECOMPRESS_KILLS": "6", "EDGECOMPRESS_FLIPS": "100"}
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1"}
FAILED = 1  # pytest's exit code where a test failed; others mean that none could run


@dataclass(frozen=True)
class Fault:
    """One edit: in `file` the text `old` becomes `new`; `tests` are the words of pytest that are to find it."""

    name: str
    file: str
    old: str
    new: str
    tests: str


@dataclass(frozen=True)
class Outcome:
    """Which test of each form failed first; "" where none did. `long` is None where the short form found the fault."""

    fault: str
    short: str
    long: str | None
    seconds: float

    @property
    def missed(self) -> bool:
        """Whether the long form alone found it."""
        return not self.short and bool(self.long)


def listed() -> list[Fault]:
    """The faults of planted.toml."""
    table = tomllib.loads((ROOT / "benchmarks" / "planted.toml").read_text(encoding="utf-8"))
    return [Fault(**each) for each in table["fault"]]


def tried(fault: Fault) -> Outcome:
    """The fault in a copy of the repository, and what its tests say."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "repository"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(copy)], check=True)
        path = copy / fault.file
        text = path.read_text(encoding="utf-8")
        if text.count(fault.old) != 1:
            raise SystemExit(f"planted.toml: {fault.name}: its text is {text.count(fault.old)} times in {fault.file}")
        environment(copy / ".venv", copy, Path(numpy.__file__).parents[1])
        separate_environments(copy)
        path.write_text(text.replace(fault.old, fault.new), encoding="utf-8")
        words = shlex.split(fault.tests)
        short = first_failure(copy, fault.name, words, {})
        long = None if short else first_failure(copy, fault.name, words, LONG)
        if found := short or long:
            path.write_text(text, encoding="utf-8")
            later = path.stat().st_mtime + 2
            os.utime(path, (later, later))  # else bytecode of the fault, written in the same second, counts
            if first_failure(copy, fault.name, [found], {} if short else LONG):
                raise SystemExit(f"planted.toml: {fault.name}: {found} fails without the fault, too")
    return Outcome(fault.name, short, long, time.monotonic() - begin)


def environment(place: Path, copy: Path, libraries: Path) -> None:
    """A Python that imports the copy first, then the libraries of another: subprocesses of a test run the fault too."""
    venv.create(place, symlinks=True)
    (packages,) = place.glob("lib/python*/site-packages")
    text = f"{copy}\nimport site; site.addsitedir({str(libraries)!r})\n"
    (packages / "planted.pth").write_text(text, encoding="utf-8")


def separate_environments(copy: Path) -> None:
    """What plug-ins have as environments of their own here, for the copy; their names hold the place of the package."""
    for name, module in registry.every("runtimes"):
        here = environments.environment(module)
        if here and environments.made(module):
            ask = f"import {module.__name__} as it; from {environments.__name__} import environment as e; print(e(it))"
            command = [str(copy / ".venv" / "bin" / "python"), "-c", ask]
            place = Path(subprocess.check_output(command, cwd=copy, text=True).strip())
            if not place.is_relative_to(copy):
                raise SystemExit(f"planted.py: the environment of {name} would be {place}, outside of the copy")
            (libraries,) = here.glob("lib/python*/site-packages")
            environment(place, copy, libraries)
            (place / environments.COMPLETE).touch()


def first_failure(copy: Path, name: str, tests: Sequence[str], more: Mapping[str, str]) -> str:
    """The name of the first test that failed, or "". Raises SystemExit where pytest did not run any."""
    shared = os.environ.get("EDGECOMPRESS_SHARED") or str(ROOT.parent / "shared" / "data")
    env = {**os.environ, **THREADS, "EDGECOMPRESS_SHARED": shared, **more}
    words = ["-x", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=no", *tests]
    argv = [str(copy / ".venv" / "bin" / "python"), "-m", "pytest", *words]
    done = subprocess.run(argv, cwd=copy, env=env, capture_output=True, text=True)
    if done.returncode not in (0, FAILED):
        raise SystemExit(f"planted.toml: {name}: pytest ended with {done.returncode}: {done.stdout[-2000:]}")
    found = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return found[0] if done.returncode else ""


def kept(file: Path | None, commit: str) -> dict[str, Outcome]:
    """What the file holds of this commit."""
    lines = file.read_text(encoding="utf-8").splitlines() if file and file.exists() else []
    found = [line for line in map(json.loads, lines) if line.pop("commit") == commit]
    return {line["fault"]: Outcome(**line) for line in found}


def main() -> int:
    """Tries them all and prints the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="faults whose names hold this text")
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at once (default: 2)")
    parser.add_argument("--keep", type=Path, help="the outcomes go there; what is there of this commit counts")
    args = parser.parse_args()
    faults = [fault for fault in listed() if args.only in fault.name]
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    done = kept(args.keep, commit)
    with ThreadPoolExecutor(args.jobs) as pool:
        for outcome in pool.map(tried, [fault for fault in faults if fault.name not in done]):
            done[outcome.fault] = outcome
            says = outcome.short or outcome.long or "found by neither"
            print(f"{outcome.fault}: {says}", file=sys.stderr, flush=True)
            if args.keep:
                with args.keep.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"commit": commit, **asdict(outcome)}) + "\n")
    outcomes = [done[fault.name] for fault in faults]
    table = Table("fault", "short form: first failure", "long form", "seconds")
    for each in outcomes:
        long = "(holds the short one)" if each.long is None else each.long or "nothing"
        table.add_row(each.fault, each.short or "nothing", long, f"{each.seconds:.0f}")
    Console(width=200, markup=False).print(table)
    found = sum(bool(each.short) for each in outcomes), sum(bool(each.short or each.long) for each in outcomes)
    print(f"{commit[:7]}: {len(outcomes)} faults: the short form finds {found[0]}, the long one {found[1]}")
    return 1 if any(each.missed for each in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
