"""What `deploy --train` gains on ResNet-20, or another net: what it narrows and trains, beside each engine's best int8.

    python benchmarks/train.py [--minutes 25] [--narrow] [--net SOURCE] [--profile standard] [--out FOLDER]
        [--json FILE]

Told is the time of the fastest dense int8 over that of the narrowed net, with the interval of the rounds of a race
that has both to its end, and the metric of both on test items, which chose nothing (of ResNet-20, 250 images).
--net: another source. --narrow: that race has a net of half the width, too, which the source teaches for as many
minutes. Exit 1 below 1.3, or where the narrowed net is more than a point less accurate, or 3 % worse by perplexity.
Run it on a quiet machine.
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
from edgecompress.core import catalog
from edgecompress.core.quantities import LOWER_IS_BETTER
from edgecompress.core.settings import Variant
from edgecompress.extras.search.search import target_toml
from edgecompress.reporting import model, model_variant, sessions
from edgecompress.reporting.model import Report

SOURCE = Path(__file__).parent.parent / "examples" / "resnet20" / "held-out.toml"
PRUNED, HALF = "pruned-", "half-int8"
WANTED, POINT, RISE = 1.3, 0.01, 0.03
LIMITS = {"limits.metric_ratio": 1 + RISE}


def main() -> int:
    """Trains, races and prints."""
    parser = figures.flags(__doc__, "profile", "json")
    parser.add_argument("--minutes", type=float, default=25.0)
    parser.add_argument("--narrow", action="store_true", help="beside a net of half the width, too")
    parser.add_argument("--net", default=str(SOURCE))
    parser.add_argument("--out", type=Path, default=Path("dist/train"))
    asked = parser.parse_args()
    options = edgecompress.Options(out=asked.out / "trained")
    trained = edgecompress.train(
        asked.net, "x86", minutes=asked.minutes, profile=asked.profile, settings=LIMITS, options=options, told=print
    )
    found = row(trained, asked)
    if found["pruned"]:
        found |= beside(trained, found["dense"], asked)
    print(json.dumps(found, indent=1))
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), **found})
    kept = found["lost"] <= (RISE if found["metric"] in LOWER_IS_BETTER else POINT)
    return 0 if (found["ratio"] or 0) >= WANTED and kept else 1


def row(result: edgecompress.Result, asked: argparse.Namespace) -> dict[str, Any]:
    """The narrowed net beside the fastest dense int8."""
    report = model.of(result.read_report())
    told = {v.name: v for v in report.variants if v.numbers["latency"].value is not None}
    pruned = next((name for name in told if name.startswith(PRUNED)), "")
    dense = [n for n, v in told.items() if "int8" in n and n not in (pruned, HALF) and v.verdict != "lost"]
    best = min(dense, key=lambda name: told[name].numbers["latency"].value or 0.0)
    accuracy = {name: v.numbers["accuracy"].value for name, v in told.items()}
    return {
        "minutes": asked.minutes,
        "pruned": pruned,
        "dense": best,
        "ratio": None,
        "metric": (metric := metric_of(told[best])),
        "lost": lost(metric, accuracy[best] or 0.0, accuracy[pruned] or 0.0) if pruned else 0.0,
        "accuracy": accuracy,
        "ms": {name: v.numbers["latency"].value for name, v in told.items()},
        "shipped": report.choice.variant,
        "recipe": [dict(step) for v in report.target["variant"] if v["name"] == pruned for step in v["compress"]],
        "machine": figures.machine(result.outcomes["race/round-1"].facts["environment"]),
    }


def metric_of(variant: model_variant.Variant) -> str:
    """What its accuracy is counted in."""
    found = variant.verify and variant.verify.metric
    return found.name if found else ""


def lost(metric: str, before: float, after: float) -> float:
    """How much worse: as a share of what it was where lower is better, else the difference."""
    return after / before - 1 if metric in LOWER_IS_BETTER else before - after


def ratio(report: Report, before: str, after: str) -> dict[str, Any]:
    """How many times as fast, with its interval; None where one was not measured."""
    held = {v.name: v.sessions for v in report.variants}
    found = sessions.improvement(held[before], held[after], sessions.LATENCY) if {before, after} <= {*held} else None
    return {"ratio": found and found.factor, "low": found and found.low, "high": found and found.high}


def beside(trained: edgecompress.Result, dense: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The narrowed net and the dense one in each round of one race; with --narrow the net of half the width, too."""
    report = model.of(trained.read_report())
    tables = {v["name"]: v for v in report.target["variant"]}
    name = next(name for name in tables if name.startswith(PRUNED))
    pruned = Variant(name, tables[name]["runtime"], tuple(tables[name]["compress"]))
    student = {"use": "distill", "student": "net:half", "minutes": asked.minutes}
    half = Variant(HALF, pruned.runtime, (student, *[t for t in pruned.compress if t["use"] == "int8"]))
    x86 = catalog.target("x86").value
    best = dataclasses.replace(next(v for v in x86.variant if v.name == dense), reference=True)
    file = asked.out / "beside.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    raced = (pruned, *([half] if asked.narrow else []), best)
    file.write_text(target_toml(dataclasses.replace(x86, variant=raced)), "utf-8")
    options = edgecompress.Options(out=asked.out / "beside")
    found = model.of(
        edgecompress.deploy(asked.net, file, profile=asked.profile, settings=LIMITS, options=options).read_report()
    )
    narrow = {}
    if asked.narrow:
        accuracy = {v.name: v.numbers["accuracy"].value for v in found.variants}
        narrow = {"narrow": {**ratio(found, HALF, name), "half": accuracy[HALF], "pruned": accuracy[name]}}
    return {**ratio(found, dense, name), **narrow}


if __name__ == "__main__":
    sys.exit(main())
