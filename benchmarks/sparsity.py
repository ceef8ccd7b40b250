"""Does a net with zeros run faster? 2:4, 70 and 90 % zeros beside dense, in turns, in each runtime and precision.

    python benchmarks/sparsity.py [--nets conv,feed_forward] [--only onnx-fp32,...] [--rounds 12] [--seconds 0.5]
                                  [--threads 1] [--store FOLDER] [--json FILE]

The nets have random weights, of sizes that matter: 1 x 1 and depthwise convolutions as sparse kernels want them, and
the feed-forward blocks of a transformer, all widths multiples of 64. Nothing is judged but speed. Printed: how much
faster than dense (1: not at all) with its interval, and the machine. "faster" and "slower" need the interval to exclude
1, and 2 %; the same file once more ("dense again") shows what such a difference is worth.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import figures
import numpy as np

from edgecompress.commands import job_run
from edgecompress.core import catalog, stats
from edgecompress.core.model import Outcome, Stage
from edgecompress.core.settings import Target, Variant
from edgecompress.pipeline import job, plan
from edgecompress.pipeline.job_request import Options
from edgecompress.pipeline.runner import PlanRun
from edgecompress.pipeline.verification import RUN_CONTEXT

HERE = Path(__file__).resolve()
ITEMS = {"calibrate": 8, "select": 1, "test": 4}  # of random data in each split
SHAPES = {"conv": (3, 96, 96), "feed_forward": (16, 512), "tiny": (3, 32, 32)}
DENSE, AGAIN = "dense", "dense again"
KINDS: dict[str, tuple[dict[str, Any], ...]] = {
    DENSE: (),
    "2of4": ({"use": "prune_nm"},),
    "70": ({"use": "prune_unstructured", "sparsity": 0.7},),
    "90": ({"use": "prune_unstructured", "sparsity": 0.9},),
}
RUNTIMES = ("onnx", "openvino", "litert", "executorch")
PRECISIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "fp32": (),
    "int8": ({"use": "int8"},),
    "sparse": ({"use": "mnn_sparse"},),
}
WAYS = (*(f"{runtime}-{precision}" for runtime in RUNTIMES for precision in ("fp32", "int8")), "mnn-fp32", "mnn-sparse")

# --------------------------------------------------------------------------- nets, and what goes in


def conv() -> Any:
    """x [n, 3, 96, 96] -> logits [n, 10]: 3 x 3 with stride 2, then depthwise 3 x 3 and 1 x 1, then a mean."""
    return _separable((64, 128, 256, 256, 512, 512), strides=(1, 2, 1, 2, 1))


def tiny() -> Any:
    """x [n, 3, 32, 32] -> logits [n, 10]: the same, to see that it works."""
    return _separable((8, 16), strides=(2,))


def _separable(widths: Sequence[int], strides: Sequence[int]) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(0)
    layers = [nn.Conv2d(3, widths[0], 3, 2, 1), nn.ReLU()]
    for i, o, stride in zip(widths, widths[1:], strides, strict=False):
        layers += [nn.Conv2d(i, i, 3, stride, 1, groups=i), nn.ReLU(), nn.Conv2d(i, o, 1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 10))


def feed_forward() -> Any:
    """x [n, 16, 512] -> [n, 16, 512]: four blocks of two matrices, a shortcut and a norm."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wide, self.narrow, self.norm = nn.Linear(512, 2048), nn.Linear(2048, 512), nn.LayerNorm(512)

        def forward(self, x: Any) -> Any:
            return self.norm(x + self.narrow(torch.relu(self.wide(x))))

    torch.manual_seed(0)
    return nn.Sequential(*(Block() for _ in range(4)))


def conv_data(split: str) -> Iterator[dict[str, Any]] | None:
    return _noise("conv", split)


def tiny_data(split: str) -> Iterator[dict[str, Any]] | None:
    return _noise("tiny", split)


def feed_forward_data(split: str) -> Iterator[dict[str, Any]] | None:
    return _noise("feed_forward", split)


def _noise(net: str, split: str) -> Iterator[dict[str, Any]] | None:
    if split not in ITEMS:
        return None
    seeded = np.random.default_rng(len(split))
    return ({"input": seeded.normal(size=SHAPES[net]).astype(np.float32)} for _ in range(ITEMS[split]))


# --------------------------------------------------------------------------- measuring


def main() -> int:
    """Prints the table of the nets and ways that are asked for."""
    parser = figures.flags(__doc__, "store", "json")
    parser.add_argument("--nets", default="conv,feed_forward", help=f"of {', '.join(SHAPES)}")
    parser.add_argument("--only", default=",".join(WAYS), help="runtimes and precisions, separated by commas")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each turn")
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    rows = [row for net in asked.nets.split(",") for row in measured(net, asked)]
    machine = {key: value for key, value in job.job().context.device["fingerprint"].items() if key != "features"}
    show(rows, machine)
    figures.write(asked.json, {"rows": rows, "machine": machine})
    return 0


