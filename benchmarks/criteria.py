"""Do criteria rank channels as brute force does? Each unit of ResNet-20 that can go is taken away alone.

    python benchmarks/criteria.py [--items 256] [--store FOLDER] [--json FILE]

Criteria see the calibration split. Brute force is the rise of the cross entropy on the split "select" where what makes
and carries one unit is zero. Printed: Spearman's rank correlation within each layer, the mean over the layers and its
range; seconds of each criterion; the machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from edgecompress.commands import analyze
from edgecompress.core.model import Artifact, Request
from edgecompress.data import tensors
from edgecompress.pipeline import job
from edgecompress.pipeline.job_request import Options
from edgecompress.techniques import prune_channels
from edgecompress.techniques._pruning import criteria

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "resnet20"
MACHINE = ("cpu", "microarchitecture", "cores", "features", "os")
BATCH = 64


def main() -> int:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, default=256, help="of calibration, and of brute force")
    parser.add_argument("--store", type=Path, default=Path(".edgecompress"))
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    sys.path.insert(0, str(EXAMPLE))  # the factory's module
    torch.set_num_threads(1)
    wanted = analyze.AnalysisRequest()
    options = Options(store=asked.store)
    outcomes = analyze.analyze(str(EXAMPLE / "source.toml"), wanted, options=options).outcomes
    model, samples = (outcomes[stage].artifact for stage in ("source", "data"))
    assert model is not None and samples is not None
    with tempfile.TemporaryDirectory() as scratch:
        found = {c: scored(model, samples, Path(scratch), asked.items, c) for c in get_args(criteria.Criterion)}
        truth = brute_force(model, samples, Path(scratch), asked.items)
    rows = {name: {**ranked(scores, truth), "seconds": seconds} for name, (scores, seconds) in found.items()}
    print(f"{'criterion':<12}{'Spearman':>9}   {'worst to best layer':<22}{'seconds':>8}")
    for name, row in sorted(rows.items(), key=lambda each: -each[1]["mean"]):
        print(f"{name:<12}{row['mean']:>9.2f}   {row['low']:>6.2f} to {row['high']:<12.2f}{row['seconds']:>8.1f}")
    device = job.job().context.device["fingerprint"]
    machine = {key: device.get(key) for key in MACHINE}
    print(f"{sum(map(len, truth.values()))} units of {len(truth)} layers, {asked.items} items;", machine)
    if asked.json:
        told = {"rows": rows, "items": asked.items, "machine": machine, "date": time.strftime("%Y-%m-%d")}
        asked.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0


def work_of(model: Artifact, samples: Artifact, out: Path, items: int, criterion: str = "l2") -> Any:
    """The technique at work on the net."""
    options = prune_channels.Options(ratio=0.5, criterion=criterion, samples=items, align=1)  # type: ignore[arg-type]
    inputs = {"model": model, "samples": samples, "dense": model}
    return prune_channels._Work(Request(inputs, Path(tempfile.mkdtemp(dir=out)), options))


def scored(
    model: Artifact, samples: Artifact, out: Path, items: int, criterion: str
) -> tuple[Mapping[str, list[float]], float]:
    """The scores by layer, and the seconds that they took."""
    work = work_of(model, samples, out, items, criterion)
    begun = time.monotonic()
    return work.scores, time.monotonic() - begun


def brute_force(model: Artifact, samples: Artifact, out: Path, items: int) -> dict[str, list[float]]:
    """By layer: the rise of the cross entropy without each unit."""
    work = work_of(model, samples, out, items)
    batches = list(_select(model, samples, items))

    def loss() -> float:
        with torch.no_grad():
            return float(np.mean([float(work.bench.loss(work.net, batch)) for batch in batches]))

    whole, rises = loss(), dict[str, list[float]]()
    for group in work.groups:
        rises[group.name] = []
        for unit in range(group.units):
            with criteria._without(work.net, group, [unit]):
                rises[group.name].append(loss() - whole)
    return rises


def _select(model: Artifact, samples: Artifact, items: int) -> Iterator[tuple[dict[str, Any], Any]]:
    labels = tensors.labels(samples, "select")
    assert labels is not None
    for number, images in enumerate(tensors.batches(samples, "select", BATCH, model=model)):
        at = number * BATCH
        if at >= items:
            return
        named = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in images.items()}
        yield named, torch.from_numpy(np.array(labels[at : at + BATCH], np.int64))


def ranked(scores: Mapping[str, list[float]], truth: Mapping[str, list[float]]) -> dict[str, float]:
    """Spearman's rho within each layer: the mean, the lowest and the highest."""
    from scipy import stats

    each = [float(stats.spearmanr(scores[name], rises).statistic) for name, rises in truth.items()]
    return {"mean": float(np.mean(each)), "low": min(each), "high": max(each)}


if __name__ == "__main__":
    sys.exit(main())
