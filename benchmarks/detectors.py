"""Does a detector without a metric ship where it keeps what its source finds, and nowhere else?

    python benchmarks/detectors.py [--half judge|tune|all] [--only NET,...] [--work DIR]

Three small detectors (detector_nets.py) are trained, exported, quantized and damaged as in damage.py, and judged on
SEEN pictures without labels or a metric, as in a deploy with default limits. The truth is COCO's average precision over
IoU 0.5 to 0.95 on HIDDEN others, by pycocotools, of what a file finds against what its source finds there with a score
of 0.5 or more: KEPT and more is to pass, less than LOST is not to ship. Half of the damages (the same as damage.py's)
were used to try the limits out.
"""

from __future__ import annotations

import dataclasses
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import damage
import detector_nets
import figures

KEPT, LOST = 0.95, 0.9
BANDS = ((KEPT, 2.0, f"{KEPT:g} and more"), (LOST, KEPT, "between"), (-1.0, LOST, f"below {LOST:g}"))


def main() -> int:
    parser = figures.flags(__doc__, "only", "work")
    parser.add_argument("--half", choices=("judge", "tune", "all"), default="judge", help="of the damages")
    asked = parser.parse_args()
    began, found = time.monotonic(), list[damage.Case]()
    with tempfile.TemporaryDirectory() as scratch:
        for name in asked.only.split(",") if asked.only else detector_nets.NETS:
            bench = damage.bench(name, Path(asked.work or scratch), detector_nets)
            own = dataclasses.replace(bench, truth=detector_nets.as_truth(name, bench.golden))
            found += damage.cases(own, damage.half(asked.half)[1], damage.refusals)
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(f"half: {asked.half}; {damage.SEEN} pictures judge, {damage.HIDDEN} others tell the truth\n")
    print(report(found))
    return 0


def report(found: Sequence[damage.Case]) -> str:
    """By net: how many files keep so much of what the source finds, and how many of them pass; then what is wrong."""
    rows = [("net", *(cell for *_, band in BANDS for cell in (band, "pass")))]
    for name in [*dict.fromkeys(c.net for c in found), "all"]:
        own = [c for c in found if name in (c.net, "all")]
        groups = [[c for c in own if low <= 1 - c.lost < high] for low, high, _ in BANDS]
        rows.append((name, *(cell for g in groups for cell in (str(len(g)), str(sum(not c.refused for c in g))))))
    wrong = [c for c in found if (1 - c.lost >= KEPT and c.refused) or (1 - c.lost < LOST and not c.refused)]
    lines = [f"{c.net} {c.runtime} {c.done}: {1 - c.lost:.3f}: {'; '.join(c.refused) or 'passes'}" for c in wrong]
    return "\n".join([figures.aligned(rows), "", *lines])


if __name__ == "__main__":
    raise SystemExit(main())
