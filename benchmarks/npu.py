"""What int8, int8 with 16-bit activations, both mixed, and half precision lose on Snapdragon's NPU, by its emulator.

    python benchmarks/npu.py [--nets NAME,...] [--items 100] [--work DIR] [--json FILE]

Each net goes to the targets `snapdragon` and `x86` (int8 by ONNX Runtime, beside it); per variant the SQNR of its first
output against the source's, and the accuracy on the same items. Nothing is timed: an emulator's time says nothing.
`vit` is trained by `python benchmarks/npu_nets.py` first.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figures

ROOT = Path(__file__).resolve().parents[1]
NETS = {
    **{
        name: ROOT / "examples" / name
        for name in ("resnet20", "mobilenetv2", "squeezenet", "fsdd", "textgenrnn", "bert")
    },
    "vit": ROOT / "benchmarks",
}
LIMIT_S = 2700.0
MODELS = {"vit": ["npu_nets:build", "--data", "npu_nets:data", "--metric", "top1"]}


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--items", type=int, default=100, help="that judge; 500 where an emulated inference is quick")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(asked.work or scratch).resolve()
        rows = [row for net in asked.nets.split(",") for row in of_net(net, asked.items, work)]
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "items": asked.items, "rows": rows})
    for row in rows:
        print(f"{row['net']:<12} {row['variant']:<9} {row['sqnr_db']:>6} dB  {row['accuracy']:<10} {row['ends']}")
    return 0


def of_net(net: str, items: int, work: Path) -> Iterator[dict[str, Any]]:
    model = MODELS.get(net, ["source.toml"])
    for target, only in (("x86", ["--only", "int8"]), ("snapdragon", [])):
        out = work / net / target
        words = ["deploy", *model, "--target", target, *only, "--samples", str(items), "--profile", "quick"]
        words += ["--store", str(work / "store"), "--out", str(out)]
        command = [sys.executable, "-P", "-m", "edgecompress", *words]
        done = subprocess.run(command, cwd=NETS[net], capture_output=True, text=True, timeout=LIMIT_S)
        file = out / "report.json"
        if not file.exists():  # nothing shipped: the report is in the store
            named = [line.partition("report: ")[2].strip() for line in done.stdout.splitlines() if "report: " in line]
            file = (NETS[net] / named[-1]).with_suffix(".json") if named else file
        if not file.exists():
            print(f"{net} {target}: exit {done.returncode}: {done.stderr.splitlines()[-1:]}", file=sys.stderr)
            continue
        for variant in json.loads(file.read_text(encoding="utf-8"))["variants"]:
            yield row(net, f"{target} {variant['name']}" if target == "x86" else variant["name"], variant)


def row(net: str, name: str, variant: dict[str, Any]) -> dict[str, Any]:
    verify = variant.get("verify") or {}
    outputs, metric = verify.get("outputs") or [], verify.get("metric")
    sqnr = f"{outputs[0]['sqnr_db']:.1f}" if outputs and outputs[0].get("sqnr_db") is not None else "-"
    accuracy = f"{metric['after']:.4g} ({metric['before']:.4g})" if metric else "-"
    ends = variant["verdict"] if variant["verdict"] in ("shipped", "passed", "measured", "equal") else variant["reason"]
    return {"net": net, "variant": name, "sqnr_db": sqnr, "accuracy": accuracy, "ends": ends[:60]}


if __name__ == "__main__":
    sys.exit(main())
