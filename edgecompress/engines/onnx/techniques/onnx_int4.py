"""Weights of 4 bits for ONNX Runtime's MatMulNBits, in groups with a scale each; activations stay in float."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.core.settings import Knob
from edgecompress.engines.onnx import weights_only
from edgecompress.techniques import _skipped_layers, _weights_only

REQUIRES = ("onnx", "onnxruntime>=1.31", "sympy")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "int4"
NEEDS: tuple[str, ...] = ("samples",)
PREPARED = False
KNOBS = {"group": Knob(choices=(32, 64, 128))}

BITS = 4


@dataclass(frozen=True)
class Options(_weights_only.FourBits):
    """How weights are rounded, and which."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.method == "awq" and self.symmetric:
            raise ValueError(
                "method = 'awq' needs symmetric = false: what NNCF 3.4 writes without zero points is wrong"
            )


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less."""
    return _weights_only.rungs(options, ("gptq",) if options.get("symmetric") else ("awq", "gptq"))


def promises(_: Options) -> Promise:
    """Weights of 4 bits."""
    return _weights_only.promise(BITS)


kept = partial(_skipped_layers.kept_as_patterns, option="int8")
FINER = {8: kept, 32: _skipped_layers.kept_as_patterns}
goal = _weights_only.goal


def apply(request: Request) -> Artifact:
    """See `weights_only.apply`."""
    return weights_only.apply(request, BITS)
