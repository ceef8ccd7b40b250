"""Dynamic int8 for LiteRT: int8 weights, activations quantized at run time; no calibration data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.litert import quantizer, weight_edits

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "int8-dynamic"
SYNONYMS = ("int8-weights",)  # the kernels round activations as they come
NEEDS: tuple[str, ...] = ()

ONE_SCALE = ("FULLY_CONNECTED", "BATCH_MATMUL", "EMBEDDING_LOOKUP")  # tflite-runtime 2.14 takes the first for all


@dataclass(frozen=True)
class Options:
    """What stays in float."""

    # XNNPACK has no dynamic kernel of depthwise convolutions: with them MobileNetV2 takes three times as long as fp32.
    depthwise: bool = False
    # "tensor": one scale for all channels of matrices and tables, which tflite-runtime 2.14 computes rightly as well; a
    # matrix whose rows it would cost more than a bit is evened, and a MUL behind it undoes that.
    scales: Literal["channel", "tensor"] = "channel"
    skip: tuple[str, ...] = ()  # operators kept in float, as regular expressions of their outputs' names

    def __post_init__(self) -> None:
        quantizer.check_patterns(self.skip)


def promises(options: Options) -> Promise:
    """Int8 weights; most operators multiply them with what is quantized as it comes."""
    return Promise("int8", "int8-dynamic", 0.0 if options.skip else Promise.share, 0.0)


def apply(request: Request) -> Artifact:
    """The TFLite model with int8 weights; inputs: "model".

    facts: {"quantized", "skipped": [operator]}; "lost" when no operator has weights.
    """
    from ai_edge_quantizer import qtyping

    options: Options = request.options
    data = quantizer.source(request)
    data = weight_edits.evened(data) if options.scales == "tensor" else data
    known = quantizer.operators(data)
    skipped = quantizer.matching(known, options.skip)
    recipe = quantizer.recipe()
    recipe.add_dynamic_config(".*", qtyping.TFLOperationName.ALL_SUPPORTED, num_bits=8)
    turned = [op.scope for op in known if op.type == "BATCH_MATMUL" and op.turned]  # LiteRT wants int8 on the right
    floats: tuple[str, ...] = () if options.depthwise else ("DEPTHWISE_CONV_2D",)
    if options.scales == "tensor":
        for kind in ONE_SCALE:
            names = qtyping.TFLOperationName(kind), qtyping.QuantGranularity.TENSORWISE
            recipe.add_dynamic_config(".*", names[0], num_bits=8, granularity=names[1])
        floats += ("CONV_2D_TRANSPOSE",)  # the elder has no kernel with int8 weights
    quantizer.keep(recipe, [*skipped, *turned], floats)
    after = quantizer.quantized(data, recipe)
    left = {op.scope for op in quantizer.operators(after) if op.weights}
    chosen = [op.scope for op in known if op.weights and op.scope not in left]
    facts: dict[str, Json] = {"quantized": chosen, "skipped": skipped}
    if not chosen:
        facts["lost"] = "changed nothing in this model: it has no operator with weights that dynamic int8 shrinks"
    return quantizer.artifact(request, after, facts)
