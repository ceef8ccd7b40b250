"""Fuzzes the readers of strangers' files, one after the other: `make fuzz`, or `python -m fuzz.run --help`.

The corpus that grows is in build/fuzz/TARGET, where the next run goes on; what is found is listed at the end
and stays there as files. Once it is mended, such a file goes to fuzz/regressions/TARGET: a test reads it from then on.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
TARGETS = tuple(sorted(p.stem for p in (FUZZ / "targets").glob("*.py") if p.stem != "__init__"))
LONGEST = 16 << 10  # bytes of an input
HANGS_S = 600  # by the clock: guard ends what is Python, by the processor's time, long before that
MEMORY = Path("/dev/shm")  # a folder that no disk slows down
RESIDENT_MIB = 2048  # what guard does not live to tell
STATUS = re.compile(r"^#(\d+)\s+\w+\s+cov: (\d+) ft: \d+ corp: (\d+)", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """How the fuzzing of one target ended; `found`: a line and a file for each fault."""

    target: str
    runs: int
    coverage: int
    corpus: int
    seconds: float
    found: dict[str, Path]

    @property
    def line(self) -> str:
        """In a line of a table."""
        return (
            f"{self.target:<8} {self.runs:>10,} runs {self.seconds:>7.0f} s  coverage {self.coverage:>6,}  "
            f"corpus {self.corpus:>5,}  findings {len(self.found)}"
        )


def fuzz(target: str, place: Path, flags: list[str]) -> Ended:
    """Fuzzes one target in its own folder. `flags`: of libFuzzer."""
    _prepare(target, place)
    begin = time.monotonic()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10  # Linux counts it for what this process starts, too
    limits = (
        f"-max_len={LONGEST}",
        f"-timeout={HANGS_S}",
        f"-rss_limit_mb={RESIDENT_MIB + peak}",
        "-report_slow_units=9999",
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}  # the same inputs for the same seed
    work = tempfile.TemporaryDirectory(prefix="fuzz-", dir=MEMORY if MEMORY.is_dir() else None)
    with work as folder, (place / "log").open("w", encoding="utf-8") as log:
        child = [sys.executable, "-P", "-m", "fuzz.child", target, str(place), folder, *limits, *flags]
        code = subprocess.run(child, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log).returncode
    text = (place / "log").read_text(encoding="utf-8", errors="replace")
    found = dict(_findings(place))
    if code and not found:
        found[f"the fuzzer itself ended with {code}: {text[-1500:]}"] = place / "log"
    runs, coverage, corpus = max(((int(r), int(c), int(n)) for r, c, n in STATUS.findall(text)), default=(0, 0, 0))
    return Ended(target, runs, coverage, corpus, time.monotonic() - begin, found)


def _prepare(target: str, place: Path) -> None:
    """The seeds of the repository; what an earlier run found is dropped, but for the corpus that it grew."""
    for name in ("findings", "crash", "corpora", "regressions"):
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir(parents=True)
        if (FUZZ / name / target).is_dir():
            shutil.copytree(FUZZ / name / target, place / name, dirs_exist_ok=True)
    (place / "corpus").mkdir(exist_ok=True)


def _findings(place: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted((place / "findings").glob("*.json")):
        yield json.loads(file.read_text(encoding="utf-8"))["what"], file.with_suffix("")
    for file in sorted((place / "crash").iterdir()):  # the process is gone: a crash of native code, a hang, memory
        yield f"{file.name.partition('-')[0]} of the process", file


def main() -> int:
    """1 where anything was found."""
    args = _arguments()
    flags = [f"-runs={args.runs}"] if args.runs else [f"-max_total_time={args.seconds}"]
    flags += [f"-seed={args.seed}"] if args.seed else []
    ended = []
    for target in args.only or TARGETS:
        ended.append(fuzz(target, args.folder.resolve() / target, flags))
        print(ended[-1].line, flush=True)
        for what, file in ended[-1].found.items():
            print(f"  {what}\n    {file}", flush=True)
    return int(any(each.found for each in ended))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fuzz.run", description="Fuzzes the readers of strangers' files.")
    parser.add_argument("--only", type=_chosen, default=(), metavar="A,B", help=f"of {', '.join(TARGETS)}")
    parser.add_argument("--seconds", type=int, default=20, help="for each target")
    parser.add_argument("--runs", type=int, default=0, help="inputs for each target, in place of seconds")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations; 0: another each time")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "fuzz", help="the growing corpora")
    return parser.parse_args()


def _chosen(text: str) -> tuple[str, ...]:
    """Targets with commas between them; raises what argparse tells."""
    if unknown := sorted(set(text.split(",")) - set(TARGETS)):
        raise argparse.ArgumentTypeError(f"no target '{unknown[0]}'; known: {', '.join(TARGETS)}")
    return tuple(text.split(","))


if __name__ == "__main__":
    sys.exit(main())
