"""What `search` finds on real nets, with training if asked for, beside the variants that the x86 target lists by hand.

    python benchmarks/search.py [--minutes 15] [--train] [--only NETS] [--profile standard] [--json FILE]

The search is not given the variants by hand. Then one race has both: what was found and what is listed, in the same
rounds, batch 1, one thread. Told is the time of the fastest by hand over that of the fastest found, both within the
limits on the test split, with the interval of the rounds; exit 1 where what was found is slower. Run it on a quiet
machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import figures

import edgecompress
from edgecompress.core import catalog, stats
from edgecompress.extras.search.search import target_toml
from edgecompress.reporting import model, sessions

EXAMPLES = Path(__file__).parent.parent / "examples"
NETS = ("resnet20", "mobilenetv2")
SAME = "the same file as "  # why a variant is not measured: it is another one


def main() -> int:
    """Searches for the nets one after the other, and races what it found."""
    parser = figures.flags(__doc__, "profile", "json")
    parser.add_argument("--minutes", type=float, default=15.0)
    parser.add_argument("--only", default=",".join(NETS), help="nets, separated by commas")
    parser.add_argument("--train", action="store_true", help="training is in the space")
    asked = parser.parse_args()
    rows = [row(net, asked) for net in asked.only.split(",")]
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "rows": rows})
    return 0 if all(row["ratio"] and row["ratio"] * (1 + stats.CHANGE) >= 1 for row in rows) else 1


def row(net: str, asked: argparse.Namespace) -> dict[str, Any]:
    """One net: its search, then the race of both."""
    held_out = EXAMPLES / net / "held-out.toml"  # its items that choose are new to the net, like those that judge
    source = str(held_out if asked.train and held_out.exists() else held_out.with_name("source.toml"))
    out = Path("dist") / f"search-{net}"
    found = edgecompress.search(
        source,
        "x86",
        profile="quick",
        settings={"search.minutes": asked.minutes, "search.train": asked.train},
        options=edgecompress.Options(out=out / "found"),
        told=lambda trial: print(f"{trial['number']:4} {trial['words']:60} {trial['change']:>9} {trial['values']}"),
    )
    print(f"{net}: {len(found.rows)} trials, {found.why}; the front: {[r['words'] for r in found.front]}")
    print(f"{net}: what mattered: {found.importances}")
    if found.target is None:
        return {"net": net, "ratio": None, "why": found.shipped.message}
    ours = [v.name for v in catalog.target(str(found.target)).value.variant if not v.reference]
    raced = edgecompress.deploy(
        source, both(found.target, out), profile=asked.profile, options=edgecompress.Options(out=out / "both")
    )
    report = model.of(raced.read_report())
    told = {v.name: v for v in report.variants if v.numbers["latency"].value is not None}
    twins = {v.name: v.reason.removeprefix(SAME) for v in report.variants if v.reason.startswith(SAME)}
    told |= {name: told[twin] for name, twin in twins.items() if twin in told}
    mine, hand = (fastest({n: v for n, v in told.items() if (n in ours) == own}) for own in (True, False))
    each = [told[name].sessions for name in (hand, mine) if name]
    ratio = sessions.improvement(*each, sessions.LATENCY) if len(each) == 2 else None
    words = {r["number"]: r["words"] for r in found.rows}
    result = {
        "net": net,
        "train": asked.train,
        "trials": len(found.rows),
        "shipped": report.choice.variant,
        "found": mine,
        "recipe": words[int(mine.rpartition("-")[2])] if mine else "",
        "by_hand": hand,
        "ratio": ratio.factor if ratio else None,
        "low": ratio.low if ratio else None,
        "high": ratio.high if ratio else None,
        "ms": {name: v.numbers["latency"].value for name, v in told.items()},
        "accuracy": {name: v.numbers["accuracy"].value for name, v in told.items()},
        "machine": figures.machine(raced.outcomes["race/round-1"].facts["environment"]),
    }
    print(json.dumps(result, indent=1))
    return result


def both(found: Path, out: Path) -> Path:
    """A target with what was found, then what the x86 target lists."""
    listed = catalog.target("x86").value
    mine = tuple(v for v in catalog.target(str(found)).value.variant if not v.reference)
    out.mkdir(parents=True, exist_ok=True)
    text = target_toml(dataclasses.replace(listed, variant=(*mine, *listed.variant)))
    file = out / "both.toml"
    file.write_text(text, encoding="utf-8")
    return file


def fastest(variants: dict[str, Any]) -> str:
    """The fastest of those that were measured."""
    return min(variants, key=lambda name: variants[name].numbers["latency"].value, default="")


if __name__ == "__main__":
    sys.exit(main())
