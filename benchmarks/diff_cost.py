"""What `edgecompress diff` costs on nets of the size of ResNet-50 and BERT base: seconds, and peak memory.

    python benchmarks/diff_cost.py [--json FILE]

A is the net in torch, or its ONNX by the older exporter, B its ONNX by the newer one; weights are random, items too.
Peak memory is the largest sum of the resident pages of all processes that the command starts, less the largest sum of
the two sessions alone, over the size of the file: the target is 4. Seconds are those of the whole command.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import figures
import numpy as np
import torch
from torch import nn

HERE = Path(__file__).resolve().parent
TORCH = (
    "import sys, numpy, torch, diff_cost; net = diff_cost.NETS[sys.argv[1]][0](); x = numpy.load(sys.argv[2]); "
    "torch.no_grad().__enter__(); [net(torch.from_numpy(v[:1])) for v in x.values()]"
)
SESSION = (
    "import sys, numpy, onnxruntime as o; s = o.InferenceSession(sys.argv[1], providers=['CPUExecutionProvider']); "
    "x = numpy.load(sys.argv[2]); s.run(None, {k: v[:1] for k, v in x.items()})"
)


class Bottleneck(nn.Module):  # type: ignore[misc]
    """He et al. (2015)."""

    def __init__(self, inner: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        same = stride == 1 and inner == out
        self.down = nn.Identity() if same else nn.Conv2d(inner, out, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))
        return torch.relu(self.bn3(self.conv3(y)) + self.down(x))


def resnet50() -> Any:
    torch.manual_seed(0)
    blocks, inner = list[nn.Module](), 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for place in range(count):
            blocks.append(Bottleneck(inner, width, 1 if place else stride))
            inner = 4 * width
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)]
    return nn.Sequential(*stem, *blocks, *end).eval()


class Bert(nn.Module):  # type: ignore[misc]
    """Twelve encoder layers of 768 behind an embedding of 30,522 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.places = nn.Embedding(30_522, 768), nn.Parameter(torch.randn(128, 768) * 0.02)
        layer = nn.TransformerEncoderLayer(768, 12, 3072, 0.0, "gelu", batch_first=True)
        self.layers, self.out = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 2)

    def forward(self, ids: Any) -> Any:
        return self.out(self.layers(self.embedding(ids) + self.places)[:, 0])


def bert_base() -> Any:
    torch.manual_seed(0)
    return Bert().eval()


NETS: dict[str, Any] = {"resnet50": (resnet50, "x"), "bert_base": (bert_base, "ids")}


def resident(root: int) -> int:
    """Bytes of a process and all below it, in memory now (PSS: a page that several hold counts in parts)."""
    total, todo = 0, [root]
    while todo:
        pid = todo.pop()
        try:
            told = Path(f"/proc/{pid}/smaps_rollup").read_text()
            total += 1024 * int(next(line for line in told.splitlines() if line.startswith("Pss:")).split()[1])
            for task in Path(f"/proc/{pid}/task").iterdir():
                todo += map(int, (task / "children").read_text().split())
        except (OSError, ValueError, StopIteration):  # it has ended
            continue
    return total


def peak(command: list[str], folder: Path) -> tuple[float, int, int]:
    """Seconds, the largest sum of resident bytes of a command and all that it starts, and its exit code."""
    largest = 0
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def watch() -> None:
        nonlocal largest
        while process.poll() is None:
            largest = max(largest, resident(process.pid))
            time.sleep(0.05)

    began = time.monotonic()
    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    watcher.join()
    return time.monotonic() - began, largest, code


def written(folder: Path) -> dict[str, tuple[str, str, str]]:
    """The pairs: A, B, the items."""
    rng = np.random.default_rng(0)
    pairs = {}
    for name, (build, end) in NETS.items():
        images = rng.normal(size=(12, 3, 224, 224)).astype(np.float32)
        items = images if end == "x" else rng.integers(0, 30_522, (12, 128))
        np.savez(folder / f"{name}.npz", **{end: items})
        for kind, new in (("old", False), ("new", True)):
            more: dict[str, Any] = {"external_data": False} if new else {"opset_version": 17}
            file = folder / f"{name}-{kind}.onnx"
            torch.onnx.export(build(), (torch.from_numpy(items[:1]),), file, input_names=[end], dynamo=new, **more)
        first = f"diff_cost:{name}" if name == "resnet50" else f"{name}-old.onnx"
        pairs[name] = (first, f"{name}-new.onnx", f"{name}.npz")
    return pairs


def main() -> int:
    asked = figures.flags(__doc__, "json").parse_args()
    os.environ["PYTHONPATH"] = str(HERE)
    rows = []
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        for name, (a, b, items) in written(folder).items():
            code_of = {True: TORCH, False: SESSION}
            sides = [(code_of[":" in side], side.rpartition(":")[2]) for side in (a, b)]
            alone = sum(peak([sys.executable, "-c", code, what, items], folder)[1] for code, what in sides)
            command = [sys.executable, "-m", "edgecompress", "diff", a, b, "--data", items, "--store", "store"]
            seconds, most, code = peak(command, folder)
            size = (folder / b).stat().st_size
            times = (most - alone) / size
            rows.append({"net": name, "seconds": seconds, "exit": code, "peak": most, "sessions": alone, "file": size})
            rows[-1]["times"] = times
            sizes = [f"{each / 2**20:.0f}" for each in (most, alone, size)]
            print(
                f"{name:10} {seconds:4.0f} s, peak {sizes[0]} MiB, sessions {sizes[1]}, file {sizes[2]}: +{times:.1f}"
            )
    figures.write(asked.json, {"date": time.strftime("%Y-%m-%d"), "machine": figures.machine(), "rows": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
