"""What the tests of `diagnose` share: a net with every kind of layer, the stages that lead to its diagnosis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from edgecompress.core import registry
from edgecompress.core.model import Artifact, Context, Request, TensorSpec
from edgecompress.data import tensors
from edgecompress.stages import diagnose
from edgecompress.testing import conformance

ITEMS = 8


class Small(nn.Module):
    """A convolution, a depthwise one, a pointwise one with a shortcut around both, a pool, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.depth = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.point = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 3, 8, 8] -> [n, 5]."""
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.point(torch.relu(self.depth(x))))
        return self.head(x.mean((2, 3)))


LAYERS = ("stem", "depth", "point", "head")  # those with weights


def net(seed: int = 0) -> Small:
    """The net, its weights drawn, its statistics those of some images."""
    torch.manual_seed(seed)
    made = Small()
    made.train()
    with torch.no_grad():
        for _ in range(10):
            made(torch.randn(16, 3, 8, 8))
    return made.eval()


class Chain(nn.Module):
    """Depthwise and pointwise layers in a row, and nothing around them."""

    def __init__(self, times: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.depth, self.point = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 16, 1)
        self.last = nn.Conv2d(16, 5, 1)
        with torch.no_grad():  # the same function: one channel is so much larger, the next layer makes up for it
            self.depth.weight[3] *= times
            self.depth.bias[3] *= times
            self.point.weight[:, 3] /= times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[n, 3, 8, 8] -> [n, 5, 8, 8]."""
        x = torch.relu(self.depth(torch.relu(self.stem(x))))
        return self.last(torch.relu(self.point(x)))


def program(made: nn.Module, folder: Path) -> Artifact:
    """The net as a program for one image."""
    folder.mkdir(parents=True)
    example = torch.zeros(1, 3, 8, 8)
    traced = torch.export.export(made.eval(), (example,))
    torch.export.save(traced, folder / "program.pt2")
    answer = made(example)
    return Artifact(
        folder, "program", (TensorSpec("x", (1, 3, 8, 8)),), (TensorSpec("output", tuple(answer.shape)),)
    ).write()


def samples(folder: Path) -> Artifact:
    """Images of noise in every split."""
    torch.manual_seed(7)
    for split in conformance.SPLITS:
        tensors.write_split(folder / split, {"x": torch.randn(ITEMS, 3, 8, 8).numpy()})
    splits = {"splits": dict.fromkeys(conformance.SPLITS, ITEMS)}
    return Artifact(folder, "samples", (TensorSpec("x", (1, 3, 8, 8)),), (), splits).write()


def stage(call: str, inputs: dict[str, Artifact], out: Path, **options: Any) -> Artifact:
    """One stage, in this process."""
    module, function = registry.call(call)
    out.mkdir(parents=True)
    given = module.Options(**options) if hasattr(module, "Options") else options
    return getattr(module, function)(Request(inputs, out, given, Context()))  # type: ignore[no-any-return]


def diagnosed(runtime: str, given: dict[str, Artifact], folder: Path, **export: Any) -> dict[str, Any]:
    """The facts of a diagnosis: `given` has "model", "source", "samples" and perhaps "before"."""
    known = {role: given[role] for role in ("model", "before") if role in given}
    tapped = stage(f"runtimes.{runtime}:tapped", known, folder / "tapped", **export)
    inputs = {role: given[role] for role in ("model", "source", "samples")}
    options = {"runtime": runtime, "source_runtime": "", "split": "calibrate", "items": ITEMS}
    (folder / "diagnosis").mkdir()
    asked = Request({**inputs, "tapped": tapped}, folder / "diagnosis", options, Context())
    return dict(diagnose.run(asked).facts)


def told(facts: dict[str, Any]) -> str:
    """The table, for a failing test."""
    keys = ("name", "type", "operator", "dtype", "sqnr_db", "own_sqnr_db", "growth_db", "effect", "outlier", "clipped")
    lines = [
        "  ".join(f"{row[key]:.3g}" if isinstance(row[key], float) else str(row[key]) for key in keys)
        for row in facts["layers"]
    ]
    return "\n".join([*lines, str(facts["outputs"]), facts["advice"], facts["says"], str(facts["unmatched"])])
