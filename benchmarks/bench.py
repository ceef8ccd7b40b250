"""The x86 target on real nets: what ships, and how much faster, smaller and less accurate it is than fp32.

    python benchmarks/bench.py [--profile standard] [--only resnet20,...] [--remeasure] [--json FILE]

Every ratio is to ONNX Runtime fp32, measured in turns in one run, batch 1, one thread. Prints what ships, the best that
each single runtime came to, what holds it back, and the machine; exit 1 when a promise is not kept, or when what ships
is slower than the best of a single runtime. Sizes are compared with fp32 of the same format.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import figures

import edgecompress
from edgecompress.core import stats
from edgecompress.reporting import model, model_variant, sessions

EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True)
class Promise:
    """The least a net must gain over ONNX Runtime fp32."""

    net: str
    ratio: float
    settings: Mapping[str, Any] = field(default_factory=dict)


BASE = "fp32"
PROMISES = (
    Promise("resnet20", 2.2, {"limits.items_lost": 2}),
    Promise("mobilenetv2", 1.9),
    Promise("textgenrnn", 1.35),
    Promise("lstm_lm", 2.0),
    Promise("bert", 2.8),
)
# The one to beat is in every round to the end; the fp32 of the other runtimes are variants like any other.
ONE_REFERENCE = {f"variant.{runtime}-fp32.reference": False for runtime in ("openvino", "litert", "executorch")}


def main() -> int:
    """Runs the nets one after the other."""
    asked = figures.flags(__doc__, "profile", "remeasure", "only", "json").parse_args()
    rows = [row(p, asked) for p in PROMISES if not asked.only or p.net in asked.only.split(",")]
    show(rows)
    figures.write(asked.json, rows)
    return 0 if all(r["kept"] for r in rows) else 1


def row(promise: Promise, asked: argparse.Namespace) -> dict[str, Any]:
    """One net deployed, and its ratios from the rounds of that deploy."""
    options = edgecompress.Options(out=Path("dist") / f"bench-{promise.net}", remeasure=asked.remeasure)
    source = str(EXAMPLES / promise.net / "source.toml")
    settings = {**ONE_REFERENCE, **promise.settings}
    result = edgecompress.deploy(source, "x86", profile=asked.profile, settings=settings, options=options)
    if result.out is None:
        return {"net": promise.net, "kept": False, "shipped": "nothing", "why": result.message}
    variants = {v.name: v for v in model.of(result.read_report()).variants}
    shipped = json.loads((result.out / "deploy.json").read_text(encoding="utf-8"))["variant"]
    ratio = sessions.improvement(variants[BASE].sessions, variants[shipped].sessions, sessions.LATENCY)
    best = best_of_each(variants)
    if ratio is None:
        return {"net": promise.net, "kept": False, "shipped": shipped, "why": "too noisy to compare"}
    facts = result.outcomes[f"{shipped}/verify"].facts
    return {
        "net": promise.net,
        "shipped": shipped,
        "latency_ms": variants[shipped].numbers["latency"].value,
        "best": best,
        "ratio": ratio.factor,
        "low": ratio.low,
        "high": ratio.high,
        "sessions": ratio.n,
        "size_ratio": size_ratio(result, shipped),
        "metric": facts["metric"],
        "held_back": held.says if (held := variants[shipped].bottleneck) else "",
        "promised": promise.ratio,
        "kept": ratio.factor >= promise.ratio and ratio.factor * (1 + stats.CHANGE) >= max(best.values()),
        "machine": figures.machine(result.outcomes["race/round-1"].facts["environment"]),
    }


def best_of_each(variants: Mapping[str, model_variant.Variant]) -> dict[str, float]:
    """For each runtime, how many times faster than ONNX Runtime fp32 its best variant is, over their common rounds."""
    best: dict[str, float] = {}
    for variant in variants.values():
        if each := sessions.ratios(variants[BASE].sessions, variant.sessions, sessions.LATENCY):
            best[variant.runtime] = max(median(each), best.get(variant.runtime, 0.0))
    return best


def size_ratio(result: edgecompress.Result, shipped: str) -> float:
    """Bytes of the fp32 artifact of the shipped one's format over the shipped one's."""
    sizes = {v["name"]: v["artifact"] for v in result.read_report()["variants"] if v["artifact"]}
    ours = sizes[shipped]
    fp32 = next(a for name, a in sizes.items() if name.endswith("fp32") and a["kind"] == ours["kind"])
    return float(fp32["size_bytes"] / ours["size_bytes"])


def show(rows: list[dict[str, Any]]) -> None:
    """The table that goes into the docs."""
    columns = ["net", "ships", "ms", "times faster", "interval", "best of each runtime", "times smaller"]
    held = [f"{r['net']}: {r.get('held_back') or 'what holds it back is not told'}" for r in rows]
    title = "x86, batch 1, 1 thread, against ONNX Runtime fp32"
    machine = [r["machine"] for r in rows[:1] if "machine" in r]
    figures.show(title, [*columns, "accuracy", "promised"], [cells(r) for r in rows], *held, *machine)


def cells(r: dict[str, Any]) -> list[str]:
    """A row as text."""
    if "ratio" not in r:
        return [r["net"], r["shipped"], "", "", "", "", "", r["why"], ""]
    metric = r["metric"]
    bounds = f"{r['low']:.2f}–{r['high']:.2f}" if r["low"] is not None else "one session"
    accuracy = f"{metric['name']} {metric['before']:.4g} → {metric['after']:.4g}" if metric else "random weights"
    kept = f"≥ {r['promised']} {'kept' if r['kept'] else 'NOT KEPT'}"
    small = f"{r['size_ratio']:.2f}"
    return [
        r["net"],
        r["shipped"],
        f"{r['latency_ms']:.3f}",
        f"{r['ratio']:.2f}",
        bounds,
        ", ".join(f"{name} {value:.2f}" for name, value in sorted(r["best"].items(), key=lambda b: -b[1])),
        small,
        accuracy,
        kept,
    ]


if __name__ == "__main__":
    sys.exit(main())
