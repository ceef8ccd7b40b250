"""Weights of 8 bits for OpenVINO by NNCF; activations stay in float."""

from __future__ import annotations

from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.openvino import weights_only
from edgecompress.techniques import _skipped_layers, _weights_only

REQUIRES = ("openvino", "nncf")
EXTRA = "openvino"
READS: tuple[str, ...] = ("openvino",)
WRITES = "openvino"
PROVIDES = "int8-weights"
NEEDS: tuple[str, ...] = ()
PREPARED = False

BITS = 8
Options = _weights_only.Options
kept = _skipped_layers.kept_as_expressions


def promises(_: Options) -> Promise:
    """Weights of 8 bits."""
    return _weights_only.promise(BITS)


def apply(request: Request) -> Artifact:
    """See `weights_only.apply`."""
    return weights_only.apply(request, BITS)
