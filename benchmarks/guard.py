"""What the accuracy guard mends on real nets, and on one made for int8 to break: rungs, budget, latency, wall time.

    python benchmarks/guard.py [--profile quick] [--only resnet20,...] [--store FOLDER] [--json FILE]

Rungs are chosen on the split "select", and what was chosen is judged on "test". Each net is deployed twice: the second
run must find everything stored. Exit 1 where a promise is not kept. MobileNetV2 and SqueezeNet have 500 images in all:
64 calibrate, 136 choose, 300 judge, and not one of those may be lost, which is stricter than one of 500. Where plain
int8 loses nothing on "test", by luck or not, there is nothing to recover, whatever "select" foretold.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures

import edgecompress

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
INSIDE = 3  # of the real nets, at least, end inside their budget
RECOVERED = 0.5  # of plain int8's loss, at least, by one that does not
DISASTER = 0.2  # top-1 that plain int8 loses on the net made for that, at least


@dataclass(frozen=True)
class Subject:
    """A net, the target whose budget it is held to, and what is laid over them."""

    source: str
    target: str = "images"
    settings: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)


FEW: Any = {"settings": {"limits.items_lost": 0}, "asked": {"data": "net:data_to_choose_by"}}
REAL = {
    "resnet20": Subject("resnet20/source.toml"),
    "mobilenetv2": Subject("mobilenetv2/source.toml", **FEW),
    "squeezenet": Subject("squeezenet/source.toml", **FEW),
    "textgenrnn": Subject("textgenrnn/source.toml", "text"),
}
MADE = {"disaster": Subject("depthwise/source.toml", settings={"limits.items_lost": 3})}
COARSE = {  # weights of 4 bits: there is much to mend, and nothing is promised
    "resnet20-w4": Subject("resnet20/source.toml", "weights4"),
    "mobilenetv2-w4": Subject("mobilenetv2/source.toml", "weights4", **FEW),
    "squeezenet-w4": Subject("squeezenet/source.toml", "weights4", **FEW),
}
SUBJECTS = {**REAL, **MADE, **COARSE}


@dataclass(frozen=True)
class Found:
    """How one net ended: its ladder as the report has it, and what two runs took."""

    net: str
    ladder: Mapping[str, Any]
    inside: bool
    metric: Mapping[str, Any]
    speedup: float | None  # over fp32
    wall_s: float
    again_s: float
    ran_again: Sequence[str]
    device: Mapping[str, Any]


def main() -> int:
    """Deploys the nets one after the other, and prints what their reports say."""
    arguments = figures.flags(__doc__, "only", "store", "json")
    arguments.add_argument("--profile", default="quick")
    arguments.add_argument("--out", type=Path, default=Path("dist/guard"))
    asked = arguments.parse_args()
    every = [found(net, asked) for net in SUBJECTS if not asked.only or net in asked.only.split(",")]
    said = broken(every)
    show(every, said)
    figures.write(asked.json, [vars(f) for f in every])
    return 1 if said else 0


def found(net: str, asked: argparse.Namespace) -> Found:
    """One net, twice."""
    begin = time.monotonic()
    result = deployed(net, asked)
    wall_s = time.monotonic() - begin
    again = deployed(net, asked)
    report = result.read_report()
    variant = next(v for v in report["variants"] if v["name"] == "int8")
    speeds = {v["name"]: v["numbers"]["latency"]["value"] for v in report["variants"]}
    ran = [name for name, outcome in again.outcomes.items() if outcome.why_run != "hit" and outcome.status != "lost"]
    return Found(
        net,
        report["ladders"][0],
        variant["verdict"] != "lost" and result.exit_code == 0,
        (variant["verify"] or {}).get("metric") or {},
        speeds["fp32"] / speeds["int8"] if speeds["int8"] and speeds["fp32"] else None,
        wall_s,
        time.monotonic() - begin - wall_s,
        ran,
        figures.machine(report["environment"]),
    )


def deployed(net: str, asked: argparse.Namespace) -> Any:
    """The guard's own command, as Python has it."""
    subject = SUBJECTS[net]
    options = edgecompress.Options(store=asked.store, out=asked.out / net)
    target = str(HERE / "guard" / f"{subject.target}.toml")
    more = {"settings": dict(subject.settings), "profile": asked.profile, **subject.asked}
    return edgecompress.deploy(str(EXAMPLES / subject.source), target, options=options, **more)


def broken(every: Sequence[Found]) -> list[str]:
    """The promises that are not kept."""
    said = [f"{f.net}: the second run ran {', '.join(f.ran_again)}" for f in every if f.ran_again]
    real = [f for f in every if f.net in REAL]
    if len(real) == len(REAL) and sum(f.inside for f in real) < INSIDE:
        said.append(f"{sum(f.inside for f in real)} of the real nets end inside the budget, promised {INSIDE}")
    for f in real:
        if not f.inside and f.ladder["plain_loss"] > 0 and f.ladder["recovered"] < RECOVERED:
            said.append(f"{f.net}: recovers {percent(f.ladder['recovered'])} of plain int8's loss, promised half")
    for f in (f for f in every if f.net in MADE):
        if not f.inside or f.ladder["plain_loss"] < DISASTER or (f.speedup or 0) <= 1:
            said.append(f"{f.net}: plain int8 loses {percent(f.ladder['plain_loss'])}, ends at {f.metric}, {f.speedup}")
    return said


def show(every: Sequence[Found], said: Sequence[str]) -> None:
    """A line per net, a table per ladder, what is not kept, and the machine."""
    rows = []
    for f in every:
        end = next((r["label"] for r in f.ladder["rungs"] if r["chosen"]), "")
        losses = (percent(f.ladder[key]) for key in ("plain_loss", "loss", "limit"))
        plain, ours, limit = losses
        walls = f"{f.wall_s / 60:.1f} min, {f.again_s:.1f} s"
        speed = "" if f.speedup is None else f"{f.speedup:.2f}x"
        inside = "yes" if f.inside else "no"
        items = str(f.metric.get("n", ""))
        recovered = "nothing lost" if f.ladder["plain_loss"] <= 0 else percent(f.ladder["recovered"])
        rows.append((f.net, items, plain, end, ours, limit, inside, recovered, speed, walls))
    columns = (
        "net",
        "n",
        "plain loses",
        "ends at",
        "it loses",
        "budget",
        "inside",
        "recovered",
        "speed-up",
        "wall, again",
    )
    figures.show("Plain int8 and what the guard made of it, judged on test", columns, rows)
    for f in every:
        rungs(f)
    print(*(f"NOT KEPT: {text}" for text in said), every[0].device if every else {}, sep="\n")


def rungs(f: Found) -> None:
    """A ladder as a table."""
    rows = []
    for r in f.ladder["rungs"]:
        near = "" if r["sqnr_db"] is None else f"{r['sqnr_db']:.1f}"
        ratio = "" if r["ratio"] is None else f"{r['ratio']:.2f}"
        note = ", ".join(filter(None, ("chosen" if r["chosen"] else "", r["reason"])))
        rows.append((r["label"], percent(r["loss"]), near, ratio, note))
    figures.show(f"{f.net}: the ladder, on select", ("rung", "loses", "SQNR dB", "latency, plain = 1", "note"), rows)


def percent(share: float | None) -> str:
    """`1.2 %`."""
    return "" if share is None else f"{100 * share:.2g} %"


if __name__ == "__main__":
    sys.exit(main())
