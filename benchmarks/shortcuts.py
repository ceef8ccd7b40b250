"""What folding the shortcuts of ResNet-20 brings: slices and zeros, and the 1x1 convolutions in their place, in turns.

    python benchmarks/shortcuts.py [--runtimes onnx,openvino,litert,executorch] [--rounds 10] [--seconds 0.4]

examples/resnet20 on the planner's road to each runtime, in fp32 and int8, its program folded and as it was written, on
random inputs and one thread; the two run in turns in one process, the order changing each round. Printed: the median of
both, and the ratio of the folded to the other with its interval (below 1: the fold is faster).
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import figures
import numpy as np

from edgecompress.core import registry, stats
from edgecompress.core.model import Artifact, Dim, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.device.agent import timing
from edgecompress.formats import torch_program, torch_shortcuts
from edgecompress.stages import trace
from edgecompress.testing import zoo
from edgecompress.testing.conformance import zoo_cells
from edgecompress.testing.conformance.nets import SPLITS

if TYPE_CHECKING:
    import torch

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "resnet20"
ITEMS = 32  # of a split: enough to calibrate with
WAYS = ("folded", "as written")
PRECISIONS = ("fp32", "int8")


def main() -> int:
    """A line for each runtime and precision."""
    parser = figures.flags(__doc__)
    parser.add_argument("--runtimes", default="onnx,openvino,litert,executorch")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=0.4, help="of each turn")
    asked = parser.parse_args()
    sys.path.append(str(EXAMPLE))
    with tempfile.TemporaryDirectory() as folder:
        for runtime, precision, pair in artifacts(asked.runtimes.split(","), Path(folder)):
            times = turns(runtime, pair, asked.rounds, asked.seconds)
            ratio = stats.ratio(*times)
            beside = f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"
            medians = ", ".join(f"{way} {statistics.median(t):.4f} ms" for way, t in zip(WAYS, times, strict=True))
            print(f"{runtime:10} {precision:4} {medians}: {beside}", flush=True)
    return 0


def artifacts(runtimes: Sequence[str], folder: Path) -> Iterator[tuple[str, str, list[Artifact]]]:
    """Runtime, precision, and the net exported in both ways."""
    for seed, split in enumerate(SPLITS):
        image = np.random.default_rng(seed).normal(size=(ITEMS, 3, 32, 32)).astype(np.float32)
        tensors.write_split(folder / "samples" / split, {"image": image})
    specs = (TensorSpec("image", (Dim("batch", 1, ITEMS), 3, 32, 32)),)
    facts = {"splits": dict.fromkeys(SPLITS, ITEMS), "random": True}
    samples = Artifact(folder / "samples", "samples", specs, (), facts).write()
    (folder / "module").mkdir()
    net = trace.load(Request({"samples": samples}, folder / "module", {"source": {"model": "net:build"}}))
    unlike = zoo.ZooNet("", {})
    fold = torch_shortcuts.folded
    with mock.patch.object(torch_shortcuts, "folded", lambda program: {}):  # by no engine
        for runtime, precision in itertools.product(runtimes, PRECISIONS):
            calls, pair = zoo_cells.zoo_road(runtime, precision), []
            for way in WAYS:
                source = zoo_cells.ZooSource(folder / runtime / precision / way, unlike, net, samples, samples)
                program = zoo_cells.travelled(source, calls[:1], 1)
                if way == "folded":
                    rewritten(program, fold)
                pair.append(zoo_cells.travelled(source, calls, 1))
            yield runtime, precision, pair


def rewritten(model: Artifact, fold: Callable[[torch.export.ExportedProgram], object]) -> None:
    """Folds the program of an artifact, where it lies."""
    import torch

    program = torch_program.load(model.file(".pt2"))
    if not fold(program):
        raise SystemExit("the program has no such shortcut")
    torch.export.save(program, model.file(".pt2"))
    model.write()


def turns(runtime: str, pair: Sequence[Artifact], rounds: int, seconds: float) -> list[list[float]]:
    """The median ms of each in each round."""
    sessions = [registry.load("runtimes", runtime).open(artifact, 1) for artifact in pair]
    drawn = np.random.default_rng(0)
    inputs = [{s.name: drawn.normal(size=s.concrete()).astype(s.dtype) for s in pair[0].inputs} for _ in range(8)]
    for session in sessions:
        timing.timed(session.run, inputs, seconds, 50)
    times: list[list[float]] = [[], []]
    for number in range(rounds):
        for i in (0, 1) if number % 2 else (1, 0):
            times[i].append(statistics.median(timing.timed(sessions[i].run, inputs, seconds, 50)) / 1e6)
    return times


if __name__ == "__main__":
    sys.exit(main())