def measured(net: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """A row for each kind of zeros in each way."""
    ways = asked.only.split(",")
    wanted = jobs(net, ways, asked.threads)
    steps = plan.deploy(wanted)
    walk = job_run.begin(wanted, Options(store=asked.store), f"sparsity>{net}")
    walk.path = [str(HERE.parent), *walk.path]  # where the factories are
    made = {candidate.name: candidate.artifact for candidate in steps.candidates}
    needed = needs(made.values(), {stage.name: stage for stage in steps.stages})
    walk.stages([stage for stage in steps.stages if stage.name in needed])
    return [row for way in ways for row in in_turns(walk, net, way, {k: made[f"{way}-{k}"] for k in KINDS}, asked)]


def jobs(net: str, ways: Sequence[str], threads: int) -> job.Job:
    """A target whose variants are every kind of zeros in every way."""
    model, data = f"{HERE.stem}:{net}", f"{HERE.stem}:{net}_data"
    found = job.job(model, profile="quick", data=data, metric="none", threads=threads)
    variants = tuple(
        # what is not sparse has no sparse form
        Variant(
            f"{way}-{kind}",
            runtime,
            compress=(*zeros, *(PRECISIONS[precision] if zeros or precision != "sparse" else ())),
        )
        for way in ways
        for runtime, _, precision in [way.partition("-")]
        for kind, zeros in KINDS.items()
    )
    target = Target("Sparse beside dense", RUNTIMES[0], variants)
    return dataclasses.replace(found, target=dataclasses.replace(found.target, value=target))


def needs(names: Any, stages: Mapping[str, Any]) -> set[str]:
    """The stages that those are made by."""
    return set().union(*({name} | needs(stages[name].inputs.values(), stages) for name in names))


def in_turns(
    walk: PlanRun, net: str, way: str, made: Mapping[str, str], asked: argparse.Namespace
) -> list[dict[str, Any]]:
    """The three of one way, and the first once more, in one process, in turns."""
    broken = {kind: walk.outcomes[name].reason for kind, name in made.items() if walk.outcomes[name].status != "ok"}
    if DENSE in broken:
        return [{"net": net, "way": way, "zeros": DENSE, "why": broken[DENSE]}]
    there = {kind: name for kind, name in {**made, AGAIN: made[DENSE]}.items() if kind not in broken}
    outcome = walk.stage(turns(way, there, asked))
    return [row(net, way, kind, outcome, broken) for kind in (*made, AGAIN) if kind != DENSE]


def turns(way: str, made: Mapping[str, str], asked: argparse.Namespace) -> Stage:
    """The stage that times them; what is stored of it is never used again."""
    runtime = way.partition("-")[0]
    profile = {**catalog.profile("quick").value.protocol(), "warmup_s": asked.seconds}
    protocol = {"rounds": asked.rounds, "window_s": asked.seconds, "profile": profile}
    return Stage(
        f"{way}/turns",
        "stages.interleaved:run",
        {**made, "samples": "data"},
        {"runtime": runtime, "order": list(made), **protocol},
        variants=(way,),
        context=RUN_CONTEXT,
        plugins=(f"runtimes.{runtime}", "transports.host"),
        max_age_s=0.0,
    )


def row(net: str, way: str, kind: str, outcome: Outcome, broken: Mapping[str, str]) -> dict[str, Any]:
    """How much faster than dense, or why there is no number."""
    found = {"net": net, "way": way, "zeros": kind}
    facts = outcome.facts
    why = broken.get(kind) or outcome.reason or facts["crashed"].get(kind) or facts["crashed"].get(DENSE, "")
    if why:
        return {**found, "why": why}
    ratio = stats.ratio(facts["medians_ms"][DENSE], facts["medians_ms"][kind])
    says = ("faster" if ratio.median > 1 else "slower") if ratio.changed else "no change"
    return {**found, "speed_up": ratio.median, "interval": [ratio.low, ratio.high], "says": says, "why": ""}


def show(rows: Sequence[Mapping[str, Any]], machine: Mapping[str, Any]) -> None:
    """The table, and the machine."""
    cells = []
    for r in rows:
        ends = "" if r["why"] else "{:.3f} .. {:.3f}".format(*r["interval"])
        speed_up = "" if r["why"] else f"{r['speed_up']:.3f}"
        cells.append((r["net"], r["way"], r["zeros"], speed_up, ends, r["why"] or r["says"]))
    columns = ("net", "runtime", "zeros", "speed-up", "interval", "")
    figures.show("Times as fast as dense", columns, cells, dict(machine))


if __name__ == "__main__":
    sys.exit(main())
