"""Rounds the scale of a null net: a technique in one file, in a distribution of its own."""

from __future__ import annotations

import json
from dataclasses import dataclass

from edgecompress.core.model import Artifact, Request

REQUIRES: tuple[str, ...] = ()
EXTRA = ""
READS: tuple[str, ...] = ("null",)  # the kinds that it compresses: "module" is a torch net, "onnx" an ONNX file, ...
WRITES = "null"  # the kind that it makes
PROVIDES = "rounded"  # what targets may ask for, beside its name
NEEDS: tuple[str, ...] = ()  # besides the model: "samples" to calibrate with, "training", "dense"


@dataclass(frozen=True)
class Options:
    """How much of the scale stays."""

    digits: int = 2  # decimals kept

    def __post_init__(self) -> None:
        if self.digits < 0:
            raise ValueError("digits must be at least 0")


# Of a torch net (READS = ("module",), WRITES = "module", EXTRA = "torch") all of `apply` is, with
# `from edgecompress.formats import torch_module` inside it, as libraries are imported when they are needed:
#     net = torch_module.rebuild(request.model)  # a torch.nn.Module
#     ...  # change its weights in place: for weight in net.parameters(): weight.data.mul_(...)
#     return torch_module.save(net, request, [])
def apply(request: Request) -> Artifact:
    """The net with its scale rounded to `options.digits` decimals."""
    net = json.loads(request.model.file(".null").read_text(encoding="utf-8"))
    before = net["scale"]
    net["scale"] = round(before, request.options.digits)
    (request.out / "model.null").write_text(json.dumps(net), encoding="utf-8")
    facts = {"scale_before": before, "scale_after": net["scale"]}
    return Artifact(request.out, WRITES, request.model.inputs, request.model.outputs, facts).write()
