"""What pruning buys on real nets: MACs, accuracy and measured latency beside the dense int8 of the same runtime.

    python benchmarks/pruning.py [--profile standard] [--only resnet32,...] [--store FOLDER] [--remeasure] [--json FILE]

Each net has its target in benchmarks/pruning. Trains: ResNet-32 takes most of half an hour on two cores. Exit 1 when a
promise is not kept.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import figures

import edgecompress

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
SOURCES = {"resnet32": "resnet20/resnet32.toml", "mobilenetv2": "mobilenetv2/source.toml"}
SOURCES["textgenrnn"] = "textgenrnn/source.toml"
PRUNED, DENSE = "pruned-int8", "int8"
Row = dict[str, Any]


@dataclass(frozen=True)
class Promise:
    """The least that the pruned variant of a net must reach."""

    macs: float = 0.0  # times fewer
    speedup: float = 0.0  # over the dense int8
    points: float | None = None  # of top-1 lost to the source, at most
    ratio: tuple[float, float] | None = None  # of the dense latency, from and to


PROMISES: Mapping[str, Promise] = {"resnet32": Promise(1.9, 1.4, 1.4, (0.54, 0.60))}


@dataclass(frozen=True)
class Found:
    """One net: its variants, what its report says, and the promises that are not kept."""

    net: str
    rows: Sequence[Row]
    says: Sequence[str]
    fits: Mapping[str, Any]
    device: Mapping[str, Any]
    wall_s: float
    broken: Sequence[str] = field(default_factory=list)


def main() -> int:
    """Deploys the nets one after the other and prints what their reports say."""
    arguments = figures.flags(__doc__, "profile", "only", "store", "remeasure", "json")
    arguments.add_argument("--out", type=Path, default=Path("dist/pruning"))
    asked = arguments.parse_args()
    every = [found(net, asked) for net in SOURCES if not asked.only or net in asked.only.split(",")]
    show(every)
    figures.write(asked.json, [vars(f) for f in every])
    return 1 if any(f.broken for f in every) else 0


def found(net: str, asked: argparse.Namespace) -> Found:
    """One net through its target."""
    options = edgecompress.Options(store=asked.store, out=asked.out / net, remeasure=asked.remeasure)
    source, target = str(EXAMPLES / SOURCES[net]), str(HERE / "pruning" / f"{net}.toml")
    result = edgecompress.deploy(source, target, options=options, profile=asked.profile)
    report = result.read_report()
    gains = {gain["variant"]: gain for gain in report["gains"]}
    rows = [row(variant, gains.get(variant["name"])) for variant in report["variants"]]
    wall_s = sum(outcome.wall_s for outcome in result.outcomes.values())
    says = [gain["says"] for gain in gains.values()]
    fits = {fit["stage"]: fit for fit in report["fits"]}
    device = figures.machine(report["environment"])
    promise = PROMISES.get(net, Promise())
    return Found(net, rows, says, fits, device, wall_s, broken(promise, {row["variant"]: row for row in rows}))


def row(variant: Mapping[str, Any], gain: Mapping[str, Any] | None) -> Row:
    """A variant's numbers; `speedup` is over its dense twin, with its interval."""
    change = gain["change"] if gain else None
    compressed = variant["compressed"] or {}
    return {
        "variant": variant["name"],
        "verdict": variant["verdict"],
        "latency_ms": variant["numbers"]["latency"]["value"],
        "size_bytes": variant["numbers"]["size"]["value"],
        "metric": (variant["verify"] or {}).get("metric"),
        "fewer_macs": gain["fewer_macs"] if gain else None,
        "speedup": change["factor"] if change else None,
        "interval": [change["low"], change["high"]] if change else None,
        "align": compressed.get("align"),
        "widths": {g["name"]: [g["channels"], g["kept"]] for g in compressed.get("groups", ())},
    }


def broken(promise: Promise, rows: Mapping[str, Row]) -> list[str]:
    """The promises that the pruned variant does not keep."""
    pruned, said = rows[PRUNED], []
    if (pruned["fewer_macs"] or 0) < promise.macs:
        said.append(f"{pruned['fewer_macs']:.2f} times fewer MACs, promised {promise.macs:g}")
    if (pruned["speedup"] or 0) < promise.speedup:
        said.append(f"{pruned['speedup']} times as fast, promised {promise.speedup:g}")
    if promise.points is not None and 100 * (pruned["metric"]["before"] - pruned["metric"]["after"]) > promise.points:
        said.append(f"top-1 {pruned['metric']['after']:.3f}, promised within {promise.points:g} points of the source's")
    if promise.ratio and pruned["speedup"] and not promise.ratio[0] <= 1 / pruned["speedup"] <= promise.ratio[1]:
        said.append(
            f"{1 / pruned['speedup']:.3f} of the dense latency, promised {promise.ratio[0]} to {promise.ratio[1]}"
        )
    if promise.macs and (odd := [w for _, w in pruned["widths"].values() if w % pruned["align"]]):
        said.append(f"widths that are no multiples of {pruned['align']}: {odd}")
    return said


def show(every: Sequence[Found]) -> None:
    """A table per net, what its report says, and the machine."""
    columns = ("variant", "verdict", "fewer MACs", "metric", "latency ms", "speed-up over dense int8")
    for f in every:
        rows = [(r["variant"], r["verdict"], times(r["fewer_macs"]), words(r["metric"]), *speed(r)) for r in f.rows]
        said = (*f.says, *(fit["reason"] for fit in f.fits.values()), *(f"NOT KEPT: {b}" for b in f.broken))
        figures.show(f"{f.net}: pruned beside dense, {f.wall_s / 60:.0f} min of work", columns, rows, *said)
    print(every[0].device if every else {})


def times(ratio: float | None) -> str:
    """`1.99x`."""
    return "" if ratio is None else f"{ratio:.2f}x"


def words(metric: Mapping[str, Any] | None) -> str:
    """A metric before and after."""
    return f"{metric['name']} {metric['before']:.4g} → {metric['after']:.4g}" if metric else ""


def speed(r: Row) -> tuple[str, str]:
    """Latency, and the speed-up with its interval."""
    latency = "" if r["latency_ms"] is None else f"{r['latency_ms']:.4f}"
    ends = f" [{r['interval'][0]:.2f}, {r['interval'][1]:.2f}]" if r["interval"] and r["interval"][0] else ""
    return latency, f"{times(r['speedup'])}{ends}"


if __name__ == "__main__":
    sys.exit(main())
