"""The x86 target on real nets: what ships, and how much faster, smaller and less accurate it is than fp32.

    python benchmarks/bench.py [--profile standard] [--only resnet20,...] [--remeasure] [--json FILE]

Every ratio is measured in turns in one run, batch 1, one thread. Prints a table and the machine; exit 1 when a promise
is not kept. Sizes are compared with fp32 of the same format.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import edgecompress
from edgecompress import statistic

MACHINE = ("cpu", "cores", "features", "os", "kernel", "virtual")
EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True)
class Promise:
    """The least a net must gain: the shipped variant against `over` ("any": the fastest fp32 of any runtime)."""

    net: str
    ratio: float
    over: str
    settings: dict[str, Any]


PROMISES = (
    Promise("resnet20", 1.4, "any", {"limits.items_lost": 2}),
    Promise("mobilenetv2", 1.7, "fp32", {}),
    Promise("textgenrnn", 1.35, "any", {}),
)


def main() -> int:
    """Runs the nets one after the other."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--profile", default="standard")
    arguments.add_argument("--remeasure", action="store_true", help="measure again, whatever is stored")
    arguments.add_argument("--only", default="", help="nets, separated by commas")
    arguments.add_argument("--json", type=Path, help="also write the rows there")
    asked = arguments.parse_args()
    rows = [row(p, asked) for p in PROMISES if not asked.only or p.net in asked.only.split(",")]
    show(rows)
    if asked.json:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 0 if all(r["kept"] for r in rows) else 1


def row(promise: Promise, asked: argparse.Namespace) -> dict[str, Any]:
    """One net deployed, and its ratios from the rounds of that deploy."""
    options = edgecompress.Options(out=Path("dist") / f"bench-{promise.net}", remeasure=asked.remeasure)
    source = str(EXAMPLES / promise.net / "source.toml")
    result = edgecompress.deploy(source, "x86", profile=asked.profile, settings=promise.settings, options=options)
    if result.out is None:
        return {"net": promise.net, "kept": False, "shipped": "nothing", "why": result.message}
    times = session_medians(result)
    shipped = json.loads((result.out / "deploy.json").read_text(encoding="utf-8"))["variant"]
    references = [v for v in times if v.endswith("fp32")]
    base = min(references, key=lambda v: median(times[v])) if promise.over == "any" else promise.over
    n = min(len(times[base]), len(times[shipped]))
    ratio = statistic.ratio(times[base][:n], times[shipped][:n])
    facts = result.outcomes[f"{shipped}/verify"].facts
    return {
        "net": promise.net,
        "shipped": shipped,
        "latency_ms": median(times[shipped]),
        "over": base,
        "ratio": ratio.median,
        "low": ratio.low,
        "high": ratio.high,
        "sessions": ratio.n,
        "size_ratio": size_ratio(result, shipped),
        "metric": facts["metric"],
        "promised": promise.ratio,
        "kept": ratio.median >= promise.ratio,
        "machine": {key: result.outcomes["race/round-1"].facts["environment"].get(key) for key in MACHINE},
    }


def session_medians(result: edgecompress.Result) -> dict[str, list[float]]:
    """Session medians in ms of each variant, in the order of the rounds."""
    times: dict[str, list[float]] = {}
    for name, outcome in result.outcomes.items():
        if name.startswith("race/"):
            for variant, numbers in outcome.facts["variants"].items():
                times.setdefault(variant, []).append(numbers["median_ms"])
    return times


def size_ratio(result: edgecompress.Result, shipped: str) -> float:
    """Bytes of the fp32 artifact of the shipped one's format over the shipped one's."""
    sizes = {v["name"]: v["artifact"] for v in result.read_report()["variants"] if v["artifact"]}
    ours = sizes[shipped]
    fp32 = next(a for name, a in sizes.items() if name.endswith("fp32") and a["kind"] == ours["kind"])
    return float(fp32["size_bytes"] / ours["size_bytes"])


def show(rows: list[dict[str, Any]]) -> None:
    """The table that goes into the docs."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="x86, batch 1, 1 thread")
    for column in (
        "net",
        "ships",
        "ms",
        "against",
        "times faster",
        "interval",
        "times smaller",
        "accuracy",
        "promised",
    ):
        table.add_column(column)
    for r in rows:
        table.add_row(*cells(r))
    console = Console(width=140)
    console.print(table)
    if rows and "machine" in rows[0]:
        console.print(rows[0]["machine"])


def cells(r: dict[str, Any]) -> list[str]:
    """A row as text."""
    if "ratio" not in r:
        return [r["net"], r["shipped"], "", "", "", "", "", r["why"], ""]
    metric = r["metric"]
    bounds = f"{r['low']:.2f}–{r['high']:.2f}" if r["low"] is not None else "one session"
    accuracy = f"{metric['name']} {metric['before']:.4g} → {metric['after']:.4g}"
    kept = f"≥ {r['promised']} {'kept' if r['kept'] else 'NOT KEPT'}"
    small = f"{r['size_ratio']:.2f}"
    return [
        r["net"],
        r["shipped"],
        f"{r['latency_ms']:.3f}",
        r["over"],
        f"{r['ratio']:.2f}",
        bounds,
        small,
        accuracy,
        kept,
    ]


if __name__ == "__main__":
    sys.exit(main())
