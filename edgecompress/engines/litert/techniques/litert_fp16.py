"""Half-precision weights for LiteRT: half the size; arithmetic in fp32 on a CPU, in fp16 on a GPU delegate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.litert import quantizer
from edgecompress.techniques import _fp16_ranges, _skipped_layers

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ()


@dataclass(frozen=True)
class Options:
    """What stays in fp32."""

    # The smallest operators, as long as they hold together at most this share of the weights: the first convolutions
    # of MobileNetV2 are 2 % of its size and cost 20 dB.
    small: float = 0.05
    skip: tuple[str, ...] = ()  # operators kept in fp32, as regular expressions of their outputs' names

    def __post_init__(self) -> None:
        if not 0 <= self.small < 1:
            raise ValueError("small must be at least 0 and below 1")
        quantizer.check_patterns(self.skip)


def promises(options: Options) -> Promise:
    """Half-precision weights; who multiplies them decides in what."""
    return _skipped_layers.promise("fp16", "", options.skip)


def apply(request: Request) -> Artifact:
    """The TFLite model with fp16 weights; inputs: "model".

    facts: {"kept": [operator in fp32]}: small ones, those of `skip`, and those whose weights do not fit into fp16;
    "lost" where no weights are in fp32.
    """
    from ai_edge_quantizer import qtyping

    options: Options = request.options
    data = quantizer.source(request)
    known = quantizer.operators(data)
    large = [op.scope for op in known if op.largest > _fp16_ranges.LARGEST]
    kept = [*dict.fromkeys([*quantizer.matching(known, options.skip), *large, *_small(known, options.small)])]
    recipe = quantizer.recipe()
    recipe.add_weight_only_config(
        ".*", qtyping.TFLOperationName.ALL_SUPPORTED, num_bits=16, algorithm_key="float_casting"
    )
    quantizer.keep(recipe, [*kept, *(op.scope for op in known if not op.weights)])  # int8 weights are no float ones
    facts: dict[str, Json] = {"kept": kept}
    if not any(op.weights for op in known):
        facts["lost"] = "changed nothing in this model: it has no weights in fp32"
    return quantizer.artifact(request, quantizer.quantized(data, recipe), facts)


def _small(known: Sequence[quantizer.QuantizerOperator], share: float) -> list[str]:
    """The smallest operators with weights, together at most that share of all weights."""
    weighted = sorted((op for op in known if op.weights), key=lambda op: op.weights)
    left = share * sum(op.weights for op in weighted)
    chosen = []
    for op in weighted:
        left -= op.weights
        if left < 0:
            break
        chosen.append(op.scope)
    return chosen
