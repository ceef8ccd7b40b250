"""What safety costs: a quick deploy, and one that is all hits, with and without it, in turns of one run.

    python benchmarks/safety_cost.py [MODEL] [--target x86] [--rounds 6] [deploy's own options]

Without an argument the embedded demo is deployed. "Safe" is the command as it is: stages run in their sandbox, stored
results are read and hashed when they are used (here for the first time after a copy), and so is what ships. "Hashed"
is without the sandbox, "limited" without the hashes, "bare" without both. The switches are in this file alone: no
option of the command reaches them. Printed: the median seconds of each, its ratio to "bare" with its interval, the
seconds that safety adds.
Exit 1 when an interval lies above a promise: 5 % of a quick deploy, 0.3 s of one that is all hits; a median above it
alone is said to be "not shown".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from edgecompress.core import stats
from edgecompress.plugins.transports import host

MOST_RATIO, MOST_S = 1.05, 0.3
WAYS: Mapping[str, tuple[str, ...]] = {
    "safe": (),
    "hashed": ("limits",),
    "limited": ("hashes",),
    "bare": ("limits", "hashes"),
}
OFF = "EDGECOMPRESS_SAFETY_COST_OFF"  # in the environment of what is measured: what is left out
# Each Python of a deploy runs this when it starts; it is imported by Python itself, from a folder of PYTHONPATH.
SITE = f"""
import os
from edgecompress.core import sandbox
if "limits" in os.environ["{OFF}"].split(","):
    sandbox.enter = lambda limits: None
"""
DEPLOY = f"""
import os, sys
from edgecompress.cli import main
from edgecompress.core.model import Artifact
from edgecompress.pipeline import shipping
from edgecompress.pipeline.store import Store
if "hashes" in os.environ["{OFF}"].split(","):
    Store._whole = lambda store, entry: True
    digest = Artifact.digest
    copied = shipping.copied
    def unhashed(artifact, place):
        Artifact.digest = lambda copy: artifact.sha256
        try:
            copied(artifact, place)
        finally:
            Artifact.digest = digest
    shipping.copied = unhashed
sys.exit(main.main(sys.argv[1:]))
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    asked, words = parser.parse_known_args()
    words = ["deploy", *words, *([] if "--profile" in words else ["--profile", "quick"])]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "site").mkdir()
        (Path(folder) / "site" / "sitecustomize.py").write_text(SITE)
        times = turns(Path(folder), words, asked.rounds)
    found = {what: {way: compared(times[what], way) for way in WAYS} for what in times}
    promises = {"quick": promise(times["quick"], MOST_RATIO, False), "hits": promise(times["hits"], MOST_S, True)}
    print(
        json.dumps(
            {**found, "promises": promises, "rounds": asked.rounds, "machine": host.connect({}).facts()}, indent=1
        )
    )
    return 1 if "broken" in promises.values() else 0


def turns(folder: Path, words: Sequence[str], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of a deploy from nothing and of one that is all hits, of each way; the order changes each round."""
    times: dict[str, dict[str, list[float]]] = {what: {way: [] for way in WAYS} for what in ("quick", "hits")}
    for number in range(-1, rounds):  # the first round warms the disk's cache, and does not count
        order = list(WAYS)
        order = order[number % len(order) :] + order[: number % len(order)]
        for way in order:
            work = folder / way
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            for what in ("quick", "hits"):
                shutil.rmtree(work / "results" / "checked", ignore_errors=True)  # as on the first use after a copy
                took_s = seconds(work, folder / "site", words, WAYS[way])
                if number >= 0:
                    times[what][way].append(took_s)
    return times


def seconds(work: Path, site: Path, words: Sequence[str], off: Sequence[str]) -> float:
    """How long a deploy takes."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    argv = [sys.executable, "-c", DEPLOY, *words, "--store", "results", "--out", "shipped", "--quiet"]
    begin = time.perf_counter()
    done = subprocess.run(
        argv, cwd=work, env={**os.environ, OFF: ",".join(off), "PYTHONPATH": path}, capture_output=True, text=True
    )
    took_s = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-500:]}")
    return took_s


def compared(times: Mapping[str, Sequence[float]], way: str) -> dict[str, Any]:
    """A way beside the bare one."""
    ratio = stats.ratio(list(times[way]), list(times["bare"]))
    added_s = statistics.median(a - b for a, b in zip(times[way], times["bare"], strict=True))
    median_s = statistics.median(times[way])
    return {"s": median_s, "ratio": ratio.median, "interval": [ratio.low, ratio.high], "adds_s": added_s}


def promise(times: Mapping[str, Sequence[float]], most: float, in_seconds: bool) -> str:
    """Whether what safety adds stays below a limit: kept, not shown, or broken."""
    ratio = stats.ratio(list(times["safe"]), list(times["bare"]))
    bare_s = statistics.median(times["bare"])
    low, median = (None if r is None else (r - 1) * bare_s if in_seconds else r for r in (ratio.low, ratio.median))
    if low is not None and low > most:
        return "broken"
    return "kept" if median is not None and median <= most else "not shown"


if __name__ == "__main__":
    sys.exit(main())
