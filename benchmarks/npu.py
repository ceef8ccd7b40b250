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
KEPT = ("shipped", "passed", "measured", "equal")
MODELS = {"vit": ["npu_nets:build", "--data", "npu_nets:data", "--metric", "top1"]}


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    parser.add_argument("--nets", default=",".join(NETS))
    parser.add_argument("--items", type=int, default=100, help="that judge: an emulated inference takes up to a second")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(asked.work or scratch).resolve()
        nets = [of_net(net, asked.items, work) for net in asked.nets.split(",")]
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "items": asked.items, "nets": nets})
    for net in nets:
        print(f"{net['net']}: {net['source']}, {net['ships']} ships")
        for name, told in net["variants"].items():
            print(f"  {name:<9} {told['sqnr_db']:5.1f} dB  {told['accuracy']:<8} {told['reason']}")
    return 0


def of_net(net: str, items: int, work: Path) -> dict[str, Any]:
    """What became of a net: the source's accuracy, what ships, and of each variant that was built its numbers."""
    found: dict[str, Any] = {"net": net, "source": "no metric", "ships": "nothing", "variants": {}}
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
            raise SystemExit(f"{net} {target}: exit {done.returncode}: {done.stderr.splitlines()[-1:]}")
        for variant in json.loads(file.read_text(encoding="utf-8"))["variants"]:
            if verify := variant["verify"]:
                metric = verify["metric"]
                found["source"] = f"{metric['before']:.4g}" if metric else found["source"]
                found["ships"] = variant["name"] if variant["verdict"] == "shipped" and not only else found["ships"]
                found["variants"][f"x86 {variant['name']}" if only else variant["name"]] = {
                    "sqnr_db": round(verify["outputs"][0]["sqnr_db"], 1),
                    "accuracy": f"{metric['after']:.4g}" if metric else "-",
                    "reason": "" if variant["verdict"] in KEPT else variant["reason"][:90],
                }
    return found


if __name__ == "__main__":
    sys.exit(main())
