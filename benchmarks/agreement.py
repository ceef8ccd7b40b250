"""Do two runs agree? What was shipped is profiled twice, and the two are compared.

    python benchmarks/agreement.py [FOLDER] [--profile standard] [--threads 1] [--keep FILE]

FOLDER is what a deploy wrote; without it the embedded demo is deployed for x86 first. Printed: the medians, their
ratio, and what each report says of the noise that it saw. Exit 1 when the two differ by more than 3 % and neither
report says why.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from edgecompress.commands import deploy, result
from edgecompress.commands.profile import profile as measure
from edgecompress.core import stats
from edgecompress.reporting import noise

LIMIT = 0.03


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, help="what a deploy wrote (default: the demo, deployed now)")
    parser.add_argument("--profile", default="standard")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="write what is printed here too")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = asked.folder or demo(Path(place))
        runs = [profiled(folder, Path(place) / f"store-{i}", asked.profile, asked.threads) for i in (1, 2)]
    told = json.dumps({**agreement(runs), "profile": asked.profile, "environment": runs[0]["environment"]}, indent=1)
    print(told)
    if asked.keep:
        asked.keep.write_text(told + "\n", encoding="utf-8")
    return 0 if json.loads(told)["kept"] else 1


def demo(place: Path) -> Path:
    """The embedded demo, deployed for x86."""
    options = result.Options(store=place / "store", out=place / "out")
    shipped = deploy.deploy(target="x86", profile="quick", options=options)
    if shipped.out is None:
        sys.exit(f"the demo does not ship: {shipped.message}")
    return shipped.out


def profiled(folder: Path, store: Path, profile: str, threads: int) -> dict[str, Any]:
    """The report of one profile, with a store of its own: nothing of the other run is found again."""
    options = result.Options(store=store, command="benchmarks/agreement.py")
    return measure(folder, options=options, profile=profile, threads=threads).read_report()


def agreement(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The ratio of two reports' latencies, and whether one that is off was to be expected by what they say."""
    variants = [report["variants"][0] for report in runs]
    medians = [[s["median_ms"] for s in v["sessions"] if s["median_ms"] is not None] for v in variants]
    said = [noise.sentence(v["name"], v["sessions"]) for v in variants]
    ratio = stats.unpaired(medians[1], medians[0])
    agree = abs(ratio.median - 1) <= LIMIT
    found = {"medians_ms": medians, "ratio": ratio.median, "interval": [ratio.low, ratio.high], "said": said}
    return {**found, "limit": LIMIT, "agree": agree, "kept": agree or any(said)}


if __name__ == "__main__":
    sys.exit(main())
