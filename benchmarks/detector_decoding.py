"""What it costs to make boxes: the net alone, with the operators of its head, and with the package's suppression.

    python benchmarks/detector_decoding.py [--work DIR] [--rounds 10] [--seconds 0.2] [--json FILE]

The four heads of detector_cells.py, deployed for x86 as they are declared, and once more without [decode] (YOLOv8's:
its raw outputs), the variant that shipped alone. All three run in turns in one process on one thread, on scenes; the
last is the shipped net and then what a board's package does with its outputs, in Python. YOLOv8's ONNX file runs also
as its author wrote it, with NonMaxSuppression inside, in ONNX Runtime, beside the net that ends before it.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import detector_cells
import figures
import numpy as np
import onnxruntime

from edgecompress.core import registry, stats
from edgecompress.core.model import Artifact
from edgecompress.data import detection_layout, tensors
from edgecompress.device.agent import timing

Call = Callable[[Any], Any]
RAW_BINS = """import net as example
import torch


class Raw(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = example.build()

    def forward(self, image):
        classes, sides = self.net.raw(image)
        return {"classes": classes, "sides": sides}


def build():
    return Raw().eval()
"""


def main() -> int:
    parser = figures.flags(__doc__, "work", "json")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.2, help="of each turn")
    asked = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        work = Path(asked.work or scratch).resolve()
        work.mkdir(parents=True, exist_ok=True)
        for name, file in dict(detector_cells.prepared(work)).items():
            if not name.endswith("-onnx"):
                rows.append(measured(work, name, Path(file), asked.rounds, asked.seconds))
                show(rows[-1])
        rows.append(suppressed(work, asked.rounds, asked.seconds))
        show(rows[-1])
    figures.write(asked.json, {"machine": figures.machine(), "rows": rows})
    return 0


def measured(work: Path, name: str, file: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of the net alone, with its head, and with boxes chosen, and what they cost as ratios."""
    shipped = deployed(work, file, work / f"decoded-{name}")
    variant = json.loads((shipped / "deploy.json").read_text(encoding="utf-8"))["variant"]
    text = file.read_text(encoding="utf-8")
    if name == "bins":
        (work / "raw_bins.py").write_text(RAW_BINS, encoding="utf-8")
        text = "\n".join(line for line in text.splitlines() if not line.startswith("detect"))
        text = text.replace('"net:build"', '"raw_bins:build"')
    bare = text.partition("[decode]")[0].replace('metric = "map"', 'metric = "none"').replace('"oks"', '"none"')
    (work / f"{name}-bare.toml").write_text(bare, encoding="utf-8")
    alone = deployed(work, work / f"{name}-bare.toml", work / f"bare-{name}", variant)
    runs = [opened(folder) for folder in (alone, shipped)]
    told = json.loads((shipped / "verdict" / "artifact.json").read_text(encoding="utf-8"))["facts"]["detector"]
    layout = detection_layout.Layout.read({key: value for key, value in told.items() if key != "by"})

    def boxes(item: Any) -> Any:
        return next(layout.found(runs[1](item), slice(0, 1), layout.least))

    items = scenes(shipped)
    return {
        "name": name,
        "variant": variant,
        **turns({"net": runs[0], "head": runs[1], "boxes": boxes}, items, rounds, seconds),
    }


def suppressed(work: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """YOLOv8's ONNX file with NonMaxSuppression inside, beside the one that ends before it and Python's suppression."""
    shipped = deployed(work, work / "bins-onnx.toml", work / "decoded-bins-onnx", "fp32")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    whole = onnxruntime.InferenceSession(work / "bins.onnx", options, providers=["CPUExecutionProvider"])
    run = opened(shipped)
    told = json.loads((shipped / "verdict" / "artifact.json").read_text(encoding="utf-8"))["facts"]["detector"]
    layout = detection_layout.Layout.read({key: value for key, value in told.items() if key != "by"})

    def boxes(item: Any) -> Any:
        return next(layout.found(run(item), slice(0, 1), layout.least))

    calls = {"net": run, "head": lambda item: whole.run(None, item), "boxes": boxes}
    return {
        "name": "bins, NonMaxSuppression inside",
        "variant": "fp32",
        **turns(calls, scenes(shipped), rounds, seconds),
    }


def deployed(work: Path, file: Path, out: Path, variant: str = "") -> Path:
    if not (out / "deploy.json").is_file():
        words = [str(file), "--target", "x86", "--profile", "quick", "--out", str(out), "--store", str(work / "store")]
        only = ["--only", variant] if variant else []
        subprocess.run([sys.executable, "-P", "-m", "edgecompress", "deploy", *words, *only], cwd=work, check=True)
    return out


def opened(folder: Path) -> Call:
    artifact = Artifact.read(folder / "artifact")
    runtime = json.loads((folder / "deploy.json").read_text(encoding="utf-8"))["runtime"]
    session = registry.load("runtimes", runtime).open(artifact, 1)
    run: Call = session.run
    return run


def scenes(folder: Path) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Items that shipped along, each as a batch of one."""
    excerpt = Artifact.read(folder / "excerpt")
    (spec,) = excerpt.inputs
    rows, name = tensors.load(excerpt, "test", spec.name), Artifact.read(folder / "artifact").inputs[0].name
    return [{name: rows[i : i + 1]} for i in range(min(8, len(rows)))]


def turns(calls: dict[str, Call], items: list[Any], rounds: int, seconds: float) -> dict[str, Any]:
    """The median of each in ms, and the ratios to the first with their intervals."""
    times: dict[str, list[float]] = {key: [] for key in calls}
    for call in calls.values():
        timing.timed(call, items, seconds, 50)
    for number in range(rounds):
        for key in (*calls,) if number % 2 else reversed((*calls,)):
            times[key].append(statistics.median(timing.timed(calls[key], items, seconds, 50)) / 1e6)
    found: dict[str, Any] = {key: statistics.median(each) for key, each in times.items()}
    for key in ("head", "boxes"):
        ratio = stats.ratio(times[key], times["net"])
        found[f"{key}_ratio"] = [ratio.median, ratio.low, ratio.high]
    return found


def show(row: dict[str, Any]) -> None:
    told = [f"{row['name']} {row['variant']}: net {row['net']:.4f} ms"]
    for key in ("head", "boxes"):
        median, low, high = row[f"{key}_ratio"]
        told.append(f"{key} {row[key]:.4f} ms, {median:.3f} [{low:.3f}, {high:.3f}]")
    print("; ".join(told), flush=True)


if __name__ == "__main__":
    sys.exit(main())
