"""Weights of 4 bits for LiteRT's XNNPACK, in groups with a scale each; activations are rounded to int8 as they come."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from edgecompress.core.errors import StageFailed, first_line
from edgecompress.core.json import Json
from edgecompress.core.model import Artifact, Promise, Request
from edgecompress.core.settings import Knob
from edgecompress.engines.litert import quantizer
from edgecompress.engines.litert.quantizer import QuantizerOperator
from edgecompress.techniques import _skipped_layers, _weights_only
from edgecompress.techniques._calibration import check_samples, inputs_of, spread

if TYPE_CHECKING:
    import numpy as np
    from ai_edge_quantizer.recipe_manager import RecipeManager

REQUIRES = ("ai-edge-litert", "ai-edge-quantizer")
EXTRA = "litert"
READS: tuple[str, ...] = ("tflite",)
WRITES = "tflite"
PROVIDES = "int4"
NEEDS: tuple[str, ...] = ("samples",)
PREPARED = False
KNOBS = {"group": Knob(choices=(32, 64, 128))}

BITS = 4
PRODUCT = "FULLY_CONNECTED"
GREEDY = "GPTQ"  # what the quantizer calls it


@dataclass(frozen=True)
class Options:
    """How weights are rounded, and which; they have no zero points."""

    group: Literal[32, 64, 128] = 32  # numbers of a row that share a scale
    method: Literal["nearest", "gptq"] = "nearest"
    samples: int | None = 64  # calibration items at most, for gptq; None is all
    skip: tuple[str, ...] = ()  # operators kept in float, as regular expressions of their outputs' names
    int8: tuple[str, ...] = ()  # operators with 8 bits and a scale for each row, named likewise
    bits: float | None = None  # of a weight on average, 4 to 8: which have 8, or stay in float, is then chosen

    def __post_init__(self) -> None:
        check_samples(self.samples)
        _weights_only.check_bits(self.bits)
        quantizer.check_patterns((*self.skip, *self.int8))


def promises(_: Options) -> Promise:
    """Weights of 4 bits."""
    return _weights_only.promise(BITS)


def rungs(options: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """What else may lose less."""
    return _weights_only.rungs(options, ("gptq",))


kept = partial(_skipped_layers.kept_as_expressions, option="int8")
FINER = {8: kept, 32: _skipped_layers.kept_as_expressions}
goal = _weights_only.goal


def apply(request: Request) -> Artifact:
    """The TFLite model with weights of few bits; inputs: "model", "samples" (calibrate, for gptq).

    facts: {"bits", "group", "method", "quantized": [operator], "int8": [operator], "numbers": {operator: weights}};
    "lost" where no product is large enough. A row that is no multiple of the group has 8 bits.
    """
    options: Options = request.options
    data = quantizer.source(request)
    known = quantizer.operators(data)
    skipped, wide = (quantizer.matching(known, patterns) for patterns in (options.skip, options.int8))
    taken = [op for op in known if op.scope not in skipped and _large(op, options)]
    wide = [op.scope for op in taken if op.scope in wide or op.shape[1] % options.group]
    narrow = [op.scope for op in taken if op.scope not in wide]
    recipe = _recipe(options, narrow, wide)
    ranges = _hessians(request, data, recipe) if options.method == "gptq" and narrow else None
    facts: dict[str, Json] = {"bits": BITS, "group": options.group, "method": options.method}
    facts |= {"quantized": [op.scope for op in taken], "int8": wide, "numbers": {op.scope: op.weights for op in taken}}
    if not taken:
        facts["lost"] = _weights_only.NOTHING
    return quantizer.artifact(request, quantizer.quantized(data, recipe, ranges) if taken else data, facts)


def _large(op: QuantizerOperator, options: Options) -> bool:
    """Whether it is a product whose weight is worth it: [columns, rows]."""
    product = op.type == PRODUCT and len(op.shape) == 2
    return product and op.shape[0] >= _weights_only.LEAST_COLUMNS and op.shape[1] >= options.group


def _recipe(options: Options, narrow: Collection[str], wide: Collection[str]) -> RecipeManager:
    """Of each operator its own: what is not named stays in float."""
    from ai_edge_quantizer import qtyping

    recipe, product = quantizer.recipe(), qtyping.TFLOperationName.FULLY_CONNECTED
    groups = qtyping.QuantGranularity(f"BLOCKWISE_{options.group}")
    how = {"algorithm_key": GREEDY} if options.method == "gptq" else {}
    for scope in narrow:
        recipe.add_dynamic_config(quantizer.exactly(scope), product, num_bits=BITS, granularity=groups, **how)
    for scope in wide:
        recipe.add_dynamic_config(quantizer.exactly(scope), product, num_bits=8)
    return recipe


def _hessians(request: Request, data: bytes, recipe: RecipeManager) -> Mapping[str, Mapping[str, np.ndarray]]:
    """What GPTQ has to know of the products' inputs. Raises StageFailed with the quantizer's reason."""
    from ai_edge_quantizer import calibrator

    batches = spread(request, request.options.samples)
    request.progress(0.1, "calibrating")
    try:
        work = calibrator.Calibrator(memoryview(data), num_threads=1)
        (signature,) = work.get_signature_list()
        for batch in batches:
            work.calibrate({signature: [inputs_of(request, batch)]}, recipe)
    except Exception as error:  # its errors have no base of their own
        raise StageFailed(f"ai-edge-quantizer, gptq: {first_line(error)}") from error
    ranges: Mapping[str, Mapping[str, np.ndarray]] = work.get_model_qsvs()
    return ranges
