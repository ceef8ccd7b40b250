"""Dynamic int8 of a torch program (PT2E): int8 weights, activations quantized as they come."""

from __future__ import annotations

from dataclasses import dataclass

from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.techniques import _pt2e, _skipped_layers

REQUIRES = ("torch", "torchao", "executorch>=1.5")
EXTRA = "executorch"
READS: tuple[str, ...] = ("program",)
WRITES = "program"
PROVIDES = "int8-dynamic"
SYNONYMS = ("int8-weights",)  # the kernels round activations as they come
NEEDS: tuple[str, ...] = ("samples",)  # one item: what the program is exported with


@dataclass(frozen=True)
class Options:
    """How the program is quantized."""

    quantizer: _pt2e.Quantizer = "xnnpack"  # whose kernels it is for: ExecuTorch's XNNPACK delegate, or LiteRT
    per_channel: bool = True  # of weights
    skip: tuple[str, ...] = ()  # modules kept in float, as patterns of their names


def promises(options: Options) -> Promise:
    """Int8 weights, multiplied with what is quantized as it comes."""
    return _skipped_layers.promise("int8", "int8-dynamic", options.skip)


def apply(request: Request) -> Artifact:
    """The program with int8 weights; inputs: "model", "samples"."""
    options: Options = request.options
    library = _pt2e.library(options.quantizer)
    config = library.get_symmetric_quantization_config(is_per_channel=options.per_channel, is_dynamic=True)
    return _pt2e.ends(request, _pt2e.quantized(request, _pt2e.made(library, config), [[0]], options.skip))
