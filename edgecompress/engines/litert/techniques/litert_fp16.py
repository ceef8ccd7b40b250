"""Half-precision weights for LiteRT: half the size; arithmetic in fp32 on a CPU unless asked for, fp16 on a GPU."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.engines.litert import layer_outputs, model_edits, quantizer, session
from edgecompress.techniques import _fp16_ranges, _skipped_layers
from edgecompress.techniques._calibration import inputs_of, spread

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "fp16"
NEEDS: tuple[str, ...] = ("samples",)

ALLOWED, ALLOWS = "reduced_precision_support", b"fp16accfp16"  # computing, and adding up


@dataclass(frozen=True)
class Options:
    """What stays in fp32."""

    # The smallest operators, as long as they hold together at most this share of the weights: the first convolutions
    # of MobileNetV2 are 2 % of its size and cost 20 dB.
    small: float = 0.05
    skip: tuple[str, ...] = ()  # operators kept in fp32, as regular expressions of their outputs' names
    computes: Literal["fp32", "fp16"] = "fp32"  # fp16: XNNPACK does where the CPU has the instructions, else fp32
    samples: int | None = 16  # calibration items at most that show whether the net may compute in fp16; None is all
    headroom: float = 4.0  # how many times larger than on the samples a number may get

    def __post_init__(self) -> None:
        if not 0 <= self.small < 1:
            raise ValueError("small must be at least 0 and below 1")
        quantizer.check_patterns(self.skip)
        _fp16_ranges.check(self.samples, self.headroom)


def promises(options: Options) -> Promise:
    """Half-precision weights; who multiplies them decides in what."""
    return _skipped_layers.promise("fp16", "", options.skip)


def apply(request: Request) -> Artifact:
    """The TFLite model with fp16 weights; inputs: "model", "samples" (the calibrate split).

    facts: {"kept": [operator in fp32]}: small ones, those of `skip`, and those whose weights do not fit into fp16;
    "lost" where no weights are in fp32; "computes_fp32": why the file is not allowed to compute in fp16 as asked.
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
    made = quantizer.quantized(data, recipe)
    if options.computes == "fp16":
        if why := _fp16_ranges.too_large(_peaks(request), options.headroom):
            facts["computes_fp32"] = why
        else:
            made = _allowing(made)
    return quantizer.artifact(request, made, facts)


def _peaks(request: Request) -> dict[str, float]:
    """The largest magnitude that each layer answers on the calibration items, in fp32."""
    import numpy as np
    from ai_edge_litert import interpreter

    peaks = dict[str, float]()
    with tempfile.TemporaryDirectory() as folder:
        tapped = layer_outputs.tapped(Request({"model": request.model}, Path(folder)))
        full = session.TfliteSession(session.interpreter(interpreter, tapped, 1), tapped)
        for batch in spread(request, request.options.samples):
            for name, values in full.run(inputs_of(request, batch)).items():
                if values.dtype.kind == "f":
                    held = np.abs(values[np.isfinite(values)]).max(initial=0.0)
                    peaks[name] = max(float(held), peaks.get(name, 0.0))
        full.close()
    told = {tap["output"]: tap["operator"] for tap in tapped.facts["taps"]}
    return {told.get(name, name): peak for name, peak in peaks.items()}


def _allowing(data: bytes) -> bytes:
    """The file with the metadata by which XNNPACK may compute in half precision.

    tensorflow/lite/tools/optimize/reduced_precision_metadata.h.
    """
    from ai_edge_litert import schema_py_generated as schema
    from ai_edge_litert.tools import flatbuffer_utils

    model = flatbuffer_utils.read_model_from_bytearray(bytearray(data))
    buffer, entry = schema.BufferT(), schema.MetadataT()
    buffer.data = list(ALLOWS)
    entry.name, entry.buffer = ALLOWED, len(model.buffers)
    model.buffers.append(buffer)
    model.metadata = [*(model.metadata or ()), entry]
    return model_edits.packed(model)


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
