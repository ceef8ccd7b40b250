"""Weights of 8 bits for ONNX Runtime's MatMulNBits, in groups with a scale each; activations stay in float."""

from __future__ import annotations

from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.onnx import weights_only
from edgecompress.techniques import _skipped_layers, _weights_only

REQUIRES = ("onnx", "onnxruntime>=1.31", "sympy")
EXTRA = "onnx"
READS: tuple[str, ...] = ("onnx",)
WRITES = "onnx"
PROVIDES = "int8-weights"
NEEDS: tuple[str, ...] = ()
PREPARED = False

BITS = 8
Options = _weights_only.Options
kept = _skipped_layers.kept_as_patterns


def promises(_: Options) -> Promise:
    """Weights of 8 bits."""
    return _weights_only.promise(BITS)


def apply(request: Request) -> Artifact:
    """See `weights_only.apply`."""
    return weights_only.apply(request, BITS)
