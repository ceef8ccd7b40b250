"""Weights of 8 bits for LiteRT: its kernels round activations as they come, so it is what dynamic int8 is."""

from __future__ import annotations

from edgecompress.core.model import Promise
from edgecompress.engines.litert.techniques import litert_dynamic
from edgecompress.techniques import _weights_only

REQUIRES = litert_dynamic.REQUIRES
EXTRA = litert_dynamic.EXTRA
READS = litert_dynamic.READS
WRITES = litert_dynamic.WRITES
PROVIDES = "int8-weights"
NEEDS = litert_dynamic.NEEDS

Options = litert_dynamic.Options
apply = litert_dynamic.apply


def promises(_: Options) -> Promise:
    """Weights of 8 bits."""
    return _weights_only.promise(8)
